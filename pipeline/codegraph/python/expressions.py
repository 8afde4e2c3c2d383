"""Python's expressions, annotations and patterns to forms."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec

from pipeline.codegraph.source import EXTRAS, UNKNOWN, Source, first, inert, named, opaque
from pipeline.codegraph.summary import (
    Attribute,
    Awaited,
    Call,
    Choice,
    Comprehension,
    Constant,
    Expression,
    Function,
    Index,
    Lambda,
    Mapping,
    Name,
    Parameter,
    Return,
    Sequence,
    Star,
    Walrus,
    Yield,
)

if TYPE_CHECKING:
    from tree_sitter import Node

_LONGEST_KEY = 100  # characters of a string that can be a key, a module's or an attribute's name
_LONGEST_ANNOTATION = 1000
_DOTTED = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_NO_STRING = Constant(None, "str")
_RESTS = {"list_splat_pattern": "*", "dictionary_splat_pattern": "**"}
_PLAIN = {
    "true": Constant(None, "bool"),
    "false": Constant(None, "bool"),
    "none": Constant(None, "None"),
    "ellipsis": Constant(None, "ellipsis"),
    "float": Constant(None, "float"),
}


class Expressions:
    """Turns expression nodes into forms. `scope` is the qualified name of the definition that is being read."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.scope = ""
        self.yields = False
        self.walruses = 0
        self.parameters_of_types: dict[str, Expression] = {}
        self._names: dict[bytes, Name] = {}
        self.annotating = False

    # --- the walk ----------------------------------------------------------------------------------------------------

    def expression(self, node: Node) -> Expression:
        """Return the form of a node. A frame for this and one for the handler make a level."""
        kind = node.type
        while kind == "parenthesized_expression" or kind == "type":
            inner = first(node)
            if inner is None:
                return UNKNOWN
            node, kind = inner, inner.type
        if kind == "identifier":
            name = self._name(node)
            if not name.name:  # the parser supposes a name where one is missing
                return UNKNOWN
            if self.annotating and self.parameters_of_types:
                return self.parameters_of_types.get(name.name, name)
            return name
        handler = _HANDLERS.get(kind)
        if handler is None:
            if plain := _PLAIN.get(kind):
                return plain
            handler = _parts
        source = self.source
        if not source.enter():
            return UNKNOWN
        form = handler(self, node)
        source.depth -= 1
        return form

    def each(self, nodes: Iterable[Node]) -> tuple[Expression, ...]:
        """Return the forms of those nodes that are expressions."""
        return tuple(map(self.expression, [node for node in nodes if node.is_named and node.type not in EXTRAS]))

    def identifier(self, node: Node) -> str:
        """Return a name as Python compares it."""
        return self._name(node).name

    def dotted(self, node: Node) -> str:
        """Return a dotted name without the space that may stand between its parts."""
        return ".".join(self.identifier(part) for part in node.children if part.type == "identifier")

    def _name(self, node: Node) -> Name:
        data = self.source.data[node.start_byte : node.end_byte]
        name = self._names.get(data)
        if name is None:
            text = data.decode("utf-8", "replace")
            name = self._names[data] = Name(text if text.isascii() else unicodedata.normalize("NFKC", text))
        return name

    def parameters(self, node: Node | None) -> tuple[Parameter, ...]:
        """Return a function's parameters; defaults and annotations belong to the scope outside."""
        found: list[Parameter] = []
        kind = ""
        for child in node.children if node is not None else ():
            if child.type == "positional_separator":
                found = [msgspec.structs.replace(each, kind="/") for each in found]
            elif child.type == "keyword_separator":
                kind = "k"
            elif child.is_named and child.type not in EXTRAS and child.type != "ERROR":
                found.append(parameter := self._parameter(child, kind))
                kind = "k" if parameter.kind == "*" else kind
        return tuple(found)

    def _parameter(self, node: Node, kind: str) -> Parameter:
        pattern = node
        if node.type in ("default_parameter", "typed_parameter", "typed_default_parameter"):
            pattern = node.child_by_field_name("name") or first(node) or node
        default = node.child_by_field_name("value")
        type_ = self.annotation(node.child_by_field_name("type"))
        value = None if default is None else self.expression(default)
        if pattern.type in _RESTS:
            name = first(pattern)
            return Parameter("" if name is None else self.identifier(name), _RESTS[pattern.type], value, type_)
        if pattern.type == "tuple_pattern":  # of Python 2
            return Parameter("", kind, value, type_, self.expression(pattern))
        return Parameter(self.identifier(pattern), kind, value, type_)

    # --- annotations -------------------------------------------------------------------------------------------------

    def annotation(self, node: Node | None) -> Expression | None:
        """Return the form of an annotation; strings in it are read, parameters of types stand for their bounds."""
        if node is None:
            return None
        before, self.annotating = self.annotating, True
        form = self.expression(node)
        self.annotating = before
        return form

    def type_parameters(self, node: Node | None) -> dict[str, Expression]:
        """Return what the parameters of types that are visible below mean: their bounds, as far as known."""
        if node is None:
            return self.parameters_of_types
        found = dict(self.parameters_of_types)
        for part in node.named_children:
            bound: Expression = UNKNOWN
            name = first(part) if part.type == "type" else part
            if name is not None and name.type == "constrained_type":
                own, *bounds = named(name)
                name = first(own)
                bound = (self.annotation(bounds[0]) if bounds else None) or UNKNOWN
            if name is not None and name.type == "splat_type":
                name = first(name)
            if name is not None:
                found[self.identifier(name)] = bound
        return found

    def read_string(self, text: str) -> Expression:
        """Return the form of an annotation that was written as a string."""
        if _DOTTED.fullmatch(text):
            root_name, *others = unicodedata.normalize("NFKC", text).split(".")
            form: Expression = self.parameters_of_types.get(root_name) or Name(root_name)
            for name in others:
                form = Attribute(form, name)
            return form
        if len(text) > _LONGEST_ANNOTATION:
            return UNKNOWN
        return self.read(text.encode("utf-8", "replace"))

    def read(self, data: bytes, rows: int = 0) -> Expression:
        """Return the form of an expression that the tree does not have, whose lines begin after so many others."""
        source = self.source
        outside = source.data
        source.data = b"\n" * rows + b"(" + data + b")"
        root = source.parser.parse(source.data).root_node
        statement = first(root)
        form: Expression = UNKNOWN
        if not root.has_error and statement is not None and statement.type == "expression_statement":
            parts = self.each(statement.children)
            form = parts[0] if len(parts) == 1 else opaque(parts)
        source.data = outside
        return form


