"""Actions with declared knowledge, on real servers: the numbers are those of the conformance list."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread
from anyio.abc import SocketAttribute, SocketStream
from anyio.from_thread import start_blocking_portal
from pydantic import SecretStr
from structlog.testing import capture_logs

from pipeline.deadline import Deadline
from pipeline.declare import ActionType, Knowledge, KnowledgeType, OnFailure, Search, Strategy, Unit, Use, action, role
from pipeline.declare.classes import declaration_of
from pipeline.declare.failures import PROVIDER, SOURCE_LOADING
from pipeline.declare.keys import RESERVED, Evidence, read
from pipeline.declare.scope import Cancellation, RetrievalContext
from pipeline.errors import (
    ConfigurationError,
    DeadlineExceeded,
    InvalidRequest,
    ModelError,
    ProviderUnavailable,
    RetrievalError,
    RunCancelled,
)
from pipeline.ingest import paid
from pipeline.ingest.urls import Fetcher
from pipeline.testing.openai_stub import OpenAIStub, serving
from schemas.query import QueryRequest, QueryResult
from schemas.settings import ChunkSettings, CorpusSettings, ExtractionSettings
from worker.app import Sapwood, open_sapwood
from worker.grounded import Grounded, open_grounded
from worker.settings import WorkerSettings

ROOT = Path(__file__).resolve().parents[2]
KEY = "sk-very-secret-0123456789"
CHATS = "/v1/chat/completions"
KILN = "The kiln reaches twelve hundred degrees and stands in room four."
FEES = "Members pay ten pounds a month for the lathe."
SETTINGS = CorpusSettings(chunk=ChunkSettings(max_chars=200))
KEYWORD = Search(strategy=Strategy.KEYWORD)


@pytest.fixture
def stub() -> Iterator[OpenAIStub]:
    """Serve in a thread with an event loop of its own."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(serving(OpenAIStub(key=KEY))) as server:
        yield server


@pytest.fixture
def given(tmp_path: Path, database: str, redis_url: str, stub: OpenAIStub) -> WorkerSettings:
    return WorkerSettings(
        home=tmp_path / "home",
        database_url=SecretStr(database),
        redis_url=SecretStr(redis_url),
        openai_base_url=stub.url,
        openai_api_key=SecretStr(KEY),
        openai_model="m",
    )


@asynccontextmanager
async def opened(given: WorkerSettings) -> AsyncGenerator[tuple[Sapwood, Grounded], None]:
    """Open all of it in the task of the test, in which its scopes have to end too."""
    async with open_sapwood(given) as app, open_grounded(app, settings=SETTINGS) as grounded:
        yield app, grounded


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "docs"
    found.mkdir()
    (found / "kiln.md").write_text(f"---\ntier: approved\n---\n# Kiln\n\n{KILN}\n")
    (found / "fees.md").write_text(f"---\ntier: draft\n---\n# Fees\n\n{FEES}\n")
    return found


@pytest.fixture
def queries(monkeypatch: pytest.MonkeyPatch) -> list[QueryRequest]:
    """Return what reaches the query stage, as it comes."""
    seen: list[QueryRequest] = []
    ask = Sapwood.query

    async def noting(self: Sapwood, corpus: str, request: QueryRequest) -> QueryResult:
        seen.append(request)
        return await ask(self, corpus, request)

    monkeypatch.setattr(Sapwood, "query", noting)
    return seen


def steward(path: Path, search: Search = KEYWORD, **members: Any) -> object:
    """Return an object of a role over this folder, whose actions are LOCAL, LLM and one without knowledge."""
    entry = Knowledge("docs", path=str(path), search=search if members.get("use") is None else None, **members)

    @role("Steward", "You answer for a workshop.", knowledge=entry)
    class Steward:
        @action(ActionType.LOCAL, "Look it up.", knowledge=Knowledge("docs"))
        def look(self, question: str, context: Mapping[str, object]) -> Mapping[str, object]:
            return dict(context)

        @action(ActionType.LOCAL, "Look it up for display.", knowledge=Knowledge("docs", search=shown(search)))
        def show(self, question: str, context: Mapping[str, object]) -> Mapping[str, object]:
            return dict(context)

        @action(ActionType.LLM, "Answer the member.", knowledge=Knowledge("docs"))
        def answer(self, question: str) -> None: ...

        @action(ActionType.LOCAL, "Say something.")
        def say(self, text: str, context: Mapping[str, object]) -> Mapping[str, object]:
            return dict(context)

    return Steward()


