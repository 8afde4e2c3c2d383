"""The frontend of Java: the package, imports, classes, methods and statements."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.codegraph.java.classes import KINDS, anonymous_class, class_declared
from pipeline.codegraph.java.expressions import EXPRESSIONS
from pipeline.codegraph.java.reader import ANY, Doing, Reader, attributes, doc_of
from pipeline.codegraph.source import Source, first, opaque
from pipeline.codegraph.summary import (
    Assign,
    Attribute,
    Block,
    Branch,
    Call,
    Evaluate,
    Expression,
    From,
    Instance,
    Loop,
    Name,
    Raise,
    Return,
    Sequence,
    Summary,
    Super,
    Try,
    Walrus,
)

if TYPE_CHECKING:
    from tree_sitter import Node


def summarize(source: Source) -> Summary:
    """Return what a file says."""
    reader = Reader(source, EXPRESSIONS, STATEMENTS, anonymous_class)
    package = doc = ""
    for node in source.root.named_children:
        if node.type == "package_declaration":
            package, doc = _dotted(reader, first(node)), doc_of(source, node)
        elif node.type == "import_declaration":
            _import(reader, node)
        elif node.type in KINDS and (name := node.child_by_field_name("name")) is not None:
            reader.imported[source.text(name)] = Name(source.text(name))
    for node in source.root.named_children:
        reader.statement(node)
    return source.summary((*reader.imports, *reader.out), package, doc=doc)


def _dotted(reader: Reader, node: Node | None) -> str:
    return "" if node is None else "".join(reader.source.text(node).split())


def _import(reader: Reader, node: Node) -> None:
    """A class is imported from the file it lies in: the first part with a capital names it, else the last part."""
    parts = _dotted(reader, next((child for child in node.named_children if "identifier" in child.type), None)).split(
        "."
    )
    words = {child.type for child in node.children}
    line = node.start_point[0] + 1
    if not all(parts):
        return
    top = next((index for index, part in enumerate(parts) if part[:1].isupper()), -1)
    if "asterisk" in words and "static" not in words and top < 0:
        reader.imports.append(From(".".join([*parts, "*"]), (("*", "*"),), 0, line))
        return
    if top < 0:
        top = len(parts) - (2 if "static" in words and "asterisk" not in words else 1)
    module, rest = ".".join(parts[: top + 1]), parts[top + 1 :]
    form = attributes(reader.class_of(module, parts[top], line), rest)
    if "asterisk" not in words:
        reader.imported[parts[-1]] = form
        if "static" in words and isinstance(form, Attribute):
            reader.taken.setdefault(parts[-1], []).append(form.of)
    elif "static" in words:
        reader.statics.append(form)


# --- statements ------------------------------------------------------------------------------------------------------


def _local(reader: Reader, node: Node) -> None:
    type_form = reader.type_form(node.child_by_field_name("type"))
    for declarator in node.named_children:
        name, value = declarator.child_by_field_name("name"), declarator.child_by_field_name("value")
        if declarator.type == "variable_declarator" and name is not None:
            form = None if value is None else reader.expression(value)
            of = type_form
            if declarator.child_by_field_name("dimensions") is not None and of is not None:
                of = Sequence((of,))
            inside = reader.declare(reader.source.text(name))
            reader.out.append(Assign((inside,), form, of))


def _expression(reader: Reader, node: Node) -> None:
    inner = first(node)
    form = reader.expression(inner)
    targets: list[Expression] = []
    while isinstance(form, Walrus):
        targets.append(form.target)
        form = form.value
    if targets:
        reader.out.append(Assign(tuple(targets), form))
    elif inner is None or inner.type != "switch_expression":
        reader.evaluate(form)


def _return(reader: Reader, node: Node) -> None:
    inner = first(node)
    reader.out.append(Return(None if inner is None else reader.expression(inner)))


def _throw(reader: Reader, node: Node) -> None:
    reader.out.append(Raise(reader.expression(first(node))))


def _yield(reader: Reader, node: Node) -> None:
    value = reader.expression(first(node))
    if reader.results:
        reader.out.append(Assign((reader.results[-1],), value))
    else:
        reader.evaluate(value)


def _if(reader: Reader, node: Node) -> None:
    """`else if` is no deeper than `if`; what a pattern in a condition binds is known after it."""
    arms: list[Block] = []
    total = False
    part: Node | None = node
    while part is not None:
        reader.evaluate(reader.expression(part.child_by_field_name("condition")))
        arms.append(reader.block(part.child_by_field_name("consequence")))
        other = part.child_by_field_name("alternative")
        part = other if other is not None and other.type == "if_statement" else None
        if other is not None and part is None:
            arms.append(reader.block(other))
            total = True
    reader.out.append(Branch(tuple(arms), total))


def _while(reader: Reader, node: Node) -> None:
    before, reader.out = reader.out, []
    reader.enter_block()
    reader.evaluate(reader.expression(node.child_by_field_name("condition")))
    body = (*reader.out, *reader.block(node.child_by_field_name("body")))
    reader.leave_block()
    reader.out = before
    reader.out.append(Loop(body))


def _for(reader: Reader, node: Node) -> None:
    reader.enter_block()
    for start in node.children_by_field_name("init"):
        reader.statement(start)
    before, reader.out = reader.out, []
    reader.evaluate(reader.expression(node.child_by_field_name("condition")))
    reader.out.extend(reader.block(node.child_by_field_name("body")))
    for update in node.children_by_field_name("update"):
        reader.evaluate(reader.expression(update))
    made, reader.out = tuple(reader.out), before
    reader.leave_block()
    reader.out.append(Loop(made))


def _for_each(reader: Reader, node: Node) -> None:
    name, type_form = node.child_by_field_name("name"), reader.type_form(node.child_by_field_name("type"))
    source = reader.expression(node.child_by_field_name("value"))
    reader.enter_block()
    inside = reader.hidden("value") if name is None else reader.declare(reader.source.text(name))
    body = reader.block(node.child_by_field_name("body"))
    reader.leave_block()
    if type_form is None or type_form == ANY:
        reader.out.append(Loop(body, inside, source))
    else:
        reader.evaluate(source)
        reader.out.append(Loop((Assign((inside,), Instance(type_form)), *body)))


def _try(reader: Reader, node: Node) -> None:
    reader.enter_block()
    resources = node.child_by_field_name("resources")
    for resource in [] if resources is None else resources.named_children:
        name, value = resource.child_by_field_name("name"), resource.child_by_field_name("value")
        if name is not None:
            form = reader.expression(value)
            type_form = reader.type_form(resource.child_by_field_name("type"))
            inside = reader.declare(reader.source.text(name))
            reader.out.append(Assign((inside,), form, type_form))
    body = reader.block(node.child_by_field_name("body"))
    reader.leave_block()
    handlers: list[tuple[Expression | None, str, Block]] = []
    final: Block = ()
    for clause in node.named_children:
        if clause.type == "catch_clause":
            handlers.append(_handler(reader, clause))
        elif clause.type == "finally_clause":
            final = reader.block(first(clause))
    reader.out.append(Try(body, tuple(handlers), (), final))


def _handler(reader: Reader, clause: Node) -> tuple[Expression | None, str, Block]:
    parameter = next((child for child in clause.named_children if child.type == "catch_formal_parameter"), None)
    reader.enter_block()
    bound, types = "", list[Expression]()
    if parameter is not None:
        name = parameter.child_by_field_name("name")
        listed = next((child for child in parameter.named_children if child.type == "catch_type"), None)
        types = [
            form for each in (listed.named_children if listed else []) if (form := reader.type_form(each)) is not None
        ]
        bound = "" if name is None else reader.declare(reader.source.text(name)).name
    block = reader.block(clause.child_by_field_name("body"))
    reader.leave_block()
    return (Sequence(tuple(types)) if len(types) > 1 else types[0] if types else None), bound, block


def _super(reader: Reader, node: Node) -> None:
    """`super(…)` calls the constructor of the base; `this(…)` another of the same name."""
    callee, arguments = node.child_by_field_name("constructor"), node.child_by_field_name("arguments")
    given = () if arguments is None else reader.each(arguments.children)
    if callee is not None and callee.type == "super":
        reader.out.append(Evaluate(Call(Super(), given, line=callee.end_point[0] + 1)))
    else:
        reader.evaluate(opaque(given))


def _block(reader: Reader, node: Node) -> None:
    reader.out.extend(reader.block(node))


def _inner(reader: Reader, node: Node) -> None:
    for child in node.named_children:
        reader.statement(child)


STATEMENTS: dict[str, Doing] = {
    **dict.fromkeys(KINDS, class_declared),
    **dict.fromkeys(("while_statement", "do_statement"), _while),
    **dict.fromkeys(("try_statement", "try_with_resources_statement"), _try),
    **dict.fromkeys(("synchronized_statement", "labeled_statement", "assert_statement"), _inner),
    "local_variable_declaration": _local,
    "expression_statement": _expression,
    "return_statement": _return,
    "throw_statement": _throw,
    "yield_statement": _yield,
    "if_statement": _if,
    "for_statement": _for,
    "enhanced_for_statement": _for_each,
    "explicit_constructor_invocation": _super,
    "block": _block,
}
