"""Expressions of JavaScript and TypeScript, JSX among them, to forms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.codegraph.javascript.commonjs import exported, module_of_call
from pipeline.codegraph.javascript.definitions import (
    CASTS,
    Naming,
    anonymous_interface,
    class_form,
    held_object,
    named,
    object_value,
)
from pipeline.codegraph.javascript.functions import (
    FUNCTION_VALUES,
    bind,
    cast,
    function,
    property_name,
    string_value,
    target,
)
from pipeline.codegraph.javascript.reader import PATTERNS, THIS, UNKNOWN, Handler, Reader, one_of
from pipeline.codegraph.source import first, inert, joined, opaque
from pipeline.codegraph.summary import (
    Attribute,
    Awaited,
    Call,
    Choice,
    Constant,
    Define,
    Evaluate,
    Expression,
    Index,
    Lambda,
    Mapping,
    Name,
    Sequence,
    Star,
    Super,
    Walrus,
    Yield,
)

if TYPE_CHECKING:
    from tree_sitter import Node

_LONGEST_KEY = 100  # characters of a string that can be a key
_OBJECT = Name("Object")
_CHOOSING = frozenset({"||", "??"})


# --- one function for each kind of node ------------------------------------------------------------------------------


def _parts(reader: Reader, node: Node) -> Expression:
    return opaque(reader.each(node.children))


def _constant(reader: Reader, node: Node) -> Expression:
    return _CONSTANTS[node.type]


def _this(reader: Reader, node: Node) -> Expression:
    return reader.this


def _string(reader: Reader, node: Node) -> Expression:
    value = string_value(reader, node)
    return Constant(value if len(value) <= _LONGEST_KEY and "\\" not in value else None, "String")


def _number(reader: Reader, node: Node) -> Expression:
    text = reader.source.text(node)
    return Constant(int(text) if text.isdecimal() and len(text) < 10 else None, "Number")


def _template(reader: Reader, node: Node) -> Expression:
    parts = [
        inner for part in node.named_children if part.type == "template_substitution" for inner in part.named_children
    ]
    form = opaque(reader.each(parts))
    return form if form.parts else Constant(None, "String")


def _binary(reader: Reader, node: Node) -> Expression:
    """Operators are not nested: `a + b + c` stands as deep as it is long in the tree."""
    operator = node.child_by_field_name("operator")
    sign = "" if operator is None else operator.type
    operands: list[Node] = []
    waiting = [node]
    while waiting:
        part = waiting.pop()
        inside = part.child_by_field_name("operator") if part.type == "binary_expression" else None
        if inside is not None and (inside.type == sign or not {inside.type, sign} & _LOGICAL):
            waiting += [child for name in ("right", "left") if (child := part.child_by_field_name(name)) is not None]
        else:
            operands.append(part)
    forms = [reader.expression(part) for part in operands]
    if sign in _CHOOSING:
        return one_of(forms)
    if sign == "&&":
        *conditions, value = forms
        return value if all(map(inert, conditions)) else Choice((value,), opaque(conditions).parts)
    return opaque(forms)


_LOGICAL = _CHOOSING | {"&&"}


def _ternary(reader: Reader, node: Node) -> Expression:
    condition = reader.field(node, "condition")
    options = (reader.field(node, "consequence"), reader.field(node, "alternative"))
    return Choice(options, () if inert(condition) else (condition,))


def _sequence(reader: Reader, node: Node) -> Expression:
    *others, last = reader.each(node.children) or (UNKNOWN,)
    return last if all(map(inert, others)) else Choice((last,), opaque(others).parts)


def _member(reader: Reader, node: Node) -> Expression:
    name = exported(reader, node)
    if name == "=":
        return reader.lookup("exports")
    if name and name in reader.exported_names:
        return Name(f"exports.{name}")
    named_by = property_name(reader, node.child_by_field_name("property"))
    of = reader.field(node, "object")
    return Attribute(of, named_by) if named_by else opaque((of,))


def _subscript(reader: Reader, node: Node) -> Expression:
    return Index(reader.field(node, "object"), reader.field(node, "index"))


def _call(reader: Reader, node: Node) -> Expression:
    module = module_of_call(reader, node)
    if module is not None:
        return module
    callee, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
    if callee is None:
        return UNKNOWN
    of = Super() if callee.type == "super" else UNKNOWN if callee.type == "import" else reader.expression(callee)
    given: tuple[Expression, ...] = ()
    if arguments is not None:
        is_tag = arguments.type == "template_string"
        given = (_template(reader, arguments),) if is_tag else reader.each(arguments.children)
    call = Call(of, given, line=callee.end_point[0] + 1)
    return _of_object(reader, call) if isinstance(of, Attribute) and of.of == _OBJECT else call


def _of_object(reader: Reader, call: Call) -> Expression:
    """`Object.create(a)` and `Object.assign(a, b)` give an object with what these have, `Object.freeze(a)` gives `a`."""
    name = call.of.name if isinstance(call.of, Attribute) else ""
    if not call.arguments or name not in ("create", "assign", "freeze", "seal"):
        return call
    given = call.arguments if name == "assign" else call.arguments[:1]
    reader.out.append(Evaluate(Call(call.of, call.arguments[len(given) :], line=call.line)))
    if name not in ("create", "assign"):
        return given[0]
    return Mapping(tuple(("**", each) for each in given))


def _new(reader: Reader, node: Node) -> Expression:
    callee, arguments = node.child_by_field_name("constructor"), node.child_by_field_name("arguments")
    if callee is None:
        return UNKNOWN
    of = reader.expression(callee)
    given = () if arguments is None else reader.each(arguments.children)
    return Call(of, given, line=callee.end_point[0] + 1, new=True)


def _array(reader: Reader, node: Node) -> Expression:
    return Sequence(reader.each(node.children))


def _object(reader: Reader, node: Node) -> Expression:
    """A literal that a function returns has its functions as symbols below the function."""
    parent = node.parent
    while parent is not None and parent.type in CASTS:
        parent = parent.parent
    is_returned = parent is not None and parent.type in ("return_statement", "arrow_function")
    return held_object(reader, node, reader.scope if is_returned and reader.scope else None)


def _spread(reader: Reader, node: Node) -> Expression:
    inner = first(node)
    return UNKNOWN if inner is None else Star(reader.expression(inner))


def _await(reader: Reader, node: Node) -> Expression:
    inner = first(node)
    return UNKNOWN if inner is None else Awaited(reader.expression(inner))


def _yield(reader: Reader, node: Node) -> Expression:
    inner = first(node)
    form = None if inner is None else reader.expression(inner)
    return Yield(form, any(child.type == "*" for child in node.children))


def _anonymous(reader: Reader, node: Node) -> Expression:
    """A function without a name that others see; one with a name of its own is a symbol all the same."""
    own = node.child_by_field_name("name")
    if own is None:
        return Lambda(function(reader, node, reader.source.anonymous(reader.scope)))
    text = reader.source.text(own)
    inside = Name(f"{text}{reader.hidden('named').name}")
    form = named(reader, node, Naming(reader.scope, text, "function", node, inside))
    if not isinstance(form, Lambda):
        return form
    reader.out.append(Define(inside.name, form.function))
    return inside


def _class(reader: Reader, node: Node) -> Expression:
    own = node.child_by_field_name("name")
    if own is None:
        return class_form(reader, node, None)
    text = reader.source.text(own)
    inside = Name(f"{text}{reader.hidden('named').name}")
    return class_form(reader, node, Naming(reader.scope, text, "class", node, inside))


def _as(reader: Reader, node: Node) -> Expression:
    parts = node.named_children
    if not parts:
        return UNKNOWN
    value = reader.expression(parts[0])
    return cast(reader, value, parts[1] if len(parts) > 1 else None)


def _assertion(reader: Reader, node: Node) -> Expression:
    parts = node.named_children
    if len(parts) != 2:
        return _parts(reader, node)
    return cast(reader, reader.expression(parts[1]), first(parts[0]))


def _first(reader: Reader, node: Node) -> Expression:
    inner = first(node)
    return UNKNOWN if inner is None else reader.expression(inner)


# --- assignments -----------------------------------------------------------------------------------------------------


def assignment(reader: Reader, node: Node) -> Expression:
    """Return an assignment as an expression; an object taken apart is added to `out`, and its value returned."""
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    if left is None or right is None:
        return UNKNOWN
    if left.type in PATTERNS:
        value = reader.held(reader.expression(right))
        bind(reader, left, value, declared=False)
        return value
    name = exported(reader, left)
    if name:
        inside = reader.target("exports" if name == "=" else f"exports.{name}")
        value = _exported_value(reader, node, name, right, inside)
        if not _is_void(right):
            reader.offer(name, inside)
        return Walrus(inside, value)
    inside = target(reader, left)
    return Walrus(inside, named(reader, right, naming_of(reader, left, node, inside)))


def _is_void(node: Node) -> bool:
    while node.type == "assignment_expression" and (right := node.child_by_field_name("right")) is not None:
        node = right
    return node.type in ("unary_expression", "undefined")


def _exported_value(reader: Reader, node: Node, name: str, value: Node, inside: Expression) -> Expression:
    """Return what is exported; functions of `module.exports = {…}` are symbols of the file."""
    if name == "=" and value.type == "object":
        return object_value(reader, value, "", inside)
    own = value.child_by_field_name("name") if value.type in FUNCTION_VALUES or value.type == "class" else None
    if name == "=":
        name = "default" if own is None else reader.source.text(own)
    return named(reader, value, Naming("", name, "class" if value.type == "class" else "function", node, inside))


def naming_of(reader: Reader, left: Node, whole: Node, inside: Expression) -> Naming | None:
    """Return the name that a value gets by being assigned: `x`, `app.use`, `Store.prototype.add`, `this.add` in a class."""
    if left.type == "identifier":
        return Naming(reader.scope, reader.source.text(left), "function", whole, inside)
    parts: list[str] = []
    while left.type == "member_expression":
        of, name = left.child_by_field_name("object"), property_name(reader, left.child_by_field_name("property"))
        if of is None or not name:
            return None
        parts.append(name)
        left = of
    if left.type == "this" and len(parts) == 1 and reader.owner:
        return Naming(reader.owner, parts[0], "method", whole, inside, this=reader.this)
    if left.type != "identifier" or not parts:
        return None
    name, *others = parts
    scope = joined(reader.scope, reader.source.text(left))
    for part in reversed(others):
        scope = scope if part == "prototype" else joined(scope, part)
    this = inside.of if isinstance(inside, Attribute) and "prototype" not in parts else THIS
    return Naming(scope, name, "method", whole, inside, this=this)


def _augmented(reader: Reader, node: Node) -> Expression:
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    operator = node.child_by_field_name("operator")
    if left is None or right is None:
        return UNKNOWN
    value = reader.expression(right)
    if operator is not None and operator.type in ("||=", "??=", "&&="):
        inside = target(reader, left)
        return Walrus(inside, Choice((inside, value)))
    return opaque((reader.expression(left), value))


# --- JSX -------------------------------------------------------------------------------------------------------------


def _element(reader: Reader, node: Node) -> Expression:
    """An element of a component is a call of it with its attributes; one of HTML is only looked at."""
    if not reader.source.enter(2):
        return UNKNOWN
    opening = node.child_by_field_name("open_tag") or node
    tag = opening.child_by_field_name("name")
    items: list[tuple[str | int | None, Expression]] = []
    for part in opening.named_children:
        if part.type == "jsx_attribute" and part.named_children:
            name, value = part.named_children[0], part.named_children[1:]
            items.append(
                (reader.source.text(name), reader.expression(value[0]) if value else Constant(None, "Boolean"))
            )
        elif part.type == "jsx_expression":
            spread = first(part)
            items.append(("**", UNKNOWN if spread is None else _first(reader, spread)))
    inner = [child for child in node.named_children if child.type in _CHILDREN]
    children = () if opening is node else tuple(form for form in reader.each(inner) if form != UNKNOWN)
    reader.source.depth -= 2
    if tag is None or not _is_component(reader, tag):
        return opaque((*(value for _, value in items), *children))
    if any(not inert(child) for child in children):
        items.append(("children", Sequence(children)))
    return Call(reader.expression(tag), (Mapping(tuple(items)),), line=tag.end_point[0] + 1)


_CHILDREN = frozenset({"jsx_element", "jsx_self_closing_element", "jsx_expression"})


def _is_component(reader: Reader, tag: Node) -> bool:
    return tag.type in ("member_expression", "nested_identifier") or reader.source.text(tag)[:1].isupper()


def _nested(reader: Reader, node: Node) -> Expression:
    parts = node.named_children
    if len(parts) != 2:
        return UNKNOWN
    return Attribute(reader.expression(parts[0]), reader.source.text(parts[1]))


_CONSTANTS: dict[str, Expression] = {
    "true": Constant(None, "Boolean"),
    "false": Constant(None, "Boolean"),
    "null": UNKNOWN,
    "undefined": UNKNOWN,
    "regex": Constant(None, "RegExp"),
    "super": Super(),
}
EXPRESSIONS: dict[str, Handler] = {
    **dict.fromkeys(_CONSTANTS, _constant),
    **dict.fromkeys(("arrow_function", "function_expression", "generator_function", "function"), _anonymous),
    **dict.fromkeys(
        ("unary_expression", "update_expression", "arguments", "jsx_fragment", "computed_property_name"), _parts
    ),
    **dict.fromkeys(("jsx_element", "jsx_self_closing_element"), _element),
    **dict.fromkeys(("jsx_expression", "instantiation_expression", "expression_statement"), _first),
    "this": _this,
    "string": _string,
    "number": _number,
    "template_string": _template,
    "binary_expression": _binary,
    "ternary_expression": _ternary,
    "sequence_expression": _sequence,
    "member_expression": _member,
    "subscript_expression": _subscript,
    "call_expression": _call,
    "new_expression": _new,
    "array": _array,
    "object": _object,
    "spread_element": _spread,
    "await_expression": _await,
    "yield_expression": _yield,
    "class": _class,
    "as_expression": _as,
    "type_assertion": _assertion,
    "assignment_expression": assignment,
    "augmented_assignment_expression": _augmented,
    "nested_identifier": _nested,
    "object_type": anonymous_interface,
}