def shown(search: Search) -> Search:
    return replace(search, context_format="<<${content}>>", context_window=500)


async def look(
    grounded: Grounded, owner: object, question: str, name: str = "look", scope: RetrievalContext | None = None
) -> Evidence:
    found = read(await grounded.call(owner, name, {"question": question}, {}, scope))
    assert found is not None
    return found


# --- Sources and failures.


async def test_r11_r12_a_missing_folder_fails_or_leaves_the_action_without_context(
    given: WorkerSettings, tmp_path: Path, stub: OpenAIStub
) -> None:
    async with opened(given) as (_, grounded):
        with pytest.raises(RetrievalError) as caught:
            await look(grounded, steward(tmp_path / "none"), "kiln")
        assert caught.value.reason == SOURCE_LOADING
        going_on = steward(tmp_path / "none", replace(KEYWORD, on_failure=OnFailure.CONTINUE))
        with capture_logs() as logs:
            assert await look(grounded, going_on, "kiln") == Evidence()
        [line] = [one for one in logs if one["event"] == "grounding.left_out"]
        assert line["reason"] == SOURCE_LOADING and line["log_level"] == "warning"
        assert await grounded.call(going_on, "answer", {"question": "kiln"})
        assert "Retrieved context" not in stub.messages[-1][1]["content"]


async def test_r13_an_empty_folder_is_a_source_without_documents(given: WorkerSettings, tmp_path: Path) -> None:
    async with opened(given) as (_, grounded):
        await anyio.Path(tmp_path / "empty").mkdir()
        assert await look(grounded, steward(tmp_path / "empty"), "kiln") == Evidence()


async def test_r14_r23_no_match_is_success_and_no_fence(given: WorkerSettings, folder: Path, stub: OpenAIStub) -> None:
    async with opened(given) as (_, grounded):
        owner = steward(folder)
        assert await look(grounded, owner, "zeppelin") == Evidence()
        await grounded.call(owner, "answer", {"question": "zeppelin"})
        assert stub.messages == [
            [
                {"role": "system", "content": "You answer for a workshop."},
                {"role": "user", "content": "Answer the member.\n\nInput:\nquestion: zeppelin"},
            ]
        ]


async def test_a_provider_that_fails_is_the_policys_and_a_missing_one_never(
    given: WorkerSettings, folder: Path, stub: OpenAIStub
) -> None:
    async with opened(given) as (_, grounded):
        strategy = Search(strategy=Strategy.MULTI_QUERY, query_expansion="openai/m")
        going_on = steward(folder, replace(strategy, on_failure=OnFailure.CONTINUE))
        stub.garbage = {"kiln": "not json"}
        with pytest.raises(RetrievalError) as caught:
            await look(grounded, steward(folder, strategy), "kiln")
        assert caught.value.reason == PROVIDER
        assert await look(grounded, going_on, "kiln") == Evidence()
        nobodys = replace(strategy, query_expansion="nobody/m", on_failure=OnFailure.CONTINUE)
        with pytest.raises(ProviderUnavailable, match="action 'look'"):
            await look(grounded, steward(folder / "none", nobodys), "kiln")
        with pytest.raises(ProviderUnavailable, match="action 'look'"):
            await grounded.check(type(steward(folder, replace(nobodys, strategy=Strategy.HYBRID))))


async def test_what_is_wrong_with_a_request_or_the_configuration_is_never_softened(
    given: WorkerSettings, folder: Path
) -> None:
    owner = steward(folder, replace(KEYWORD, on_failure=OnFailure.CONTINUE))
    async with opened(given) as (app, grounded):
        with pytest.raises(InvalidRequest, match="document"):
            await look(grounded, owner, "kiln", scope=RetrievalContext(filters={"document": 5}))
        nobodys = SETTINGS.model_copy(update={"extraction": ExtractionSettings(provider="nobody")})
        async with open_grounded(app, settings=nobodys) as other:
            with pytest.raises(ConfigurationError, match="nobody"):
                await look(other, owner, "kiln")


