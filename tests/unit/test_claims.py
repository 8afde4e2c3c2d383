"""Who serves the graph; the numbers in the names are those of the specification's cases."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from pipeline.adapters.memory_graph import MemoryGraph
from pipeline.deadline import Deadline
from pipeline.errors import ConfigurationError, GraphCapabilityError, StoreUnavailable
from pipeline.graphs.claims import GraphProvider, GraphQuery, Reach, graph_settings, method, reach_of, serving
from pipeline.ports import Embedder
from pipeline.retrieval.legs import Ranking, Sources
from pipeline.retrieval.providers import (
    InMemoryProvider,
    KnowledgeToolsProvider,
    Providers,
    StoreProvider,
    installed,
)
from pipeline.testing.corpus import MemoryStores, PinnedRows, manifest_of, synthetic
from schemas.ids import CorpusId
from schemas.manifest import StoreCheck
from schemas.query import QueryRequest
from schemas.settings import CorpusSettings, GraphSearchSettings
from tests.plugins import install
from worker.compose.stores import open_stores
from worker.settings import load

STORES = MemoryStores({})


@dataclass(frozen=True)
class Consumer:
    """Somebody else's provider, which claims what it is told to."""

    name: str = "mine"
    claiming: bool = True
    default: bool = False
    live: bool = False

    def claims(self, reach: Reach) -> bool:
        return self.claiming

    async def rank(self, query: GraphQuery, deadline: Deadline) -> Ranking:
        return Ranking(())


def no_embedder(*_: Any) -> Embedder:
    raise AssertionError


IN_MEMORY = InMemoryProvider(Sources(STORES, STORES, no_embedder, anyio.CapacityLimiter(1)))
DEFAULTS: tuple[GraphProvider, ...] = (IN_MEMORY, KnowledgeToolsProvider())
NEO4J = StoreProvider("neo4j", MemoryGraph(), STORES)


def reach(*files: str, fence: tuple[str, ...] = (), **fields: Any) -> Reach:
    return Reach(frozenset(files), frozenset(fence), **({"graph": bool(files)} | fields))


def in_neo4j(*files: str, **fields: Any) -> Reach:
    return reach(*files, **({"store": "neo4j", "ranking": "walk"} | fields))


def served(found: Reach, *others: GraphProvider) -> str | None:
    provider = serving((*DEFAULTS, *others), found)
    return provider.name if provider else None


def test_g8_file_knowledge_is_served_in_memory() -> None:
    assert served(reach("handbook")) == "in-memory"
    assert served(reach("handbook", fence=("handbook",))) == "in-memory"


def test_g9_without_file_knowledge_the_live_triples_serve() -> None:
    assert served(reach()) == "knowledge-tools"


def test_g10_file_knowledge_of_the_agent_counts_too() -> None:
    assert served(reach("the agent's handbook")) == "in-memory"


def test_g11_a_fence_around_the_live_triples_keeps_them_on_file_knowledge() -> None:
    assert served(reach("handbook", fence=("knowledge-tools",))) == "knowledge-tools"
    assert served(reach("handbook", fence=("knowledge-tools",), graph=False)) == "knowledge-tools"


def test_g12_a_selection_of_no_file_source_leaves_the_in_memory_graph_silent() -> None:
    assert served(reach("handbook", fence=("elsewhere",))) is None
    assert not IN_MEMORY.claims(reach("handbook", fence=("elsewhere", "knowledge-tools")))


def test_a_fence_that_names_both_gives_the_live_triples_which_it_names_themselves() -> None:
    assert served(reach("handbook", fence=("handbook", "knowledge-tools"))) == "knowledge-tools"
    assert served(reach("handbook", fence=("handbook", "in-memory"))) == "in-memory"
    with pytest.raises(GraphCapabilityError, match="in-memory, knowledge-tools"):
        served(reach("handbook", fence=("in-memory", "knowledge-tools")))


def test_g13_nobody_claims() -> None:
    assert serving((), reach("handbook")) is None
    assert serving((IN_MEMORY,), reach()) is None
    assert served(reach("handbook", graph=False)) is None


def test_g14_a_graph_in_neo4j_is_served_from_there() -> None:
    assert served(in_neo4j("handbook"), NEO4J) == "neo4j"
    assert served(in_neo4j("handbook", fence=("handbook",)), NEO4J) == "neo4j"
    assert served(in_neo4j("handbook", fence=("neo4j",)), NEO4J) == "neo4j"


