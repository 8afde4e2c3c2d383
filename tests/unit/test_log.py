"""Logs hold no secrets, in whatever place one turns up."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from worker import log
from worker.log import Redaction

SECRET = "hunter2-hunter2"


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Configure JSON logs into a stream, and put the logging of the test run back afterwards."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    out = io.StringIO()
    log.configure("json", "info", [SECRET], out)
    yield out
    structlog.reset_defaults()
    root.handlers[:] = before
    root.setLevel(level)


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://me:{SECRET}@db/x",
        f"postgresql://me:with@sign{SECRET}@db/x",
        f"redis://:{SECRET}@cache:6379/0",
        f"postgresql://db/x?user=me&password={SECRET}&sslmode=require",
        f"host=db password='{SECRET}'",
        f"Authorization: Bearer {SECRET}",
        f'{{"api_key": "{SECRET}"}}',
        "sk-abcdefgh12345678hunter2-hunter2",
    ],
)
def test_a_secret_is_recognised_by_its_shape(text: str) -> None:
    hidden = Redaction().text(text)
    assert "hunter2" not in hidden
    assert log.HIDDEN in hidden


@pytest.mark.parametrize(
    "text", ["https://example.org/a@b", "10 tokens: fine", "a:b@c", "unix:///run/valkey.sock?db=0"]
)
def test_an_innocent_text_stays_as_it_is(text: str) -> None:
    assert Redaction().text(text).replace(log.HIDDEN, "fine") == text


def test_a_known_secret_is_hidden_word_for_word_and_a_secret_name_hides_its_value() -> None:
    redaction = Redaction(["plain"])
    assert redaction.value({"a": ["x plain y"], "openai_api_key": "k", "tokens": 12, "max_tokens_used": 3}) == {
        "a": ["x *** y"],
        "openai_api_key": "***",
        "tokens": "***",
        "max_tokens_used": 3,
    }


def test_a_record_of_ours_is_one_line_of_json_without_secrets(stream: io.StringIO) -> None:
    log.get("ours").info("connected", url=f"postgresql://me:{SECRET}@db/x", nested={"password": "p"}, count=3)
    record = json.loads(stream.getvalue())
    assert SECRET not in stream.getvalue()
    assert record["event"] == "connected"
    assert record["count"] == 3
    assert record["level"] == "info"
    assert record["nested"] == {"password": "***"}


def test_an_exception_is_logged_without_secrets(stream: io.StringIO) -> None:
    try:
        raise ValueError(f"cannot connect to redis://:{SECRET}x@cache")
    except ValueError:
        log.get("ours").exception("failed")
    assert "ValueError" in stream.getvalue()
    assert SECRET not in stream.getvalue()


def test_a_record_of_a_library_takes_the_same_way(stream: io.StringIO) -> None:
    logging.getLogger("library.part").warning("retry %s", f"redis://:{SECRET}@cache", extra={"token": "t0ken"})
    record = json.loads(stream.getvalue())
    assert record["logger"] == "library.part"
    assert record["token"] == "***"
    assert SECRET not in stream.getvalue()


def test_the_level_is_honoured(stream: io.StringIO) -> None:
    log.get("ours").debug("too fine")
    assert stream.getvalue() == ""


def test_a_message_is_told_once_and_without_colours(stream: io.StringIO) -> None:
    """uvicorn hands a coloured copy of its messages along."""
    logging.getLogger("uvicorn.error").info("Started", extra={"color_message": "\x1b[36mStarted\x1b[0m"})
    assert "color_message" not in json.loads(stream.getvalue())


def test_a_misspelt_variable_is_told_to_who_runs_a_server(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAPWOOD_DATABSE_URL", f"postgresql://me:{SECRET}@db/x")
    log.tell_misspelt()
    told = json.loads(stream.getvalue())
    assert (told["level"], told["variable"], told["meant"]) == (
        "warning",
        "SAPWOOD_DATABSE_URL",
        "SAPWOOD_DATABASE_URL",
    )
    assert SECRET not in stream.getvalue()
