"""Go to a summary. The file's body has imports, types and functions first and then variables: their order means nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from pipeline.codegraph.go.expressions import Expressions
from pipeline.codegraph.source import UNKNOWN, Source, first, first_line, inert, named, opaque
from pipeline.codegraph.summary import (
    Assign,
    Attribute,
    Block,
    Branch,
    Choice,
    Class,
    Define,
    Evaluate,
    Expression,
    From,
    Function,
    Import,
    Instance,
    Loop,
    Name,
    Parameter,
    Return,
    Sequence,
    Statement,
    Summary,
    This,
)

if TYPE_CHECKING:
    from tree_sitter import Node

_MOST_CARRIED = 8  # statements that the arms of one `if` repeat
_VERSION = re.compile(r"(?:/v\d+|\.v\d+)$")
_COMMENT = re.compile(r"\A(?://+|/\*+)\s*|\s*\*/\Z")
_TWO_VALUES = frozenset({"type_assertion_expression", "index_expression", "unary_expression"})
_SILENT = frozenset({
    "comment", "package_clause", "label_name", "break_statement", "continue_statement", "goto_statement",
    "fallthrough_statement", "empty_statement",
})  # fmt: skip


def summarize(source: Source) -> Summary:
    """Return what a Go file says."""
    reader = _Reader(source)
    package, doc = "", ""
    for node, comment in documented(source, source.root):
        if node.type == "package_clause":
            name = first(node)
            package, doc = ("" if name is None else source.text(name)), comment
    body = reader.block(source.root)
    late = tuple(statement for statement in body if not isinstance(statement, Import | From | Class | Define))
    early = tuple(statement for statement in body if isinstance(statement, Import | From | Class | Define))
    return source.summary(early + late, package, doc=doc)


def documented(source: Source, node: Node) -> Iterable[tuple[Node, str]]:
    """Yield the children that are no tokens, each with the first line of the comment directly above it."""
    doc, last = "", -1
    for child in node.children:
        if child.type == "comment":
            if doc and child.start_point[0] > last + 1:
                doc = ""
            text = source.line(child)
            if not doc and not text.startswith("//go:"):
                doc = first_line(_COMMENT.sub("", source.text(child)[:1000]))
            last = child.end_point[0]
        elif child.is_named:
            yield child, doc if child.start_point[0] == last + 1 else ""
            doc = ""


class _Reader(Expressions):
    """Turns declarations and statements into forms."""

    def block(self, node: Node | None) -> Block:
        """Return the statements that are children of a node; the caller enters a block of names where there is one."""
        if node is None or not self.source.enter():
            return ()
        out: list[Statement] = []
        for child, doc in documented(self.source, node):
            if child.type in ("statement_list", "block"):
                out.extend(self.scoped(child) if child.type == "block" else self.block(child))
            elif child.type in _DECLARATIONS:
                _DECLARATIONS[child.type](self, child, doc, out)
            elif handler := _STATEMENTS.get(child.type):
                handler(self, child, out)
            elif child.type not in _SILENT:
                self.evaluate(child, out)
        self.source.depth -= 1
        return tuple(out)

    def scoped(self, node: Node | None) -> Block:
        """Return the statements of a block with names of its own."""
        self.locals.enter()
        body = self.block(node)
        self.locals.leave()
        return body

    def evaluate(self, node: Node | None, out: list[Statement]) -> None:
        """Add an expression for its effects, if it can have any."""
        if node is not None and not inert(form := self.expression(node)):
            out.append(Evaluate(form))

    def function_body(self, node: Node | None, results: tuple[Parameter, ...]) -> Block:
        """Return a body; named results are variables, and what a bare `return` gives."""
        declared = tuple(Assign((Name(each.name),), None, each.type) for each in results)
        names = tuple(Name(each.name) for each in results)
        outside, self.results_here = self.results_here, names
        body = self.block(node)
        self.results_here = outside
        return declared + body

    results_here: tuple[Expression, ...] = ()

    def statement(self, node: Node | None, out: list[Statement]) -> None:
        """Add a simple statement that stands in the head of another."""
        if node is not None:
            handler = _STATEMENTS.get(node.type)
            if handler is None:
                self.evaluate(node, out)
            else:
                handler(self, node, out)


# --- declarations ----------------------------------------------------------------------------------------------------


def _import(self: _Reader, node: Node, doc: str, out: list[Statement]) -> None:
    for child in named(node):
        if child.type == "import_spec_list":
            _import(self, child, doc, out)
        if child.type != "import_spec":
            continue
        path, name = child.child_by_field_name("path"), child.child_by_field_name("name")
        module = "" if path is None else self.source.text(path).strip('"`')
        line = child.start_point[0] + 1
        if name is not None and name.type == "dot":
            out.append(From(module, (("*", "*"),), 0, line))
        elif name is not None:
            out.append(Import(module, "" if name.type == "blank_identifier" else self.source.text(name), 0, line))
        else:
            out.append(Import(module, package_name(module), 0, line))


def package_name(path: str) -> str:
    """Return the name by which a package of this import path is most likely known."""
    last = _VERSION.sub("", path).rpartition("/")[2]
    return last.removeprefix("go-").removesuffix("-go").removesuffix(".go")


def _function(self: _Reader, node: Node, doc: str, out: list[Statement]) -> None:
    name = _text(self, node.child_by_field_name("name"))
    qualname = self.source.define("function", name, self.scope, node, node, doc)
    out.append(Define(name, _function_of(self, node, qualname)))


def _method(self: _Reader, node: Node, doc: str, out: list[Statement]) -> None:
    """Read a method; its receiver's variable is the current object."""
    given = node.child_by_field_name("receiver")
    receivers = named(given) if given is not None else []
    variable = _text(self, receivers[0].child_by_field_name("name")) if receivers else ""
    kind = receivers[0].child_by_field_name("type") if receivers else None
    owner, parameters = _receiver(self, kind)
    name = _text(self, node.child_by_field_name("name"))
    qualname = self.source.define("method", name, owner, node, node, doc)
    outside, self.parameters_of_types = self.parameters_of_types, {**self.parameters_of_types, **parameters}
    function = _function_of(self, node, qualname, owner, variable)
    self.parameters_of_types = outside
    out.append(Define(name, function))


