"""Qdrant beyond the contracts: what its local mode does, its errors over real sockets, its requests, its index."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import orjson
import pytest
from blockbuster import BlockingError
from qdrant_client import AsyncQdrantClient, models

from pipeline.adapters.qdrant_dense import Client, QdrantDense, open_client, open_qdrant
from pipeline.adapters.qdrant_dense import store as store_module
from pipeline.deadline import Deadline
from pipeline.errors import (
    ConfigurationError,
    DeadlineExceeded,
    InconsistentGeneration,
    SapwoodError,
    StoreRefused,
    StoreUnavailable,
)
from pipeline.testing.dense_model import verify
from pipeline.testing.dense_store_contract import BASE, NEXT, A, after, made
from pipeline.testing.dense_worlds import (
    DIMENSION,
    change,
    collection,
    described,
    documents,
    history,
    points,
    soon,
)
from tests.qdrant_server import Reply, Request, engine, refusal, result, serving

KEY = "canary-3f9a"
NAME = collection(1)
DOCUMENT = "canary document.md"

Calls = dict[str, Callable[[QdrantDense, Deadline], Awaitable[Any]]]

CALLS: Calls = {
    "search": lambda store, deadline: store.search(described(NAME, 1, 3), A, 3, None, deadline),
    "similarities": lambda store, deadline: store.similarities(described(NAME, 1, 3), A, [1], deadline),
    "ensure": lambda store, deadline: store.ensure(NAME, DIMENSION, deadline),
    "write": lambda store, deadline: store.write(NAME, 1, points({DOCUMENT: {1: A}}, 1), (), deadline),
    "remove": lambda store, deadline: store.remove(NAME, 1, [DOCUMENT], (), deadline),
    "count": lambda store, deadline: store.count(NAME, 1, (), deadline),
    "undo": lambda store, deadline: store.undo(NAME, 1, deadline),
    "revert": lambda store, deadline: store.revert(NAME, 1, 2, (), deadline),
    "reclaim": lambda store, deadline: store.reclaim(NAME, [1], 1, (), deadline),
    "drop": lambda store, deadline: store.drop(NAME, deadline),
}


def discreet(error: SapwoodError) -> str:
    """Return the message, which names the store and nothing of ours or of the server's."""
    message = str(error)
    assert not any(word in message for word in (KEY, "127.0.0.1", "http", "canary", "sapwood_", "Traceback")), message
    return message


# The local mode


async def all_points(client: Client, name: str) -> list[models.Record]:
    records, _ = await client.call(lambda _: client.qdrant.scroll(name, limit=1000, with_vectors=True), soon())
    return records


async def test_a_point_carries_what_other_tools_need_to_know() -> None:
    async with open_client(":memory:", None) as client:
        name = await made(QdrantDense(client), BASE, {"d": {}})
        payloads = [record.payload for record in await all_points(client, name)]
    assert payloads == [
        {"chunk": 1, "document": "d", "graph_join_id": "graph-1:1", "born": 1, "died": 2},
        {"chunk": 2, "document": "d", "graph_join_id": "graph-1:2", "born": 1, "died": 2},
        {"chunk": 3, "document": "e", "graph_join_id": "graph-1:3", "born": 1},
    ]


