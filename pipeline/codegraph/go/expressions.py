"""Go's expressions and types to forms."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from pipeline.codegraph.locals import Locals
from pipeline.codegraph.source import UNKNOWN, Source, beside, first, named, opaque
from pipeline.codegraph.summary import (
    Attribute,
    Block,
    Call,
    Constant,
    Expression,
    Function,
    Index,
    Instance,
    Lambda,
    Mapping,
    Name,
    Parameter,
    Sequence,
    Star,
)

if TYPE_CHECKING:
    from tree_sitter import Node

_LONGEST_KEY = 100
_PLAIN = {
    "nil": Constant(None, "nil"),
    "true": Constant(None, "bool"),
    "false": Constant(None, "bool"),
    "iota": Constant(None, "int"),
    "float_literal": Constant(None, "float64"),
    "imaginary_literal": Constant(None, "complex128"),
    "rune_literal": Constant(None, "rune"),
}


class Expressions:
    """Turns expression nodes and types into forms. `scope` is the qualified name of what is being read."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.scope = ""
        self.locals = Locals()
        self.parameters_of_types: dict[str, Expression] = {}

    def expression(self, node: Node) -> Expression:
        """Return the form of an expression."""
        kind = node.type
        while kind in _TRANSPARENT:
            inner = first(node)
            if inner is None:
                return UNKNOWN
            node, kind = inner, inner.type
        if kind == "identifier":
            return self.name(node)
        if plain := _PLAIN.get(kind):
            return plain
        if not self.source.enter():
            return UNKNOWN
        form = _HANDLERS.get(kind, _parts)(self, node)
        self.source.depth -= 1
        return form

    def each(self, nodes: Iterable[Node]) -> tuple[Expression, ...]:
        """Return the forms of those nodes that are expressions."""
        return tuple(map(self.expression, [node for node in nodes if node.is_named and node.type != "comment"]))

    def name(self, node: Node) -> Expression:
        """Return the form of a name, which a block may have hidden behind an internal one."""
        text = self.source.text(node)
        return Name(self.locals.look(text)) if text else UNKNOWN

    def type(self, node: Node | None) -> Expression:
        """Return the form of a type: pointers are what they point to; slices, arrays and channels of T are `(T,)`."""
        if node is None or not self.source.enter():
            return UNKNOWN
        form = _TYPES.get(node.type, _no_type)(self, node)
        self.source.depth -= 1
        return form

    def type_parameters(self, node: Node | None) -> dict[str, Expression]:
        """Return what the parameters of types that are visible below mean: a constraint by one name, else nothing."""
        found = dict(self.parameters_of_types)
        for parameter in named(node) if node is not None else ():
            constraint = parameter.child_by_field_name("type")
            parts = named(constraint) if constraint is not None else []
            bound = self.type(parts[0]) if len(parts) == 1 else UNKNOWN
            for name in parameter.children_by_field_name("name"):
                found[self.source.text(name)] = UNKNOWN if bound == Name("any") else bound
        return found

    def parameters(self, node: Node | None) -> tuple[Parameter, ...]:
        """Return parameters, or results."""
        found: list[Parameter] = []
        for child in named(node) if node is not None else ():
            kind = "*" if child.type == "variadic_parameter_declaration" else ""
            type_ = self.type(child.child_by_field_name("type"))
            names = child.children_by_field_name("name")
            found.extend(Parameter(self.source.text(name), kind, None, type_) for name in names)
            if not names and child.type.endswith("parameter_declaration"):
                found.append(Parameter("", kind, None, type_))
        return tuple(found)

    def results(self, node: Node | None) -> tuple[Expression | None, tuple[Parameter, ...]]:
        """Return the type that a call gives, several as a sequence of them, and the results that have names."""
        if node is None:
            return None, ()
        if node.type != "parameter_list":
            return self.type(node), ()
        found = self.parameters(node)
        types = tuple(each.type or UNKNOWN for each in found)
        return (types[0] if len(types) == 1 else Sequence(types)), tuple(each for each in found if each.name)

    def function_body(self, node: Node | None, results: tuple[Parameter, ...]) -> Block:
        """Return the statements of a function's body."""
        raise NotImplementedError


# --- expressions -----------------------------------------------------------------------------------------------------


def _parts(self: Expressions, node: Node) -> Expression:
    return opaque(self.each(node.children))