def _receiver(self: _Reader, kind: Node | None) -> tuple[str, dict[str, Expression]]:
    """Return the name of a receiver's type, and its parameters of types."""
    while kind is not None and kind.type in ("pointer_type", "parenthesized_type"):
        kind = first(kind)
    if kind is None:
        return "", {}
    if kind.type != "generic_type":
        return self.source.text(kind), {}
    name, arguments = kind.child_by_field_name("type"), kind.child_by_field_name("type_arguments")
    unknown: dict[str, Expression] = dict.fromkeys(
        map(self.source.text, named(arguments) if arguments else ()), UNKNOWN
    )
    return _text(self, name), unknown


def _function_of(self: _Reader, node: Node, qualname: str, receiver: str = "", variable: str = "") -> Function:
    outside = self.scope, self.parameters_of_types
    self.parameters_of_types = self.type_parameters(node.child_by_field_name("type_parameters"))
    parameters = self.parameters(node.child_by_field_name("parameters"))
    returns, results = self.results(node.child_by_field_name("result"))
    self.scope = qualname
    self.locals.enter(function=True)
    self.locals.declared(name for name in (variable, *(each.name for each in (*parameters, *results))) if name)
    body = self.function_body(node.child_by_field_name("body"), results)
    if variable and variable != "_":
        body = (Assign((Name(variable),), This()), *body)
    self.locals.leave()
    self.scope, self.parameters_of_types = outside
    return Function(qualname, parameters, body, returns, "method" if receiver else "function", receiver)


def _types(self: _Reader, node: Node, doc: str, out: list[Statement]) -> None:
    grouped = any(child.type == "(" for child in node.children)
    for child, own in documented(self.source, node):
        if child.type == "type_alias":
            name, value = child.child_by_field_name("name"), child.child_by_field_name("type")
            out.append(Assign((Name(self.locals.declare(_text(self, name))),), self.type(value)))
        elif child.type == "type_spec":
            _type(self, child, child if grouped else node, own if grouped else doc, out)


def _type(self: _Reader, node: Node, whole: Node, doc: str, out: list[Statement]) -> None:
    name, type_ = _text(self, node.child_by_field_name("name")), node.child_by_field_name("type")
    form = "" if type_ is None else type_.type
    kind = {"struct_type": "struct", "interface_type": "interface"}.get(form, "class")
    internal = self.locals.declare(name)
    qualname = self.source.define(kind, name, self.scope, whole, whole, doc)
    outside = self.scope, self.parameters_of_types
    self.parameters_of_types = self.type_parameters(node.child_by_field_name("type_parameters"))
    self.scope = qualname
    bases: list[tuple[Expression, int]] = []
    body: list[Statement] = []
    if type_ is not None and form == "struct_type":
        _fields(self, type_, bases, body)
    elif type_ is not None and form == "interface_type":
        _specifications(self, type_, bases, body)
    self.scope, self.parameters_of_types = outside
    out.append(Class(internal, qualname, tuple(bases), tuple(body), kind=kind))


