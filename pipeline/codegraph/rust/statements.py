"""Rust's blocks, branches, loops and patterns to forms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.codegraph.rust.expressions import CONTROL, Expressions
from pipeline.codegraph.rust.names import segments
from pipeline.codegraph.source import EXTRAS, UNKNOWN, first, named
from pipeline.codegraph.summary import (
    Assign,
    Attribute,
    Block,
    Branch,
    Choice,
    Constant,
    Expression,
    Index,
    Instance,
    Loop,
    Name,
    Parameter,
    Return,
    Sequence,
)

if TYPE_CHECKING:
    from tree_sitter import Node

ITEMS = frozenset({
    "function_item", "struct_item", "union_item", "enum_item", "trait_item", "impl_item", "mod_item", "const_item",
    "static_item", "type_item", "use_declaration", "extern_crate_declaration", "foreign_mod_item",
    "function_signature_item",
})  # fmt: skip
_SILENT = EXTRAS | {
    "empty_statement", "attribute_item", "inner_attribute_item", "macro_definition", "label", "lifetime", "mutable_specifier",
    "visibility_modifier", "associated_type", "shebang",
}  # fmt: skip
_PAYLOADS = frozenset({"Some", "Ok"})
_ITERATORS = frozenset({"iter", "iter_mut", "into_iter", "drain"})


class Statements(Expressions):
    """Turns blocks into statements."""

    def items(self, node: Node, in_function: bool) -> None:
        """Add the items among a node's children to the open block."""
        raise NotImplementedError

    # --- blocks ------------------------------------------------------------------------------------------------------

    def block(self, node: Node | None, target: Name | None, heads: Block = ()) -> Block:
        """Return the statements of a block with names of its own, after `heads`; its value goes to the target."""
        outside, self.out = self.out, list(heads)
        self.locals_enter()
        if node is not None:
            self.statements(node, target)
        self.names.locals.leave()
        found, self.out = tuple(self.out), outside
        return found

    def locals_enter(self) -> None:
        """Go into a block of names."""
        self.names.locals.enter()

    def statements(self, node: Node, target: Name | None, result: bool = False) -> None:
        """Add what a block does; its last expression goes to the target, or is what the function returns."""
        if not self.source.enter():
            return
        self.items(node, in_function=True)
        last = _tail(node)
        for child in node.children:
            kind = child.type
            if not child.is_named or kind in _SILENT or kind in ITEMS:
                continue
            if kind == "let_declaration":
                self._let(child)
            elif kind == "ERROR":
                self.source.counts["syntax_error"] += 1
                self.statements(child, None)
            elif child == last:
                self._give(child, target, result)
            else:
                self.evaluate(_inner(child))
        self.source.depth -= 1

    def _give(self, node: Node, target: Name | None, result: bool) -> None:
        inner = _inner(node)
        if inner is None or (target is None and not result) or _valueless(inner):
            self.evaluate(inner)
        elif result:
            self.out.append(Return(self.expression(inner)))
        elif target is not None and inner.type in CONTROL and self.source.enter():
            self.control(inner, target)
            self.source.depth -= 1
        elif target is not None:
            value = self.expression(inner)
            self.out.append(Assign((target,), value))

    def function_body(self, node: Node, parameters: list[Node]) -> tuple[tuple[Parameter, ...], Block]:
        """Return parameters and body; a parameter that is taken apart has a name that no source can write."""
        outside, self.out = self.out, []
        self.names.locals.enter(function=True)
        found: list[Parameter] = []
        for parameter in parameters:
            if parameter.type in ("self_parameter", "attribute_item", "variadic_parameter", "ERROR"):
                continue
            pattern = parameter.child_by_field_name("pattern") if parameter.type == "parameter" else parameter
            type_ = parameter.child_by_field_name("type") if parameter.type == "parameter" else None
            form = None if type_ is None else self.type(type_)
            pattern = _plain(pattern)
            if pattern is not None and pattern.type == "identifier":
                name = self.source.text(pattern).removeprefix("r#")
                self.names.locals.declared((name,))
                found.append(Parameter(name, "", None, form))
            else:
                name = f"<p{len(found) + 1}>"
                found.append(Parameter(name, "", None, form))
                if pattern is not None:
                    self.bind(pattern, Name(name), {})
        if node.type == "block":
            self.statements(node, None, result=True)
        else:
            self.out.append(Return(self.expression(node)))
        self.names.locals.leave()
        body, self.out = tuple(self.out), outside
        return tuple(found), body

    def _let(self, node: Node) -> None:
        """Read `let pattern: T = value else { … }`; the names are declared after the value."""
        pattern, value = node.child_by_field_name("pattern"), node.child_by_field_name("value")
        type_, otherwise = node.child_by_field_name("type"), node.child_by_field_name("alternative")
        form = None if value is None else self.expression(value)
        kind = None if type_ is None else self.type(type_)
        if otherwise is not None:
            self.out.append(Branch((self.block(otherwise, None),)))
        pattern = _plain(pattern)
        if pattern is None:
            return
        if pattern.type == "identifier" and not _constant(self.source.text(pattern)):
            name = self.names.locals.declare(self.source.text(pattern).removeprefix("r#"))
            self.out.append(Assign((Name(name),), form, kind))
        else:
            value_ = Instance(kind) if kind is not None and kind != UNKNOWN else UNKNOWN
            self.bind(pattern, self.named_value(form if form is not None else value_), {})

    # --- branches and loops ------------------------------------------------------------------------------------------

    def control(self, node: Node, target: Name | None) -> None:
        """Add what a block, branch or loop does, and give its value to the target if there is one."""
        match node.type:
            case "if_expression":
                self._if(node, target)
            case "match_expression":
                self._match(node, target)
            case "while_expression":
                self.locals_enter()
                heads = self._conditions(node.child_by_field_name("condition"))
                body = self.block(node.child_by_field_name("body"), None, heads)
                self.names.locals.leave()
                self.out.append(Loop(body))
            case "loop_expression":
                self.out.append(Loop(self.block(node.child_by_field_name("body"), None)))
            case "for_expression":
                self._for(node)
            case "block":
                self.out.extend(self.block(node, target))
            case _:
                self.out.extend(self.block(next((each for each in named(node) if each.type == "block"), None), target))

    def _conditions(self, node: Node | None) -> Block:
        """Return what a condition does and binds; the names are those of the block that was entered last."""
        outside, self.out = self.out, []
        for part in () if node is None else named(node) if node.type == "let_chain" else (node,):
            if part.type == "let_condition":
                pattern, value = part.child_by_field_name("pattern"), part.child_by_field_name("value")
                if pattern is not None and value is not None:
                    self.bind(pattern, self.named_value(self.expression(value)), {})
            else:
                self.evaluate(part)
        found, self.out = tuple(self.out), outside
        return found

    def _if(self, node: Node, target: Name | None) -> None:
        """Read all arms side by side; each begins with its own condition, whose names are its own."""
        arms: list[Block] = []
        total = False
        at: Node | None = node
        while at is not None:
            if at.type == "if_expression":
                self.locals_enter()
                heads = self._conditions(at.child_by_field_name("condition"))
                arms.append(self.block(at.child_by_field_name("consequence"), target, heads))
                self.names.locals.leave()
                clause = at.child_by_field_name("alternative")
                at = None if clause is None else first(clause)
            else:
                total = True
                arms.append(self.block(at, target))
                at = None
        self.out.append(Branch(tuple(arms), total))

    def _match(self, node: Node, target: Name | None) -> None:
        value, body = node.child_by_field_name("value"), node.child_by_field_name("body")
        subject = UNKNOWN if value is None else self.named_value(self.expression(value))
        arms: list[Block] = []
        for arm in named(body) if body is not None else ():
            pattern, result = arm.child_by_field_name("pattern"), arm.child_by_field_name("value")
            if arm.type != "match_arm" or pattern is None:
                continue
            outside, self.out = self.out, []
            self.locals_enter()
            guard = pattern.child_by_field_name("condition")
            inner = next((each for each in named(pattern) if each != guard), None)
            if inner is not None:
                self.bind(inner, subject, {})
            self.out.extend(self._conditions(guard))
            if result is not None:
                self._give(result, target, False)
            self.names.locals.leave()
            arms.append(tuple(self.out))
            self.out = outside
        self.out.append(Branch(tuple(arms), True))

    def _for(self, node: Node) -> None:
        pattern, value = node.child_by_field_name("pattern"), node.child_by_field_name("value")
        source = UNKNOWN if value is None else self._iterated(value)
        self.locals_enter()
        pattern = _plain(pattern)
        outside, self.out = self.out, []
        if pattern is not None and pattern.type == "identifier":
            target = Name(self.names.locals.declare(self.source.text(pattern).removeprefix("r#")))
        else:
            target = self.hidden()
            if pattern is not None:
                self.bind(pattern, target, {})
        heads, self.out = tuple(self.out), outside
        body = self.block(node.child_by_field_name("body"), None, heads)
        self.names.locals.leave()
        self.out.append(Loop(body, target, source))

    def _iterated(self, node: Node) -> Expression:
        """Return what a loop goes over: of `xs.iter()` the elements are those of `xs`."""
        form = self.expression(node)
        function = node.child_by_field_name("function") if node.type == "call_expression" else None
        field = function.child_by_field_name("field") if function is not None else None
        value = function.child_by_field_name("value") if function is not None else None
        if field is None or value is None or self.source.text(field) not in _ITERATORS:
            return form
        if _plain(value) is None or value.type not in ("identifier", "field_expression", "self"):
            return form
        return Choice((self.expression(value), form))

    # --- patterns ----------------------------------------------------------------------------------------------------

    def bind(self, node: Node, value: Expression, bound: dict[str, str]) -> None:
        """Add the assignments that a pattern makes. `bound` are its names so far: alternatives bind the same ones."""
        pattern = _plain(node)
        if pattern is None or not self.source.enter():
            return
        parts = named(pattern)
        match pattern.type:
            case "identifier" | "shorthand_field_identifier":
                self._bind_name(pattern, value, bound)
            case "captured_pattern":
                self._bind_name(parts[0], value, bound)
                for part in parts[1:]:
                    self.bind(part, value, bound)
            case "tuple_pattern" | "slice_pattern" | "or_pattern":
                for place, part in enumerate(parts):
                    self.bind(part, _item(pattern.type, value, place), bound)
            case "tuple_struct_pattern":
                self._bind_fields(pattern, value, bound)
            case "struct_pattern":
                self._bind_struct(pattern, bound)
            case _:
                pass
        self.source.depth -= 1

    def _bind_name(self, node: Node, value: Expression, bound: dict[str, str]) -> None:
        text = self.source.text(node).removeprefix("r#")
        if not text or _constant(text):
            return
        name = bound.get(text)
        if name is None:
            name = bound[text] = self.names.locals.declare(text)
        self.out.append(Assign((Name(name),), value))

    def _bind_fields(self, pattern: Node, value: Expression, bound: dict[str, str]) -> None:
        """Bind what stands in `Some(x)` or `Wrapper(x)`; what a variant of another enum holds is unknown."""
        kind = pattern.child_by_field_name("type")
        parts = segments(self.source, kind) if kind is not None else [""]
        variant = len(parts) > 1 and parts[-2][:1].isupper()
        inner = [part for part in named(pattern) if part != kind]
        for place, part in enumerate(inner):
            if parts[-1] in _PAYLOADS and not self.names.module.find(parts[-1]):
                self.bind(part, Index(value, UNKNOWN), bound)
            elif variant or kind is None:
                self.bind(part, UNKNOWN, bound)
            else:
                self.bind(part, Attribute(Instance(self.type(kind)), str(place)), bound)

    def _bind_struct(self, pattern: Node, bound: dict[str, str]) -> None:
        kind = pattern.child_by_field_name("type")
        parts = segments(self.source, kind) if kind is not None else [""]
        variant = kind is None or (len(parts) > 1 and parts[-2][:1].isupper())
        of = UNKNOWN if variant or kind is None else Instance(self.type(kind))
        for field in named(pattern):
            name = field.child_by_field_name("name")
            if field.type != "field_pattern" or name is None:
                continue
            value = UNKNOWN if of == UNKNOWN else Attribute(of, self.source.text(name).removeprefix("r#"))
            self.bind(field.child_by_field_name("pattern") or name, value, bound)


