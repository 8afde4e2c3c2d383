"""What the tool `queryKnowledgeGraph` takes on one graph in PostgreSQL and in Neo4j: `python -m tests.bench.match`.

A seeded graph with hubs among the targets. Times are those of the whole call, from the arguments to the text that an agent is
shown, in this process; a published graph would also be pinned. PostgreSQL answers under row security, as for a tenant of the
service. A question has 10 s; one that ran out of them is counted, and its time is among the others.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import anyio
import numpy as np
from anyio import to_thread

sys.path.insert(0, str(Path(__file__).parents[2]))

from pipeline.deadline import Deadline
from pipeline.generations.rows import stored
from pipeline.graphs.parts import GraphPart, GraphRef
from pipeline.graphtools.refusal import Code
from pipeline.graphtools.source import MOST_ROWS, KnowledgeSource, OneGraph, SourceSet
from pipeline.graphtools.tools import KnowledgeGraphTools
from pipeline.tenancy import apart
from schemas.exposed import EdgeType, ExposedProperty, GraphSchema, NodeType, PropertyType
from schemas.graph import Entity, Relation, Scalar
from schemas.ids import CorpusId, entity_id, entity_no, graph_id
from tests.bench.bench import Bench, Figure, asked, load, opened, percentile, scratch
from tests.bench.stores import neo4j
from tests.match_stores import ENTITY, RELATION
from worker.app import Sapwood

STORES = ("postgres", "neo4j")
NAME, TENANT, FENCE = "match", "default", 1
TIMEOUT = 10.0
"""Seconds of a question."""

PATIENCE = 60.0
"""Seconds after which no further question of a kind is asked."""

LOADING = 900.0
"""Seconds that a store may take to load the graph."""

PART = 10_000
"""Rows that are written at a time."""

NAMED, WHOLE, COMPARED = 100, 10, 20
"""Questions from a named entity, questions over the whole graph, and pairs of whole answers that are compared."""

KNOWS = "knows"
KINDS = {KNOWS: 0.6, "works at": 0.3, "visited": 0.1}
"""The types of relations, and how many of all they are."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Graph:
    """What both stores are given."""

    entities: Sequence[Entity]
    relations: Sequence[Relation]

    def edges(self, kind: str) -> set[tuple[str, str]]:
        """Return the names of the ends of all relations of a type."""
        names = {one.entity_no: one.name for one in self.entities}
        return {(names[one.source], names[one.target]) for one in self.relations if one.type == kind}


@dataclass(frozen=True, slots=True)
class Case:
    """A kind of question. `named`: it begins at an entity, each time another one. `whole`: its answers can be read whole."""

    what: str
    text: str
    named: bool = True
    whole: bool = True


ANY = "[:KNOWS|WORKS_AT|VISITED]"
CASES = (
    Case("1 hop from a name", f"MATCH (a:Thing {{name: :name}})-{ANY}->(b:Thing) RETURN b"),
    Case("2 hops from a name", f"MATCH (a:Thing {{name: :name}})-{ANY}->(b:Thing)-{ANY}->(c:Thing) RETURN c"),
    Case(
        "3 hops from a name",
        f"MATCH (a:Thing {{name: :name}})-{ANY}->(b:Thing)-{ANY}->(c:Thing)-{ANY}->(d:Thing) RETURN d",
    ),
    Case("*1..3 from a name", f"MATCH (a:Thing {{name: :name}})-{ANY[:-1]}*1..3]->(b:Thing) RETURN PATH AS found"),
    Case("count(*) of a type", "MATCH (a:Thing)-[:KNOWS]->(b:Thing) RETURN COUNT(*) AS n", named=False),
    Case(
        "first page of a type",
        "MATCH (a:Thing)-[:KNOWS]->(b:Thing) RETURN a.name AS source, b.name AS target",
        named=False,
        whole=False,
    ),
    Case(
        "GROUP BY over a type",
        "MATCH (a:Thing)-[:KNOWS]->(b:Thing) RETURN b.city AS city, COUNT(*) AS n GROUP BY b.city ORDER BY n DESC",
        named=False,
    ),
)


