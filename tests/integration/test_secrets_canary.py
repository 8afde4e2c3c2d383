"""Canaries in every secret that a worker can be given: after it has worked, and failed, none is found anywhere."""

from __future__ import annotations

import base64
import re
import secrets
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import anyio
import anyio.to_thread
import asyncpg
import httpx
import pytest
from anyio.abc import Process
from anyio.from_thread import start_blocking_portal
from pydantic import SecretStr
from redis.asyncio import Redis

from pipeline.addresses import networks
from pipeline.deadline import Deadline
from pipeline.errors import Refused
from pipeline.testing.openai_stub import OpenAIStub, serving
from schemas.query import QueryRequest
from schemas.runs import RunInfo, RunState
from schemas.settings import CorpusSettings
from tests.cli_driver import HANDBOOK, ROOT, Cli
from tests.webhook_receiver import Receiver, receiving
from worker.app import Sapwood, open_sapwood
from worker.settings import WorkerSettings

PATIENCE = 90.0
NOWHERE = "127.0.0.1:1"
"""An address at which nobody listens."""


class Canaries:
    """Secrets of no shape that a pattern would know, by the variable that they are given in; and that of a webhook."""

    def __init__(self) -> None:
        self.by_setting = {
            name: f"zq{secrets.token_hex(12)}"
            for name in ("database_url", "openai_api_key", "graph_neo4j_password", "qdrant_api_key")
        }

    def __getitem__(self, setting: str) -> str:
        return self.by_setting[setting]

    def found(self, text: str) -> list[str]:
        """Return the settings whose secret is in a text, plain or in a form that is easily undone."""
        plain = text.lower()
        return [name for name, secret in self.by_setting.items() if any(form in plain for form in forms(secret))]


def forms(secret: str) -> set[str]:
    raw = secret.encode()
    return {
        form.lower() for form in (secret, raw.hex(), quote(secret), secret[::-1], base64.b64encode(raw).decode()[:-4])
    }


