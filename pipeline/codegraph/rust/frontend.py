"""Rust to a summary."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline.codegraph.rust.names import Module, segments
from pipeline.codegraph.rust.statements import ITEMS, Statements
from pipeline.codegraph.source import EXTRAS, UNKNOWN, Source, first_line, joined, named
from pipeline.codegraph.summary import (
    Assign,
    Block,
    Branch,
    Class,
    Define,
    Expression,
    From,
    Function,
    Import,
    Instance,
    Mapping,
    Name,
    Statement,
    Summary,
)

if TYPE_CHECKING:
    from tree_sitter import Node

_KINDS = {"struct_item": "struct", "union_item": "struct", "enum_item": "enum", "trait_item": "trait"}
_DOC = re.compile(r"\A(?://[/!]|/\*[*!])\s?|\s*\*/\Z")
_OUTER, _INNER = ("///", "/**"), ("//!", "/*!")


def summarize(source: Source) -> Summary:
    """Return what a Rust file says."""
    reader = _Reader(source)
    reader.items(source.root, in_function=False)
    doc = next((_doc(source, child, _INNER) for child in source.root.children if child.type in EXTRAS), "")
    late = tuple(each for each in reader.out if not isinstance(each, Import | From | Class | Define | Branch))
    early = tuple(each for each in reader.out if isinstance(each, Import | From | Class | Define | Branch))
    return source.summary((*reader.names.imports, *early, *late), doc=doc)


@dataclass(frozen=True, slots=True)
class _Before:
    """What stands before an item: its attributes, the first of their nodes, and its documentation's first line."""

    attributes: tuple[str, ...] = ()
    since: Node | None = None
    doc: str = ""


class _Reader(Statements):
    """Turns items into statements."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.traits: dict[str, list[tuple[Expression, int]]] = {}

    def items(self, node: Node, in_function: bool) -> None:
        """Add the items among a node's children; what an `impl` says of a type goes to where that is defined."""
        found = _with_what_stands_before(self.source, node)
        if in_function:
            for item, _ in found:
                name = item.child_by_field_name("name")
                if name is not None:
                    self.names.locals.declare(self.source.text(name))
        for item, before in found:
            if item.type == "use_declaration":
                self.out.extend(_perhaps(before, self.names.use(item, in_function)))
        for item, _ in found:
            if item.type == "impl_item":
                self._note_trait(item)
        for item, before in found:
            if item.type in _ITEMS and self.source.enter():
                outside, self.out = self.out, []
                _ITEMS[item.type](self, item, before)
                self.out = [*outside, *_perhaps(before, self.out)]
                self.source.depth -= 1

    def _note_trait(self, node: Node) -> None:
        trait = node.child_by_field_name("trait")
        if trait is None:
            return
        owner, _ = self.owner(node)
        if owner not in self.names.module.names.values() and not self.names.locals.look(owner).startswith(owner + "@"):
            self.source.counts["foreign_impl"] += 1
        form = self.type(trait)
        if form not in (UNKNOWN, Name(owner)):
            self.traits.setdefault(owner, []).append((form, trait.start_point[0] + 1))

    def owner(self, node: Node) -> tuple[str, Expression]:
        """Return the internal name and the form of the type that an `impl` is about."""
        outside = self.parameters_of_types
        self.parameters_of_types = self.generics(node)
        type_ = node.child_by_field_name("type")
        trait = node.child_by_field_name("trait")
        while type_ is not None and type_.type in ("reference_type", "generic_type", "pointer_type", "dynamic_type"):
            type_ = type_.child_by_field_name("trait" if type_.type == "dynamic_type" else "type")
        if type_ is not None and self.source.text(type_) in self.parameters_of_types:
            type_ = trait  # `impl<T> Trait for T`: what every implementation has
        form = self.type(type_)
        self.parameters_of_types = outside
        if isinstance(form, Name) and not form.name.startswith("<"):
            return form.name, form
        if type_ is not None and type_.type == "scoped_type_identifier":
            return "::".join(segments(self.source, type_)), form
        return ("" if type_ is None else type_.type.removesuffix("_type")), form

    def name_of(self, node: Node) -> tuple[str, str]:
        """Return the name of an item, and what it is called inside."""
        given = node.child_by_field_name("name")
        name = "" if given is None else self.source.text(given).removeprefix("r#")
        return name, self.names.name(name).name if name else ""


