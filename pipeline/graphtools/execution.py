"""What a store does with a plan: rows of values, nodes, edges and paths, in the plan's order, within bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from pipeline.deadline import Deadline
from pipeline.graphs.parts import GraphRef
from pipeline.graphtools.plan import Plan
from schemas.graph import Scalar


@dataclass(frozen=True, slots=True)
class Node:
    """An entity: its public id, its stored type, and its columns and extracted properties by their stored names."""

    id: str
    type: str
    properties: Mapping[str, Scalar] = field(default_factory=dict[str, Scalar])


@dataclass(frozen=True, slots=True)
class Edge:
    """A relation between the public ids of two entities, the way it is stored, whichever way it was followed."""

    source: str
    type: str
    target: str
    properties: Mapping[str, Scalar] = field(default_factory=dict[str, Scalar])


@dataclass(frozen=True, slots=True)
class Path:
    """The nodes and edges of a match (or the edges of an alias of several hops, with their nodes), from left to right."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


Cell = Scalar | None | Node | Edge | Path


class Limit(StrEnum):
    """What ended the work early."""

    NONE = ""
    STEPS = "steps"


@dataclass(frozen=True, slots=True)
class Bounds:
    """`rows` are returned at most, after the first `offset`; `steps` matches (of the whole pattern, and of every part of it
    that the store goes through one by one) are looked at, at most; `fetch` rows travel at a time.
    """

    rows: int
    offset: int = 0
    steps: int = 1_000_000
    fetch: int = 100


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows, each a cell for each column of the plan. `limit` says which bound left matches out of account, if one did."""

    rows: tuple[tuple[Cell, ...], ...]
    limit: Limit = Limit.NONE


class MatchExecutor(Protocol):
    """Answers plans from the graphs of one store. It only reads, and every read is scoped to the graph."""

    async def match(self, graph: GraphRef, plan: Plan, bounds: Bounds, deadline: Deadline) -> Rows:
        """Return the rows of a plan. A cancelled call is cancelled on the server, too.

        Raises:
            InvalidRequest: a value that the store cannot take, or a sum beyond 64 bits.
            DeadlineExceeded, StoreUnavailable, StoreRefused: as they say.
        """
        ...
