"""Named values of JavaScript and TypeScript: functions, object literals, classes, interfaces, enums, namespaces."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from pipeline.codegraph.javascript.functions import (
    FUNCTION_VALUES,
    annotation,
    doc_of,
    function,
    parameter_fields,
    property_name,
    type_form,
    type_parameters,
)
from pipeline.codegraph.javascript.reader import THIS, UNKNOWN, Reader, dotted
from pipeline.codegraph.source import first, joined
from pipeline.codegraph.summary import (
    Assign,
    Attribute,
    Block,
    Call,
    Class,
    Define,
    Evaluate,
    Expression,
    Function,
    Lambda,
    Mapping,
    Name,
    Statement,
    This,
)

if TYPE_CHECKING:
    from tree_sitter import Node

_WRAPPERS = frozenset({"forwardRef", "memo", "useCallback"})
"""Calls that give back the function they are given, as far as calling it goes (React)."""

CASTS = frozenset({"parenthesized_expression", "as_expression", "satisfies_expression", "non_null_expression"})
_NAMED = FUNCTION_VALUES | {"object", "class", "call_expression"}

Decorators = tuple[tuple[Expression, int], ...]


@dataclass(frozen=True, slots=True)
class Naming:
    """The name that the text gives a value: a symbol `scope.name` of this kind, if it is a function or a class.

    `whole` is what the symbol covers, from `since` on; `alias` what the value is called in the forms, `this` its object.
    """

    scope: str
    name: str
    kind: str
    whole: Node
    alias: Expression = UNKNOWN
    since: Node | None = None
    this: Expression = THIS


# --- functions and objects -------------------------------------------------------------------------------------------


def named(reader: Reader, node: Node, naming: Naming | None) -> Expression:
    """Return the form of a value; what is defined by it is known by the name that the text gives it."""
    whole, node = node, unwrapped(node)
    if naming is None or not naming.name or node.type not in _NAMED or (node.type == "object" and _is_cast(whole)):
        return reader.expression(whole)
    if not reader.source.enter():
        return UNKNOWN
    if node.type == "object":
        scope = joined(naming.scope, naming.name)
        is_plain = bool(dotted(naming.alias))
        form = object_value(reader, node, scope, naming.alias) if is_plain else held_object(reader, node, scope)
    elif node.type == "class":
        form = class_form(reader, node, naming)
    elif node.type != "call_expression":
        form = Lambda(named_function(reader, node, naming))
    elif (inner := _wrapped(reader, node)) is not None:
        reader.out.append(Evaluate(Call(reader.field(node, "function"), line=reader.line(node))))
        form = Lambda(named_function(reader, inner, naming))
    else:
        form = reader.expression(whole)
    reader.source.depth -= 1
    return form


def named_function(
    reader: Reader, node: Node, naming: Naming, kind: str = "", decorators: tuple[str, ...] = ()
) -> Function:
    """Return a function that is a symbol. `kind` is the form's; without it a method is one, if it is no arrow function."""
    qualname = defined(reader, naming, decorators)
    if not kind:
        kind = "method" if naming.kind == "method" and node.type != "arrow_function" else "function"
    own = node.child_by_field_name("name") if node.type in FUNCTION_VALUES else None
    reader.enter_block()
    if own is not None:
        reader.scopes[-1].names[reader.source.text(own)] = naming.alias
    owner = "" if kind == "function" else qualname if naming.kind == "class" else naming.scope
    made = function(reader, node, qualname, kind, owner, naming.this)
    reader.leave()
    return made


def defined(reader: Reader, naming: Naming, decorators: tuple[str, ...] = ()) -> str:
    """Note a symbol and return its qualified name."""
    if naming.scope.rpartition(".")[2].startswith("<class"):
        return joined(naming.scope, naming.name)  # what an anonymous class has is nobody's to name
    whole = naming.whole
    signed = next((child for child in whole.children if child.type not in ("decorator", "comment")), whole)
    start = whole if signed.start_byte == whole.start_byte else signed
    return reader.source.define(
        naming.kind, naming.name, naming.scope, start, whole, doc_of(reader, whole), decorators, naming.since
    )


