"""An index run, step by step: plan, batches, entities and relations, communities, promotion.

Each step is one unit of work under a lease and ends in one fenced transaction; a worker that takes over starts the step
anew and finds nothing half done. Steps of the root run: PLAN → (batches) → (LINK) → DERIVE → (FOLLOW) → CLUSTER → PROMOTE,
where LINK is for code graphs and FOLLOW for corpora that use a store outside of PostgreSQL.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from enum import IntEnum
from typing import Any

import anyio.to_thread

from pipeline.building import Building
from pipeline.codegraph.linking import Linkers, Linking
from pipeline.deadline import Deadline
from pipeline.errors import InvalidRequest
from pipeline.generations.gate import Extracted, check_ceiling, policy_of
from pipeline.generations.manifest import Draft
from pipeline.ingest import communities
from pipeline.ingest.batch import BatchPipeline, BatchResult, Recipe
from pipeline.ingest.communities import Graph, Partition, Path
from pipeline.ingest.summaries import MEMBERS_SHOWN, Named, known, summarised
from pipeline.plan import BATCH_BYTES, CODE_BATCH_BYTES, Plan, batches, plan
from pipeline.ports import FencedTx, Tx
from pipeline.projection import Projection
from pipeline.retrieval.analyzer import FINGERPRINT as ANALYZER
from pipeline.runs import Work
from schemas.documents import DocumentOutcome, Outcome
from schemas.events import Documents, Planned, Progress, Promoted, Unchanged
from schemas.graph import Community
from schemas.ids import CorpusId
from schemas.manifest import CodeGraph, Manifest, OverrideRequest
from schemas.payloads import BatchPayload, IndexPayload, batch_payload
from schemas.runs import Lease, RunState
from schemas.settings import CODE_KEYS, CorpusSettings

CALL = 30.0
"""Seconds that reading the plan's or the graph's inputs may take."""

NOTABLE = 100
"""Documents that one event names at most; the accounting has them all."""

CLUSTERED = {"clustering": communities.FINGERPRINT}
"""What a run notes in its result: by what its generation's communities were found."""


class Step(IntEnum):
    """Where an index run is. A batch has the one step PLAN."""

    PLAN = 0
    DERIVE = 1
    CLUSTER = 2
    PROMOTE = 3
    FOLLOW = 4
    LINK = 5


