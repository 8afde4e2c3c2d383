"""The state of linking one file: what was read, what is being found out, what was found out and on what that depends.

Nothing of it outlives the link, so a file links to the same whatever was linked before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pipeline.codegraph.files import all_of, read_of
from pipeline.codegraph.linker.asked import Key
from pipeline.codegraph.linker.scopes import Module, Unit
from pipeline.codegraph.linker.values import Box, Inst, Klass, Values, join
from pipeline.codegraph.links import Files, Found, Place, Rules
from pipeline.codegraph.summary import Summary

if TYPE_CHECKING:
    from pipeline.codegraph.linker.record import Record

T = TypeVar("T")

LEVELS = 600
"""Python frames that expressions and calls within each other may take, by our own count: so that it is the same
everywhere, and fits into the usual limit. Deeper ones are `too_deep`."""

_FRAMES = 7  # that a question takes until it comes to statements or expressions again

CALLS = 6
"""Levels of calls that are followed into their functions."""

CONTEXTS = 8
"""Calls of one function with different arguments that are told apart; all further ones are one with any arguments."""

STEPS = 150_000
"""Expressions that are looked at on the way to values, beside the file's own ones; then calls are followed no more."""


class Holder(Protocol):
    """Something whose entries may still change."""

    def get(self, key: Any, /) -> Any:
        """Return the entry as it is now."""
        ...


Trace = dict[tuple[int, Any], tuple[Holder, Any]]
"""What a result depends on: the holder and what it held, by the holder's identity and key."""


class Frame:
    """A scope that is being run, or was. `open`: what its names mean may still change.

    `this` is the object of a method, `klass` the class whose body or method it is, `record` where what its statements refer
    to is noted; without one nothing is. A `view` is not run: its names are looked up one by one.
    """

    __slots__ = (
        "dead", "env", "klass", "loops", "open", "outer", "record", "returns", "site", "stores", "this", "unit", "view", "wanted",
        "yields",
    )  # fmt: skip

    def __init__(self, unit: Unit, outer: Frame | None = None, env: dict[str, Values] | None = None) -> None:
        self.unit = unit
        self.outer = outer
        self.env: dict[str, Values] = {} if env is None else env
        self.klass: Klass | None = None
        self.this: Values = ()
        self.record: Record | None = None
        self.returns: Values = ()
        self.yields: Values = ()
        self.stores: list[tuple[str, Values, Values]] | None = None
        self.wanted: frozenset[str] | None = None
        self.dead = False
        self.open = False
        self.view = False
        self.loops = 0
        self.site = 0

    def get(self, name: str, /) -> Values | None:
        """Return what a name means now."""
        return self.env.get(name)

    def quiet(self) -> Frame:
        """Return a view of the same names that records nothing."""
        frame = Frame(self.unit, self.outer, self.env)
        frame.klass, frame.this, frame.view, frame.open = self.klass, self.this, self.view, self.open
        return frame

    def closure(self) -> Frame | None:
        """Return the frame whose names functions defined here see, if that is a call's."""
        frame: Frame | None = self
        while frame is not None and frame.unit.kind == "class":
            frame = frame.outer
        return frame if frame is not None and frame.unit.kind == "function" else None


class Noted:
    """The corpus as the link of one file sees it: every question is noted, those about the file's own scopes apart."""

    def __init__(self, path: str, files: Files, modules: Callable[[str], Module | None]) -> None:
        self._path = path
        self._files = files
        self._modules = modules
        self._reads: set[str] = set()
        self._asked: set[tuple[str, Key]] = set()

    @property
    def reads(self) -> frozenset[str]:
        """See `Linked`."""
        return frozenset(self._reads).union([read_of(place, *key) for place, key in self._asked])

    def ask(self, module: Module, *key: str) -> None:
        """Note a question about the scopes of a file."""
        if module.path != self._path:
            self._asked.add((module.place, key))

    def summary(self, path: str) -> Summary | None:
        """See `Files`."""
        module = self.module(path)
        self._reads.add(all_of(path))
        return None if module is None else module.summary

    def package(self, path: str) -> str | None:
        """See `Files`."""
        module = self.module(path)
        return None if module is None else module.summary.package

    def module(self, path: str) -> Module | None:
        """Return a file with its scopes."""
        self._reads.add(path)
        return self._modules(path)

    def exists(self, path: str) -> bool:
        """See `Files`."""
        self._reads.add(path)
        return self._files.exists(path)

    def folder(self, path: str) -> tuple[str, ...]:
        """See `Files`."""
        self._reads.add(path)
        return self._files.folder(path)

    def named(self, name: str) -> tuple[str, ...]:
        """See `Files`."""
        self._reads.add(f"*/{name}")
        return self._files.named(name)


