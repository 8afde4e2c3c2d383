"""The gateway as a process: one socket, open services, perhaps a worker beside it, and an orderly end."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

import anyio
import uvicorn
from fastapi import FastAPI

from pipeline.errors import ConfigurationError
from worker import log
from worker.app import open_sapwood
from worker.compose import Services
from worker.gateway.app import create_app
from worker.gateway.keys import KeyAuthenticator
from worker.gateway.local import Everybody, listen_address, needs_keys
from worker.maintenance import collect_garbage
from worker.metrics import show
from worker.process import feel_lag, lanes, run_worker
from worker.settings import WorkerSettings
from worker.webhooks import deliver_webhooks

BACKLOG = 2048


@contextmanager
def listening(settings: WorkerSettings) -> Generator[tuple[socket.socket, str], None, None]:
    """Listen on the address of the settings and yield the socket and its URL. Port 0 takes a free one.

    Raises:
        ConfigurationError: the address cannot be had, or others could reach a gateway that asks for no keys.
    """
    needs_keys(settings)
    host, port = listen_address(settings)
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise ConfigurationError(f"SAPWOOD_GATEWAY_LISTEN: cannot listen there ({error.strerror}).") from error
    with sock:
        # Connections inherit it. asyncio sets it only where the protocol is named, which `create_server` does not do; without
        # it an answer's body waits until the client has confirmed its head, 40 ms on Linux.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        shown = f"[{host}]" if ":" in host else host
        yield sock, f"http://{shown}:{sock.getsockname()[1]}"


async def serve(
    settings: WorkerSettings, sock: socket.socket, *, work: bool, ready: Callable[[], None] = lambda: None
) -> int:
    """Serve until SIGTERM or SIGINT and return 0; with `work` this process also works on runs.

    At the signal a worker hands back what it has, streams end, and requests under way have the grace of the settings.
    """
    log.configure(settings.log_format, settings.log_level, settings.secrets)
    log.tell_misspelt()
    async with open_sapwood(settings) as sapwood, anyio.create_task_group() as group:
        services = sapwood.services
        authenticator = KeyAuthenticator(services.keys) if needs_keys(settings) else Everybody()
        app = create_app(services, authenticator, settings)
        server = Server(config(app, settings), app.state.pace.closing)
        await group.start(app.state.mcp.run)
        group.start_soon(feel_lag, services.vitals)
        if settings.metrics_port:
            await group.start(show, services.watched, settings.metrics_host, settings.metrics_port)
        if work:
            metrics = services.vitals.metrics
            group.start_soon(collect_garbage, services.collector, services.outside, services.events, metrics)
            group.start_soon(deliver_webhooks, services.webhooks.deliveries, services.webhooks.sender, metrics)
            group.start_soon(_work_until_signal, services, settings, server)
        else:
            group.start_soon(_until_signal, server)
        ready()
        await server.serve(sockets=[sock])
        group.cancel_scope.cancel()
    return 0


class Server(uvicorn.Server):
    """A server that leaves signals to its process, and has streams end when it stops."""

    def __init__(self, config: uvicorn.Config, closing: anyio.Event) -> None:
        super().__init__(config)
        self._closing = closing

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Capture nothing."""
        yield

    async def shutdown(self, sockets: Sequence[socket.socket] | None = None) -> None:
        """Tell the streams, then wait for what is under way."""
        self._closing.set()
        await super().shutdown(None if sockets is None else list(sockets))


def config(app: FastAPI, settings: WorkerSettings) -> uvicorn.Config:
    """Return how the server serves an application."""
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,  # the guard writes it
        server_header=False,
        lifespan="off",
        ws="none",
        timeout_graceful_shutdown=max(1, round(settings.gateway_grace_seconds)),
    )


async def _until_signal(server: Server) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            server.should_exit = True
            return


async def _work_until_signal(services: Services, settings: WorkerSettings, server: Server) -> None:
    await run_worker(services.parts(), services.doorbell, lanes(settings.index_jobs, settings.query_jobs))
    server.should_exit = True
