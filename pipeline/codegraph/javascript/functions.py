"""Functions, parameters, patterns and types of JavaScript and TypeScript."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.codegraph.javascript.reader import PATTERNS, THIS, UNKNOWN, Reader, names_in, one_of
from pipeline.codegraph.source import first, first_line
from pipeline.codegraph.summary import (
    MAX_NESTING,
    Assign,
    Attribute,
    Choice,
    Expression,
    Function,
    Instance,
    Name,
    Parameter,
    Return,
    Sequence,
    Star,
    This,
)

if TYPE_CHECKING:
    from tree_sitter import Node

FUNCTION_VALUES = frozenset({"arrow_function", "function_expression", "generator_function", "function"})
_LONGEST_KEY = 100  # characters of a string that can be a key or a property's name
_WELL_KNOWN = "Symbol."
_BOUND = PATTERNS | {"identifier"}


def property_name(reader: Reader, node: Node | None) -> str:
    """Return the name of a property, empty where it is computed or no name; `[Symbol.iterator]` is `@@iterator`."""
    if node is None:
        return ""
    kind = node.type
    if kind in ("property_identifier", "private_property_identifier", "identifier", "shorthand_property_identifier"):
        return reader.source.text(node)
    if kind == "computed_property_name":
        inner = first(node)
        if inner is None:
            return ""
        if inner.type == "member_expression" and reader.source.text(inner).startswith(_WELL_KNOWN):
            return "@@" + reader.source.text(inner).removeprefix(_WELL_KNOWN)
        return property_name(reader, inner) if inner.type == "string" else ""
    if kind in ("string", "number"):
        name = string_value(reader, node)
        return name if name and len(name) <= _LONGEST_KEY and not set(name) & set(".:<>\n") else ""
    return ""


def string_value(reader: Reader, node: Node) -> str:
    """Return what a literal says between its quotes."""
    return reader.source.text(node).strip("'\"`")


def doc_of(reader: Reader, node: Node) -> str:
    """Return the first line of the JSDoc comment right before a node."""
    previous = node.prev_named_sibling
    while previous is not None and previous.type == "decorator":
        previous = previous.prev_named_sibling
    return doc_line(reader, previous) if previous is not None and previous.type == "comment" else ""


def doc_line(reader: Reader, comment: Node) -> str:
    """Return the first line of a comment that documents, without tags, else an empty text."""
    text = reader.source.text(comment)
    if not text.startswith("/**"):
        return ""
    line = first_line("\n".join(part.strip().lstrip("*").strip() for part in text[3:].removesuffix("*/").split("\n")))
    return "" if line.startswith("@") else line


# --- functions -------------------------------------------------------------------------------------------------------


def function(
    reader: Reader, node: Node, qualname: str, kind: str = "function", owner: str = "", this: Expression = THIS
) -> Function:
    """Return a function of any way of writing it. An arrow's `this` is that of outside, unless it is a method.

    `this` is what others' `this` is called, `owner` the qualified name of its class.
    """
    if not reader.source.enter(2):
        return Function(qualname, kind=kind)
    arrow = node.type == "arrow_function"
    outside, reader.scope = reader.scope, qualname
    of_outside = reader.owner, reader.this
    if not arrow or kind != "function":
        reader.owner, reader.this = owner, this
    before, reader.out = reader.out, []
    reader.enter_function()
    type_parameters(reader, node)
    parameters = tuple(_parameters(reader, node))
    body = node.child_by_field_name("body")
    if body is not None and body.type == "statement_block":
        reader.add(body.named_children)
    elif body is not None:
        value = reader.expression(body)
        reader.out.append(Return(value))
    statements = (*reader.outer_names(), *reader.out)
    returns = annotation(reader, node.child_by_field_name("return_type"))
    reader.leave()
    reader.out, reader.scope = before, outside
    reader.owner, reader.this = of_outside
    reader.source.depth -= 2
    words = {child.type for child in node.children if not child.is_named}
    return Function(
        qualname, parameters, statements, returns, kind, generator="*" in words, coroutine="async" in words,
        bound=arrow and kind == "function",
    )  # fmt: skip


def _parameters(reader: Reader, node: Node) -> list[Parameter]:
    only, listed = node.child_by_field_name("parameter"), node.child_by_field_name("parameters")
    nodes = [only] if only is not None else [] if listed is None else listed.named_children
    for each in nodes:
        for name in names_in(_parts_of_parameter(each)[0]):
            reader.declare(reader.source.text(name))
    return [found for each in nodes if (found := _parameter(reader, each)) is not None]


def _parts_of_parameter(node: Node) -> tuple[Node | None, Node | None, Node | None, bool]:
    """Return the pattern, type, default and whether it takes the rest."""
    pattern: Node | None = node
    type_node: Node | None = None
    default: Node | None = None
    if node.type in ("required_parameter", "optional_parameter"):
        pattern = node.child_by_field_name("pattern")
        type_node, default = node.child_by_field_name("type"), node.child_by_field_name("value")
    if pattern is not None and pattern.type == "assignment_pattern":
        default, pattern = pattern.child_by_field_name("right"), pattern.child_by_field_name("left")
    if pattern is not None and pattern.type == "rest_pattern":
        return first(pattern), type_node, None, True
    return pattern, type_node, default, False


def _is_field(node: Node) -> bool:
    return any(child.type in ("accessibility_modifier", "readonly", "override_modifier") for child in node.children)


def _parameter(reader: Reader, node: Node) -> Parameter | None:
    pattern, type_node, default, rest = _parts_of_parameter(node)
    if pattern is None or pattern.type not in _BOUND:  # `this` and comments
        return None
    type_form = annotation(reader, type_node)
    value = None if default is None else reader.expression(default)
    if value is not None:
        reader.evaluate(value)  # by each call that leaves it out
    if pattern.type in PATTERNS:
        hidden = reader.hidden("p")
        bind(reader, pattern, hidden)
        return Parameter(hidden.name, "*" if rest else "", value, type_form)
    name = reader.source.text(pattern) or reader.hidden("missing").name
    if _is_field(node):
        reader.out.append(Assign((Attribute(This(), name),), Name(name), type_form))
    return Parameter(name, "*" if rest else "", value, type_form)


def parameter_fields(reader: Reader, node: Node) -> list[tuple[str, Expression | None]]:
    """Return the fields that a constructor's parameters declare, with their types."""
    listed = node.child_by_field_name("parameters")
    found: list[tuple[str, Expression | None]] = []
    for each in [] if listed is None else listed.named_children:
        pattern, type_node, _, _ = _parts_of_parameter(each)
        if _is_field(each) and pattern is not None and pattern.type == "identifier":
            found.append((reader.source.text(pattern), annotation(reader, type_node)))
    return found


