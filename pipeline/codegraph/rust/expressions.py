"""Rust's expressions to forms. What holds statements (blocks, `if`, `match`, loops) becomes statements before the one it
stands in, and gives its value through a name that no source can write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from pipeline.codegraph.rust.names import segments
from pipeline.codegraph.rust.types import Types
from pipeline.codegraph.source import EXTRAS, UNKNOWN, Source, beside, first, inert, named, opaque
from pipeline.codegraph.summary import (
    Assign,
    Attribute,
    Awaited,
    Block,
    Call,
    Choice,
    Constant,
    Evaluate,
    Expression,
    Function,
    Index,
    Instance,
    Lambda,
    Name,
    Parameter,
    Return,
    Sequence,
    Statement,
    This,
)

if TYPE_CHECKING:
    from tree_sitter import Node

_LONGEST_KEY = 100
_LONGEST_PATH = 50
_MACROS = 5  # macros in macros
_LONGEST_MACRO = 20_000  # bytes of a macro's arguments that are read
_PLAIN: dict[str, Expression] = {
    "self": This(),
    "boolean_literal": Constant(None, "bool"),
    "float_literal": Constant(None, "f64"),
    "char_literal": Constant(None, "char"),
    "unit_expression": Constant(None, "()"),
}
_WRAPPING = (["Box", "new"], ["Rc", "new"], ["Arc", "new"], ["Box", "pin"])
_FULL = frozenset({"Some", "Ok"})
_UNWRAPPING = frozenset({"unwrap", "expect", "unwrap_or_default", "unwrap_or", "unwrap_or_else"})


class Expressions(Types):
    """Turns expression nodes into forms. `scope` is the qualified name of what is being read, `out` the open block."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.scope = ""
        self.out: list[Statement] = []
        self.rows = 0  # lines before the text that is being read, where that is a macro's
        self.macros = 0  # that are being read
        self._hidden = 0

    def line(self, node: Node) -> int:
        """Return the line of a node's end."""
        return node.end_point[0] + 1 + self.rows

    def hidden(self) -> Name:
        """Return a name that no source can write."""
        self._hidden += 1
        return Name(f"<value{self._hidden}>")

    def expression(self, node: Node) -> Expression:
        """Return the form of an expression; what must run before it is added to the open block."""
        kind = node.type
        while kind in _TRANSPARENT:
            inner = node.child_by_field_name("value") or first(node)
            if inner is None:
                return UNKNOWN
            node, kind = inner, inner.type
        if kind == "identifier":
            text = self.source.text(node)
            return self.names.name(text.removeprefix("r#")) if text else UNKNOWN
        if plain := _PLAIN.get(kind):
            return plain
        if not self.source.enter():
            return UNKNOWN
        if kind in CONTROL:
            value = self.hidden()
            self.control(node, value)
            self.source.depth -= 1
            return value
        form = _HANDLERS.get(kind, _parts)(self, node)
        self.source.depth -= 1
        return form

    def each(self, nodes: Iterable[Node]) -> tuple[Expression, ...]:
        """Return the forms of those nodes that are expressions."""
        return tuple(
            self.expression(node)
            for node in nodes
            if node.is_named and node.type not in EXTRAS and node.type not in _NO_VALUES
        )

    def evaluate(self, node: Node | None) -> None:
        """Add an expression for its effects, if it can have any."""
        if node is None:
            return
        if node.type in CONTROL:
            if self.source.enter():
                self.control(node, None)
                self.source.depth -= 1
        elif not inert(form := self.expression(node)):
            self.out.append(Evaluate(form))

    def named_value(self, value: Expression) -> Expression:
        """Return a form that may be repeated: the value itself or a name for it."""
        if inert(value):
            return value
        name = self.hidden()
        self.out.append(Assign((name,), value))
        return name

    def control(self, node: Node, target: Name | None) -> None:
        """Add what a block, branch or loop does, and give its value to the target if there is one."""
        raise NotImplementedError

    def function_body(self, node: Node, parameters: list[Node]) -> tuple[tuple[Parameter, ...], Block]:
        """Return the parameters and the statements of a function or closure."""
        raise NotImplementedError


# --- one function for each kind of node ------------------------------------------------------------------------------


def _parts(self: Expressions, node: Node) -> Expression:
    return opaque(self.each(node.children))


def _error(self: Expressions, node: Node) -> Expression:
    self.source.counts["syntax_error"] += 1
    return _parts(self, node)


def _path(self: Expressions, node: Node) -> Expression:
    root = node
    below: list[str] = []
    while root.type == "scoped_identifier":
        name, path = root.child_by_field_name("name"), root.child_by_field_name("path")
        below.append("" if name is None else self.source.text(name).removeprefix("r#"))
        if path is None:
            break
        root = path
    if len(below) > _LONGEST_PATH:
        self.source.counts["nested_too_deeply"] += 1
        return UNKNOWN
    if root.type in ("bracketed_type", "generic_type") or self.source.text(root) == "Self":
        form = self.type(root)
    elif (generic := self.parameters_of_types.get(self.source.text(root))) is not None:
        form = generic
    else:
        return self.names.path(segments(self.source, node), self.line(node))
    for part in reversed(below):
        form = Attribute(form, part)
    return form


