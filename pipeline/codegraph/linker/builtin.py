"""What the language's own functions give, where that leads to something of the corpus."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from pipeline.codegraph.linker.calls import Calls, sequence_of
from pipeline.codegraph.linker.session import Frame
from pipeline.codegraph.linker.values import (
    NO_GIVEN,
    NOTHING,
    UNKNOWN,
    Box,
    Builtin,
    Func,
    Given,
    Inst,
    Klass,
    Literal,
    Super,
    Unknown,
    Value,
    Values,
    box,
    join,
    union,
)

_DYNAMIC: Values = (Unknown("dynamic"),)
_RUN_TEXT = frozenset({"eval", "exec", "compile", "__import__", "globals", "locals", "vars"})
_LIKE_LISTS = frozenset({"list", "tuple", "set", "frozenset", "sorted", "reversed", "iter", "aiter"})
_TAKE_KEY = frozenset({"sorted", "min", "max", "list.sort"})
_LITERALS = {
    "str": "str",
    "repr": "str",
    "len": "int",
    "int": "int",
    "isinstance": "bool",
    "callable": "bool",
    "bool": "bool",
}
_BOXES = frozenset({"list", "tuple", "dict", "generator", "set"})


class BuiltinCalls(Calls):
    """Knows what the language's own functions give."""

    def call_builtin(self, value: Builtin, given: Given, frame: Frame) -> Values:
        """See `Calls`."""
        name = value.name
        if name in _RUN_TEXT:
            return _DYNAMIC
        if name in _TAKE_KEY:
            self._keyed(given, frame)
        if value.receiver is not None:
            handler = _METHODS.get(name.rpartition(".")[2])
            return handler(self, value.receiver, given, frame) if handler is not None else UNKNOWN
        if name in _LIKE_LISTS:
            kind = "tuple" if name == "tuple" else "list"
            items = sequence_of(self.settle(given.positional[0])) if given.positional else []
            if items is not None and name != "reversed":
                return box(kind, enumerate(items), site=frame.site)
            return box(kind, others=self.elements(given.positional[0], frame), site=frame.site)
        if name in _LITERALS:
            return (Literal(_LITERALS[name]),)
        function = _FUNCTIONS.get(name)
        return function(self, given, frame) if function is not None else UNKNOWN

    @abstractmethod
    def item(self, of: Box, keys: Values) -> Values:
        """Return what a container holds under one of the keys."""

    def _keyed(self, given: Given, frame: Frame) -> None:
        for name, values in given.named:
            if name == "key":
                self.apply(values, Given((self.elements(_first(given), frame) or UNKNOWN,)), frame)

    def apply(self, values: Values, given: Given, frame: Frame) -> Values:
        """Call each of the values on behalf of the frame, and return what they give."""
        found: Values = ()
        for value in self.settle(values):
            if frame.record is not None:
                frame.record.call(frame, value, given)
            found = join(found, self.call(value, given, frame))
        return found

    def elements(self, values: Values, frame: Frame) -> Values:
        """See `Calls`."""
        found: Values = ()
        for value in self.settle(values):
            if isinstance(value, Box):
                found = join(found, _keys(value) if value.kind == "dict" else value.all())
            elif isinstance(value, Inst):
                found = join(found, self._iterated(value, frame))
            elif isinstance(value, Literal) and value.type == "str":
                found = join(found, (Literal("str"),))
            else:
                found = join(found, UNKNOWN)
        return found

    def _iterated(self, value: Inst, frame: Frame) -> Values:
        """Return what the protocol of iteration gives: `__next__` of what `__iter__` gives."""
        begin = self.method(value.klass, "__iter__") or self.method(value.klass, "__aiter__")
        if not begin:
            return self.apply(self.method(value.klass, "__getitem__"), NO_GIVEN, frame) or UNKNOWN
        found: Values = ()
        for iterator in self.settle(self.apply(begin, NO_GIVEN, frame)):
            if isinstance(iterator, Inst):
                step = self.method(iterator.klass, "__next__") or self.method(iterator.klass, "__anext__")
                found = join(found, self.apply(step, NO_GIVEN, frame))
            elif isinstance(iterator, Box):
                found = join(found, self.elements((iterator,), frame))
        return found or UNKNOWN