def _fields(self: _Reader, node: Node, bases: list[tuple[Expression, int]], body: list[Statement]) -> None:
    """Read a struct's fields. An embedded one is a base, since its methods are promoted, and a field of its type's name."""
    for field in (each for part in named(node) for each in named(part) if each.type == "field_declaration"):
        type_ = self.type(field.child_by_field_name("type"))
        names = field.children_by_field_name("name")
        body.extend(Assign((Name(self.source.text(name)),), None, type_) for name in names)
        if not names and isinstance(type_, Name | Attribute):
            bases.append((type_, field.start_point[0] + 1))
            body.append(Assign((Name(type_.name),), None, type_))


def _specifications(self: _Reader, node: Node, bases: list[tuple[Expression, int]], body: list[Statement]) -> None:
    """Read an interface's methods and what it embeds; a union of types is a constraint and no base."""
    for part, doc in documented(self.source, node):
        if part.type == "method_elem":
            name = _text(self, part.child_by_field_name("name"))
            qualname = self.source.define("method", name, self.scope, part, part, doc)
            parameters = self.parameters(part.child_by_field_name("parameters"))
            returns, _ = self.results(part.child_by_field_name("result"))
            body.append(Define(name, Function(qualname, parameters, (), returns, "method")))
        elif part.type == "type_elem" and len(named(part)) == 1:
            type_ = self.type(part)
            if isinstance(type_, Name | Attribute):
                bases.append((type_, part.start_point[0] + 1))


def _variables(self: _Reader, node: Node, doc: str, out: list[Statement]) -> None:
    for spec in named(node):
        if spec.type == "var_spec_list":
            _variables(self, spec, doc, out)
        if spec.type not in ("var_spec", "const_spec"):
            continue
        given = spec.children_by_field_name("name")
        value, annotation = spec.child_by_field_name("value"), spec.child_by_field_name("type")
        form = None if value is None else _values(self, value, len(given))
        type_ = None if annotation is None else self.type(annotation)
        names = [Name(self.locals.declare(self.source.text(name))) for name in given]
        if form is None or (type_ is not None and len(names) > 1):
            out.extend(Assign((name,), None, type_) for name in names)
        if form is not None:
            out.append(Assign((_target(names),), form, type_ if len(names) == 1 else None))


def _text(self: _Reader, node: Node | None) -> str:
    return "" if node is None else self.source.text(node)


# --- simple statements -----------------------------------------------------------------------------------------------


def _values(self: _Reader, node: Node, wanted: int) -> Expression:
    """Return the right side; `v, ok := m[k]` and its like have a second value that is of no interest."""
    parts = named(node) if node.type == "expression_list" else [node]
    if wanted == 2 and len(parts) == 1 and parts[0].type in _TWO_VALUES:
        return Sequence((self.expression(parts[0]), UNKNOWN))
    return self.expression(node)


def _target(targets: list[Name] | list[Expression]) -> Expression:
    return targets[0] if len(targets) == 1 else Sequence(tuple(targets))


def _declare(self: _Reader, node: Node, out: list[Statement]) -> None:
    """Read `a, b := …`: names that this block has already are assigned, the others are declared, after the value."""
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    if left is None or right is None:
        return
    parts = named(left) if left.type == "expression_list" else [left]
    value = _values(self, right, len(parts))
    names = [self.source.text(part) for part in parts]
    targets = [Name(self.locals.here(name) or self.locals.declare(name)) for name in names]
    out.append(Assign((_target(targets),), value))


def _assign(self: _Reader, node: Node, out: list[Statement]) -> None:
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    operator = node.child_by_field_name("operator")
    if left is None or right is None:
        return
    targets = list(self.each(named(left) if left.type == "expression_list" else [left]))
    value = _values(self, right, len(targets))
    augmented = operator is not None and operator.type != "="
    out.append(Assign((_target(targets),), value, augmented=augmented))


def _return(self: _Reader, node: Node, out: list[Statement]) -> None:
    value = first(node)
    if value is not None:
        out.append(Return(self.expression(value)))
    else:
        names = self.results_here
        out.append(Return((names[0] if len(names) == 1 else Sequence(names)) if names else None))


def _each(self: _Reader, node: Node, out: list[Statement]) -> None:
    for child in named(node):
        self.evaluate(child, out)


def _send(self: _Reader, node: Node, out: list[Statement]) -> None:
    form = opaque(self.each(node.children))
    if form.parts:
        out.append(Evaluate(form))


def _error(self: _Reader, node: Node, out: list[Statement]) -> None:
    self.source.counts["syntax_error"] += 1
    out.extend(self.block(node))


def _labelled(self: _Reader, node: Node, out: list[Statement]) -> None:
    out.extend(self.block(node))


# --- compound statements ---------------------------------------------------------------------------------------------