@pytest.mark.parametrize("where", ["local", "engine"])
async def test_what_the_filters_rely_on(where: str) -> None:
    """Empty means absent, null or []; a range never holds for them; `any` compares 63-bit numbers whole."""

    def holding(*conditions: models.Condition) -> models.Filter:
        return models.Filter(must=list(conditions))

    empty = models.IsEmptyCondition(is_empty=models.PayloadField(key="died"))
    died: list[dict[str, Any]] = [{}, {"died": None}, {"died": []}, {"died": 3}, {"died": 2**62 + 1}]

    async def check(client: Client) -> None:
        store = QdrantDense(client)
        await store.ensure(NAME, 4, soon())
        new = [models.PointStruct(id=at, vector=[0, 0, 0, 1], payload=one) for at, one in enumerate(died)]
        upsert = models.PointsList(points=new, update_filter=models.Filter(should=[empty]))
        await store._update(NAME, [models.UpsertOperation(upsert=upsert)], soon())

        async def ids(which: models.Filter) -> list[int]:
            records, _ = await client.call(lambda s: client.qdrant.scroll(NAME, which, timeout=s), soon())
            return [int(str(record.id).rpartition("-")[2]) for record in records]

        def range_of(**bounds: int) -> models.Filter:
            return holding(models.FieldCondition(key="died", range=models.Range(**bounds)))

        def any_of(*values: int) -> models.Filter:
            return holding(models.FieldCondition(key="died", match=models.MatchAny(any=list(values))))

        assert await ids(holding(empty)) == [0, 1, 2]
        assert await ids(models.Filter(must_not=[empty])) == [3, 4]
        assert await ids(range_of(gt=2)) == [3, 4]
        assert await ids(range_of(lt=10)) == [3]
        assert await ids(any_of(3, 7)) == [3]
        assert await ids(any_of(2**62)) == [] and await ids(any_of(2**62 + 1)) == [4]
        put = models.SetPayload(payload={"died": 9}, filter=holding(empty))
        await store._update(NAME, [models.SetPayloadOperation(set_payload=put)], soon())
        assert await ids(any_of(9)) == [0, 1, 2]
        again = [models.PointStruct(id=0, vector=[0, 0, 0, 1], payload={})]
        late = models.PointsList(points=again, update_filter=models.Filter(should=[empty]))
        await store._update(NAME, [models.UpsertOperation(upsert=late)], soon())
        assert await ids(any_of(9)) == [0, 1, 2], "the condition of an upsert"
        cut = models.DeletePayload(keys=["died"], filter=any_of(9))
        await store._update(NAME, [models.DeletePayloadOperation(delete_payload=cut)], soon())
        assert await ids(holding(empty)) == [0, 1, 2]
        gone = models.DeleteOperation(delete=models.FilterSelector(filter=any_of(3)))
        await store._update(NAME, [gone], soon())
        assert await store._count(NAME, models.Filter(), soon()) == 4

    if where == "local":
        async with open_client(":memory:", None) as client:
            await check(client)
    else:
        async with engine() as (url, _), open_client(url, None) as client:
            await check(client)


async def test_a_copy_is_equal_to_the_last_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over several pages."""
    monkeypatch.setattr(store_module, "FLOATS", DIMENSION * 7)
    rng = np.random.default_rng(1)
    vectors = {chunk: rng.normal(size=DIMENSION).astype(np.float32) for chunk in range(50)}
    async with open_client(":memory:", None) as client:
        store = QdrantDense(client)
        name = await made(store, {"d": vectors}, {"d": {}})
        await store.revert(name, 1, 3, (), soon())
        found = await all_points(client, name)
    bits = {number: {} for number in (1, 3)}
    for record in found:
        assert record.payload is not None
        bits[record.payload["born"]][record.payload["chunk"]] = (record.vector, record.payload["graph_join_id"])
    assert len(bits[1]) == 50 and bits[1] == bits[3]


@pytest.mark.parametrize("where", ["local", "engine"])
async def test_requests_of_bounded_size(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long lists of ids and many vectors go in parts, and the answers are those of one request."""
    monkeypatch.setattr(store_module, "FLOATS", DIMENSION * 10)
    monkeypatch.setattr(store_module, "IDS", 9)
    step = documents(41, 20)
    [seen] = history([step])

    async def check(store: QdrantDense) -> None:
        name = await made(store, step)
        await verify(store, name, 1, seen)
        allowed = np.array(sorted(seen)[::2], dtype=np.int64)
        found = await store.search(described(name, 1, len(seen)), A, 20, allowed, soon())
        expected = sorted(((c, float(seen[c] @ A)) for c in allowed.tolist()), key=lambda hit: (-hit[1], hit[0]))
        assert found == expected[:20]
        await store.remove(name, 2, list(step), (), soon())
        await verify(store, name, 2, {})

    if where == "local":
        async with open_qdrant(":memory:") as store:
            await check(store)
    else:
        async with engine() as (url, _), open_qdrant(url) as store:
            await check(store)


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # the client leaves its lock file to the collector
async def test_a_folder_keeps_its_vectors_and_has_one_process(tmp_path: Path) -> None:
    folder = str(tmp_path / "deep" / "vectors")
    async with open_qdrant(folder) as store:
        name = await made(store, BASE, NEXT)
        with pytest.raises(ConfigurationError, match=r"SAPWOOD_QDRANT_URL.*in use") as caught:
            async with open_qdrant(folder):
                pass
        assert str(tmp_path) not in str(caught.value)
        del caught
        await anyio.to_thread.run_sync(gc.collect)  # in the thread that still holds on to the failed client
    async with open_qdrant(folder) as store:
        await verify(store, name, 2, after(BASE, NEXT))
        await verify(store, name, 1, after(BASE))
        await store.undo(name, 2, soon())
    async with open_qdrant(folder) as store:
        await verify(store, name, 2, after(BASE))