def _plain(pattern: Node | None) -> Node | None:
    """Return a pattern without `&`, `ref`, `mut` and parentheses."""
    while pattern is not None and (
        pattern.type in _AROUND or (pattern.type == "tuple_pattern" and _parenthesised(pattern))
    ):
        inner = [child for child in named(pattern) if child.type != "mutable_specifier"]
        pattern = inner[0] if inner else None
    return pattern


_AROUND = frozenset({"reference_pattern", "ref_pattern", "mut_pattern", "match_pattern", "parenthesized_pattern"})


def _item(kind: str, value: Expression, place: int) -> Expression:
    if kind == "or_pattern":
        return value
    if kind == "slice_pattern":
        return Index(value, UNKNOWN)
    if isinstance(value, Sequence) and place < len(value.items):
        return value.items[place]
    return Index(value, Constant(place, "int"))


def _parenthesised(pattern: Node) -> bool:
    return len(named(pattern)) == 1 and not any(child.type == "," for child in pattern.children)


def _constant(name: str) -> bool:
    """Whether a name in a pattern means what it names: by convention constants and variants are in capitals."""
    return name[:1].isupper()


def _tail(node: Node) -> Node | None:
    """Return the expression that is a block's value, if it ends with one."""
    last = next((child for child in reversed(node.children) if child.is_named and child.type not in EXTRAS), None)
    if last is None or last.type in ITEMS or last.type in _SILENT or last.type == "let_declaration":
        return None
    if last.type == "expression_statement" and last.children[-1].type == ";":
        return None
    return last


def _valueless(node: Node) -> bool:
    """Whether it gives nothing: loops (what `break` gives is not followed), an `if` without `else`, what leaves."""
    if node.type == "if_expression":
        return node.child_by_field_name("alternative") is None
    return node.type in _VALUELESS


_VALUELESS = frozenset({
    "while_expression", "loop_expression", "for_expression", "return_expression", "break_expression",
    "continue_expression",
})  # fmt: skip


def _inner(node: Node) -> Node | None:
    return first(node) if node.type == "expression_statement" else node
