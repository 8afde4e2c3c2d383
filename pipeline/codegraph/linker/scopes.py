"""The scopes of a file, and which of their statements matter to a name, so that these few can be run alone.

All of it follows from a summary.
"""

from __future__ import annotations

from functools import cached_property

from pipeline.codegraph.linker.asked import place_of
from pipeline.codegraph.linker.bindings import EXPORT, RESULT, Leaf, leaves, names_in, sum_binds, walk
from pipeline.codegraph.summary import (
    Assign,
    Attribute,
    Block,
    Call,
    Class,
    Define,
    Export,
    From,
    Function,
    Index,
    Loop,
    Name,
    Raise,
    Scope,
    Sequence,
    Statement,
    Summary,
    This,
)

_EXPORTING = frozenset({"javascript", "typescript"})
_KEYED = frozenset({"getattr", "get", "pop", "setdefault"})
RECEIVING = frozenset({"method", "class", "getter", "constructor"})


class Module:
    """A file with its scopes. Units are the same objects for as long as the module is."""

    def __init__(self, path: str, summary: Summary) -> None:
        self.path = path
        self.summary = summary
        self.language = summary.language
        self.by_name = summary.language == "python"
        self.place = place_of(path, summary.language)
        self.symbols = frozenset([symbol.qualname for symbol in summary.symbols])
        self._units: dict[int, Unit] = {}
        self.root = Unit(self, None, "module", "", summary, summary.body)

    def unit(self, node: Function | Class, parent: Unit) -> Unit:
        """Return the unit of a definition that stands in `parent`."""
        found = self._units.get(id(node))
        if found is None:
            kind = "class" if isinstance(node, Class) else "function"
            found = self._units[id(node)] = Unit(self, parent, kind, node.qualname, node, node.body)
        return found

    @cached_property
    def set_outside(self) -> dict[str, tuple[Unit, ...]]:
        """The scopes that set an attribute of something else than their object, by the attribute."""
        found: dict[str, list[Unit]] = {}
        waiting = [self.root]
        while waiting:
            unit = waiting.pop()
            for name in sorted(unit.sets_outside):
                found.setdefault(name, []).append(unit)
            waiting.extend(reversed(unit.inner))
        return {name: tuple(units) for name, units in found.items()}

    def find(self, qualname: str, number: int = 1) -> Unit | None:
        """Return a unit of this qualified name, the first unless it is numbered, looked for from definition to definition."""
        unit = self.root
        rest = qualname
        while rest:
            inner = [each for each in unit.definitions if rest == each.last or rest.startswith(f"{each.last}.")]
            if not inner:
                return None
            unit = max(inner, key=lambda each: len(each.last))
            rest = rest[len(unit.last) + 1 :]
        same = unit.namesakes
        return unit if number == 1 else same[number - 1] if number <= len(same) else None