@dataclass(slots=True)
class Asked:
    """What a store made of a kind of question: the seconds of each, and how many ran out of time."""

    seconds: list[float]
    late: int = 0

    @property
    def shown(self) -> str:
        """Return p50 and p95."""
        times = [percentile(self.seconds, percent) * 1000 for percent in (50, 95)]
        return " / ".join(f"{one:.{0 if one >= 100 else 1}f}" for one in times) + " ms"


def graph_of(entities: int, relations: int, seed: int = 23) -> Graph:
    """Return people and places, and distinct relations from anyone to a few hubs and many others."""
    rng = np.random.default_rng(seed)
    drawn = relations + relations // 5
    sources = rng.integers(0, entities, drawn)
    targets = np.minimum((rng.pareto(1.0, drawn) * entities / 50).astype(np.int64), entities - 1)
    kinds = rng.choice(len(KINDS), drawn, p=list(KINDS.values()))
    rows = np.unique(np.stack([sources, targets, kinds], axis=1), axis=0)
    kept: list[list[int]] = rng.permutation(rows)[:relations].tolist()
    nodes = [_entity(number) for number in range(entities)]
    names, since = list(KINDS), [{"since": 1970 + year} for year in range(50)]
    edges = [
        Relation(nodes[one].entity_no, nodes[two].entity_no, names[kind], 0.5, 1, since[(one + two) % len(since)])
        for one, two, kind in kept
    ]
    return Graph(nodes, edges)


def _entity(number: int) -> Entity:
    kind, key = "person" if number % 3 else "place", f"entity {number}"
    public = entity_id(kind, key)
    properties: dict[str, Scalar] = {"age": number % 90, "city": f"City {number % 500}"}
    text = f"What is known of entity {number}, in a sentence."
    return Entity(entity_no(public), public, kind, key, f"Entity {number}", text, 1 + number % 7, 1, properties)


def schema() -> GraphSchema:
    """Return what agents may ask: all of it."""
    name, city = ExposedProperty(name="name"), ExposedProperty(name="city")
    age, since = (ExposedProperty(name=one, type=PropertyType.INT64) for one in ("age", "since"))
    types = [EdgeType(type=kind.upper().replace(" ", "_"), stored=(kind,), properties=(since,)) for kind in KINDS]
    thing = NodeType(label="Thing", stored=("person", "place"), properties=(name, city, age))
    return GraphSchema(node_types=(thing,), edge_types=tuple(types))


async def load_postgres(bench: Bench, app: Sapwood, graph: Graph) -> GraphRef:
    """Write the rows of a generation, as they are after an index run."""
    started, deadline = time.perf_counter(), Deadline.after(LOADING)
    async with app.services.pool.transaction(deadline) as tx:
        corpus = await tx.fetchval("insert into corpus (name) values ($1) returning corpus_id", NAME)
        scope = corpus, 1, None
        for entities in parts(graph.entities):
            await tx.copy("entity", ENTITY, [(*scope, *entity_row(one)) for one in entities])
        for relations in parts(graph.relations):
            await tx.copy("relation", RELATION, [(*scope, *relation_row(one)) for one in relations])
    async with app.services.pool.connection(deadline) as tx:
        await tx.execute("analyze entity, relation")
    took = time.perf_counter() - started
    size = await asked(app, "select pg_total_relation_size('entity') + pg_total_relation_size('relation')")
    shown = f"{took:.1f} s, {size / 2**20:.0f} MiB with indexes"
    bench.add(Figure("postgres: loaded", shown, note=f"copied and analyzed; load {load()}"))
    return GraphRef(CorpusId(corpus), 1, NAME, graph_id(uuid.uuid4().hex, 1))


