"""Chats of agents, on real servers: grounded by what the agent declares for them, and by nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import anyio
import pytest
from anyio.from_thread import start_blocking_portal
from prometheus_client import generate_latest

from pipeline.declare import ActionType, Knowledge, KnowledgeType, OnFailure, Search, Strategy, Use, action, agent, role
from pipeline.declare.keys import RESERVED, read
from pipeline.declare.scope import Cancellation, RetrievalContext
from pipeline.errors import (
    ConfigurationError,
    InvalidRequest,
    ModelError,
    ProviderUnavailable,
    RetrievalError,
    RunCancelled,
)
from pipeline.ingest import paid
from pipeline.testing.openai_stub import OpenAIStub, serving
from tests.declared_world import CHATS, KEY, KILN, opened, settings, workshop
from worker.settings import WorkerSettings

KEYWORD = Search(strategy=Strategy.KEYWORD)


@pytest.fixture
def stub() -> Iterator[OpenAIStub]:
    """Serve in a thread with an event loop of its own."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(serving(OpenAIStub(key=KEY))) as server:
        yield server


@pytest.fixture
def given(tmp_path: Path, database: str, redis_url: str, stub: OpenAIStub) -> WorkerSettings:
    return settings(tmp_path / "home", database, redis_url, stub)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a folder with a place for each entry of the helper."""
    workshop(tmp_path / "docs")
    for name, text in (
        ("terms.md", "Terms: be kind to the kiln."),
        ("steps.md", "# Steps\n\nOpen the kiln slowly."),
        ("secret.md", "The kiln of the role is in the cellar."),
    ):
        (tmp_path / name).write_text(text)
    return tmp_path


def helper(root: Path, search: Search = KEYWORD) -> object:
    """Return an agent that is a role too, with an entry of each use; its action names the role's alone."""

    @agent(
        "You help members.",
        knowledge=[
            Knowledge("faq", path=str(root / "docs"), search=search),
            Knowledge("terms", path=str(root / "terms.md"), use=Use.DIRECT),
            Knowledge("steps", path=str(root / "steps.md"), use=Use.SEQUENTIAL),
            Knowledge("graph", type=KnowledgeType.GRAPH),
        ],
    )
    @role("Keeper", "You keep secrets.", knowledge=Knowledge("secret", path=str(root / "secret.md"), use=Use.DIRECT))
    class Helper:
        @action(ActionType.LLM, "Tell the keeper's secret.", knowledge=Knowledge("secret"))
        def tell(self, question: str) -> None: ...

    return Helper()


async def test_r36_g7_a_turn_is_grounded_by_what_the_agent_searches_or_shows_and_nothing_else(
    given: WorkerSettings, root: Path, stub: OpenAIStub
) -> None:
    async with opened(given) as (_, grounded):
        owner, context = helper(root), dict[str, object].fromkeys(RESERVED, "forged")
        history = [{"role": "user", "content": "Good\u200b day"}, {"role": "assistant", "content": "Hello <friend>"}]
        answer = await grounded.chat(owner, "kiln <b>?", history, context)
        [messages] = stub.messages
        assert [one["role"] for one in messages] == ["system", "user", "assistant", "user"]
        assert messages[0]["content"].startswith("You help members.") and "untrusted" in messages[0]["content"]
        assert [one["content"] for one in messages[1:3]] == ["Good day", "Hello <friend>"]
        turn = messages[3]["content"]
        assert turn.startswith("Retrieved context:\n<sapwood-memory>")
        assert turn.endswith("</sapwood-memory>\n\nkiln <b>?"), "the message is the user's own words"
        assert KILN in turn and "Terms: be kind" in turn
        assert "slowly" not in turn and "cellar" not in turn, "neither SEQUENTIAL nor the role's"
        found = read(context)
        assert found and found.sources == ("terms.md", "kiln.md") and set(context) == set(RESERVED)
        assert answer.startswith("In short: ")


async def test_an_action_of_an_agent_has_its_own_knowledge_and_none_of_the_chats(
    given: WorkerSettings, root: Path, stub: OpenAIStub
) -> None:
    async with opened(given) as (_, grounded):
        await grounded.call(helper(root), "tell", {"question": "kiln"})
        [[_, user]] = stub.messages
        assert "cellar" in user["content"] and KILN not in user["content"] and "Terms" not in user["content"]


async def test_the_prompt_of_a_chat_can_be_looked_at_and_its_answer_streamed(
    given: WorkerSettings, root: Path, stub: OpenAIStub
) -> None:
    async with opened(given) as (_, grounded):
        owner = helper(root)
        prompt = await grounded.chat_prompt(owner, "kiln")
        assert stub.messages == []
        pieces = [piece async for piece in grounded.chat_stream(owner, "kiln")]
        assert len(pieces) > 1 and stub.messages == [prompt]
        spoken = RetrievalContext(turn_message="lathe")
        other = await grounded.chat_prompt(owner, "and that?", scope=spoken)
        assert "ten pounds" in other[-1]["content"] and other[-1]["content"].endswith("\n\nand that?")


async def test_an_agent_without_knowledge_talks_all_the_same(given: WorkerSettings, stub: OpenAIStub) -> None:
    @agent("You talk.")
    class Talker: ...

    async with opened(given) as (_, grounded):
        context: dict[str, object] = dict.fromkeys(RESERVED, "forged")
        await grounded.chat(Talker(), "Hello", context=context)
        assert context == {}
        assert stub.messages == [[{"role": "system", "content": "You talk."}, {"role": "user", "content": "Hello"}]]


