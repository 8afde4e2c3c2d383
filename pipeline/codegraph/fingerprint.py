"""What decides which graph source code becomes: it is part of the recipe of documents."""

from __future__ import annotations

from importlib.metadata import version

from pipeline.codegraph import cut, entities, summary
from pipeline.codegraph.languages import LANGUAGES
from pipeline.codegraph.linker import link

_GRAMMARS = sorted({language.grammar[0].replace("_", "-") for language in LANGUAGES.values()})

FINGERPRINT = "/".join(
    (
        *(summary.VERSION, cut.VERSION, entities.VERSION, link.VERSION),
        *(f"{name}-{version(name)}" for name in ("tree-sitter", *_GRAMMARS)),
    )
)
"""Ours, and the versions of the grammars; read at import, since it reads from disk."""
