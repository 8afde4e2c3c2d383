"""The models that assist a question, behind the OpenAI protocol: the real client against a real server on the loopback."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread
from anyio.from_thread import start_blocking_portal
from openai import AsyncOpenAI
from pydantic import SecretStr

from pipeline.adapters.openai_models import EndpointReranker, OpenAIExpander, OpenAINavigator, connected
from pipeline.deadline import Deadline
from pipeline.errors import ConfigurationError, DeadlineExceeded, ModelError, ProviderUnavailable
from pipeline.ingest import paid
from pipeline.retrieval.assistants import Option, heard
from pipeline.retrieval.navigation import chosen
from pipeline.retrieval.variants import variants
from pipeline.testing.openai_stub import OpenAIStub, serving
from schemas.query import QueryRequest, QueryResult
from schemas.runs import RunState
from schemas.settings import ChunkSettings, CorpusSettings
from tests.cli_driver import Cli
from tests.gateway_driver import running
from tests.gateway_driver import settings as gateway_settings
from worker.app import Sapwood, open_sapwood
from worker.settings import WorkerSettings

KEY = "sk-very-secret-0123456789"
QUESTION = "where is the kiln"
OPTIONS = [Option("Fees", 3), Option("The kiln", 2), Option("Rooms", 9)]
Ask = Callable[[AsyncOpenAI, Deadline], Awaitable[Any]]


@pytest.fixture
def stub() -> Iterator[OpenAIStub]:
    """Serve in a thread with an event loop of its own: a server's scopes must end in the task where they began."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(serving(OpenAIStub(key=KEY))) as server:
        yield server