def _first(given: Given) -> Values:
    return given.positional[0] if given.positional else ()


def _keys(value: Box) -> Values:
    keys: Values = tuple([Literal(type(key).__name__, key) for key, _ in value.items])
    return union([keys, UNKNOWN if value.others or not keys else ()])


# --- functions -------------------------------------------------------------------------------------------------------


def _super(self: BuiltinCalls, given: Given, frame: Frame) -> Values:
    if len(given.positional) >= 2:
        klasses, receivers = self.settle(given.positional[0]), self.settle(given.positional[1])
    else:
        scope: Frame | None = frame
        while scope is not None and not (scope.klass is not None and scope.this and scope.unit.kind == "function"):
            scope = scope.outer
        if scope is None or scope.klass is None:
            return UNKNOWN
        klasses, receivers = (scope.klass,), scope.this
    found: list[Value] = []
    for klass in klasses:
        for receiver in receivers:
            found += [Super(klass, receiver)] if isinstance(klass, Klass) and isinstance(receiver, Inst | Klass) else []
    return tuple(found) or UNKNOWN


def _getattr(self: BuiltinCalls, given: Given, frame: Frame) -> Values:
    names = self.settle(given.positional[1]) if len(given.positional) >= 2 else ()
    keys = [value.value for value in names if isinstance(value, Literal) and isinstance(value.value, str)]
    if not keys or len(keys) != len(names):
        return _DYNAMIC
    found = union([self.attribute(value, key, frame) for value in self.settle(_first(given)) for key in keys])
    return union([found, *given.positional[2:3]])


def _type(self: BuiltinCalls, given: Given, frame: Frame) -> Values:
    values = self.settle(_first(given))
    return tuple([value.klass if isinstance(value, Inst) else Unknown() for value in values])


def _enumerate(self: BuiltinCalls, given: Given, frame: Frame) -> Values:
    pair = box("tuple", enumerate([(Literal("int"),), self.elements(_first(given), frame)]))
    return box("list", others=pair)


def _zip(self: BuiltinCalls, given: Given, frame: Frame) -> Values:
    row = box("tuple", enumerate([self.elements(values, frame) for values in given.positional]))
    return box("list", others=row)


def _map(self: BuiltinCalls, given: Given, frame: Frame) -> Values:
    each = Given(tuple([self.elements(values, frame) for values in given.positional[1:]]))
    return box("generator", others=self.apply(_first(given), each, frame))


def _filter(self: BuiltinCalls, given: Given, frame: Frame) -> Values:
    values = self.elements(given.positional[1], frame) if len(given.positional) > 1 else UNKNOWN
    self.apply(tuple([each for each in self.settle(_first(given)) if isinstance(each, Func)]), Given((values,)), frame)
    return box("generator", others=values)


def _next(self: BuiltinCalls, given: Given, frame: Frame) -> Values:
    found: Values = union(given.positional[1:2])
    for value in self.settle(_first(given)):
        if isinstance(value, Box):
            found = join(found, value.all())
        elif isinstance(value, Inst):
            found = join(found, self.apply(self.method(value.klass, "__next__"), NO_GIVEN, frame))
    return found or UNKNOWN


def _dict(self: BuiltinCalls, given: Given, frame: Frame) -> Values:
    items: dict[str | int, Values] = {}
    others: Values = ()
    for value in self.settle(_first(given)):
        if isinstance(value, Box) and value.kind == "dict":
            items.update(value.items)
            others = join(others, value.others)
        else:
            others = join(others, UNKNOWN)
    for name, values in given.named:
        if name == "**":
            others = join(others, UNKNOWN)
        else:
            items[name] = values
    return box("dict", items.items(), others, frame.site)


def _same(self: BuiltinCalls, given: Given, frame: Frame) -> Values:
    return _first(given) or UNKNOWN