def _perhaps(before: _Before, made: Sequence[Statement]) -> Sequence[Statement]:
    """Return what an item says, as what may be left out: of what is compiled for some systems only, a name may have several."""
    if not made or not any(attribute.startswith("cfg(") for attribute in before.attributes):
        return made
    return [Branch((tuple(made),))]


def _with_what_stands_before(source: Source, node: Node) -> list[tuple[Node, _Before]]:
    found: list[tuple[Node, _Before]] = []
    attributes: list[str] = []
    since: Node | None = None
    doc = ""
    for child in node.children:
        kind = child.type
        if kind == "attribute_item":
            since = since or child
            attributes.append(source.line(child).removeprefix("#[").removesuffix("]"))
        elif kind in EXTRAS:
            doc = doc or _doc(source, child, _OUTER)
        elif child.is_named and kind != "visibility_modifier":
            if kind in ITEMS:
                found.append((child, _Before(tuple(attributes), since, doc)))
            attributes, since, doc = [], None, ""
    return found


def _doc(source: Source, comment: Node, opening: tuple[str, str]) -> str:
    text = source.data[comment.start_byte : min(comment.end_byte, comment.start_byte + 2000)].decode("utf-8", "ignore")
    if not text.startswith(opening) or text.startswith("////"):
        return ""
    return first_line("\n".join(line.strip().removeprefix("* ") for line in _DOC.sub("", text).split("\n")))


# --- items -----------------------------------------------------------------------------------------------------------


def _function(self: _Reader, node: Node, before: _Before) -> None:
    name, internal = self.name_of(node)
    qualname = self.source.define(
        "function", name, self.scope, node, node, before.doc, before.attributes, since=before.since
    )
    self.out.append(Define(internal, _function_of(self, node, qualname, "function", "")))


def _function_of(self: _Reader, node: Node, qualname: str, kind: str, receiver: str) -> Function:
    outside = self.scope, self.parameters_of_types
    self.parameters_of_types = self.generics(node)
    given, body = node.child_by_field_name("parameters"), node.child_by_field_name("body")
    returns = node.child_by_field_name("return_type")
    type_ = None if returns is None else self.type(returns)
    self.scope = qualname
    parameters, block = self.function_body(
        body if body is not None else node, named(given) if given is not None else []
    )
    self.scope, self.parameters_of_types = outside
    modifiers = next((child for child in node.children if child.type == "function_modifiers"), None)
    coroutine = modifiers is not None and any(child.type == "async" for child in modifiers.children)
    return Function(qualname, parameters, block if body is not None else (), type_, kind, receiver, coroutine=coroutine)


def _methods(self: _Reader, body: Node, owner: str, receiver: str, out: list[Statement]) -> None:
    """Add the functions, types and constants of an `impl` or a trait."""
    for item, before in _with_what_stands_before(self.source, body):
        name = item.child_by_field_name("name")
        if name is None:
            continue
        text = self.source.text(name).removeprefix("r#")
        if item.type in ("function_item", "function_signature_item"):
            given = item.child_by_field_name("parameters")
            has_self = given is not None and any(child.type == "self_parameter" for child in given.children)
            qualname = self.source.define(
                "method", text, owner, item, item, before.doc, before.attributes, since=before.since
            )
            function = _function_of(self, item, qualname, "method" if has_self else "static", receiver)
            out.append(Define(text, function))
        elif not receiver and item.type in ("const_item", "type_item"):
            out.append(Assign((Name(text),), None, self.type(item.child_by_field_name("type"))))


def _type(self: _Reader, node: Node, before: _Before) -> None:
    """Read a struct, union, enum or trait; traits that it implements in this file are its bases."""
    name, internal = self.name_of(node)
    kind = _KINDS[node.type]
    qualname = self.source.define(kind, name, self.scope, node, node, before.doc, before.attributes, since=before.since)
    outside = self.scope, self.parameters_of_types, self.self_type
    self.parameters_of_types, self.scope, self.self_type = self.generics(node), qualname, Name(internal)
    bases = list(self.traits.pop(internal, ()))
    body: list[Statement] = []
    fields = node.child_by_field_name("body")
    if node.type == "trait_item":
        bounds = node.child_by_field_name("bounds")
        for bound in named(bounds) if bounds is not None else ():
            form = self.type(bound)
            if form != UNKNOWN:
                bases.append((form, bound.start_point[0] + 1))
        if fields is not None and self.source.enter():
            _methods(self, fields, qualname, "", body)
            self.source.depth -= 1
    elif node.type == "enum_item":
        for variant in named(fields) if fields is not None else ():
            given = variant.child_by_field_name("name")
            if given is not None:
                body.append(Assign((Name(self.source.text(given)),), Instance(Name(internal))))
    elif fields is not None:
        body.extend(_fields(self, fields))
    self.scope, self.parameters_of_types, self.self_type = outside
    self.out.append(Class(internal, qualname, tuple(bases), tuple(body), kind=kind))


