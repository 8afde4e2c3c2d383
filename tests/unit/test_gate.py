"""The promotion gate: its codes in order, and who may let a sparse generation pass (W35 to W38, W43, W44)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from pipeline.errors import PromotionRefused, Refused
from pipeline.generations.gate import (
    Extracted,
    Facts,
    Policy,
    Sparse,
    Violations,
    check_ceiling,
    gate,
    graph_policy,
    sparse_override,
)
from pipeline.generations.manifest import check
from schemas.manifest import OverrideRequest, SparseOverride

STORES = ("documents", "chunks", "dense", "mentions", "facts", "entities", "relations", "memberships")
REQUEST = OverrideRequest(actor="Ada", reason="These notes truly state no relation.")


def facts(policy: Policy = "semantic", extracted: Extracted | None = None, **rows: int) -> Facts:
    stores = {store: check(rows.get(store, 4), rows.get(store, 4)) for store in STORES}
    return Facts(policy, stores, extracted or Extracted(4, 4, 4))


WHOLE = facts()
SPARSE = facts(entities=0, memberships=0, relations=0)


def violated(**counts: int) -> Facts:
    return replace(WHOLE, violations=Violations(**counts))


@pytest.mark.parametrize(
    ("built", "code"),
    [
        (facts(dense=3), "chunk_count_mismatch"),
        (facts(extracted=Extracted(4, 4, 3, failed=1)), "extraction_failure"),
        (facts(extracted=Extracted(4, 4, 4, truncated=1)), "silent_truncation"),
        (facts(extracted=Extracted(5, 4, 4)), "silent_truncation"),
        (facts(entities=0, memberships=0), "zero_entities"),
        (facts(relations=0), "zero_semantic_relationships"),
        (violated(without_mention=1), "missing_from_chunk_provenance"),
        (violated(stray_mentions=1), "cross_generation_node"),
        (violated(stray_relations=1), "cross_generation_relationship"),
        (violated(duplicates=1), "unresolved_duplicate_entity"),
        (replace(WHOLE, schema_hash=" "), "missing_approved_schema"),
        (facts(memberships=3), "incomplete_communities"),
    ],
)
def test_each_fault_has_its_code_and_is_refused(built: Facts, code: str) -> None:
    assert gate(built) == (code,)
    with pytest.raises(PromotionRefused, match=rf"Graph promotion refused \({code}\)"):
        sparse_override(built, None, "refuse", paid=False, at="now")


def test_codes_come_in_the_order_in_which_they_are_looked_for() -> None:
    worst = replace(
        facts(extracted=Extracted(4, 4, 3, failed=1), dense=1, relations=0, memberships=1),
        violations=Violations(1, 1, 1, 1),
    )
    assert gate(worst) == (
        "chunk_count_mismatch",
        "extraction_failure",
        "zero_semantic_relationships",
        "missing_from_chunk_provenance",
        "cross_generation_node",
        "cross_generation_relationship",
        "unresolved_duplicate_entity",
        "incomplete_communities",
    )


@pytest.mark.parametrize("policy", ["excluded", "off", "code"])
def test_only_a_semantic_graph_must_have_entities_and_relations(policy: Policy) -> None:
    extracted = Extracted(4, 4, 0, failed=4)
    assert gate(facts(policy, extracted, entities=0, memberships=0, relations=0)) == ()


def test_an_empty_corpus_is_not_a_sparse_one() -> None:
    assert gate(Facts("semantic", {store: check(0, 0) for store in STORES}, Extracted())) == ()


def test_a_person_lets_a_fully_read_sparse_generation_pass() -> None:
    granted = sparse_override(SPARSE, REQUEST, "refuse", paid=True, at="now")
    assert granted == SparseOverride(
        actor="Ada", reason=REQUEST.reason, codes=("zero_entities", "zero_semantic_relationships"), created_at="now"
    )


@pytest.mark.parametrize(
    "built",
    [
        replace(SPARSE, extracted=Extracted(4, 4, 3, failed=1)),
        replace(SPARSE, extracted=Extracted(4, 4, 4, truncated=1)),
        replace(SPARSE, violations=Violations(stray_mentions=1)),
        replace(SPARSE, extracted=Extracted()),
        facts(dense=3),
    ],
)
def test_nobody_lets_anything_else_pass(built: Facts) -> None:
    with pytest.raises(PromotionRefused):
        sparse_override(built, REQUEST, "refuse", paid=False, at="now")


@pytest.mark.parametrize(
    "request_",
    [
        {"reason": REQUEST.reason},
        {"actor": "Ada"},
        {"actor": " ", "reason": REQUEST.reason},
        {"actor": "Ada", "reason": "too short"},
    ],
)
def test_an_override_needs_an_actor_and_a_reason(request_: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        OverrideRequest.model_validate(request_)


@pytest.mark.parametrize("blank", [" " * 20, "\u200b" * 20, "\t\n" * 20, "a" * 19 + " " * 20])
def test_a_reason_must_be_visible(blank: str) -> None:
    with pytest.raises(ValidationError, match="visible characters"):
        OverrideRequest(actor="Ada", reason=blank)


@pytest.mark.parametrize(
    ("sparse", "paid", "passes"),
    [("auto", False, True), ("auto", True, False), ("allow", True, True), ("refuse", False, False)],
)
def test_the_corpus_setting_decides_where_no_person_does(sparse: Sparse, paid: bool, passes: bool) -> None:
    """Plain notes read offline may state no relation; a paid model that finds none is held to be wrong."""
    if passes:
        granted = sparse_override(SPARSE, None, sparse, paid=paid, at="now")
        assert granted is not None
        assert granted.actor == "settings"
        assert granted.codes == ("zero_entities", "zero_semantic_relationships")
    else:
        with pytest.raises(PromotionRefused):
            sparse_override(SPARSE, None, sparse, paid=paid, at="now")


def test_the_policy_follows_from_the_settings_in_order() -> None:
    assert graph_policy(internal=True, enabled=False, code=True) == "excluded"
    assert graph_policy(internal=False, enabled=False, code=True) == "off"
    assert graph_policy(internal=False, enabled=True, code=True) == "code"
    assert graph_policy(internal=False, enabled=True, code=False) == "semantic"


def test_a_graph_is_never_cut_to_the_ceiling() -> None:
    with pytest.raises(Refused, match=r"40,001 eligible chunks exceeds .* of 40,000; refusing"):
        check_ceiling("semantic", 40_001, 40_000)
    check_ceiling("semantic", 40_000, 40_000)
    check_ceiling("code", 40_001, 40_000)
