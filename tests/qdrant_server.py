"""What stands in for a Qdrant server: HTTP on a real socket, before prepared answers or before Qdrant's own engine.

The engine is that of the server, in this process (`qdrant-edge-py`); what is missing is all around it: its HTTP layer with
its limits, several shards and replicas, optimising beside requests, and the durability of a process of its own.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import anyio.to_thread
import orjson
import pytest


@dataclass(frozen=True)
class Request:
    """A request as it came in."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass(frozen=True)
class Reply:
    """An answer; `length` is what its header claims, if that is not true."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)
    length: int | None = None


def result(value: Any, status: int = 200) -> Reply:
    """Return a value as Qdrant wraps it."""
    return Reply(status, orjson.dumps({"result": value, "status": "ok", "time": 0.0}))


def refusal(status: int, text: str = "no") -> Reply:
    """Return an error as Qdrant wraps it."""
    return Reply(status, orjson.dumps({"status": {"error": text}, "time": 0.0}))


Answer = Callable[[Request], Awaitable[Reply]]


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[str]:
    """Serve on a free port of this machine and give the URL; connections are cut at the end."""
    open_ones: set[asyncio.StreamWriter] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_ones.add(writer)
        try:
            reply = await answer(await _request(reader))
            lines = [
                f"HTTP/1.1 {reply.status} X",
                f"content-length: {reply.length or len(reply.body)}",
                "connection: close",
            ]
            lines += [f"{name}: {value}" for name, value in reply.headers.items()]
            writer.write("\r\n".join([*lines, "", ""]).encode() + reply.body)
            await writer.drain()
        except (OSError, EOFError, asyncio.CancelledError):
            pass  # whoever asked has gone
        finally:
            open_ones.discard(writer)
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for writer in list(open_ones):
            writer.transport.abort()


async def _request(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = head[0].split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    url = urlsplit(target)
    return Request(method, url.path, dict(parse_qsl(url.query)), headers, orjson.loads(body) if body else None)


class Engine:
    """Answers the requests that the store makes, by a shard of Qdrant's engine for each collection.

    `threshold` is the size in kB from which `optimize` builds the index of neighbours.
    """

    def __init__(self, edge: Any, folder: Path, threshold: int = 10_000) -> None:
        self.edge = edge
        self.folder = folder
        self.threshold = threshold
        self.shards: dict[str, Any] = {}
        self.sizes: dict[str, int] = {}
        self.indexes: dict[str, dict[str, Any]] = {}
        self.lock = threading.Lock()  # as a shard's update worker, but for reads too

    async def answer(self, request: Request) -> Reply:
        """See `Answer`."""
        return await anyio.to_thread.run_sync(self._answer, request)

    def close(self) -> None:
        """Close all shards."""
        for shard in self.shards.values():
            shard.close()

    def optimize(self, name: str) -> int:
        """Build what an optimiser would, and return how many vectors are in an index of neighbours."""
        self.shards[name].optimize()
        return int(self.shards[name].info().indexed_vectors_count)

    def _answer(self, request: Request) -> Reply:
        with self.lock:
            parts = request.path.strip("/").split("/")
            if parts == [""]:
                return Reply(200, orjson.dumps({"title": "qdrant", "version": "1.18.0", "commit": "0"}))
            name, what = parts[1], "/".join(parts[2:])
            if (request.method, what) == ("PUT", ""):
                return self._create(name, request.body["vectors"])
            if what == "exists":
                return result({"exists": name in self.shards})
            if (request.method, what) == ("DELETE", ""):
                shard = self.shards.pop(name, None)
                if shard is not None:
                    shard.close()
                return result(shard is not None)
            if name not in self.shards:
                return refusal(404, "Not found: Collection doesn't exist!")
            try:
                return self._within(name, self.shards[name], what, request.body)
            except Exception as error:  # the engine has no class of its own for what it refuses
                return refusal(400, str(error))

    def _create(self, name: str, vectors: dict[str, Any]) -> Reply:
        if name in self.shards:
            return refusal(409, "already exists")
        edge = self.edge
        config = edge.EdgeConfig(
            vectors=edge.EdgeVectorParams(size=vectors["size"], distance=getattr(edge.Distance, vectors["distance"])),
            optimizers=edge.EdgeOptimizersConfig(indexing_threshold=self.threshold, default_segment_number=2),
        )
        place = self.folder / f"{len(list(self.folder.iterdir()))}"
        place.mkdir(parents=True)
        self.shards[name] = edge.EdgeShard.create(str(place), config)
        self.sizes[name], self.indexes[name] = vectors["size"], {}
        return result(True)

    def _within(self, name: str, shard: Any, what: str, body: Any) -> Reply:
        edge = self.edge
        if what == "":
            return result(_info(self.sizes[name], self.indexes[name]))
        if what == "index":
            schema = {key: value for key, value in body["field_schema"].items() if key != "type"}
            kind = {"integer": edge.IntegerIndexParams, "keyword": edge.KeywordIndexParams}[
                body["field_schema"]["type"]
            ]
            shard.update(edge.UpdateOperation.create_field_index(body["field_name"], kind(**schema)))
            self.indexes[name][body["field_name"]] = {"data_type": body["field_schema"]["type"], "points": 0}
            return result(_DONE)
        if what == "points/batch":
            for operation in body["operations"]:
                shard.update(self._operation(operation))
            return result([_DONE] * len(body["operations"]))
        where = self._filter(body["filter"]) if body.get("filter") else None
        if what == "points/count":
            return result({"count": shard.count(edge.CountRequest(exact=body["exact"], filter=where))})
        if what == "points/query":
            query = edge.QueryRequest(
                limit=body["limit"], query=edge.Query.Nearest(body["query"]["nearest"]), filter=where, with_payload=True,
                params=edge.SearchParams(exact=body["params"]["exact"]),
            )  # fmt: skip
            hits = shard.query(query)
            return result({"points": [{**_record(hit), "version": 0, "score": hit.score} for hit in hits]})
        assert what == "points/scroll", what
        scroll = edge.ScrollRequest(
            offset=body.get("offset"), limit=body["limit"], filter=where, with_payload=True, with_vector=True
        )
        records, after = shard.scroll(scroll)
        points = [{**_record(one), "vector": one.vector} for one in records]
        return result({"points": points, "next_page_offset": None if after is None else str(after)})

    def _operation(self, operation: dict[str, Any]) -> Any:
        update = self.edge.UpdateOperation
        [(kind, body)] = operation.items()
        where = self._filter(body["filter"]) if "filter" in body else None
        if kind == "delete":
            return update.delete_points_by_filter(where)
        if kind == "set_payload":
            return update.set_payload_by_filter(where, body["payload"])
        if kind == "delete_payload":
            return update.delete_payload_by_filter(where, body["keys"])
        assert kind == "upsert", kind
        points = [self.edge.Point(one["id"], one["vector"], one["payload"]) for one in body["points"]]
        return update.upsert_points(points, condition=self._filter(body["update_filter"]))

    def _filter(self, body: dict[str, Any]) -> Any:
        clauses = {key: [self._condition(one) for one in value] for key, value in body.items() if value}
        return self.edge.Filter(**clauses)

    def _condition(self, body: dict[str, Any]) -> Any:
        edge, body = self.edge, {key: value for key, value in body.items() if value is not None}
        if "is_empty" in body:
            return edge.IsEmptyCondition(body["is_empty"]["key"])
        if "has_id" in body:
            return edge.HasIdCondition(set(body["has_id"]))
        if "match" in body:
            return edge.FieldCondition(body["key"], match=edge.MatchAny(body["match"]["any"]))
        if "range" in body:
            return edge.FieldCondition(body["key"], range=edge.RangeFloat(**body["range"]))
        return self._filter(body)


@asynccontextmanager
async def engine(threshold: int = 10_000) -> AsyncIterator[tuple[str, Engine]]:
    """Serve Qdrant's engine on an empty folder, in memory where there is such a folder, and give the URL; or skip."""
    edge = pytest.importorskip("qdrant_edge", reason="Qdrant's engine is not installed: `pip install qdrant-edge-py`")
    folder = await anyio.to_thread.run_sync(_new_folder)
    shards = Engine(edge, folder, threshold)
    try:
        async with serving(shards.answer) as url:
            yield url, shards
    finally:
        await anyio.to_thread.run_sync(shards.close)
        await anyio.to_thread.run_sync(shutil.rmtree, folder)


def _new_folder() -> Path:
    memory = Path("/dev/shm")
    return Path(tempfile.mkdtemp(prefix="qdrant-", dir=memory if memory.is_dir() else None))


_DONE = {"operation_id": 0, "status": "completed"}


def _record(record: Any) -> dict[str, Any]:
    return {"id": str(record.id), "payload": record.payload}


def _info(size: int, indexes: dict[str, Any]) -> dict[str, Any]:
    """Return a collection's description with what the client cannot do without."""
    return {
        "status": "green",
        "optimizer_status": "ok",
        "segments_count": 1,
        "payload_schema": indexes,
        "config": {
            "params": {"vectors": {"size": size, "distance": "Dot"}},
            "hnsw_config": {"m": 16, "ef_construct": 100, "full_scan_threshold": 10000},
            "optimizer_config": {
                "deleted_threshold": 0.2, "vacuum_min_vector_number": 1000, "default_segment_number": 0,
                "flush_interval_sec": 5,
            },
        },
    }  # fmt: skip