async def test_the_local_mode_would_block_the_loop_but_for_its_thread(tmp_path: Path) -> None:
    """The control: the client itself, on the loop, is caught writing its files."""
    async with open_client(str(tmp_path), None) as client:
        with pytest.raises(BlockingError):
            await client.qdrant.create_collection(NAME, models.VectorParams(size=4, distance=models.Distance.DOT))
        await QdrantDense(client).ensure(collection(2), 4, soon())


async def test_a_full_or_broken_folder(tmp_path: Path) -> None:
    async with open_qdrant(str(tmp_path)) as store:
        name = await made(store, BASE)
        await anyio.to_thread.run_sync((tmp_path / "meta.json").unlink)
        await anyio.Path(tmp_path / "meta.json.tmp").mkdir()
        with pytest.raises(StoreUnavailable, match="folder") as caught:
            await store.ensure(collection(3), DIMENSION, soon())
        assert str(tmp_path) not in discreet(caught.value)
        await verify(store, name, 1, after(BASE))


# Opening


@pytest.mark.parametrize("url", ["", "ftp://host", "http://[::1", "http://host:port"])
async def test_what_is_no_place(url: str) -> None:
    with pytest.raises(ConfigurationError, match="SAPWOOD_QDRANT_URL"):
        async with open_qdrant(url):
            pass


def test_without_the_extra_the_error_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['qdrant_client'] = None\n"
        "from pipeline.errors import MissingExtra\n"
        "try: import pipeline.adapters.qdrant_dense\n"
        "except MissingExtra as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install sapwood[qdrant]" in done.stdout


# A server


@pytest.mark.parametrize("call", CALLS)
async def test_a_server_that_is_down(call: str) -> None:
    async with serving(lambda _: anyio.sleep_forever()) as url:
        pass  # nobody listens there any more
    async with open_qdrant(url, KEY) as store:
        with pytest.raises(StoreUnavailable, match="cannot be reached") as caught:
            await CALLS[call](store, soon())
        discreet(caught.value)


SPACE = "Service internal error: No space left on device: WAL buffer size exceeds available disk space"

REFUSALS: list[tuple[Reply, type[SapwoodError], str]] = [
    (refusal(401, "Must provide an API key"), ConfigurationError, "SAPWOOD_QDRANT_API_KEY"),
    (refusal(403, "Forbidden"), ConfigurationError, "SAPWOOD_QDRANT_API_KEY"),
    (refusal(404, f"Not found: Collection `{NAME}` doesn't exist!"), InconsistentGeneration, "not in the vector store"),
    (refusal(400, f"Wrong input: Vector dimension error in {DOCUMENT}"), StoreRefused, "(400)"),
    (refusal(409, "Conflict"), StoreRefused, "(409)"),
    (refusal(413, "too large"), StoreRefused, "(413)"),
    (refusal(422, "Format error"), StoreRefused, "(422)"),
    (Reply(302, b"", {"location": "http://127.0.0.1:1/"}), StoreRefused, "(302)"),
    (refusal(408, "Timeout"), StoreUnavailable, "(408)"),
    (refusal(429, "Rate limit"), StoreUnavailable, "(429)"),
    (Reply(429, b"{}", {"retry-after": "7"}), StoreUnavailable, "too much"),
    (refusal(500, "Service internal error: canary"), StoreUnavailable, "(500)"),
    (refusal(500, SPACE), StoreUnavailable, "no space left (500)"),
    (refusal(503, "Service unavailable"), StoreUnavailable, "(503)"),
    (refusal(507, "Insufficient storage"), StoreUnavailable, "no space left (507)"),
    (Reply(200, b"<html>canary</html>"), StoreUnavailable, "not Qdrant's"),
    (Reply(200, b"\xff\xfe"), StoreUnavailable, "not Qdrant's"),
    (Reply(200, b'{"result": {"canary": 1}}'), StoreUnavailable, "not Qdrant's"),
    (Reply(200, b"{}"), StoreUnavailable, "not Qdrant's"),
    (Reply(200, b'{"result":', length=1000), StoreUnavailable, "cannot be reached"),
]


