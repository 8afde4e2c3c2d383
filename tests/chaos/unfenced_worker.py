"""The negative control's worker: `sapwood worker` with the fence switched off, for the checkers to find."""

from __future__ import annotations

from types import MappingProxyType

from pipeline.adapters import postgres_runs
from worker.operations import run_worker_process

FENCE = "where run_id = $1 and fence = $2 and owner = $3 and state = 'running' and step = $4"
NO_FENCE = "where run_id = $1 and ($2::bigint, $3::text, $4::int) is not null"


def main() -> int:
    """Run a worker that takes every write for its own and never notices that a unit has another owner."""
    guard, beat = postgres_runs._SQL["guard"], postgres_runs._SQL["beat"]
    assert FENCE in guard
    owner = "where run_id = $1 and fence = $2 and owner = $3 and state = 'running'"
    assert owner in beat
    unfenced = {
        "guard": guard.replace(FENCE, NO_FENCE),
        "beat": beat.replace(owner, "where run_id = $1 and ($2::bigint, $3::text) is not null"),
    }
    postgres_runs._SQL = MappingProxyType({**postgres_runs._SQL, **unfenced})
    return run_worker_process()


if __name__ == "__main__":
    raise SystemExit(main())