@pytest.fixture
async def client(stub: OpenAIStub) -> AsyncIterator[AsyncOpenAI]:
    async with connected(stub.url, KEY) as opened:
        yield opened


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries follow at once."""
    monkeypatch.setattr(paid, "PAUSE", 0.0)


async def expand(client: AsyncOpenAI, deadline: Deadline) -> Any:
    provider = OpenAIExpander(client, "m", "expander")
    return variants(QUESTION, await heard("e", lambda: provider.expand("openai", QUESTION, 3, deadline), deadline), 3)


async def choose(client: AsyncOpenAI, deadline: Deadline) -> Any:
    provider = OpenAINavigator(client, "m", "navigator_model")
    answer = await heard("n", lambda: provider.choose("openai/other", QUESTION, OPTIONS, 2, deadline), deadline)
    return chosen(answer, len(OPTIONS))


async def score(client: AsyncOpenAI, deadline: Deadline) -> Any:
    provider = EndpointReranker(client, "m", "reranker")
    texts = ["a kiln is here", "where is it", "no"]
    return await heard("r", lambda: provider.scores("openai", QUESTION, texts, deadline), deadline)


ASKED: dict[str, Ask] = {"expander": expand, "navigator_model": choose, "reranker": score}
ALL = pytest.mark.parametrize("kind", list(ASKED))


def test_a_model_is_named_by_its_prefix() -> None:
    client: Any = None
    provider, bare = OpenAIExpander(client, "m", "expander"), OpenAIExpander(client, "", "expander")
    assert [provider.serves(name) for name in ("openai", "openai/x", "x", "openai/", "")] == [True, True] + [False] * 3
    assert [bare.serves(name) for name in ("openai", "openai/x")] == [False, True]


async def test_the_real_client_gets_variants_choices_and_scores(stub: OpenAIStub, client: AsyncOpenAI) -> None:
    deadline = Deadline.after(30)
    found = await expand(client, deadline)
    assert found[0] == QUESTION and len(found) == 4
    assert await choose(client, deadline) == [2]
    assert await score(client, deadline) == [0.5, 0.5, 0.0]
    assert stub.calls == {"/v1/chat/completions": 2, "/v1/rerank": 1}
    for system, user in stub.messages:
        assert "never an instruction" in system["content"] and QUESTION not in system["content"]
        assert QUESTION in user["content"]


@ALL
@pytest.mark.parametrize("raw", ["not json", "[]", "{}", '{"queries": 5, "open": "2", "results": [{"index": 7}]}'])
async def test_a_bad_answer_is_a_model_error(stub: OpenAIStub, client: AsyncOpenAI, kind: str, raw: str) -> None:
    if kind == "reranker" and raw == "not json":
        raw = '"not an object"'  # this stub parses what it is told to say
    stub.garbage = {"kiln": raw}
    with pytest.raises(ModelError):
        await ASKED[kind](client, Deadline.after(30))
    assert stub.calls.total() == 1, "it would be as bad the next time"


@ALL
async def test_a_busy_endpoint_is_asked_again_and_a_refused_key_is_not(stub: OpenAIStub, kind: str) -> None:
    async with connected(stub.url, KEY) as client:
        stub.fail_next = [503, 429]
        assert await ASKED[kind](client, Deadline.after(30))
        assert stub.calls.total() == 3
    async with connected(stub.url, "sk-wrong-key-0000000") as stranger:
        with pytest.raises(ConfigurationError) as caught:
            await ASKED[kind](stranger, Deadline.after(30))
    assert "sk-" not in str(caught.value)
    assert stub.calls.total() == 4


async def test_a_path_that_the_endpoint_does_not_have_names_the_field(stub: OpenAIStub, client: AsyncOpenAI) -> None:
    stub.fail_next = [404]
    with pytest.raises(ConfigurationError, match=r"^reranker"):
        await score(client, Deadline.after(30))


@ALL
async def test_a_slow_endpoint_is_our_deadline_and_cancellation_ends_the_call(
    stub: OpenAIStub, client: AsyncOpenAI, kind: str
) -> None:
    stub.seconds = 60.0
    with pytest.raises(DeadlineExceeded):
        await ASKED[kind](client, Deadline.after(0.3))
    ended: list[str] = []

    async def ask() -> None:
        try:
            await ASKED[kind](client, Deadline.after(30))
        except ModelError:
            ended.append("error")

    async with anyio.create_task_group() as group:
        group.start_soon(ask)
        while stub.calls.total() < 2:  # noqa: ASYNC110 - a server tells nobody
            await anyio.sleep(0.01)
        group.cancel_scope.cancel()
    assert ended == []


async def test_an_endpoint_without_schemas_is_asked_otherwise(stub: OpenAIStub, client: AsyncOpenAI) -> None:
    stub.refused_formats = frozenset({"json_schema"})
    provider = OpenAIExpander(client, "m", "expander")
    for _ in range(2):
        await provider.expand("openai", QUESTION, 3, Deadline.after(30))
    assert stub.calls["/v1/chat/completions"] == 3


# --- From sources to answers, over the whole of it.

GUIDE = """---
date: 2024-05-01
---
# Guide

## Machines

The kiln reaches twelve hundred degrees and stands in room four.

## Fees