@pytest.mark.parametrize(
    ("reply", "kind", "words"), REFUSALS, ids=[f"{at}-{refused[0].status}" for at, refused in enumerate(REFUSALS)]
)
@pytest.mark.parametrize("call", ["search", "write", "ensure", "reclaim"])
async def test_every_refusal_is_an_error_of_ours(call: str, reply: Reply, kind: type[SapwoodError], words: str) -> None:
    async def answer(_: Request) -> Reply:
        return reply

    async with serving(answer) as url, open_qdrant(url, KEY) as store:
        with pytest.raises(kind) as caught:
            await CALLS[call](store, soon())
        assert type(caught.value) is kind
        assert words in discreet(caught.value)


@pytest.mark.parametrize("call", CALLS)
async def test_a_frozen_server_costs_no_more_than_the_deadline_and_can_be_left(call: str) -> None:
    """It accepts and never answers. Afterwards the client is whole."""
    frozen = True

    async def answer(_: Request) -> Reply:
        if frozen:
            await anyio.sleep_forever()
        return refusal(404)

    async with serving(answer) as url, open_qdrant(url) as store:
        with anyio.fail_after(20), pytest.raises(DeadlineExceeded):
            await CALLS[call](store, Deadline.after(0.3))
        with anyio.fail_after(20), anyio.move_on_after(0.3) as scope:
            await CALLS[call](store, soon())
        assert scope.cancelled_caught
        frozen = False
        with pytest.raises(InconsistentGeneration):
            await CALLS[call](store, soon())


async def test_many_calls_are_left_while_the_server_is_frozen_and_none_is_lost() -> None:
    """50 at a time, of all kinds; then 50 that are answered."""
    gate = anyio.Event()
    asked = 0

    async def answer(_: Request) -> Reply:
        nonlocal asked
        asked += 1
        await gate.wait()
        return refusal(404)

    async with serving(answer) as url, open_qdrant(url) as store:

        async def leave(at: int) -> None:
            with anyio.move_on_after(0.5):
                await list(CALLS.values())[at % len(CALLS)](store, soon())

        async def stay(at: int) -> None:
            with pytest.raises(InconsistentGeneration):
                await list(CALLS.values())[at % len(CALLS)](store, soon())

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                for at in range(50):
                    group.start_soon(leave, at)
            gate.set()
            async with anyio.create_task_group() as group:
                for at in range(50):
                    group.start_soon(stay, at)
    assert asked >= 60


async def test_a_server_that_is_too_old_is_told_apart() -> None:
    async def answer(request: Request) -> Reply:
        if request.path.endswith("/exists"):
            return result({"exists": False})
        return Reply(200, orjson.dumps({"title": "qdrant", "version": "1.15.9", "commit": "0"}))

    async with serving(answer) as url, open_qdrant(url) as store:
        with pytest.raises(ConfigurationError, match=r"1\.16"):
            await store.ensure(NAME, DIMENSION, soon())


# What is asked of a server


