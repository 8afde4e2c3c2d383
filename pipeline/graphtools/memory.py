"""Portable MATCH over graphs in this process: the reference that every other backend must equal.

Matching is a plain depth-first search from left to right; a condition is asked as soon as all that it names is bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from anyio import to_thread
from anyio.lowlevel import checkpoint

from pipeline.deadline import Deadline
from pipeline.errors import DeadlineExceeded, InconsistentGeneration, NotFound
from pipeline.graphs.parts import GraphRef
from pipeline.graphtools.execution import Bounds, Edge, Limit, Node, Path, Rows
from pipeline.graphtools.finish import Element, Finisher, Match, read
from pipeline.graphtools.plan import Both, Condition, EdgePlan, Not, Plan
from pipeline.graphtools.query import Direction
from pipeline.graphtools.values import conjuncts, evaluator
from schemas.graph import Entity, Relation, Scalar

TURN = 500
"""Steps after which the event loop has its turn."""

MANY = 5_000
"""Rows from which on ordering them is left to a thread."""


@dataclass(frozen=True, slots=True)
class PropertyGraph:
    """A graph by what a search asks for: nodes by id and by type, edges by the id of a node and their own type."""

    nodes: Mapping[str, Node]
    by_type: Mapping[str, Sequence[Node]]
    leaving: Mapping[tuple[str, str], Sequence[Edge]]
    arriving: Mapping[tuple[str, str], Sequence[Edge]]

    @classmethod
    def of(cls, nodes: Iterable[Node], edges: Iterable[Edge]) -> Self:
        """Return the graph of these nodes and edges, of which any may come twice: the first one counts.

        Raises:
            InconsistentGeneration: an edge ends at a node that is not there.
        """
        by_id: dict[str, Node] = {}
        by_type: dict[str, list[Node]] = {}
        leaving: dict[tuple[str, str], list[Edge]] = {}
        arriving: dict[tuple[str, str], list[Edge]] = {}
        for node in nodes:
            if by_id.setdefault(node.id, node) is node:
                by_type.setdefault(node.type, []).append(node)
        by_identity: dict[tuple[str, str, str], Edge] = {}
        for edge in edges:
            if by_identity.setdefault(_identity(edge), edge) is not edge:
                continue
            if edge.source not in by_id or edge.target not in by_id:
                raise InconsistentGeneration(f"A relation {edge.type!r} ends at an entity that is not in the graph.")
            leaving.setdefault((edge.source, edge.type), []).append(edge)
            arriving.setdefault((edge.target, edge.type), []).append(edge)
        return cls(by_id, by_type, leaving, arriving)

    @classmethod
    def of_entities(cls, entities: Iterable[Entity], relations: Iterable[Relation]) -> Self:
        """Return the graph of the rows of a generation. Raises InconsistentGeneration as `of` does."""
        nodes = {entity.entity_no: _node(entity) for entity in entities}
        try:
            edges = [_edge(one, nodes[one.source].id, nodes[one.target].id) for one in relations]
        except KeyError:
            raise InconsistentGeneration("A relation ends at an entity that is not in the graph.") from None
        return cls.of(nodes.values(), edges)


def _node(entity: Entity) -> Node:
    columns: dict[str, Scalar] = {
        "name": entity.name,
        "description": entity.description,
        "mentions": entity.mentions,
        "chunks": entity.chunks,
    }
    return Node(entity.entity_id, entity.type, {**entity.properties, **columns})


def _edge(relation: Relation, source: str, target: str) -> Edge:
    columns: dict[str, Scalar] = {"weight": relation.weight, "evidence": relation.evidence}
    return Edge(source, relation.type, target, {**relation.properties, **columns})


def _identity(edge: Edge) -> tuple[str, str, str]:
    return edge.source, edge.type, edge.target


class MemoryMatch:
    """Answers plans from graphs by their ids; `graphs` may change while it does.

    Where the steps run out, the rows are those of the matches found until then, in the plan's order. Since the search takes
    the same way each time, pages of such an answer still fit together.
    """

    def __init__(self, graphs: Mapping[str, PropertyGraph]) -> None:
        self._graphs = graphs

    async def match(self, graph: GraphRef, plan: Plan, bounds: Bounds, deadline: Deadline) -> Rows:
        """Return the rows of a plan. Other tasks have their turn every few hundred steps; a cancelled call just ends.

        Raises:
            NotFound: the graph is not here, or no longer.
            InvalidRequest: a sum is beyond the range of its type.
            DeadlineExceeded: as it says.
        """
        found = self._graphs.get(graph.graph_id)
        if found is None:
            raise NotFound("This graph is no longer kept.")
        finisher = Finisher(replace(plan, where=None), bounds.offset, bounds.rows)
        limit = await self._search(_Search(found, plan).matches(), finisher, bounds.steps, deadline)
        rows = await to_thread.run_sync(finisher.rows) if len(finisher) > MANY else finisher.rows()
        return Rows(rows, limit)

    @staticmethod
    async def _search(found: Iterator[Match | None], finisher: Finisher, most: int, deadline: Deadline) -> Limit:
        await _turn(deadline)
        steps = 0
        for match in found:
            if match is not None:
                finisher.add(match)
                continue
            if steps == most:
                return Limit.STEPS
            steps += 1
            if steps % TURN == 0:
                await _turn(deadline)
        return Limit.NONE


async def _turn(deadline: Deadline) -> None:
    await checkpoint()
    if not deadline.remaining():
        raise DeadlineExceeded()


class _Search:
    """One search. `bound` are the elements of the pattern bound so far, `used` the edges among them."""

    def __init__(self, graph: PropertyGraph, plan: Plan) -> None:
        self._graph = graph
        self._plan = plan
        self._tests = [
            [evaluator(one) for one in conjuncts(plan.where) if _last(one) == place]
            for place in range(len(plan.nodes) + len(plan.edges))
        ]
        self._bound: list[Element] = []
        self._used: set[tuple[str, str, str]] = set()

    def matches(self) -> Iterator[Match | None]:
        """Yield all matches, and None for each step: each node at which a match may begin, each edge that may follow."""
        for kind in sorted(self._plan.nodes[0].types):
            for node in self._graph.by_type.get(kind, ()):
                yield None
                yield from self._from_node(0, node)

    def _from_node(self, number: int, node: Node) -> Iterator[Match | None]:
        if node.type not in self._plan.nodes[number].types:
            return
        self._bound.append(node)
        if self._holds():
            if number == len(self._plan.edges):
                yield tuple(self._bound)
            else:
                yield from self._from_edge(number, node)
        self._bound.pop()

    def _from_edge(self, number: int, node: Node) -> Iterator[Match | None]:
        edge = self._plan.edges[number]
        for path in self._paths(edge, Path((node,), ())):
            if path is None:
                yield None
                continue
            self._bound.append(path.edges[0] if edge.one else path)
            if self._holds():
                yield from self._from_node(number + 1, path.nodes[-1])
            self._bound.pop()

    def _paths(self, edge: EdgePlan, path: Path) -> Iterator[Path | None]:
        """Yield the paths that begin like this one. While one is looked at, its edges are used."""
        if len(path.edges) >= edge.least:
            yield path
        if len(path.edges) == edge.most:
            return
        for one, node in self._next(edge, path.nodes[-1]):
            yield None
            if (identity := _identity(one)) not in self._used:
                self._used.add(identity)
                yield from self._paths(edge, Path((*path.nodes, node), (*path.edges, one)))
                self._used.remove(identity)

    def _next(self, edge: EdgePlan, node: Node) -> Iterator[tuple[Edge, Node]]:
        """Yield the edges of the view at a node that may be followed, each with its other end."""
        nodes = self._graph.nodes
        for kind in edge.kinds:
            if edge.direction is not Direction.IN and node.type in kind.sources:
                for one in self._graph.leaving.get((node.id, kind.stored), ()):
                    if nodes[one.target].type in kind.targets:
                        yield one, nodes[one.target]
            if edge.direction is not Direction.OUT and node.type in kind.targets:
                for one in self._graph.arriving.get((node.id, kind.stored), ()):
                    looped = edge.direction is Direction.BOTH and one.source == one.target
                    if nodes[one.source].type in kind.sources and not looped:
                        yield one, nodes[one.source]

    def _holds(self) -> bool:
        """Whether all conditions are true whose last element was just bound."""
        return all(test(lambda wanted: read(self._bound, wanted)) for test in self._tests[len(self._bound) - 1])


def _last(condition: Condition) -> int:
    """Return the last element that a condition names."""
    match condition:
        case Not(inner):
            return _last(inner)
        case Both(_, left, right):
            return max(_last(left), _last(right))
        case _:
            return condition.property.element