def unwrapped(node: Node) -> Node:
    """Return the node without what does not change a value."""
    while node.type in CASTS:
        inner = first(node)
        if inner is None:
            return node
        node = inner
    return node


def _is_cast(node: Node) -> bool:
    return node.type == "as_expression" and len(node.named_children) > 1


def _wrapped(reader: Reader, node: Node) -> Node | None:
    callee, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
    if callee is None or arguments is None:
        return None
    name = callee.child_by_field_name("property") or callee
    inner = first(arguments)
    if reader.source.text(name) in _WRAPPERS and inner is not None and inner.type in FUNCTION_VALUES:
        return inner
    return None


def held_object(reader: Reader, node: Node, scope: str | None) -> Expression:
    """Return an object literal that the text gives no name; it gets one where its functions may ask for `this`."""
    if b"this" not in reader.source.data[node.start_byte : node.end_byte]:
        return object_value(reader, node, scope, UNKNOWN)
    inside = reader.hidden("object")
    form = object_value(reader, node, scope, inside)
    reader.out.append(Assign((inside,), form))
    return inside


def object_value(reader: Reader, node: Node, scope: str | None, inside: Expression) -> Expression:
    """Return an object literal, which is called `inside`. With a scope its functions are symbols below it."""
    items: list[tuple[str | int | None, Expression]] = []
    for part in node.named_children:
        kind = part.type
        if kind == "shorthand_property_identifier":
            items.append((reader.source.text(part), reader.expression(part)))
        elif kind == "spread_element":
            inner = first(part)
            items.append(("**", UNKNOWN if inner is None else reader.expression(inner)))
        elif kind in ("pair", "method_definition"):
            items.append(_item(reader, part, scope, inside))
    return Mapping(tuple(items))


def _item(reader: Reader, node: Node, scope: str | None, of: Expression) -> tuple[str | None, Expression]:
    is_pair = node.type == "pair"
    key = node.child_by_field_name("key" if is_pair else "name")
    name = property_name(reader, key)
    if not name and key is not None and (computed := first(key)) is not None:
        reader.evaluate(reader.expression(computed))
    value = node.child_by_field_name("value") if is_pair else node
    if value is None:
        return name or None, UNKNOWN
    this = THIS if of == UNKNOWN else of
    inside = UNKNOWN if of == UNKNOWN or not name else Attribute(of, name)
    naming = None if scope is None or not name else Naming(scope, name, "method", node, inside, this=this)
    if is_pair and (naming is not None or value.type not in ("function_expression", "generator_function")):
        return name or None, named(reader, value, naming)
    words = {child.type for child in node.children}
    kind = "getter" if "get" in words else "method"
    if naming is None:
        made = function(reader, value, reader.source.anonymous(reader.scope), kind, "", this)
    else:
        made = named_function(reader, value, naming, kind)
    return (None if "set" in words else name or None), Lambda(made)


# --- classes ---------------------------------------------------------------------------------------------------------


def decorators_of(reader: Reader, nodes: list[Node]) -> tuple[Decorators, tuple[str, ...]]:
    """Return the decorators among nodes, as forms with lines and as text."""
    found = [(node, inner) for node in nodes if node.type == "decorator" and (inner := first(node)) is not None]
    return (
        tuple((reader.expression(inner), reader.line(node)) for node, inner in found),
        tuple(reader.source.line(node).removeprefix("@") for node, _ in found),
    )


def class_form(reader: Reader, node: Node, naming: Naming | None, around: list[Node] | None = None) -> Expression:
    """Add a class to `out` and return its name. Without a name it is no symbol, and neither are its methods."""
    if not reader.source.enter(2):
        return UNKNOWN
    decorators, texts = decorators_of(reader, [*(around or []), *node.children])
    own = node.child_by_field_name("name")
    if naming is None:
        inside = reader.hidden("class")
        qualname = joined(reader.scope, inside.name)
    else:
        inside = naming.alias if isinstance(naming.alias, Name) else reader.hidden("class")
        qualname = defined(reader, naming, texts)
    reader.enter_block()
    if own is not None and node.type == "class":
        reader.scopes[-1].names[reader.source.text(own)] = inside
    type_parameters(reader, node)
    bases = _bases(reader, node)
    body = _members(reader, node.child_by_field_name("body"), qualname)
    reader.leave()
    reader.source.depth -= 2
    reader.out.append(Class(inside.name, qualname, bases, body, decorators))
    return inside