# --- one function for each kind of node -----------------------------------------------------------------------------


def _parts(self: Expressions, node: Node) -> Expression:
    return opaque(self.each(node.children))


def _error(self: Expressions, node: Node) -> Expression:
    self.source.counts["syntax_error"] += 1
    return _parts(self, node)


def _call(self: Expressions, node: Node) -> Expression:
    parts = node.children  # quicker than by the names of the fields, here and for attributes: most nodes are these
    if len(parts) != 2:
        parts = named(node)
    if len(parts) != 2:
        return _parts(self, node)
    function, given = parts
    of = self.expression(function)
    arguments: list[Expression] = []
    keywords: list[tuple[str, Expression]] = []
    if given.type == "generator_expression":
        arguments.append(self.expression(given))
    else:
        for child in given.children:
            kind = child.type
            if not child.is_named or kind in EXTRAS:
                continue
            if kind == "keyword_argument" or kind == "dictionary_splat":
                inner = named(child)
                name = self.identifier(inner[0]) if kind == "keyword_argument" else "**"
                keywords.append((name, self.expression(inner[-1])))
            else:
                arguments.append(self.expression(child))
    return Call(of, tuple(arguments), tuple(keywords), function.end_point[0] + 1)


def _attribute(self: Expressions, node: Node) -> Expression:
    parts = node.children
    if len(parts) != 3:
        parts = [part for part in parts if part.type not in EXTRAS]
    if len(parts) != 3:
        return _parts(self, node)
    return Attribute(self.expression(parts[0]), self.identifier(parts[2]))


def _subscript(self: Expressions, node: Node) -> Expression:
    of, *keys = named(node)
    if not keys:
        return _parts(self, node)
    return _index(self, self.expression(of), keys)


