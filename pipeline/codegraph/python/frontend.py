"""Python (all of 3.14, and what the grammar reads of 2) to a summary."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from pipeline.codegraph.python.exports import exports
from pipeline.codegraph.python.expressions import Expressions
from pipeline.codegraph.python.patterns import bindings, irrefutable, repeatable
from pipeline.codegraph.source import EXTRAS, UNKNOWN, Source, first, first_line, inert, named
from pipeline.codegraph.summary import (
    Assign,
    Attribute,
    Block,
    Branch,
    Class,
    Define,
    Delete,
    Evaluate,
    Expression,
    From,
    Function,
    Import,
    Loop,
    Name,
    Raise,
    Return,
    Scope,
    Sequence,
    Statement,
    Summary,
    Try,
    With,
)

if TYPE_CHECKING:
    from tree_sitter import Node

_LONGEST_DOC = 2000  # bytes that are looked at for a documentation's first line
_MOST_CARRIED = 8  # statements that the arms of one `if` repeat
_GETTERS = frozenset({"property", "cached_property", "abstractproperty"})
_IMPLICIT = {"__new__": "static", "__init_subclass__": "class", "__class_getitem__": "class"}
_SILENT = EXTRAS | frozenset({"pass_statement", "break_statement", "continue_statement"})


def summarize(source: Source) -> Summary:
    """Return what a Python file says."""
    reader = _Reader(source)
    body = reader.block(source.root)
    return source.summary(body, exports=exports(body), doc=reader.documentation(source.root))


class _Reader(Expressions):
    """Turns statements into forms. `in_class`: the definitions of this block are methods."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        self.in_class = False

    def block(self, node: Node | None) -> Block:
        """Return the statements that are children of a node."""
        if node is None or not self.source.enter():
            return ()
        out: list[Statement] = []
        for child in node.children:
            if handler := _STATEMENTS.get(child.type):
                handler(self, child, out)
            elif child.is_named and child.type not in _SILENT:
                self.evaluate(child, out)
        self.source.depth -= 1
        return tuple(out)

    def evaluate(self, node: Node | None, out: list[Statement]) -> None:
        """Add an expression for its effects, if it can have any."""
        if node is not None and not inert(form := self.expression(node)):
            out.append(Evaluate(form))

    def documentation(self, node: Node | None) -> str:
        """Return the first line of the string that a block begins with."""
        statement = None if node is None else first(node)
        text = first(statement) if statement is not None and statement.type == "expression_statement" else None
        if text is None or text.type != "string" or text.child_count < 2:
            return ""
        opening, closing = text.children[0], text.children[-1]
        if set(self.source.text(opening).lower()) & set("bft"):
            return ""
        end = min(closing.start_byte, opening.end_byte + _LONGEST_DOC)
        return first_line(self.source.data[opening.end_byte : end].decode("utf-8", "ignore"))


# --- definitions -----------------------------------------------------------------------------------------------------


def _decorated(self: _Reader, node: Node, out: list[Statement]) -> None:
    decorators: list[tuple[Expression, int]] = []
    texts: list[str] = []
    for child in node.children:
        inner = first(child) if child.type == "decorator" else None
        if inner is not None:
            decorators.append((self.expression(inner), child.start_point[0] + 1))
            texts.append(self.source.line(inner))
    definition = node.child_by_field_name("definition")
    if definition is None:
        return
    if definition.type == "class_definition":
        _define_class(self, definition, out, node, decorators, texts)
    else:
        _define_function(self, definition, out, node, decorators, texts)


def _function(self: _Reader, node: Node, out: list[Statement]) -> None:
    _define_function(self, node, out, node, [], [])


def _class(self: _Reader, node: Node, out: list[Statement]) -> None:
    _define_class(self, node, out, node, [], [])


