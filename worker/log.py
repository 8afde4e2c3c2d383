"""Logs: structured, on standard error, and without secrets. Records of libraries take the same way."""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TextIO, cast

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from worker.settings import misspelt

HIDDEN = "***"

_NAMES = r"password|passwd|passphrase|secret|token|api[-_]?key|authorization|credential|dsn"
_SECRET_NAME = re.compile(rf"(?:^|[-_.])(?:{_NAMES})s?$", re.IGNORECASE)
_PATTERNS = (
    (re.compile(r"(\w://[^\s:/@?#]*:)[^\s/?#]*@"), rf"\1{HIDDEN}@"),
    (re.compile(rf"((?:{_NAMES})[\"']?\s*[=:]\s*[\"']?)(?!bearer\b)[^\s&\"',;)]+", re.IGNORECASE), rf"\1{HIDDEN}"),
    (re.compile(r"(\b(?:bearer|basic)\s+)[\w.~+/=-]{8,}", re.IGNORECASE), rf"\1{HIDDEN}"),
    (re.compile(r"\bsk-[\w-]{8,}"), HIDDEN),
    (re.compile(r"\bwhsec_[\w+/=-]+"), HIDDEN),
    (re.compile(r"sw_([0-9a-f]{16})_[0-9a-f]+"), rf"sw_\1_{HIDDEN}"),  # the public part of our own keys may be seen
)


class Redaction:
    """Takes secrets out of texts: known ones word for word, others by shape (passwords in URLs, tokens, keys)."""

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        self._known = sorted({secret for secret in secrets if len(secret) >= 4}, key=len, reverse=True)

    def text(self, text: str) -> str:
        """Return the text without its secrets."""
        for secret in self._known:
            text = text.replace(secret, HIDDEN)
        for pattern, replacement in _PATTERNS:
            text = pattern.sub(replacement, text)
        return text

    def value(self, value: object) -> object:
        """Return the value with every text in it redacted; an object becomes its redacted `repr`."""
        match value:
            case str():
                return self.text(value)
            case None | bool() | int() | float():
                return value
            case Mapping():
                pairs = cast("Mapping[object, object]", value).items()
                return {self.text(str(key)): self._named(str(key), item) for key, item in pairs}
            case list() | tuple() | set() | frozenset():
                return [self.value(item) for item in cast("Iterable[object]", value)]
            case _:
                return self.text(repr(value))

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        """Redact a log record: a structlog processor, to stand after the one that renders exceptions."""
        return {key: item if key.startswith("_") else self._named(key, item) for key, item in event.items()}

    def _named(self, name: str, value: object) -> object:
        return HIDDEN if value and _SECRET_NAME.search(name) else self.value(value)


def configure(
    form: Literal["console", "json"] = "console",
    level: str = "info",
    secrets: Sequence[str] = (),
    stream: TextIO | None = None,
) -> None:
    """Send all logs of this process, ours and the libraries', to one stream (standard error) in one form, redacted."""
    out = sys.stderr if stream is None else stream
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    render: Processor = structlog.processors.JSONRenderer(sort_keys=True)
    if form == "console":
        render = structlog.dev.ConsoleRenderer(colors=out.isatty())
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*shared, structlog.stdlib.ExtraAdder()],
        processors=[
            structlog.processors.format_exc_info,
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            _plain,
            Redaction(secrets),
            render,
        ],
    )
    handler = logging.StreamHandler(out)
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    for library in ("httpx", "arq", "mcp"):  # a line for each request, for each ring, and for each session
        logging.getLogger(library).setLevel(logging.WARNING)
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def tell_misspelt() -> None:
    """Log each variable of the environment that is almost a setting: it has no effect."""
    for name, meant in misspelt().items():
        get(__name__).warning("settings.misspelt", variable=name, meant=meant)


def _plain(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Drop uvicorn's second copy of a message, with colours in it."""
    event.pop("color_message", None)
    return event


def get(name: str) -> structlog.stdlib.BoundLogger:
    """Return the logger of this name."""
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(name)
    return logger
