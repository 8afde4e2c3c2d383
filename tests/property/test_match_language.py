"""Whatever can be said in the graph query language can be written in many ways, all of which mean the same."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.graphtools.cursor import fingerprint, query_fingerprint
from pipeline.graphtools.parse import parse, prepare
from pipeline.graphtools.query import GroupKey, Negation, Operator, Predicate, PropertyPattern, Query, SortKey
from tests.match_texts import queries, written

prepare()

UNHURRIED = settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow])


@UNHURRIED
@given(st.data(), queries())
def test_a_query_written_down_in_any_way_is_read_as_the_same(data: st.DataObject, query: Query) -> None:
    text, parameters = data.draw(written(query))
    found = parse(text, parameters)
    assert found == query
    assert query_fingerprint(found) == query_fingerprint(query)  # here, 1, 1.0 and true are three values


@UNHURRIED
@given(st.data(), queries())
def test_pages_of_one_query_fit_together_however_it_is_written(data: st.DataObject, query: Query) -> None:
    first, second = (parse(*data.draw(written(query))) for _ in range(2))
    assert fingerprint("s", "space", first, "g-1") == fingerprint("s", "space", second, "g-1")


@UNHURRIED
@given(queries())
def test_another_query_has_another_fingerprint(query: Query) -> None:
    start = query.start
    others = [
        replace(query, distinct=not query.distinct),
        replace(query, where=Negation(query.where) if query.where else Predicate("a", "b", Operator.IS_NULL)),
        replace(query, start=replace(start, labels=(*start.labels, "Another"))),
        replace(query, start=replace(start, properties=(*start.properties, PropertyPattern("Another", None)))),
        replace(query, order=(*query.order, SortKey("a"))),
        replace(query, group=(*query.group, GroupKey("a", "b"))),
    ]
    assert len({query_fingerprint(one) for one in (query, *others)}) == len(others) + 1


@UNHURRIED
@given(queries())
def test_another_source_space_or_generation_has_another_fingerprint(query: Query) -> None:
    marks = [
        fingerprint(*asked, query, graph)
        for asked in (("s", "a"), ("t", "a"), ("s", "b"), ("sa", ""))
        for graph in ("g-1", "g-2")
    ]
    assert len(set(marks)) == len(marks)