def _define_function(
    self: _Reader,
    node: Node,
    out: list[Statement],
    whole: Node,
    decorators: list[tuple[Expression, int]],
    texts: list[str],
) -> None:
    name = _name(self, node)
    block = node.child_by_field_name("body")
    qualname = self.source.define(
        "method" if self.in_class else "function", name, self.scope, node, whole, self.documentation(block), texts
    )
    outside = self.scope, self.yields, self.in_class, self.parameters_of_types
    self.parameters_of_types = self.type_parameters(node.child_by_field_name("type_parameters"))
    parameters = self.parameters(node.child_by_field_name("parameters"))
    returns = self.annotation(node.child_by_field_name("return_type"))
    self.scope, self.yields, self.in_class = qualname, False, False
    body = self.block(block)
    generator = self.yields
    self.scope, self.yields, self.in_class, self.parameters_of_types = outside
    kind = _kind(name, decorators) if self.in_class else "function"
    coroutine = node.children[0].type == "async"
    function = Function(qualname, parameters, body, returns, kind, generator=generator, coroutine=coroutine)
    out.append(Define(name, function, tuple(decorators)))


def _kind(name: str, decorators: Iterable[tuple[Expression, int]]) -> str:
    for decorator, _ in decorators:
        written = decorator.name if isinstance(decorator, Name | Attribute) else ""
        if written == "staticmethod":
            return "static"
        if written == "classmethod":
            return "class"
        if written in _GETTERS:
            return "getter"
    return _IMPLICIT.get(name, "method")


def _define_class(
    self: _Reader,
    node: Node,
    out: list[Statement],
    whole: Node,
    decorators: list[tuple[Expression, int]],
    texts: list[str],
) -> None:
    name = _name(self, node)
    block = node.child_by_field_name("body")
    qualname = self.source.define("class", name, self.scope, node, whole, self.documentation(block), texts)
    outside = self.scope, self.in_class, self.parameters_of_types
    self.parameters_of_types = self.type_parameters(node.child_by_field_name("type_parameters"))
    bases: list[tuple[Expression, int]] = []
    keywords: list[tuple[str, Expression]] = []
    given = node.child_by_field_name("superclasses")
    for child in named(given) if given is not None else ():
        if child.type in ("keyword_argument", "dictionary_splat"):
            parts = named(child)
            key = "**" if child.type == "dictionary_splat" else self.identifier(parts[0])
            keywords.append((key, self.expression(parts[-1])))
        else:
            bases.append((self.expression(child), child.start_point[0] + 1))
    self.scope, self.in_class = qualname, True
    body = self.block(block)
    self.scope, self.in_class, self.parameters_of_types = outside
    out.append(Class(name, qualname, tuple(bases), body, tuple(decorators), "class", tuple(keywords)))


def _name(self: _Reader, node: Node) -> str:
    name = node.child_by_field_name("name")
    return "" if name is None else self.identifier(name)


# --- simple statements -----------------------------------------------------------------------------------------------


def _expression(self: _Reader, node: Node, out: list[Statement]) -> None:
    parts = named(node)
    if len(parts) == 1 and parts[0].type == "assignment":
        _assignment(self, parts[0], out)
    elif len(parts) == 1 and parts[0].type == "augmented_assignment":
        left, right = parts[0].child_by_field_name("left"), parts[0].child_by_field_name("right")
        if left is not None and right is not None:
            target = self.expression(left)
            out.append(Assign((target,), self.expression(right), augmented=True))
    else:
        for part in parts:
            self.evaluate(part, out)


def _assignment(self: _Reader, node: Node, out: list[Statement]) -> None:
    """Read `a = b = value`, which the tree nests to the right, as one statement."""
    targets: list[Expression] = []
    annotation: Expression | None = None
    value: Node | None = node
    while value is not None and value.type == "assignment":
        left = value.child_by_field_name("left")
        if left is not None:
            targets.append(self.expression(left))
        annotation = annotation or self.annotation(value.child_by_field_name("type"))
        value = value.child_by_field_name("right")
    out.append(Assign(tuple(targets), None if value is None else self.expression(value), annotation))