def _bases(reader: Reader, node: Node) -> Decorators:
    found: list[tuple[Expression, int]] = []
    for heritage in node.children:
        if heritage.type not in ("class_heritage", "extends_type_clause"):
            continue
        for clause in heritage.named_children if heritage.type == "class_heritage" else [heritage]:
            if clause.type == "extends_clause":
                value = clause.child_by_field_name("value")
                found += [] if value is None else [(reader.expression(value), reader.line(value))]
            elif clause.type in ("implements_clause", "extends_type_clause"):
                found += _types(reader, clause.named_children)
            else:  # JavaScript's grammar has the expression itself here
                found.append((reader.expression(clause), reader.line(clause)))
    return tuple(found)


def _types(reader: Reader, nodes: list[Node]) -> list[tuple[Expression, int]]:
    return [(form, reader.line(node)) for node in nodes if (form := type_form(reader, node)) is not None]


def _members(reader: Reader, body: Node | None, qualname: str) -> Block:
    if body is None:
        return ()
    before, reader.out = reader.out, []
    outside, reader.scope = reader.scope, qualname
    owner, reader.owner = reader.owner, qualname
    waiting: list[Node] = []
    for node in body.children:
        if node.type == "decorator":
            waiting.append(node)
            continue
        _member(reader, node, waiting)
        if node.is_named:
            waiting = []
    made: list[Statement] = reader.out
    reader.out, reader.scope, reader.owner = before, outside, owner
    return tuple(made)


def _member(reader: Reader, node: Node, before: list[Node]) -> None:
    kind = node.type
    if kind == "class_static_block":
        body = node.child_by_field_name("body")
        if body is not None:
            made = function(reader, node, joined(reader.scope, reader.hidden("static").name), "static")
            reader.out.append(Define(made.qualname.rpartition(".")[2], made))
    elif kind == "method_definition":
        _method(reader, node, before)
    elif kind in ("public_field_definition", "field_definition", "property_signature"):
        _field(reader, node, before)
    elif kind in ("method_signature", "abstract_method_signature"):
        _signature(reader, node)


def _method(reader: Reader, node: Node, before: list[Node]) -> None:
    name_node = node.child_by_field_name("name")
    name = property_name(reader, name_node)
    words = {child.type for child in node.children if not child.is_named}
    decorators, texts = decorators_of(reader, before)
    if name == "constructor":
        for field, type_of in parameter_fields(reader, node):
            reader.out.append(Assign((Name(field),), None, type_of))
    kind = "static" if "static" in words else "constructor" if name == "constructor" else "method"
    if not name:
        made = function(reader, node, reader.source.anonymous(reader.scope), kind)
        reader.out.append(Define(made.qualname.rpartition(".")[2], made))
        return
    naming = Naming(reader.scope, name, "method", node, since=before[0] if before else None)
    made = named_function(reader, node, naming, kind, texts)
    if "get" in words and kind == "method":
        made = msgspec.structs.replace(made, kind="getter")
    reader.out.append(Define(f"<set {name}>" if "set" in words else name, made, decorators))


