"""`sapwood health`: whether the worker of this machine lives, from the small file that it keeps.

A worker has no port. Every second its event loop writes when it did so, how late it is, and when a server last answered.
Liveness is the loop's alone: a database that is away must not have Kubernetes restart every worker at once. Readiness is
the round of the sweeper, which needs the database. Few imports, since a probe starts this module every few seconds.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from pipeline.errors import ConfigurationError
from worker.settings import load

BEAT_SECONDS = 1.0
"""Between two pulses."""

LIVE_SECONDS = 10.0
"""How old a pulse, or how late the loop, may be."""

READY_SECONDS = 10.0
"""How long ago the sweeper may have made its round; it makes two or three a second."""


@dataclass(frozen=True, slots=True)
class Pulse:
    """What a worker last said of itself. Times are on the machine's monotonic clock, which all its processes share."""

    at: float
    loop_lag: float
    round_at: float

    def problem(self, now: float, *, ready: bool = False) -> str:
        """Return what is wrong, or nothing; with `ready` also where the worker lives but cannot work."""
        age, round_age = now - self.at, now - self.round_at
        if not 0 <= age < LIVE_SECONDS:  # a time to come is from before the machine was started anew
            return f"no pulse for {age:.0f} s" if age > 0 else "the pulse is of an earlier start of this machine"
        if self.loop_lag >= LIVE_SECONDS:
            return f"the event loop is {self.loop_lag:.0f} s late"
        if ready and self.round_at <= 0:
            return "no round yet"
        if ready and round_age >= READY_SECONDS:
            return f"the database has not answered for {round_age:.0f} s"
        return ""


def write(file: Path, pulse: Pulse) -> None:
    """Put the pulse in place in one move, so that a reader sees the old one or the new one. Raises OSError."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = file.with_name(f"{file.name}.{os.getpid()}")
    draft.write_text(json.dumps(asdict(pulse)), "utf-8")
    draft.replace(file)


def read(file: Path) -> Pulse | None:
    """Return the pulse of this file; None where there is none, or something else."""
    try:
        return Pulse(**{name: float(value) for name, value in json.loads(file.read_text("utf-8")).items()})
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def verdict(file: Path, *, ready: bool = False) -> tuple[bool, str]:
    """Return whether all is well with the worker that keeps this file, and one line that says why."""
    pulse, now = read(file), time.monotonic()
    if pulse is None:
        return False, "no worker keeps a pulse here"
    problem = pulse.problem(now, ready=ready)
    round_age = f"last round {now - pulse.round_at:.1f} s ago" if pulse.round_at > 0 else "no round yet"
    return not problem, problem or f"alive: loop lag {pulse.loop_lag:.3f} s, {round_age}"


def main() -> int:
    """Judge as `sapwood health [--ready]` does, in a fifth of the time that the whole command takes to load."""
    try:
        well, line = verdict(load().pulse_file, ready="--ready" in sys.argv[1:])
    except ConfigurationError as error:
        well, line = False, str(error)
    print(line)  # noqa: T201
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