def _type_alias(self: _Reader, node: Node, out: list[Statement]) -> None:
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    target = first(left) if left is not None else None
    parameters = None
    if target is not None and target.type == "generic_type":
        target, *others = named(target)
        parameters = others[0] if others else None
    if target is None or left is None:
        return
    if target.type != "identifier":  # the grammar takes `type(x).y = z` for an alias as well
        form = self.read(self.source.data[node.start_byte : left.end_byte], node.start_point[0])
        out.append(Assign((form,), self.annotation(right)))
        return
    outside = self.parameters_of_types
    self.parameters_of_types = self.type_parameters(parameters)
    value = self.annotation(right)
    self.parameters_of_types = outside
    out.append(Assign((self.expression(target),), value))


def _return(self: _Reader, node: Node, out: list[Statement]) -> None:
    value = first(node)
    out.append(Return(None if value is None else self.expression(value)))


def _raise(self: _Reader, node: Node, out: list[Statement]) -> None:
    parts = self.each(node.children)
    out.extend(Evaluate(part) for part in parts[1:] if not inert(part))
    out.append(Raise(parts[0] if parts else None))


def _delete(self: _Reader, node: Node, out: list[Statement]) -> None:
    forms = self.each(node.children)
    if len(forms) == 1 and isinstance(forms[0], Sequence):
        forms = forms[0].items
    out.append(Delete(forms))


def _scope(self: _Reader, node: Node, out: list[Statement]) -> None:
    out.append(Scope(tuple(map(self.identifier, named(node))), node.type == "global_statement"))


def _each(self: _Reader, node: Node, out: list[Statement]) -> None:
    for child in named(node):
        self.evaluate(child, out)


def _error(self: _Reader, node: Node, out: list[Statement]) -> None:
    self.source.counts["syntax_error"] += 1
    out.extend(self.block(node))


# --- imports ---------------------------------------------------------------------------------------------------------


def _import(self: _Reader, node: Node, out: list[Statement]) -> None:
    for child in named(node):
        name, bound = _aliased(self, child)
        out.append(Import(name, bound, 0, child.start_point[0] + 1))


def _aliased(self: _Reader, node: Node) -> tuple[str, str]:
    if node.type != "aliased_import":
        return self.dotted(node), ""
    name, alias = node.child_by_field_name("name"), node.child_by_field_name("alias")
    return ("" if name is None else self.dotted(name)), ("" if alias is None else self.identifier(alias))


def _from(self: _Reader, node: Node, out: list[Statement]) -> None:
    place = node.child_by_field_name("module_name")
    module, level = "__future__", 0
    if place is not None and place.type == "relative_import":
        parts = named(place)
        level = self.source.text(parts[0]).count(".") if parts else 1
        module = "".join(self.dotted(part) for part in parts[1:])
    elif place is not None:
        module = self.dotted(place)
    names: list[tuple[str, str]] = []
    for child in node.children:
        if child.type == "wildcard_import":
            names.append(("*", "*"))
        elif child.type in ("dotted_name", "aliased_import") and child != place:
            name, bound = _aliased(self, child)
            names.append((name, bound or name))
    out.append(From(module, tuple(names), level, node.start_point[0] + 1))


# --- compound statements ---------------------------------------------------------------------------------------------


def _if(self: _Reader, node: Node, out: list[Statement]) -> None:
    """Read all arms side by side: a hundred `elif` are not a hundred deep. What a condition binds, the later arms know."""
    self.evaluate(node.child_by_field_name("condition"), out)
    arms = [self.block(node.child_by_field_name("consequence"))]
    total = False
    conditions: list[Statement] = []
    for arm in node.children_by_field_name("alternative"):
        if arm.type == "elif_clause":
            own: list[Statement] = []
            before = self.walruses
            self.evaluate(arm.child_by_field_name("condition"), own)
            arms.append((*conditions, *own, *self.block(arm.child_by_field_name("consequence"))))
            if self.walruses > before and len(conditions) < _MOST_CARRIED:
                conditions += own
        else:
            total = True
            arms.append((*conditions, *self.block(arm.child_by_field_name("body"))))
    out.append(Branch(tuple(arms), total))


def _while(self: _Reader, node: Node, out: list[Statement]) -> None:
    body: list[Statement] = []
    self.evaluate(node.child_by_field_name("condition"), body)
    body += self.block(node.child_by_field_name("body"))
    out.append(Loop(tuple(body), orelse=_else(self, node)))