def _generic(self: Expressions, node: Node) -> Expression:
    of, *keys = named(node)
    return _index(self, self.expression(of), [key for given in keys for key in named(given)])


def _index(self: Expressions, of: Expression, keys: list[Node]) -> Expression:
    name = of.name if isinstance(of, Name | Attribute) else ""
    if self.annotating and name == "Literal":  # its strings are no types
        return Index(of, _NO_STRING)
    forms = self.each(keys)
    if self.annotating and name == "Annotated":
        looked_at = tuple(form for form in forms[1:] if not inert(form))
        return Choice(forms[:1], looked_at) if looked_at else forms[0]
    return Index(of, forms[0] if len(forms) == 1 else Sequence(forms))


def _slice(self: Expressions, node: Node) -> Expression:
    """Return `start:stop:step` as a key, as far as the bounds are whole numbers or left out."""
    bounds: list[Expression | None] = [None]
    for child in node.children:
        if child.type == ":":
            bounds.append(None)
        elif child.is_named and child.type not in EXTRAS:
            bounds[-1] = self.expression(child)
    forms = [bound for bound in bounds if bound is not None]
    if not all(map(inert, forms)):
        return opaque(forms)
    if not all(isinstance(form, Constant) and isinstance(form.value, int) for form in forms):
        return Constant(None, "slice")
    texts = [str(bound.value) if isinstance(bound, Constant) else "" for bound in bounds]
    return Constant(":".join([*texts, "", ""][:3]), "slice")


def _string(self: Expressions, node: Node) -> Expression:
    children = node.children
    prefix = self.source.text(children[0]).rstrip("'\"").lower()
    if "f" in prefix or "t" in prefix:
        return _parts_of_string(self, node)
    if "b" in prefix:
        return Constant(None, "bytes")
    if len(children) != 3 or children[1].child_count:
        return _NO_STRING
    text = self.source.text(children[1])
    if self.annotating:
        return self.read_string(text.strip())
    return Constant(text, "str") if len(text) <= _LONGEST_KEY else _NO_STRING


def _parts_of_string(self: Expressions, node: Node) -> Expression:
    """Return a string of unknown value, or what is to be looked at in its replacement fields."""
    found = opaque(self.expression(child) for child in node.children if child.type == "interpolation")
    return found if found.parts else _NO_STRING


def _strings(self: Expressions, node: Node) -> Expression:
    forms = self.each(node.children)
    values = [form.value for form in forms if isinstance(form, Constant) and isinstance(form.value, str)]
    if len(values) == len(forms):
        return Constant("".join(values), "str")
    found = opaque(forms)
    return found if found.parts else _NO_STRING


def _integer(self: Expressions, node: Node) -> Expression:
    text = self.source.text(node)
    try:
        return Constant(int(text, 0) if len(text) <= 15 else None, "int")
    except ValueError:
        return Constant(None, "int")


def _unary(self: Expressions, node: Node) -> Expression:
    form = _parts(self, node)
    operand = node.child_by_field_name("argument")
    if operand is not None and operand.type == "integer" and node.children[0].type == "-":
        value = _integer(self, operand)
        if isinstance(value, Constant) and isinstance(value.value, int):
            return Constant(-value.value, "int")
    return form


def _binary(self: Expressions, node: Node) -> Expression:
    """Return operands that lean to the left as one form, so that a sum of a thousand terms is not a thousand deep."""
    operator = node.child_by_field_name("operator")
    sign = "" if operator is None else operator.type
    forms = self.each(_spine(node))
    if self.annotating and sign == "|":
        return Choice(forms)
    if sign == "+" and any(isinstance(form, Sequence) for form in forms):
        items: list[Expression] = []
        for form in forms:
            items.extend(form.items if isinstance(form, Sequence) else [Star(form)])
        return Sequence(tuple(items))
    return opaque(forms)


def _spine(node: Node) -> list[Node]:
    """Return the operands of a chain of one operator, from left to right."""
    kind = node.type
    operands: list[Node] = []
    while node.type == kind:
        parts = named(node)
        operands.extend(reversed(parts[1:]))
        if not parts:
            break
        node = parts[0]
    else:
        operands.append(node)
    return operands[::-1]


def _boolean(self: Expressions, node: Node) -> Expression:
    return Choice(self.each(_spine(node)))


