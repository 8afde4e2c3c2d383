"""GRAPH entries on real servers: who serves them, when that is refused, and that no live answer is kept."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest

from pipeline.declare import ActionType, Knowledge, KnowledgeType, OnFailure, Search, Strategy, Use, action, agent, role
from pipeline.declare.keys import Evidence
from pipeline.declare.scope import RetrievalContext
from pipeline.errors import ConfigurationError, GraphCapabilityError, InvalidRequest
from pipeline.graphs.knowledge import KnowledgeTools
from pipeline.retrieval import providers
from schemas.ids import identity_key
from schemas.query import QueryRequest, QueryResult
from schemas.settings import GraphIndexingSettings, GraphSearchSettings
from tests.declared_world import SETTINGS, look, opened, settings
from tests.plugins import install
from worker.app import Sapwood
from worker.settings import WorkerSettings

TEAM = "# Team\n\nMaria Lopez works for Kiln Works. Kiln Works is in Leeds.\n"
WHO = "Who works for Kiln Works?"


@pytest.fixture
def given(tmp_path: Path, database: str, redis_url: str) -> WorkerSettings:
    return settings(tmp_path / "home", database, redis_url)


@pytest.fixture
def team(tmp_path: Path) -> Path:
    found = tmp_path / "team"
    found.mkdir()
    (found / "team.md").write_text(TEAM)
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


def walker(*knowledge: Knowledge, own: Knowledge | None = None) -> object:
    """Return an object of a role with a GRAPH entry and this knowledge, whose action names the GRAPH entry or `own`."""

    @role("Guide", "You know who works where.", knowledge=(*knowledge, Knowledge("graph", type=KnowledgeType.GRAPH)))
    class Guide:
        @action(ActionType.LOCAL, "Walk.", knowledge=own or Knowledge("graph"))
        def look(self, question: str, context: Mapping[str, object]) -> Mapping[str, object]:
            return dict(context)

    return Guide()


def files(path: Path, **members: Any) -> Knowledge:
    return Knowledge("docs", path=str(path), **members)


async def test_g9_g28_g29_without_files_live_triples_serve_as_they_are_at_the_moment(
    given: WorkerSettings, queries: list[QueryRequest]
) -> None:
    async with opened(given) as (app, grounded):
        owner = walker()
        assert await look(grounded, owner, "Ada") == Evidence()
        one, two = KnowledgeTools(), KnowledgeTools()
        one.kg_add_triple("Ada", "likes", "numbers")
        found = await look(grounded, owner, "Ada")
        assert (found.count, found.sources) == (1, ("knowledge-tools",)) and "Ada likes numbers" in found.text
        two.kg_add_triple("Ada", "likes", "music")
        assert (await look(grounded, owner, "Ada")).count == 2, "the same question, within the TTL of what was found"
        del two
        gc.collect()
        assert (await look(grounded, owner, "Ada")).count == 1
        assert {request.strategy for request in queries} == {Strategy.GRAPH} and len(queries) == 4
        [corpus] = await app.corpora()
        assert len(await app.runs(corpus.name)) == 1, "an empty corpus, made once"


async def test_g8_files_are_served_from_their_graph_and_never_from_live_triples(
    given: WorkerSettings, team: Path, queries: list[QueryRequest]
) -> None:
    tools = KnowledgeTools()
    tools.kg_add_triple("Kiln Works", "is sold by", "Ada")
    async with opened(given) as (_, grounded):
        for owner in (walker(files(team)), walker(files(team, use=Use.DIRECT))):
            for _ in range(2):
                assert (await look(grounded, owner, WHO)).sources == ("team.md",)
        assert len(queries) == 2, "once for each class, and kept"
        await anyio.Path(team.parent / "empty").mkdir()
        assert await look(grounded, walker(files(team.parent / "empty")), WHO) == Evidence()
        hybrid = walker(files(team.parent / "empty"), own=Knowledge("docs", search=Search(strategy=Strategy.HYBRID)))
        assert await look(grounded, hybrid, WHO) == Evidence()
    assert len(tools.triples()) == 1


async def test_g21_g34_two_spellings_are_one_node_that_leads_to_the_chunks_of_both(
    given: WorkerSettings, tmp_path: Path
) -> None:
    facts = [
        ("a", "The Auth Service uses Vault.", "The Auth Service"),
        ("b", "Auth-Service is in Leeds.", "Auth-Service"),
    ]
    lines = [
        orjson.dumps({"document": name, "passage": text, "triples": [[who, "has", "Keys"]]})
        for name, text, who in facts
    ]
    await anyio.Path(tmp_path / "facts.jsonl").write_bytes(b"\n".join(lines))
    async with opened(given) as (app, grounded):
        found = await look(grounded, walker(files(tmp_path / "facts.jsonl")), "auth service")
        assert sorted(found.sources) == ["a", "b"]
        [corpus] = await app.corpora()
        graph = [orjson.loads(line) async for line in app.export_graph(corpus.name)]
        names = [one["name"] for one in graph if "name" in one]
        assert sorted(map(identity_key, names)) == ["a", "auth service", "b", "keys"], "two are titles of documents"


async def test_g10_the_files_of_the_agent_are_in_reach_of_its_role(given: WorkerSettings, team: Path) -> None:
    owner = walker()
    tools = KnowledgeTools()
    tools.kg_add_triple("Kiln Works", "is sold by", "Ada")

    @agent("Helps.", knowledge=files(team), roles=[type(owner)])
    class Helper: ...

    @agent("Helps nobody.", knowledge=files(team))
    class Stranger: ...

    async with opened(given) as (_, grounded):
        assert (await look(grounded, owner, WHO)).sources == ("knowledge-tools",)
        found = await look(grounded, owner, WHO, scope=RetrievalContext(agent=Helper))
        assert found.sources == ("team.md",)
        with pytest.raises(InvalidRequest, match="Agent 'Stranger' does not have Role 'Guide'"):
            await look(grounded, owner, WHO, scope=RetrievalContext(agent=Stranger))
    assert len(tools.triples()) == 1


async def test_a_choice_of_sources_narrows_the_files_of_the_graph(given: WorkerSettings, team: Path) -> None:
    async with opened(given) as (_, grounded):
        owner = walker(files(team))
        assert (await look(grounded, owner, WHO, scope=RetrievalContext(source_paths=(str(team),)))).count
        elsewhere = RetrievalContext(source_paths=("/elsewhere",))
        assert await look(grounded, owner, WHO, scope=elsewhere) == Evidence()


OFF = [
    {"graph_search": GraphSearchSettings(enabled=False)},
    {"graph_indexing": GraphIndexingSettings(enabled=False)},
]


@pytest.mark.parametrize("off", OFF)
async def test_g13_a_graph_that_nobody_serves_is_refused_at_start_up_whatever_is_to_happen_on_failure(
    given: WorkerSettings, tmp_path: Path, off: dict[str, Any]
) -> None:
    """The folder is not there either: nothing is read before."""
    handle = Knowledge("graph", search=Search(on_failure=OnFailure.CONTINUE))
    async with opened(given, settings=SETTINGS.model_copy(update=off)) as (app, grounded):
        owner = walker(files(tmp_path / "none"), own=handle)
        with pytest.raises(GraphCapabilityError, match=r"'look': knowledge entry 'graph': search\.strategy GRAPH"):
            await grounded.check(type(owner))
        with pytest.raises(GraphCapabilityError):
            await look(grounded, owner, WHO)
        assert await app.corpora() == []


# --- Providers of others.

PLUGIN = """
from pipeline.errors import StoreUnavailable
from pipeline.graphs.bag import Triple
from pipeline.retrieval.legs import Ranking
from pipeline.retrieval.providers import _passage

