"""The names that a Python file says `*` takes: its `__all__`, read from the forms."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.codegraph.summary import (
    Assign,
    Attribute,
    Block,
    Branch,
    Call,
    Constant,
    Evaluate,
    Expression,
    Loop,
    Name,
    Sequence,
    Statement,
    Try,
    With,
)

_ALL = Name("__all__")


def exports(body: Block) -> tuple[str, ...] | None:
    """Return what `__all__` holds after the file ran, or None where there is none or it is computed.

    Where it is assigned in a branch, each branch may be the one that runs: their names come together.
    """
    names: dict[str, None] | None = None
    for statement, certain in _statements(body, True):
        change = _change(statement)
        if change is None:
            continue
        verb, value = change
        found = _strings(value)
        if found is None:
            return None
        if verb == "remove":
            names = {name: None for name in names or () if name not in found}
        elif verb == "=" and certain:
            names = dict.fromkeys(found)
        else:
            names = {**(names or {}), **dict.fromkeys(found)}
    return None if names is None else tuple(names)


def _statements(body: Block, certain: bool) -> Iterator[tuple[Statement, bool]]:
    for statement in body:
        yield statement, certain
        match statement:
            case Branch(arms=blocks):
                pass
            case Try(body=tried, handlers=handlers, orelse=orelse, final=final):
                blocks = (tried, *(block for _, _, block in handlers), orelse, final)
            case Loop(body=inner) | With(body=inner):
                blocks = (inner,)
            case _:
                continue
        for block in blocks:
            yield from _statements(block, False)


def _change(statement: Statement) -> tuple[str, Expression | None] | None:
    match statement:
        case Assign(targets=targets, value=value, augmented=augmented) if _ALL in targets and value is not None:
            return "+=" if augmented else "=", value
        case Evaluate(value=Call(of=Attribute(of=of, name="extend" | "append" | "remove" as verb), arguments=(one,))):
            if of != _ALL:
                return None
            return verb, one if verb == "extend" else Sequence((one,))
        case _:
            return None


def _strings(value: Expression | None) -> list[str] | None:
    if not isinstance(value, Sequence):
        return None
    found = [item.value for item in value.items if isinstance(item, Constant) and isinstance(item.value, str)]
    return found if len(found) == len(value.items) else None