def _union(self: Expressions, node: Node) -> Expression:
    return Choice(self.each(_spine(node)))


def _conditional(self: Expressions, node: Node) -> Expression:
    forms = self.each(node.children)
    if len(forms) != 3:
        return opaque(forms)
    return Choice((forms[0], forms[2]), () if inert(forms[1]) else (forms[1],))


def _sequence(self: Expressions, node: Node) -> Expression:
    return Sequence(self.each(node.children))


def _star(self: Expressions, node: Node) -> Expression:
    inner = first(node)
    return UNKNOWN if inner is None else Star(self.expression(inner))


def _dictionary(self: Expressions, node: Node) -> Expression:
    items: list[tuple[str | int | None, Expression]] = []
    for child in node.children:
        kind = child.type
        if kind == "dictionary_splat":
            parts = named(child)
            items.extend(("**", self.expression(part)) for part in parts)
        elif kind == "pair":
            key, value = self.each((child.children[0], child.children[-1]))
            if not inert(key):
                items.append((None, opaque((key,))))
            items.append((key.value if isinstance(key, Constant) else None, value))
    return Mapping(tuple(items))


def _comprehension(self: Expressions, node: Node) -> Expression:
    result: tuple[Expression, ...] = ()
    clauses: list[tuple[Expression, Expression]] = []
    conditions: list[Expression] = []
    for child in named(node):
        forms = self.each(child.children) if child.type in ("for_in_clause", "if_clause", "pair") else ()
        if child.type == "for_in_clause" and len(forms) >= 2:
            clauses.append((forms[0], forms[1] if len(forms) == 2 else Sequence(forms[1:])))
        elif child.type == "if_clause":
            conditions.extend(form for form in forms if not inert(form))
        else:
            result += forms or (self.expression(child),)
    return Comprehension(result, tuple(clauses), tuple(conditions))


def _lambda(self: Expressions, node: Node) -> Expression:
    qualname = self.source.anonymous(self.scope)
    parameters = self.parameters(node.child_by_field_name("parameters"))
    body = node.child_by_field_name("body")
    outside = self.scope, self.yields
    self.scope, self.yields = qualname, False
    value = None if body is None else self.expression(body)
    function = Function(qualname, parameters, (Return(value),), generator=self.yields)
    self.scope, self.yields = outside
    return Lambda(function)


def _walrus(self: Expressions, node: Node) -> Expression:
    self.walruses += 1
    forms = self.each(node.children)
    return Walrus(*forms) if len(forms) == 2 else opaque(forms)


def _await(self: Expressions, node: Node) -> Expression:
    inner = first(node)
    return UNKNOWN if inner is None else Awaited(self.expression(inner))


def _yield(self: Expressions, node: Node) -> Expression:
    self.yields = True
    inner = first(node)
    everything = any(child.type == "from" for child in node.children)
    return Yield(None if inner is None else self.expression(inner), everything)


def _member(self: Expressions, node: Node) -> Expression:
    of, name = named(node)
    return Attribute(self.expression(of), self.identifier(name))


_HANDLERS: dict[str, Callable[[Expressions, Node], Expression]] = {
    "ERROR": _error,
    "call": _call,
    "attribute": _attribute,
    "subscript": _subscript,
    "generic_type": _generic,
    "member_type": _member,
    "union_type": _union,
    "splat_type": _star,
    "slice": _slice,
    "string": _string,
    "concatenated_string": _strings,
    "integer": _integer,
    "unary_operator": _unary,
    "binary_operator": _binary,
    "boolean_operator": _boolean,
    "conditional_expression": _conditional,
    "list": _sequence,
    "tuple": _sequence,
    "set": _sequence,
    "expression_list": _sequence,
    "pattern_list": _sequence,
    "tuple_pattern": _sequence,
    "list_pattern": _sequence,
    "list_splat": _star,
    "list_splat_pattern": _star,
    "dictionary": _dictionary,
    "list_comprehension": _comprehension,
    "set_comprehension": _comprehension,
    "dictionary_comprehension": _comprehension,
    "generator_expression": _comprehension,
    "lambda": _lambda,
    "named_expression": _walrus,
    "await": _await,
    "yield": _yield,
}
