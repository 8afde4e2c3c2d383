"""Whether a query makes sense by itself: its aliases, columns, groups and sort keys. What is exposed is asked elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pipeline.graphtools.query import Condition, Junction, Negation, Predicate, Projection, Query, SortKey
from pipeline.graphtools.refusal import Kind, invalid_query

Fault = tuple[str, int]
"""What makes no sense, and where."""


def validate(query: Query, text: str) -> None:
    """Check a query that was read from this text, in a fixed order.

    Raises:
        Refusal: the first thing that makes no sense, as INVALID_QUERY of the kind SEMANTIC, with its place.
    """
    for check in (_aliases, _filters, _projections, _outputs, _grouping, _sorting):
        for message, at in check(query):
            raise invalid_query(Kind.SEMANTIC, message, text, at)


def predicates(condition: Condition | None) -> Iterator[Predicate]:
    """Yield the predicates of a condition, from left to right."""
    left = [condition] if condition else []
    while left:
        match left.pop():
            case Junction(_, first, second):
                left += (second, first)
            case Negation(inner):
                left.append(inner)
            case Predicate() as predicate:
                yield predicate


def _aliases(query: Query) -> Iterator[Fault]:
    elements = [query.start, *(part for step in query.steps for part in (step.edge, step.node))]
    yield from _twice("duplicate query alias", [(element.alias, element.at) for element in elements])


def _filters(query: Query) -> Iterator[Fault]:
    for one in predicates(query.where):
        yield from _property(query, "filter", one.alias, one.at)


def _projections(query: Query) -> Iterator[Fault]:
    for one in query.projections:
        if one.alias is not None and one.name is not None:
            yield from _property(query, "projection", one.alias, one.at)
        elif one.alias is not None and one.alias not in _known(query):
            yield f"unknown projection alias: {one.alias}", one.at


def _outputs(query: Query) -> Iterator[Fault]:
    yield from _twice("duplicate projection output name", [(one.output, one.at) for one in query.projections])


def _grouping(query: Query) -> Iterator[Fault]:
    plain = [one for one in query.projections if one.aggregate is None]
    if plain and len(plain) < len(query.projections) and not query.group:
        yield "aggregate and non-aggregate projections require explicit grouping", plain[0].at
    for key in query.group:
        yield from _property(query, "group", key.alias, key.at)
    if query.group:
        yield from (fault for one in plain for fault in _of_a_group(query, one))


def _of_a_group(query: Query, shown: Projection) -> Iterator[Fault]:
    """A column that is no aggregate has one value for each group only if it is a key."""
    if shown.path:
        yield "path projection cannot be mixed with aggregate projection", shown.at
    elif shown.name is None:
        yield "entity projection cannot be mixed with aggregate projection", shown.at
    elif (shown.alias, shown.name) not in _keys(query):
        yield f"non-aggregate projection must be included in GROUP BY: {shown.alias}.{shown.name}", shown.at


def _sorting(query: Query) -> Iterator[Fault]:
    outputs = {one.output for one in query.projections}
    for key in query.order:
        if key.name is not None:
            yield from _property(query, "sort", key.alias, key.at)
            yield from _sortable(query, key)
        elif key.alias not in outputs:
            yield f"unknown sort column: {key.alias}", key.at


def _sortable(query: Query, key: SortKey) -> Iterator[Fault]:
    """Rows that stand for many matches have one value only of what they were made of."""
    shown = {(one.alias, one.name) for one in query.projections if one.aggregate is None}
    spelt = f"{key.alias}.{key.name}"
    if query.distinct and (key.alias, key.name) not in shown:
        yield f"a sort key of DISTINCT rows must be one of their columns: {spelt}", key.at
    elif _aggregated(query) and (key.alias, key.name) not in _keys(query):
        yield f"a sort key of grouped rows must be in GROUP BY or an output column: {spelt}", key.at


def _property(query: Query, where: str, alias: str, at: int) -> Iterator[Fault]:
    known = _known(query)
    if alias not in known:
        yield f"unknown {where} alias: {alias}", at
    elif not known[alias]:
        yield f"a path of several hops has no properties: {alias}", at


def _known(query: Query) -> dict[str, bool]:
    """Return the aliases, and whether each is a single element."""
    return {node.alias: True for node in query.nodes} | {edge.alias: edge.one for edge in query.edges}


def _keys(query: Query) -> set[tuple[str | None, str | None]]:
    return {(key.alias, key.name) for key in query.group}


def _aggregated(query: Query) -> bool:
    return bool(query.group) or any(one.aggregate is not None for one in query.projections)


def _twice(message: str, named: Iterable[tuple[str, int]]) -> Iterator[Fault]:
    seen = set[str]()
    for name, at in named:
        if name in seen:
            yield f"{message}: {name}", at
        seen.add(name)
