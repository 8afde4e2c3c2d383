"""What a build knows of itself when it asks to be promoted, and the manifest that it becomes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from pipeline.generations.gate import Extracted, Policy, Sparse
from schemas.ids import CorpusId, RunId
from schemas.manifest import CodeGraph, Manifest, OverrideRequest, SparseOverride, StoreCheck
from schemas.settings import EmbeddingSettings

_SPENT = (
    "selected_chunks", "failed_chunks", "truncated_chunks", "contexts", "failed_contexts", "input_tokens", "output_tokens",
)  # fmt: skip
"""What a manifest counts of the run that made it."""


@dataclass(frozen=True, slots=True)
class Draft:
    """All of a manifest that is not read from the database.

    `modularity` is None where communities were not detected anew; `paid` says whether the extractor is a paid model.
    `dense_rows` are the vectors that the number sees in a store outside of PostgreSQL (None: it has them itself), and
    `graph_rows` the totals of a graph that lies outside; `void` are numbers that such a store must not count.
    """

    run_id: RunId
    collection: str
    dimension: int
    graph_id: str
    policy: Policy
    embedding: str
    extraction: str
    analyzer: str
    provider: EmbeddingSettings = field(default_factory=EmbeddingSettings)
    dense_store: str = "pgvector"
    dense_rows: int | None = None
    graph_store: str = "postgres"
    graph_rows: dict[str, int] = field(default_factory=dict[str, int])
    void: tuple[int, ...] = ()
    outcomes: dict[str, int] = field(default_factory=dict[str, int])
    extracted: Extracted = field(default_factory=Extracted)
    contexts: int = 0
    failed_contexts: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    modularity: float | None = None
    schema_hash: str | None = None
    sparse: Sparse = "auto"
    paid: bool = False
    override: OverrideRequest | None = None
    code: CodeGraph | None = None
    revisions: dict[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Figures:
    """What the database knows at promotion: rows and checksums of stores, communities, their levels, the time."""

    stores: dict[str, StoreCheck]
    communities: int
    levels: int
    at: str


def manifest(
    corpus: str, number: int, draft: Draft, figures: Figures, override: SparseOverride | None, base: Manifest | None
) -> Manifest:
    """Return the record of a generation. The modularity of unchanged communities is that of the generation before."""
    known = base.modularity if base else 0.0
    return Manifest(
        corpus=corpus,
        generation=number,
        run_id=draft.run_id,
        collection=draft.collection,
        dimension=draft.dimension,
        graph_id=draft.graph_id,
        dense_store=draft.dense_store,
        graph_store=draft.graph_store,
        graph_rows=draft.graph_rows,
        void=draft.void,
        policy=draft.policy,
        embedding=draft.embedding,
        provider=draft.provider,
        extraction=draft.extraction,
        analyzer=draft.analyzer,
        stores=figures.stores,
        outcomes=draft.outcomes,
        communities=figures.communities,
        levels=figures.levels,
        modularity=known if draft.modularity is None else draft.modularity,
        selected_chunks=draft.extracted.selected,
        failed_chunks=draft.extracted.failed,
        truncated_chunks=draft.extracted.truncated,
        contexts=draft.contexts,
        failed_contexts=draft.failed_contexts,
        input_tokens=draft.input_tokens,
        output_tokens=draft.output_tokens,
        override=override,
        code=draft.code,
        revisions=draft.revisions,
        promoted_at=figures.at,
    )


def republished(
    base: Manifest,
    number: int,
    run: RunId,
    outcomes: dict[str, int],
    revisions: dict[str, str],
    void: tuple[int, ...],
    at: str,
) -> Manifest:
    """Return the record of a generation that holds what `base` does, as its repositories have it at other revisions.

    Nothing was extracted for it, so it counts no chunks and no tokens.
    """
    changes: dict[str, object] = {
        "generation": number,
        "run_id": run,
        "outcomes": outcomes,
        "revisions": revisions,
        "void": void,
        "promoted_at": at,
    }
    return base.model_copy(update={**changes, **dict.fromkeys(_SPENT, 0)})


def collection_name(corpus: CorpusId, fingerprint: str) -> str:
    """Return the name of the physical dense table of a corpus and an embedding fingerprint."""
    return f"dense_{corpus}_{_short(fingerprint)}"


def outside_name(uid: str, number: int, fingerprint: str) -> str:
    """Return the name of a collection in a store that several installations may share.

    `uid` is the corpus's, `number` the generation that begins it: a corpus that comes back to a store begins anew there,
    since that store was not told of what ended meanwhile.
    """
    return f"sapwood_{uid}_{number}_{_short(fingerprint)}"


def _short(fingerprint: str) -> str:
    return hashlib.sha256(fingerprint.encode()).hexdigest()[:12]


def check(rows: int, total: int, base: StoreCheck | None = None) -> StoreCheck:
    """Return the check of a store: rows, and the sum of the 64-bit hashes of their ids modulo 2^64, as 16 hex digits.

    A sum does not depend on order, and it can be continued: with a base, `rows` and `total` are what was born less what
    died since, so that checking costs what the change costs.
    """
    rows += base.rows if base else 0
    total += int(base.checksum, 16) if base else 0
    return StoreCheck(rows=rows, checksum=f"{total % (1 << 64):016x}")
