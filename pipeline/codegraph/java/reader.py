"""What the parts of the Java frontend share: what a name means where it stands, types, and the walk.

Java looks a name up in the blocks and classes around it, with fields, methods and types apart. The forms have none of that, so
a field or method of a class around becomes an attribute of `this` (or of an object of the outer class), a nested class an
attribute of its outer one. A method is bound and called under its name and the number of its arguments (`size/0`), a local that
shares its name with an earlier one of the method gets a name of its own (`x@2`). No source can write `<`, `@` or `/` in names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pipeline.codegraph.java.rules import OF_LANGUAGE
from pipeline.codegraph.source import EXTRAS, Source, first, first_line, inert
from pipeline.codegraph.summary import (
    Assign,
    Attribute,
    Block,
    Choice,
    Constant,
    Evaluate,
    Expression,
    First,
    From,
    Instance,
    Name,
    Opaque,
    Sequence,
    Statement,
    This,
)

if TYPE_CHECKING:
    from tree_sitter import Node

UNKNOWN = Opaque()
ANY = Choice(())
"""The type of a parameter of types without a bound; as an expression `null`, which is of every class and adds nothing."""

MOST_PARAMETERS = 10
"""Methods with more are taken for one another where they have the same name."""


@dataclass(slots=True)
class Around:
    """A class around, or with `path` None a block or the parameters of types. `extends`: it has other supertypes than Object."""

    path: Expression | None = None
    extends: bool = False
    fields: set[str] = field(default_factory=set[str])
    methods: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    """Where the methods stand that can be called so."""
    overloads: dict[int, str] = field(default_factory=dict[int, str])
    """What they are bound as, by where they stand."""
    names: dict[str, Expression] = field(default_factory=dict[str, Expression])
    types: dict[str, Expression] = field(default_factory=dict[str, Expression])


Handler = Callable[["Reader", "Node"], Expression]
Doing = Callable[["Reader", "Node"], None]
Anonymous = Callable[["Reader", "Node", Expression, int], None]
"""Adds the class of a body that follows `new X()` to `out`."""


class Reader:
    """Turns nodes into forms. `scope` is the qualified name of the definition being read, `out` the block being made."""

    def __init__(
        self, source: Source, expressions: Mapping[str, Handler], statements: Mapping[str, Doing], anonymous: Anonymous
    ) -> None:
        self.source = source
        self.anonymous_class = anonymous
        self.expressions = expressions
        self.statements = statements
        self.scope = ""
        self.out: list[Statement] = []
        self.around: list[Around] = []
        self.imports: list[Statement] = []
        self.imported: dict[str, Expression] = {}
        """Classes and static members by their names here; the file's own classes too."""
        self.taken: dict[str, list[Expression]] = {}
        """The classes from which static members are imported by name."""
        self.statics: list[Expression] = []
        """Classes whose static members all are imported."""
        self.results: list[Name] = []
        """What the `switch` expressions around are called inside: `yield` assigns to the last."""
        self._locals: Counter[str] = Counter()
        self._hidden: Counter[str] = Counter()
        self._qualified: dict[str, Name] = {}

    # --- the walk ----------------------------------------------------------------------------------------------------

    def expression(self, node: Node | None) -> Expression:
        """Return the form of a node. A frame for this and one for the handler make a level."""
        while node is not None and node.type == "parenthesized_expression":
            node = first(node)
        if node is None:
            return UNKNOWN
        if node.type == "identifier":
            return self.variable(self.source.text(node))
        handler = self.expressions.get(node.type)
        if handler is None or not self.source.enter():
            return UNKNOWN
        form = handler(self, node)
        self.source.depth -= 1
        return form

    def each(self, nodes: Iterable[Node]) -> tuple[Expression, ...]:
        """Return the forms of the nodes that are named."""
        return tuple(map(self.expression, [node for node in nodes if node.is_named and node.type not in EXTRAS]))

    def statement(self, node: Node) -> None:
        """Add what a statement says to `out`; an expression is looked at."""
        handler = self.statements.get(node.type)
        if handler is None:
            if node.type in self.expressions:
                self.evaluate(self.expression(node))
            return
        if self.source.enter():
            handler(self, node)
            self.source.depth -= 1

    def evaluate(self, form: Expression) -> None:
        """Look at an expression whose value goes nowhere."""
        if not inert(form):
            self.out.append(Evaluate(form))

    def block(self, node: Node | None) -> Block:
        """Return the statements of a block with a scope of its own, or of a single statement."""
        if node is None:
            return ()
        self.around.append(Around())
        before, self.out = self.out, []
        for child in node.named_children if node.type in _BLOCKS else [node]:
            self.statement(child)
        made, self.out = tuple(self.out), before
        self.around.pop()
        return made

    # --- names -------------------------------------------------------------------------------------------------------

    def hidden(self, kind: str) -> Name:
        """Return a new name that the file does not have."""
        self._hidden[kind] += 1
        return Name(f"<{kind}{self._hidden[kind]}>")

    def declare(self, name: str) -> Name:
        """Note a local variable, and return what it is called inside."""
        if not name:  # the parser supposes one where it is missing
            return self.hidden("missing")
        self._locals[name] += 1
        count = self._locals[name]
        form = Name(f"{name}@{count}" if count > 1 else name)
        if self.around:
            self.around[-1].names[name] = form
        return form

    def variable(self, name: str) -> Expression:
        """Return what a name means as an expression: a local, a field of a class around, else a class."""
        found = self._local_or_field(name) if name else UNKNOWN
        if found is not None:
            return found
        if name in self.imported or _like_a_type(name) or self._nested_type(name) is not None:
            return self.type_named(name)
        heirs = self._heirs()
        return one_by_one(
            [*(Attribute(of, name) for of in heirs), *(Attribute(of, name) for of in self.statics)]
        ) or Name(name)

    def method(self, name: str, count: int) -> Expression:
        """Return the method that a call without receiver means: of the innermost class that has it, else imported."""
        key = with_arity(name, count)
        options: list[Expression] = []
        if not name:
            return UNKNOWN
        if key in _OF_OBJECTS:
            return Attribute(This(), key)
        for of, around in self._classes():
            if key in around.methods:
                return one_by_one([*options, Attribute(of, key)]) or UNKNOWN
            if around.extends:
                options.append(Attribute(of, key))
        holders = [Attribute(of, key) for of in self.taken.get(name, self.statics)]
        if holders:
            options.append(holders[0] if len(holders) == 1 else Choice(tuple(holders)))
        return one_by_one(options) or Name(name)

    def type_named(self, name: str) -> Expression:
        """Return what a name means as a type: what a class around declares or inherits, else what the file has."""
        options: list[Expression] = []
        for around in reversed(self.around):
            if (found := around.types.get(name)) is not None:
                return one_by_one([*options, found]) or found
            if around.extends and around.path is not None and name not in OF_LANGUAGE:
                options.append(Attribute(around.path, name))
        return one_by_one([*options, self.imported.get(name) or Name(name)]) or Name(name)

    def is_known(self, name: str) -> bool:
        """Whether a local, a field or a type of this name is declared around."""
        return self._local_or_field(name) is not None or self._nested_type(name) is not None or name in self.imported

    def outer(self, name: str) -> Expression:
        """Return the object `Name.this`."""
        for of, around in self._classes():
            path = around.path
            if (isinstance(path, Name) and path.name == name) or (isinstance(path, Attribute) and path.name == name):
                return of
        return Instance(self.type_named(name))

    def qualified(self, parts: list[str], line: int) -> Expression | None:
        """Return the class that a name with its package means, and what follows it; None where it is no such name."""
        top = next((index for index, part in enumerate(parts) if part[:1].isupper()), 0)
        if not top or self.is_known(parts[0]):
            return None
        module = ".".join(parts[: top + 1])
        return attributes(self._qualified.get(module) or self.class_of(module, parts[top], line), parts[top + 1 :])

    def class_of(self, module: str, name: str, line: int) -> Name:
        """Import a class under a hidden name."""
        inside = self.hidden("import")
        self._qualified[module] = inside
        self.imports.append(From(module, ((name, inside.name),), 0, line))
        return inside

    def _classes(self) -> Iterable[tuple[Expression, Around]]:
        """Yield the classes around from the inside, each with what an object of it is called here."""
        of: Expression = This()
        for around in reversed(self.around):
            if around.path is not None:
                yield (of if isinstance(of, This) else Instance(around.path)), around
                of = UNKNOWN

    def _heirs(self) -> list[Expression]:
        return [of for of, around in self._classes() if around.extends]

    def _local_or_field(self, name: str) -> Expression | None:
        classes = 0
        for around in reversed(self.around):
            if (found := around.names.get(name)) is not None:
                return found
            if around.path is not None:
                if name in around.fields:
                    return Attribute(Instance(around.path) if classes else This(), name)
                classes += 1
        return None

    def _nested_type(self, name: str) -> Expression | None:
        return next((around.types[name] for around in reversed(self.around) if name in around.types), None)

    # --- types -------------------------------------------------------------------------------------------------------

    def type_form(self, node: Node | None) -> Expression | None:
        """Return the form of a type: the class by name, without its arguments; an array as a sequence; None for others."""
        if node is None or not self.source.enter():
            return None
        form = self._type_form(node)
        self.source.depth -= 1
        return None if form == UNKNOWN else form

    def _type_form(self, node: Node) -> Expression | None:
        kind = node.type
        if kind in _PRIMITIVES:
            return Constant(None, self.source.text(node))
        if kind == "type_identifier" or kind == "identifier":
            name = self.source.text(node)
            return None if name == "var" else self.type_named(name)
        if kind == "generic_type" or kind == "annotated_type":
            return self.type_form(next((c for c in node.named_children if c.type in _NAMING), None))
        if kind == "scoped_type_identifier" or kind == "scoped_identifier":
            parts = self.source.text(node).split("<")[0].replace(" ", "").split(".")
            if "@" in parts[0] or not all(part.isidentifier() for part in parts):
                return None
            form = self.qualified(parts, node.start_point[0] + 1)
            return form or attributes(self.type_named(parts[0]), parts[1:])
        if kind == "array_type":
            inner = self.type_form(node.child_by_field_name("element"))
            return None if inner is None else Sequence((inner,))
        return None

    def type_parameters(self, node: Node) -> None:
        """Note what the parameters of types mean below: their first bounds, as far as known."""
        listed = node.child_by_field_name("type_parameters")
        for each in [] if listed is None else listed.named_children:
            name = next((child for child in each.named_children if child.type == "type_identifier"), None)
            bound = next((child for child in each.named_children if child.type == "type_bound"), None)
            if name is not None:
                form = None if bound is None else self.type_form(first(bound))
                self.around[-1].types[self.source.text(name)] = ANY if form is None else Choice((form,))

    def declare_typed(self, name: str, type_form: Expression | None) -> Name:
        """Declare a local that a pattern or a loop gives a value of a type."""
        inside = self.declare(name)
        self.out.append(Assign((inside,), UNKNOWN if type_form is None else Instance(type_form)))
        return inside

    def enter_block(self) -> None:
        """Begin a block."""
        self.around.append(Around())

    def leave_block(self) -> None:
        """End the block."""
        self.around.pop()

    def enter_method(self) -> Counter[str]:
        """Begin to count the locals of a method anew, and return the count before."""
        before, self._locals = self._locals, Counter()
        return before

    def leave_method(self, before: Counter[str]) -> None:
        """Go on counting those of the method around."""
        self._locals = before


