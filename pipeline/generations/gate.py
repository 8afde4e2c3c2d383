"""The promotion gate: what must hold before a generation becomes current, and who may let a sparse one pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pipeline.errors import PromotionRefused, Refused
from schemas.manifest import OverrideRequest, SparseOverride, StoreCheck
from schemas.settings import CorpusSettings

Policy = Literal["excluded", "off", "code", "semantic"]
Sparse = Literal["auto", "allow", "refuse"]

SPARSE_CODES = frozenset({"zero_entities", "zero_semantic_relationships"})


def graph_policy(*, internal: bool, enabled: bool, code: bool) -> Policy:
    """Return what graph a corpus gets."""
    if internal:
        return "excluded"
    if not enabled:
        return "off"
    return "code" if code else "semantic"


def policy_of(settings: CorpusSettings) -> Policy:
    """Return what graph a corpus with these settings gets."""
    graph = settings.graph_indexing
    return graph_policy(internal=False, enabled=graph.enabled, code=graph.build_code_graph)


def check_ceiling(policy: Policy, chunks: int, ceiling: int) -> None:
    """Refuse to build a semantic graph over more chunks than allowed, rather than cut it.

    Raises:
        Refused: with both numbers.
    """
    if policy == "semantic" and chunks > ceiling:
        raise Refused(
            f"{chunks:,} eligible chunks exceeds the semantic graph ceiling of {ceiling:,}; "
            "refusing to slice a partial graph"
        )


@dataclass(frozen=True, slots=True)
class Extracted:
    """Accounting of a run's extraction, in chunks: those chosen, tried, answered, failed and cut short."""

    selected: int = 0
    attempted: int = 0
    succeeded: int = 0
    failed: int = 0
    truncated: int = 0

    @property
    def whole(self) -> bool:
        """Whether every chosen chunk was read in full."""
        return not (self.failed or self.truncated) and self.selected == self.attempted == self.succeeded


@dataclass(frozen=True, slots=True)
class Violations:
    """Rows that must not be, counted where the generation changed something."""

    without_mention: int = 0
    stray_mentions: int = 0
    stray_relations: int = 0
    duplicates: int = 0


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the gate looks at. `schema_hash` is None where extraction follows no schema.

    `graph_rows` are the totals of a graph outside of PostgreSQL, by the fields of `GraphTotals`; empty if there is none.
    A dense check without a checksum is that of a store which can only count.
    """

    policy: Policy
    stores: dict[str, StoreCheck]
    extracted: Extracted
    violations: Violations = Violations()
    schema_hash: str | None = None
    graph_rows: Mapping[str, int] = field(default_factory=dict[str, int])


_MIRRORED = (
    ("chunks", "chunks"), ("entities", "entities"), ("relations", "relations"), ("memberships", "placed"),
)  # fmt: skip
"""Stores of PostgreSQL, and the totals of a graph elsewhere that must be the same."""


def gate(facts: Facts) -> tuple[str, ...]:
    """Return what is wrong, in the order in which it is looked for; empty means the generation may be promoted.

    A generation without chunks is not sparse, it is empty: it lacks no entities. `incomplete_communities` is a code of
    ours: an entity without its place in the communities; so is `graph_store_mismatch`: the store that serves the graph
    holds another number of rows than PostgreSQL.
    """
    stores, bad, read, graph = facts.stores, facts.violations, facts.extracted, facts.graph_rows
    semantic = facts.policy == "semantic"
    expected = semantic and stores["chunks"].rows > 0
    found = {
        "chunk_count_mismatch": _differ(stores["chunks"], stores["dense"]),
        "extraction_failure": semantic and (read.failed > 0 or read.succeeded != read.attempted),
        "silent_truncation": semantic and (read.truncated > 0 or read.attempted != read.selected),
        "zero_entities": expected and not stores["entities"].rows,
        "zero_semantic_relationships": expected and not stores["relations"].rows,
        "missing_from_chunk_provenance": stores["entities"].rows > 0 and bad.without_mention > 0,
        "cross_generation_node": bad.stray_mentions + graph.get("stray_nodes", 0) > 0,
        "cross_generation_relationship": bad.stray_relations + graph.get("stray_relations", 0) > 0,
        "unresolved_duplicate_entity": bad.duplicates > 0,
        "missing_approved_schema": semantic and facts.schema_hash is not None and not facts.schema_hash.strip(),
        "incomplete_communities": facts.policy in ("semantic", "code") and stores["memberships"] != stores["entities"],
        "graph_store_mismatch": any(stores[name].rows != graph[kind] for name, kind in _MIRRORED if graph),
    }
    return tuple(code for code, holds in found.items() if holds)


def _differ(chunks: StoreCheck, dense: StoreCheck) -> bool:
    return chunks.rows != dense.rows or (bool(dense.checksum) and chunks.checksum != dense.checksum)


def sparse_override(
    facts: Facts, request: OverrideRequest | None, sparse: Sparse, paid: bool, at: str
) -> SparseOverride | None:
    """Return on whose word a generation passes the gate, or None if nothing is wrong.

    Only a semantic graph that is sparse although every chunk was read in full may pass: on a person's word, or by the
    corpus's setting `graph_indexing.sparse`. Its default `auto` lets the offline extractors through, since plain notes
    may simply state no relation, and holds a paid model to its answer. Either way the manifest records it.

    Raises:
        PromotionRefused: anything else is wrong, or nobody gave his word.
    """
    codes = gate(facts)
    if not codes:
        return None
    if facts.policy != "semantic" or not SPARSE_CODES.issuperset(codes) or not facts.extracted.whole:
        raise PromotionRefused(codes)
    if request is not None and facts.extracted.selected > 0:
        return SparseOverride(actor=request.actor, reason=request.reason, codes=tuple(sorted(codes)), created_at=at)
    if sparse == "allow" or (sparse == "auto" and not paid):
        reason = f"The corpus setting graph_indexing.sparse is {sparse}."
        return SparseOverride(actor="settings", reason=reason, codes=tuple(sorted(codes)), created_at=at)
    raise PromotionRefused(codes, "Every chunk was read: set graph_indexing.sparse to allow, or give a reason.")
