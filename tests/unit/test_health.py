"""The verdict on a worker's pulse, and the file that holds it."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import ConfigurationError
from worker import health
from worker.health import LIVE_SECONDS, READY_SECONDS, Pulse
from worker.process import Vitals
from worker.settings import load
from worker.supervise import keep_pulse

NOW = 1000.0


@pytest.mark.parametrize(
    ("pulse", "live", "ready"),
    [
        (Pulse(NOW, 0.0, NOW), "", ""),
        (Pulse(NOW, 0.0, NOW - READY_SECONDS), "", "database"),
        (Pulse(NOW, 0.0, 0.0), "", "no round"),
        (Pulse(NOW - LIVE_SECONDS, 0.0, NOW), "no pulse", "no pulse"),
        (Pulse(NOW, LIVE_SECONDS, NOW), "late", "late"),
        (Pulse(NOW + 5, 0.0, NOW), "earlier start", "earlier start"),
    ],
)
def test_a_verdict_says_what_is_wrong(pulse: Pulse, live: str, ready: str) -> None:
    for found, expected in ((pulse.problem(NOW), live), (pulse.problem(NOW, ready=True), ready)):
        assert (expected in found) if expected else not found


@given(st.floats(0, 2000), st.floats(0, 20), st.floats(0, 2000))
def test_who_is_ready_is_alive(at: float, lag: float, round_at: float) -> None:
    pulse = Pulse(at, lag, round_at)
    assert pulse.problem(NOW, ready=True) or not pulse.problem(NOW)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"at": "x"}', '{"at": 1, "loop_lag": 0, "round_at": []}'])
def test_a_file_that_holds_no_pulse_is_no_life(tmp_path: Path, content: str) -> None:
    file = tmp_path / "pulse"
    file.write_text(content)
    assert health.verdict(file) == (False, "no worker keeps a pulse here")


def test_a_pulse_survives_its_file_and_leaves_no_draft(tmp_path: Path) -> None:
    file, pulse = tmp_path / "run" / "pulse", Pulse(time.monotonic(), 0.25, 1.5)
    health.write(file, pulse)
    assert health.read(file) == pulse
    assert list(file.parent.iterdir()) == [file]
    assert health.verdict(file)[0]
    assert not health.verdict(file, ready=True)[0]


async def test_the_pulse_goes_with_the_worker(tmp_path: Path) -> None:
    file = anyio.Path(tmp_path / "pulse")
    async with anyio.create_task_group() as group:
        group.start_soon(keep_pulse, Vitals(), Path(file))
        with anyio.fail_after(10):
            while not await file.exists():  # noqa: ASYNC110
                await anyio.sleep(0.01)
        group.cancel_scope.cancel()
    assert not await file.exists()


async def test_a_file_that_cannot_be_written_does_not_stop_the_work(tmp_path: Path) -> None:
    await (anyio.Path(tmp_path) / "not-a-folder").touch()
    with anyio.move_on_after(0.2) as scope:
        await keep_pulse(Vitals(), tmp_path / "not-a-folder" / "pulse")
    assert scope.cancelled_caught


def test_a_worker_may_leave_one_kind_of_work_to_others_but_not_all(tmp_path: Path) -> None:
    home = {"SAPWOOD_HOME": str(tmp_path)}
    assert load(home | {"SAPWOOD_INDEX_JOBS": "0"}).query_jobs > 0
    assert load(home | {"SAPWOOD_QUERY_JOBS": "0"}).index_jobs > 0
    with pytest.raises(ConfigurationError, match="SAPWOOD_INDEX_JOBS"):
        load(home | {"SAPWOOD_INDEX_JOBS": "0", "SAPWOOD_QUERY_JOBS": "0"})


def test_a_probe_loads_little() -> None:
    """It starts every few seconds in every pod: none of the drivers, none of the models."""
    code = "import sys, worker.health; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    assert "pydantic" in loaded
    assert not loaded & {"asyncpg", "redis", "numpy", "httpx", "typer", "structlog"}
