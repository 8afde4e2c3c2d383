"""Classes of Java: their bases, fields, methods and constructors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.codegraph.java.expressions import parameters_of
from pipeline.codegraph.java.reader import MOST_PARAMETERS, Around, Reader, doc_of, with_arity
from pipeline.codegraph.source import EXTRAS, first, joined, opaque
from pipeline.codegraph.summary import (
    Assign,
    Attribute,
    Block,
    Class,
    Define,
    Expression,
    Function,
    Instance,
    Name,
    Return,
    Sequence,
    This,
)

if TYPE_CHECKING:
    from tree_sitter import Node

KINDS = {
    "class_declaration": "class",
    "record_declaration": "class",
    "interface_declaration": "interface",
    "annotation_type_declaration": "interface",
    "enum_declaration": "enum",
}
_METHODS = frozenset({"method_declaration", "annotation_type_element_declaration"})


def class_declared(reader: Reader, node: Node) -> None:
    """Add a class, interface, enum or record to `out`."""
    name = node.child_by_field_name("name")
    text = "" if name is None else reader.source.text(name)
    if not text or not reader.source.enter(2):
        return
    holder = reader.around[-1] if reader.around else None
    path: Name | Attribute = Name(text)
    if holder is not None and holder.path is not None:
        path = Attribute(holder.path, text)
    elif holder is not None:  # of a method
        path = holder.types[text] = reader.hidden(text)
    qualname = _defined(reader, KINDS[node.type], text, node)
    around = Around(path)
    reader.around.append(around)
    reader.type_parameters(node)
    bases = _bases(reader, node)
    around.extends = bool(bases)
    body = node.child_by_field_name("body")
    components = node.child_by_field_name("parameters") if node.type == "record_declaration" else None
    made = _members(reader, body, qualname, text, components)
    reader.around.pop()
    reader.source.depth -= 2
    reader.out.append(Class(path.name, qualname, bases, made, kind=KINDS[node.type]))


def anonymous_class(reader: Reader, body: Node, base: Expression, line: int) -> None:
    """Add the class of a body that follows `new X()` to `out`."""
    inside = reader.hidden("class")
    qualname = joined(reader.scope, inside.name)
    if not reader.source.enter(3):
        return
    reader.around.append(Around(inside, extends=True))
    made = _members(reader, body, qualname, inside.name, None)
    reader.around.pop()
    reader.source.depth -= 3
    reader.out.append(Class(inside.name, qualname, ((base, line),), made))


def _bases(reader: Reader, node: Node) -> tuple[tuple[Expression, int], ...]:
    found: list[tuple[Expression, int]] = []
    for clause in node.named_children:
        if clause.type in ("superclass", "super_interfaces", "extends_interfaces"):
            listed = [each for part in clause.named_children for each in _types(part)]
            found += [
                (form, each.start_point[0] + 1) for each in listed if (form := reader.type_form(each)) is not None
            ]
    return tuple(found)


def _types(node: Node) -> list[Node]:
    return node.named_children if node.type == "type_list" else [node]


def _defined(reader: Reader, kind: str, name: str, node: Node) -> str:
    """Note a symbol; its annotations are its decorators, and its signature begins after them."""
    if reader.scope.rpartition(".")[2].startswith("<class"):
        return joined(reader.scope, name)  # what an anonymous class has is nobody's to name
    modifiers = next((child for child in node.children if child.type == "modifiers"), None)
    listed = [] if modifiers is None else modifiers.named_children
    annotations = [child for child in listed if child.type in ("annotation", "marker_annotation")]
    start = node
    if annotations:
        words = [child for child in modifiers.children if not child.is_named] if modifiers is not None else []
        after = [word for word in words if word.start_byte > annotations[-1].end_byte]
        following = [child for child in node.children if child.type != "modifiers"]
        start = after[0] if after else following[0] if following else node
    texts = [reader.source.line(each).removeprefix("@") for each in annotations]
    return reader.source.define(kind, name, reader.scope, start, node, doc_of(reader.source, node), texts)


def _members(reader: Reader, body: Node | None, qualname: str, name: str, components: Node | None) -> Block:
    """Return a class's body. What it declares is known before the first member is read."""
    nodes = _member_nodes(body)
    around = reader.around[-1]
    _declare(reader, around, nodes, components)
    before, reader.out = reader.out, []
    outside, reader.scope = reader.scope, qualname
    locals_before = reader.enter_method()
    _components(reader, components, nodes)
    for node in nodes:
        _member(reader, node, name)
    _overloads(reader, around)
    reader.leave_method(locals_before)
    made = tuple(reader.out)
    reader.out, reader.scope = before, outside
    return made


def _member_nodes(body: Node | None) -> list[Node]:
    nodes = [] if body is None else [child for child in body.named_children if child.type not in EXTRAS]
    inner = [part for child in nodes if child.type == "enum_body_declarations" for part in child.named_children]
    return [*nodes, *(part for part in inner if part.type not in EXTRAS)]


def _declare(reader: Reader, around: Around, nodes: list[Node], components: Node | None) -> None:
    fields = [] if components is None else [each.child_by_field_name("name") for each in components.named_children]
    for node in nodes:
        name = node.child_by_field_name("name")
        if node.type in ("field_declaration", "constant_declaration"):
            declarators = [child for child in node.named_children if child.type == "variable_declarator"]
            fields += [child.child_by_field_name("name") for child in declarators]
        elif node.type == "enum_constant":
            fields.append(name)
        elif node.type in _METHODS and name is not None:
            keys = [with_arity(reader.source.text(name), count) for count in _counts(node)]
            for key in dict.fromkeys(keys):
                around.methods.setdefault(key, []).append(node.start_byte)
        elif node.type in KINDS and name is not None and around.path is not None:
            around.types[reader.source.text(name)] = Attribute(around.path, reader.source.text(name))
    names = [reader.source.text(name) for name in fields if name is not None]
    if components is not None:
        for component in names:
            around.methods.setdefault(with_arity(component, 0), [])
    around.fields = set(names)