def _for(self: _Reader, node: Node, out: list[Statement]) -> None:
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    source = None if right is None else self.expression(right)
    target = None if left is None else self.expression(left)
    body = self.block(node.child_by_field_name("body"))
    out.append(Loop(body, target, source, _else(self, node)))


def _else(self: _Reader, node: Node) -> Block:
    clause = node.child_by_field_name("alternative")
    return () if clause is None else self.block(clause.child_by_field_name("body"))


def _try(self: _Reader, node: Node, out: list[Statement]) -> None:
    body = self.block(node.child_by_field_name("body"))
    handlers: list[tuple[Expression | None, str, Block]] = []
    orelse: Block = ()
    final: Block = ()
    for clause in node.children:
        kind = clause.type
        if kind in ("except_clause", "except_group_clause"):
            handlers.append(_handler(self, clause))
        elif kind == "else_clause":
            orelse = self.block(clause.child_by_field_name("body"))
        elif kind == "finally_clause":
            final = self.block(_block(clause))
    out.append(Try(body, tuple(handlers), orelse, final))


def _handler(self: _Reader, clause: Node) -> tuple[Expression | None, str, Block]:
    values = clause.children_by_field_name("value")
    name = ""
    if len(values) == 1 and values[0].type == "as_pattern":
        target = values[0].child_by_field_name("alias")
        bound = first(target) if target is not None else None
        name = "" if bound is None else self.identifier(bound)
        values = named(values[0])[:1]
    types = self.each(values)
    caught = types[0] if len(types) == 1 else Sequence(types) if types else None
    return caught, name, self.block(_block(clause))


def _block(clause: Node) -> Node | None:
    return next((child for child in clause.children if child.type == "block"), None)


def _with(self: _Reader, node: Node, out: list[Statement]) -> None:
    items: list[tuple[Expression, Expression | None]] = []
    for clause in named(node):
        for item in named(clause) if clause.type == "with_clause" else ():
            value = item.child_by_field_name("value")
            if value is None:
                continue
            alias = value.child_by_field_name("alias") if value.type == "as_pattern" else None
            manager = first(value) if alias is not None else value
            target = first(alias) if alias is not None else None
            if manager is not None:
                items.append((self.expression(manager), None if target is None else self.expression(target)))
    out.append(With(tuple(items), self.block(node.child_by_field_name("body"))))


def _match(self: _Reader, node: Node, out: list[Statement]) -> None:
    subjects = self.each(node.children_by_field_name("subject"))
    subject = subjects[0] if len(subjects) == 1 else Sequence(subjects)
    if not inert(subject):
        out.append(Evaluate(subject))
    value = subject if repeatable(subject) else UNKNOWN
    body = node.child_by_field_name("body")
    arms: list[Block] = []
    total = False
    for clause in body.children if body is not None else ():
        if clause.type != "case_clause":
            continue
        patterns = [child for child in named(clause) if child.type == "case_pattern"]
        guard = clause.child_by_field_name("guard")
        arm = bindings(self, patterns, value)
        if guard is not None:
            self.evaluate(first(guard), arm)
        arm += self.block(clause.child_by_field_name("consequence"))
        arms.append(tuple(arm))
        total = total or (guard is None and len(patterns) == 1 and irrefutable(patterns[0]))
    out.append(Branch(tuple(arms), total))


_STATEMENTS: dict[str, Callable[[_Reader, Node, list[Statement]], None]] = {
    "ERROR": _error,
    "expression_statement": _expression,
    "function_definition": _function,
    "class_definition": _class,
    "decorated_definition": _decorated,
    "return_statement": _return,
    "raise_statement": _raise,
    "delete_statement": _delete,
    "global_statement": _scope,
    "nonlocal_statement": _scope,
    "assert_statement": _each,
    "print_statement": _each,
    "exec_statement": _each,
    "import_statement": _import,
    "import_from_statement": _from,
    "future_import_statement": _from,
    "type_alias_statement": _type_alias,
    "if_statement": _if,
    "while_statement": _while,
    "for_statement": _for,
    "try_statement": _try,
    "with_statement": _with,
    "match_statement": _match,
}