def _fields(self: _Reader, node: Node) -> Block:
    if node.type == "ordered_field_declaration_list":
        types = node.children_by_field_name("type")
        return tuple(Assign((Name(str(place)),), None, self.type(type_)) for place, type_ in enumerate(types))
    found: list[Statement] = []
    for field in named(node):
        name = field.child_by_field_name("name")
        if field.type == "field_declaration" and name is not None:
            text = self.source.text(name).removeprefix("r#")
            found.append(Assign((Name(text),), None, self.type(field.child_by_field_name("type"))))
    return tuple(found)


def _implementation(self: _Reader, node: Node, before: _Before) -> None:
    """Read an `impl`; its functions stand at the level of the file and name their type."""
    owner, form = self.owner(node)
    outside = self.parameters_of_types, self.self_type
    self.parameters_of_types, self.self_type = self.generics(node), form
    body = node.child_by_field_name("body")
    if body is not None and owner:
        _methods(self, body, _qualified(self, owner.rpartition("::")[2]), owner, self.out)
    self.parameters_of_types, self.self_type = outside


def _qualified(self: _Reader, owner: str) -> str:
    """Return the qualified name of a type by its internal name: in a function that is below the function's."""
    local = owner.partition("@")[0]
    if local != owner or (self.names.locals.here(local) and not self.names.module.names.get(local)):
        return joined(self.scope, local)
    return owner


def _constant(self: _Reader, node: Node, before: _Before) -> None:
    _, internal = self.name_of(node)
    value, type_ = node.child_by_field_name("value"), node.child_by_field_name("type")
    form = None if value is None else self.expression(value)
    self.out.append(Assign((Name(internal),), form, None if type_ is None else self.type(type_)))


def _alias(self: _Reader, node: Node, before: _Before) -> None:
    _, internal = self.name_of(node)
    outside, self.parameters_of_types = self.parameters_of_types, self.generics(node)
    self.out.append(Assign((Name(internal),), self.type(node.child_by_field_name("type"))))
    self.parameters_of_types = outside


def _crate(self: _Reader, node: Node, before: _Before) -> None:
    name, alias = node.child_by_field_name("name"), node.child_by_field_name("alias")
    if name is not None:
        text = self.source.text(name)
        self.out.append(Import(text, text if alias is None else self.source.text(alias), 0, node.start_point[0] + 1))


def _module(self: _Reader, node: Node, before: _Before) -> None:
    """Read `mod m;` as an import, and `mod m { … }` as names of this file that belong together."""
    given, body = node.child_by_field_name("name"), node.child_by_field_name("body")
    name = "" if given is None else self.source.text(given).removeprefix("r#")
    if body is None:
        internal = joined(self.names.module.name, name)
        path = "::".join(("self", *internal.split(".")))
        self.out.append(Import(path, internal, 0, node.start_point[0] + 1))
        return
    inner = self.names.module.modules.get(name)
    if inner is None:  # within a function: its names are read as the function's
        self.items(body, in_function=True)
        return
    outside, self.names.module = self.names.module, inner
    scope, self.scope = self.scope, inner.name
    self.items(body, in_function=False)
    self.names.module, self.scope = outside, scope
    self.out.append(Assign((Name(inner.name),), _mapping(inner)))


def _mapping(module: Module) -> Mapping:
    return Mapping(tuple((name, Name(internal)) for name, internal in sorted(module.names.items())))


def _foreign(self: _Reader, node: Node, before: _Before) -> None:
    body = node.child_by_field_name("body")
    if body is not None:
        self.items(body, in_function=False)


_ITEMS = {
    "function_item": _function,
    "function_signature_item": _function,
    "struct_item": _type,
    "union_item": _type,
    "enum_item": _type,
    "trait_item": _type,
    "const_item": _constant,
    "static_item": _constant,
    "type_item": _alias,
    "extern_crate_declaration": _crate,
    "mod_item": _module,
    "foreign_mod_item": _foreign,
    "impl_item": _implementation,
}