# --- patterns --------------------------------------------------------------------------------------------------------


def bind(
    reader: Reader, pattern: Node, value: Expression, type: Expression | None = None, *, declared: bool = True
) -> None:
    """Add the assignments that give a pattern's names their parts of a value. `declared`: the names are new here."""
    if not reader.source.enter():
        return
    kind = pattern.type
    if kind == "object_pattern":
        _bind_object(reader, pattern, reader.held(value, type), declared)
    elif kind == "array_pattern":
        _bind_array(reader, pattern, value, type, declared)
    elif kind in ("assignment_pattern", "object_assignment_pattern"):
        left, right = pattern.child_by_field_name("left"), pattern.child_by_field_name("right")
        if left is not None and right is not None:
            bind(reader, left, Choice((value, reader.expression(right))), type, declared=declared)
    else:
        reader.out.append(Assign((target(reader, pattern, declared=declared),), value, type))
    reader.source.depth -= 1


def target(reader: Reader, node: Node, *, declared: bool = False) -> Expression:
    """Return what is assigned to: a name, an attribute, an index."""
    while node.type in ("parenthesized_expression", "non_null_expression", "as_expression"):
        inner = first(node)
        if inner is None:
            return reader.hidden("value")
        node = inner
    if node.type in ("identifier", "shorthand_property_identifier_pattern"):
        name = reader.source.text(node)
        if not name:
            return reader.hidden("missing")
        return reader.lookup(name) if declared else reader.target(name)
    if node.type in ("member_expression", "subscript_expression"):
        return reader.expression(node)
    return reader.hidden("value")


def _bind_object(reader: Reader, pattern: Node, value: Expression, declared: bool) -> None:
    for part in pattern.named_children:
        kind = part.type
        if kind == "shorthand_property_identifier_pattern":
            bind(reader, part, Attribute(value, reader.source.text(part)), declared=declared)
        elif kind == "object_assignment_pattern":
            left = part.child_by_field_name("left")
            if left is not None:
                bind(reader, part, Attribute(value, reader.source.text(left)), declared=declared)
        elif kind == "pair_pattern":
            name, inner = property_name(reader, part.child_by_field_name("key")), part.child_by_field_name("value")
            if inner is not None:
                bind(reader, inner, Attribute(value, name) if name else UNKNOWN, declared=declared)
        elif kind == "rest_pattern" and (inner := first(part)) is not None:
            bind(reader, inner, value, declared=declared)


def _bind_array(reader: Reader, pattern: Node, value: Expression, type: Expression | None, declared: bool) -> None:
    targets: list[Expression] = []
    later: list[tuple[Node, Expression]] = []
    is_hole = True
    for part in pattern.children:
        if part.type == ",":
            if is_hole:
                targets.append(reader.hidden("value"))
            is_hole = True
        elif part.is_named and part.type != "comment":
            is_hole = False
            inner = first(part) if part.type == "rest_pattern" else part
            if inner is None:
                continue
            if inner.type in PATTERNS or inner.type == "assignment_pattern":
                form: Expression = reader.hidden("value")
                later.append((inner, form))
            else:
                form = target(reader, inner, declared=declared)
            targets.append(Star(form) if part.type == "rest_pattern" else form)
    reader.out.append(Assign((Sequence(tuple(targets)),), value, type))
    for inner, form in later:
        bind(reader, inner, form, declared=declared)


