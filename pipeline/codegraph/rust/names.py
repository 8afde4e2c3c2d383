"""Rust's names: modules written within a file, `use`, and paths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pipeline.codegraph.locals import Locals
from pipeline.codegraph.source import UNKNOWN, Source, first, joined, named
from pipeline.codegraph.summary import Assign, Attribute, Expression, From, Import, Name, Statement

if TYPE_CHECKING:
    from tree_sitter import Node

_LONGEST_PATH = 50
_ROOTS = frozenset({"crate", "super", "self", ""})
_STANDARD = frozenset({"std", "core", "alloc"})
_PRIMITIVE = frozenset(
    "bool char str i8 i16 i32 i64 i128 isize u8 u16 u32 u64 u128 usize f32 f64".split()  # noqa: SIM905
)
_ITEMS = frozenset({
    "function_item", "struct_item", "enum_item", "union_item", "trait_item", "const_item", "static_item", "type_item",
    "mod_item", "function_signature_item",
})  # fmt: skip


@dataclass(slots=True)
class Module:
    """A module written in this file: the file's own has no name. `names` are what it declares, by their internal names."""

    name: str = ""
    parent: Module | None = None
    names: dict[str, str] = field(default_factory=dict[str, str])
    items: set[str] = field(default_factory=set[str])  # of these, what it defines or declares as a module
    modules: dict[str, Module] = field(default_factory=dict[str, "Module"])
    takes_outer: bool = False  # `use super::*`
    takes_others: bool = False  # `use a::*`: any name may come from there

    def find(self, name: str) -> str:
        """Return the internal name of what a name means here, or nothing where it comes from elsewhere."""
        module: Module | None = self
        while module is not None:
            if found := module.names.get(name):
                return found
            module = module.parent if module.takes_outer else None
        return ""


@dataclass(frozen=True, slots=True)
class Use:
    """One name of a `use`: its path, and what it is called here. The name `*` is everything."""

    path: list[str]
    bound: str
    line: int


def collect(source: Source, node: Node, module: Module) -> Module:
    """Note what a module declares, and the modules within it."""
    for child in node.children:
        if child.type in _ITEMS:
            given = child.child_by_field_name("name")
            name = "" if given is None else source.text(given)
            module.names.setdefault(name, joined(module.name, name))
            module.items.add(name)
            body = child.child_by_field_name("body")
            if child.type == "mod_item" and body is not None and source.enter():
                inner = module.modules.setdefault(name, Module(joined(module.name, name), module))
                collect(source, body, inner)
                source.depth -= 1
        elif child.type == "use_declaration":
            for use in uses(source, child):
                if use.path == ["super", "*"]:
                    module.takes_outer = True
                elif use.bound == "*":
                    module.takes_others = True
                elif use.bound != "_":
                    module.names.setdefault(use.bound, joined(module.name, use.bound))
    return module


def uses(source: Source, node: Node) -> Iterator[Use]:
    """Yield the names that a `use` declaration brings."""
    argument = node.child_by_field_name("argument")
    pending: list[tuple[Node, list[str]]] = [] if argument is None else [(argument, [])]
    while pending:
        tree, before = pending.pop()
        line = tree.start_point[0] + 1
        match tree.type:
            case "scoped_use_list" | "use_list":
                path, within = tree.child_by_field_name("path"), tree.child_by_field_name("list")
                before = before if path is None else before + segments(source, path)
                inner = named(tree if within is None else within)
                pending.extend((each, before) for each in reversed(inner))
            case "use_as_clause":
                path, alias = tree.child_by_field_name("path"), tree.child_by_field_name("alias")
                if path is not None and alias is not None:
                    yield Use(_whole(before, segments(source, path)), source.text(alias), line)
            case "use_wildcard":
                path = first(tree)
                yield Use([*before, *([] if path is None else segments(source, path)), "*"], "*", line)
            case _:
                whole = _whole(before, segments(source, tree))
                if 0 < len(whole) <= _LONGEST_PATH:
                    yield Use(whole, whole[-1], line)


def _whole(before: list[str], path: list[str]) -> list[str]:
    """Return a path behind another; `self` at the end of one is the one before."""
    return before if before and path == ["self"] else before + path


def segments(source: Source, node: Node) -> list[str]:
    """Return the parts of a path without its arguments of types; a leading `::` is an empty part."""
    parts: list[str] = []
    at: Node | None = node
    while at is not None and at.type in ("scoped_identifier", "scoped_type_identifier", "generic_type"):
        if at.type == "generic_type":
            at = at.child_by_field_name("type")
            continue
        name, path = at.child_by_field_name("name"), at.child_by_field_name("path")
        parts.append("" if name is None else _bare(source.text(name)))
        at = path
        if path is None:
            parts.append("")
    if at is not None:
        parts.append(_bare(source.text(at)))
    return parts[::-1]


def _bare(name: str) -> str:
    return name.removeprefix("r#")


