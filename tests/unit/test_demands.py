"""What has to be installed for a declaration; numbers in the names are those of the specification's cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from pipeline.deadline import Deadline
from pipeline.declare import (
    ActionType,
    Declaration,
    Knowledge,
    KnowledgeType,
    OnFailure,
    Search,
    Strategy,
    Use,
    action,
    agent,
    declaration_of,
    role,
)
from pipeline.declare.demands import (
    Demand,
    EmbeddingDemand,
    GraphDemand,
    Inventory,
    Kind,
    MemoryDemand,
    ModelDemand,
    check_demands,
    demands,
)
from pipeline.errors import ConfigurationError, GraphCapabilityError, ProviderUnavailable
from pipeline.graphs.claims import GraphProvider, GraphQuery, Reach
from pipeline.retrieval.legs import Ranking
from schemas.query import Strategy as WireStrategy

DOCS = Knowledge("docs", path="docs")
WIKI = Knowledge("wiki", type=KnowledgeType.HTTP, path="https://wiki.example")
GRAPH = Knowledge("graph", type=KnowledgeType.GRAPH)
HYBRIDS = (
    Search(strategy=Strategy.HYBRID),
    Search(strategy=Strategy.HIERARCHICAL),
    Search(strategy=Strategy.TEMPORAL, time_field="date"),
)


@dataclass(frozen=True)
class Model:
    """Serves these models; it is only asked whether it does."""

    models: tuple[str, ...]
    fingerprint: str = "test"

    def serves(self, model: str) -> bool:
        if model == "broken":
            raise KeyError(model)
        return model in self.models


@dataclass(frozen=True)
class Graphs:
    """Claims what the name says: documents, what has none, or everything."""

    name: str
    default: bool = True
    live: bool = False

    def claims(self, reach: Reach) -> bool:
        if self.name == "in-memory":
            return reach.graph and bool(reach.files) and reach.admits(self.name)
        if self.name == "knowledge-tools":
            return not (reach.fence or reach.files)
        if self.name == "neo4j":
            return reach.graph and reach.store == self.name and reach.ranking == "walk" and reach.admits(self.name)
        return True

    async def rank(self, query: GraphQuery, deadline: Deadline) -> Ranking:
        raise AssertionError("a declaration ranks nothing")


IN_MEMORY, TOOLS, NEO4J, MINE = (
    Graphs("in-memory"),
    Graphs("knowledge-tools"),
    Graphs("neo4j", False),
    Graphs("mine", False),
)


def declaring(*knowledge: Knowledge, **names: Knowledge) -> Declaration:
    """Return a role with this knowledge and, by name, actions that each name one entry."""

    def make(name: str, entry: Knowledge) -> Any:
        @action(ActionType.LLM, "Answer.", name=name, knowledge=entry)
        def answer(question: str) -> None: ...

        return answer

    actions = [make(name, entry) for name, entry in names.items()]
    return declaration_of(
        role("Researcher", "Finds.", knowledge=knowledge, actions=actions)(type("Researcher", (), {}))
    )


def needs(search: Search, entry: Knowledge = DOCS) -> tuple[Demand, ...]:
    """Return what an action needs that searches one entry and takes no context where that fails."""
    own = replace(search, on_failure=OnFailure.CONTINUE)
    return demands(declaring(entry, answer=Knowledge(entry.name, search=own)))


def inventory(kind: Kind, *models: str, graphs: Sequence[GraphProvider] = (IN_MEMORY, TOOLS)) -> Inventory:
    return Inventory({kind: [Model((model,)) for model in models]}, graphs=graphs)


MODELS = [
    (Kind.RERANKER, Search(rerank=True, reranker="small")),
    (Kind.EXPANDER, Search(query_expansion="small")),
    (Kind.EXPANDER, Search(strategy=Strategy.MULTI_QUERY, query_expansion="small")),
    (Kind.NAVIGATOR, Search(strategy=Strategy.REASONING, navigator_model="small")),
]
"""The first is R17, the others are R18."""


@pytest.mark.parametrize(("kind", "search"), MODELS)
def test_r17_r18_r19_a_model_has_to_be_served_whatever_is_to_happen_on_failure(kind: Kind, search: Search) -> None:
    found = needs(search)
    assert ModelDemand("Role 'Researcher': action 'answer'", kind, "small") in found
    for others in (inventory(kind), inventory(kind, "large"), inventory(Kind.CONTEXT, "small")):
        with pytest.raises(
            ProviderUnavailable, match=rf"action 'answer': {kind}: no provider serves the model 'small'"
        ):
            check_demands(found, others)
    with pytest.raises(ConfigurationError, match=rf"action 'answer': {kind}: several providers") as caught:
        check_demands(found, inventory(kind, "small", "small"))
    assert not isinstance(caught.value, ProviderUnavailable)
    check_demands(found, inventory(kind, "large", "small"))


@pytest.mark.parametrize("blank", ["", " ", "\n"])
def test_r19_a_blank_navigator_is_an_error_of_the_configuration(blank: str) -> None:
    with pytest.raises(ConfigurationError, match=r"search\.navigator_model") as caught:
        needs(Search(strategy=Strategy.REASONING, navigator_model=blank))
    assert not isinstance(caught.value, ProviderUnavailable)


def test_a_provider_that_cannot_say_what_it_serves_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"action 'answer': Model cannot say what it serves \(KeyError\)"):
        check_demands(needs(Search(rerank=True, reranker="broken")), inventory(Kind.RERANKER, "small"))


def test_keyword_search_needs_nothing() -> None:
    assert needs(Search(strategy=Strategy.KEYWORD)) == ()
    assert demands(declaring(DOCS, answer=Knowledge("docs", use=Use.DIRECT))) == ()
    assert demands(declaring(DOCS, GRAPH)) == ()


@pytest.mark.parametrize("search", [Search(), *HYBRIDS])
def test_several_embedding_providers_are_refused(search: Search) -> None:
    found = needs(search)
    assert EmbeddingDemand("Role 'Researcher': action 'answer'") in found
    for installed in ((), ("mine",)):
        check_demands(found, Inventory(embeddings=installed, graphs=[IN_MEMORY]))
    with pytest.raises(ConfigurationError, match=r"action 'answer': several embedding providers .*\(mine, other\)"):
        check_demands(found, Inventory(embeddings=("other", "mine"), graphs=[IN_MEMORY]))


def test_every_strategy_is_thought_of() -> None:
    graph = {Strategy.GRAPH, Strategy.HYBRID, Strategy.MULTI_QUERY, Strategy.HIERARCHICAL, Strategy.TEMPORAL}
    assert {*WireStrategy} == graph | {Strategy.REASONING, Strategy.SEMANTIC, Strategy.KEYWORD}
    for _, search in MODELS[2:]:
        assert any(isinstance(one, GraphDemand) and not one.required for one in needs(search))
    for search in (Search(), Search(strategy=Strategy.KEYWORD)):
        assert not any(isinstance(one, GraphDemand) for one in needs(search))


def graph_demand(found: tuple[Demand, ...]) -> GraphDemand:
    (one,) = [one for one in found if isinstance(one, GraphDemand)]
    return one


def test_a_graph_entry_needs_exactly_one_provider() -> None:
    found = needs(Search(), GRAPH)
    assert graph_demand(found) == GraphDemand(
        "Role 'Researcher': action 'answer': knowledge entry 'graph'", frozenset(), frozenset(), True
    )
    check_demands(found, Inventory(graphs=[IN_MEMORY, TOOLS]))
    check_demands(found, Inventory(graphs=[IN_MEMORY, TOOLS, MINE]))
    with pytest.raises(GraphCapabilityError, match=r"entry 'graph': search\.strategy GRAPH"):
        check_demands(found, Inventory(graphs=[IN_MEMORY]))
    with pytest.raises(GraphCapabilityError, match=r"entry 'graph': Several graph providers claim"):
        check_demands(found, Inventory(graphs=[MINE, replace(MINE, name="theirs")]))


@pytest.mark.parametrize("search", HYBRIDS)
def test_a_hybrid_search_does_without_a_graph_but_not_with_two(search: Search) -> None:
    found = needs(search)
    check_demands(found, Inventory())
    check_demands(found, Inventory(graphs=[IN_MEMORY, TOOLS]))
    with pytest.raises(GraphCapabilityError, match=r"Several graph providers claim"):
        check_demands(found, Inventory(graphs=[MINE, NEO4J], graph_store="neo4j"))
    check_demands(found, Inventory(graphs=[IN_MEMORY, NEO4J], graph_store="neo4j"))


def test_files_in_reach_and_what_is_searched_decide_about_the_graph() -> None:
    hybrid = Search(strategy=Strategy.HYBRID)
    found = demands(declaring(DOCS, WIKI, GRAPH, graph=Knowledge("graph"), wiki=Knowledge("wiki", search=hybrid)))
    handle, wiki = [one for one in found if isinstance(one, GraphDemand)]
    assert (handle.files, handle.fence, handle.required) == (frozenset({"docs"}), frozenset(), True)
    assert (wiki.files, wiki.fence, wiki.required) == (frozenset({"docs"}), frozenset({"wiki"}), False)
    assert IN_MEMORY.claims(handle.reach("postgres"))
    assert not IN_MEMORY.claims(wiki.reach("postgres"))
    assert not TOOLS.claims(handle.reach("postgres"))


def test_the_files_of_an_agent_are_in_reach_of_its_roles() -> None:
    found = declaring(GRAPH, answer=Knowledge("graph"))
    assert graph_demand(demands(found)).files == frozenset()

    @agent("Helps.", knowledge=[DOCS], roles=[found.owner])
    class Helper:
        pass

    helper = declaration_of(Helper)
    assert graph_demand(demands(helper)).files == {"docs"}
    assert graph_demand(demands(found, helper)).files == {"docs"}


def test_a_chat_has_needs_too() -> None:
    chat = Knowledge("faq", path="faq", search=Search(rerank=True, reranker="small"))
    helper = declaration_of(agent("Helps.", knowledge=chat)(type("Helper", (), {})))
    with pytest.raises(ProviderUnavailable, match=r"Agent 'Helper': chat: search\.reranker: no provider"):
        check_demands(demands(helper), Inventory())


def test_documents_from_memory_have_to_be_handed_over() -> None:
    notes = Knowledge("notes", type=KnowledgeType.MEMORY)
    found = demands(declaring(notes, answer=Knowledge("notes", use=Use.DIRECT)))
    assert found == (MemoryDemand("Role 'Researcher': action 'answer'", "notes"),)
    check_demands(found, Inventory(memories=["notes"]))
    with pytest.raises(ConfigurationError, match="action 'answer': MEMORY entry 'notes' has no documents"):
        check_demands(found, Inventory(memories=["note"]))


def test_a_model_for_the_context_of_chunks_has_to_be_served() -> None:
    found = needs(Search(), replace(DOCS, chunk_context=True, chunk_context_model="small"))
    assert ModelDemand("Role 'Researcher': action 'answer': knowledge entry 'docs'", Kind.CONTEXT, "small") in found
    with pytest.raises(ProviderUnavailable, match="entry 'docs': chunk_context_model: no provider"):
        check_demands(found, Inventory())
    check_demands(found, inventory(Kind.CONTEXT, "small"))