def _field(reader: Reader, node: Node, before: list[Node]) -> None:
    name = property_name(reader, node.child_by_field_name("name") or node.child_by_field_name("property"))
    decorators, texts = decorators_of(reader, [*before, *node.children])
    value, type_of = node.child_by_field_name("value"), annotation(reader, node.child_by_field_name("type"))
    inner = None if value is None else unwrapped(value)
    if name and inner is not None and inner.type in FUNCTION_VALUES:
        is_static = any(child.type == "static" for child in node.children)
        since = before[0] if before else None
        naming = Naming(reader.scope, name, "method", node, Attribute(This(), name), since)
        made = named_function(reader, inner, naming, "static" if is_static else "method", texts)
        reader.out.append(Define(name, made, decorators))
        return
    for form, _ in decorators:
        reader.evaluate(form)
    given = None if value is None else named(reader, value, Naming(reader.scope, name, "method", node))
    if name:
        reader.out.append(Assign((Name(name),), given, type_of))
    elif given is not None:
        reader.evaluate(given)


def _signature(reader: Reader, node: Node) -> None:
    """A method without a body; not where the implementation or another signature of it follows or came before."""
    name = property_name(reader, node.child_by_field_name("name"))
    following = node.next_named_sibling
    if not name or (
        following is not None
        and following.type in ("method_signature", "abstract_method_signature", "method_definition")
        and property_name(reader, following.child_by_field_name("name")) == name
    ):
        return
    words = {child.type for child in node.children if not child.is_named}
    kind = "static" if "static" in words else "getter" if "get" in words else "method"
    made = named_function(reader, node, Naming(reader.scope, name, "method", node), kind)
    reader.out.append(Define(f"<set {name}>" if "set" in words else name, made))


# --- interfaces, enums, namespaces -----------------------------------------------------------------------------------


def interface_form(reader: Reader, node: Node, naming: Naming, body: Node | None) -> None:
    """Add an interface, or a type that is written like one, to `out`."""
    if not isinstance(naming.alias, Name):
        return
    qualname = defined(reader, naming)
    reader.enter_block()
    type_parameters(reader, node)
    bases = _bases(reader, node)
    members = _members(reader, body, qualname)
    reader.leave()
    reader.out.append(Class(naming.alias.name, qualname, bases, members, kind="interface"))


def anonymous_interface(reader: Reader, node: Node) -> Expression:
    """Return the name of an interface that is written where it is used: `(props: { store: Store })`."""
    if not reader.source.enter(2):
        return UNKNOWN
    inside = reader.hidden("class")
    qualname = joined(reader.scope, inside.name)
    members = _members(reader, node, qualname)
    reader.source.depth -= 2
    reader.types.append(Class(inside.name, qualname, (), members, kind="interface"))
    return inside


def enum_form(reader: Reader, node: Node, naming: Naming) -> None:
    """Add an enum to `out`; its members are fields."""
    if not isinstance(naming.alias, Name):
        return
    qualname = defined(reader, naming)
    before, reader.out = reader.out, []
    body = node.child_by_field_name("body")
    for part in [] if body is None else body.named_children:
        name = property_name(reader, part.child_by_field_name("name") or part)
        form = reader.field(part, "value")
        if name:
            reader.out.append(Assign((Name(name),), form))
    made, reader.out = tuple(reader.out), before
    reader.out.append(Class(naming.alias.name, qualname, (), made, kind="enum"))


def namespace_form(reader: Reader, node: Node, name: str, inside: Expression) -> None:
    """Add a namespace to `out`: an object with what it exports. A second one of the name adds to the first."""
    body = node.child_by_field_name("body")
    if not reader.source.enter(2):
        return
    outside, reader.scope = reader.scope, joined(reader.scope, name)
    exports, reader.exports = reader.exports, {}
    reader.enter_block()
    reader.add([] if body is None else body.named_children)
    items = [(export.name, export.value) for export in reader.exports.values()]
    if not items:  # an ambient one exports all it has
        items = list(reader.scopes[-1].names.items())
    reader.leave()
    reader.source.depth -= 2
    reader.scope, reader.exports = outside, exports
    for part in name.split(".")[:0:-1]:
        items = [(part, Mapping(tuple(items)))]
    if isinstance(inside, Name) and inside.name not in reader.objects:
        reader.objects.add(inside.name)
        reader.out.append(Assign((inside,), Mapping(tuple(items))))
    else:
        reader.out.extend(Assign((Attribute(inside, key),), value) for key, value in items)
