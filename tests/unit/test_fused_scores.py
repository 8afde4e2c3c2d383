"""HYBRID fused by scores: where its graph leg gets its start from, and what it does without it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from pipeline.errors import SapwoodError, StoreRefused, StoreUnavailable
from schemas.query import GraphStream, Leg, QueryResult
from tests.strategy_world import LASER, LONG, World, texts

SCORES = {"fusion": {"method": "scores", "dense_weight": 0.5, "keyword_weight": 0.25, "graph_weight": 2.0}}


@dataclass
class Away:
    """A dense index that fails, or answers never."""

    error: SapwoodError | None = None
    left: list[str] = field(default_factory=list[str])

    async def search(self, *_: Any) -> list[tuple[int, float]]:
        try:
            if self.error:
                raise self.error
            await anyio.sleep_forever()
        finally:
            self.left.append("search")
        raise AssertionError


def graph_leg(result: QueryResult) -> dict[str, int]:
    (leg,) = [leg for leg in result.legs if leg.leg is Leg.GRAPH]
    assert leg.state != "missing"
    return dict(leg.counters)


async def test_the_best_hit_of_all_legs_scores_one_and_the_graph_starts_at_the_two_nearest_too() -> None:
    world = World()
    result = await world.ask("laser room", world.configured(**SCORES))
    assert result.complete and texts(result)[0] == LASER
    assert all(0.0 <= hit.score <= 1.0 for hit in result.hits)
    assert graph_leg(result)["seed_chunks"] == 2


async def test_fused_by_ranks_it_starts_at_names_alone() -> None:
    world = World()
    assert graph_leg(await world.ask("laser room"))["seed_chunks"] == 0


@pytest.mark.parametrize("error", [StoreUnavailable("away"), StoreRefused("full")])
async def test_where_the_dense_leg_fails_the_graph_does_without(error: SapwoodError) -> None:
    world = World()
    result = await world.ask("laser room", world.configured(**SCORES), Away(error))
    assert result.missing == ("dense",) and graph_leg(result)["seed_chunks"] == 0
    assert LASER in texts(result)


async def test_where_the_dense_leg_is_late_the_graph_is_not() -> None:
    """It waits for half of the time that is left."""
    world, away = World(), Away()
    result = await world.ask("laser room", world.configured(**SCORES), away, seconds=4.0)
    assert result.missing == ("dense",) and graph_leg(result)["seed_chunks"] == 0
    assert away.left == ["search"] and result.graph_stream is not GraphStream.MISSING and LONG > 4.0