async def test_r20_cancellation_and_the_deadline_are_never_softened(given: WorkerSettings, folder: Path) -> None:
    async with opened(given) as (_, grounded):
        owner = steward(folder, replace(KEYWORD, on_failure=OnFailure.CONTINUE))
        cancelled = Cancellation()
        cancelled.cancel("enough")
        with pytest.raises(RunCancelled, match="enough"):
            await look(grounded, owner, "kiln", scope=RetrievalContext(cancellation=cancelled))
        with pytest.raises(DeadlineExceeded):
            await look(grounded, owner, "kiln", scope=RetrievalContext(deadline=Deadline.after(0)))


async def test_r20_a_call_under_way_is_called_off(given: WorkerSettings, folder: Path, stub: OpenAIStub) -> None:
    async with opened(given) as (_, grounded):
        owner, cancellation = steward(folder), Cancellation()
        stub.seconds = 60.0

        async def ask() -> None:
            with pytest.raises(RunCancelled):
                await grounded.call(
                    owner, "answer", {"question": "kiln"}, {}, RetrievalContext(cancellation=cancellation)
                )

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            while not stub.calls[CHATS]:  # noqa: ASYNC110 - a server tells nobody
                await anyio.sleep(0.01)
            cancellation.cancel()


async def test_the_deadline_holds_for_the_model_too(given: WorkerSettings, folder: Path, stub: OpenAIStub) -> None:
    async with opened(given) as (_, grounded):
        owner = steward(folder)
        await look(grounded, owner, "kiln")  # so that what is left is the model's
        stub.seconds = 60.0
        for seconds in (0.3, 0.4):
            scope = RetrievalContext(deadline=Deadline.after(seconds))
            with pytest.raises(DeadlineExceeded):
                async for _ in grounded.stream(owner, "answer", {"question": "kiln"}, {}, scope):
                    raise AssertionError("it said something")
        assert stub.calls[CHATS] == 2


async def test_a_corpus_that_was_deleted_is_made_anew(given: WorkerSettings, folder: Path) -> None:
    async with opened(given) as (app, grounded):
        owner = steward(folder)
        await look(grounded, owner, "kiln")
        await anyio.Path(folder / "kiln.md").write_text("# Kiln\n\nThe kiln has moved to room nine.\n")
        [corpus] = await app.corpora()
        await app.delete_corpus(corpus.name)
        with pytest.raises(RetrievalError, match="deleted") as caught:
            await look(grounded, owner, "hot kiln")
        assert caught.value.reason == SOURCE_LOADING
        for question in ("hot kiln", "kiln"):
            assert "room nine" in (await look(grounded, owner, question)).text


# --- Keys and prompts.


async def test_r21_r22_the_keys_are_cleared_first_and_written_together(given: WorkerSettings, folder: Path) -> None:
    async with opened(given) as (_, grounded):
        owner = steward(folder)
        context: dict[str, object] = {**dict.fromkeys(RESERVED, "forged"), "mine": 1}
        assert await grounded.call(owner, "say", {"text": "hello"}, context) == {"mine": 1}
        await grounded.call(owner, "look", {"question": "kiln"}, context)
        assert set(context) == {*RESERVED, "mine"}
        found = read(context)
        assert found and found.count == 1 and KILN in found.text and found.sources == ("kiln.md",)
        context = {**dict.fromkeys(RESERVED, "forged")}
        with pytest.raises(RetrievalError):
            await grounded.call(steward(folder / "none"), "look", {"question": "kiln"}, context)
        assert context == {}


async def test_the_prompt_has_action_block_and_input_in_this_order(
    given: WorkerSettings, folder: Path, stub: OpenAIStub
) -> None:
    async with opened(given) as (_, grounded):
        owner, asked = steward(folder), {"question": "kiln <b>&"}
        answer = await grounded.call(owner, "answer", asked)
        [[system, user]] = stub.messages
        places = [
            user["content"].index(piece) for piece in ("Answer the member.", "Retrieved context:", KILN, "Input:")
        ]
        assert places == sorted(places) and "question: kiln &lt;b&gt;&amp;" in user["content"]
        assert "untrusted" in system["content"]
        assert await grounded.prompt(owner, "answer", asked) == [system, user]
        pieces = [piece async for piece in grounded.stream(owner, "answer", asked)]
        assert len(pieces) > 1 and "".join(pieces) == answer
        assert stub.calls[CHATS] == 2, "a prompt that is looked at is not sent"