class Names:
    """What names and paths mean at the place that is being read."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.locals = Locals()
        self.file = collect(source, source.root, Module())
        self.module = self.file
        self.imports: list[Statement] = []  # that paths of expressions stand for
        self._paths: dict[tuple[str, ...], Name] = {}
        self._several: set[str] = set()  # names for several things, of which one is compiled

    def name(self, name: str) -> Name:
        """Return what a single name means."""
        internal = self.locals.look(name)
        return Name(internal if self.locals.knows(name) else self.module.find(name) or name)

    def path(self, parts: list[str], line: int) -> Expression:
        """Return what a path means: a name of this file, or one that is imported for it."""
        if len(parts) > _LONGEST_PATH:
            self.source.counts["nested_too_deeply"] += 1
            return UNKNOWN
        if len(parts) == 1:
            return self.name(parts[0])
        found = self.within(parts)
        if found is not None:
            return found
        first_part = parts[0]
        free = not self.locals.knows(first_part) and not self.module.find(first_part)
        if first_part in _ROOTS or (free and self._is_crate(first_part)):
            return self._imported(parts, line)
        return _attributes(self.name(first_part), parts[1:])

    def _is_crate(self, name: str) -> bool:
        """Whether the free name that a path begins with is another crate's: by convention types are in capitals."""
        return name in _STANDARD or (name[:1].islower() and name not in _PRIMITIVE and not self.module.takes_others)

    def within(self, parts: list[str]) -> Expression | None:
        """Return what a path means if it stays in this file and leads over `self`, `super` or an inner module."""
        module: Module | None = self.module
        rest = parts
        while module is not None and rest and rest[0] in ("self", "super"):
            module = module if rest[0] == "self" else module.parent
            rest = rest[1:]
        if module is None or not rest:
            return None
        while len(rest) > 1 and rest[0] in module.modules:
            module, rest = module.modules[rest[0]], rest[1:]
        if len(rest) == len(parts):
            return None
        found = module.find(rest[0])
        return _attributes(Name(found), rest[1:]) if found else None

    def _imported(self, parts: list[str], line: int) -> Expression:
        """Import a path under a name that no source can write. By convention a part in capitals is a type: no module."""
        parts = self._from_here(parts)
        end = next((place for place, part in enumerate(parts) if part[:1].isupper()), len(parts) - 1)
        end = max(end, 1)
        key = tuple(parts[: end + 1])
        bound = self._paths.get(key)
        if bound is None:
            bound = self._paths[key] = Name(f"<path{len(self._paths) + 1}>")
            self.imports.append(From("::".join(key[:-1]), ((key[-1], bound.name),), 0, line))
        return _attributes(bound, parts[end + 1 :])

    def _from_here(self, parts: list[str]) -> list[str]:
        """Return a path as the file's own module would write it."""
        module = self.module
        outwards = False
        while parts[0] == "super" and module.parent is not None and len(parts) > 1:
            module, parts, outwards = module.parent, parts[1:], True
        inner = module.name.split(".") if module.name else []
        if outwards and parts[0] != "super":
            return ["self", *inner, *parts]
        return ["self", *inner, *parts[1:]] if parts[0] == "self" else parts

    def use(self, node: Node, in_function: bool) -> list[Statement]:
        """Return what a `use` declaration does."""
        out: list[Statement] = []
        exported = any(child.type == "visibility_modifier" for child in node.children)
        for use in uses(self.source, node):
            if use.path == ["super", "*"]:
                if self.module is self.file:
                    out.append(From("super", (("*", "*"),), 0, use.line, exported))
                continue
            path, found = self._used(use)
            bound = "" if use.bound == "_" else joined(self.module.name, use.bound)
            if in_function and use.bound not in ("_", "*"):
                bound = self.locals.declare(use.bound)
            if found is not None:
                if bound and found != Name(bound):
                    out.append(Assign((Name(bound),), found))
                    if isinstance(found, Name) and not in_function and bound not in self._several:
                        known = self.module.names.get(use.bound, bound)
                        self.module.names[use.bound] = found.name if known in (bound, found.name) else bound
                        self._several.update([bound] if known not in (bound, found.name) else [])
                continue
            *place, name = self._from_here(path)
            if not place:
                out.append(Import(name, bound, 0, use.line))
            else:
                bound = "*" if use.bound == "*" else bound
                out.append(From("::".join(place), ((name, bound),), 0, use.line, exported))
        return out

    def _used(self, use: Use) -> tuple[list[str], Expression | None]:
        """Return the path of a `use` from this module, and what it means if that is no module or a module's name."""
        path = use.path
        if len(path) > 1 and path[0] in self.module.items:  # a module or an enum of this very module
            path = ["self", *path]
        if use.bound == "*":
            return path, None
        if len(path) == 1 and path[0] != use.bound and (internal := self.module.find(path[0])):
            return path, Name(internal)  # `use A as B` of a name that is here already
        found = self.within(path)
        if found is None and any(part[:1].isupper() for part in path[1:-1]):  # a variant, or what a type has
            found = self._imported(path, use.line)
        return path, found


def _attributes(of: Expression, names: list[str]) -> Expression:
    for name in names:
        of = Attribute(of, name)
    return of
