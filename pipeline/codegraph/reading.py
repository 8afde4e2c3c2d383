"""Text to summary: the one entrance to the frontends, which never fails."""

from __future__ import annotations

from importlib import import_module

from pipeline.codegraph.languages import LANGUAGES, is_manifest, language_of, parser
from pipeline.codegraph.manifests import summarize_manifest
from pipeline.codegraph.source import Source
from pipeline.codegraph.summary import Summary

MAX_LENGTH = 2_000_000
"""Characters of a file that is summed up; a longer one is generated, and stays searchable as text."""


def read(path: str, text: str, media_type: str = "") -> Summary | None:
    """Return what a source file says, or None where no frontend knows its language.

    Never raises: what could not be read is in `counts`, up to a file of which nothing was (`too_long`, `unreadable`).
    """
    name = language_of(path, media_type)
    if not name:
        return None
    if len(text) > MAX_LENGTH:
        return Summary(name, counts={"too_long": 1})
    try:
        if is_manifest(path):
            return summarize_manifest(name, text)
        source = Source(name, text, parser(name))
        summary: Summary = import_module(LANGUAGES[name].frontend).summarize(source)
    except Exception:  # a defect of ours costs this file its symbols, not the run; it is counted where people look
        return Summary(name, counts={"unreadable": 1})
    return summary
