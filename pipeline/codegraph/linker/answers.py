"""Which answers of a file a change has changed: see `asked` for the questions.

Both versions of the file are compared piece by piece. Equal pieces have the same number, places apart, whatever was moved. The
outside of a definition is told apart from what is in it, and what is in no changed definition is not looked at closely.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import cached_property
from typing import cast

from pipeline.codegraph.files import all_of, read_of
from pipeline.codegraph.linker.asked import ATTACHED, BODY, FOUND, MEMBER, NAME, SHAPE, STAR, Key, place_of
from pipeline.codegraph.linker.bindings import EXPORT, RESULT
from pipeline.codegraph.linker.scopes import Module, Unit
from pipeline.codegraph.summary import Class, Define, Form, Function, Summary

MOST = 1_000_000
"""Names and statements that are looked at to tell answers apart; for a file with more of them all answers count as changed."""

_PLACES = frozenset({"line"})
"""Fields of forms that say where something stands: no other file can tell."""

_PAIRED = frozenset({"bases", "decorators"})
"""Fields whose expressions come with their lines."""


def differing(path: str, old: Summary, new: Summary) -> Iterator[str]:
    """Yield the reads whose answers differ between two versions of a file; the same one perhaps twice."""
    numbers: dict[Hashable, int] = {}
    before, after = _Version(old, numbers), _Version(new, numbers)
    if before.everything == after.everything:
        return
    yield all_of(path)
    if (old.language, old.package) != (new.language, new.package):
        yield path
        return
    comparison = _Comparison(before, after)
    if not comparison.can_tell():
        yield path  # which everyone has read who has asked for anything
        return
    place = place_of(path, new.language)
    yield from (read_of(place, *key) for key in comparison.questions())


class _Version:
    """A summary in numbered pieces. A number stands for what a piece says; two versions number together."""

    def __init__(self, summary: Summary, numbers: dict[Hashable, int]) -> None:
        self.module = Module("", summary)
        self.root = self.module.root
        self.exports = summary.exports
        self.kept: frozenset[Hashable] = frozenset()
        self._numbers = numbers
        self._wholes: dict[int, int] = {}
        self._outsides: dict[int, int] = {}
        self._units: dict[int, Unit] = {}

    @cached_property
    def everything(self) -> Hashable:
        """All that other files can tell."""
        said = self.module.summary
        return said.language, said.package, said.exports, self.module.symbols, self.whole(said.body)

    @cached_property
    def definitions(self) -> dict[str, list[tuple[Hashable, Function | Class]]]:
        """The functions and classes at any depth by their qualified names, each with the one in which it stands."""
        found: dict[str, list[tuple[Hashable, Function | Class]]] = {}
        waiting: list[tuple[object, Hashable]] = [(self.module.summary.body, ())]
        while waiting:
            value, around = waiting.pop()
            if isinstance(value, tuple):
                waiting.extend([(each, around) for each in cast("tuple[object, ...]", value)])
            elif isinstance(value, Form):
                if isinstance(value, Function | Class):
                    found.setdefault(value.qualname, []).append((around, value))
                    around = type(value), value.qualname
                waiting.extend([(getattr(value, name), around) for name in value.__struct_fields__])
        return found

    def wholes(self, qualname: str) -> tuple[Hashable, ...]:
        """Return all that definitions of a qualified name say, and where they stand."""
        return tuple([(around, self.whole(form)) for around, form in self.definitions.get(qualname, ())])

    # --- pieces ------------------------------------------------------------------------------------------------------

    def whole(self, value: object) -> Hashable:
        """Return what stands for a piece with all that is in it."""
        if isinstance(value, tuple):
            return tuple(map(self.whole, cast("tuple[object, ...]", value)))
        if isinstance(value, str):
            return value
        if not isinstance(value, Form):
            return type(value), value  # 1 and True are no equal constants
        found = self._wholes.get(id(value))
        if found is None:
            said = tuple(map(self.whole, _fields(value)))
            found = self._wholes[id(value)] = self._number((type(value), self._is_symbol(value), said))
        return found

    def outside(self, value: object) -> Hashable:
        """Return what stands for a piece without what is in the functions and classes that it defines."""
        if isinstance(value, tuple):
            return tuple(map(self.outside, cast("tuple[object, ...]", value)))
        if isinstance(value, str):
            return value
        if not isinstance(value, Form):
            return type(value), value
        found = self._outsides.get(id(value))
        if found is None:
            is_open = not isinstance(value, Function | Class)
            said = tuple(map(self.outside, _fields(value, "" if is_open else "body")))
            told = self._told(value) if isinstance(value, Function | Class) else ()
            found = self._outsides[id(value)] = self._number(("-", type(value), self._is_symbol(value), said, told))
        return found

    def _number(self, piece: Hashable) -> int:
        return self._numbers.setdefault(piece, len(self._numbers))

    def _is_symbol(self, value: Form) -> bool:
        return isinstance(value, Function | Class) and value.qualname in self.module.symbols

    def _told(self, node: Function | Class) -> Hashable:
        """Return what can be seen of a definition's body without looking into it: see `Calls.invoke`, `Record`."""
        number = self.whole(node)
        if number in self.kept:  # it is in both versions
            return number
        if isinstance(node, Function):
            unit = Unit(self.module, None, "function", node.qualname, node, node.body)
            return bool(unit.binds(RESULT)), unit.changes
        if self.module.by_name:
            return ()
        methods = [method.function for method in self._unit(node).methods if method.function is not None]
        return tuple([self.outside(method) for method in methods if method.kind == "constructor"])

    def _unit(self, node: Class) -> Unit:
        found = self._units.get(id(node))
        if found is None:
            found = self._units[id(node)] = Unit(self.module, None, "class", node.qualname, node, node.body)
        return found

    # --- answers -----------------------------------------------------------------------------------------------------

    def name(self, name: str) -> Hashable:
        """Answer NAME."""
        offered = EXPORT + name
        return (
            self._part(self.root, name) if self.root.has(name) else None,
            self._part(self.root, offered) if self.root.has(offered) else None,
        )

    def _part(self, unit: Unit, name: str) -> tuple[Hashable, ...]:
        return tuple([self.outside(statement) for statement in unit.part(unit.body, unit.wanted(name))])

    @cached_property
    def shape(self) -> Hashable:
        """Answer SHAPE."""
        return self.whole(self.root.stars), self.root.closed

    def body(self, qualname: str) -> Hashable:
        """Answer BODY."""
        forms = [form for _, form in self.definitions.get(qualname, ()) if isinstance(form, Function)]
        return tuple([self.whole(form.body) for form in forms])

    def found(self, qualname: str) -> Hashable:
        """Answer FOUND."""
        those = [each for part in _above(qualname) for each in self.definitions.get(part, ())]
        return tuple([(around, self.outside(form)) for around, form in those])

    def classes(self, qualname: str) -> list[Unit]:
        """Return the classes of a qualified name."""
        return [self._unit(form) for _, form in self.definitions.get(qualname, ()) if isinstance(form, Class)]

    def member(self, unit: Unit, name: str) -> Hashable:
        """Answer MEMBER for one class of a qualified name."""
        setters = unit.setters.get(name, ())
        return (
            unit.outside,
            unit.has(name),
            self._part(unit, name) if unit.binds(name) else None,
            tuple([self.outside(setter.node) for setter in setters]),
        )

    @cached_property
    def attached(self) -> dict[tuple[str, str], list[Hashable]]:
        """Answer ATTACHED, for all methods that stand outside of their classes."""
        found: dict[tuple[str, str], list[Hashable]] = {}
        for leaf in self.root.leaves:
            node = leaf.statement
            if isinstance(node, Define) and node.function.receiver:
                found.setdefault((node.function.receiver, node.name), []).append(self.outside(node))
        return found


