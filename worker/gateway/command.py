"""The command `sapwood gateway`, and the gateway as a part of `sapwood up`."""

from __future__ import annotations

import os
from typing import Annotated

import anyio
import typer

from worker import show
from worker.endings import guarded
from worker.settings import load


def gateway(
    listen: Annotated[str, typer.Option(metavar="HOST:PORT", help="Default: SAPWOOD_GATEWAY_LISTEN.")] = "",
    work: Annotated[bool, typer.Option("--work", help="Also work on runs in this process.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Serve HTTP until SIGTERM: index jobs, questions, and their events as they come.

    On a loopback address nobody needs a key; elsewhere everybody does: `sapwood key create`.

    Example: `sapwood gateway &` then `curl http://127.0.0.1:8321/v1/corpora`
    """
    raise typer.Exit(guarded(lambda: serve_here(work=work, json=json, listen=listen)))


def serve_here(*, work: bool, json: bool, listen: str = "") -> int:
    """Serve in this process until a signal and return 0; `listen` goes before the setting. Raises SapwoodError."""
    # Loaded only where it is used: the web framework takes a good part of a second.
    from worker.gateway.server import listening, serve

    settings = load({**os.environ, "SAPWOOD_GATEWAY_LISTEN": listen} if listen else os.environ)
    with listening(settings) as (sock, url):
        return anyio.run(lambda: serve(settings, sock, work=work, ready=lambda: show.done(url, {"url": url}, json)))