async def test_r26_a_window_with_room_for_nothing_never_reaches_the_model(
    given: WorkerSettings, folder: Path, stub: OpenAIStub
) -> None:
    async with opened(given) as (_, grounded):
        with pytest.raises(InvalidRequest, match="context_window"):
            await grounded.call(steward(folder, replace(KEYWORD, context_window=1)), "answer", {"question": "kiln"})
        assert not stub.calls[CHATS]


async def test_arguments_and_models_that_do_not_fit(
    given: WorkerSettings, folder: Path, stub: OpenAIStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paid, "PAUSE", 0.0)
    async with opened(given) as (_, grounded):
        owner = steward(folder)
        wrong: list[dict[str, object]] = [
            {},
            {"question": "a", "more": 1},
            {"question": "a", "context": 1},
            {"question": 5},
        ]
        for arguments in wrong:
            with pytest.raises(InvalidRequest):
                await grounded.call(owner, "look", arguments)
        stub.fail_next = [500] * paid.ATTEMPTS
        with pytest.raises(ModelError, match="500"):
            await grounded.call(owner, "answer", {"question": "kiln"})


# --- The cache.


async def test_r27_r28_the_second_call_is_cached_and_only_rendered_anew(
    given: WorkerSettings, folder: Path, queries: list[QueryRequest]
) -> None:
    async with opened(given) as (app, grounded):
        owner = steward(folder)
        first = await look(grounded, owner, "kiln")
        assert await look(grounded, owner, "kiln") == first
        second = await look(grounded, owner, "kiln", "show")
        assert (second.sources, second.count) == (first.sources, first.count)
        assert second.text.startswith("<<") and second.text != first.text
        assert len(queries) == 1 and len(await app.corpora()) == 1
        uncached = steward(folder, replace(KEYWORD, cache=False))
        for _ in range(2):
            await look(grounded, uncached, "kiln")
        assert len(queries) == 3


async def test_r29_turns_conversations_locations_and_filters_are_kept_apart(
    given: WorkerSettings, folder: Path, queries: list[QueryRequest]
) -> None:
    async with opened(given) as (_, grounded):
        owner, path = steward(folder), str(folder)
        scopes = [
            RetrievalContext(),
            RetrievalContext(turn_message="kiln"),
            RetrievalContext(conversation_id="2"),
            RetrievalContext(source_paths=(path,)),
            RetrievalContext(filters={"tier": "approved"}),
        ]
        for scope in scopes * 2:
            assert (await look(grounded, owner, "kiln", scope=scope)).count == 1
        assert len(queries) == len(scopes)
        spoken = await look(grounded, owner, "kiln", scope=RetrievalContext(turn_message="lathe"))
        assert spoken.sources == ("fees.md",), "the turn is searched instead of the argument"
        elsewhere = await look(grounded, owner, "kiln", scope=RetrievalContext(source_paths=("/elsewhere",)))
        assert elsewhere == Evidence()


async def test_r30_a_changed_file_shows_once_the_role_is_invalidated(given: WorkerSettings, folder: Path) -> None:
    async with opened(given) as (_, grounded):
        owner = steward(folder)
        assert "room four" in (await look(grounded, owner, "kiln")).text
        await anyio.Path(folder / "kiln.md").write_text("# Kiln\n\nThe kiln has moved to room nine.\n")
        for question in ("kiln", "where kiln"):
            assert "room four" in (await look(grounded, owner, question)).text
        await grounded.invalidate(type(owner))
        for question in ("kiln", "where kiln"):
            assert "room nine" in (await look(grounded, owner, question)).text


async def test_r31_equal_chunks_are_one_document(given: WorkerSettings, folder: Path) -> None:
    async with opened(given) as (_, grounded):
        await anyio.Path(folder / "again.md").write_text(f"# Kiln\n\n{KILN}\n")
        await anyio.Path(folder / "kiln.md").write_text(f"# Kiln\n\n{KILN}\n")
        assert (await look(grounded, steward(folder), "kiln")).count == 1
        both = steward(folder, replace(KEYWORD, deduplicate=False))
        assert (await look(grounded, both, "kiln")).count == 2


