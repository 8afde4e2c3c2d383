"""Expressions of Java to forms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.codegraph.java.reader import ANY, UNKNOWN, Handler, Reader, with_arity
from pipeline.codegraph.source import EXTRAS, beside, first, inert, opaque
from pipeline.codegraph.summary import (
    Assign,
    Attribute,
    Branch,
    Call,
    Choice,
    Constant,
    Expression,
    First,
    Function,
    Index,
    Instance,
    Lambda,
    Name,
    Parameter,
    Return,
    Sequence,
    Statement,
    Super,
    This,
    Walrus,
)

if TYPE_CHECKING:
    from tree_sitter import Node

_LONGEST_KEY = 100  # characters of a string that can be a key


def _parts(reader: Reader, node: Node) -> Expression:
    return opaque(reader.each(node.children))


def _constant(reader: Reader, node: Node) -> Expression:
    return _CONSTANTS[node.type]


def _string(reader: Reader, node: Node) -> Expression:
    text = reader.source.text(node).strip('"')
    return Constant(text if len(text) <= _LONGEST_KEY and "\\" not in text else None, "String")


def _integer(reader: Reader, node: Node) -> Expression:
    text = reader.source.text(node)
    kind = "long" if text[-1:] in "lL" else "int"
    return Constant(int(text) if text.isdecimal() and len(text) < 10 else None, kind)


def _floating(reader: Reader, node: Node) -> Expression:
    return Constant(None, "float" if reader.source.text(node)[-1:] in "fF" else "double")


def _binary(reader: Reader, node: Node) -> Expression:
    """Operators are not nested: `a + b + c` stands as deep as it is long in the tree. Known is what is a String or boolean."""
    operands: list[Node] = []
    added: list[Node] = []
    waiting = [(node, True)]
    while waiting:
        part, adds = waiting.pop()
        if part.type == "binary_expression":
            adds = adds and any(child.type == "+" for child in part.children)
            sides = [part.child_by_field_name(name) for name in ("right", "left")]
            waiting += [(child, adds) for child in sides if child is not None]
        else:
            operands.append(part)
            added += [part] if adds else []
    forms = reader.each(operands)
    if any(part.type == "string_literal" for part in added):
        return beside(Constant(None, "String"), forms)
    operator = node.child_by_field_name("operator")
    if operator is not None and operator.type in _COMPARING:
        return beside(Constant(None, "boolean"), forms)
    form = opaque(forms)
    return form if form.parts else UNKNOWN


def _unary(reader: Reader, node: Node) -> Expression:
    value = reader.expression(node.child_by_field_name("operand"))
    if any(child.type == "!" for child in node.children):
        return beside(Constant(None, "boolean"), (value,))
    return Constant(None, value.type) if isinstance(value, Constant) else opaque((value,))


def _ternary(reader: Reader, node: Node) -> Expression:
    condition, yes, no = (
        reader.expression(node.child_by_field_name(name)) for name in ("condition", "consequence", "alternative")
    )
    return Choice((yes, no), () if inert(condition) else (condition,))


def _field(reader: Reader, node: Node) -> Expression:
    """`a.b`, which may be a class with its package, `Outer.this`, or a field."""
    of, name = node.child_by_field_name("object"), node.child_by_field_name("field")
    if of is None or name is None:
        return UNKNOWN
    if name.type == "this":
        return reader.outer(reader.source.text(of).rpartition(".")[2])
    text = reader.source.text(name)
    if (
        text[:1].isupper()
        and (parts := _dotted(reader, node))
        and (found := reader.qualified(parts, node.start_point[0] + 1))
    ):
        return found
    return Attribute(reader.expression(of), text)


def _dotted(reader: Reader, node: Node) -> list[str]:
    parts: list[str] = []
    while node.type == "field_access":
        of, name = node.child_by_field_name("object"), node.child_by_field_name("field")
        if of is None or name is None or name.type != "identifier":
            return []
        parts.append(reader.source.text(name))
        node = of
    return [reader.source.text(node), *reversed(parts)] if node.type == "identifier" else []


def _call(reader: Reader, node: Node) -> Expression:
    name, of = node.child_by_field_name("name"), node.child_by_field_name("object")
    arguments = node.child_by_field_name("arguments")
    if name is None:
        return UNKNOWN
    text = reader.source.text(name)
    nodes = [] if arguments is None else [node for node in arguments.named_children if node.type not in EXTRAS]
    key = with_arity(text, len(nodes))
    if of is None:
        callee: Expression = reader.method(text, len(nodes))
    elif any(child.type == "super" for child in node.children[1:]):
        callee = Attribute(Instance(reader.type_form(of) or UNKNOWN), key)
    else:
        callee = Attribute(reader.expression(of), key)
    return Call(callee, reader.each(nodes), line=name.end_point[0] + 1)


def _new(reader: Reader, node: Node) -> Expression:
    """`new X()`; a body makes a class of its own, which nobody can name: the object counts as an X."""
    type_node, arguments = node.child_by_field_name("type"), node.child_by_field_name("arguments")
    form = reader.type_form(type_node)
    outer = first(node)
    if (
        outer is not None
        and type_node is not None
        and outer.start_byte < type_node.start_byte
        and "." in {child.type for child in node.children}
    ):
        form = Attribute(reader.expression(outer), reader.source.text(type_node).split("<")[0])
    given = () if arguments is None else reader.each(arguments.children)
    body = next((child for child in node.named_children if child.type == "class_body"), None)
    if form is None or type_node is None:
        return opaque(given)
    line = type_node.end_point[0] + 1
    if body is not None:
        reader.anonymous_class(reader, body, form, line)
    return Call(form, given, line=line, new=True)


def _lambda(reader: Reader, node: Node) -> Expression:
    parameters, body = node.child_by_field_name("parameters"), node.child_by_field_name("body")
    qualname = reader.source.anonymous(reader.scope)
    outside, reader.scope = reader.scope, qualname
    results, reader.results = reader.results, []
    reader.enter_block()
    made = tuple(_lambda_parameters(reader, parameters))
    if body is not None and body.type == "block":
        statements: tuple[Statement, ...] = reader.block(body)
    else:
        before, reader.out = reader.out, []
        value = reader.expression(body)
        statements, reader.out = (*reader.out, Return(value)), before
    reader.leave_block()
    reader.scope, reader.results = outside, results
    return Lambda(Function(qualname, made, statements, bound=True))


def _lambda_parameters(reader: Reader, node: Node | None) -> list[Parameter]:
    if node is None:
        return []
    if node.type == "identifier":
        return [Parameter(reader.declare(reader.source.text(node)).name)]
    if node.type == "formal_parameters":
        return parameters_of(reader, node)
    names = [child for child in node.named_children if child.type == "identifier"]
    return [Parameter(reader.declare(reader.source.text(name)).name) for name in names]


def parameters_of(reader: Reader, node: Node | None) -> list[Parameter]:
    """Return the parameters of a method, declared in the block being read."""
    found: list[Parameter] = []
    for each in [] if node is None else node.named_children:
        if each.type == "formal_parameter":
            name, type_form = each.child_by_field_name("name"), reader.type_form(each.child_by_field_name("type"))
            if name is not None:
                found.append(Parameter(reader.declare(reader.source.text(name)).name, "", None, type_form))
        elif each.type == "spread_parameter":
            declarator = next((child for child in each.named_children if child.type == "variable_declarator"), None)
            name = None if declarator is None else declarator.child_by_field_name("name")
            types = [child for child in each.named_children if child.type not in ("modifiers", "variable_declarator")]
            inner = reader.type_form(types[0]) if types else None
            if name is not None:
                of = None if inner is None else Sequence((inner,))
                found.append(Parameter(reader.declare(reader.source.text(name)).name, "*", None, of))
    return found


def _reference(reader: Reader, node: Node) -> Expression:
    """`X::m` and `X::new` are objects of some interface, whose only method is called by a name that nobody knows here."""
    of = first(node)
    return UNKNOWN if of is None or of.type in _TYPES else opaque((reader.expression(of),))


def _assignment(reader: Reader, node: Node) -> Expression:
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    operator = node.child_by_field_name("operator")
    value = reader.expression(right)
    target = reader.expression(left)
    if not isinstance(target, Name | Attribute | Index) or (operator is not None and operator.type != "="):
        return opaque((target, value))
    return Walrus(target, value)


def _cast(reader: Reader, node: Node) -> Expression:
    form, value = (
        reader.type_form(node.child_by_field_name("type")),
        reader.expression(node.child_by_field_name("value")),
    )
    if isinstance(value, Lambda):
        return value
    if form is None or form == ANY:
        return First((value,))  # of a type that is not known
    reader.evaluate(value)
    return Instance(form)


def _instanceof(reader: Reader, node: Node) -> Expression:
    """A pattern binds: what it binds stands before the statement, and is known after it."""
    value = reader.expression(node.child_by_field_name("left"))
    name, pattern = node.child_by_field_name("name"), node.child_by_field_name("pattern")
    if name is not None:
        reader.declare_typed(reader.source.text(name), reader.type_form(node.child_by_field_name("right")))
    elif pattern is not None:
        pattern_names(reader, pattern)
    return beside(Constant(None, "boolean"), (value,))


def pattern_names(reader: Reader, node: Node) -> None:
    """Declare what a pattern of types or records binds."""
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if part.type in ("record_pattern_component", "type_pattern"):
            parts = [child for child in part.named_children if child.type not in EXTRAS]
            if len(parts) > 1 and parts[-1].type == "identifier":
                reader.declare_typed(reader.source.text(parts[-1]), reader.type_form(parts[-2]))
                continue
        waiting += reversed(part.named_children)


def _array(reader: Reader, node: Node) -> Expression:
    value = node.child_by_field_name("value")
    if value is not None:
        return reader.expression(value)
    form = reader.type_form(node.child_by_field_name("type"))
    reader.evaluate(opaque(reader.each(c for child in node.named_children for c in child.named_children)))
    return UNKNOWN if form is None else Sequence((Instance(form),))


def _items(reader: Reader, node: Node) -> Expression:
    return Sequence(reader.each(node.children))


def _access(reader: Reader, node: Node) -> Expression:
    return Index(
        reader.expression(node.child_by_field_name("array")), reader.expression(node.child_by_field_name("index"))
    )


def _class(reader: Reader, node: Node) -> Expression:
    return Instance(Name("Class"))


def switch(reader: Reader, node: Node) -> Expression:
    """A `switch` stands before its statement; its value is what its arms gave."""
    reader.evaluate(reader.expression(node.child_by_field_name("condition")))
    body = node.child_by_field_name("body")
    result = reader.hidden("switch")
    reader.results.append(result)
    arms: list[tuple[Statement, ...]] = []
    total = False
    reader.enter_block()
    for case in [] if body is None else body.named_children:
        total = total or any(
            child.type == "switch_label" and "default" in reader.source.line(child) for child in case.children
        )
        before, reader.out = reader.out, []
        for part in case.named_children:
            if part.type == "switch_label":
                _label(reader, part)
            elif case.type == "switch_rule" and part.type == "expression_statement":
                reader.out.append(Assign((result,), reader.expression(first(part))))
            else:
                reader.statement(part)
        arms.append(tuple(reader.out))
        reader.out = before
    reader.leave_block()
    reader.results.pop()
    reader.out.append(Branch(tuple(arms), total))
    return result


def _label(reader: Reader, node: Node) -> None:
    for part in node.named_children:
        if part.type in ("pattern", "type_pattern", "record_pattern"):
            pattern_names(reader, part)
        elif part.type == "guard":
            reader.evaluate(opaque(reader.each(part.children)))


_COMPARING = frozenset({"==", "!=", "<", ">", "<=", ">=", "&&", "||"})
_TYPES = frozenset({"generic_type", "array_type", "scoped_type_identifier", "type_identifier"})
_CONSTANTS: dict[str, Expression] = {
    "true": Constant(None, "boolean"),
    "false": Constant(None, "boolean"),
    "character_literal": Constant(None, "char"),
    "null_literal": ANY,
    "this": This(),
    "super": Super(),
}
EXPRESSIONS: dict[str, Handler] = {
    **dict.fromkeys(_CONSTANTS, _constant),
    **dict.fromkeys(("update_expression", "template_expression"), _parts),
    **dict.fromkeys(("hex_integer_literal", "octal_integer_literal", "binary_integer_literal"), _integer),
    **dict.fromkeys(("decimal_floating_point_literal", "hex_floating_point_literal"), _floating),
    "unary_expression": _unary,
    "string_literal": _string,
    "decimal_integer_literal": _integer,
    "binary_expression": _binary,
    "ternary_expression": _ternary,
    "field_access": _field,
    "method_invocation": _call,
    "object_creation_expression": _new,
    "lambda_expression": _lambda,
    "method_reference": _reference,
    "assignment_expression": _assignment,
    "cast_expression": _cast,
    "instanceof_expression": _instanceof,
    "array_creation_expression": _array,
    "array_initializer": _items,
    "array_access": _access,
    "class_literal": _class,
    "switch_expression": switch,
}
