"""The commands about the servers: `up`, `down`, `status`, `doctor`, `migrate`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import anyio
import typer
from rich.markup import escape

from pipeline.deadline import Deadline
from worker import embedded, show
from worker.commands import Json
from worker.compose import apply_migrations
from worker.doctor import await_schema, diagnose
from worker.endings import guarded
from worker.gateway.command import serve_here
from worker.settings import load


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    for command in (up, down, status, doctor, migrate):
        app.command()(command)


def _ended(action: Callable[[], int]) -> None:
    raise typer.Exit(guarded(action))


def up(
    json: Json = False,
    gateway: Annotated[
        bool, typer.Option("--gateway", help="Then serve HTTP and work on runs in this process, until SIGTERM.")
    ] = False,
) -> None:
    """Start the embedded PostgreSQL and Valkey of SAPWOOD_HOME; they run until `sapwood down`.

    Example: `sapwood up --gateway` then `curl http://127.0.0.1:8321/v1/corpora`
    """

    def action() -> int:
        home = load().home
        endpoints = embedded.up(home)
        anyio.run(apply_migrations, endpoints.database_url)
        values = {"database_url": endpoints.database_url, "redis_url": endpoints.redis_url}
        show.done(f"running in {home}", values, json)
        return serve_here(work=True, json=json) if gateway else 0

    _ended(action)


def down(json: Json = False) -> None:
    """Stop the embedded servers of SAPWOOD_HOME. The data stays."""

    def action() -> int:
        stopped = embedded.down(load().home)
        show.done(f"stopped: {', '.join(stopped)}" if stopped else "nothing was running", {"stopped": stopped}, json)
        return 0

    _ended(action)


def status(json: Json = False) -> None:
    """Say which embedded servers run. Exit code 0 if all do, 1 if not."""

    def action() -> int:
        found = embedded.status(load().home)
        if json:
            show.as_json([{"name": s.name, "running": s.running, "pid": s.pid, "socket": str(s.socket)} for s in found])
        else:
            for server in found:
                state = f"runs as {server.pid}" if server.running else "is stopped"
                show.out.print(f"{server.name} {state}  [dim]{escape(str(server.socket))}[/dim]")
        return 0 if all(server.running for server in found) else 1

    _ended(action)


def doctor(json: Json = False) -> None:
    """Say what is wrong with this installation and how to mend it. Exit code 0 if nothing is."""

    def action() -> int:
        checks = anyio.run(diagnose, load())
        if json:
            show.as_json([{"name": c.name, "ok": c.ok, "detail": c.detail, "cure": c.cure} for c in checks])
        else:
            for check in checks:
                mark = "[green]ok[/green]  " if check.ok else "[red]FAIL[/red]"
                cure = f"\n       → {check.cure}" if check.cure else ""
                show.out.print(f"{mark} {escape(f'{check.name}: {check.detail}{cure}')}")
        return 0 if all(check.ok for check in checks) else 1

    _ended(action)


def migrate(
    wait: Annotated[
        float, typer.Option("--wait", metavar="SECONDS", min=0, help="Change nothing: wait until it is done.")
    ] = 0.0,
    json: Json = False,
) -> None:
    """Bring the database's schema up to date; many processes may call it at once.

    Example, where another process migrates: `sapwood migrate --wait 300 && sapwood worker`
    """

    def action() -> int:
        settings = load()
        secret = settings.database_url
        url = secret.get_secret_value() if secret else embedded.up(settings.home).database_url
        if wait:
            anyio.run(lambda: await_schema(url, Deadline.after(wait)))
            show.done("up to date", {"applied": []}, json)
            return 0
        applied = anyio.run(apply_migrations, url)
        show.done(f"applied {', '.join(applied)}" if applied else "up to date", {"applied": applied}, json)
        return 0

    _ended(action)