async def test_r32_reranking_comes_after_deduplication_and_before_the_cache(
    given: WorkerSettings, folder: Path, stub: OpenAIStub
) -> None:
    async with opened(given) as (_, grounded):
        for name in ("one", "two"):
            await anyio.Path(folder / f"{name}.md").write_text("# Oven\n\nAn oven is no kiln but hot.\n")
        search = replace(KEYWORD, rerank=True, reranker="openai/m", top_n=1)
        seen: list[int] = []
        rerank = stub._rerank  # pyright: ignore[reportPrivateUsage]

        def noting(request: dict[str, Any]) -> Any:
            seen.append(len(request["documents"]))
            return rerank(request)

        stub._rerank = noting  # type: ignore[method-assign]
        owner = steward(folder, search)
        found = [await look(grounded, owner, "which oven is no kiln") for _ in range(2)]
        assert found[0] == found[1] and found[0].count == 1 and "oven" in found[0].text
        assert seen == [2], "two distinct documents of three, and once"


async def test_r37_stale_results_stand_in_where_they_are_taken_and_say_so(
    given: WorkerSettings, folder: Path, stub: OpenAIStub
) -> None:
    async with opened(given) as (_, grounded):
        owner, taking = steward(folder), RetrievalContext(accept_stale=True)
        fresh = await look(grounded, owner, "kiln", scope=taking)
        assert not fresh.stale
        await anyio.Path(folder).rename(folder.with_name("moved"))
        await grounded.invalidate(type(owner))
        assert await look(grounded, owner, "kiln", scope=taking) == replace(fresh, stale=True)
        await grounded.call(owner, "answer", {"question": "kiln"}, {}, taking)
        assert "Retrieved context (stale cache):" in stub.messages[-1][1]["content"]
        with pytest.raises(RetrievalError):
            await look(grounded, owner, "kiln")
        with pytest.raises(RetrievalError):
            await look(grounded, owner, "another question", scope=taking)


async def test_r37_results_are_fresh_for_their_ttl_only(
    given: WorkerSettings, folder: Path, queries: list[QueryRequest]
) -> None:
    async with opened(given) as (_, grounded):
        owner = steward(folder, replace(KEYWORD, cache_ttl=0.05))
        await look(grounded, owner, "kiln")
        await anyio.sleep(0.1)
        assert not (await look(grounded, owner, "kiln")).stale
        assert len(queries) == 2


async def test_r38_filters_match_exactly(given: WorkerSettings, folder: Path) -> None:
    async with opened(given) as (_, grounded):
        owner, question = steward(folder), "kiln lathe"
        assert (await look(grounded, owner, question)).count == 2
        for tier, sources in (("approved", ("kiln.md",)), ("draft", ("fees.md",)), ("approve", ()), ("APPROVED", ())):
            found = await look(grounded, owner, question, scope=RetrievalContext(filters={"tier": tier}))
            assert found.sources == sources


async def test_two_hundred_equal_questions_are_one_retrieval_and_one_index(
    given: WorkerSettings, folder: Path, queries: list[QueryRequest]
) -> None:
    async with opened(given) as (app, grounded):
        owner, counts = steward(folder), list[int]()

        async def ask() -> None:
            counts.append((await look(grounded, owner, "kiln")).count)

        async with anyio.create_task_group() as group:
            for _ in range(200):
                group.start_soon(ask)
        assert counts == [1] * 200 and len(queries) == 1
        [corpus] = await app.corpora()
        assert len(await app.runs(corpus.name)) == 1


# --- Other ways in.


async def test_tenants_have_corpora_of_their_own(given: WorkerSettings, folder: Path) -> None:
    async with opened(given) as (app, grounded):
        await app.services.keys.create_tenant("other", Deadline.after(10))
        owner = steward(folder)
        await look(grounded, owner, "kiln")
        assert (await look(grounded, owner, "kiln", scope=RetrievalContext(tenant="other"))).count == 1
        mine, theirs = [await Sapwood(app.services, tenant).corpora() for tenant in ("default", "other")]
        assert [one.name for one in mine] == [one.name for one in theirs] and len(mine) == 1
        await look(grounded, owner, "hot kiln")
        await anyio.Path(folder).rename(folder.with_name("moved"))
        await grounded.invalidate(type(owner))
        assert (await look(grounded, owner, "hot kiln", scope=RetrievalContext(accept_stale=True))).stale
        with pytest.raises(RetrievalError):
            await look(grounded, owner, "hot kiln", scope=RetrievalContext(tenant="other", accept_stale=True))


