"""Names of block scope made unique within their function, for languages where a block can hide a name (Go, Rust).

The forms know scopes of functions and classes only. A name that a block declares, or that means something else elsewhere in
the same function, gets an internal name (`x@2`) that no source can write.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Block:
    names: dict[str, str] = field(default_factory=dict[str, str])
    used: set[str] | None = None  # of a function: the internal names that already mean something in it


class Locals:
    """The blocks around the place that is being read, from the file inwards."""

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._made = 0

    def enter(self, function: bool = False) -> None:
        """Go into a block, or into a function."""
        self._blocks.append(_Block(used=set() if function else None))

    def leave(self) -> None:
        """Go out of the last block entered."""
        self._blocks.pop()

    def declare(self, name: str) -> str:
        """Return the internal name of what is declared here; on the level of the file it is the name."""
        if not self._blocks or name == "_":
            return name
        block = self._blocks[-1]
        internal = name
        if block.used is None or name in block.used:
            self._made += 1
            internal = f"{name}@{self._made}"
        block.names[name] = internal
        self._use(internal)
        return internal

    def declared(self, names: Iterable[str]) -> None:
        """Note names that a function declares as they are (its parameters)."""
        for name in names:
            self._blocks[-1].names[name] = name
            self._use(name)

    def here(self, name: str) -> str:
        """Return the internal name of what this very block declares, or nothing."""
        return self._blocks[-1].names.get(name, "") if self._blocks else ""

    def knows(self, name: str) -> bool:
        """Whether a block or function around this place declares the name."""
        return any(name in block.names for block in self._blocks)

    def look(self, name: str) -> str:
        """Return what a name is called inside, here; a free one keeps its name."""
        for block in reversed(self._blocks):
            if internal := block.names.get(name):
                name = internal
                break
        self._use(name)
        return name

    def _use(self, internal: str) -> None:
        for block in self._blocks:
            if block.used is not None:
                block.used.add(internal)
