"""Questions about the graph of source code and their answers, as they are on the wire."""

from __future__ import annotations

from enum import StrEnum

from schemas.query import Wire


class CodeQuestion(StrEnum):
    """What may be asked about a symbol; PATH asks for a shortest chain of calls to a second one."""

    CALLERS = "callers"
    CALLEES = "callees"
    BASES = "bases"
    SUBCLASSES = "subclasses"
    IMPORTERS = "importers"
    PATH = "path"
    SYMBOLS = "symbols"


class CodeSymbol(Wire):
    """A module (its id is its path), a definition (`path::qualified.name`) or a thing outside (`external::dotted.name`).

    `path` and `line` say where it is defined, line 0 where that is not in the corpus.
    """

    entity_id: str
    name: str
    kind: str
    qualname: str = ""
    path: str = ""
    line: int = 0
    signature: str = ""
    description: str = ""


class CodeReference(Wire):
    """That one symbol refers to another, and the line that states it. `depth` counts the steps from what was asked about.

    `symbol` is what the answer found here: the caller, the base, the next of a chain.
    """

    source_id: str
    target_id: str
    kind: str
    path: str
    line: int
    depth: int
    symbol: CodeSymbol


class CodeAnswer(Wire):
    """An answer. `symbols` are for SYMBOLS; else `symbol` is what was asked about, `to` the end of a chain, and there are
    `references`: by depth, then file and line, or of a chain from its start. `truncated`: there may be more.
    """

    question: CodeQuestion
    symbol: CodeSymbol | None = None
    to: CodeSymbol | None = None
    references: tuple[CodeReference, ...] = ()
    symbols: tuple[CodeSymbol, ...] = ()
    truncated: bool = False
