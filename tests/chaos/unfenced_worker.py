"""The negative control's worker: `sapwood worker` with the fence switched off, for the checkers to find."""

from __future__ import annotations

from contextlib import suppress
from types import MappingProxyType

import anyio

from pipeline.adapters import postgres_runs
from pipeline.errors import DeadlineExceeded, DependencyError
from pipeline.runs import Runner, Work
from worker.operations import run_worker_process

FENCE = {
    "guard": (
        "where run_id = $1 and fence = $2 and owner = $3 and state = 'running' and step = $4",
        "where run_id = $1 and ($2::bigint, $3::text, $4::int) is not null",
    ),
    "beat": (
        "where run_id = $1 and fence = $2 and owner = $3 and state = 'running'",
        "where run_id = $1 and ($2::bigint, $3::text) is not null",
    ),
}


async def careless(runner: Runner, work: Work, scope: anyio.CancelScope) -> None:
    """A heartbeat that goes on as if nothing had happened, however late it is."""
    while not scope.cancel_called:
        await anyio.sleep(work.lease.seconds / 3)
        with suppress(DependencyError, DeadlineExceeded):
            await runner._units.beat(work.lease)


def main() -> int:
    """Run a worker that takes every write for its own and never notices that a unit has another owner."""
    statements = dict(postgres_runs._SQL)
    for name, (fence, nothing) in FENCE.items():
        assert fence in statements[name]
        statements[name] = statements[name].replace(fence, nothing)
    postgres_runs._SQL = MappingProxyType(statements)
    Runner._heart = careless  # type: ignore[method-assign]
    return run_worker_process()


if __name__ == "__main__":
    raise SystemExit(main())
