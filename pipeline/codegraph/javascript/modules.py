"""Imports and exports of JavaScript modules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.codegraph.javascript.declarations import assign
from pipeline.codegraph.javascript.definitions import Naming, named
from pipeline.codegraph.javascript.functions import FUNCTION_VALUES, string_value
from pipeline.codegraph.javascript.reader import LEXICAL, Reader, declaration_of, names_in, one_of
from pipeline.codegraph.source import first
from pipeline.codegraph.summary import Choice, Define, Expression, From, Import, Lambda, Name

if TYPE_CHECKING:
    from tree_sitter import Node


def import_statement(reader: Reader, node: Node) -> None:
    """Add what a file imports."""
    line, source = reader.line(node), node.child_by_field_name("source")
    clause = next((child for child in node.named_children if child.type.endswith("_clause")), None)
    if source is None and clause is not None:
        source = clause.child_by_field_name("source")
    if source is None:
        return
    module = string_value(reader, source)
    if clause is None:
        reader.out.append(Import(module, "", 0, line))
        return
    names: list[tuple[str, str]] = []
    is_whole = clause.type == "import_require_clause"
    for part in clause.named_children:
        if part.type == "identifier" and not is_whole:
            names.append(("default", reader.source.text(part)))
        elif part.type == "named_imports":
            names += [_specified(reader, each) for each in part.named_children]
        elif (inner := part if part.type == "identifier" else first(part)) is not None and part.type != "string":
            is_whole = True
            reader.out.append(Import(module, reader.source.text(inner), 0, line))
    names = [(name, bound) for name, bound in names if name and bound]
    if names:
        reader.out.append(From(module, tuple(names), 0, line))
    elif not is_whole:
        reader.out.append(Import(module, "", 0, line))


def _specified(reader: Reader, node: Node) -> tuple[str, str]:
    """Return the name and the alias of `a as b`."""
    name, alias = node.child_by_field_name("name"), node.child_by_field_name("alias")
    text = "" if name is None else string_value(reader, name)
    return text, text if alias is None else string_value(reader, alias)


def export_statement(reader: Reader, node: Node) -> None:
    """Add what a file exports, and the declaration that it does so with."""
    source, declaration = node.child_by_field_name("source"), node.child_by_field_name("declaration")
    if source is not None:
        _export_from(reader, node, string_value(reader, source))
        return
    words = {child.type for child in node.children if not child.is_named}
    value = node.child_by_field_name("value")
    if declaration is not None:
        reader.statement(declaration)
        for name in _declared(reader, declaration):
            reader.offer("default" if "default" in words else name, _both(reader, name))
    elif value is not None:
        _export_default(reader, node, value)
    elif "=" in words and (inner := first(node)) is not None:
        reader.offer("=", reader.expression(inner))
    else:
        for clause in node.named_children:
            for part in clause.named_children if clause.type == "export_clause" else []:
                name, bound = _specified(reader, part)
                reader.offer(bound, _both(reader, name))


def _both(reader: Reader, name: str) -> Expression:
    """Return what a name means as a value and as a type."""
    value, type_of = reader.lookup(name), reader.lookup_type(name)
    if value == type_of:
        return value
    own = list(type_of.options) if isinstance(type_of, Choice) else [type_of]
    return one_of([value, *(form for form in own if form != value)])


def _declared(reader: Reader, node: Node) -> list[str]:
    inner = declaration_of(node)
    if inner.type in LEXICAL:
        return [
            reader.source.text(name)
            for declarator in inner.named_children
            for name in names_in(declarator.child_by_field_name("name"))
        ]
    name_node = inner.child_by_field_name("name") or (first(inner) if inner.type == "import_alias" else None)
    return [] if name_node is None or name_node.type == "string" else [reader.source.text(name_node).split(".")[0]]


def _export_default(reader: Reader, node: Node, value: Node) -> None:
    own = value.child_by_field_name("name") if value.type in FUNCTION_VALUES | {"class"} else None
    text = "default" if own is None else reader.source.text(own)
    inside = reader.declare(text) if own is not None else Name("default")
    kind = "class" if value.type == "class" else "function"
    form = named(reader, value, Naming(reader.scope, text, kind, node, inside))
    if isinstance(form, Lambda) and isinstance(inside, Name):
        reader.out.append(Define(inside.name, form.function))
        form = inside
    elif not isinstance(form, Name):
        assign(reader, [inside], form)
        form = inside
    reader.offer("default", form)


def _export_from(reader: Reader, node: Node, module: str) -> None:
    line = reader.line(node)
    clause = next((child for child in node.named_children if child.type in ("export_clause", "namespace_export")), None)
    if clause is None:
        reader.out.append(From(module, (("*", "*"),), 0, line, exported=True))
    elif clause.type == "namespace_export":
        inner = first(clause)
        inside = reader.hidden("export")
        reader.out.append(Import(module, inside.name, 0, line))
        reader.offer("" if inner is None else string_value(reader, inner), inside)
    else:
        names = [(*_specified(reader, part), reader.hidden("export")) for part in clause.named_children]
        names = [(name, bound, inside) for name, bound, inside in names if name]
        if not names:
            reader.out.append(Import(module, "", 0, line))
            return
        reader.out.append(From(module, tuple((name, inside.name) for name, _, inside in names), 0, line))
        for _, bound, inside in names:
            reader.offer(bound, inside)
