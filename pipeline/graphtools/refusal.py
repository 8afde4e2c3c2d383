"""How a question to a graph is refused: the codes, and where in a query's text the fault is."""

from __future__ import annotations

from enum import StrEnum

from pipeline.errors import Refusal


class Code(StrEnum):
    """What an agent is told before the message."""

    UNKNOWN_KNOWLEDGE_SOURCE = "UNKNOWN_KNOWLEDGE_SOURCE"
    UNKNOWN_GRAPH_TYPE = "UNKNOWN_GRAPH_TYPE"
    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    INVALID_QUERY = "INVALID_QUERY"
    QUERY_NOT_ALLOWED = "QUERY_NOT_ALLOWED"
    UNSUPPORTED_QUERY = "UNSUPPORTED_QUERY"
    UNSUPPORTED_FEATURE = "UNSUPPORTED_FEATURE"
    QUERY_TIMEOUT = "QUERY_TIMEOUT"
    QUERY_FAILED = "QUERY_FAILED"
    CONNECTION_FAILED = "CONNECTION_FAILED"
    SPACE_NOT_FOUND = "SPACE_NOT_FOUND"
    SCHEMA_DISCLOSURE_LIMIT = "SCHEMA_DISCLOSURE_LIMIT"
    SCHEMA_DISCLOSURE_FAILED = "SCHEMA_DISCLOSURE_FAILED"


class Kind(StrEnum):
    """What is wrong with a text that is no query: its characters, the order of its words, a parameter, or what it says."""

    LEXICAL = "LEXICAL"
    SYNTAX = "SYNTAX"
    PARAMETER = "PARAMETER"
    SEMANTIC = "SEMANTIC"


def answer(refusal: Refusal) -> str:
    """Return a refusal as agents read it."""
    return f"Error: {refusal.code}: {refusal}"


def invalid_argument(message: str) -> Refusal:
    """Return the refusal of an argument or of a value in a query."""
    return Refusal(Code.INVALID_ARGUMENT, message)


def not_allowed(message: str) -> Refusal:
    """Return the refusal of a query that asks for what is not exposed."""
    return Refusal(Code.QUERY_NOT_ALLOWED, message)


def invalid_query(kind: Kind, message: str, text: str, at: int) -> Refusal:
    """Return the refusal of a text that is no query because of what is at this offset."""
    line, column = _place(text, at)
    return Refusal(Code.INVALID_QUERY, f"{kind}: {message} at {_spelt(line, column)}", kind, line, column)


def unsupported(construct: str, text: str, at: int) -> Refusal:
    """Return the refusal of a text that is a query in Cypher but not in this language."""
    line, column = _place(text, at)
    message = f"Only a single linear MATCH query is supported by this tool ({construct} at {_spelt(line, column)})"
    return Refusal(Code.UNSUPPORTED_QUERY, message, "", line, column)


def _place(text: str, at: int) -> tuple[int, int]:
    """Return the line and column of an offset, both from 1."""
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)


def _spelt(line: int, column: int) -> str:
    return f"column {column}" if line == 1 else f"line {line}, column {column}"