_PRIMITIVES = frozenset({"integral_type", "floating_point_type", "boolean_type", "void_type"})
_OF_OBJECTS = frozenset({
    "clone/0", "equals/1", "finalize/0", "getClass/0", "hashCode/0", "notify/0", "notifyAll/0", "toString/0", "wait/0", "wait/1",
    "wait/2",
})  # fmt: skip
"""Every class has these, so without a receiver they are never those of a class around."""
_BLOCKS = frozenset({"block", "constructor_body", "program"})
_NAMING = frozenset({"type_identifier", "scoped_type_identifier", "generic_type", "array_type"})


def with_arity(name: str, count: int) -> str:
    """Return the name of a method with that many parameters, or of a call with that many arguments."""
    return f"{name}/{min(count, MOST_PARAMETERS)}"


def attributes(form: Expression, names: Iterable[str]) -> Expression:
    """Return `form.a.b`."""
    for name in names:
        form = Attribute(form, name)
    return form


def one_by_one(options: list[Expression]) -> Expression | None:
    """Return the only one, or what takes the first that is there; None without any."""
    return (options[0] if len(options) == 1 else First(tuple(options))) if options else None


def _like_a_type(name: str) -> bool:
    return name[:1].isupper() and (len(name) == 1 or any(letter.islower() for letter in name))


def doc_of(source: Source, node: Node) -> str:
    """Return the first line of the Javadoc comment right before a node."""
    previous = node.prev_named_sibling
    if previous is None or previous.type != "block_comment":
        return ""
    text = source.text(previous)
    if not text.startswith("/**"):
        return ""
    lines = (part.strip().lstrip("*").strip() for part in text[3:].removesuffix("*/").split("\n"))
    line = first_line("\n".join(lines))
    return "" if line.startswith("@") else line