def _error(self: Expressions, node: Node) -> Expression:
    self.source.counts["syntax_error"] += 1
    return _parts(self, node)


def _call(self: Expressions, node: Node) -> Expression:
    function, given = node.child_by_field_name("function"), node.child_by_field_name("arguments")
    if function is None or given is None:
        return _parts(self, node)
    if function.type == "identifier" and self.source.text(function) in ("make", "new"):
        parts = named(given)
        if parts and self.locals.look(self.source.text(function)) in ("make", "new"):
            return beside(Instance(self.type(parts[0])), self.each(parts[1:]))
    of = self.expression(function)
    return Call(of, self.each(given.children), line=function.end_point[0] + 1)


def _attribute(self: Expressions, node: Node) -> Expression:
    of, name = node.child_by_field_name("operand"), node.child_by_field_name("field")
    if of is None or name is None:
        return _parts(self, node)
    return Attribute(self.expression(of), self.source.text(name))


def _index(self: Expressions, node: Node) -> Expression:
    of, key = node.child_by_field_name("operand"), node.child_by_field_name("index")
    if of is None or key is None:
        return _parts(self, node)
    return Index(self.expression(of), self.expression(key))


def _slice(self: Expressions, node: Node) -> Expression:
    forms = self.each(node.children)
    return beside(forms[0], forms[1:]) if forms else UNKNOWN


def _unary(self: Expressions, node: Node) -> Expression:
    operand = node.child_by_field_name("operand")
    if operand is None:
        return UNKNOWN
    match node.children[0].type:
        case "&" | "*":
            return self.expression(operand)
        case "<-":
            return Index(self.expression(operand), UNKNOWN)
        case _:
            return opaque((self.expression(operand),))


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


def _assertion(self: Expressions, node: Node) -> Expression:
    operand = node.child_by_field_name("operand")
    kind = self.type(node.child_by_field_name("type"))
    return beside(Instance(kind), () if operand is None else (self.expression(operand),))


def _conversion(self: Expressions, node: Node) -> Expression:
    """Read `[]T(x)`; what looks like the conversion `f[T](x)` may be a call."""
    kind, operand = node.child_by_field_name("type"), node.child_by_field_name("operand")
    given = () if operand is None else (self.expression(operand),)
    if kind is not None and kind.type == "generic_type":
        return Call(self.type(kind), given, line=kind.end_point[0] + 1)
    return beside(Instance(self.type(kind)), given)


def _string(self: Expressions, node: Node) -> Expression:
    text = self.source.text(node)[1:-1]
    plain = len(text) <= _LONGEST_KEY and (node.type == "raw_string_literal" or "\\" not in text)
    return Constant(text if plain else None, "string")


def _integer(self: Expressions, node: Node) -> Expression:
    text = self.source.text(node)
    return Constant(int(text) if text.isdecimal() and len(text) <= 15 else None, "int")


def _variadic(self: Expressions, node: Node) -> Expression:
    inner = first(node)
    return UNKNOWN if inner is None else Star(self.expression(inner))


def _list(self: Expressions, node: Node) -> Expression:
    forms = self.each(node.children)
    return forms[0] if len(forms) == 1 else Sequence(forms)


def _closure(self: Expressions, node: Node) -> Expression:
    qualname = self.source.anonymous(self.scope)
    outside, self.scope = self.scope, qualname
    parameters = self.parameters(node.child_by_field_name("parameters"))
    returns, results = self.results(node.child_by_field_name("result"))
    self.locals.enter(function=True)
    self.locals.declared(each.name for each in (*parameters, *results) if each.name)
    body = self.function_body(node.child_by_field_name("body"), results)
    self.locals.leave()
    self.scope = outside
    return Lambda(Function(qualname, parameters, body, returns, bound=True))


def _literal(self: Expressions, node: Node) -> Expression:
    kind, body = node.child_by_field_name("type"), node.child_by_field_name("body")
    if kind is None or body is None:
        return _parts(self, node)
    return _literal_of(self, self.type(kind), body, node.start_point[0] + 1)