class Indexer:
    """The handlers of index runs and their batches. One instance serves all corpora of a process.

    `around` is opened around each step, by its name; `paid` is told what each batch counted, be it written or not.
    """

    def __init__(
        self,
        building: Building,
        batch: BatchPipeline,
        projection: Projection,
        linkers: Linkers,
        around: Callable[[str], AbstractContextManager[object]] = nullcontext,
        paid: Callable[[Mapping[str, int]], None] = lambda counts: None,
    ) -> None:
        self._around = around
        self._paid = paid
        self._building = building
        self._batch = batch
        self._projection = projection
        self._linkers = linkers
        self._steps = {
            Step.PLAN: self._plan,
            Step.LINK: self._link,
            Step.DERIVE: self._derive,
            Step.FOLLOW: self._follow,
            Step.CLUSTER: self._cluster,
            Step.PROMOTE: self._promote,
        }

    async def index(self, work: Work) -> None:
        """Go on with an index run from its step to its end, or to where its batches have to be done first."""
        payload = IndexPayload.model_validate(work.lease.payload)
        while not work.done:
            step = Step(work.lease.step)
            with self._around(step.name.lower()):
                await self._steps[step](work, payload)

    async def batch(self, work: Work) -> None:
        """Index some documents."""
        payload = BatchPayload.model_validate(work.lease.payload)
        lease = work.lease
        ids = [item.document_id for item in payload.items]
        known = await self._building.corpora.known_some(lease.corpus_id, ids, _within(work))
        result = await self._batch.run(lease.corpus_id, payload, known, work.deadline)
        self._paid(result.telemetry)
        number, rows, settings = payload.generation, self._building, payload.settings
        await self._projection.write_vectors(lease, settings, payload.collection, result.documents, number)
        collection = payload.collection if settings.dense_storage.backend == "pgvector" else None
        async with work.fenced() as tx:
            await rows.remove_documents(tx, lease.corpus_id, number, result.gone)
            await rows.write_batch(tx, lease.corpus_id, number, collection, result.documents)
            await rows.accounting.restat(tx, lease.corpus_id, result.restat)
            await rows.accounting.add_outcomes(tx, lease.root_id, result.outcomes)
            await rows.accounting.set_result(tx, lease.run_id, result.telemetry)
            tx.event(_documents(result))
            tx.finish(RunState.COMPLETED)

    async def _plan(self, work: Work, payload: IndexPayload) -> None:
        corpus, building = work.lease.corpus_id, self._building
        recipe = await self._batch.recipe(payload.settings, work.deadline)
        await building.undo_orphans(corpus, _within(work))
        sources = payload.sources
        if sources is None:
            sources = tuple(await building.corpora.sources(corpus, _within(work)))
        if not sources:
            raise InvalidRequest("This corpus has no sources yet; name a folder, a file or a URL.")
        listing = await self._batch.listing(sources, work.deadline)
        known = await building.corpora.known(corpus, _within(work))
        left_out = frozenset(one.document_id for one in listing.skipped)
        todo = plan(listing.items, left_out, known, recipe.fingerprint)
        self._batch.expect(len(todo.to_do))
        removed = [DocumentOutcome(name, Outcome.REMOVED) for name in todo.removed if name not in left_out]
        settled = [*listing.skipped, *removed]
        async with work.fenced() as tx:
            await building.accounting.remember_sources(tx, corpus, sources)
            await building.accounting.add_outcomes(tx, work.lease.run_id, settled)
            current = await building.accounting.current(tx, corpus)
            idle = not todo.to_do and not todo.removed and not await self._regroups(tx, corpus, payload)
            if idle and current and current.revisions == dict(listing.revisions):
                await building.accounting.set_result(tx, work.lease.run_id, {"unchanged": len(todo.unchanged)})
                tx.event(await self._unchanged(tx, work, current))
                tx.finish(RunState.COMPLETED)
            else:
                await self._open(tx, work, payload, recipe, todo, len(settled), listing.revisions)

    async def _open(
        self,
        tx: FencedTx,
        work: Work,
        payload: IndexPayload,
        recipe: Recipe,
        todo: Plan,
        settled: int,
        revisions: Sequence[tuple[str, str]],
    ) -> None:
        """Begin the generation, end what vanished, and hand out the rest as batches."""
        corpus, building = work.lease.corpus_id, self._building
        number = await building.begin(tx, corpus, work.lease.run_id)
        store = payload.settings.dense_storage.backend
        collection = await building.ensure_collection(tx, corpus, number, store, recipe.embedding, recipe.dimension)
        await building.remove_documents(tx, corpus, number, todo.removed)
        await building.accounting.set_result(
            tx,
            work.lease.run_id,
            {
                "collection": collection,
                "dimension": recipe.dimension,
                "embedding": recipe.embedding,
                "unchanged": len(todo.unchanged),
                "revisions": dict(revisions),
            },
        )
        settings = payload.settings.model_dump(mode="json")
        code = policy_of(payload.settings) == "code"
        units = [
            batch_payload(payload.corpus, number, collection, settings, items, payload.traceparent)
            for items in batches(todo.to_do, CODE_BATCH_BYTES if code else BATCH_BYTES)
        ]
        tx.event(
            Planned(
                generation=number,
                seen=len(todo.to_do) + len(todo.unchanged) + settled,
                to_do=len(todo.to_do),
                unchanged=len(todo.unchanged),
                removed=len(todo.removed),
                batches=len(units),
            )
        )
        then = Step.LINK if code else Step.DERIVE
        tx.advance(then, number)
        if units:
            tx.spawn(units, then)

    async def _unchanged(self, tx: FencedTx, work: Work, current: Manifest) -> Unchanged:
        counts = await self._building.accounting.outcome_counts(tx, work.lease.run_id)
        return Unchanged(generation=current.generation, outcomes=counts)

    async def _same(self, tx: FencedTx, work: Work, payload: IndexPayload) -> Promoted | Unchanged | None:
        """Return how a run ends that changed no document: nothing is published but, where repositories moved to other
        revisions, the current generation once more. None if documents changed, or communities have to be found anew.
        """
        corpus, number, accounting = work.lease.corpus_id, _number(work), self._building.accounting
        current = await accounting.current(tx, corpus)
        if current is None or await accounting.touched(tx, corpus, number):
            return None
        alike = await self._building.grouped_alike(tx, corpus, grouping(payload.settings))
        result = await accounting.get_result(tx, work.lease.run_id)
        revisions: dict[str, str] = result.get("revisions") or {}
        if current.revisions == revisions and alike is not False:
            await accounting.withdraw(tx, corpus, number)
            return await self._unchanged(tx, work, current)
        if not alike:
            return None
        await accounting.set_result(tx, work.lease.run_id, {**result, **CLUSTERED})
        outcomes = await accounting.outcome_counts(tx, work.lease.run_id)
        return _promoted(await self._building.republish(tx, corpus, number, work.lease.run_id, outcomes, revisions))

    async def _link(self, work: Work, payload: IndexPayload) -> None:
        """Bring the links between source files up to the generation; what is found is written in one transaction."""
        corpus, number, building = work.lease.corpus_id, _number(work), self._building

        async def report(done: int, total: int) -> None:
            async with work.fenced() as tx:
                tx.event(Progress(stage="code links", done=done, total=total))

        def reading() -> AbstractAsyncContextManager[Tx]:
            return building.reading(_within(work))

        found = await Linking(building.links, corpus, number, reading, report, self._linkers).difference()
        async with work.fenced() as tx:
            await building.accounting.expect_many(tx, corpus, number)
            await building.links.write(tx, corpus, number, weights_of(payload.settings), found)
            tx.event(Progress(stage="code links written", done=found.rows, total=0))
            tx.advance(Step.DERIVE)

    async def _derive(self, work: Work, payload: IndexPayload) -> None:
        async with work.fenced() as tx:
            end = await self._same(tx, work, payload)
            if end is None:
                await self._derived(tx, work, payload)
            else:
                tx.event(end)
                tx.finish(RunState.COMPLETED)
        if isinstance(end, Promoted):
            self._building.promoted(work.lease.corpus_id, end.generation)

    async def _derived(self, tx: FencedTx, work: Work, payload: IndexPayload) -> None:
        corpus, number, building = work.lease.corpus_id, _number(work), self._building
        await building.accounting.expect_many(tx, corpus, number)
        policy = policy_of(payload.settings)
        chunks = await building.accounting.live_chunks(tx, corpus)
        check_ceiling(policy, chunks, payload.settings.graph_indexing.semantic_kg_max_chunks)
        result = await building.accounting.get_result(tx, work.lease.run_id)
        derived = await building.derive(tx, corpus, number)
        rows = derived.entities + derived.relations
        await building.accounting.set_result(tx, work.lease.run_id, {**result, "edges": derived.edges, "derived": rows})
        tx.event(Progress(stage="graph", done=rows, total=0))
        tx.advance(Step.FOLLOW if self._projection.needed(payload.settings) else Step.CLUSTER)

    async def _follow(self, work: Work, payload: IndexPayload) -> None:
        """Bring the stores outside of PostgreSQL up to the generation; what they hold of it is found again by the next try."""
        corpus, number, settings = work.lease.corpus_id, _number(work), payload.settings
        async with self._building.reading(_within(work)) as tx:
            result = await self._building.accounting.get_result(tx, work.lease.run_id)
        followed = await self._projection.follow_vectors(
            corpus, number, settings, result["collection"], result["dimension"]
        )

        async def report(done: int, total: int) -> None:
            async with work.fenced() as tx:
                tx.event(Progress(stage=f"{settings.graph_storage.backend} graph", done=done, total=total))

        await self._projection.follow_graph(work.lease, number, settings, report)
        found = {"dense_rows": followed.dense_rows, "void": followed.void}
        async with work.fenced() as tx:
            await self._building.accounting.set_result(tx, work.lease.run_id, {**result, **found})
            tx.advance(Step.CLUSTER)

    async def _cluster(self, work: Work, payload: IndexPayload) -> None:
        corpus, number = work.lease.corpus_id, _number(work)
        building, elsewhere = self._building, _elsewhere(payload.settings)
        async with building.reading(_within(work)) as tx:
            many = await building.accounting.expect_many(tx, corpus, number)
            result = await building.accounting.get_result(tx, work.lease.run_id)
            alike = await building.grouped_alike(tx, corpus, grouping(payload.settings)) is True
            same = alike and not result["edges"]
            among = await building.lone_changes(tx, corpus, number) if same and not elsewhere else None
            stored = await building.stored_communities(tx, corpus, number, among)
            graph = await building.read_graph(tx, corpus, number, among)
        found: list[Partition] = []
        async with anyio.create_task_group() as group:
            if many:  # before anybody reads the generation; it costs no time beside the clustering
                group.start_soon(self._analyze, work)
            found.append(await self._group(work, payload, graph, stored.paths if alike else {}, same))
        [partition] = found
        holds = alike and not elsewhere
        described, failed = await self._describe(work, payload, graph, partition, stored.named, holds)
        held: dict[str, int] = {}
        if elsewhere:
            paths = dict(zip(partition.entities.tolist(), partition.paths, strict=True))
            held = await self._projection.place(work.lease, number, payload.settings, paths)
        async with work.fenced() as tx:
            rows = await building.write_communities(tx, corpus, number, partition, described, stored)
            figures = {"modularity": partition.modularity, "summaries_failed": failed, "graph_rows": held}
            await building.accounting.set_result(tx, work.lease.run_id, {**result, **figures, **CLUSTERED})
            tx.event(Progress(stage="communities", done=rows, total=len(described)))
            tx.advance(Step.PROMOTE)

    async def _group(
        self, work: Work, payload: IndexPayload, graph: Graph, paths: dict[int, Path], same: bool
    ) -> Partition:
        """Return the communities of a graph: by the `paths` of the generation before, given where it was grouped alike, if the
        relations are the `same`, else clustered, in the graph's store or here.
        """
        most, elsewhere = payload.settings.graph_indexing.max_cluster_size, _elsewhere(payload.settings)
        if same:
            limit = None if elsewhere else most
            recalled = await anyio.to_thread.run_sync(communities.recall, graph.entities, paths, limit)
            if recalled is not None:
                return recalled
        clusters = await self._projection.cluster(work.lease.corpus_id, _number(work), payload.settings)
        if clusters is not None:
            return await anyio.to_thread.run_sync(communities.partition, graph.entities, clusters)
        return await anyio.to_thread.run_sync(communities.regroup, graph, paths, most)

    async def _describe(
        self,
        work: Work,
        payload: IndexPayload,
        graph: Graph,
        partition: Partition,
        stored: Mapping[int, Named],
        holds: bool,
    ) -> tuple[list[Community], int]:
        """Return the communities with their names and summaries, and how many a model failed to write; `holds`: what is stored
        is true of all of which no member was touched.
        """
        summariser = self._batch.summariser(payload.settings)
        before = known(stored, summariser) if holds else {}
        anew = await anyio.to_thread.run_sync(communities.undescribed, partition, before, graph.touched)
        shown = communities.LEADERS if summariser is None else MEMBERS_SHOWN
        foremost = await anyio.to_thread.run_sync(communities.foremost, anew, graph, shown)
        async with self._building.reading(_within(work)) as tx:
            labels = await self._building.read_labels(tx, work.lease.corpus_id, foremost)
        described = await anyio.to_thread.run_sync(communities.described, partition, graph, anew, labels, before)
        if summariser is None:
            return described, 0
        return await summarised(graph, labels, described, stored, summariser, work.deadline)

    async def _promote(self, work: Work, payload: IndexPayload) -> None:
        corpus, number, lease = work.lease.corpus_id, _number(work), work.lease
        recipe = await self._batch.recipe(payload.settings, work.deadline)
        graph = await self._projection.graph_id(corpus, number)
        async with work.fenced() as tx:
            accounting = self._building.accounting
            outcomes = await accounting.outcome_counts(tx, lease.run_id)
            await accounting.expect_many(tx, corpus, number)
            result = await accounting.get_result(tx, lease.run_id)
            parts = await accounting.batch_results(tx, lease.run_id)
            code = await self._building.code_figures(tx, corpus) if policy_of(payload.settings) == "code" else None
            draft = draft_of(work.lease, payload, recipe, result, parts, outcomes, graph, code)
            manifest = await self._building.promote(tx, corpus, number, draft)
            tx.event(_promoted(manifest))
            tx.finish(RunState.COMPLETED)
        self._building.promoted(corpus, number)

    async def _regroups(self, tx: Tx, corpus: CorpusId, payload: IndexPayload) -> bool:
        """Whether the settings ask for other communities than the current generation has."""
        return await self._building.grouped_alike(tx, corpus, grouping(payload.settings)) is False

    async def _analyze(self, work: Work) -> None:
        async with self._building.reading(_within(work)) as tx:
            await self._building.accounting.analyze(tx)