@pytest.mark.parametrize(
    ("members", "count", "truncated"),
    [
        ({"use": Use.DIRECT}, 2, False),
        ({"use": Use.DIRECT, "max_tokens": 30}, 2, True),
        ({"use": Use.DIRECT, "select": "kiln"}, 1, False),
        ({"use": Use.SEQUENTIAL, "unit": Unit.DOCUMENT}, 2, False),
        ({"use": Use.SEQUENTIAL, "unit": Unit.CHUNK, "max_tokens": 40}, 2, True),
    ],
)
async def test_text_that_is_used_without_a_search(
    given: WorkerSettings, folder: Path, members: dict[str, Any], count: int, truncated: bool
) -> None:
    async with opened(given) as (_, grounded):
        owner = unsearched(folder, **members)
        found = await look(grounded, owner, "whatever")
        assert (found.count, found.truncated) == (count, truncated)
        if "unit" in members:
            assert "…" not in found.text, "units are whole"
        before = found.text
        await anyio.Path(folder / "fees.md").write_text("# Kiln\n\nChanged.\n")
        assert (await look(grounded, owner, "whatever")).text == before
        await grounded.invalidate(type(owner))
        assert (await look(grounded, owner, "whatever")).text != before


def unsearched(path: Path, **members: Any) -> object:
    @role("Reader", "You read.", knowledge=Knowledge("docs", path=str(path), **members))
    class Reader:
        @action(ActionType.LOCAL, "Read it.", knowledge=Knowledge("docs"))
        def look(self, question: str, context: Mapping[str, object]) -> Mapping[str, object]:
            return dict(context)

    return Reader()


@role(
    "Archivist",
    "You keep notes.",
    knowledge=(
        Knowledge("notes", type=KnowledgeType.MEMORY, search=KEYWORD),
        Knowledge("rules", type=KnowledgeType.MEMORY, use=Use.DIRECT),
        Knowledge("page", type=KnowledgeType.HTTP, path="http://127.0.0.1/rules.html", use=Use.DIRECT),
    ),
)
class Archivist:
    @action(ActionType.LOCAL, "Find it.", knowledge=(Knowledge("notes"), Knowledge("rules")))
    def look(self, question: str, context: Mapping[str, object]) -> Mapping[str, object]:
        return dict(context)

    @action(ActionType.LOCAL, "Fetch it.", knowledge=Knowledge("page"))
    def fetch(self, question: str, context: Mapping[str, object]) -> Mapping[str, object]:
        return dict(context)


async def test_texts_that_the_program_hands_over(given: WorkerSettings) -> None:
    async with opened(given) as (app, grounded):
        with pytest.raises(ConfigurationError, match="'notes' has no documents"):
            await grounded.check(Archivist)
        memories = {"notes": {"a/kiln.md": KILN, "fees.txt": FEES}, "rules": {"rules.md": "Be kind."}}
        async with open_grounded(app, memories=memories, settings=SETTINGS) as other:
            found = await look(other, Archivist(), "kiln")
            assert found.sources == ("rules.md", "a/kiln.md") and found.count == 2
            with pytest.raises(RetrievalError, match="address rule") as caught:
                await look(other, Archivist(), "kiln", "fetch")
            assert caught.value.reason == SOURCE_LOADING
        async with open_grounded(app, memories=memories, settings=SETTINGS) as again:
            assert (await look(again, Archivist(), "kiln")).count == 2
            [corpus] = await app.corpora()
            counts, _ = await app.accounting((await app.runs(corpus.name))[0].run_id)
            assert counts == {"unchanged": 2}, "the same documents are the same corpus, whoever hands them over"
        for name in ("../x.md", "/x.md", ".x", ""):
            with pytest.raises(ConfigurationError, match="no name for a document"):
                async with open_grounded(app, memories={"notes": {name: KILN}}):
                    raise AssertionError("it opened")


PAGE = b"<html><title>Rules</title><body><h1>Rules</h1><p>Clean the kiln.</p></body></html>"


@asynccontextmanager
async def page() -> AsyncGenerator[tuple[Fetcher, str], None]:
    """Serve a page on the loopback; yield a fetcher that may go there, and its URL."""

    async def handle(stream: SocketStream) -> None:
        async with stream:
            await stream.receive()
            head = f"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {len(PAGE)}\r\n\r\n"
            await stream.send(head.encode() + PAGE)

    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    port = listener.extra(SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, handle)
        yield Fetcher(rule=lambda _: "", ports={"http": port}), f"http://127.0.0.1:{port}/rules.html"
        group.cancel_scope.cancel()


