"""Generations by number: what a reader of each number sees while others are built, undone or rolled back."""

from __future__ import annotations

from collections.abc import AsyncIterator

import orjson
import pytest

from pipeline.adapters import postgres_derive, postgres_rows
from pipeline.adapters.postgres_export import SECTIONS
from pipeline.adapters.postgres_pool import Pool, open_pool
from pipeline.deadline import Deadline
from pipeline.errors import Conflict, NotFound, PromotionConflict, PromotionRefused, StoreRefused
from pipeline.generations.manifest import collection_name
from pipeline.testing.rows import DIMENSION, FINGERPRINT, document
from tests.generation_builder import Builder

ADA = document("ada", [("person:Ada", "KNOWS", "person:Babbage")], [("person:Ada", "WROTE", "Notes")])
BOB = document("bob", [("person:Bob", "KNOWS", "person:Ada")])
BOB_2 = document("bob", [("person:Bob", "KNOWS", "person:Cy"), ("person:Bob", "", "Tea")])


@pytest.fixture
async def pool(database: str) -> AsyncIterator[Pool]:
    async with open_pool(database) as opened:
        yield opened


@pytest.fixture
async def corpus(pool: Pool) -> Builder:
    return await Builder.new(pool, "corpus")


async def test_each_generation_is_seen_whole_by_its_number(corpus: Builder) -> None:
    first = await corpus.build(ADA, BOB)
    before = await corpus.body(1)
    second = await corpus.build(BOB_2)
    third = await corpus.build(removed=["ada"])
    assert [m.generation for m in (first, second, third)] == [1, 2, 3]
    assert await corpus.body(1) == before
    assert await corpus.texts(1) == {
        "person:Ada KNOWS person:Babbage", "person:Ada WROTE Notes", "person:Bob KNOWS person:Ada",
    }  # fmt: skip
    assert await corpus.texts(2) == {
        "person:Ada KNOWS person:Babbage", "person:Ada WROTE Notes", "person:Bob KNOWS person:Cy; person:Bob Tea",
    }  # fmt: skip
    assert await corpus.texts(3) == {"person:Bob KNOWS person:Cy; person:Bob Tea"}
    assert [third.stores[s].rows for s in ("documents", "chunks", "dense", "entities", "relations")] == [1, 1, 1, 3, 1]


async def test_checks_that_follow_the_change_agree_with_a_full_count(corpus: Builder) -> None:
    for documents, removed in (((ADA, BOB), ()), ((BOB_2,), ()), ((BOB,), ("ada",)), ((ADA,), ("bob",))):
        made = await corpus.build(*documents, removed=removed)
        assert await corpus.verify(made.generation) == made.stores
    assert await corpus.verify(1) == (await corpus.generations.manifest(corpus.corpus, 1, Deadline.after(5))).stores


async def test_a_build_is_invisible_until_it_is_promoted(corpus: Builder) -> None:
    await corpus.build(ADA, BOB)
    before = await corpus.export(1)
    number, collection = await corpus.begin()
    await corpus.write(number, collection, [BOB_2], ["ada"])
    await corpus.assemble(number)
    assert await corpus.export(1) == before
    with pytest.raises(NotFound):
        await corpus.export(2)


async def test_an_aborted_build_leaves_no_trace_but_its_number(corpus: Builder) -> None:
    await corpus.build(ADA, BOB)
    before = await corpus.export(1)
    number, collection = await corpus.begin()
    await corpus.write(number, collection, [BOB_2], ["ada"])
    await corpus.assemble(number)
    for _ in range(2):
        await corpus.collector.abort(corpus.corpus, number, Deadline.after(10))
        assert await corpus.export(1) == before
        assert await corpus.verify(1) == (await corpus.generations.manifest(corpus.corpus, 1, Deadline.after(5))).stores
    assert await _rows_of(corpus, number) == 0
    assert (await corpus.build(BOB_2)).generation == 3
    states = [(g.number, g.state) for g in await corpus.generations.list(corpus.corpus, Deadline.after(5))]
    assert states == [(3, "current"), (2, "aborted"), (1, "superseded")]


async def test_aborting_a_published_generation_does_nothing(corpus: Builder) -> None:
    await corpus.build(ADA)
    before = await corpus.export(1)
    await corpus.collector.abort(corpus.corpus, 1, Deadline.after(10))
    assert await corpus.export(1) == before


async def test_a_run_begins_once_and_alone(corpus: Builder) -> None:
    number, _ = await corpus.begin("one")
    assert (await corpus.begin("one"))[0] == number
    with pytest.raises(Conflict, match="Generation 1"):
        await corpus.begin("two")


async def test_every_step_may_be_repeated(corpus: Builder) -> None:
    """A worker that died after a commit repeats its step; the rows are those of a single pass."""
    await corpus.build(ADA, BOB)
    number, collection = await corpus.begin()
    for _ in range(2):
        await corpus.write(number, collection, [BOB_2], ["ada"])
        await corpus.assemble(number)
    made = await corpus.promote(number, collection)
    assert await corpus.verify(number) == made.stores
    fresh = await Builder.new(corpus.pool, "fresh")
    await fresh.build(BOB_2)
    assert await corpus.body(number) == await fresh.body(1)


