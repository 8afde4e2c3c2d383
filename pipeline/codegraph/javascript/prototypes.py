"""Classes that are written as functions with a prototype, where that is plain: all in one block."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pipeline.codegraph.javascript.definitions import Naming, defined, named, named_function, unwrapped
from pipeline.codegraph.javascript.functions import FUNCTION_VALUES, property_name
from pipeline.codegraph.javascript.reader import Reader
from pipeline.codegraph.source import first
from pipeline.codegraph.summary import Assign, Class, Define, Expression, Name

if TYPE_CHECKING:
    from tree_sitter import Node

_MENTIONED = re.compile(rb"\b([A-Za-z_$][\w$]*)\.prototype\b|(?:inherits|__extends)\(\s*([A-Za-z_$][\w$]*)\s*,")
_INHERITING = frozenset({"util.inherits", "inherits", "__extends", "tslib_1.__extends", "Object.setPrototypeOf"})


@dataclass(slots=True)
class _Written:
    """What a block says of a class: (name, value, what the symbol covers) of its members, and its bases."""

    members: list[tuple[str, Node, Node]] = field(default_factory=list["tuple[str, Node, Node]"])
    bases: list[Node] = field(default_factory=list["Node"])
    nodes: list[Node] = field(default_factory=list["Node"])


def mentioned(data: bytes) -> frozenset[str]:
    """Return the names that seem to have a prototype: to spare the search for those that have none."""
    return frozenset((one or other).decode("utf-8", "replace") for one, other in _MENTIONED.findall(data))


def class_of_function(reader: Reader, node: Node, naming: Naming) -> bool:
    """Add the class that a function and its prototype make to `out`; False where there is no prototype."""
    if naming.name not in reader.prototypes or not isinstance(naming.alias, Name):
        return False
    parent = naming.whole.parent
    written = _written(reader, naming.name, [] if parent is None else parent.named_children)
    if not written.members and not written.bases:
        return False
    reader.consumed |= {each.id for each in written.nodes}
    qualname = defined(reader, Naming(naming.scope, naming.name, "class", naming.whole))
    bases = tuple((reader.expression(base), reader.line(base)) for base in written.bases)
    before, reader.out = reader.out, []
    inner = Naming(naming.scope, naming.name, "class", naming.whole, naming.alias)
    constructor = named_function(reader, node, inner, "constructor")
    reader.out.append(Define("constructor", constructor))
    outside, reader.scope = reader.scope, qualname
    for name, value, whole in written.members:
        _member(reader, qualname, name, value, whole)
    made, reader.out = tuple(reader.out), before
    reader.scope = outside
    reader.out.append(Class(naming.alias.name, qualname, bases, made))
    return True


def _member(reader: Reader, scope: str, name: str, value: Node, whole: Node) -> None:
    naming = Naming(scope, name, "method", whole)
    inner = unwrapped(value)
    if inner.type in FUNCTION_VALUES or inner.type == "method_definition":
        reader.out.append(Define(name, named_function(reader, inner, naming, "method")))
    elif name != "constructor":
        form: Expression = named(reader, value, naming)
        reader.out.append(Assign((Name(name),), form))


def _written(reader: Reader, name: str, statements: list[Node]) -> _Written:
    found = _Written()
    for statement in statements:
        inner = first(statement) if statement.type == "expression_statement" else None
        if inner is None:
            continue
        if inner.type == "assignment_expression":
            is_part = _assigned(reader, name, inner, statement, found)
        else:
            is_part = inner.type == "call_expression" and _inherits(reader, name, inner, found)
        if is_part:
            found.nodes.append(statement)
    return found


def _assigned(reader: Reader, name: str, node: Node, statement: Node, found: _Written) -> bool:
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    if left is None or right is None or left.type != "member_expression":
        return False
    text = reader.source.text(left)
    if text == f"{name}.prototype":
        return _whole_prototype(reader, right, found)
    of, key = left.child_by_field_name("object"), property_name(reader, left.child_by_field_name("property"))
    if of is None or not key or reader.source.text(of) != f"{name}.prototype":
        return False
    found.members.append((key, right, statement))
    return True


def _whole_prototype(reader: Reader, value: Node, found: _Written) -> bool:
    """`X.prototype = {…}`, `= new Base()` or `= Object.create(Base.prototype)`."""
    if value.type == "object":
        for part in value.named_children:
            key = property_name(reader, part.child_by_field_name("key") or part.child_by_field_name("name"))
            inner = part.child_by_field_name("value") if part.type == "pair" else part
            if key and inner is not None and part.type in ("pair", "method_definition"):
                found.members.append((key, inner, part))
        return True
    if value.type == "new_expression":
        base = value.child_by_field_name("constructor")
        found.bases += [] if base is None else [base]
        return base is not None
    arguments = value.child_by_field_name("arguments")
    callee = value.child_by_field_name("function")
    given = [] if arguments is None else arguments.named_children
    if callee is None or reader.source.text(callee) != "Object.create" or not given:
        return False
    return _base(reader, given[0], found)


def _inherits(reader: Reader, name: str, node: Node, found: _Written) -> bool:
    callee, arguments = node.child_by_field_name("function"), node.child_by_field_name("arguments")
    given = [] if arguments is None else arguments.named_children
    if callee is None or len(given) != 2 or reader.source.text(callee) not in _INHERITING:
        return False
    if reader.source.text(given[0]) not in (name, f"{name}.prototype"):
        return False
    return _base(reader, given[1], found)


def _base(reader: Reader, node: Node, found: _Written) -> bool:
    """Take a base, written as itself or as its prototype."""
    of, key = node.child_by_field_name("object"), node.child_by_field_name("property")
    if of is not None and key is not None and reader.source.text(key) == "prototype":
        node = of
    if node.type not in ("identifier", "member_expression"):
        return False
    found.bases.append(node)
    return True
