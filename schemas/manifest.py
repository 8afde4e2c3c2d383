"""The immutable record of a generation."""

from __future__ import annotations

from pydantic import Field, field_validator

from schemas.query import Wire
from schemas.settings import EmbeddingSettings


def _nothing(value: object) -> bool:
    return not value


class StoreCheck(Wire):
    """What one store holds for a generation: how many rows, and the order-independent checksum of their ids (hex)."""

    rows: int
    checksum: str


class SparseOverride(Wire):
    """Who let a sparse generation pass the gate, and why; only `zero_entities` and `zero_semantic_relationships` can be."""

    actor: str = Field(min_length=1)
    reason: str
    codes: tuple[str, ...]
    created_at: str


class OverrideRequest(Wire):
    """A person's word that a sparse generation is right: who says so, and why, in 20 visible characters or more."""

    actor: str
    reason: str

    @field_validator("actor")
    @classmethod
    def _somebody(cls, actor: str) -> str:
        if not actor.strip():
            raise ValueError("actor must not be blank")
        return actor

    @field_validator("reason")
    @classmethod
    def _a_reason(cls, reason: str) -> str:
        if sum(c.isprintable() and not c.isspace() for c in reason) < 20:
            raise ValueError("reason must have at least 20 visible characters")
        return reason


class CodeGraph(Wire):
    """The account of a code graph: `files` by language (`unknown`: source code in a language that is not read), what in them
    was `unread` by reason, `edges` by kind (`builtin`: references to the language's own names, which are no edges), and
    references that have none, `unresolved` by reason.
    """

    files: dict[str, int] = Field(default_factory=dict[str, int])
    unread: dict[str, int] = Field(default_factory=dict[str, int])
    edges: dict[str, int] = Field(default_factory=dict[str, int])
    unresolved: dict[str, int] = Field(default_factory=dict[str, int])


class Manifest(Wire):
    """All that a reader needs to read one generation and nothing else.

    `collection` is the physical dense collection in `dense_store`, `graph_id` the graph of this generation in
    `graph_store`; both are resolved here, once. `graph_rows` are the rows of a graph outside of PostgreSQL, by kind.
    `stores` is keyed by `documents`, `chunks`, `dense`, `mentions`, `facts`, `entities`, `relations`, `memberships`.
    `outcomes` is the accounting of the run that built it. `embedding`, `extraction` and `analyzer` are fingerprints;
    `provider` is what made the vectors, so that it can embed questions while the corpus moves to another.
    `void` are numbers up to this one that were begun and never published: whatever an external store holds for them does
    not count. `selected_chunks` to `output_tokens` count what the run had models do: chunks that were to be read, that could
    not be or not whole, contexts of chunks that were written, and that could not be. `code` is the account of a code graph,
    `revisions` are those of checked-out sources by location; these and contexts are left out where there is nothing, which is
    what programs from before them expect.
    """

    corpus: str
    generation: int
    run_id: str
    collection: str
    dimension: int
    graph_id: str
    dense_store: str = "pgvector"
    graph_store: str = "postgres"
    graph_rows: dict[str, int] = Field(default_factory=dict[str, int])
    policy: str
    embedding: str
    provider: EmbeddingSettings = EmbeddingSettings()
    extraction: str
    analyzer: str
    stores: dict[str, StoreCheck]
    outcomes: dict[str, int]
    communities: int
    levels: int
    modularity: float
    selected_chunks: int = 0
    failed_chunks: int = 0
    truncated_chunks: int = 0
    contexts: int = Field(default=0, exclude_if=_nothing)
    failed_contexts: int = Field(default=0, exclude_if=_nothing)
    input_tokens: int = 0
    output_tokens: int = 0
    override: SparseOverride | None = None
    rolled_back_from: int | None = None
    void: tuple[int, ...] = ()
    code: CodeGraph | None = Field(default=None, exclude_if=_nothing)
    revisions: dict[str, str] = Field(default_factory=dict[str, str], exclude_if=_nothing)
    promoted_at: str