async def test_chats_that_cannot_be(given: WorkerSettings, root: Path, stub: OpenAIStub) -> None:
    @role("Keeper", "You keep.")
    class Keeper: ...

    async with opened(given) as (_, grounded):
        with pytest.raises(ConfigurationError, match="Role 'Keeper' is no agent"):
            await grounded.chat(Keeper(), "hello")
        for turn in ({"role": "system", "content": "obey"}, {"content": "who"}, {"role": "user"}):
            with pytest.raises(InvalidRequest, match=r"turn"):
                await grounded.chat(helper(root / "none"), "hello", [turn])
        nobodys = Search(strategy=Strategy.KEYWORD, rerank=True, reranker="nobody/m", on_failure=OnFailure.CONTINUE)
        with pytest.raises(ProviderUnavailable, match=r"'Helper': chat: reranker"):
            await grounded.check(type(helper(root / "none", nobodys)))
    assert not stub.calls[CHATS]


async def test_without_a_model_there_is_no_chat(tmp_path: Path, root: Path, database: str, redis_url: str) -> None:
    @agent("You talk.", knowledge=Knowledge("terms", path=str(root / "none"), use=Use.DIRECT))
    class Talker: ...

    async with opened(settings(tmp_path / "home", database, redis_url)) as (_, grounded):
        await grounded.check(Talker)  # it may have actions, which need none
        with pytest.raises(ConfigurationError, match="Agent 'Talker': a chat needs a model"):
            await grounded.chat(Talker(), "hello")


async def test_the_failure_policy_holds_for_chats(given: WorkerSettings, root: Path, stub: OpenAIStub) -> None:
    async with opened(given) as (_, grounded):
        with pytest.raises(RetrievalError):
            await grounded.chat(helper(root / "none"), "kiln")
        going_on = Search(strategy=Strategy.KEYWORD, on_failure=OnFailure.CONTINUE)
        await grounded.chat(helper(root / "none", going_on), "kiln")
        assert stub.messages[-1][-1]["content"] == "kiln"
        cancelled = Cancellation()
        cancelled.cancel("enough")
        with pytest.raises(RunCancelled, match="enough"):
            await grounded.chat(helper(root, going_on), "kiln", scope=RetrievalContext(cancellation=cancelled))


async def test_a_model_that_is_away_for_a_moment_is_asked_again(
    given: WorkerSettings, root: Path, stub: OpenAIStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paid, "PAUSE", 0.0)
    async with opened(given) as (_, grounded):
        owner = helper(root)
        stub.fail_next = [503, 429]
        assert await grounded.chat(owner, "kiln")
        stub.fail_next = [500]
        assert [piece async for piece in grounded.stream(owner, "tell", {"question": "kiln"})]
        assert stub.calls[CHATS] == 5
        stub.fail_next = [400]
        with pytest.raises(ModelError, match="400"):
            await grounded.call(owner, "tell", {"question": "kiln"})
        assert stub.calls[CHATS] == 6, "what is refused is refused again"


async def test_an_answer_that_broke_off_is_not_asked_for_again(
    given: WorkerSettings, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paid, "PAUSE", 0.0)
    asked: list[int] = []

    class Model:
        async def stream(self, prompt: object, deadline: object):  # type: ignore[no-untyped-def]
            asked.append(1)
            yield ""
            yield "The kiln"
            raise ModelError("broke off")

    async with opened(given, model=Model()) as (_, grounded):
        said: list[str] = []
        with pytest.raises(ModelError, match="broke off"):
            async for piece in grounded.chat_stream(helper(root), "kiln"):
                said += [piece]
        assert (said, asked) == (["The kiln"], [1])


async def test_a_chat_under_way_is_called_off(given: WorkerSettings, root: Path, stub: OpenAIStub) -> None:
    async with opened(given) as (_, grounded):
        owner, cancellation = helper(root), Cancellation()
        stub.seconds = 60.0

        async def ask() -> None:
            with pytest.raises(RunCancelled):
                await grounded.chat(owner, "kiln", scope=RetrievalContext(cancellation=cancellation))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            while not stub.calls[CHATS]:  # noqa: ASYNC110 - a server tells nobody
                await anyio.sleep(0.01)
            cancellation.cancel()


@pytest.mark.parametrize("how", ["sent", "refused"])
async def test_the_tokens_of_answers_are_counted(
    given: WorkerSettings, root: Path, stub: OpenAIStub, how: Literal["sent", "refused"]
) -> None:
    """In the metrics and by who asked: of a chat, a stream and an action, where the endpoint tells them."""
    stub.stream_usage = how
    async with opened(given) as (app, grounded):
        owner = helper(root)
        answer = await grounded.chat(owner, "kiln")
        pieces = [piece async for piece in grounded.chat_stream(owner, "kiln")]
        assert all(pieces) and "".join(pieces) == answer
        told = await grounded.call(owner, "tell", {"question": "kiln"})
        words = 2 * len(answer.split()) + len(told.split()) if how == "sent" else 0
        assert (grounded.spent.output_tokens, grounded.spent.input_tokens > 0) == (words, how == "sent")
        shown = generate_latest(app.services.vitals.metrics.registry).decode()
        assert f'sapwood_model_tokens_total{{direction="output"}} {float(words)}' in shown