@pytest.fixture
def stub() -> Iterator[OpenAIStub]:
    """A model endpoint that says back, in its refusals, the key that it was sent."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(serving(OpenAIStub())) as server:
        yield server


def settings(home: Path, database: str, redis_url: str, endpoint: str, canaries: Canaries) -> WorkerSettings:
    return WorkerSettings(
        home=home,
        database_url=SecretStr(database.replace("@/", f":{canaries['database_url']}@/")),
        redis_url=SecretStr(redis_url),
        openai_base_url=endpoint,
        openai_api_key=SecretStr(canaries["openai_api_key"]),
        openai_model="reader",
        openai_embedding_model="embedder",
        graph_neo4j_uri=f"bolt://{NOWHERE}",
        graph_neo4j_password=SecretStr(canaries["graph_neo4j_password"]),
        qdrant_url=f"http://{NOWHERE}",
        qdrant_api_key=SecretStr(canaries["qdrant_api_key"]),
        log_level="debug",
        lease_seconds=5.0,
        webhooks_private_networks=networks("127.0.0.0/8"),
    )


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def environment(given: WorkerSettings, port: int, form: str) -> dict[str, str]:
    """Return the variables that give a process the same settings."""
    values = {name: getattr(given, name) for name in given.model_fields_set - {"home"}}
    plain = {n: v.get_secret_value() if isinstance(v, SecretStr) else str(v) for n, v in values.items()}
    plain["webhooks_private_networks"] = ",".join(map(str, given.webhooks_private_networks))
    return {
        f"SAPWOOD_{name.upper()}": text
        for name, text in {**plain, "metrics_port": str(port), "log_format": form}.items()
    }


async def ended(app: Sapwood, run: RunInfo) -> RunInfo:
    with anyio.fail_after(PATIENCE):
        async for _ in app.subscribe(run.run_id):
            pass
    return await app.info(run.run_id)


async def everything_stored(database: str, redis_url: str, but: str = "") -> str:
    """Return every row of every table, but perhaps of one, and all that the queue holds, as text."""
    texts: list[str] = []
    connection = await asyncpg.connect(database)
    try:
        tables = await connection.fetch(
            "select table_name from information_schema.tables where table_schema = 'sapwood' and table_name <> $1", but
        )
        for (table,) in tables:
            texts += [row[0] for row in await connection.fetch(f'select t::text from sapwood."{table}" as t')]
    finally:
        await connection.close()
    async with Redis.from_url(redis_url) as client:
        for key in [key async for key in client.scan_iter()]:
            dumped = await client.dump(key)
            texts += [repr(key), (dumped or b"").decode("latin-1")]
            if await client.type(key) == b"stream":
                texts.append(repr(await client.xrange(key)))
    return "\n".join(texts)


async def told(app: Sapwood, receiver: Receiver, canaries: Canaries) -> str:
    """Have a receiver told of all runs from now on, and send it a ping; return all that is shown of it."""
    registry = app.services.webhooks.registry
    made, secret = await registry.create("default", f"http://127.0.0.1:{receiver.port}/in", deadline=soon())
    rotated, second = await registry.rotate("default", made.webhook_id, soon())
    for name, one in (("webhook", secret), ("rotated webhook", second)):
        canaries.by_setting[name] = one.reveal().removeprefix("whsec_")
        canaries.by_setting[f"{name}, raw"] = one.key.hex()
    await registry.ping("default", made.webhook_id, soon())
    await receiver.until(lambda: len(receiver.got) >= 1)
    assert all(one.verified(key.reveal()) for one in receiver.got for key in (secret, second))
    parts = [made, secret, rotated, second, await registry.listing("default", soon())]
    shown = [repr(one) for one in [*parts, await registry.deliveries("default", made.webhook_id, 10, soon())]]
    with pytest.raises(Refused) as refused:
        await registry.create("default", f"http://{quote(second.reveal(), safe='')}@127.0.0.1/", deadline=soon())
    return "\n".join([*shown, repr(refused.value), *(f"{one.headers} {one.body!r}" for one in receiver.got)])


def soon() -> Deadline:
    return Deadline.after(PATIENCE)


async def work(app: Sapwood, stub: OpenAIStub, key: str) -> dict[str, RunInfo]:
    """Have the worker use every secret: one run and question that go well, and one that fails for each store."""
    paid = {"embedding": {"provider": "openai", "dimension": 64}, "extraction": {"provider": "openai"}}
    stub.key = key
    well = await ended(app, await app.index("well", [str(HANDBOOK)], settings=CorpusSettings.model_validate(paid)))
    asked = await ended(app, await app.enqueue_query("well", QueryRequest(text="Who runs the harbour?", deadline=60)))
    stub.key = "another"
    refused = await ended(
        app, await app.index("refused", [str(HANDBOOK)], settings=CorpusSettings.model_validate(paid))
    )
    runs = {"well": well, "asked": asked, "refused": refused}
    for name, wanted in (
        ("graph", {"graph_storage": {"backend": "neo4j"}}),
        ("vectors", {"dense_storage": {"backend": "qdrant"}}),
    ):
        run = await app.index(name, [str(HANDBOOK)], settings=CorpusSettings.model_validate(wanted))
        await tried_again(app, run)
        runs[name] = await app.cancel(run.run_id)
    return runs


async def tried_again(app: Sapwood, run: RunInfo) -> None:
    """Wait until a unit of a run has failed once."""
    with anyio.fail_after(PATIENCE):
        while True:
            async with app.services.pool.connection(Deadline.after(PATIENCE)) as tx:
                if await tx.fetchval("select sum(retry_count) from run where root_id = $1", run.run_id):
                    return
            await anyio.sleep(0.05)


@asynccontextmanager
async def worker(given: WorkerSettings, port: int, form: str, written: Path) -> AsyncGenerator[Process, None]:
    """Run a worker whose output goes to a file, and have it end in order."""
    environ = Cli(given.home, environment(given, port, form)).environment
    command = [sys.executable, "-m", "worker", "worker"]
    out = await anyio.to_thread.run_sync(written.open, "wb")
    try:
        async with await anyio.open_process(command, cwd=ROOT, env=environ, stdout=out, stderr=out) as process:
            try:
                yield process
            finally:
                process.send_signal(signal.SIGTERM)  # else the end of the block would wait for it without end
                with anyio.move_on_after(PATIENCE, shield=True):
                    await process.wait()
                if process.returncode is None:
                    process.kill()
            assert process.returncode == 0
    finally:
        await anyio.to_thread.run_sync(out.close)


def files(*folders: Path) -> str:
    """Return all that lies in these folders."""
    return "\n".join(
        path.read_bytes().decode("latin-1") for one in folders for path in one.rglob("*") if path.is_file()
    )


@pytest.mark.parametrize("form", ["json", "console"])
async def test_no_secret_is_found_anywhere(
    tmp_path: Path, database: str, redis_url: str, stub: OpenAIStub, form: str
) -> None:
    """Not in logs at the finest level, events, rows, the queue, metrics, files or any `repr`; the work needed them all."""
    canaries, port, outputs = Canaries(), free_port(), tmp_path / "outputs"
    await anyio.Path(outputs).mkdir()
    given = settings(tmp_path / "home", database, redis_url, stub.url, canaries)
    shown = {"settings": f"{given!r} {given} {given.model_dump()} {given.model_dump_json()}"}
    async with (
        receiving() as receiver,
        worker(given, port, form, outputs / "worker.log") as process,
        open_sapwood(given) as app,
    ):
        shown["webhooks"] = await told(app, receiver, canaries)
        runs = await work(app, stub, canaries["openai_api_key"])
        await receiver.until(lambda: len(set(receiver.ids)) >= 1 + len(runs))
        shown["messages"] = repr(receiver.got)
        shown["runs"] = repr(runs)
        shown["events"] = repr([await app.events(run.run_id) for run in runs.values()])
        shown["services"] = repr(app.services)
        shown["command"] = await anyio.Path(f"/proc/{process.pid}/cmdline").read_text()
        async with httpx.AsyncClient(trust_env=False) as client:
            shown["metrics"] = (await client.get(f"http://127.0.0.1:{port}/metrics", timeout=30)).text
    shown["rows"] = await everything_stored(database, redis_url, but="webhook")
    kept = canaries.found(await everything_stored(database, redis_url))
    assert kept == ["webhook, raw", "rotated webhook, raw"], "what signs lies there, where it has to"
    shown["logs"] = await anyio.to_thread.run_sync(files, outputs, given.home)

    states = {name: run.state for name, run in runs.items()}
    assert (states["well"], states["asked"]) == (RunState.COMPLETED, RunState.COMPLETED), runs
    assert states["refused"] is RunState.FAILED and states["graph"] is states["vectors"] is RunState.CANCELLED
    assert "refuses the API key" in runs["refused"].error
    assert re.search(r'^sapwood_model_tokens_total\{direction="output"\} [1-9]', shown["metrics"], re.MULTILINE)
    assert "worker.stopping" in shown["logs"] and len(shown["rows"]) > 10_000
    assert {where: found for where, text in shown.items() if (found := canaries.found(text))} == {}


async def test_a_canary_that_sings_is_heard(tmp_path: Path, database: str, redis_url: str) -> None:
    """The same search finds one in a row, in the queue, in a file, and in a form that is easily undone."""
    canaries = Canaries()
    secret = canaries["openai_api_key"]
    connection = await asyncpg.connect(database)
    try:
        await connection.execute("insert into sapwood.corpus (name) values ($1)", secret)
    finally:
        await connection.close()
    assert canaries.found(await everything_stored(database, redis_url)) == ["openai_api_key"]
    async with Redis.from_url(redis_url) as client:
        await client.xadd("s", {"k": canaries["qdrant_api_key"]})
    assert canaries.found(await everything_stored(database, redis_url)) == ["openai_api_key", "qdrant_api_key"]
    await anyio.Path(tmp_path / "worker.log").write_text(f"error: {secret.upper()}")
    assert canaries.found(await anyio.to_thread.run_sync(files, tmp_path)) == ["openai_api_key"]
    assert canaries.found(f"Basic {base64.b64encode(secret.encode()).decode()}") == ["openai_api_key"]
    assert canaries.found(secret.encode().hex()) == ["openai_api_key"]
    assert canaries.found(secret[:-1]) == []