def _nothing(self: BuiltinCalls, given: Given, frame: Frame) -> Values:
    return NOTHING


def _object(self: BuiltinCalls, given: Given, frame: Frame) -> Values:
    return (Literal("object"),)


_FUNCTIONS: dict[str, Callable[[BuiltinCalls, Given, Frame], Values]] = {
    "super": _super, "getattr": _getattr, "type": _type, "enumerate": _enumerate, "zip": _zip, "map": _map,
    "filter": _filter, "next": _next, "anext": _next, "dict": _dict, "staticmethod": _same, "classmethod": _same,
    "print": _nothing, "setattr": _nothing, "object": _object, "max": _same, "min": _same,
}  # fmt: skip


# --- methods of containers -------------------------------------------------------------------------------------------


def _append(self: BuiltinCalls, of: Box, given: Given, frame: Frame) -> Values:
    values = given.positional[-1] if given.positional else ()
    counted = not of.others and len(of.items) < 16 and of.kind == "list" and len(given.positional) == 1
    if counted:
        self.change(frame, of, box(of.kind, (*of.items, (len(of.items), values)), (), of.site))
    else:
        self.change(frame, of, box(of.kind, of.items, join(of.others, values), of.site))
    return NOTHING


def _extend(self: BuiltinCalls, of: Box, given: Given, frame: Frame) -> Values:
    if of.kind == "dict":
        return _update(self, of, given, frame)
    items = sequence_of(self.settle(_first(given)))
    if items is not None and not of.others and len(of.items) + len(items) <= 16:
        count = len(of.items)
        new = (*of.items, *[(count + place, values) for place, values in enumerate(items)])
        self.change(frame, of, box(of.kind, new, (), of.site))
    else:
        others = join(of.others, self.elements(_first(given), frame))
        self.change(frame, of, box(of.kind, of.items, others, of.site))
    return NOTHING


def _update(self: BuiltinCalls, of: Box, given: Given, frame: Frame) -> Values:
    for value in _dict(self, given, frame) if given.positional or given.named else ():
        if isinstance(value, Box):
            items = dict(of.items) | dict(value.items)
            self.change(frame, of, box(of.kind, items.items(), join(of.others, value.others), of.site))
    return NOTHING


def _get(self: BuiltinCalls, of: Box, given: Given, frame: Frame) -> Values:
    keys = self.settle(_first(given))
    if of.kind != "dict":
        return of.all() or UNKNOWN
    return union([self.item(of, keys), *given.positional[1:2]]) or UNKNOWN


def _setdefault(self: BuiltinCalls, of: Box, given: Given, frame: Frame) -> Values:
    values = union(given.positional[1:2])
    self.change(frame, of, box(of.kind, of.items, join(of.others, values), of.site))
    return union([self.item(of, self.settle(_first(given))), values]) or UNKNOWN


def _items(self: BuiltinCalls, of: Box, given: Given, frame: Frame) -> Values:
    pairs = [box("tuple", ((0, (Literal(type(key).__name__, key),)), (1, values))) for key, values in of.items]
    if len(pairs) > 8 or of.others:
        return box("list", others=box("tuple", ((0, UNKNOWN), (1, of.all()))))
    return box("list", enumerate(pairs))


def _values(self: BuiltinCalls, of: Box, given: Given, frame: Frame) -> Values:
    return box("list", enumerate([values for _, values in of.items]), of.others)


def _keys_of(self: BuiltinCalls, of: Box, given: Given, frame: Frame) -> Values:
    return box("list", others=_keys(of))


def _itself(self: BuiltinCalls, of: Box, given: Given, frame: Frame) -> Values:
    return (of,)


_METHODS: dict[str, Callable[[BuiltinCalls, Box, Given, Frame], Values]] = {
    "append": _append, "add": _append, "appendleft": _append, "insert": _append, "extend": _extend, "update": _update,
    "get": _get, "pop": _get, "popleft": _get, "setdefault": _setdefault, "items": _items, "values": _values,
    "keys": _keys_of, "copy": _itself, "__iter__": _itself, "__enter__": _itself,
}  # fmt: skip
