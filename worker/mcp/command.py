"""The command `sapwood mcp`."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated

import anyio
import typer

from pipeline.deadline import Deadline
from pipeline.errors import MissingExtra
from worker import log
from worker.app import Sapwood, open_sapwood
from worker.endings import Exit, guarded
from worker.settings import WorkerSettings, load

CALL = 30.0
"""Seconds for a small read."""

NEEDED = "MCP needs `pip install sapwood[mcp]`."


def mcp(tenant: Annotated[str, typer.Option(help="Whose graphs and corpora are asked.")] = "default") -> None:
    """Serve the tools of agents over MCP, on standard input and output; logs go to standard error.

    The tools ask published graphs (`sapwood graph publish`), retrieve passages, and keep facts for as long as it runs. A
    program for agents starts it by itself; over HTTP the gateway has all but the facts at `/mcp`.

    Example, as an entry of a client's configuration: `{"command": "sapwood", "args": ["mcp", "--tenant", "acme"]}`
    """

    def action() -> int:
        settings = load()
        need_mcp()
        serve_here(settings, tenant)
        return Exit.DONE

    raise typer.Exit(guarded(action))


def need_mcp() -> None:
    """Load the protocol. Raises MissingExtra."""
    try:
        import_module("worker.mcp.server")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        raise MissingExtra(NEEDED) from None


def serve_here(settings: WorkerSettings, tenant: str) -> None:
    """Serve in this process until the client leaves or a signal. Raises SapwoodError."""
    from worker.mcp.stdio import serve, wire

    log.configure(settings.log_format, settings.log_level, settings.secrets)
    with wire() as streams:

        async def main() -> None:
            async with open_sapwood(settings) as sapwood:
                await sapwood.services.keys.tenant(tenant, Deadline.after(CALL))  # a slip of the pen is no empty tenant
                await serve(Sapwood(sapwood.services, tenant), streams)

        anyio.run(main)
