"""What a name means where it stands, in its file and in others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from pipeline.codegraph.linker.asked import FOUND, MEMBER, NAME, SHAPE, STAR
from pipeline.codegraph.linker.bindings import EXPORT
from pipeline.codegraph.linker.scopes import Module, Unit
from pipeline.codegraph.linker.session import Frame, Session
from pipeline.codegraph.linker.values import (
    AMBIGUOUS,
    EMPTY,
    Builtin,
    Ext,
    Func,
    Given,
    Klass,
    Later,
    Literal,
    Mod,
    Ref,
    Unknown,
    Value,
    Values,
    join,
    union,
)
from pipeline.codegraph.links import External, Found, Missing, Place
from pipeline.codegraph.summary import Block, Expression, From

_STARS = 50  # files through which a name is followed that each takes everything of the next
UNKNOWN_NAME: Values = (Unknown("unknown_name"),)
_OF_MODULES = frozenset({"__name__", "__file__", "__doc__", "__package__", "__path__", "__spec__", "__version__"})


class Names(Session, ABC):
    """Looks names up. The layers above add members of classes, calls, expressions and statements."""

    @abstractmethod
    def evaluate(self, expression: Expression, frame: Frame) -> Values:
        """Return what an expression may be, without anything that waits."""

    @abstractmethod
    def run(self, block: Block, frame: Frame) -> None:
        """Carry statements out in a frame."""

    @abstractmethod
    def invoke(self, func: Func, given: Given, frame: Frame | None = None) -> Values:
        """Return what a call of a function gives."""

    # --- things that wait --------------------------------------------------------------------------------------------

    def settle(self, values: Values) -> Values:
        """Return the values with what waited put in place."""
        for value in values:
            if type(value) is Ref or type(value) is Later:
                break
        else:
            return values
        found: Values = ()
        for value in values:
            found = join(found, self._settled(value))
        return found

    def _settled(self, value: Value) -> Values:
        if isinstance(value, Ref):
            return self.once(value, lambda: self.settle(self.refer(value.found, value.name, value.importer)), EMPTY)
        if isinstance(value, Later):
            return self.once(value, lambda: self.settle(self.invoke(value.func, value.given)), EMPTY)
        return (value,)

    # --- names in their scopes ---------------------------------------------------------------------------------------

    def lookup(self, name: str, frame: Frame) -> Values:
        """Return what a name means in a frame; what it means elsewhere may wait."""
        scope: Frame | None = frame
        while scope is not None:
            unit = scope.unit
            if scope is frame or unit.kind != "class":
                if unit.kind == "class":
                    self.files.ask(unit.module, MEMBER, unit.qualname, name)
                where = unit.outside.get(name)
                if where:
                    break
                if name in scope.env or (where is None and name in unit.bound):
                    values = self._local(name, scope)
                    if values is not None:
                        return values
            scope = scope.outer
        return self.global_name(frame.unit.module, name)

    def _local(self, name: str, scope: Frame) -> Values | None:
        """Return what a scope's own name means; None where the search goes on outside."""
        values = self.look(scope, name) if scope.open else scope.env.get(name)
        if values is not None:
            return values
        if scope.view and scope.unit.kind == "class" and scope.klass is not None:
            return self.own_member(scope.klass, name)
        return UNKNOWN_NAME if scope.unit.kind == "function" else None

    @abstractmethod
    def own_member(self, klass: Klass, name: str) -> Values | None:
        """Return what a class's own statements bind a name to, or None if they do not."""

    def global_name(self, module: Module, name: str) -> Values:
        """Return what a name means at the end of a file, or in the language."""
        if self.own is not None and self.is_own(module):
            shared = self.own.open or name in self.own.unit.shared
            values: Values | None = self.look(self.own, name) if shared else self.own.env.get(name)
            if values is None and not module.by_name:  # may be used before its statement has run
                values = self.module_name(module, name)
        else:
            values = self.module_name(module, name)
        if values is None:
            values = self._around(module, name)
        if values is None:
            values = self.starred(module, name, ())
        if values is not None:
            return values
        if name in self.rules.builtins:
            return (Builtin(name),)
        if name in _OF_MODULES:
            return (Literal("str"),)
        return self._external_star(module, name)

    def _around(self, module: Module, name: str) -> Values | None:
        around = self.rules.around(module.path, self.files)
        others = [other for other in self.modules(around) if other is not module] if around is not None else []
        return self.one_of(self.module_name(other, name) for other in others)

    def one_of(self, found: Iterable[Values | None]) -> Values | None:
        """Return the first that is there; where files are built apart from each other the only one."""
        there = (values for values in found if values is not None)
        first = next(there, None)
        if first is None or not self.rules.built_apart:
            return first
        return first if next(there, None) is None else AMBIGUOUS

    def _external_star(self, module: Module, name: str) -> Values:
        """Return the name of the only module outside whose names are all here, if there is one."""
        found = [self.find_module(star.module, star.level, module.path) for star in self.stars(module)]
        others = [each.name for each in found if isinstance(each, External)]
        if len(others) == 1:
            return (Ext(f"{others[0]}.{name}"),)
        return AMBIGUOUS if others else UNKNOWN_NAME

    # --- names of other files ----------------------------------------------------------------------------------------

    def module_name(self, module: Module, name: str) -> Values | None:
        """Return what a file's own statements bind a name to in the end, or None if they do not."""
        self.files.ask(module, NAME, name.removeprefix(EXPORT))
        if not module.root.has(name):
            return None
        return self.once(("name", module.root, name), lambda: self._end_of(module, name), EMPTY)

    def _end_of(self, module: Module, name: str) -> Values:
        frame = Frame(module.root)
        frame.wanted = module.root.wanted(name)
        self.run(module.summary.body, frame)
        return frame.env.get(name, ())

    def stars(self, module: Module) -> tuple[From, ...]:
        """Return what a file takes of others with a star, in order."""
        self.files.ask(module, SHAPE)
        return module.root.stars

    def is_closed(self, module: Module) -> bool:
        """Whether a file offers only what it exports."""
        self.files.ask(module, SHAPE)
        return module.root.closed

    def starred(self, module: Module, name: str, seen: tuple[str, ...]) -> Values | None:
        """Return what a name means among those that a file imports with a star, the last ones first."""
        if module.path in seen or len(seen) > _STARS:
            return None
        for star in reversed(self.stars(module)):
            found = self.find_module(star.module, star.level, module.path)
            if isinstance(found, Place):
                values = self._offered(found, name, (*seen, module.path))
                if values is not None:
                    return values
        return None

    def _offered(self, place: Place, name: str, seen: tuple[str, ...]) -> Values | None:
        """Return what a star takes under a name."""
        for module in self.modules(place):
            self.files.ask(module, STAR)
            self.files.ask(module, STAR, name)
            exports = module.summary.exports
            if name not in exports if exports is not None else name.startswith("_"):
                continue
            values = self._exported(module, name) if self.is_closed(module) else self.module_name(module, name)
            if values is None:
                values = self.starred(module, name, seen)
            if values is None and exports is not None:
                values = self._below(place, name, module.path)
            if values is not None:
                return values
        return None

    def _exported(self, module: Module, name: str) -> Values | None:
        return None if name in ("default", "=") else self.module_name(module, EXPORT + name)

    def member(self, place: Place, name: str) -> Values | None:
        """Return what a module offers under a name, or None."""
        return self.one_of(self._member_of(module, name) for module in self.modules(place))

    def _member_of(self, module: Module, name: str) -> Values | None:
        values = self.module_name(module, EXPORT + name)
        if values is None and self.is_closed(module):
            values = self._of_default(module, name)
        elif values is None:
            values = self.module_name(module, name)
        return self.starred(module, name, ()) if values is None and name != "default" else values

    def _of_default(self, module: Module, name: str) -> Values | None:
        """Return what a file that offers one value as itself (`=`) has under a name."""
        whole = self.module_name(module, f"{EXPORT}=")
        if whole is None or name in ("default", "="):
            return whole
        return union([self.attribute(value, name) for value in self.settle(whole)])

    @abstractmethod
    def attribute(self, value: Value, name: str, frame: Frame | None = None) -> Values:
        """Return what an attribute of a value may be."""

    def refer(self, found: Found, name: str, importer: str) -> Values:
        """Return what `from found import name` binds."""
        if isinstance(found, External):
            return (Ext(f"{found.name}.{name}" if found.name else name),)
        if isinstance(found, Missing):
            return (Unknown("missing_module"),)
        values = self.member(found, name)
        if values is None:
            values = self._below(found, name, importer)
        return (Unknown("unknown_attribute"),) if values is None else values

    def _below(self, place: Place, name: str, importer: str) -> Values | None:
        found = self.rules.below(place, name, importer, self.files)
        return module_value(found) if found is not None else None

    def offers(self, place: Place, name: str, seen: frozenset[str] = frozenset()) -> bool:
        """Whether a module itself binds a name, as far as its text tells."""
        for module in self.modules(place):
            self.files.ask(module, NAME, name)
            if module.root.has(name) or module.root.has(EXPORT + name):
                return True
            for star in self.stars(module) if module.path not in seen and len(seen) < _STARS else ():
                found = self.find_module(star.module, star.level, module.path)
                if isinstance(found, Place) and self.offers(found, name, seen | {module.path}):
                    return True
        return False

    def unit_of(self, identity: str) -> Unit | None:
        """Return the class or function of an id."""
        path, _, qualname = identity.partition("::")
        module = self.module(path) if qualname else None
        return self.found(module, qualname) if module is not None else None

    def found(self, module: Module, qualname: str) -> Unit | None:
        """Return the first class or function of this qualified name in a file."""
        self.files.ask(module, FOUND, qualname)
        return module.find(qualname)


def module_value(found: Found) -> Values:
    """Return the value of a module that was found."""
    if isinstance(found, Place):
        return (Mod(found),)
    return (Ext(found.name),) if isinstance(found, External) else (Unknown("missing_module"),)