def _if(self: _Reader, node: Node, out: list[Statement]) -> None:
    """Read all arms side by side. Names of the first head are known to all arms, so are those of later heads."""
    self.locals.enter()
    self.statement(node.child_by_field_name("initializer"), out)
    self.evaluate(node.child_by_field_name("condition"), out)
    arms = [self.scoped(node.child_by_field_name("consequence"))]
    total = False
    heads: list[Statement] = []
    entered = 1
    arm = node.child_by_field_name("alternative")
    while arm is not None:
        own: list[Statement] = []
        if arm.type == "if_statement":
            if entered <= _MOST_CARRIED:
                self.locals.enter()
                entered += 1
            self.statement(arm.child_by_field_name("initializer"), own)
            carried = len(own)
            self.evaluate(arm.child_by_field_name("condition"), own)
            arms.append((*heads, *own, *self.scoped(arm.child_by_field_name("consequence"))))
            heads = (heads + own[:carried])[:_MOST_CARRIED]
            arm = arm.child_by_field_name("alternative")
        else:
            total = True
            arms.append((*heads, *self.scoped(arm)))
            arm = None
    for _ in range(entered):
        self.locals.leave()
    out.append(Branch(tuple(arms), total))


def _for(self: _Reader, node: Node, out: list[Statement]) -> None:
    self.locals.enter()
    block = node.child_by_field_name("body")
    head = next((child for child in named(node) if child != block), None)
    before: list[Statement] = []
    after: list[Statement] = []
    target: Expression | None = None
    source: Expression | None = None
    if head is not None and head.type == "range_clause":
        target, source = _range(self, head)
    elif head is not None and head.type == "for_clause":
        self.statement(head.child_by_field_name("initializer"), out)
        self.evaluate(head.child_by_field_name("condition"), before)
        self.statement(head.child_by_field_name("update"), after)
    else:
        self.evaluate(head, before)
    body = self.scoped(block)
    self.locals.leave()
    out.append(Loop((*before, *body, *after), target, source))


def _range(self: _Reader, node: Node) -> tuple[Expression | None, Expression | None]:
    """Return target and source; the target is the second variable, the element. The first is an index, a key or, of a
    channel, the element: unknown.
    """
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    source = None if right is None else self.expression(right)
    if left is None:
        return None, source
    parts = named(left)
    if any(child.type == ":=" for child in node.children):
        targets: list[Expression] = [Name(self.locals.declare(self.source.text(part))) for part in parts]
    else:
        targets = list(self.each(parts))
    return (targets[1] if len(targets) == 2 else None), source


def _switch(self: _Reader, node: Node, out: list[Statement]) -> None:
    self.locals.enter()
    self.statement(node.child_by_field_name("initializer"), out)
    alias, value = node.child_by_field_name("alias"), node.child_by_field_name("value")
    form = UNKNOWN if value is None else self.expression(value)
    if not inert(form):
        out.append(Evaluate(form))
    bound = first(alias) if alias is not None else None
    arms: list[Block] = []
    total = False
    for case in named(node):
        if case.type not in _CASES:
            continue
        total = total or case.type == "default_case"
        self.locals.enter()
        arm: list[Statement] = []
        if bound is not None:
            name = Name(self.locals.declare(self.source.text(bound)))
            arm.append(Assign((name,), _narrowed(self, case) or (form if inert(form) else UNKNOWN)))
        for value in case.children_by_field_name("value"):
            self.evaluate(value, arm)
        self.statement(case.child_by_field_name("communication"), arm)
        for child in case.children:
            if child.type == "statement_list":
                arm.extend(self.block(child))
        self.locals.leave()
        arms.append(tuple(arm))
    self.locals.leave()
    out.append(Branch(tuple(arms), total or node.type == "select_statement"))


def _narrowed(self: _Reader, case: Node) -> Expression | None:
    types = [self.type(each) for each in case.children_by_field_name("type") if each.is_named]
    if not types or any(type_ == UNKNOWN for type_ in types):
        return None
    options = tuple(Instance(type_) for type_ in types)
    return options[0] if len(options) == 1 else Choice(options)


_CASES = frozenset({"expression_case", "type_case", "communication_case", "default_case"})
_DECLARATIONS: dict[str, Callable[[_Reader, Node, str, list[Statement]], None]] = {
    "import_declaration": _import,
    "function_declaration": _function,
    "method_declaration": _method,
    "type_declaration": _types,
    "var_declaration": _variables,
    "const_declaration": _variables,
}
_STATEMENTS: dict[str, Callable[[_Reader, Node, list[Statement]], None]] = {
    "ERROR": _error,
    "expression_statement": _each,
    "go_statement": _each,
    "defer_statement": _each,
    "inc_statement": _each,
    "dec_statement": _each,
    "short_var_declaration": _declare,
    "receive_statement": _declare,
    "assignment_statement": _assign,
    "return_statement": _return,
    "send_statement": _send,
    "labeled_statement": _labelled,
    "if_statement": _if,
    "for_statement": _for,
    "expression_switch_statement": _switch,
    "type_switch_statement": _switch,
    "select_statement": _switch,
}