async def test_what_is_much_goes_in_pieces(corpus: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A statement for each few rows, which no cap on a statement can then stop; the rows are the same."""
    whole = await Builder.new(corpus.pool, "whole")
    for one in (whole, corpus):
        await one.build(ADA, BOB, document("pair", [("X", "KNOWS", "Y"), ("Y", "KNOWS", "person:Ada")]))
        await one.build(BOB_2, removed=["pair", "nobody", "ada"])
        monkeypatch.setattr(postgres_derive, "PAGE", 1)
        monkeypatch.setattr(postgres_rows, "SLICE", 1)
    assert await corpus.body(2) == await whole.body(2)
    assert await corpus.verify(2) == await whole.verify(2)


async def test_only_what_differs_gets_a_new_version(corpus: Builder) -> None:
    await corpus.build(ADA, document("pair", [("X", "KNOWS", "Y")]))
    await corpus.build(document("pair", [("X", "KNOWS", "Y"), ("Y", "KNOWS", "Z")]))
    async with corpus.pool.connection(Deadline.after(5)) as tx:
        born = await tx.fetch("select name from entity where born = 2 order by name")
        # Y has another mention, X is mentioned first in another chunk; Ada and Babbage are as they were
        assert [row["name"] for row in born] == ["X", "Y", "Z"]
        relations = await tx.fetchval("select count(*) from relation where born = 2")
        moved = await tx.fetch(
            "select name from membership m join entity e using (entity_no) where m.born = 2 and e.died is null"
        )
    assert relations == 1
    assert {row["name"] for row in moved} == {"X", "Y", "Z"}


async def test_facts_about_one_entity_alone_make_no_relation(corpus: Builder) -> None:
    made = await corpus.build(document("self", [("IBM", "OWNS", "ibm"), ("IBM", "SELLS", "Machines")]))
    assert [made.stores[store].rows for store in ("facts", "entities", "relations")] == [2, 2, 1]


async def test_entities_resolve_by_key_within_a_type(corpus: Builder) -> None:
    """The most frequent spelling names an entity, ties by code point; homographs of other types stay apart."""
    await corpus.build(
        document("one", [("Company:Apple", "SELLS", "Phones"), ("company:apple", "", "fruit:Apple")]),
        document("two", [("company:APPLE", "", "the phones"), ("company:apple", "Sells", "Phones")]),
    )
    lines = [orjson.loads(line) for line in await corpus.body(1)]
    entities = {(e["type"], e["name"], e["mentions"], e["chunks"]) for e in lines if e["kind"] == "entities"}
    assert entities == {("company", "apple", 4, 2), ("fruit", "Apple", 1, 1), ("thing", "Phones", 3, 2)}
    (relation,) = [line for line in lines if line["kind"] == "relations"]
    assert (relation["weight"], relation["evidence"]) == (1.0, 2)


async def test_a_rollback_publishes_an_earlier_generation_under_a_new_number(corpus: Builder) -> None:
    await corpus.build(ADA, BOB)
    await corpus.build(BOB_2, removed=["ada"])
    await corpus.build(document("cy", [("person:Cy", "LIKES", "Tea")]))
    made = await corpus.rollback(1)
    assert (made.generation, made.rolled_back_from, made.run_id) == (4, 1, "back")
    assert await corpus.body(4) == await corpus.body(1)
    assert await corpus.verify(4) == made.stores
    again = await corpus.build(BOB_2)
    assert await corpus.verify(5) == again.stores
    assert (await corpus.rollback(3, "forth")).generation == 6
    assert await corpus.body(6) == await corpus.body(3)


async def test_a_rollback_needs_a_retained_earlier_generation(corpus: Builder) -> None:
    await corpus.build(ADA)
    for target in (1, 7):
        with pytest.raises(NotFound, match=f"Generation {target} "):
            await corpus.rollback(target, f"run{target}")
        await corpus.collector.abort(corpus.corpus, await _open(corpus), Deadline.after(5))


async def test_another_embedding_lives_beside_the_old_one(corpus: Builder) -> None:
    await corpus.build(ADA, BOB)
    before = await corpus.export(1)
    made = await corpus.build(ADA, BOB, fingerprint="other-1")
    assert made.collection == collection_name(corpus.corpus, "other-1") != collection_name(corpus.corpus, FINGERPRINT)
    assert await corpus.verify(2) == made.stores
    assert await corpus.export(1) == before
    assert await corpus.body(2) == await corpus.body(1)
    back = await corpus.rollback(1)
    assert back.collection == collection_name(corpus.corpus, FINGERPRINT)
    assert await corpus.verify(3) == back.stores


async def test_a_build_with_a_missing_vector_is_refused_and_the_old_one_stays(corpus: Builder) -> None:
    await corpus.build(ADA)
    number, collection = await corpus.begin()
    await corpus.write(number, collection, [BOB])
    await corpus.assemble(number)
    async with corpus.pool.connection(Deadline.after(5)) as tx:
        await tx.execute(f'delete from "{collection}" where born = $1', number)
    with pytest.raises(PromotionRefused, match="chunk_count_mismatch"):
        await corpus.promote(number, collection)
    assert [g.state for g in await corpus.generations.list(corpus.corpus, Deadline.after(5))] == [
        "building",
        "current",
    ]
    assert await corpus.texts(1) == {"person:Ada KNOWS person:Babbage", "person:Ada WROTE Notes"}


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        ("update mention set died = 2 where born = 1 and key = 'notes'", "missing_from_chunk_provenance"),
        ("update chunk set died = 2 where born = 1 and ordinal = 1", "chunk_count_mismatch, cross_generation_node"),
        ("update entity set died = 2 where key = 'babbage'", "cross_generation_relationship, incomplete_communities"),
        (
            "insert into entity select corpus_id, entity_no, 2, null, entity_id, type, key, name, '', 1, 1 from entity "
            "where key = 'notes'",
            "unresolved_duplicate_entity, incomplete_communities",
        ),
    ],
)
async def test_rows_that_contradict_each_other_are_refused(corpus: Builder, damage: str, code: str) -> None:
    await corpus.build(ADA)
    number, collection = await corpus.begin()
    await corpus.write(number, collection, [BOB])
    await corpus.assemble(number)
    async with corpus.pool.connection(Deadline.after(5)) as tx:
        await tx.execute(damage)
    with pytest.raises(PromotionRefused) as refused:
        await corpus.promote(number, collection)
    assert ", ".join(refused.value.codes) == code


async def test_an_empty_corpus_and_notes_without_relations_may_be_promoted(corpus: Builder) -> None:
    empty = await corpus.build()
    assert (empty.override, empty.stores["chunks"].rows, empty.levels) == (None, 0, 0)
    plain = await corpus.build(document("plain", []))
    assert plain.override is not None
    assert plain.override.codes == ("zero_entities", "zero_semantic_relationships")
    assert plain.override.actor == "settings"


async def test_a_closed_build_cannot_be_promoted(corpus: Builder) -> None:
    number, collection = await corpus.begin()
    await corpus.write(number, collection, [ADA])
    await corpus.assemble(number)
    await corpus.promote(number, collection)
    with pytest.raises(PromotionConflict):
        await corpus.promote(number, collection)
    assert await corpus.verify(1) == (await corpus.generations.manifest(corpus.corpus, 1, Deadline.after(5))).stores


async def test_collections_are_named_by_corpus_and_fingerprint_alone(corpus: Builder) -> None:
    """No other table can be made or named through a collection."""
    for name in ("dense_1_x; drop table chunk", f"dense_{corpus.corpus + 1}_0123456789ab", "chunk"):
        with pytest.raises(StoreRefused):
            async with corpus.pool.connection(Deadline.after(5)) as tx:
                await tx.fetchval("select ensure_collection($1, $2, 'x', $3)", corpus.corpus, name, DIMENSION)


async def test_an_export_is_sorted_and_names_only_its_header(corpus: Builder) -> None:
    await corpus.build(BOB, document("zoë", [("Zoë", "KNOWS", "Ÿ")], place="/here"), ADA)
    other = await Builder.new(corpus.pool, "another")
    await other.build(ADA)
    await other.build(document("zoë", [("Zoë", "KNOWS", "Ÿ")], place="/elsewhere/deep"), BOB)
    assert await corpus.body(1) == await other.body(2)
    header, *lines = [orjson.loads(line) for line in await corpus.export(1)]
    assert (header["kind"], header["corpus"], header["generation"]) == ("header", "corpus", 1)
    kinds = [line["kind"] for line in lines]
    assert sorted(set(kinds), key=kinds.index) == list(SECTIONS)
    assert [line["document_id"] for line in lines if line["kind"] == "documents"] == ["ada", "bob", "zoë"]


async def test_documents_are_listed_page_by_page(corpus: Builder) -> None:
    await corpus.build(ADA, BOB)
    await corpus.build(removed=["ada"])
    first = await corpus.generations.documents(corpus.corpus, 1, "", 1, Deadline.after(5))
    second = await corpus.generations.documents(corpus.corpus, 1, first[0].document_id, 5, Deadline.after(5))
    assert [d.document_id for d in first + second] == ["ada", "bob"]
    last = await corpus.generations.documents(corpus.corpus, 2, "", 5, Deadline.after(5))
    assert [d.document_id for d in last] == ["bob"]


async def _open(corpus: Builder) -> int:
    listed = await corpus.generations.list(corpus.corpus, Deadline.after(5))
    return next(g.number for g in listed if g.state == "building")


async def _rows_of(corpus: Builder, number: int) -> int:
    async with corpus.pool.connection(Deadline.after(5)) as tx:
        tables = [row["name"] for row in await tx.fetch("select name from versioned_tables($1)", corpus.corpus)]
        counts = [await tx.fetchval(f'select count(*) from "{t}" where born = $1 or died = $1', number) for t in tables]
    return sum(counts)