def _literal_of(self: Expressions, kind: Expression, body: Node, line: int) -> Expression:
    """Return a composite literal of a type: a slice, a map, or the construction of a struct."""
    if not self.source.enter():
        return UNKNOWN
    item = kind.items[0] if isinstance(kind, Sequence) and kind.items else None
    if isinstance(kind, Index) and isinstance(kind.key, Sequence):
        item = kind.key.items[-1]
    keyed: list[tuple[str | int | None, Expression]] = []
    plain: list[Expression] = []
    fields: list[tuple[str, Expression]] = []
    beside_: list[Expression] = []
    for element in named(body):
        parts = named(element) if element.type == "keyed_element" else [element]
        value = _element(self, item, parts[-1])
        if element.type != "keyed_element":
            plain.append(value)
        elif item is None:
            fields.append((self.source.text(parts[0]), value))
        else:
            key = _element(self, None, parts[0])
            keyed.append((key.value if isinstance(key, Constant) else None, value))
            beside_.append(key)
    self.source.depth -= 1
    if item is None:
        return (
            Call(kind, tuple(plain), tuple(fields), line, True)
            if kind != UNKNOWN
            else opaque((*plain, *(value for _, value in fields)))
        )
    if not keyed and not plain:
        return Instance(kind)
    if isinstance(kind, Sequence):
        return beside(Sequence((*plain, *(value for _, value in keyed))), beside_)
    return beside(Mapping(tuple(keyed)), beside_)


def _element(self: Expressions, kind: Expression | None, node: Node) -> Expression:
    inner = first(node) if node.type == "literal_element" else node
    if inner is None:
        return UNKNOWN
    if inner.type == "literal_value":
        return _literal_of(self, kind or UNKNOWN, inner, inner.start_point[0] + 1)
    return self.expression(inner)


# --- types -----------------------------------------------------------------------------------------------------------


def _no_type(self: Expressions, node: Node) -> Expression:
    return UNKNOWN


def _type_name(self: Expressions, node: Node) -> Expression:
    text = self.source.text(node)
    if found := self.parameters_of_types.get(text):
        return found
    return Name(self.locals.look(text)) if text else UNKNOWN


def _type_of_package(self: Expressions, node: Node) -> Expression:
    package, name = node.child_by_field_name("package"), node.child_by_field_name("name")
    if package is None or name is None:
        return UNKNOWN
    return Attribute(Name(self.source.text(package)), self.source.text(name))


def _inner_type(self: Expressions, node: Node) -> Expression:
    return self.type(first(node))


def _list_type(self: Expressions, node: Node) -> Expression:
    element = node.child_by_field_name("element") or node.child_by_field_name("value")
    return Sequence((self.type(element),))


def _map_type(self: Expressions, node: Node) -> Expression:
    key, value = node.child_by_field_name("key"), node.child_by_field_name("value")
    return Index(Name("map"), Sequence((self.type(key), self.type(value))))


_TRANSPARENT = frozenset({"parenthesized_expression", "literal_element"})
_TYPES: dict[str, Callable[[Expressions, Node], Expression]] = {
    "identifier": _type_name,
    "type_identifier": _type_name,
    "qualified_type": _type_of_package,
    "selector_expression": lambda self, node: self.expression(node),
    "pointer_type": _inner_type,
    "unary_expression": _inner_type,
    "parenthesized_type": _inner_type,
    "parenthesized_expression": _inner_type,
    "generic_type": _inner_type,
    "type_elem": _inner_type,
    "slice_type": _list_type,
    "array_type": _list_type,
    "implicit_length_array_type": _list_type,
    "channel_type": _list_type,
    "map_type": _map_type,
}
_HANDLERS: dict[str, Callable[[Expressions, Node], Expression]] = {
    "ERROR": _error,
    "call_expression": _call,
    "selector_expression": _attribute,
    "index_expression": _index,
    "slice_expression": _slice,
    "unary_expression": _unary,
    "binary_expression": _binary,
    "type_assertion_expression": _assertion,
    "type_conversion_expression": _conversion,
    "interpreted_string_literal": _string,
    "raw_string_literal": _string,
    "int_literal": _integer,
    "variadic_argument": _variadic,
    "expression_list": _list,
    "func_literal": _closure,
    "composite_literal": _literal,
    "type_identifier": _type_name,
    "slice_type": lambda self, node: self.type(node),
    "map_type": lambda self, node: self.type(node),
    "generic_type": lambda self, node: self.type(node),
    "qualified_type": lambda self, node: self.type(node),
}
