"""What a summary puts into the graph by itself: the module, its definitions, and what contains what. Pure; children run it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from pipeline.codegraph.summary import Summary, Symbol
from schemas.documents import Chunk
from schemas.graph import Extraction, Fact, Mention, Scalar

VERSION = "entities-1"

MODULE = "module"


def symbol_id(path: str, qualname: str) -> str:
    """Return the public id of a definition of a file; of the module itself where there is no qualified name."""
    return f"{path}::{qualname}" if qualname else path


def module_mention(path: str, language: str, doc: str = "", lines: int = 1) -> Mention:
    """Return a module as it is mentioned; by default that of a file without text."""
    properties: dict[str, Scalar] = {
        "kind": MODULE,
        "language": language,
        "path": path,
        "start_line": 1,
        "end_line": lines,
        "source": "ast",
    }
    return Mention(path, MODULE, description=doc, properties=properties, identity=path)


def entities(
    path: str, text: str, summary: Summary, chunks: Sequence[Chunk], contains: float
) -> tuple[Extraction, ...]:
    """Return what each chunk defines: a symbol belongs to the first chunk that holds its first line, the module to the first
    one, and a containment to the chunk of what is contained. `contains` is the weight.
    """
    if not chunks:
        return ()
    mentions: list[list[Mention]] = [[] for _ in chunks]
    facts: list[list[Fact]] = [[] for _ in chunks]
    mentions[0].append(module_mention(path, summary.language, summary.doc, text.count("\n") + 1))
    names = {symbol.qualname: symbol for symbol in summary.symbols}
    ends = [chunk.last_line for chunk in chunks]
    for symbol in summary.symbols:
        at = home(ends, symbol.first_line)
        mention = _mention(path, text, symbol, summary.language, chunks[at])
        mentions[at].append(mention)
        around = names.get(symbol.parent)
        facts[at].append(
            Fact(
                around.name if around else path,
                around.kind if around else MODULE,
                "contains",
                symbol.name,
                symbol.kind,
                contains,
                mention.start,
                mention.end,
                evidence(path, symbol.first_line),
                symbol_id(path, around.qualname if around else ""),
                mention.identity,
            )
        )
    return tuple(Extraction(tuple(m), tuple(f)) for m, f in zip(mentions, facts, strict=True))


def home(ends: Sequence[int], line: int) -> int:
    """Return the first chunk that holds a line, by the last lines of all; the next one where the line is blank."""
    return min(bisect_right(ends, line - 1), len(ends) - 1)


def evidence(path: str, line: int) -> dict[str, Scalar]:
    """Return the properties of an edge."""
    return {"line": line, "path": path, "source": "ast"}


def _mention(path: str, text: str, symbol: Symbol, language: str, chunk: Chunk) -> Mention:
    at = text.find(symbol.name, symbol.start, min(symbol.end, chunk.end))
    start, end = (at - chunk.start, at - chunk.start + len(symbol.name)) if at >= chunk.start else (-1, -1)
    return Mention(
        symbol.name,
        symbol.kind,
        start,
        end,
        description=symbol.doc,
        properties=_properties(path, symbol, language),
        identity=symbol_id(path, symbol.qualname),
    )


def _properties(path: str, symbol: Symbol, language: str) -> Mapping[str, Scalar]:
    properties: dict[str, Scalar] = {
        "kind": symbol.kind,
        "qualname": symbol.qualname,
        "language": language,
        "path": path,
        "start_line": symbol.first_line,
        "end_line": symbol.last_line,
        "signature": symbol.signature,
        "source": "ast",
    }
    if symbol.decorators:
        properties["decorators"] = ", ".join(symbol.decorators)
    return properties