Members pay ten pounds a month for the kiln and all other machines.
"""
CASES: dict[str, dict[str, Any]] = {
    "multi_query": {"strategy": "multi_query", "expander": "openai"},
    "hierarchical": {"strategy": "hierarchical"},
    "temporal": {"strategy": "temporal", "temporal": {"field": "date"}},
    "reasoning": {"strategy": "reasoning", "navigator_model": "openai/navigator"},
    "rerank": {"strategy": "keyword", "rerank": True, "reranker": "openai", "top_n": 1},
}
STAGES = {
    "multi_query": "expand",
    "hierarchical": "groups",
    "temporal": "recency",
    "reasoning": "navigate",
    "rerank": "rerank",
}
ASKING = {"text": "Guide to the kiln", "deadline": 30.0}


async def guide(folder: Path) -> str:
    root = anyio.Path(folder / "docs")
    await root.mkdir()
    await (root / "guide.md").write_text(GUIDE)
    await (root / "other.md").write_text("# Other\n\nNothing to see in this document.\n")
    return str(root)


async def index(app: Sapwood, folder: Path) -> None:
    await app.create_corpus("guide", CorpusSettings(chunk=ChunkSettings(max_chars=120)))
    run = await app.index("guide", [await guide(folder)])
    info = await app.work(run.run_id)
    assert info.state is RunState.COMPLETED, info.error


def check(result: QueryResult, case: str) -> None:
    assert result.complete and result.hits, case
    assert result.hits[0].document == "guide.md"
    [stage] = [stage for stage in result.stages if stage.name == STAGES[case]]
    if case in ("multi_query", "reasoning"):
        assert stage.input_tokens and stage.output_tokens, "what the endpoint says was used"


async def test_every_strategy_from_sources_to_answers_in_the_library_and_over_http(
    tmp_path: Path, database: str, redis_url: str, stub: OpenAIStub
) -> None:
    models: dict[str, Any] = {"openai_base_url": stub.url, "openai_api_key": SecretStr(KEY), "openai_model": "m"}
    async with running(gateway_settings(tmp_path, database, redis_url, **models)) as gateway:
        await index(gateway.app, tmp_path)
        for case, fields in CASES.items():
            check(await gateway.app.query("guide", QueryRequest.model_validate(ASKING | fields)), case)
            body = await gateway.ok("POST", "/v1/corpora/guide/query", json=ASKING | fields | {"cache": False})
            check(QueryResult.model_validate(body), case)
        for wrong, code in (
            ({"strategy": "temporal"}, "ConfigurationError"),
            ({"strategy": "multi_query", "expander": "nobody's"}, "ProviderUnavailable"),
        ):
            problem = await gateway.ok("POST", "/v1/corpora/guide/query", 422, json=ASKING | wrong)
            assert problem["code"] == code


async def test_without_an_endpoint_nobody_serves(tmp_path: Path, database: str, redis_url: str) -> None:
    given = WorkerSettings(home=tmp_path, database_url=SecretStr(database), redis_url=SecretStr(redis_url))
    async with open_sapwood(given) as app:
        await index(app, tmp_path)
        for case in ("multi_query", "reasoning", "rerank"):
            with pytest.raises(ProviderUnavailable, match="openai"):
                await app.query("guide", QueryRequest.model_validate(ASKING | CASES[case]))
        for case in ("hierarchical", "temporal"):
            check(await app.query("guide", QueryRequest.model_validate(ASKING | CASES[case])), case)


OPTIONS_OF = {
    "multi_query": ("--strategy", "multi_query", "--expander", "openai"),
    "hierarchical": ("--strategy", "hierarchical"),
    "temporal": ("--strategy", "temporal", "--time-field", "date", "--half-life", "10", "--since", "2020-01-01"),
    "reasoning": ("--strategy", "reasoning", "--navigator", "openai/navigator"),
    "rerank": ("--strategy", "keyword", "--rerank", "--reranker", "openai", "--top-n", "1"),
}


async def test_the_command_line_has_the_same(tmp_path: Path, database: str, redis_url: str, stub: OpenAIStub) -> None:
    given = WorkerSettings(home=tmp_path, database_url=SecretStr(database), redis_url=SecretStr(redis_url))
    async with open_sapwood(given) as app:
        await index(app, tmp_path)
    cli = Cli(tmp_path).given(
        SAPWOOD_DATABASE_URL=database,
        SAPWOOD_REDIS_URL=redis_url,
        SAPWOOD_OPENAI_BASE_URL=stub.url,
        SAPWOOD_OPENAI_API_KEY=KEY,
        SAPWOOD_OPENAI_MODEL="m",
    )
    for case, options in OPTIONS_OF.items():
        answer = await to_thread.run_sync(lambda given=options: cli.query("guide", ASKING["text"], *given))
        check(QueryResult.model_validate(answer), case)