@pytest.mark.parametrize(
    "found",
    [
        reach("handbook"),  # the graph lies in PostgreSQL
        in_neo4j("handbook", ranking="ppr"),  # a PageRank is made from the snapshot
        in_neo4j("handbook", fence=("in-memory",)),
    ],
)
def test_what_neo4j_does_not_claim_is_served_in_memory(found: Reach) -> None:
    assert served(found, NEO4J) == "in-memory"


def test_neo4j_without_documents_or_behind_a_fence_is_silent() -> None:
    assert served(in_neo4j(), NEO4J) == "knowledge-tools"
    assert served(in_neo4j("handbook", graph=False), NEO4J) is None
    assert served(in_neo4j("handbook", fence=("knowledge-tools",)), NEO4J) == "knowledge-tools"


async def opened(**environ: str) -> tuple[list[GraphProvider], list[tuple[str, str]]]:
    """Return the providers of the graph stores that these variables name, and what was logged on the way."""
    settings = load({f"SAPWOOD_GRAPH_{name}": value for name, value in environ.items()})
    async with AsyncExitStack() as stack:
        with capture_logs() as logs:
            readers = (await open_stores(stack, settings)).readers
    providers: list[GraphProvider] = [StoreProvider(store, reader, STORES) for store, reader in readers.items()]
    return providers, [(entry["log_level"], entry["event"]) for entry in logs]


async def test_g15_an_address_without_a_driver_is_one_warning_and_no_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "neo4j", None)
    providers, logs = await opened(NEO4J_URI="bolt://127.0.0.1:1")
    assert (providers, logs) == ([], [("warning", "stores.neo4j")])
    assert served(in_neo4j("handbook"), *providers) == "in-memory"


async def test_no_address_is_no_word_and_an_address_with_a_driver_claims() -> None:
    pytest.importorskip("neo4j", reason="the extra `neo4j` is not installed")
    assert await opened() == ([], [])
    providers, logs = await opened(NEO4J_URI="bolt://127.0.0.1:1")
    assert logs == []
    assert served(in_neo4j("handbook"), *providers) == "neo4j"


def test_g16_one_consumer_beside_the_defaults_serves() -> None:
    assert served(reach("handbook"), Consumer()) == "mine"
    assert served(reach(), Consumer()) == "mine"
    assert served(reach("handbook"), Consumer(claiming=False)) == "in-memory"


def test_g17_two_that_are_no_defaults_are_an_error_that_names_both() -> None:
    with pytest.raises(GraphCapabilityError, match="mine, neo4j") as caught:
        served(in_neo4j("handbook"), NEO4J, Consumer())
    assert isinstance(caught.value, ConfigurationError)
    assert served(in_neo4j("handbook", fence=("mine",)), NEO4J, Consumer()) == "mine"


names = st.frozensets(st.sampled_from(["handbook", "wiki", "in-memory", "knowledge-tools", "neo4j"]), max_size=3)


@given(
    names.map(lambda found: found & {"handbook", "wiki"}),
    names,
    st.booleans(),
    st.sampled_from(["postgres", "neo4j"]),
    st.sampled_from(["walk", "ppr"]),
    st.lists(st.booleans(), max_size=2),
)
def test_at_most_one_serves_it_claims_and_nobody_had_precedence(
    files: frozenset[str], fence: frozenset[str], graph: bool, store: str, ranking: Any, consumers: list[bool]
) -> None:
    found = Reach(files, fence, graph, store, ranking)
    others = [Consumer(f"c{i}", claiming) for i, claiming in enumerate(consumers)]
    everyone: list[GraphProvider] = [*DEFAULTS, NEO4J, *others]
    claimants = [provider for provider in everyone if provider.claims(found)]
    ranked = [provider for provider in claimants if not provider.default] or claimants
    try:
        provider = serving(everyone, found)
    except GraphCapabilityError as error:
        assert len(ranked) > 1
        assert all(one.name in str(error) for one in ranked)
        return
    assert (provider is None) == (not claimants)
    if provider is not None:
        assert provider in ranked
        assert len(ranked) == 1 or provider.name in fence
    assert serving(everyone[::-1], found) is provider


def test_reach_is_the_corpus_by_its_name_with_what_the_request_fences() -> None:
    rows = synthetic(20, 4)
    pinned = PinnedRows(CorpusId(7), manifest_of(rows, CorpusId(7), 1))
    request = QueryRequest(text="x", fence=("corpus-7", "neo4j"))
    assert reach_of(pinned, request) == reach("corpus-7", fence=("corpus-7", "neo4j"))
    empty = manifest_of(rows, CorpusId(7), 1).model_copy(update={"policy": "off", "stores": {}})
    assert not reach_of(PinnedRows(CorpusId(7), empty), request).graph
    bare = empty.model_copy(update={"stores": {"documents": StoreCheck(rows=0, checksum="")}})
    assert reach_of(PinnedRows(CorpusId(7), bare), QueryRequest(text="x")).files == frozenset()


