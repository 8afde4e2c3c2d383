"""What the commands share: how they are told to print JSON, how durations are written, and the application they act in."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Annotated

import anyio
import typer

from worker.app import Sapwood, open_sapwood
from worker.endings import guarded
from worker.settings import load

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def run(action: Callable[[Sapwood], Awaitable[int]]) -> None:
    """Open the application, act, and leave the process with the action's exit code."""

    async def main() -> int:
        async with open_sapwood(load()) as sapwood:
            return await action(sapwood)

    raise typer.Exit(guarded(lambda: anyio.run(main)))


def seconds(text: str) -> float:
    """Return the seconds in `2s`, `300ms`, `1m` or `2`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)?", text.strip())
    if match is None or float(match[1]) <= 0:
        raise typer.BadParameter(f"{text!r} is not a duration; write `2s`, `300ms` or `1m`", param_hint="--deadline")
    return float(match[1]) * {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}[match[2]]
