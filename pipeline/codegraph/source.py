"""A source file on its way to a summary: what all frontends need of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from pipeline.codegraph.summary import (
    MAX_NESTING,
    Attribute,
    Block,
    Choice,
    Constant,
    Expression,
    First,
    Index,
    Name,
    Opaque,
    Summary,
    Super,
    Symbol,
    This,
)
from pipeline.codegraph.summary import Sequence as Items

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

UNKNOWN = Opaque()
EXTRAS = frozenset({"comment", "line_comment", "block_comment", "line_continuation"})
"""Nodes that may stand anywhere and say nothing, in one grammar or another."""

LONGEST_LINE = 200
"""Characters of a signature, a documentation line or a decorator."""


class Source:
    """The bytes, the tree and what was found so far. Positions in the tree are of bytes, in symbols of characters."""

    def __init__(self, language: str, text: str, parser: Parser) -> None:
        self.language = language
        self.data = text.encode("utf-8", "replace")  # a lone surrogate is one character before and after
        self.parser = parser
        self.root = parser.parse(self.data).root_node
        self.counts: Counter[str] = Counter()
        self.depth = 0
        self._ascii = len(self.data) == len(text)
        self._symbols: dict[str, tuple[Symbol, int, int]] = {}
        self._lambdas: Counter[str] = Counter()

    def text(self, node: Node) -> str:
        """Return the node's text."""
        return self.data[node.start_byte : node.end_byte].decode("utf-8", "replace")

    def line(self, node: Node, most: int = LONGEST_LINE) -> str:
        """Return the first line of the node's text, shortened."""
        return self._line(node.start_byte, node.end_byte, most)

    def _line(self, start: int, end: int, most: int = LONGEST_LINE) -> str:
        return self.data[start : min(end, start + 4 * most)].decode("utf-8", "ignore").split("\n", 1)[0][:most].strip()

    def enter(self, levels: int = 1) -> bool:
        """Go down, by several levels at once for what is several levels of the summary, or of calls in the frontend.

        False, and counted, where that would be too deep. A True is ended by `depth -= levels`.
        """
        if self.depth + levels > MAX_NESTING:
            self.counts["nested_too_deeply"] += 1
            return False
        self.depth += levels
        return True

    def anonymous(self, scope: str) -> str:
        """Return the qualified name of the next anonymous function of a scope."""
        self._lambdas[scope] += 1
        return joined(scope, f"<lambda{self._lambdas[scope]}>")

    def define(
        self, kind: str, name: str, scope: str, node: Node, whole: Node, doc: str = "", decorators: Iterable[str] = (),
        since: Node | None = None,
    ) -> str:  # fmt: skip
        """Note a definition, unless its qualified name has one, and return that name.

        `whole` is the node with decorators; `since` the first of those that stand before it, beside it in the tree.
        """
        qualname = joined(scope, name)
        if name and qualname not in self._symbols:
            symbol = Symbol(
                qualname, name, kind, scope, 0, 0, (since or whole).start_point[0] + 1, whole.end_point[0] + 1,
                self._line(node.start_byte, whole.end_byte), doc[:LONGEST_LINE], tuple(decorators),
            )  # fmt: skip
            self._symbols[qualname] = (symbol, (since or whole).start_byte, whole.end_byte)
        return qualname

    def summary(self, body: Block, package: str = "", exports: Sequence[str] | None = None, doc: str = "") -> Summary:
        """Return the file's summary with the symbols in the order of their starts."""
        if self.root.has_error:
            self.counts["syntax_error"] = self.counts["syntax_error"] or 1
        return Summary(
            self.language, self._in_characters(), body, package, None if exports is None else tuple(exports),
            dict(sorted(self.counts.items())), doc[:LONGEST_LINE],
        )  # fmt: skip

    def _in_characters(self) -> tuple[Symbol, ...]:
        found = sorted(self._symbols.values(), key=lambda each: (each[1], -each[2]))
        places = sorted({place for _, start, end in found for place in (start, end)})
        characters: dict[int, int] = {}
        before = count = 0
        for place in places:
            count += place - before if self._ascii else len(self.data[before:place].decode("utf-8", "replace"))
            characters[place], before = count, place
        return tuple(
            msgspec.structs.replace(
                symbol, parent=self._enclosing(symbol.parent), start=characters[start], end=characters[end]
            )
            for symbol, start, end in found
        )

    def _enclosing(self, scope: str) -> str:
        """Return the nearest definition that is a symbol: the scope may be an anonymous function or an object's key."""
        while scope and scope not in self._symbols:
            scope = scope.rpartition(".")[0]
        return scope


def first(node: Node) -> Node | None:
    """Return the first child that is no token and none of EXTRAS."""
    return next((child for child in node.children if child.is_named and child.type not in EXTRAS), None)


def named(node: Node) -> list[Node]:
    """Return the children that are no tokens and none of EXTRAS."""
    return [child for child in node.children if child.is_named and child.type not in EXTRAS]


def joined(scope: str, name: str) -> str:
    """Return a qualified name."""
    return f"{scope}.{name}" if scope else name


def first_line(text: str) -> str:
    """Return the first line of a text that says something."""
    return next((line.strip() for line in text.split("\n") if line.strip()), "")


def inert(expression: Expression) -> bool:
    """Whether nothing in it can call, bind or define: then it need not be looked at where its value goes nowhere."""
    match expression:
        case Name() | Constant() | This() | Super():
            return True
        case Attribute(of=of):
            return inert(of)
        case Index(of=of, key=key):
            return inert(of) and inert(key)
        case Items(items=items) | Opaque(parts=items) | First(options=items):
            return all(map(inert, items))
        case _:
            return False


def opaque(parts: Iterable[Expression]) -> Opaque:
    """Return an unknown value with those parts that must be looked at."""
    found: list[Expression] = []
    for part in parts:
        if isinstance(part, Opaque):
            found += part.parts
        elif not inert(part):
            found.append(part)
    return Opaque(tuple(found)) if found else UNKNOWN


def beside(value: Expression, parts: Iterable[Expression]) -> Expression:
    """Return a value, with parts that are only looked at for calls."""
    looked_at = tuple(part for part in parts if not inert(part))
    return Choice((value,), looked_at) if looked_at else value