async def test_a_page_comes_through_the_loader(given: WorkerSettings) -> None:
    async with page() as (fetcher, url):

        @role("Reader", "You read.", knowledge=Knowledge("page", type=KnowledgeType.HTTP, path=url, use=Use.DIRECT))
        class Reader:
            @action(ActionType.LOCAL, "Read it.", knowledge=Knowledge("page"))
            def look(self, question: str, context: Mapping[str, object]) -> Mapping[str, object]:
                return dict(context)

        async with open_sapwood(given) as app, open_grounded(app, fetcher=fetcher) as grounded:
            found = await look(grounded, Reader(), "anything")
            assert "Clean the kiln." in found.text and found.count == 1


def guide(path: Path) -> object:
    @role(
        "Guide",
        "You know who works where.",
        knowledge=(
            Knowledge("docs", path=str(path), search=Search(strategy=Strategy.HYBRID)),
            Knowledge("graph", type=KnowledgeType.GRAPH),
            Knowledge("web", type=KnowledgeType.HTTP, path="http://127.0.0.1/x.html"),
        ),
    )
    class Guide:
        @action(ActionType.LOCAL, "Walk.", knowledge=Knowledge("graph"))
        def walk(self, question: str, context: Mapping[str, object]) -> Mapping[str, object]:
            return dict(context)

        @action(ActionType.LOCAL, "Fetch.", knowledge=Knowledge("web"))
        def fetch(self, question: str, context: Mapping[str, object]) -> Mapping[str, object]:
            return dict(context)

    return Guide()


async def test_a_graph_entry_reads_the_graph_of_the_files_and_a_page_that_is_refused_is_not_loaded(
    given: WorkerSettings, tmp_path: Path, queries: list[QueryRequest]
) -> None:
    await anyio.Path(tmp_path / "team.md").write_text(
        "# Team\n\nMaria Lopez works for Kiln Works. Kiln Works is in Leeds.\n"
    )
    owner = guide(tmp_path / "team.md")
    async with opened(given) as (_, grounded):
        found = await look(grounded, owner, "Who works for Kiln Works?", "walk")
        assert found.sources == ("team.md",) and queries[0].strategy is Strategy.GRAPH
        with pytest.raises(RetrievalError) as caught:
            await look(grounded, owner, "anything", "fetch")
        assert caught.value.reason == SOURCE_LOADING
        assert len(queries) == 1


async def test_the_example_prints_the_prompt_that_is_sent(
    tmp_path: Path, database: str, redis_url: str, stub: OpenAIStub
) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SAPWOOD_")} | {
        "SAPWOOD_HOME": str(tmp_path / "home"),
        "SAPWOOD_DATABASE_URL": database,
        "SAPWOOD_REDIS_URL": redis_url,
        "SAPWOOD_OPENAI_BASE_URL": stub.url,
        "SAPWOOD_OPENAI_API_KEY": KEY,
        "SAPWOOD_OPENAI_MODEL": "m",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, str(ROOT / "examples" / "grounded_action.py"), "Who may use the kiln?"]
    done = await to_thread.run_sync(
        lambda: subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=180)
    )
    assert done.returncode == 0, done.stderr
    [messages] = stub.messages
    printed = "".join(f"--- {one['role']}\n{one['content']}\n" for one in messages)
    assert done.stdout.startswith(printed) and "<sapwood-memory>" in printed
    assert "--- assistant\nIn short: " in done.stdout


async def test_cached_lookups_are_cheap(given: WorkerSettings, folder: Path, queries: list[QueryRequest]) -> None:
    """No time is asserted: the figure is printed with `-s`."""
    async with opened(given) as (_, grounded):
        owner, scope = steward(folder), RetrievalContext(filters={"tier": "approved"})
        await look(grounded, owner, "kiln", scope=scope)
        turn = await grounded._turn(declaration_of(type(owner)), "look", "kiln", scope)  # pyright: ignore[reportPrivateUsage]
        begun, times = time.process_time(), 5_000
        for _ in range(times):
            found = await grounded._retriever._found(turn)  # pyright: ignore[reportPrivateUsage]
            assert found.hits
        lookups = times / (time.process_time() - begun)
        begun = time.process_time()
        for _ in range(500):
            await look(grounded, owner, "kiln", scope=scope)
        sys.stdout.write(f"{lookups:.0f} lookups a second, {500 / (time.process_time() - begun):.0f} whole calls\n")
        assert len(queries) == 1
