"""What an expression may be: small sets of the things that calls and names lead to.

A set is a tuple without repetitions, in the order in which its members were found, so that nothing depends on hashes. An
empty one means "nothing yet" (a call of itself, a name before its first value); what cannot be known is an `Unknown`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pipeline.codegraph.links import Found, Place

if TYPE_CHECKING:
    from pipeline.codegraph.linker.scopes import Unit
    from pipeline.codegraph.linker.session import Frame

BOUND = 16
"""Members of a set; one that would get more is `ambiguous`."""

DEEPEST = 5
"""Levels of containers and of calls not yet made within each other; deeper ones are unknown."""


@dataclass(frozen=True, slots=True)
class Func:
    """A function; `frame` is the call whose local names it sees, `receiver` what it is bound to."""

    unit: Unit
    frame: Frame | None = None
    receiver: Value | None = None


@dataclass(frozen=True, slots=True)
class Klass:
    """A class, interface, struct, enum or trait."""

    unit: Unit
    frame: Frame | None = None


@dataclass(frozen=True, slots=True)
class Inst:
    """Any instance of a class."""

    klass: Klass


@dataclass(frozen=True, slots=True)
class Super:
    """What `super()` gives in a method of `klass` whose object is `receiver`."""

    klass: Klass
    receiver: Inst | Klass


@dataclass(frozen=True, slots=True)
class Mod:
    """A module of the corpus."""

    place: Place


@dataclass(frozen=True, slots=True)
class Ext:
    """Something that is not in the corpus, by its dotted name."""

    name: str


@dataclass(frozen=True, slots=True)
class Builtin:
    """Something that the language itself brings (`print`, `str.split`); `receiver` is the container it is bound to."""

    name: str
    receiver: Box | None = None


@dataclass(frozen=True, slots=True)
class Literal:
    """A value of a builtin type; `value` is None where only the type is known."""

    type: str
    value: str | int | None = None


@dataclass(frozen=True, slots=True)
class Box:
    """A container. `items` by constant key in order, `others` under unknown keys.

    `kind` is the builtin type (`list`, `tuple`, `dict`, `object`), or `generator`, or `coroutine`, whose only item is what
    awaiting it gives. `site` tells where it was made: names that hold the same container change together.
    """

    kind: str
    items: tuple[tuple[str | int, Values], ...] = ()
    others: Values = ()
    site: int = 0
    depth: int = 1

    def get(self, key: str | int) -> Values:
        """Return what is under a key, which may be nothing."""
        return next((values for held, values in self.items if held == key and type(held) is type(key)), ())

    def all(self) -> Values:
        """Return everything that is in it."""
        return union([*(values for _, values in self.items), self.others])


@dataclass(frozen=True, slots=True)
class Later:
    """What a call gives, if anybody wants to know: only calls that depend on nothing but their arguments wait."""

    func: Func
    given: Given
    depth: int


@dataclass(frozen=True, slots=True)
class Ref:
    """A name of a module that was imported and not looked up yet."""

    found: Found
    name: str
    importer: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nothing can be said; `reason` is one of `links.UNRESOLVED`."""

    reason: str = "unknown_value"


@dataclass(frozen=True, slots=True)
class Given:
    """What a call passes. `rest` are the members of what was spread by a star at an unknown place."""

    positional: tuple[Values, ...] = ()
    named: tuple[tuple[str, Values], ...] = ()
    rest: Values = ()
    spread: bool = field(default=False)


Value = Func | Klass | Inst | Super | Mod | Ext | Builtin | Literal | Box | Later | Ref | Unknown
Values = tuple[Value, ...]

EMPTY: Values = ()
UNKNOWN: Values = (Unknown(),)
AMBIGUOUS: Values = (Unknown("ambiguous"),)
TOO_DEEP: Values = (Unknown("too_deep"),)
NOTHING: Values = (Literal("None"),)
NO_GIVEN = Given()


def join(one: Values, other: Values) -> Values:
    """Return the members of both; `one` itself where the other adds nothing."""
    if one is other or not other:
        return one
    if not one:
        return other
    new = [value for value in other if value not in one and not (type(value) is Literal and Literal(value.type) in one)]
    if not new:
        return one
    if one == AMBIGUOUS or other == AMBIGUOUS:
        return AMBIGUOUS
    return _bounded((*one, *new))


def _bounded(values: Values) -> Values:
    if len(values) <= BOUND:
        return values
    merged: dict[Value, None] = {}
    for value in values:
        merged[Literal(value.type) if isinstance(value, Literal) else value] = None
    return tuple(merged) if len(merged) <= BOUND else AMBIGUOUS


def union(sets: Iterable[Values]) -> Values:
    """Return the members of all."""
    found: Values = ()
    for values in sets:
        found = join(found, values)
    return found


def known(values: Values) -> Values:
    """Return the members of which something is known."""
    return tuple([value for value in values if not isinstance(value, Unknown)])


def depth_of(values: Values) -> int:
    """Return how many levels of containers and waiting calls are in it."""
    return max((value.depth for value in values if isinstance(value, Box | Later)), default=0)


def box(kind: str, items: Iterable[tuple[str | int, Values]] = (), others: Values = (), site: int = 0) -> Values:
    """Return a new container, or an unknown value where containers are nested too deeply."""
    items = tuple(items)
    depth = 1 + max([depth_of(others), *(depth_of(values) for _, values in items)])
    if depth > DEEPEST:
        return TOO_DEEP
    return (Box(kind, items, others, site, depth),)