# --- types -----------------------------------------------------------------------------------------------------------

_PRIMITIVE = {"string": "String", "number": "Number", "boolean": "Boolean", "symbol": "Symbol", "bigint": "BigInt"}
_SAME = frozenset({"Promise", "PromiseLike", "Readonly", "Partial", "Required", "NonNullable", "Awaited"})
_QUALIFIED = frozenset({"nested_type_identifier", "nested_identifier", "member_expression"})
_ARRAYS = frozenset({"Array", "ReadonlyArray"})


def annotation(reader: Reader, node: Node | None) -> Expression | None:
    """Return the type that a node states where it is plain, else None."""
    if node is None or node.type in ("type_predicate_annotation", "asserts_annotation"):
        return None
    inner = first(node) if node.type == "type_annotation" else node
    return None if inner is None else type_form(reader, inner)


def type_form(reader: Reader, node: Node) -> Expression | None:
    """Return the form of a type: classes by name, `T[]` a sequence, a union a choice; `Promise<T>` is T."""
    if not reader.source.enter():
        return None
    form = _type_form(reader, node)
    reader.source.depth -= 1
    return None if form == UNKNOWN else form


def _type_form(reader: Reader, node: Node) -> Expression | None:
    kind = node.type
    if kind == "type_identifier" or kind == "identifier":
        return reader.lookup_type(reader.source.text(node))
    if kind in _QUALIFIED:
        return qualified(reader, node)
    if kind == "predefined_type":
        primitive = _PRIMITIVE.get(reader.source.text(node))
        return None if primitive is None else Name(primitive)
    if kind == "generic_type":
        return _generic(reader, node)
    if kind in ("array_type", "readonly_type", "parenthesized_type"):
        inner = first(node)
        form = None if inner is None else type_form(reader, inner)
        return Sequence((form,)) if kind == "array_type" and form is not None else form
    if kind in ("union_type", "intersection_type"):
        return _united(reader, node)
    if kind == "object_type":
        return reader.expression(node)
    if kind == "literal_type":
        inner = first(node)
        return Name("String") if inner is not None and inner.type == "string" else None
    return None


def qualified(reader: Reader, node: Node) -> Expression | None:
    """Return `a.b.C` as attributes."""
    names: list[str] = []
    while node.type in _QUALIFIED:
        parts = node.named_children
        if len(parts) != 2:
            return None
        names.append(reader.source.text(parts[1]))
        node = parts[0]
    is_name = node.type in ("identifier", "type_identifier")
    form = reader.lookup_type(reader.source.text(node)) if is_name else reader.expression(node)
    if len(names) > MAX_NESTING or form == UNKNOWN:
        return None
    for name in reversed(names):
        form = Attribute(form, name)
    return form


def _generic(reader: Reader, node: Node) -> Expression | None:
    name = node.child_by_field_name("name")
    if name is None:
        return None
    text = reader.source.text(name)
    arguments = node.child_by_field_name("type_arguments")
    inner = None if arguments is None else first(arguments)
    if inner is not None and text in _SAME:
        return type_form(reader, inner)
    if inner is not None and text in _ARRAYS:
        form = type_form(reader, inner)
        return None if form is None else Sequence((form,))
    return type_form(reader, name)


def _united(reader: Reader, node: Node) -> Expression | None:
    kind, found, waiting = node.type, list[Expression](), [node]
    while waiting:
        part = waiting.pop()
        if part.type == kind:
            waiting += reversed(part.named_children)
        elif (form := type_form(reader, part)) is not None and form not in found:
            found.append(form)
    return one_of(found) if found else None


def type_parameters(reader: Reader, node: Node) -> None:
    """Note what the parameters of types mean below: their bounds, as far as known."""
    listed = node.child_by_field_name("type_parameters")
    for each in [] if listed is None else listed.named_children:
        name = each.child_by_field_name("name")
        if name is None:
            continue
        bound = each.child_by_field_name("constraint")
        inner = None if bound is None else first(bound)
        form = None if inner is None else type_form(reader, inner)
        reader.scopes[-1].types[reader.source.text(name)] = UNKNOWN if form is None else form


def cast(reader: Reader, value: Expression, type_node: Node | None) -> Expression:
    """Return the value under the type it is said to have, where that is plain."""
    form = None if type_node is None or type_node.type == "object_type" else type_form(reader, type_node)
    if form is None:
        return value
    reader.evaluate(value)
    return Instance(form)