def entity_row(one: Entity) -> tuple[object, ...]:
    counts = one.mentions, one.chunks
    return one.entity_no, one.entity_id, one.type, one.key, one.name, one.description, *counts, stored(one.properties)


def relation_row(one: Relation) -> tuple[object, ...]:
    return one.source, one.target, one.type, one.weight, one.evidence, stored(one.properties)


async def load_neo4j(bench: Bench, app: Sapwood, graph: Graph, ref: GraphRef) -> None:
    """Write and seal the graph as an index run does, and insist that all of it is there."""
    store, deadline = app.services.stores.graphs["neo4j"], Deadline.after(LOADING)
    started = time.perf_counter()
    await store.open(ref, FENCE, deadline)
    for entities in parts(graph.entities):
        await store.write(ref, FENCE, GraphPart(entities=entities), deadline)
    for relations in parts(graph.relations):
        await store.write(ref, FENCE, GraphPart(relations=relations), deadline)
    written = time.perf_counter() - started
    totals = await store.seal(ref, FENCE, deadline)
    took = time.perf_counter() - started
    if (totals.entities, totals.relations) != (len(graph.entities), len(graph.relations)):
        raise RuntimeError(f"Neo4j has {totals}")
    if totals.stray_nodes or totals.stray_relations:
        raise RuntimeError(f"Neo4j has strays: {totals}")
    note = f"{written:.1f} s written, {took - written:.1f} s sealed and counted; load {load()}"
    bench.add(Figure("neo4j: loaded", f"{took:.1f} s", note=note))


