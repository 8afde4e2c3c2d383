"""The frontend of JavaScript and TypeScript, with JSX: statements, imports and exports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.codegraph.javascript.commonjs import export_helper, exported_names
from pipeline.codegraph.javascript.declarations import (
    alias_declared,
    assign,
    class_declared,
    enum_declared,
    function_declared,
    import_alias,
    interface_declared,
    namespace_declared,
    variables_declared,
)
from pipeline.codegraph.javascript.expressions import EXPRESSIONS
from pipeline.codegraph.javascript.functions import bind, doc_line, target
from pipeline.codegraph.javascript.modules import export_statement, import_statement
from pipeline.codegraph.javascript.prototypes import mentioned
from pipeline.codegraph.javascript.reader import (
    CLASSES,
    FUNCTIONS,
    LEXICAL,
    PATTERNS,
    UNKNOWN,
    Doing,
    Reader,
    declaration_of,
    names_in,
)
from pipeline.codegraph.source import Source, first
from pipeline.codegraph.summary import (
    Assign,
    Block,
    Branch,
    Constant,
    Expression,
    Loop,
    Name,
    Raise,
    Return,
    Statement,
    Summary,
    Try,
    Walrus,
)

if TYPE_CHECKING:
    from tree_sitter import Node


def summarize(source: Source) -> Summary:
    """Return what a file says."""
    if source.language == "tsx":
        source.language = "typescript"
    reader = Reader(source, EXPRESSIONS, STATEMENTS)
    reader.exported_names, reader.prototypes = exported_names(source.data), mentioned(source.data)
    nodes = source.root.named_children
    reader.add(nodes)
    body = (*reader.imports, *reader.out, *reader.types, *reader.exports.values())
    return source.summary(body, doc=_doc(reader, nodes))


def _doc(reader: Reader, nodes: list[Node]) -> str:
    """Return the first line of the file's own comment: one that no definition follows directly."""
    for index, node in enumerate(nodes):
        following = nodes[index + 1] if index + 1 < len(nodes) else None
        if node.type != "comment":
            return ""
        line = doc_line(reader, node)
        if line and (following is None or declaration_of(following).type not in _DOCUMENTED):
            return line
    return ""


_DOCUMENTED = CLASSES | FUNCTIONS | LEXICAL | {"interface_declaration", "type_alias_declaration", "enum_declaration"}


# --- other statements ------------------------------------------------------------------------------------------------


def _expression(reader: Reader, node: Node) -> None:
    inner = first(node)
    if inner is None:
        return
    if inner.type == "internal_module":
        namespace_declared(reader, inner)
        return
    if inner.type == "call_expression" and export_helper(reader, inner):
        return
    form = reader.expression(inner)
    if isinstance(form, Walrus):
        assign(reader, [form.target], form.value)
    else:
        reader.evaluate(form)


def _return(reader: Reader, node: Node) -> None:
    inner = first(node)
    reader.out.append(Return(None if inner is None else reader.expression(inner)))


def _throw(reader: Reader, node: Node) -> None:
    inner = first(node)
    reader.out.append(Raise(None if inner is None else reader.expression(inner)))


def _if(reader: Reader, node: Node) -> None:
    """`else if` is no deeper than `if`."""
    arms: list[Block] = []
    total = False
    part: Node | None = node
    while part is not None:
        condition = reader.field(part, "condition")
        if part is node:
            reader.evaluate(condition)
            arms.append(reader.block(part.child_by_field_name("consequence")))
        else:
            arms.append((*_evaluated(reader, condition), *reader.block(part.child_by_field_name("consequence"))))
        clause = part.child_by_field_name("alternative")
        inner = None if clause is None else first(clause)
        part = inner if inner is not None and inner.type == "if_statement" else None
        if inner is not None and part is None:
            arms.append(reader.block(inner))
            total = True
    reader.out.append(Branch(tuple(arms), total))


def _evaluated(reader: Reader, form: Expression) -> list[Statement]:
    before, reader.out = reader.out, []
    reader.evaluate(form)
    made, reader.out = reader.out, before
    return made


def _switch(reader: Reader, node: Node) -> None:
    reader.evaluate(reader.field(node, "value"))
    body = node.child_by_field_name("body")
    if body is None:
        return
    reader.enter_block()
    cases = [case for case in body.named_children if case.type in ("switch_case", "switch_default")]
    reader.declare_all(statement for case in cases for statement in case.children_by_field_name("body"))
    arms: list[Block] = []
    for case in cases:
        value = case.child_by_field_name("value")
        before, reader.out = reader.out, []
        if value is not None:
            reader.evaluate(reader.expression(value))
        for statement in case.children_by_field_name("body"):
            reader.statement(statement)
        arms.append(tuple(reader.out))
        reader.out = before
    reader.leave()
    reader.out.append(Branch(tuple(arms), any(case.type == "switch_default" for case in cases)))