class _Comparison:
    """Two versions of one file."""

    def __init__(self, old: _Version, new: _Version) -> None:
        self._old = old
        self._new = new
        qualnames = old.definitions.keys() | new.definitions.keys()
        self._changed = {each for each in qualnames if old.wholes(each) != new.wholes(each)}
        old.kept = new.kept = _numbered(old) & _numbered(new)

    def can_tell(self) -> bool:
        """Whether it can be told, within MOST, what has another answer."""
        old, new = self._old, self._new
        if old.root.outside != new.root.outside:  # names of the file that it says are names of the file
            return False
        left = MOST
        classes = (unit for each in self._changed for version in (old, new) for unit in version.classes(each))
        for unit in (old.root, new.root, *classes):
            for name in _bound(unit):
                wanted = unit.wanted(name)
                left -= 1 + len(wanted) + len(unit.part(unit.body, wanted))
                if left < 0:
                    return False
        return True

    def questions(self) -> Iterator[Key]:
        """Yield what has another answer now."""
        old, new = self._old, self._new
        if old.shape != new.shape:
            yield (SHAPE,)
        if (old.exports is None) != (new.exports is None):
            yield (STAR,)
        for name in set(old.exports or ()) ^ set(new.exports or ()):
            yield STAR, name
        for name in _names(old.root, new.root):
            if old.name(name) != new.name(name):
                yield NAME, name
        for key in old.attached.keys() | new.attached.keys():
            if old.attached.get(key) != new.attached.get(key):
                yield ATTACHED, *key
        yield from self._definitions()

    def _definitions(self) -> Iterator[Key]:
        old, new = self._old, self._new
        for qualname in self._changed:
            if old.body(qualname) != new.body(qualname):
                yield BODY, qualname
            yield from ((MEMBER, qualname, name) for name in self._members(qualname))
        for qualname in old.definitions.keys() | new.definitions.keys():
            if not self._changed.isdisjoint(_above(qualname)) and old.found(qualname) != new.found(qualname):
                yield FOUND, qualname

    def _members(self, qualname: str) -> Iterator[str]:
        """Yield the names of which classes of a qualified name have others now."""
        before, after = self._old.classes(qualname), self._new.classes(qualname)
        for name in _names(*before, *after).union(*(unit.setters for unit in (*before, *after))):
            if [self._old.member(unit, name) for unit in before] != [self._new.member(unit, name) for unit in after]:
                yield name


def _bound(unit: Unit) -> list[str]:
    return [name for name in unit.binding if name[0] != "." and name != RESULT]


def _names(*units: Unit) -> set[str]:
    """Return all names that scopes bind, or under which they offer something."""
    return {name.removeprefix(EXPORT) for unit in units for name in _bound(unit)}


def _numbered(version: _Version) -> frozenset[Hashable]:
    return frozenset([version.whole(form) for those in version.definitions.values() for _, form in those])


def _fields(form: Form, without: str = "") -> Iterator[object]:
    """Yield what a form holds, places apart."""
    for name in form.__struct_fields__:
        if name == without or name in _PLACES:
            continue
        value = getattr(form, name)
        yield tuple([each for each, _ in value]) if name in _PAIRED else value


def _above(qualname: str) -> list[str]:
    """Return a qualified name and those around it: `a.b` and `a`."""
    parts = qualname.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]