def parts(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield the rows, some at a time."""
    for start in range(0, len(rows), PART):
        yield rows[start : start + PART]


async def answered(tools: KnowledgeGraphTools, store: str, case: Case, name: str, size: int | None) -> str | None:
    """Return the answer to a question, or None if it ran out of time."""
    text = await tools.query(store, case.text, {"name": name} if case.named else None, size)
    if text.startswith(f"Error: {Code.QUERY_TIMEOUT.value}"):
        return None
    if text.startswith("Error"):
        raise RuntimeError(f"{store}: {text}")
    return text


async def timed(tools: KnowledgeGraphTools, store: str, case: Case, names: Sequence[str]) -> Asked:
    """Ask from these entities, after a first tenth that warms the store up and is not counted."""
    found, until = Asked([]), time.perf_counter() + PATIENCE
    for name in names[: -(-len(names) // 10)]:
        await answered(tools, store, case, name, None)
    for name in names:
        if found.seconds and time.perf_counter() > until:
            break
        started = time.perf_counter()
        text = await answered(tools, store, case, name, None)
        found.seconds.append(time.perf_counter() - started)
        found.late += text is None
    return found


@dataclass(slots=True)
class Agreement:
    """Pairs of answers that were compared, those that agree, and the rows that were in them."""

    pairs: int = 0
    equal: int = 0
    rows: int = 0


async def compared(tools: KnowledgeGraphTools, case: Case, names: Sequence[str], graph: Graph) -> Agreement:
    """Compare answers as far as both stores gave one: whole, in any order; of those that are too long, a page.

    Which rows are on the first page is up to the store, where no order is asked for. So each has to be full, of rows that
    differ and are in the graph.
    """
    found = Agreement()
    size = MOST_ROWS if case.whole else None
    edges = set[tuple[str, str]]() if case.whole else await to_thread.run_sync(graph.edges, KNOWS)
    for name in names:
        texts = [await answered(tools, store, case, name, size) for store in STORES]
        one, two = (None if text is None else json.loads(text) for text in texts)
        if one is None or two is None:
            continue
        found.pairs += 1
        found.rows += len(one["records"])
        found.equal += same(one, two) if case.whole else right(one, edges) and right(two, edges)
    return found


def same(one: Any, two: Any) -> bool:
    """Whether two answers are whole and have the same rows."""
    rows = [sorted(json.dumps(row, sort_keys=True) for row in answer["records"]) for answer in (one, two)]
    return rows[0] == rows[1] and not one["metadata"]["truncated"] and not two["metadata"]["truncated"]


def right(page: Any, edges: set[tuple[str, str]]) -> bool:
    """Whether a page is full, unless that is all there is, and of different edges that exist."""
    rows = {(row["source"], row["target"]) for row in page["records"]}
    full = page["metadata"]["hasNext"] or len(rows) == len(edges)
    return bool(full and len(rows) == len(page["records"]) and rows <= edges)


async def ask(bench: Bench, tools: KnowledgeGraphTools, graph: Graph, wanted: int) -> None:
    """Ask every kind of question of both stores."""
    total = Agreement()
    random = Random(29)
    for case in CASES:
        many = wanted if case.named else max(1, wanted * WHOLE // NAMED)
        names = [one.name for one in random.sample(graph.entities, min(many, len(graph.entities)))]
        times = {store: await timed(tools, store, case, names) for store in STORES}
        sample = names[:COMPARED] if case.named else names[:1]
        agreement = await compared(tools, case, sample, graph)
        total.pairs, total.equal = total.pairs + agreement.pairs, total.equal + agreement.equal
        shown = ", ".join(f"{store} {one.shown}" for store, one in times.items())
        counts = ", ".join(str(len(one.seconds)) for one in times.values())
        late = ", ".join(str(one.late) for one in times.values())
        rows = f"rows {agreement.rows / max(1, agreement.pairs):.0f}"
        equal = f"equal {agreement.equal} of {agreement.pairs}"
        bench.add(Figure(case.what, shown, note=f"n {counts}; late {late}; {rows}; {equal}; load {load()}"))
    shown = f"{total.equal} of {total.pairs}"
    bench.add(Figure("answers, equal", shown, float(total.equal), float(total.pairs), "answers", at_least=True))


async def run(bench: Bench) -> None:
    """Measure."""
    await (measure(bench, 10_000, 50_000, NAMED // 5) if bench.quick else measure(bench, 100_000, 500_000, NAMED))


async def measure(bench: Bench, entities: int, relations: int, wanted: int) -> None:
    """Measure on a graph of this size, with so many questions of a kind."""
    graph = await to_thread.run_sync(graph_of, entities, relations)
    shown = f"{len(graph.entities):,} entities, {len(graph.relations):,} relations"
    hub = max(np.unique([one.target for one in graph.relations], return_counts=True)[1])
    bench.add(Figure("graph", shown, note=f"{hub:,} relations end at the largest hub"))
    async with neo4j(bench) as server, opened(bench, **server.settings) as app:
        ref = await load_postgres(bench, app, graph)
        await load_neo4j(bench, app, graph, ref)
        make = partial(KnowledgeSource, schema=schema(), graphs=OneGraph(ref), timeout=TIMEOUT, max_page_size=MOST_ROWS)
        match = app.services.agents.match
        tools = KnowledgeGraphTools(SourceSet([make(one, one, executor=match[one]) for one in STORES]))
        with apart(TENANT):
            await ask(bench, tools, graph, wanted)
    size = await to_thread.run_sync(server.mib)
    bench.add(Figure("neo4j: size of the database", f"{size:.0f} MiB", note="the graph and its indexes"))


def main() -> None:
    """Measure with sizes of one's own."""
    from tests.bench.run import show

    parser = argparse.ArgumentParser(description="The tool queryKnowledgeGraph on PostgreSQL and on Neo4j.")
    parser.add_argument("--entities", type=int, default=100_000)
    parser.add_argument("--relations", type=int, help="five for each entity where not given")
    parser.add_argument("--questions", type=int, default=NAMED, help="of each kind from a name; a tenth of the others")
    args = parser.parse_args()
    with scratch() as at:
        bench = Bench(at)
        anyio.run(measure, bench, args.entities, args.relations or 5 * args.entities, args.questions)
    show(bench.figures)


if __name__ == "__main__":
    main()
