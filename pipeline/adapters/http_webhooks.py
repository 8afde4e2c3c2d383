"""Messages of webhooks over HTTP, by the rules of `pipeline/egress.py`; a redirect is an answer like any other."""

from __future__ import annotations

from collections.abc import Mapping

import anyio

from pipeline.deadline import Deadline
from pipeline.egress import Egress
from pipeline.errors import DeadlineExceeded
from pipeline.webhooks import Answer

CAP = 60.0
"""Seconds for one message when the deadline leaves more."""


class HttpSender:
    """A `Sender`. Of an answer it reads the head alone, which the HTTP library bounds."""

    def __init__(self, egress: Egress) -> None:
        self._egress = egress

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, deadline: Deadline) -> Answer:
        """See `Sender`."""
        said = {"Content-Type": "application/json", **headers}
        with anyio.move_on_after(deadline.budget(CAP)):
            async with self._egress.request("POST", url, said, body) as response:
                return Answer(response.status_code, response.headers.get("retry-after", ""))
        raise DeadlineExceeded()