class Session:
    """What is known so far, and how it is remembered."""

    def __init__(self, path: str, files: Noted, rules: Rules) -> None:
        self.path = path
        self.files = files
        self.rules = rules
        self.steps = STEPS
        self.level: int = 0
        self.calling: set[Unit] = set()
        self.contexts: dict[Unit, dict[Any, Any]] = {}
        self.own: Frame | None = None
        self.params: dict[Unit, dict[str, Values]] = {}
        self.frames: dict[Unit, Frame] = {}
        self.bases: dict[Klass, tuple[Values, ...]] = {}
        self.defaults: dict[tuple[Unit, Frame | None], dict[str, Values]] = {}
        self.changed: Values = ()
        self.own_sites: set[int] = set()
        self.trace: Trace = {}
        self._memo: dict[Any, tuple[Trace, Any]] = {}
        self._active: set[Any] = set()
        self._found: dict[tuple[str, int, str], Found] = {}

    # --- remembering -------------------------------------------------------------------------------------------------

    def once(self, key: Any, work: Callable[[], T], meanwhile: T) -> T:
        """Return what `work` finds out, remembered for as long as what it looked at stays the same.

        `meanwhile` is the answer to the same question within itself.
        """
        entry = self._memo.get(key)
        if entry is not None and still(entry[0]):
            self.trace.update(entry[0])
            known: T = entry[1]
            return known
        if key in self._active or self.level > LEVELS:
            return meanwhile
        outer, self.trace = self.trace, {}
        self._active.add(key)
        self.level += _FRAMES
        found = work()
        self.level -= _FRAMES
        self._active.discard(key)
        mine, self.trace = self.trace, outer
        outer.update(mine)
        self._memo[key] = mine, found
        return found

    def forget(self) -> None:
        """Forget what was found out: something that nobody watches has changed."""
        self._memo.clear()

    def look(self, holder: Holder, key: Any) -> Any:
        """Return an entry that may still change, and note that it mattered."""
        found = holder.get(key)
        self.trace[id(holder), key] = holder, found
        return found

    # --- the corpus --------------------------------------------------------------------------------------------------

    def module(self, path: str) -> Module | None:
        """Return a file with its scopes, if there is one in a language that these rules know."""
        module = self.files.module(path)
        return module if module is not None and module.language in self.rules.languages else None

    def is_own(self, module: Module) -> bool:
        """Whether this is the file that is being linked."""
        return module.path == self.path

    def find_module(self, text: str, level: int, importer: str) -> Found:
        """Return what an import of this text means."""
        key = text, level, importer
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self.rules.module(text, level, importer, self.files)
        return found

    def modules(self, place: Place) -> list[Module]:
        """Return the files of a place."""
        return [module for path in place.files if (module := self.module(path)) is not None]

    # --- what callers pass -------------------------------------------------------------------------------------------

    def passed(self, unit: Unit, parameter: str) -> Values:
        """Return what the file's calls hand to a parameter, as far as they were looked at."""
        return self.look(self.params.setdefault(unit, {}), parameter) or ()

    def hand(self, unit: Unit, parameter: str, values: Values) -> None:
        """Note what a call hands to a parameter."""
        held = self.params.setdefault(unit, {})
        held[parameter] = join(held.get(parameter, ()), values)

    def change(self, frame: Frame, old: Box, new: Values) -> None:
        """Let every name that holds a container hold what it has become."""
        self.changed = new
        if not old.site:
            return
        above: Frame | None = frame
        while above is not None:
            if _replaced(above, old.site, new):
                return
            above = above.outer
        if self.own is not None and old.site in self.own_sites:
            _replaced(self.own, old.site, new)


def _replaced(frame: Frame, site: int, new: Values) -> bool:
    names = [
        name for name, values in frame.env.items() for value in values if type(value) is Box and value.site == site
    ]
    for name in names:
        kept = tuple([value for value in frame.env[name] if type(value) is not Box or value.site != site])
        frame.env[name] = join(kept, new)
    return bool(names)


def still(trace: Trace) -> bool:
    """Whether everything that was looked at is as it was."""
    for (_, key), (holder, seen) in trace.items():
        now = holder.get(key)
        if now is not seen and now != seen:
            return False
    return True


def instance(values: Values) -> Values:
    """Return instances of the classes among the values."""
    return tuple([Inst(value) for value in values if isinstance(value, Klass)])