@pytest.mark.parametrize(
    ("store", "corpus", "asked", "expected"),
    [
        ("postgres", "auto", None, "ppr"),
        ("neo4j", "auto", None, "walk"),
        ("postgres", "walk", None, "walk"),
        ("neo4j", "ppr", None, "ppr"),
        ("neo4j", "walk", "ppr", "ppr"),
        ("postgres", "auto", "walk", "walk"),
    ],
)
def test_how_a_graph_is_ranked(store: str, corpus: Any, asked: Any, expected: str) -> None:
    manifest = manifest_of(synthetic(20, 4), CorpusId(7), 1).model_copy(update={"graph_store": store})
    settings = CorpusSettings(graph_search=GraphSearchSettings(ranking=corpus, top_k=10))
    pinned, request = PinnedRows(CorpusId(7), manifest, settings), QueryRequest(text="x", ranking=asked, top_k=40)
    assert method(pinned, request) == expected
    assert (graph_settings(pinned, request).ranking, graph_settings(pinned, request).top_k) == (expected, 40)


PLUGIN = """
from pipeline.retrieval.legs import Ranking

class Mine:
    name, default, live = "mine", True, True
    def claims(self, reach):
        if "bad" in reach.fence:
            raise KeyError("bad")
        return reach.admits(self.name)
    async def rank(self, query, deadline):
        raise OSError("bolt://secret@10.0.0.1 is away")

def broken():
    raise RuntimeError("bolt://secret@10.0.0.1")

def nothing():
    return object()
"""


@pytest.fixture
def fresh() -> Iterator[None]:
    """Forget, before and after, what is installed: a process looks once."""
    installed.cache_clear()
    yield
    installed.cache_clear()


@pytest.fixture
def plugin(request: pytest.FixtureRequest, fresh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a distribution whose entry point `theirs` names this object of PLUGIN, where Python finds it."""
    points = [f"theirs = {request.param}"]
    install(monkeypatch, tmp_path, "sapwood_plugin_for_tests", PLUGIN, "sapwood.graph", points)


def pinned_rows() -> PinnedRows:
    return PinnedRows(CorpusId(7), manifest_of(synthetic(20, 4), CorpusId(7), 1))


@pytest.mark.parametrize("plugin", ["Mine"], indirect=True)
async def test_an_installed_provider_claims_beside_the_defaults_and_is_none(plugin: None) -> None:
    providers, pinned, request = Providers(DEFAULTS), pinned_rows(), QueryRequest(text="x")
    provider = await providers.serving(pinned, request)
    assert provider is not None
    assert (provider.name, provider.default, provider.live) == ("mine", False, True)
    assert await providers.serving(pinned, request) is provider
    fenced = await providers.serving(pinned, QueryRequest(text="x", fence=("knowledge-tools",)))
    assert fenced is DEFAULTS[1]
    with pytest.raises(StoreUnavailable, match="'mine' failed with OSError") as caught:
        query: Any = None
        await provider.rank(query, Deadline.after(1))
    assert "secret" not in str(caught.value)
    with pytest.raises(ConfigurationError, match="'mine' cannot say what it claims"):
        await providers.serving(pinned, QueryRequest(text="x", fence=("bad",)))


@pytest.mark.parametrize("plugin", ["broken", "nothing", "missing"], indirect=True)
async def test_an_installed_provider_that_does_not_load_is_named(plugin: None) -> None:
    with pytest.raises(ConfigurationError, match="'theirs'") as caught:
        await Providers(DEFAULTS).serving(pinned_rows(), QueryRequest(text="x"))
    assert "secret" not in str(caught.value)


async def test_two_providers_of_one_name_are_refused(fresh: None) -> None:
    with pytest.raises(ConfigurationError, match="named in-memory"):
        await Providers((*DEFAULTS, Consumer("in-memory"))).serving(pinned_rows(), QueryRequest(text="x"))


async def test_a_corpus_that_wants_no_graph_asks_nobody(fresh: None) -> None:
    off = PinnedRows(
        CorpusId(7), pinned_rows().manifest, CorpusSettings(graph_search=GraphSearchSettings(enabled=False))
    )
    assert await Providers((Consumer("a"), Consumer("b"))).serving(off, QueryRequest(text="x")) is None
    with pytest.raises(GraphCapabilityError):
        await Providers((Consumer("a"), Consumer("b"))).serving(pinned_rows(), QueryRequest(text="x"))
