"""Rust's types to forms. What is dereferenced on the way to a method is left out; containers of T are `(T,)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pipeline.codegraph.rust.names import Names, segments
from pipeline.codegraph.source import UNKNOWN, Source, first, named
from pipeline.codegraph.summary import Attribute, Expression, Index, Name, Sequence

if TYPE_CHECKING:
    from tree_sitter import Node

_THROUGH = frozenset({"Box", "Rc", "Arc", "Pin", "Cow", "Ref", "RefMut", "MutexGuard"})
_CONTAINERS = frozenset({
    "Option", "Result", "Vec", "VecDeque", "HashSet", "BTreeSet", "BinaryHeap", "LinkedList", "IndexSet",
})  # fmt: skip
_MAPS = frozenset({"HashMap", "BTreeMap", "IndexMap"})


class Types:
    """Reads types. `self_type` is what `Self` means; `parameters_of_types` what generic names stand for: their bounds."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.names = Names(source)
        self.self_type: Expression = UNKNOWN
        self.parameters_of_types: dict[str, Expression] = {}

    def type(self, node: Node | None) -> Expression:
        """Return the form of a type."""
        if node is None or not self.source.enter():
            return UNKNOWN
        form = _TYPES.get(node.type, _unknown)(self, node)
        self.source.depth -= 1
        return form

    def bound(self, node: Node | None) -> Expression:
        """Return the first trait of `A + B` that is in this corpus's power to have methods: the first one."""
        traits = [child for child in named(node) if child.type != "lifetime"] if node is not None else []
        return self.type(traits[0]) if traits else UNKNOWN

    def generics(self, node: Node) -> dict[str, Expression]:
        """Return what the generic names of an item stand for, besides those from outside."""
        found = dict(self.parameters_of_types)
        given = node.child_by_field_name("type_parameters")
        for parameter in named(given) if given is not None else ():
            name = parameter.child_by_field_name("name")
            if parameter.type in ("type_parameter", "constrained_type_parameter") and name is not None:
                found[self.source.text(name)] = self.bound(parameter.child_by_field_name("bounds"))
        clause = next((child for child in node.children if child.type == "where_clause"), None)
        for predicate in named(clause) if clause is not None else ():
            left = predicate.child_by_field_name("left")
            name_ = "" if left is None else self.source.text(left)
            if found.get(name_) == UNKNOWN:
                found[name_] = self.bound(predicate.child_by_field_name("bounds"))
        return found


def _unknown(self: Types, node: Node) -> Expression:
    return UNKNOWN


def _name(self: Types, node: Node) -> Expression:
    text = self.source.text(node)
    if text == "Self":
        return self.self_type
    return self.parameters_of_types.get(text) or self.names.name(text.removeprefix("r#"))


def _primitive(self: Types, node: Node) -> Expression:
    return Name(self.source.text(node))


def _path(self: Types, node: Node) -> Expression:
    parts = segments(self.source, node)
    if parts[0] == "Self" and len(parts) == 2:
        return Attribute(self.self_type, parts[1])
    if parts[0] in self.parameters_of_types:
        return UNKNOWN
    return self.names.path(parts, node.start_point[0] + 1)


def _generic(self: Types, node: Node) -> Expression:
    of, given = node.child_by_field_name("type"), node.child_by_field_name("type_arguments")
    if of is None or given is None:
        return UNKNOWN
    name = segments(self.source, of)[-1]
    arguments = [each for each in named(given) if each.type not in ("lifetime", "block")]
    if arguments and not self.names.module.find(name):
        if name in _THROUGH:
            return self.type(arguments[-1])
        if name in _CONTAINERS:
            return Sequence((self.type(arguments[0]),))
        if name in _MAPS and len(arguments) > 1:
            return Index(Name("map"), Sequence((self.type(arguments[0]), self.type(arguments[1]))))
        if name in ("Iterator", "IntoIterator", "Future") and arguments[0].type == "type_binding":
            given_type = self.type(arguments[0].child_by_field_name("type"))
            return given_type if name == "Future" else Sequence((given_type,))
    return self.type(of)


def _field(name: str) -> Callable[[Types, Node], Expression]:
    return lambda self, node: self.type(node.child_by_field_name(name))


def _list(self: Types, node: Node) -> Expression:
    return Sequence((self.type(node.child_by_field_name("element") or first(node)),))


def _tuple(self: Types, node: Node) -> Expression:
    types = tuple(self.type(each) for each in named(node))
    return Sequence(types) if len(types) > 1 else UNKNOWN


def _first(self: Types, node: Node) -> Expression:
    return self.type(first(node))


_TYPES: dict[str, Callable[[Types, Node], Expression]] = {
    "type_identifier": _name,
    "identifier": _name,
    "primitive_type": _primitive,
    "scoped_type_identifier": _path,
    "scoped_identifier": _path,
    "generic_type": _generic,
    "generic_type_with_turbofish": _generic,
    "reference_type": _field("type"),
    "pointer_type": _field("type"),
    "dynamic_type": _field("trait"),
    "abstract_type": _field("trait"),
    "qualified_type": _field("type"),
    "array_type": _list,
    "slice_type": _list,
    "tuple_type": _tuple,
    "bracketed_type": _first,
    "bounded_type": _first,
    "parenthesized_type": _first,
    "higher_ranked_trait_bound": _field("type"),
}