def _call(self: Expressions, node: Node) -> Expression:
    function, given = node.child_by_field_name("function"), node.child_by_field_name("arguments")
    if function is None or given is None:
        return _parts(self, node)
    if function.type == "generic_function":
        function = function.child_by_field_name("function") or function
    line = self.line(function)
    if function.type == "field_expression":
        return _method(self, function, given, line)
    parts = segments(self.source, function) if function.type in ("identifier", "scoped_identifier") else [""]
    if len(parts) == 1 and parts[0] in _FULL and not self.names.module.find(parts[0]):
        return Sequence(self.each(given.children))
    if len(parts) > 1 and parts[-1][:1].isupper() and parts[-2][:1].isupper():  # a variant of an enum, by convention
        of = _path(self, function)
        arguments = self.each(given.children)
        return beside(Instance(of.of) if isinstance(of, Attribute) else UNKNOWN, arguments)
    if parts[-2:] in _WRAPPING:
        arguments = self.each(given.children)
        return arguments[0] if len(arguments) == 1 else opaque(arguments)
    of = self.expression(function)
    return Call(of, self.each(given.children), line=line, new=parts[-1][:1].isupper())


def _method(self: Expressions, function: Node, given: Node, line: int) -> Expression:
    """Read `x.m(…)`. A clone is what it was made of; what takes a value out of a container is an index as well."""
    value, field = function.child_by_field_name("value"), function.child_by_field_name("field")
    if value is None or field is None:
        return opaque(self.each(given.children))
    of, name = self.expression(value), self.source.text(field).removeprefix("r#")
    if name == "clone" and not named(given):
        return of
    if name in _UNWRAPPING:
        of = self.named_value(of)
        call = Call(Attribute(of, name), self.each(given.children), line=line)
        return Choice((Index(of, UNKNOWN), call))
    return Call(Attribute(of, name), self.each(given.children), line=line)


def _field(self: Expressions, node: Node) -> Expression:
    value, field = node.child_by_field_name("value"), node.child_by_field_name("field")
    if value is None or field is None:
        return _parts(self, node)
    return Attribute(self.expression(value), self.source.text(field).removeprefix("r#"))


def _generic(self: Expressions, node: Node) -> Expression:
    function = node.child_by_field_name("function")
    return UNKNOWN if function is None else self.expression(function)


def _index(self: Expressions, node: Node) -> Expression:
    forms = self.each(node.children)
    return Index(*forms) if len(forms) == 2 else opaque(forms)


def _taken_out(self: Expressions, node: Node) -> Expression:
    inner = first(node)
    return UNKNOWN if inner is None else Index(self.expression(inner), UNKNOWN)


def _await(self: Expressions, node: Node) -> Expression:
    inner = first(node)
    return UNKNOWN if inner is None else Awaited(self.expression(inner))


def _unary(self: Expressions, node: Node) -> Expression:
    forms = self.each(node.children)
    if node.children[0].type == "*" and len(forms) == 1:
        return forms[0]
    return opaque(forms)


def _binary(self: Expressions, node: Node) -> Expression:
    """Return a chain that leans to the left as one form."""
    operands: list[Node] = []
    while node.type == "binary_expression":
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if left is None or right is None:
            break
        operands.append(right)
        node = left
    else:
        operands.append(node)
    return opaque(self.each(reversed(operands)))


def _cast(self: Expressions, node: Node) -> Expression:
    value = node.child_by_field_name("value")
    kind = Instance(self.type(node.child_by_field_name("type")))
    return kind if value is None else beside(kind, (self.expression(value),))


def _sequence(self: Expressions, node: Node) -> Expression:
    return Sequence(self.each(node.children))


def _string(self: Expressions, node: Node) -> Expression:
    text = self.source.text(node)
    opening = text.find('"')
    value = text[opening + 1 : text.rfind('"')]
    plain = len(value) <= _LONGEST_KEY and "\\" not in value
    return Constant(value if plain else None, "str")


def _integer(self: Expressions, node: Node) -> Expression:
    text = self.source.text(node)
    return Constant(int(text) if text.isdecimal() and len(text) <= 15 else None, "int")


def _assignment(self: Expressions, node: Node) -> Expression:
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    if left is not None and right is not None:
        value = self.expression(right)
        target = Sequence(()) if left.type == "_" else self.expression(left)
        self.out.append(Assign((target,), value, augmented=node.type != "assignment_expression"))
    return UNKNOWN


