"""What a declaration needs to be there, and whether it is: told at start-up, before anything is loaded or asked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pipeline.declare.classes import Declaration, declaration_of
from pipeline.declare.entries import Knowledge, KnowledgeType
from pipeline.declare.grounding import Grounding
from pipeline.declare.rules import within
from pipeline.errors import ConfigurationError, GraphCapabilityError, ProviderUnavailable
from pipeline.graphs.claims import GraphProvider, Method, Reach, serving
from pipeline.retrieval.assistants import Assistant
from schemas.query import Strategy


class Kind(StrEnum):
    """A kind of models, by the member that names one."""

    EXPANDER = "search.query_expansion"
    NAVIGATOR = "search.navigator_model"
    RERANKER = "search.reranker"
    CONTEXT = "chunk_context_model"


@dataclass(frozen=True, slots=True)
class Inventory:
    """What a process has. Its parts are asked what they serve and claim, and for nothing else.

    Attributes:
        assistants: the providers of models, by kind.
        embeddings: the names of the embedding providers that are installed; with none, texts are hashed.
        graphs: the graph providers.
        graph_store: where the graph of the documents lies, as in `Reach`; empty where they get none.
        memories: the MEMORY entries whose documents the application has handed over.
    """

    assistants: Mapping[Kind, Sequence[Assistant]] = field(default_factory=dict[Kind, Sequence[Assistant]])
    embeddings: Collection[str] = ()
    graphs: Sequence[GraphProvider] = ()
    graph_store: str = "postgres"
    memories: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class ModelDemand:
    """Exactly one provider has to serve this model."""

    place: str
    kind: Kind
    model: str

    def check(self, inventory: Inventory) -> None:
        """Raise ProviderUnavailable where none does, ConfigurationError where several do."""
        count = sum(_serves(one, self.model) for one in inventory.assistants.get(self.kind, ()))
        if count == 0:
            raise ProviderUnavailable(
                f"{self.kind}: no provider serves the model {self.model!r}; install one that does."
            )
        if count > 1:
            raise ConfigurationError(
                f"{self.kind}: several providers serve the model {self.model!r}; remove all but one."
            )


@dataclass(frozen=True, slots=True)
class EmbeddingDemand:
    """Texts have to become vectors, by at most one provider that is installed."""

    place: str

    def check(self, inventory: Inventory) -> None:
        """Raise ConfigurationError where there are several."""
        if len(inventory.embeddings) > 1:
            names = ", ".join(sorted(inventory.embeddings))
            raise ConfigurationError(f"several embedding providers are installed ({names}); remove all but one.")


@dataclass(frozen=True, slots=True)
class GraphDemand:
    """At most one provider has to serve the graph and, where it is `required`, one at least.

    `files` are the FILE entries in reach; `fence` are the entries that alone are searched, none for a GRAPH entry.
    """

    place: str
    files: frozenset[str]
    fence: frozenset[str]
    required: bool

    def check(self, inventory: Inventory) -> None:
        """Raise GraphCapabilityError where the claims of the providers do not leave one, or leave several."""
        if serving(inventory.graphs, self.reach(inventory.graph_store)) is None and self.required:
            raise GraphCapabilityError(
                "search.strategy GRAPH: no graph provider serves here; declare a FILE entry, install or configure a provider, "
                "or enable the graph in the settings of the corpora."
            )

    def reach(self, store: str) -> Reach:
        """Return what the claims depend on, for documents whose graph lies in this store."""
        ranking: Method = "ppr" if store == "postgres" else "walk"
        return Reach(self.files, self.fence, graph=bool(self.files and store), store=store, ranking=ranking)


@dataclass(frozen=True, slots=True)
class MemoryDemand:
    """The application has to hand over the documents of a MEMORY entry."""

    place: str
    name: str

    def check(self, inventory: Inventory) -> None:
        """Raise ConfigurationError where it has not."""
        if self.name not in inventory.memories:
            raise ConfigurationError(f"MEMORY entry {self.name!r} has no documents; hand them over under this name.")


Demand = ModelDemand | EmbeddingDemand | GraphDemand | MemoryDemand


def demands(declaration: Declaration, agent: Declaration | None = None) -> tuple[Demand, ...]:
    """Return what the actions and the chat of a class need and, of an agent, what its roles need.

    `agent` is whose role the class is: its FILE entries are in reach too.
    """
    files = frozenset(entry.name for entry in files_of(declaration, agent))
    found: list[Demand] = []
    for action in declaration.actions.values():
        found += _of_grounding(f"{declaration.title}: action {action.name!r}", action.grounding, files)
    found += _of_grounding(f"{declaration.title}: chat", declaration.chat, files)
    for role in declaration.roles:
        found += demands(declaration_of(role), declaration)
    return tuple(found)


def files_of(declaration: Declaration, agent: Declaration | None = None) -> tuple[Knowledge, ...]:
    """Return the FILE entries in reach of a class, whatever they are used for: its own and those of its agent."""
    whole = (*declaration.entries, *(agent.entries if agent else ()))
    return tuple(entry for entry in whole if entry.type is KnowledgeType.FILE)


def graph_demand(place: str, grounding: Grounding, files: frozenset[str]) -> GraphDemand | None:
    """Return what a grounding needs of graph providers, for these FILE entries in reach; None where it asks no graph."""
    search = grounding.search
    if search is None or search.strategy in (Strategy.KEYWORD, Strategy.SEMANTIC):
        return None
    if grounding.graph:
        place = f"{place}: knowledge entry {grounding.graph.name!r}"
    fence = frozenset(entry.name for entry in grounding.sources)
    return GraphDemand(place, files, fence, search.strategy is Strategy.GRAPH)


def check_demands(needed: Iterable[Demand], inventory: Inventory) -> None:
    """Hold an inventory to all that is needed. No I/O.

    Raises:
        ProviderUnavailable: nobody serves a model.
        GraphCapabilityError: nobody serves a graph that is needed, or several would.
        ConfigurationError: anything else is missing, or there twice; all of them name the place.
    """
    for demand in needed:
        with within(demand.place):
            demand.check(inventory)


def _of_grounding(place: str, grounding: Grounding, files: frozenset[str]) -> Iterator[Demand]:
    for entry in grounding.entries:
        yield from _of_entry(place, entry)
    search = grounding.search
    if search is None:
        return
    for kind, model in (
        (Kind.EXPANDER, search.query_expansion),
        (Kind.NAVIGATOR, search.navigator_model),
        (Kind.RERANKER, search.reranker),
    ):
        if model:
            yield ModelDemand(place, kind, model)
    if search.strategy is not Strategy.KEYWORD:
        yield EmbeddingDemand(place)
    if graph := graph_demand(place, grounding, files):
        yield graph


def _of_entry(place: str, entry: Knowledge) -> Iterator[Demand]:
    if entry.type is KnowledgeType.MEMORY:
        yield MemoryDemand(place, entry.name)
    if entry.searched and entry.chunk_context_model:
        yield ModelDemand(f"{place}: knowledge entry {entry.name!r}", Kind.CONTEXT, entry.chunk_context_model)


def _serves(provider: Assistant, model: str) -> bool:
    try:
        return provider.serves(model)
    except Exception as error:
        name = type(provider).__name__
        raise ConfigurationError(
            f"{name} cannot say what it serves ({type(error).__name__}); mend or remove it."
        ) from error
