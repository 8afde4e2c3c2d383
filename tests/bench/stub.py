"""A model in a process of its own, so that it takes no time from what is measured: `stub.py SECONDS` prints its URL."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio

sys.path.insert(0, str(Path(__file__).parents[2]))

from pipeline.testing.openai_stub import OpenAIStub, serving


class Counting(OpenAIStub):
    """Says what it has seen, without delay."""

    async def respond(self, path: str, headers: Mapping[str, str], body: bytes) -> tuple[int, Any]:
        if path.endswith("/seen"):
            return 200, {"calls": self.calls.total(), "busy": self.busy}
        return await super().respond(path, headers, body)


async def main(seconds: float) -> None:
    async with serving(Counting(seconds=seconds)) as stub:
        print(stub.url, flush=True)
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(main, float(sys.argv[1]))
