"""Contexts of chunks over a real model endpoint on the loopback: found by them, shown without them, paid for once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from anyio.from_thread import start_blocking_portal
from pydantic import SecretStr

from pipeline.deadline import Deadline
from pipeline.errors import ConfigurationError
from pipeline.testing.openai_stub import OpenAIStub, serving
from schemas.documents import Outcome
from schemas.query import QueryRequest, QueryResult, Strategy
from schemas.runs import RunInfo, RunState
from schemas.settings import CorpusSettings
from tests.cli_driver import ROOT, Cli
from tests.declared_world import CHATS, KEY, settings
from worker.app import Sapwood, open_sapwood
from worker.changes import apply_changes
from worker.settings import WorkerSettings

FEES = "Members pay ten pounds a month."
KILN = "It reaches twelve hundred degrees."
ABOUT_FEES, ABOUT_KILN = "This stands in the statutes of Pemberley.", "This describes the furnace in Meryton."
HINTED = {f'{FEES}"}}': ABOUT_FEES, f'{KILN}"}}': ABOUT_KILN}
"""Answers by the end of what is told: the passage."""

SETTINGS = apply_changes(CorpusSettings(), ["chunk.max_chars=120", "chunk.context_model=openai"])
PARTS = [f"## Fees\n\n{FEES}", f"## Heat\n\n{KILN}", *(f"## Part {n}\n\nRoom {n} is as it was." for n in range(20))]


def settings_of(home: Path, database: str, redis_url: str, stub: OpenAIStub, key: str = KEY) -> WorkerSettings:
    more = {"openai_embedding_model": "embedder", "model_concurrency": 2, "openai_api_key": SecretStr(key)}
    return settings(home, database, redis_url, stub, **more)


@pytest.fixture
def stub() -> Iterator[OpenAIStub]:
    """Serve in a thread with an event loop of its own."""
    server = serving(OpenAIStub(garbage=dict(HINTED), key=KEY))
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(server) as stub:
        yield stub


@pytest.fixture
def given(tmp_path: Path, database: str, redis_url: str, stub: OpenAIStub) -> WorkerSettings:
    return settings_of(tmp_path / "home", database, redis_url, stub)


@pytest.fixture
async def docs(tmp_path: Path) -> Path:
    await anyio.Path(tmp_path / "docs").mkdir()
    return tmp_path / "docs"


async def write(docs: Path, parts: list[str], name: str = "rules.md") -> None:
    await anyio.Path(docs / name).write_text("# Rules\n\n" + "\n\n".join(parts) + "\n")


async def index(app: Sapwood, docs: Path, chosen: CorpusSettings = SETTINGS, corpus: str = "rules") -> RunInfo:
    run = await app.index(corpus, [str(docs)], settings=chosen)
    info = await app.work(run.run_id)
    assert info.state is RunState.COMPLETED, info.error
    return info


async def ask(app: Sapwood, text: str, strategy: Strategy, corpus: str = "rules") -> QueryResult:
    return await app.query(corpus, QueryRequest(text=text, strategy=strategy))


async def chunks(app: Sapwood) -> int:
    newest = next(one for one in await app.generations("rules") if one["manifest"])
    return int(newest["manifest"]["stores"]["chunks"]["rows"])


@pytest.mark.parametrize("strategy", [Strategy.KEYWORD, Strategy.SEMANTIC])
async def test_a_chunk_is_found_by_words_that_stand_only_in_its_context(
    given: WorkerSettings, stub: OpenAIStub, docs: Path, strategy: Strategy
) -> None:
    async with open_sapwood(given) as app:
        await write(docs, PARTS)
        await index(app, docs)
        for words, text, context in (("Pemberley statutes", FEES, ABOUT_FEES), ("Meryton furnace", KILN, ABOUT_KILN)):
            result = await ask(app, words, strategy)
            first = result.hits[0]
            assert text in first.text and "context" not in first.text and context not in result.model_dump_json()
            document = "# Rules\n\n" + "\n\n".join(PARTS) + "\n"
            assert first.text in document, "what is shown is the document's own text"
        assert stub.calls[CHATS] == await chunks(app)


async def test_without_contexts_no_model_is_asked_and_nothing_is_found(
    given: WorkerSettings, stub: OpenAIStub, docs: Path
) -> None:
    """The control."""
    async with open_sapwood(given) as app:
        await write(docs, PARTS)
        await index(app, docs, apply_changes(SETTINGS, ["chunk.context_model="]))
        assert not (await ask(app, "Pemberley statutes", Strategy.KEYWORD)).hits
        assert not stub.calls
        [made] = await app.generations("rules")
        assert not {"contexts", "failed_contexts"} & made["manifest"].keys(), "older programs read it, too"


async def test_an_index_pays_for_what_it_has_not_paid(given: WorkerSettings, stub: OpenAIStub, docs: Path) -> None:
    """One edited chunk far from the beginning costs itself and what lies within reach of it. Garbage is collected after each
    run, and must not take what is still there."""
    async with open_sapwood(given) as app:
        long = [f"## Part {n}\n\n" + " ".join(f"Room {n} had guest {k}." for k in range(40)) for n in range(8)]
        await write(docs, long)
        await write(docs, PARTS, "other.md")
        await index(app, docs)
        paid, count = stub.calls[CHATS], await chunks(app)
        assert paid == count
        await index(app, docs)
        assert stub.calls[CHATS] == paid
        await write(docs, [*long[:6], long[6].replace("guest 20", "a ghost"), long[7]])
        await index(app, docs)
        asked = stub.calls[CHATS] - paid
        assert 1 <= asked <= 13, "itself and what lies within 600 characters, of chunks of 120 or less"
        assert asked < count / 4
        await index(app, docs, apply_changes(SETTINGS, ["chunk.context_model=openai/larger"]))
        assert stub.calls[CHATS] - paid - asked == await chunks(app)


async def test_what_was_built_step_by_step_is_what_is_built_at_once(
    given: WorkerSettings, stub: OpenAIStub, docs: Path
) -> None:
    async with open_sapwood(given) as app:
        paid = apply_changes(SETTINGS, ["embedding.provider=openai"])
        await write(docs, PARTS[2:])
        await index(app, docs, paid)
        await write(docs, PARTS)
        await index(app, docs, paid)
        await index(app, docs, paid, "fresh")
        both = [await ask(app, "Pemberley statutes", Strategy.HYBRID, name) for name in ("rules", "fresh")]
        first, second = ([(hit.text, round(hit.score, 9)) for hit in result.hits] for result in both)
        assert first == second
        checks = [(await app.generations(name))[0]["manifest"]["stores"]["chunks"] for name in ("rules", "fresh")]
        assert checks[0] == checks[1]
        assert any(ABOUT_FEES in text for text in stub.texts), "the context is embedded"


async def test_a_failure_costs_one_chunk_and_is_seen(given: WorkerSettings, stub: OpenAIStub, docs: Path) -> None:
    async with open_sapwood(given) as app:
        [fees, *_] = HINTED
        stub.garbage[fees] = " "
        await write(docs, PARTS)
        run = await index(app, docs)
        total = await chunks(app)
        [one] = await app.outcomes(run.run_id)
        assert (one.outcome, one.reason) == (
            Outcome.INDEXED, f"1 of {total} chunks have no context: The model's answer is blank.",
        )  # fmt: skip
        assert not (await ask(app, "Pemberley statutes", Strategy.KEYWORD)).hits
        assert FEES in (await ask(app, "ten pounds", Strategy.KEYWORD)).hits[0].text
        assert KILN in (await ask(app, "Meryton furnace", Strategy.KEYWORD)).hits[0].text
        _, notable = await app.accounting(run.run_id)
        assert [each.reason for each in notable] == [one.reason]
        [newest] = await app.generations("rules")
        assert (newest["manifest"]["contexts"], newest["manifest"]["failed_contexts"]) == (total - 1, 1)


async def test_the_next_run_makes_up_for_an_endpoint_that_was_away(
    given: WorkerSettings, stub: OpenAIStub, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_sapwood(given) as app:
        monkeypatch.setattr("pipeline.ingest.paid.PAUSE", 0.0)
        await write(docs, PARTS[:1])
        stub.fail_next = [503] * 4
        [away] = await app.outcomes((await index(app, docs)).run_id)
        assert away.reason == "1 of 1 chunks have no context: The model endpoint answered with status 503."
        [back] = await app.outcomes((await index(app, docs)).run_id)
        assert (back.outcome, back.reason) == (Outcome.INDEXED, "")
        assert FEES in (await ask(app, "Pemberley statutes", Strategy.KEYWORD)).hits[0].text
        assert (await app.index_summary(await index(app, docs)))["result"] == "unchanged"


async def test_tokens_are_summed_into_the_run(given: WorkerSettings, stub: OpenAIStub, docs: Path) -> None:
    async with open_sapwood(given) as app:
        await write(docs, PARTS)
        await index(app, docs)
        [newest, *_] = await app.generations("rules")
        assert newest["manifest"]["input_tokens"] == sum(len(text.split()) * n for text, n in stub.texts.items())
        assert newest["manifest"]["output_tokens"] > 0


async def test_a_run_that_is_broken_off_does_not_pay_twice(given: WorkerSettings, stub: OpenAIStub, docs: Path) -> None:
    """A process that ends in the middle leaves what it paid for; another one pays for the rest, and what was in flight."""
    await write(docs, PARTS)
    stub.seconds = 0.05
    async with open_sapwood(given) as app:
        run = await app.index("rules", [str(docs)], settings=SETTINGS)

        async def watch(scope: anyio.CancelScope) -> None:
            for _ in range(10_000):
                if stub.calls[CHATS] >= 8:
                    break
                await anyio.sleep(0.002)
            scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch, tasks.cancel_scope)
            await app.work(run.run_id)
        started = stub.calls[CHATS]
        async with app.services.pool.connection(Deadline.after(30)) as tx:
            assert await tx.fetchval("select count(*) from context_cache") >= started - 2, (
                "it is there before its batch is"
            )
            assert await tx.fetchval("select count(*) from chunk") == 0
    stub.seconds = 0.0
    async with open_sapwood(given) as app:
        await index(app, docs)
        total = await chunks(app)
        assert started < total <= stub.calls[CHATS] <= total + 2, "two calls were in flight at most"


async def test_a_process_that_is_killed_has_kept_what_it_paid_for(
    given: WorkerSettings, database: str, redis_url: str, stub: OpenAIStub, docs: Path
) -> None:
    await write(docs, PARTS)
    stub.seconds = 0.05
    variables = {
        "SAPWOOD_DATABASE_URL": database,
        "SAPWOOD_REDIS_URL": redis_url,
        "SAPWOOD_OPENAI_BASE_URL": stub.url,
        "SAPWOOD_OPENAI_API_KEY": KEY,
        "SAPWOOD_OPENAI_MODEL": str(given.openai_model),
        "SAPWOOD_MODEL_CONCURRENCY": "2",
    }
    async with open_sapwood(given) as app:
        run = await app.index("rules", [str(docs)], settings=SETTINGS)
        command = [sys.executable, "-m", "worker", "worker"]
        environment = Cli(given.home, variables).environment
        async with await anyio.open_process(command, cwd=ROOT, env=environment, stdout=None, stderr=None) as worker:
            for _ in range(10_000):
                if stub.calls[CHATS] >= 8:
                    break
                await anyio.sleep(0.002)
            worker.kill()
        started, stub.seconds = stub.calls[CHATS], 0.0
        info = await app.work(run.run_id)
        assert info.state is RunState.COMPLETED, info.error
        total = await chunks(app)
        assert 8 <= started < total <= stub.calls[CHATS] <= total + 4, (
            "two were in flight, and two on their way to the cache"
        )
        assert FEES in (await ask(app, "Pemberley statutes", Strategy.KEYWORD)).hits[0].text


async def test_garbage_takes_contexts_with_their_chunks(given: WorkerSettings, docs: Path) -> None:
    async with open_sapwood(given) as app:

        async def kept() -> set[str]:
            async with app.services.pool.connection(Deadline.after(30)) as tx:
                return {row["context"] for row in await tx.fetch("select context from context_cache")}

        once = apply_changes(SETTINGS, ["retention.generations=1"])
        await write(docs, PARTS[:1], "fees.md")
        await write(docs, PARTS[1:2], "heat.md")
        await index(app, docs, once)
        assert await kept() == {ABOUT_FEES, ABOUT_KILN}
        await anyio.Path(docs / "fees.md").unlink()
        await index(app, docs, once)
        assert await kept() == {ABOUT_KILN}


async def test_a_model_that_cannot_be_used_fails_the_run(
    tmp_path: Path, database: str, redis_url: str, stub: OpenAIStub, docs: Path
) -> None:
    await write(docs, PARTS)
    async with open_sapwood(settings_of(tmp_path / "home", database, redis_url, stub, "sk-wrong-key")) as app:
        info = await app.work((await app.index("rules", [str(docs)], settings=SETTINGS)).run_id)
        assert info.state is RunState.FAILED
        assert info.error == "ConfigurationError: The model endpoint refuses the API key."
        nobody = apply_changes(SETTINGS, ["chunk.context_model=nobodys"])
        info = await app.work((await app.index("other", [str(docs)], settings=nobody)).run_id)
        assert info.error == "ProviderUnavailable: chunk.context_model: no provider serves the model 'nobodys'."


async def test_a_source_may_have_a_model_of_its_own(given: WorkerSettings, stub: OpenAIStub, docs: Path) -> None:
    async with open_sapwood(given) as app:
        await write(docs, PARTS[:1])
        await index(app, docs, SETTINGS.model_copy(update={"context_models": ((str(docs), ""),)}))
        assert not stub.calls[CHATS]
        with pytest.raises(ConfigurationError, match=r"chunk\.context_model: name a model"):
            await app.services.models.writer(" ")