def _return(self: Expressions, node: Node) -> Expression:
    value = first(node)
    self.out.append(Return(None if value is None else self.expression(value)))
    return UNKNOWN


def _leave(self: Expressions, node: Node) -> Expression:
    """Read `break value`: the loop's value is not followed."""
    value = next((child for child in named(node) if child.type != "label"), None)
    if value is not None:
        self.evaluate(value)
    return UNKNOWN


def _struct(self: Expressions, node: Node) -> Expression:
    """Read `S { a: 1, ..rest }` as a construction; of an enum's variant only the enum is known."""
    name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
    if name is None or body is None:
        return _parts(self, node)
    fields: list[tuple[str, Expression]] = []
    for child in named(body):
        field = child.child_by_field_name("field") or first(child)
        if field is None:
            continue
        if child.type == "base_field_initializer":
            fields.append(("**", self.expression(field)))
        else:
            value = child.child_by_field_name("value") or first(child) or field
            fields.append((self.source.text(field), self.expression(value)))
    parts = segments(self.source, name) if name.type != "bracketed_type" else [""]
    kind = self.type(name)
    if len(parts) > 1 and parts[-2][:1].isupper() and isinstance(kind, Attribute):
        return beside(Instance(kind.of), (value for _, value in fields))
    return Call(kind, (), tuple(fields), self.line(name), True)


def _closure(self: Expressions, node: Node) -> Expression:
    qualname = self.source.anonymous(self.scope)
    given, body = node.child_by_field_name("parameters"), node.child_by_field_name("body")
    if body is None:
        return UNKNOWN
    outside, self.scope = self.scope, qualname
    parameters, block = self.function_body(body, named(given) if given is not None else [])
    self.scope = outside
    returns = node.child_by_field_name("return_type")
    type_ = None if returns is None else self.type(returns)
    coroutine = any(child.type == "async" for child in node.children)
    return Lambda(Function(qualname, parameters, block, type_, coroutine=coroutine, bound=True))


def _macro(self: Expressions, node: Node) -> Expression:
    """Read a macro's arguments as expressions, if that is what they are; what the macro makes of them is unknown."""
    tree = next((child for child in node.children if child.type == "token_tree"), None)
    name = node.child_by_field_name("macro")
    if tree is None or tree.end_byte - tree.start_byte > _LONGEST_MACRO or self.macros >= _MACROS:
        self.source.counts["macro"] += 1
        return UNKNOWN
    outside = self.source.data, self.rows
    self.macros += 1
    inner = self.source.data[tree.start_byte + 1 : tree.end_byte - 1]
    self.source.data, self.rows = b"fn f(){[" + inner + b"]}", self.rows + tree.start_point[0]
    root = self.source.parser.parse(self.source.data).root_node
    forms: tuple[Expression, ...] | None = None
    if not root.has_error:
        block = root.named_children[0].child_by_field_name("body")
        array = first(block) if block is not None else None
        if array is not None and array.type == "expression_statement":
            array = first(array)
        if array is not None and array.type == "array_expression":
            forms = self.each(array.children)
    self.source.data, self.rows = outside
    self.macros -= 1
    if forms is None:
        self.source.counts["macro"] += 1
        return UNKNOWN
    kind = "" if name is None else self.source.text(name)
    if kind == "vec":
        return Sequence(forms)
    return beside(Constant(None, "String"), forms) if kind == "format" else opaque(forms)


def _nothing(self: Expressions, node: Node) -> Expression:
    return UNKNOWN


CONTROL = frozenset({
    "block", "unsafe_block", "async_block", "const_block", "gen_block", "try_block", "if_expression", "match_expression",
    "while_expression", "loop_expression", "for_expression",
})  # fmt: skip
_TRANSPARENT = frozenset({"parenthesized_expression", "reference_expression"})
_NO_VALUES = frozenset({
    "mutable_specifier", "label", "lifetime", "attribute_item", "inner_attribute_item", "visibility_modifier",
    "type_arguments", "string_content", "escape_sequence",
})  # fmt: skip
_HANDLERS: dict[str, Callable[[Expressions, Node], Expression]] = {
    "ERROR": _error,
    "scoped_identifier": _path,
    "call_expression": _call,
    "field_expression": _field,
    "generic_function": _generic,
    "index_expression": _index,
    "try_expression": _taken_out,
    "await_expression": _await,
    "unary_expression": _unary,
    "binary_expression": _binary,
    "type_cast_expression": _cast,
    "array_expression": _sequence,
    "tuple_expression": _sequence,
    "string_literal": _string,
    "raw_string_literal": _string,
    "integer_literal": _integer,
    "assignment_expression": _assignment,
    "compound_assignment_expr": _assignment,
    "return_expression": _return,
    "break_expression": _leave,
    "continue_expression": _nothing,
    "struct_expression": _struct,
    "closure_expression": _closure,
    "macro_invocation": _macro,
    "let_condition": _parts,
}
