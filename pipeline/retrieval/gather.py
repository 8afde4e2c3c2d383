"""The legs of one or several searches, all at once, until all are done or the deadline is there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import anyio

from pipeline.deadline import Deadline
from pipeline.errors import DeadlineExceeded, DependencyError, StoreRefused
from pipeline.graphs.claims import GraphProvider, GraphQuery, graph_settings
from pipeline.retrieval.board import Board
from pipeline.retrieval.legs import Legs, Near, Ranking
from schemas.query import Leg, LegReport


class Search:
    """The legs of one text, which share its dense ranking; what they come to is noted on `board`."""

    def __init__(self, legs: Legs, board: Board, graph: GraphProvider | None) -> None:
        self.board = board
        self._legs = legs
        self._graph = graph
        self._near: Near | None = None
        self._dense_ended = anyio.Event()

    async def leg(self, leg: Leg, deadline: Deadline, ended: Callable[[LegReport], None]) -> None:
        """Run one leg and note what it came to, be it that it was late or that a store or model failed it."""
        started = anyio.current_time()
        try:
            ranking = await self._work(leg, deadline)
            self.board.found(leg, ranking, anyio.current_time() - started)
        except DeadlineExceeded:
            self.board.late(leg, anyio.current_time() - started)
        except (DependencyError, StoreRefused) as error:
            self.board.failed(leg, error, anyio.current_time() - started)
        ended(self.board.report(leg))
        if leg is Leg.DENSE:
            self._dense_ended.set()

    async def _work(self, leg: Leg, deadline: Deadline) -> Ranking:
        if leg is Leg.KEYWORD:
            return await self._legs.keyword(deadline)
        if leg is Leg.DENSE:
            self._near = await self._legs.dense(deadline)
            return self._near
        if self._graph is None:
            raise AssertionError("there is a graph leg, and nobody to serve it")
        pinned, request = self._legs.pinned, self._legs.request
        near = partial(self._nearest, deadline)
        query = GraphQuery(request, pinned, graph_settings(pinned, request), self._legs.allowed, near)
        return await self._graph.rank(query, deadline)

    async def _nearest(self, deadline: Deadline) -> Near:
        """Return the dense ranking: that of the dense leg, where there is one, and with it what that failed with."""
        if Leg.DENSE not in self.board.legs:
            return await self._legs.dense(deadline)
        await self._dense_ended.wait()
        if self._near is None:
            raise self.board.errors.get(Leg.DENSE) or DeadlineExceeded()
        return self._near


async def gather(
    searches: Sequence[Search], deadline: Deadline, announce: Callable[[LegReport], Awaitable[None]]
) -> None:
    """Run all legs of all searches, announcing each that ends; those that the deadline cuts off are not announced.

    Raises:
        SapwoodError: what a leg raised that is neither late nor failed by a store or model: the first ends the others.
    """
    work = [(search, leg) for search in searches for leg in search.board.legs]
    send, receive = anyio.create_memory_object_stream[LegReport](len(work))
    try:
        with send, receive, anyio.CancelScope(deadline=deadline.at):
            async with anyio.create_task_group() as group:
                for search, leg in work:
                    group.start_soon(search.leg, leg, deadline, send.send_nowait)
                for _ in work:
                    await announce(await receive.receive())
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None  # the first one ended the others
