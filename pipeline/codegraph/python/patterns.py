"""What the patterns of a `match` bind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.codegraph.python.expressions import Expressions
from pipeline.codegraph.source import EXTRAS, UNKNOWN, first, inert, named
from pipeline.codegraph.summary import (
    Assign,
    Attribute,
    Choice,
    Constant,
    Expression,
    Index,
    Instance,
    Name,
    Sequence,
    Star,
    Statement,
)

if TYPE_CHECKING:
    from tree_sitter import Node

_WIDEST = 8  # items of a subject that is repeated wherever a pattern binds a part of it


def repeatable(subject: Expression) -> bool:
    """Whether the subject can stand in every arm: its value is known by name, and it is small."""
    if isinstance(subject, Sequence):
        return len(subject.items) <= _WIDEST and all(map(repeatable, subject.items))
    return isinstance(subject, Name | Attribute) and inert(subject)


def irrefutable(pattern: Node) -> bool:
    """Whether a pattern takes everything: `_` or a bare name."""
    inner = first(pattern)
    while inner is not None and (inner.type == "case_pattern" or _parenthesised(inner)):
        inner = first(inner)
    return inner is None or (inner.type == "dotted_name" and len(named(inner)) == 1)


def bindings(reader: Expressions, patterns: list[Node], subject: Expression) -> list[Statement]:
    """Return the assignments that the patterns of one `case` make."""
    out: list[Statement] = []
    if len(patterns) == 1:
        _bind(reader, patterns[0], subject, out)
    else:
        _bind_items(reader, patterns, subject, out)
    return out


def _bind(reader: Expressions, pattern: Node, subject: Expression, out: list[Statement]) -> None:
    if not reader.source.enter():
        return
    parts = named(pattern)
    match pattern.type:
        case "dotted_name" if len(parts) == 1:
            out.append(Assign((Name(reader.identifier(parts[0])),), subject))
        case "as_pattern":
            _bind(reader, parts[0], subject, out)
            out.append(Assign((Name(reader.identifier(parts[-1])),), _narrowed(reader, parts[0]) or subject))
        case "class_pattern":
            _bind_class(reader, parts, out)
        case "dict_pattern":
            _bind_keys(reader, pattern, subject, out)
        case "splat_pattern":
            out.extend(Assign((Name(reader.identifier(part)),), UNKNOWN) for part in parts if part.type == "identifier")
        case "list_pattern" | "tuple_pattern" if not _parenthesised(pattern):
            _bind_items(reader, parts, subject, out)
        case "case_pattern" | "union_pattern" | "tuple_pattern":
            for part in parts:
                _bind(reader, part, subject, out)
        case _:
            pass
    reader.source.depth -= 1


def _parenthesised(pattern: Node) -> bool:
    """Whether it is one pattern in parentheses and no tuple."""
    return pattern.type == "tuple_pattern" and len(named(pattern)) == 1 and not _comma(pattern)


def _comma(pattern: Node) -> bool:
    return any(child.type == "," for child in pattern.children)


def _bind_items(reader: Expressions, patterns: list[Node], subject: Expression, out: list[Statement]) -> None:
    """Take a sequence apart: plain names by one assignment, what is nested by the item it stands for."""
    targets: list[Expression] = []
    nested: list[tuple[Node, Expression]] = []
    starred = False
    for place, pattern in enumerate(patterns):
        inner = first(pattern) if pattern.type == "case_pattern" else pattern
        parts = named(inner) if inner is not None else []
        if inner is not None and inner.type == "dotted_name" and len(parts) == 1:
            targets.append(Name(reader.identifier(parts[0])))
        elif inner is not None and inner.type == "splat_pattern":
            starred = True
            targets.append(Star(Name(reader.identifier(parts[0])) if parts else Sequence(())))
        else:
            targets.append(Sequence(()))
            if inner is not None:
                item = subject.items[place] if isinstance(subject, Sequence) and place < len(subject.items) else None
                nested.append((inner, item if item is not None and not starred else UNKNOWN))
    if any(not isinstance(target, Sequence) for target in targets):
        out.append(Assign((Sequence(tuple(targets)),), subject))
    for inner, item in nested:
        _bind(reader, inner, item, out)


def _bind_class(reader: Expressions, parts: list[Node], out: list[Statement]) -> None:
    """Bind attributes; those that are given by position have names (`__match_args__`) that only the class knows."""
    of = _class(reader, parts[0])
    for part in parts[1:]:
        inner = first(part) if part.type == "case_pattern" else part
        if inner is not None and inner.type == "keyword_pattern":
            name, *value = named(inner)
            for each in value:
                _bind(reader, each, Attribute(Instance(of), reader.identifier(name)), out)
        elif inner is not None:
            _bind(reader, inner, UNKNOWN, out)


def _bind_keys(reader: Expressions, pattern: Node, subject: Expression, out: list[Statement]) -> None:
    key: Expression = UNKNOWN
    for child in pattern.children:
        if child.type == "case_pattern":
            _bind(reader, child, Index(subject, key), out)
            key = UNKNOWN
        elif child.type == "splat_pattern":
            _bind(reader, child, subject, out)
        elif child.is_named and child.type not in EXTRAS:
            form = reader.expression(child)
            key = form if isinstance(form, Constant) else UNKNOWN


def _narrowed(reader: Expressions, pattern: Node) -> Expression | None:
    """Return the type that a pattern asks for, as a value of it; None where it asks for none."""
    while pattern.type == "case_pattern" or _parenthesised(pattern):
        inner = first(pattern)
        if inner is None:
            return None
        pattern = inner
    if pattern.type == "class_pattern":
        return Instance(_class(reader, named(pattern)[0]))
    if pattern.type == "union_pattern":
        options = [_narrowed(reader, part) for part in named(pattern) if part.type == "class_pattern"]
        if len(options) == len(named(pattern)):
            return Choice(tuple(option for option in options if option is not None))
    return None


def _class(reader: Expressions, node: Node) -> Expression:
    form: Expression | None = None
    for part in named(node):
        name = reader.identifier(part)
        form = Name(name) if form is None else Attribute(form, name)
    return form or UNKNOWN