class Unit:
    """A scope: a file, a class or a function."""

    def __init__(
        self,
        module: Module,
        parent: Unit | None,
        kind: str,
        qualname: str,
        node: Summary | Function | Class,
        body: Block,
    ) -> None:
        self.module = module
        self.parent = parent
        self.kind = kind
        self.qualname = qualname
        self.node = node
        self.body = body
        above = parent.qualname if parent is not None else ""
        self.last = qualname.removeprefix(f"{above}.") if above else qualname
        self.function = node if isinstance(node, Function) else None
        self._slices: dict[str, frozenset[str]] = {}
        self._parts: dict[tuple[int, frozenset[str]], tuple[Statement, ...]] = {}
        self._carried: dict[int, bool] = {}
        self._positions: dict[int, dict[str, list[int]]] = {}

    @property
    def id(self) -> str:
        """The id of the entity: the file's path, or `path::qualname`."""
        return f"{self.module.path}::{self.qualname}" if self.qualname else self.module.path

    @cached_property
    def first(self) -> str:
        """The name that stands for the object in a method, where that is the first parameter."""
        node = self.function
        if node is None or not self.module.by_name or node.kind not in RECEIVING or not node.parameters:
            return ""
        return node.parameters[0].name

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        """The statements in order, compound ones taken apart."""
        return tuple(leaves(self.body, self.kind == "function", self.module.by_name))

    @cached_property
    def bound(self) -> frozenset[str]:
        """The names that this scope itself has."""
        bound = {name for leaf in self.leaves for name in leaf.names}
        names = {name for name in bound if name[0] != "." and not name.startswith((RESULT, EXPORT))}
        if self.function is not None:
            names.update([parameter.name for parameter in self.function.parameters])
        return frozenset(names - self.outside.keys())

    @cached_property
    def outside(self) -> dict[str, bool]:
        """Names that belong to another scope; True: to the file."""
        return {
            name: leaf.statement.all
            for leaf in self.leaves
            if isinstance(leaf.statement, Scope)
            for name in leaf.statement.names
        }

    @cached_property
    def binding(self) -> dict[str, list[Leaf]]:
        """The statements that bind a name, by all names that anything binds here (see `bindings`)."""
        found: dict[str, list[Leaf]] = {}
        for leaf in self.leaves:
            for name in leaf.binds:
                found.setdefault(name, []).append(leaf)
        return found

    @cached_property
    def _all_binds(self) -> dict[int, frozenset[str]]:
        found: dict[int, frozenset[str]] = {}
        sum_binds(self.body, self._heads, found)
        return found

    @cached_property
    def _heads(self) -> dict[int, frozenset[str]]:
        heads: dict[int, frozenset[str]] = {}
        for leaf in self.leaves:
            heads[id(leaf.statement)] = heads.get(id(leaf.statement), frozenset()) | leaf.binds
        return heads

    def head_binds(self, statement: Statement) -> frozenset[str]:
        """Return what the head of a compound statement binds."""
        return self._heads[id(statement)]

    def has(self, name: str) -> bool:
        """Whether a name gets a value here, or is offered."""
        return name in self.bound or (name.startswith(EXPORT) and name in self.binding)

    def binds(self, name: str) -> list[Leaf]:
        """Return the statements that bind a name."""
        return self.binding.get(name, [])

    @cached_property
    def attributes(self) -> frozenset[str]:
        """The attributes that this scope sets of anything."""
        return frozenset([name[1:] for name in self.binding if name[0] == "."])

    def wanted(self, name: str) -> frozenset[str]:
        """Return the names that matter to this one."""
        found = self._slices.get(name)
        if found is None:
            names: set[str] = set()
            waiting = [name]
            while waiting:
                one = waiting.pop()
                if one not in names:
                    names.add(one)
                    for leaf in self.binding.get(one, ()):
                        waiting.extend(leaf.uses)
            found = self._slices[name] = frozenset(names)
        return found

    def part(self, block: Block, wanted: frozenset[str]) -> tuple[Statement, ...]:
        """Return the statements of a block that bind one of the names, or hold one that does, or leave the block."""
        key = id(block), wanted
        found = self._parts.get(key)
        if found is None:
            positions = self._positions.get(id(block))
            if positions is None:
                positions = self._positions[id(block)] = self._positions_in(block)
            chosen = set(positions.get("", ()))
            for name in wanted if len(wanted) < len(positions) else positions.keys() & wanted:
                chosen.update(positions.get(name, ()))
            found = self._parts[key] = tuple([block[place] for place in sorted(chosen)])
        return found

    def _positions_in(self, block: Block) -> dict[str, list[int]]:
        positions: dict[str, list[int]] = {}
        for place, statement in enumerate(block):
            if isinstance(statement, Raise):
                positions.setdefault("", []).append(place)
            for name in self._all_binds[id(statement)]:
                positions.setdefault(name, []).append(place)
        return positions

    @cached_property
    def setters(self) -> dict[str, tuple[Unit, ...]]:
        """The methods that set an attribute, by its name."""
        found: dict[str, list[Unit]] = {}
        for unit in self.methods:
            for name in unit.attributes:
                found.setdefault(name, []).append(unit)
        return {name: tuple(units) for name, units in found.items()}

    @cached_property
    def shared(self) -> frozenset[str]:
        """The names of this file that functions bind."""
        names: set[str] = set()
        waiting = list(self.inner)
        while waiting:
            unit = waiting.pop()
            names.update([name for name, of_file in unit.outside.items() if of_file])
            waiting.extend(unit.inner)
        return frozenset(names)

    def carried(self, loop: Loop) -> bool:
        """Whether one round of a loop's body may use a name that an earlier round has bound."""
        found = self._carried.get(id(loop))
        if found is None:
            inner = list(leaves(loop.body, self.kind == "function", self.module.by_name))
            bound: set[str] = set()
            if loop.target is not None:
                bound.update(names_in([loop.target]))
            late = {name for leaf in inner for name in leaf.binds} - bound
            found = False
            for leaf in inner:
                if any(name not in bound and name in late for name in leaf.uses):
                    found = True
                    break
                bound.update(leaf.binds)
            self._carried[id(loop)] = found
        return found

    @cached_property
    def stars(self) -> tuple[From, ...]:
        """The imports of everything, in order."""
        return tuple(
            [
                leaf.statement
                for leaf in self.leaves
                if isinstance(leaf.statement, From) and any(name == "*" for name, _ in leaf.statement.names)
            ]
        )

    @cached_property
    def closed(self) -> bool:
        """Whether the file offers only what it exports."""
        return self.module.language in _EXPORTING or any(isinstance(leaf.statement, Export) for leaf in self.leaves)

    @cached_property
    def sets_outside(self) -> frozenset[str]:
        """The attributes that it sets of something else than its object."""
        found: set[str] = set()
        for leaf in self.leaves:
            targets = list(leaf.statement.targets) if isinstance(leaf.statement, Assign) else []
            while targets:
                target = targets.pop()
                if isinstance(target, Sequence):
                    targets.extend(target.items)
                elif isinstance(target, Attribute) and target.of != Name(self.first or "") and target.of != This():
                    found.add(target.name)
        return frozenset(found)

    @cached_property
    def inner(self) -> tuple[Unit, ...]:
        """The classes and functions that stand directly in it."""
        nodes = [
            each.statement.function if isinstance(each.statement, Define) else each.statement for each in self.leaves
        ]
        return tuple([self.module.unit(node, self) for node in nodes if isinstance(node, Function | Class)])

    @cached_property
    def definitions(self) -> tuple[Unit, ...]:
        """The classes and functions that stand directly in it; of one name the first."""
        found: dict[str, Unit] = {}
        for unit in self.inner:
            found.setdefault(unit.last, unit)
        return tuple(found.values())

    @cached_property
    def namesakes(self) -> tuple[Unit, ...]:
        """The definitions that share its qualified name, itself among them: overloads."""
        return tuple([each for each in (self.parent.inner if self.parent else ()) if each.last == self.last])

    def numbered(self, parameter: str) -> str:
        """Return the name of a parameter as of this one among its namesakes; of the first it is the plain name."""
        number = self.namesakes.index(self) + 1 if self in self.namesakes else 1
        return parameter if number == 1 else f"{parameter}#{number}"

    @cached_property
    def methods(self) -> tuple[Unit, ...]:
        """The functions that stand directly in it, all of a name."""
        return tuple(
            [
                self.module.unit(leaf.statement.function, self)
                for leaf in self.leaves
                if isinstance(leaf.statement, Define)
            ]
        )

    @cached_property
    def attached(self) -> dict[tuple[str, str], tuple[Unit, ...]]:
        """The methods that stand outside of their classes, by class and name."""
        found: dict[tuple[str, str], tuple[Unit, ...]] = {}
        for leaf in self.leaves:
            node = leaf.statement
            if isinstance(node, Define) and node.function.receiver:
                key = node.function.receiver, node.name
                found[key] = (*found.get(key, ()), self.module.unit(node.function, self))
        return found

    @cached_property
    def keys(self) -> frozenset[str]:
        """The names that serve as keys in it, or below: only of those a literal's value matters."""
        names: set[str] = set()
        for form in walk(self.body):
            if isinstance(form, Index) and isinstance(form.key, Name):
                names.add(form.key.name)
            elif isinstance(form, Call) and isinstance(form.of, Name | Attribute) and form.of.name in _KEYED:
                names.update([each.name for each in form.arguments if isinstance(each, Name)])
        return frozenset(names)

    @cached_property
    def touches(self) -> frozenset[str]:
        """The names of other scopes that it binds, or whose items it changes."""
        changed = {name for leaf in self.leaves for name in leaf.binds - leaf.names if name[0] != "."}
        return frozenset(self.outside.keys() | (changed - self.bound))

    @cached_property
    def changes(self) -> frozenset[str]:
        """The parameters whose items it changes."""
        if self.function is None:
            return frozenset()
        names = {parameter.name for parameter in self.function.parameters}
        return frozenset([name for name in names if self.binds(name) and name != self.first])
