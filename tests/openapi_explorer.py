"""Asks a gateway what its OpenAPI document makes one think of, and reports what came that the document does not announce.

A process of its own, so that client and server do not wait for the same interpreter: a JSON object of `Wanted` on stdin,
one of `Explored` on stdout.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import anyio
import schemathesis
from schemathesis.config import SchemathesisConfig
from schemathesis.engine import events, from_schema
from schemathesis.engine.recorder import ScenarioRecorder

from tests.cli_driver import ROOT

EXAMPLES = 12
"""Random requests to an operation, beside those that cover each parameter's edges."""

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "ignored_auth",
    "unsupported_method",
)
"""Not `negative_data_rejection`: a body may say 1 for true and "5" for 5, as pydantic takes them."""

NOT_OURS = ("502", "503", "504")
"""What a model, a store or a deadline of no time at all may bring about."""

WITH_SETTINGS = ("/v1/corpora", "/v1/corpora/{corpus}/index-runs", "/v1/corpora/{corpus}/settings")
"""Paths whose bodies have so many edges that they alone would take all the time; they get random requests."""

NAMES = {
    "corpus": "corpus",
    "corpus_id": "corpus",
    "entity_id": "entity",
    "key_id": "key",
    "path": "file",
    "run_id": "run",
    "tenant": "tenant",
}
"""Parameters that are often given a name of something that is there, and the list which that is taken from."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Where to ask, with which key, what is there by lists of names, and how paths begin that are asked for (a pattern)."""

    url: str
    authorization: str
    known: Mapping[str, Sequence[str | int]]
    only: str = "/"
    seconds: int = 30


@dataclass
class Explored:
    """The answers by operation and class of status, what broke the document's word, and why the exploration ended."""

    answers: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    faults: dict[str, str] = field(default_factory=dict[str, str])
    stopped: str = ""

    @property
    def requests(self) -> int:
        """How many requests were answered."""
        return sum(sum(answers.values()) for answers in self.answers.values())


async def explored(wanted: Wanted) -> Explored:
    """Explore in a process of its own, and return what it found."""
    command = [sys.executable, "-m", "tests.openapi_explorer"]
    done = await anyio.run_process(command, input=json.dumps(asdict(wanted)).encode(), cwd=ROOT, stderr=None)
    return Explored(**json.loads(done.stdout))


def explore(wanted: Wanted) -> Explored:
    """Send generated requests to all operations: edges of each parameter, random ones, then sequences that fit together."""
    found = Explored()
    schema = schemathesis.openapi.from_url(f"{wanted.url}/openapi.json", config=_config(wanted))
    for event in from_schema(schema).execute():
        match event:
            case events.ScenarioFinished():
                _note(event.recorder, found)
            case events.NonFatalError():
                found.faults[f"{event.label.lower()}: {event.info.title}"] = str(event.value)
            case events.FatalError():
                raise event.exception
            case events.EngineFinished():
                found.stopped = event.stop_reason.value
            case _:
                pass
    return found


def _config(wanted: Wanted) -> SchemathesisConfig:
    checks: dict[str, Any] = {name: {"enabled": True} for name in CHECKS}
    checks["not_a_server_error"] |= {"expected-statuses": ["2xx", "3xx", "4xx", *NOT_OURS]}
    likely = {name: {"dictionary": known, "probability": 0.7} for name, known in NAMES.items()}
    likely["body.generation"] = {"dictionary": "generation", "probability": 0.7}
    spare = {"corpus": {"dictionary": "spare", "probability": 0.7}}
    generation = {"max-examples": EXAMPLES, "deterministic": True, "database": "none", "no-shrink": True}
    operations: list[dict[str, Any]] = [
        {"include-path": path, "phases": {"coverage": {"enabled": False}}} for path in WITH_SETTINGS
    ]
    operations.append({"include-path-regex": f"^(?!{wanted.only})", "enabled": False})
    operations.append({"include-path": "/v1/corpora/{corpus}", "include-method": "DELETE", "parameters": spare})
    config: Any = SchemathesisConfig
    return config.from_dict(
        {
            "seed": 7,
            "max-time": wanted.seconds,
            "continue-on-failure": True,
            "max-stream-events": 20,
            "headers": {"Authorization": wanted.authorization},
            "dictionaries": {name: {"values": list(values)} for name, values in wanted.known.items()},
            "parameters": likely,
            "generation": generation,
            "checks": {"enabled": False, **checks},
            "operations": operations,
        }
    )


def _note(recorder: ScenarioRecorder, found: Explored) -> None:
    """Count the answers of one scenario, and keep one example of each fault."""
    cases: dict[str, Any] = dict(recorder.cases)
    labels = {case_id: str(case.value.operation.label) for case_id, case in cases.items()}
    for case_id, met in recorder.interactions.items():
        answers = Counter[str](found.answers.get(_shown(labels[case_id]), {}))
        answers[f"{met.response.status_code // 100}xx" if met.response else "none"] += 1
        found.answers[_shown(labels[case_id])] = answers
    for case_id, checks in recorder.checks.items():
        for check in checks:
            if check.failure_info is not None:
                said = f"{check.failure_info.failure}\n{check.failure_info.code_sample}"
                found.faults.setdefault(f"{_shown(labels[case_id])}: {check.name}", said)


def _shown(label: str) -> str:
    """Return `method /path` for `METHOD /path`."""
    method, _, path = label.partition(" ")
    return f"{method.lower()} {path}"


if __name__ == "__main__":
    print(json.dumps(vars(explore(Wanted(**json.load(sys.stdin))))))  # noqa: T201