async def test_the_key_travels_and_every_filter_is_inside_its_request() -> None:
    """Visibility and the allowed chunks are in the query; writes wait, are ordered, and end on a condition."""
    async with engine() as (_, shards):
        requests: list[Request] = []

        async def answer(request: Request) -> Reply:
            requests.append(request)
            return await shards.answer(request)

        async with serving(answer) as front, open_qdrant(front, KEY) as store:
            for _ in range(2):
                await store.ensure(NAME, DIMENSION, Deadline.after(2.5))
            await change(store, NAME, 5, BASE, {2, 4})
            manifest = described(NAME, 5, 3, [2, 4])
            allowed = np.array([1, 2, 3], dtype=np.int64)
            assert len(await store.search(manifest, A, 2, allowed, Deadline.after(2.5))) == 2
        assert {request.headers["api-key"] for request in requests} == {KEY}
        indexed = [request.body["field_name"] for request in requests if request.path.endswith("/index")]
        assert indexed == ["chunk", "document", "born", "died"]
        writes = [request for request in requests if request.path.endswith("/points/batch")]
        assert len(writes) == 2
        assert all((one.query["wait"], one.query["ordering"]) == ("true", "strong") for one in writes)
        condition = writes[1].body["operations"][0]["upsert"]["update_filter"]
        assert [_kept(one) for one in condition["should"]] == [
            {"is_empty": {"key": "died"}},
            {"key": "died", "match": {"any": [2, 4]}},
        ]
        query = requests[-1]
        assert query.path.endswith("/points/query")
        assert query.query["timeout"] == "3"
        assert query.body["params"]["exact"] is True
        assert _kept(query.body["filter"]) == {
            "must": [
                {"key": "born", "range": {"lte": 5}},
                {
                    "should": [
                        {"is_empty": {"key": "died"}},
                        {"key": "died", "match": {"any": [2, 4]}},
                        {"key": "died", "range": {"gt": 5}},
                    ]
                },
                {"key": "chunk", "match": {"any": [1, 2, 3]}},
            ],
            "must_not": [{"key": "born", "match": {"any": [2, 4]}}],
        }


def _kept(value: Any) -> Any:
    """Return JSON without nulls, and numbers as integers."""
    if isinstance(value, dict):
        return {key: _kept(one) for key, one in value.items() if one is not None}
    if isinstance(value, list):
        return [_kept(one) for one in value]
    return int(value) if isinstance(value, float) else value


async def test_the_key_never_shows() -> None:
    async with open_client("http://127.0.0.1:1", KEY) as client:
        assert isinstance(client.qdrant, AsyncQdrantClient)
        store = QdrantDense(client)
        assert KEY not in f"{client!r} {store!r} {client.qdrant!r} {vars(store)}"


# The index of neighbours


async def test_the_index_finds_enough_and_mostly_the_nearest_under_every_filter() -> None:
    """Four generations of 3,000 vectors in the engine's HNSW; visibility of a sixth, a tenth and a hundredth allowed.

    The answers always hold as many as there are; the share of the true ten nearest is printed by a failure.
    """
    rng = np.random.default_rng(5)
    names = [f"doc-{at}" for at in range(300)]
    steps = []
    for part in (names, names[:200], names[100:], names[50:250]):
        vectors = rng.normal(size=(10 * len(part), DIMENSION)).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        at = iter(vectors)
        steps.append({name: {int(name[4:]) * 10 + ordinal: next(at) for ordinal in range(10)} for name in part})
    async with engine(threshold=10) as (url, shards), open_client(url, None) as client:
        exact, approximate = QdrantDense(client), QdrantDense(client, exact_rows=0)
        name = await made(exact, *steps)
        assert await anyio.to_thread.run_sync(shards.optimize, name) > 5000
        shares: list[float] = []
        for number, seen in enumerate(history(steps), 1):
            manifest = described(name, number, len(seen))
            for allowed in (None, sorted(seen)[::10], sorted(seen)[::100]):
                among = None if allowed is None else np.array(allowed, dtype=np.int64)
                for query in rng.normal(size=(5, DIMENSION)).astype(np.float32):
                    truth = await exact.search(manifest, query, 10, among, soon())
                    found = await approximate.search(manifest, query, 10, among, soon())
                    assert len(found) == len(truth) == 10
                    assert {chunk for chunk, _ in found} <= seen.keys() & set(allowed or seen)
                    shares.append(len(dict(found).keys() & dict(truth).keys()) / 10)
    assert np.mean(shares) > 0.95, np.mean(shares)