def _for_in(reader: Reader, node: Node) -> None:
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    kind, operator = node.child_by_field_name("kind"), node.child_by_field_name("operator")
    source = UNKNOWN if right is None else reader.expression(right)
    if left is None:
        return
    reader.enter_block()
    declared = kind is not None
    for name in names_in(left if declared else None):
        reader.declare(reader.source.text(name), var=kind is not None and kind.type == "var")
    before, reader.out = reader.out, []
    if left.type in PATTERNS:
        bound: Expression = reader.hidden("value")
        bind(reader, left, bound, declared=declared)
    else:
        bound = target(reader, left, declared=declared)
    is_keys = operator is not None and operator.type == "in"  # which are strings
    if is_keys:
        reader.evaluate(source)
        reader.out.append(Assign((bound,), Constant(None, "String")))
    body = (*reader.out, *reader.block(node.child_by_field_name("body")))
    reader.out = before
    reader.leave()
    reader.out.append(Loop(body) if is_keys else Loop(body, bound, source))


def _for(reader: Reader, node: Node) -> None:
    reader.enter_block()
    start = node.child_by_field_name("initializer")
    if start is not None and start.type in LEXICAL:
        reader.declare_all([start])
        reader.statement(start)
    elif start is not None:
        reader.evaluate(reader.expression(start))
    before, reader.out = reader.out, []
    reader.evaluate(reader.field(node, "condition"))
    body = reader.block(node.child_by_field_name("body"))
    reader.out.extend(body)
    reader.evaluate(reader.field(node, "increment"))
    made, reader.out = tuple(reader.out), before
    reader.leave()
    reader.out.append(Loop(made))


def _while(reader: Reader, node: Node) -> None:
    before, reader.out = reader.out, []
    reader.evaluate(reader.field(node, "condition"))
    made, reader.out = tuple(reader.out), before
    reader.out.append(Loop((*made, *reader.block(node.child_by_field_name("body")))))


def _try(reader: Reader, node: Node) -> None:
    body = reader.block(node.child_by_field_name("body"))
    clause, final = node.child_by_field_name("handler"), node.child_by_field_name("finalizer")
    handlers = () if clause is None else (_handler(reader, clause),)
    ending = None if final is None else final.child_by_field_name("body")
    reader.out.append(Try(body, handlers, (), reader.block(ending)))


def _handler(reader: Reader, clause: Node) -> tuple[None, str, Block]:
    pattern = clause.child_by_field_name("parameter")
    reader.enter_block()
    before, reader.out = reader.out, []
    bound = ""
    if pattern is not None:
        for name in names_in(pattern):
            reader.declare(reader.source.text(name))
        if pattern.type in PATTERNS:
            inside: Expression = reader.hidden("value")
            bind(reader, pattern, inside)
        else:
            inside = reader.lookup(reader.source.text(pattern))
        bound = inside.name if isinstance(inside, Name) else ""
    block = (*reader.out, *reader.block(clause.child_by_field_name("body")))
    reader.out = before
    reader.leave()
    return None, bound, block


def _block(reader: Reader, node: Node) -> None:
    reader.out.extend(reader.block(node))


def _labeled(reader: Reader, node: Node) -> None:
    body = node.child_by_field_name("body")
    if body is not None:
        reader.statement(body)


def _ambient(reader: Reader, node: Node) -> None:
    inner = first(node)
    if inner is not None and inner.type == "statement_block":  # declare global
        reader.out.extend(reader.block(inner))
    elif inner is not None:
        reader.statement(inner)


STATEMENTS: dict[str, Doing] = {
    **dict.fromkeys(LEXICAL, variables_declared),
    **dict.fromkeys(FUNCTIONS, function_declared),
    **dict.fromkeys(("class_declaration", "abstract_class_declaration"), class_declared),
    **dict.fromkeys(("internal_module", "module"), namespace_declared),
    **dict.fromkeys(("while_statement", "do_statement"), _while),
    "interface_declaration": interface_declared,
    "type_alias_declaration": alias_declared,
    "enum_declaration": enum_declared,
    "import_alias": import_alias,
    "import_statement": import_statement,
    "export_statement": export_statement,
    "ambient_declaration": _ambient,
    "expression_statement": _expression,
    "return_statement": _return,
    "throw_statement": _throw,
    "if_statement": _if,
    "switch_statement": _switch,
    "for_statement": _for,
    "for_in_statement": _for_in,
    "try_statement": _try,
    "statement_block": _block,
    "labeled_statement": _labeled,
}
