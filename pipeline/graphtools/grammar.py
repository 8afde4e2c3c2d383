"""From a text to its parse tree: the grammar (`grammar.lark`), and what is said of a text that does not follow it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Protocol, cast

from pipeline.errors import Refusal
from pipeline.graphtools.refusal import Kind, invalid_query, unsupported

if TYPE_CHECKING:
    from lark import Token, Tree
    from lark.lexer import TerminalDef

MOST_CHARACTERS = 16_384
"""Of a text."""

MOST_TOKENS = 500
"""Words, names, values and symbols of a text: what bounds the time, at some 10 µs each."""

MOST_JOINTS = 100
"""AND, OR and NOT in a text: how deep conditions may nest."""

MOST_NAME = 100
"""Characters of a name, as in schemas; back-ticks not counted."""

UNSUPPORTED = frozenset(
    {
        "UNION",
        "OPTIONAL",
        "HAVING",
        "CALL",
        "WITH",
        "UNWIND",
        "CREATE",
        "MERGE",
        "DELETE",
        "DETACH",
        "SET",
        "REMOVE",
        "FOREACH",
        "LOAD",
        "DROP",
        "USE",
        "YIELD",
    }
)
"""Words of Cypher that begin what this language lacks. They are no keywords: wherever a name can stand, they are names."""

SUBQUERIES = frozenset({"CALL", "COLLECT", "COUNT", "EXISTS"})
"""Words before the brace of a subquery."""

_JOINTS = frozenset({"_AND", "_OR", "NOT"})
_GRAMMAR = (files("pipeline.graphtools") / "grammar.lark").read_text("utf-8")
_NO_TEXT = re.compile("[\0\ud800-\udfff]")

_AFTER = {
    "_AS": "expected projection alias",
    "_DASH": "expected '[' after '-'",
    "_LEFT": "expected '[' after '<-'",
    "STAR": "expected integer minimum hop",
    "_RANGE": "expected integer maximum hop",
    "_SKIP": "expected integer after SKIP",
    "_LIMIT": "expected integer after LIMIT",
    "_PARAMETER": "expected parameter name",
}
"""What is said of a token that must not follow this one, where only a name, an integer or a bracket may."""

_NAMES = frozenset({"WORD", "QUOTED"})
_SINGLE = _NAMES | {"INTEGER", "_BRACKET"}

_INSTEAD = {
    "$END": "unexpected token after query",
    "_RETURN": "expected RETURN clause",
    "PATH": "expected projection alias",
    "COMPARISON": "expected comparison operator",
}
"""What is said where this token, among others, could stand."""

_SPELT = {
    **dict.fromkeys(_NAMES, "a name"),
    **dict.fromkeys(("STRING", "NUMBER", "TRUE", "FALSE", "NULL", "_PARAMETER"), "a value"),
    "INTEGER": "an integer",
}
"""What tokens are called; others are called what they are."""


class _Parser(Protocol):
    """An interactive parser of lark, in as far as it is used and with its types."""

    def iter_parse(self) -> Iterator[Token]: ...
    def feed_eof(self, last_token: Token | None = None) -> Tree[Token]: ...
    def accepts(self) -> Set[str]: ...


class _Grammar(Protocol):
    """A parser of lark, likewise."""

    def parse_interactive(self, text: str) -> _Parser: ...
    def get_terminal(self, name: str) -> TerminalDef: ...


def read(text: str) -> Tree[Token]:
    """Return the parse tree of a text.

    Raises:
        Refusal: it is no query, or one that this language cannot say, or too large.
    """
    from lark.exceptions import UnexpectedCharacters, UnexpectedToken

    _check_characters(text)
    parser = grammar().parse_interactive(text)
    tokens: list[Token] = []
    joints = 0
    try:
        # A token comes out before the parser takes it.
        for token in parser.iter_parse():
            tokens.append(token)
            joints += token.type in _JOINTS
            if message := _too_large(token, len(tokens), joints):
                raise invalid_query(Kind.SYNTAX, message, text, token.start_pos or 0)
        return parser.feed_eof()
    except UnexpectedCharacters as error:
        at = cast("int", error.pos_in_stream)
        raise invalid_query(Kind.LEXICAL, _lexical(text, at), text, at) from None
    except UnexpectedToken as error:
        found = cast("Token", error.token)
        before = [token for token in tokens[-2:] if token is not found]
        raise _unexpected(text, before[-1] if before else None, found, parser.accepts()) from None


@cache
def grammar() -> _Grammar:
    """Return the parser. Making it takes some 100 ms, once; whoever answers questions does it beforehand, in a thread."""
    from lark import Lark  # here, since most processes never read a query and should start fast

    made = Lark(_GRAMMAR, start="query", parser="lalr", maybe_placeholders=True, propagate_positions=True)
    return cast("_Grammar", made)


def _check_characters(text: str) -> None:
    if not text.strip():
        raise invalid_query(Kind.SYNTAX, "graph query must not be blank", text, 0)
    if len(text) > MOST_CHARACTERS:
        message = f"a query has at most {MOST_CHARACTERS} characters"
        raise invalid_query(Kind.SYNTAX, message, text, MOST_CHARACTERS)
    if found := _NO_TEXT.search(text):
        raise invalid_query(Kind.LEXICAL, f"unexpected character {found[0]!a}", text, found.start())


def _too_large(token: Token, tokens: int, joints: int) -> str:
    """Return what there is too much of in a text up to a token, if anything."""
    if tokens > MOST_TOKENS:
        return f"a query has at most {MOST_TOKENS} words and symbols; long lists go into a parameter"
    if joints > MOST_JOINTS:
        return f"a query has at most {MOST_JOINTS} of AND, OR and NOT"
    if len(token) > MOST_NAME and token.type in _NAMES and len(token.strip("`")) > MOST_NAME:
        return f"a name has at most {MOST_NAME} characters"
    return ""


def _lexical(text: str, at: int) -> str:
    """Return what is wrong with a character that begins no token."""
    match text[at]:
        case "'" | '"':
            return "unterminated string literal"
        case "`" if "`" in text[at + 1 :]:
            return "quoted identifier must match [A-Za-z_][A-Za-z0-9_]*"
        case "`":
            return "unterminated quoted identifier"
        case "!":
            return "unexpected '!'"
        case other:
            return f"unexpected character '{other}'" if other.isprintable() else f"unexpected character {other!a}"


def _unexpected(text: str, before: Token | None, token: Token, accepted: Set[str]) -> Refusal:
    """Return what is wrong with a token that must not stand where it does."""
    ended = token.type == "$END"
    at = len(text) if ended else token.start_pos or 0
    if token.type == "_BRACE" and before is not None and before.upper() in SUBQUERIES:
        return unsupported(f"subquery {before.upper()}", text, before.start_pos or 0)
    if token.upper() in UNSUPPORTED:  # a name in back-ticks or a string has its quotes
        return unsupported(token.upper(), text, at)
    return invalid_query(Kind.SYNTAX, _expected(before, accepted), text, at)


def _expected(before: Token | None, accepted: Set[str]) -> str:
    if before is not None and before.type in _AFTER and accepted <= _SINGLE:
        return _AFTER[before.type]
    for name, message in _INSTEAD.items():
        if name in accepted:
            return message
    terminals = {name: _spelt(name) for name in sorted(accepted)}
    *others, last = dict.fromkeys(terminals.values())
    return f"expected {', '.join(others)} or {last}" if others else f"expected {last}"


def _spelt(name: str) -> str:
    pattern = grammar().get_terminal(name).pattern
    return _SPELT.get(name) or (repr(pattern.value) if pattern.type == "str" else name.strip("_"))
