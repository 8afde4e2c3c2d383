"""What stored values mean to a query: types, equality, order, three truth values, aggregates."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import InvalidRequest, Refusal
from pipeline.graphtools.execution import Edge, Node, Path
from pipeline.graphtools.plan import Both, Condition, Not, Predicate, Property
from pipeline.graphtools.query import Aggregate, Joining, Operator, Value
from pipeline.graphtools.values import (
    FULL,
    Descending,
    aggregate,
    comparable,
    conform,
    conjunction,
    conjuncts,
    disjunction,
    evaluator,
    negation,
    order_key,
)
from schemas.exposed import PropertyType
from schemas.graph import Scalar

TRUTHS = (True, False, None)
STRING, BOOLEAN, INT64, DOUBLE, DATE, DATETIME = PropertyType


def ask(
    stored: Scalar | None, operator: Operator, *values: Value, kind: PropertyType = PropertyType.STRING
) -> bool | None:
    predicate = Predicate(Property(0, "x", kind), operator, values)
    return evaluator(predicate)(lambda wanted: comparable(stored, wanted.type))


@pytest.mark.parametrize(
    ("stored", "kind", "value"),
    [
        ("a", STRING, "a"),
        ("", STRING, ""),
        (1, STRING, None),
        (True, STRING, None),
        (False, BOOLEAN, False),
        (0, BOOLEAN, None),
        ("true", BOOLEAN, None),
        (2**63 - 1, INT64, 2**63 - 1),
        (-(2**63), INT64, -(2**63)),
        (2**63, INT64, None),
        (True, INT64, None),
        (1.0, INT64, None),
        ("1", INT64, None),
        (1.5, DOUBLE, 1.5),
        (3, DOUBLE, 3.0),
        (2**63, DOUBLE, None),
        (10**400, DOUBLE, None),
        (True, DOUBLE, None),
        (math.inf, DOUBLE, None),
        (math.nan, DOUBLE, None),
        ("2024-02-31", DATE, "2024-02-31"),
        ("2024-13-01", DATE, None),
        ("2024-00-01", DATE, None),
        ("2024-01-00", DATE, None),
        ("2024-01-32", DATE, None),
        ("2024-1-1", DATE, None),
        ("2024-01-01\n", DATE, None),
        ("２０２４-01-01", DATE, None),
        (20240101, DATE, None),
        ("2024-01-01T10:00", DATE, None),
        ("2024-01-01T10:00", DATETIME, "2024-01-01T10:00"),
        ("2024-01-01T10:00:59.5", DATETIME, "2024-01-01T10:00:59.5"),
        ("2024-01-01T24:00", DATETIME, None),
        ("2024-01-01T10:60", DATETIME, None),
        ("2024-01-01T10:00:60", DATETIME, None),
        ("2024-01-01T10:00.5", DATETIME, None),
        ("2024-01-01T10:00:00.", DATETIME, None),
        ("2024-01-01T10:00Z", DATETIME, None),
        ("2024-01-01 10:00", DATETIME, None),
        ("2024-01-01", DATETIME, None),
        (None, STRING, None),
        (["a"], STRING, None),
    ],
)
def test_a_stored_value_of_another_type_is_null(stored: object, kind: PropertyType, value: Scalar | None) -> None:
    found = conform(stored, kind)
    assert (found, type(found)) == (value, type(value))


def test_minus_zero_is_zero() -> None:
    assert str(conform(-0.0, DOUBLE)) == "0.0"


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("2024-01-01T10:00", "2024-01-01T10:00:00.000000000"),
        ("2024-01-01T10:00:07", "2024-01-01T10:00:07.000000000"),
        ("2024-01-01T10:00:07.5", "2024-01-01T10:00:07.500000000"),
        ("2024-01-01T10:00:07.1234567891", "2024-01-01T10:00:07.123456789"),
    ],
)
def test_a_datetime_is_compared_by_its_full_form(text: str, full: str) -> None:
    assert comparable(text, DATETIME) == full
    assert len(full) == len(FULL) == 29
    assert ask(text, Operator.EQ, full, kind=DATETIME) is True
    assert ask(text, Operator.GT, "2024-01-01T09:59:59.999", kind=DATETIME) is True


@pytest.mark.parametrize("a", TRUTHS)
def test_laws_of_three_truth_values(a: bool | None) -> None:
    assert negation(negation(a)) is a
    assert conjunction([a, True]) is a
    assert conjunction([a, False]) is False
    assert disjunction([a, False]) is a
    assert disjunction([a, True]) is True
    for b, c in itertools.product(TRUTHS, TRUTHS):
        assert conjunction([a, b]) is conjunction([b, a])
        assert negation(conjunction([a, b])) is disjunction([negation(a), negation(b)])
        assert conjunction([a, conjunction([b, c])]) is conjunction([conjunction([a, b]), c])
        assert conjunction([a, disjunction([b, c])]) is disjunction([conjunction([a, b]), conjunction([a, c])])
    assert conjunction([None, None]) is None
    assert disjunction([None, False]) is None


@pytest.mark.parametrize(
    ("stored", "operator", "values", "kind", "truth"),
    [
        ("a", Operator.EQ, ("a",), STRING, True),
        ("a", Operator.EQ, ("A",), STRING, False),
        ("a", Operator.EQ, (None,), STRING, None),
        (None, Operator.EQ, ("a",), STRING, None),
        (None, Operator.NE, ("a",), STRING, None),
        (5, Operator.NE, ("a",), STRING, None),
        ("b", Operator.GT, ("a",), STRING, True),
        ("\U0001f600", Operator.GT, ("\uffff",), STRING, True),  # code points, not UTF-16 units
        ("Z", Operator.LT, ("a",), STRING, True),
        (3, Operator.LE, (3.0,), DOUBLE, True),
        (True, Operator.GT, (False,), BOOLEAN, True),
        ("a", Operator.IN, ("b", "a"), STRING, True),
        ("a", Operator.IN, ("b",), STRING, False),
        ("a", Operator.IN, ("b", None), STRING, None),
        ("a", Operator.IN, ("a", None), STRING, True),
        (None, Operator.IN, ("a",), STRING, None),
        ("a", Operator.NOT_IN, ("b",), STRING, True),
        ("a", Operator.NOT_IN, ("b", None), STRING, None),
        ("a", Operator.NOT_IN, ("a", None), STRING, False),
        (5, Operator.BETWEEN, (5, 7), INT64, True),
        (8, Operator.BETWEEN, (5, 7), INT64, False),
        (8, Operator.BETWEEN, (None, 7), INT64, False),
        (6, Operator.BETWEEN, (None, 7), INT64, None),
        (None, Operator.IS_NULL, (), STRING, True),
        (7, Operator.IS_NULL, (), STRING, True),  # not of the type, so null
        ("a", Operator.IS_NOT_NULL, (), STRING, True),
        ("banana", Operator.CONTAINS, ("nan",), STRING, True),
        ("banana", Operator.CONTAINS, ("",), STRING, True),
        ("banana", Operator.STARTS_WITH, ("ba",), STRING, True),
        ("banana", Operator.ENDS_WITH, ("Na",), STRING, False),
        ("banana", Operator.ENDS_WITH, (None,), STRING, None),
        (None, Operator.CONTAINS, ("a",), STRING, None),
        ("2024-01-01", Operator.CONTAINS, ("2024-01-01",), DATE, None),
        ("banana", Operator.REGEX, ("b(an)+a",), STRING, True),
        ("banana", Operator.REGEX, ("an",), STRING, False),  # a full match
        ("ba\nna", Operator.REGEX, ("ba.na",), STRING, False),
        ("BA", Operator.REGEX, ("(?i)ba",), STRING, True),
        ("é", Operator.REGEX, (".",), STRING, True),
        (None, Operator.REGEX, ("a",), STRING, None),
    ],
)
def test_predicates(
    stored: Scalar | None, operator: Operator, values: tuple[Value, ...], kind: PropertyType, truth: bool | None
) -> None:
    assert ask(stored, operator, *values, kind=kind) is truth


@pytest.mark.parametrize("pattern", ["(", "(?=a)", r"(a)\1"])
def test_a_pattern_that_re2_refuses_is_refused(pattern: str) -> None:
    with pytest.raises(Refusal, match="REGEX") as refused:
        ask("a", Operator.REGEX, pattern)
    assert refused.value.code == "INVALID_ARGUMENT"


def asks(name: str) -> Condition:
    return Predicate(Property(0, name, BOOLEAN), Operator.EQ, (True,))


conditions = st.recursive(
    st.sampled_from("abc").map(asks),
    lambda inner: st.one_of(
        inner.map(Not),
        st.tuples(st.sampled_from(Joining), inner, inner).map(lambda parts: Both(*parts)),
    ),
    max_leaves=12,
)


def truth_of(condition: Condition, facts: dict[str, bool | None]) -> bool | None:
    """By cases: a truth is the range of what it may become once every unknown is decided, where each may be either."""
    match condition:
        case Predicate(wanted):
            return facts[wanted.stored]
        case Not(inner):
            return {True: False, False: True, None: None}[truth_of(inner, facts)]
        case Both(joining, left, right):
            order = [False, None, True]  # Kleene: AND is the lesser, OR the greater
            places = order.index(truth_of(left, facts)), order.index(truth_of(right, facts))
            return order[min(places) if joining is Joining.AND else max(places)]


@given(conditions, st.fixed_dictionaries({name: st.sampled_from(TRUTHS) for name in "abc"}))
def test_conditions_and_their_conjuncts_are_kleene_s(condition: Condition, facts: dict[str, bool | None]) -> None:
    expected = truth_of(condition, facts)
    assert evaluator(condition)(lambda wanted: facts[wanted.stored]) is expected
    parts = [evaluator(part)(lambda wanted: facts[wanted.stored]) for part in conjuncts(condition)]
    assert all(part is True for part in parts) is (expected is True)


def test_no_condition_has_no_conjuncts() -> None:
    assert conjuncts(None) == []


@given(st.lists(st.one_of(st.none(), st.text(max_size=3))))
def test_null_comes_last_ascending_and_first_descending(cells: list[str | None]) -> None:
    texts = sorted([cell for cell in cells if cell is not None], key=lambda text: [ord(c) for c in text])
    nulls = [None] * (len(cells) - len(texts))
    assert sorted(cells, key=order_key) == texts + nulls
    assert sorted(cells, key=lambda cell: (Descending(order_key(cell)),)) == nulls + texts[::-1]


def test_nodes_edges_and_paths_are_ordered_by_ids() -> None:
    a, b, c = (Node(name, "T") for name in "abc")
    ab, ac, bc = Edge("a", "R", "b"), Edge("a", "R", "c"), Edge("b", "R", "c")
    assert sorted([c, a, b], key=order_key) == [a, b, c]
    assert sorted([bc, Edge("a", "Q", "z"), ac, ab], key=order_key) == [Edge("a", "Q", "z"), ab, ac, bc]
    paths = [Path((a,), ()), Path((a, b), (ab,)), Path((a, b, c), (ab, bc)), Path((a, c), (ac,)), Path((b, c), (bc,))]
    paths.reverse()
    assert sorted(paths, key=order_key) == paths[::-1]


def test_equal_keys_are_equal_and_hash_alike() -> None:
    one, other = Descending(order_key("a")), Descending(order_key("a"))
    assert one == other
    assert hash(one) == hash(other)
    assert one != order_key("a")


@pytest.mark.parametrize(
    ("function", "values", "kind", "result"),
    [
        (Aggregate.COUNT, ["a", "a"], STRING, 2),
        (Aggregate.COUNT_DISTINCT, ["a", "a", "b"], STRING, 2),
        (Aggregate.COUNT, [], STRING, 0),
        (Aggregate.SUM, [], INT64, 0),
        (Aggregate.SUM, [], DOUBLE, 0.0),
        (Aggregate.SUM, [2**62, 2**62, -1], INT64, 2**63 - 1),
        (Aggregate.SUM, [0.1] * 10, DOUBLE, 1.0),
        (Aggregate.AVG, [1, 2], INT64, 1.5),
        (Aggregate.AVG, [], DOUBLE, None),
        (Aggregate.MIN, [], STRING, None),
        (Aggregate.MAX, [], STRING, None),
        (Aggregate.MIN, ["b", "Z"], STRING, "Z"),
        (Aggregate.MAX, [False, True], BOOLEAN, True),
    ],
)
def test_aggregates(function: Aggregate, values: list[Scalar], kind: PropertyType, result: Scalar | None) -> None:
    found: Any = aggregate(function, values, kind)
    assert (found, type(found)) == (result, type(result))


@pytest.mark.parametrize(
    ("function", "values", "kind"),
    [
        (Aggregate.SUM, [2**63 - 1, 1], INT64),
        (Aggregate.SUM, [-(2**63), -1], INT64),
        (Aggregate.SUM, [1e308, 1e308], DOUBLE),
        (Aggregate.AVG, [1e308, 1e308], DOUBLE),
    ],
)
def test_a_sum_out_of_range_is_an_error(function: Aggregate, values: list[Scalar], kind: PropertyType) -> None:
    with pytest.raises(InvalidRequest, match="sum"):
        aggregate(function, values, kind)


@given(
    st.from_regex(
        re.compile(r"[0-9]{4}-[0-1][0-9]-[0-3][0-9]T[0-2][0-9]:[0-6][0-9](:[0-6][0-9](\.[0-9]{1,12})?)?", re.A),
        fullmatch=True,
    )
)
def test_every_datetime_has_a_full_form_that_is_one(text: str) -> None:
    full = comparable(text, DATETIME)
    assert (full is None) is (conform(text, DATETIME) is None)
    if full is not None:
        assert len(str(full)) == len(FULL)
        assert comparable(full, DATETIME) == full
        assert str(full).startswith(text[: len(FULL)])