said, asked = ["first"], []

class Mine:
    default = False
    def __init__(self, name="mine", live=True):
        self.name, self.live = name, live
    def claims(self, reach):
        asked.append((bool(reach.files), bool(reach.fence), self.name in reach.fence))
        return True
    async def rank(self, query, deadline):
        passages = [_passage(Triple("Ada", "says", text), "mine") for text in said]
        return Ranking([(~one.chunk_id, 1.0) for one in passages], passages={~one.chunk_id: one for one in passages})

def pinned():
    return Mine(live=False)

def other():
    return Mine("other")
"""


@pytest.fixture
def plugin(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install a distribution with these providers of PLUGIN, where Python finds it."""
    points = [f"{name} = {name}" for name in request.param]
    install(monkeypatch, tmp_path / "site", "sapwood_graphs_for_tests", PLUGIN, "sapwood.graph", points)
    providers.installed.cache_clear()
    yield
    providers.installed.cache_clear()


def say(text: str) -> None:
    sys.modules["sapwood_graphs_for_tests"].said[:] = [text]


@pytest.mark.parametrize(
    ("plugin", "kept"), [(["Mine"], False), (["pinned"], True)], indirect=["plugin"], ids=["live", "pinned"]
)
@pytest.mark.parametrize("strategy", [Strategy.GRAPH, Strategy.HYBRID])
async def test_g16_g19_another_provider_serves_and_what_is_live_is_never_kept(
    given: WorkerSettings, team: Path, plugin: None, kept: bool, strategy: Strategy, queries: list[QueryRequest]
) -> None:
    own = None if strategy is Strategy.GRAPH else Knowledge("docs", search=Search(strategy=strategy))
    async with opened(given) as (_, grounded):
        owner = walker(files(team), own=own)
        assert "Ada says first" in (await look(grounded, owner, WHO)).text
        say("second")
        again = (await look(grounded, owner, WHO)).text
        assert ("Ada says second" in again) is not kept
        assert len(queries) == (1 if kept else 2)
        claims = set(sys.modules["sapwood_graphs_for_tests"].asked)
        assert claims == {(True, strategy is Strategy.HYBRID, False)}, "start-up and questions are claimed alike"


@pytest.mark.parametrize("plugin", [["Mine", "other"]], indirect=True)
@pytest.mark.parametrize("strategy", [Strategy.GRAPH, Strategy.HYBRID])
async def test_g17_g20_two_that_claim_are_refused_at_start_up(
    given: WorkerSettings, tmp_path: Path, plugin: None, strategy: Strategy
) -> None:
    """Whatever is to happen on failure, and before anything is read: the folder is not there."""
    search = Search(strategy=strategy, on_failure=OnFailure.CONTINUE)
    own = Knowledge("graph" if strategy is Strategy.GRAPH else "docs", search=search)
    async with opened(given) as (app, grounded):
        with pytest.raises(GraphCapabilityError, match=r"action 'look'.*mine, other"):
            await look(grounded, walker(files(tmp_path / "none"), own=own), WHO)
        assert await app.corpora() == []
        keyword = Knowledge("docs", search=Search(strategy=Strategy.KEYWORD))
        assert isinstance(GraphCapabilityError(), ConfigurationError)
        await grounded.check(type(walker(files(tmp_path / "none"), own=keyword)))