def _components(reader: Reader, components: Node | None, nodes: list[Node]) -> None:
    """A record has a field and a method for each component; one that is written out is read with the other members."""
    written = {
        reader.source.text(n) for node in nodes if node.type in _METHODS and (n := node.child_by_field_name("name"))
    }
    for each in [] if components is None else components.named_children:
        name = each.child_by_field_name("name")
        text = "" if name is None else reader.source.text(name)
        if not text:
            continue
        type_form = reader.type_form(each.child_by_field_name("type"))
        reader.out.append(Assign((Name(text),), None, type_form))
        if text not in written:
            qualname = reader.source.define("method", text, reader.scope, each, each)
            body = (Return(Attribute(This(), text)),)
            reader.out.append(Define(with_arity(text, 0), Function(qualname, (), body, type_form, "method")))


def _member(reader: Reader, node: Node, name: str) -> None:
    kind = node.type
    if kind in ("field_declaration", "constant_declaration"):
        _fields(reader, node)
    elif kind in _METHODS:
        _method(reader, node)
    elif kind in ("constructor_declaration", "compact_constructor_declaration"):
        _constructor(reader, node, name)
    elif kind in ("block", "static_initializer"):
        inside = reader.hidden("initializer").name
        block = first(node) if kind == "static_initializer" else node
        method_kind = "static" if kind == "static_initializer" else "method"
        function = _function(reader, node, joined(reader.scope, inside), method_kind, block)
        reader.out.append(Define(inside, function))
    elif kind == "enum_constant":
        _enum_constant(reader, node)
    elif kind in KINDS:
        reader.statement(node)


def _fields(reader: Reader, node: Node) -> None:
    type_form = reader.type_form(node.child_by_field_name("type"))
    for declarator in node.named_children:
        name, value = declarator.child_by_field_name("name"), declarator.child_by_field_name("value")
        if declarator.type == "variable_declarator" and name is not None:
            inside = reader.source.text(name) or reader.hidden("missing").name
            of = type_form
            if declarator.child_by_field_name("dimensions") is not None and of is not None:
                of = Sequence((of,))
            form = None if value is None else reader.expression(value)
            reader.out.append(Assign((Name(inside),), form, of))


def _enum_constant(reader: Reader, node: Node) -> None:
    name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
    path = reader.around[-1].path
    arguments = node.child_by_field_name("arguments")
    if arguments is not None:
        reader.evaluate(opaque(reader.each(arguments.children)))
    text = "" if name is None else reader.source.text(name)
    if not text or path is None:
        return
    if body is not None:
        anonymous_class(reader, body, path, node.start_point[0] + 1)
    reader.out.append(Assign((Name(text),), Instance(path)))


def _method(reader: Reader, node: Node) -> None:
    name = node.child_by_field_name("name")
    text = "" if name is None else reader.source.text(name)
    if not text:
        return
    modifiers = next((child for child in node.children if child.type == "modifiers"), None)
    words = {child.type for child in modifiers.children} if modifiers is not None else set[str]()
    qualname = _defined(reader, "method", text, node)
    kind = "static" if "static" in words else "private" if "private" in words else "method"
    function = _function(reader, node, qualname, kind, node.child_by_field_name("body"))
    reader.out.append(Define(_inside(reader.around[-1], text, node), function))


def _inside(around: Around, text: str, node: Node) -> str:
    """Return what a method is bound as: under its key if that is its alone, else it gets a name of its own."""
    key, *others = [with_arity(text, count) for count in _counts(node)]
    among = around.methods[key]
    name = key if not others and len(among) == 1 else f"{key}@{among.index(node.start_byte) + 1}"
    around.overloads[node.start_byte] = name
    return name


def _overloads(reader: Reader, around: Around) -> None:
    """Bind the names of methods, with how many arguments they are called, to the methods that can be meant."""
    for key, starts in around.methods.items():
        names = [around.overloads[start] for start in starts if start in around.overloads]
        if names and names != [key]:
            reader.out.append(Assign((Name(key),), Sequence(tuple(map(Name, names)))))


def _counts(node: Node) -> list[int]:
    """Return with how many arguments a method can be called, its own number first."""
    listed = node.child_by_field_name("parameters")
    kinds = [] if listed is None else [child.type for child in listed.named_children]
    count = sum(kind in ("formal_parameter", "spread_parameter") for kind in kinds)
    if "spread_parameter" not in kinds:
        return [count]
    return [count, count - 1, *range(count + 1, MOST_PARAMETERS + 1)]


def _constructor(reader: Reader, node: Node, name: str) -> None:
    qualname = _defined(reader, "method", name, node)
    function = _function(reader, node, qualname, "constructor", node.child_by_field_name("body"))
    reader.out.append(Define(reader.hidden("constructor").name, function))  # the name itself means the class


def _function(reader: Reader, node: Node, qualname: str, kind: str, body: Node | None) -> Function:
    if not reader.source.enter(2):
        return Function(qualname, kind=kind)
    outside, reader.scope = reader.scope, qualname
    before = reader.enter_method()
    results, reader.results = reader.results, []
    reader.enter_block()
    reader.type_parameters(node)
    parameters = parameters_of(reader, node.child_by_field_name("parameters"))
    returns = reader.type_form(node.child_by_field_name("type"))
    statements = reader.block(body)
    reader.leave_block()
    reader.leave_method(before)
    reader.scope, reader.results = outside, results
    reader.source.depth -= 2
    return Function(qualname, tuple(parameters), statements, returns, kind)
