"""What stored values mean: their types, equality and order, conditions with three truth values, and aggregates."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TypeGuard

from pipeline.errors import InvalidRequest
from pipeline.graphtools.execution import Cell, Edge, Node, Path
from pipeline.graphtools.plan import Both, Condition, Not, Predicate, Property
from pipeline.graphtools.query import Aggregate, Joining, Operator
from pipeline.graphtools.regex import compiled
from schemas.exposed import PropertyType
from schemas.graph import Scalar

DATE_FORM = "[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
"""A DATE, matched as a whole; Python, PostgreSQL and Java read it alike."""

DATETIME_FORM = DATE_FORM + r"T([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]+)?)?"
"""A DATETIME, likewise."""

FULL = "0000-00-00T00:00:00.000000000"
"""The full form of a DATETIME: what a shorter one lacks is taken from here, and what a longer one has more is cut."""

LEAST_INT, MOST_INT = -(2**63), 2**63 - 1

Key = tuple[object, ...]
"""The place of a cell in an ascending order. Keys of one column can be compared; those of equal cells are equal."""

Read = Callable[[Property], Scalar | None]
"""Returns the value of a property of the match at hand, as `comparable` does."""

Test = Callable[[Read], bool | None]
"""A condition of a match; None is "unknown"."""

_date = re.compile(DATE_FORM)
_datetime = re.compile(DATETIME_FORM)


def conform(stored: object, kind: PropertyType) -> Scalar | None:
    """Return a stored value as one of the type, None if it is none: no value is made another but INT64 for DOUBLE."""
    match kind:
        case PropertyType.STRING:
            return stored if isinstance(stored, str) else None
        case PropertyType.BOOLEAN:
            return stored if isinstance(stored, bool) else None
        case PropertyType.INT64:
            return stored if _is_int64(stored) else None
        case PropertyType.DOUBLE:
            return _double(stored)
        case PropertyType.DATE:
            return stored if isinstance(stored, str) and _date.fullmatch(stored) else None
        case PropertyType.DATETIME:
            return stored if isinstance(stored, str) and _datetime.fullmatch(stored) else None


def _is_int64(stored: object) -> TypeGuard[int]:
    return isinstance(stored, int) and not isinstance(stored, bool) and LEAST_INT <= stored <= MOST_INT


def _double(stored: object) -> float | None:
    number = stored if isinstance(stored, float) or _is_int64(stored) else math.nan
    return float(number) + 0.0 if math.isfinite(number) else None  # minus zero becomes zero


def comparable(stored: object, kind: PropertyType) -> Scalar | None:
    """Return what a value is compared and grouped by: itself or, for DATETIME, its full form of 29 characters."""
    value = conform(stored, kind)
    if kind is PropertyType.DATETIME and isinstance(value, str):
        return (value + FULL[len(value) :])[: len(FULL)]
    return value


def negation(truth: bool | None) -> bool | None:
    """Return NOT: unknown stays unknown."""
    return None if truth is None else not truth


def conjunction(truths: Iterable[bool | None]) -> bool | None:
    """Return AND: false if any is false, else unknown if any is unknown."""
    found = set(truths)
    return False if False in found else None if None in found else True


def disjunction(truths: Iterable[bool | None]) -> bool | None:
    """Return OR: true if any is true, else unknown if any is unknown."""
    return negation(conjunction(map(negation, truths)))


def evaluator(condition: Condition) -> Test:
    """Return the test that a condition is."""
    match condition:
        case Not(inner):
            negated = evaluator(inner)
            return lambda read: negation(negated(read))
        case Both(joining, left, right):
            join = conjunction if joining is Joining.AND else disjunction
            tests = evaluator(left), evaluator(right)
            return lambda read: join([test(read) for test in tests])
        case Predicate(property_):
            ask = _question(condition)
            return lambda read: ask(read(property_))


def conjuncts(condition: Condition | None) -> list[Condition]:
    """Return conditions that are all true exactly where this one is."""
    found: list[Condition] = []
    left = [condition] if condition else []
    while left:
        one = left.pop()
        if isinstance(one, Both) and one.joining is Joining.AND:
            left += (one.right, one.left)
        else:
            found.append(one)
    return found


Question = Callable[[Scalar | None], bool | None]

_COMPARISONS: dict[Operator, Callable[[Scalar, Scalar], bool]] = {
    Operator.EQ: operator.eq,
    Operator.NE: operator.ne,
    Operator.GT: operator.gt,
    Operator.GE: operator.ge,
    Operator.LT: operator.lt,
    Operator.LE: operator.le,
}
_TEXTS: dict[Operator, Callable[[str, str], bool]] = {
    Operator.CONTAINS: lambda text, part: part in text,
    Operator.STARTS_WITH: str.startswith,
    Operator.ENDS_WITH: str.endswith,
}


def _question(predicate: Predicate) -> Question:
    kind, asked = predicate.property.type, predicate.operator
    wanted = [comparable(value, kind) for value in predicate.values]
    match asked:
        case Operator.IS_NULL:
            return lambda value: value is None
        case Operator.IS_NOT_NULL:
            return lambda value: value is not None
        case Operator.IN:
            return lambda value: disjunction([_compare(Operator.EQ, value, one) for one in wanted])
        case Operator.NOT_IN:
            return lambda value: conjunction([_compare(Operator.NE, value, one) for one in wanted])
        case Operator.BETWEEN:
            least, most = wanted
            return lambda value: conjunction([_compare(Operator.GE, value, least), _compare(Operator.LE, value, most)])
        case Operator.REGEX | Operator.CONTAINS | Operator.STARTS_WITH | Operator.ENDS_WITH:
            return _text_question(asked, wanted[0]) if kind is PropertyType.STRING else _unknown
        case _:
            return lambda value: _compare(asked, value, wanted[0])


def _compare(asked: Operator, value: Scalar | None, wanted: Scalar | None) -> bool | None:
    return None if value is None or wanted is None else _COMPARISONS[asked](value, wanted)


def _text_question(asked: Operator, wanted: Scalar | None) -> Question:
    if not isinstance(wanted, str):
        return _unknown
    if asked is Operator.REGEX:
        pattern = compiled(wanted)
        return lambda value: pattern.fullmatch(value) is not None if isinstance(value, str) else None
    compare = _TEXTS[asked]
    return lambda value: compare(value, wanted) if isinstance(value, str) else None


def _unknown(value: Scalar | None) -> None:
    """Answer a question that no value of the type has an answer to."""


def order_key(cell: Cell) -> Key:
    """Return the key of a cell: null comes last; nodes, edges and paths are ordered by their ids."""
    match cell:
        case None:
            return (True,)
        case Node():
            return False, cell.id
        case Edge():
            return False, cell.source, cell.type, cell.target
        case Path():
            key: list[object] = [False, cell.nodes[0].id]
            for edge, node in zip(cell.edges, cell.nodes[1:], strict=True):
                key += (edge.source, edge.type, edge.target, node.id)
            return tuple(key)
        case _:
            return False, cell


class Descending:
    """A key whose order is the other way round: null comes first."""

    __slots__ = ("_key",)

    def __init__(self, key: Key) -> None:
        self._key = key

    def __lt__(self, other: Descending) -> bool:
        return other._key < self._key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Descending) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)


def aggregate(function: Aggregate, values: Sequence[Scalar], kind: PropertyType | None = None) -> Scalar | None:
    """Return the aggregate of the values that are not null, of a property of this type.

    Raises:
        InvalidRequest: a sum is beyond the range of its type.
    """
    match function:
        case Aggregate.COUNT:
            return len(values)
        case Aggregate.COUNT_DISTINCT:
            return len(set(values))
        case Aggregate.MIN:
            return min(values, key=order_key, default=None)
        case Aggregate.MAX:
            return max(values, key=order_key, default=None)
        case Aggregate.SUM:
            return _sum(values, kind)
        case Aggregate.AVG:
            return float(_total(values)) / len(values) if values else None


def _total(values: Sequence[Scalar]) -> int | float:
    numbers = [value for value in values if not isinstance(value, str)]
    try:
        return sum(numbers) if all(isinstance(number, int) for number in numbers) else math.fsum(numbers)
    except OverflowError:
        raise InvalidRequest("A sum is beyond the range of DOUBLE.") from None


def _sum(values: Sequence[Scalar], kind: PropertyType | None) -> int | float:
    total = _total(values)
    if kind is PropertyType.DOUBLE:
        return float(total)
    if not LEAST_INT <= total <= MOST_INT:
        raise InvalidRequest("A sum of INT64 needs more than 64 bits.")
    return total