def _promoted(manifest: Manifest) -> Promoted:
    counts = {name: check.rows for name, check in manifest.stores.items()}
    counts["communities"] = manifest.communities
    return Promoted(generation=manifest.generation, counts=counts, outcomes=manifest.outcomes)


def grouping(settings: CorpusSettings) -> dict[str, Any]:
    """Return what decides which communities a graph has, as it stands in the payload and the result of a run.

    The settings of code graphs are left out where they say nothing: a run from before them did not have them. Another store
    groups as its library does, whatever we do here.
    """
    values = settings.model_dump(mode="json", include={"graph_indexing", "graph_storage"})
    if not settings.graph_indexing.build_code_graph:
        for name in CODE_KEYS:
            del values["graph_indexing"][name]
    return values if _elsewhere(settings) else {**values, **CLUSTERED}


def _elsewhere(settings: CorpusSettings) -> bool:
    """Whether the graph lies in another store than PostgreSQL."""
    return settings.graph_storage.backend != "postgres" and settings.graph_indexing.enabled


def draft_of(
    lease: Lease,
    payload: IndexPayload,
    recipe: Recipe,
    result: dict[str, Any],
    parts: Sequence[dict[str, Any]],
    outcomes: dict[str, int],
    graph: str,
    code: CodeGraph | None = None,
) -> Draft:
    """Return what the run knows of itself: the sums over its batches, what its steps left in `result`, the graph's id."""
    sums: Counter[str] = Counter()
    for part in parts:
        sums.update(part)
    settings = payload.settings
    return Draft(
        run_id=lease.run_id,
        collection=result["collection"],
        dimension=result["dimension"],
        graph_id=graph,
        dense_store=settings.dense_storage.backend,
        dense_rows=result.get("dense_rows"),
        graph_store=settings.graph_storage.backend if _elsewhere(settings) else "postgres",
        graph_rows=result.get("graph_rows") or {},
        void=tuple(result.get("void") or ()),
        policy=policy_of(settings),
        embedding=result["embedding"],
        provider=settings.embedding,
        extraction=recipe.extraction,
        analyzer=ANALYZER,
        outcomes=outcomes,
        extracted=Extracted(sums["selected"], sums["attempted"], sums["succeeded"], sums["failed"], sums["truncated"]),
        contexts=sums["contexts"],
        failed_contexts=sums["contexts_failed"],
        input_tokens=sums["input_tokens"],
        output_tokens=sums["output_tokens"],
        modularity=result.get("modularity"),
        sparse=settings.graph_indexing.sparse,
        paid=recipe.paid,
        override=OverrideRequest(actor=payload.actor, reason=payload.reason)
        if payload.actor or payload.reason
        else None,
        code=code,
        revisions=result.get("revisions") or {},
    )


def weights_of(settings: CorpusSettings) -> dict[str, float]:
    """Return the weights of a code graph's edges by kind."""
    graph = settings.graph_indexing
    return {
        "inherits": graph.ast_inherits_weight,
        "imports": graph.ast_imports_weight,
        "calls": graph.ast_calls_weight,
    }


def _documents(result: BatchResult) -> Documents:
    plain = (Outcome.INDEXED, Outcome.UNCHANGED)
    notable = [one for one in result.outcomes if one.outcome not in plain or one.reason]
    return Documents(
        counts=dict(Counter(str(o.outcome) for o in result.outcomes)),
        notable=tuple((one.document_id, str(one.outcome), one.reason) for one in notable[:NOTABLE]),
        chunks=sum(o.chunks for o in result.outcomes if o.outcome is Outcome.INDEXED),
        input_tokens=result.telemetry["input_tokens"],
        output_tokens=result.telemetry["output_tokens"],
    )


def _number(work: Work) -> int:
    number = work.lease.generation
    if number is None:
        raise InvalidRequest("This index run has no generation; it was not planned.")
    return number


def _within(work: Work) -> Deadline:
    return min(work.deadline, Deadline.after(CALL))
