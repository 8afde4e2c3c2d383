"""What the parts of the JavaScript and TypeScript frontend share: scopes, the statement list being made, and the walk.

The forms have function scope and no patterns of objects. So a name declared in a block within a function gets a name of
its own (`x@2`), objects are taken apart into attributes, and what an expression needs before it (a class expression, a named
function expression) is put before the statement it stands in. Names that no source can write hold `<`, `@` or a point.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pipeline.codegraph.source import Source, first, inert
from pipeline.codegraph.summary import (
    Assign,
    Attribute,
    Block,
    Choice,
    Evaluate,
    Export,
    Expression,
    Import,
    Name,
    Opaque,
    Scope,
    Statement,
    This,
)

if TYPE_CHECKING:
    from tree_sitter import Node

UNKNOWN = Opaque()
THIS = This()
PATTERNS = frozenset({"object_pattern", "array_pattern"})
_TRANSPARENT = frozenset({"parenthesized_expression", "non_null_expression", "satisfies_expression"})
LEXICAL = frozenset({"lexical_declaration", "variable_declaration"})
CLASSES = frozenset({"class_declaration", "abstract_class_declaration", "class"})
FUNCTIONS = frozenset({"function_declaration", "generator_function_declaration", "function_signature"})
_TYPES = frozenset({"interface_declaration", "type_alias_declaration"})


@dataclass(slots=True)
class Names:
    """The names that a file, function or block declares, each with what it is called inside; `types` first for types."""

    function: int
    names: dict[str, Expression] = field(default_factory=dict[str, Expression])
    types: dict[str, Expression] = field(default_factory=dict[str, Expression])
    outer: dict[str, bool] = field(default_factory=dict[str, bool])
    """Of a function: names of outer scopes that it assigns to, and whether they are the file's."""


Handler = Callable[["Reader", "Node"], Expression]
Doing = Callable[["Reader", "Node"], None]


class Reader:
    """Turns nodes into forms. `scope` is the qualified name of the definition being read, `out` the block being made."""

    def __init__(self, source: Source, expressions: Mapping[str, Handler], statements: Mapping[str, Doing]) -> None:
        self.source = source
        self.expressions = expressions
        self.statements = statements
        self.scope = ""
        self.out: list[Statement] = []
        self.scopes: list[Names] = [Names(0)]
        self.imports: list[Import] = []
        self.types: list[Statement] = []
        """Types that are written where they are used, for the end of the file."""
        self.exports: dict[str, Export] = {}
        self.owner = ""
        """The qualified name of the class whose object `this` is, empty where that is not known."""
        self.this: Expression = THIS
        """What `this` is: an object literal's name in its methods."""
        self.objects: set[str] = set()
        """Functions, classes and namespaces by their names inside: what a namespace of the same name adds to."""
        self.exported_names: frozenset[str] = frozenset()
        """Names that the file assigns to `exports`."""
        self.prototypes: frozenset[str] = frozenset()
        """Names that have a prototype somewhere in the file."""
        self.consumed: set[int] = set()
        """Nodes whose meaning went into another form: assignments to a prototype, which became methods of its class."""
        self._hidden: Counter[str] = Counter()
        self._types: dict[int, Expression] = {}

    # --- the walk ----------------------------------------------------------------------------------------------------

    def expression(self, node: Node) -> Expression:
        """Return the form of a node. A frame for this and one for the handler make a level."""
        kind = node.type
        while kind in _TRANSPARENT:
            inner = first(node)
            if inner is None:
                return UNKNOWN
            node, kind = inner, inner.type
        if kind == "identifier" or kind == "shorthand_property_identifier":
            return self.lookup(self.source.text(node))
        handler = self.expressions.get(kind)
        if handler is None:
            return UNKNOWN
        if not self.source.enter():
            return UNKNOWN
        form = handler(self, node)
        self.source.depth -= 1
        return form

    def each(self, nodes: Iterable[Node]) -> tuple[Expression, ...]:
        """Return the forms of the nodes that are named."""
        return tuple(map(self.expression, [node for node in nodes if node.is_named and node.type != "comment"]))

    def statement(self, node: Node) -> None:
        """Add what a statement says to `out`."""
        handler = self.statements.get(node.type)
        if handler is None or node.id in self.consumed or not self.source.enter():
            return
        handler(self, node)
        self.source.depth -= 1

    def evaluate(self, form: Expression) -> None:
        """Look at an expression whose value goes nowhere."""
        if not inert(form):
            self.out.append(Evaluate(form))

    # --- names -------------------------------------------------------------------------------------------------------

    def hidden(self, kind: str) -> Name:
        """Return a new name that the file does not have."""
        self._hidden[kind] += 1
        return Name(f"<{kind}{self._hidden[kind]}>")

    def held(self, value: Expression, type: Expression | None = None) -> Expression:
        """Return the value by a name, so that it can be used several times."""
        if type is None and (isinstance(value, This) or inert(value)):
            return value
        name = self.hidden("value")
        self.out.append(Assign((name,), value, type))
        return name

    def lookup(self, name: str) -> Expression:
        """Return what a name means where it stands."""
        for names in reversed(self.scopes):
            found = names.names.get(name)
            if found is not None:
                return found
        return Name(name) if name else UNKNOWN

    def lookup_type(self, name: str) -> Expression:
        """Return what a name means as a type."""
        for names in reversed(self.scopes):
            found = names.types.get(name) or names.names.get(name)
            if found is not None:
                return found
        return Name(name) if name else UNKNOWN

    def is_free(self, name: str) -> bool:
        """Whether no function or block around declares the name."""
        return not any(name in names.names for names in self.scopes[1:])

    def target(self, name: str) -> Expression:
        """Return a name that is assigned to without being declared there; noted where it belongs to a scope outside."""
        for names in reversed(self.scopes):
            found = names.names.get(name)
            if found is not None:
                if names.function != self.scopes[-1].function and isinstance(found, Name):
                    self._function().outer[found.name] = names.function == 0
                return found
        if self.scopes[-1].function:
            self._function().outer[name] = True
        return Name(name)

    def declare(self, name: str, *, types: bool = False, var: bool = False) -> Expression:
        """Note a declaration, and return what the name is called inside."""
        if not name:  # the parser supposes one where it is missing
            return self.hidden("missing")
        names = self._function() if var else self.scopes[-1]
        known = names.types.get(name) if types else names.names.get(name)
        if known is not None:
            return known
        in_block = names is not self._function()
        form: Expression = Name(f"{name}@{self._next('@')}" if in_block else name)
        (names.types if types else names.names)[name] = form
        return form

    def enter_function(self) -> None:
        """Begin the scope of a function."""
        self._hidden["function"] += 1
        self.scopes.append(Names(self._hidden["function"]))

    def enter_block(self) -> None:
        """Begin the scope of a block."""
        self.scopes.append(Names(self.scopes[-1].function))

    def leave(self) -> None:
        """End the scope."""
        self.scopes.pop()

    def outer_names(self) -> Block:
        """Return the statements that say which names of the function belong to scopes outside of it."""
        outer = self._function().outer
        of_file = tuple(sorted(name for name, file in outer.items() if file))
        between = tuple(sorted(name for name, file in outer.items() if not file))
        return tuple(Scope(names, of_file is names) for names in (of_file, between) if names)

    def imported(self, module: str, line: int) -> Name:
        """Return the name of a module that an expression imports."""
        name = self.hidden("import")
        self.imports.append(Import(module, name.name, 0, line))
        return name

    def offer(self, name: str, value: Expression) -> None:
        """Export a value under a name; the last one counts."""
        self.exports[name] = Export(name, value)

    def _function(self) -> Names:
        function = self.scopes[-1].function
        return next(names for names in self.scopes if names.function == function)

    def _next(self, kind: str) -> int:
        self._hidden[kind] += 1
        return self._hidden[kind]

    # --- blocks ------------------------------------------------------------------------------------------------------

    def block(self, node: Node | None) -> Block:
        """Return the statements of a block with a scope of its own, or of a single statement."""
        if node is None:
            return ()
        self.enter_block()
        before, self.out = self.out, []
        self.add(node.named_children if node.type in _BLOCKS else [node])
        made, self.out = tuple(self.out), before
        self.leave()
        return made

    def add(self, nodes: list[Node]) -> None:
        """Add statements of one scope: what they declare is known from the start, and functions are there at once."""
        self.declare_all(nodes)
        ordered: tuple[list[Node], ...] = ([], [], [])
        for node in nodes:
            ordered[self._time(node)].append(node)
        for part in ordered:
            for node in part:
                self.statement(node)

    def _time(self, node: Node) -> int:
        """Return when a statement counts: imports before functions, and functions before all others."""
        kind = node.type
        if kind == "import_statement" or (
            kind == "export_statement" and node.child_by_field_name("source") is not None
        ):
            return 0
        if kind in LEXICAL:
            values = [child.child_by_field_name("value") for child in node.named_children]
            required = [value is not None and self.source.text(value).startswith("require(") for value in values]
            return 0 if all(required) else 2
        return 1 if declaration_of(node).type in FUNCTIONS else 2

    def declare_all(self, nodes: Iterable[Node]) -> None:
        """Note what statements declare in the current scope."""
        types: dict[str, list[Node]] = {}
        for node in map(declaration_of, nodes):
            kind = node.type
            if kind in LEXICAL:
                for declarator in node.named_children:
                    for name in names_in(declarator.child_by_field_name("name")):
                        self.declare(self.source.text(name), var=kind == "variable_declaration")
            elif (named := node.child_by_field_name("name") or first(node)) is None:
                continue
            elif kind in _TYPES:
                types.setdefault(self.source.text(named), []).append(node)
            elif kind in CLASSES or kind in FUNCTIONS or kind in _NAMED:
                self.declare(self.source.text(named).split(".")[0])
        for text, declarations in types.items():
            self._declare_types(text, declarations)

    def _declare_types(self, name: str, nodes: list[Node]) -> None:
        """Types share the name with each other and with a value; each gets a name of its own where it is not alone."""
        value = self.scopes[-1].names.get(name)
        if value is None and len(nodes) == 1:
            self.declare(name)
            return
        forms: list[Expression] = [self.hidden("type") for _ in nodes]
        self._types |= {node.id: form for node, form in zip(nodes, forms, strict=True)}
        self.scopes[-1].types[name] = one_of([*([value] if value is not None else []), *forms])
        if value is None:
            self.scopes[-1].names[name] = one_of(forms)

    def declared_type(self, node: Node, name: str) -> Expression:
        """Return what a type declared by this node is called inside."""
        return self._types.get(node.id) or self.declare(name)

    # --- positions ---------------------------------------------------------------------------------------------------

    def line(self, node: Node) -> int:
        """Return the line a node starts at."""
        return node.start_point[0] + 1

    def field(self, node: Node, name: str) -> Expression:
        """Return the form of a field, or an unknown value where the text has none."""
        child = node.child_by_field_name(name)
        return UNKNOWN if child is None else self.expression(child)


_BLOCKS = frozenset({"statement_block", "program", "class_static_block"})
_NAMED = frozenset({"enum_declaration", "internal_module", "import_alias", "module"})


def declaration_of(node: Node) -> Node:
    """Return the declaration in an `export`, `declare` or a statement that only holds a namespace."""
    while node.type in ("export_statement", "ambient_declaration", "expression_statement"):
        inner = node.child_by_field_name("declaration") or first(node)
        if inner is None or (node.type == "expression_statement" and inner.type != "internal_module"):
            return node
        if node.type == "export_statement" and inner.type not in _DECLARING:
            return node
        node = inner
    return node


_DECLARING = (
    LEXICAL | CLASSES | FUNCTIONS | _TYPES | _NAMED | {"ambient_declaration", "decorator"}
) - {"class"}  # fmt: skip


def names_in(pattern: Node | None) -> Iterable[Node]:
    """Yield the identifiers that a pattern binds."""
    waiting = [] if pattern is None else [pattern]
    while waiting:
        node = waiting.pop()
        kind = node.type
        if kind == "identifier" or kind == "shorthand_property_identifier_pattern":
            yield node
        elif kind == "pair_pattern":
            value = node.child_by_field_name("value")
            waiting += [] if value is None else [value]
        elif kind in ("assignment_pattern", "object_assignment_pattern"):
            left = node.child_by_field_name("left")
            waiting += [] if left is None else [left]
        elif kind in PATTERNS or kind == "rest_pattern":
            waiting += node.named_children


def one_of(forms: list[Expression]) -> Expression:
    """Return a choice, or the only one."""
    return forms[0] if len(forms) == 1 else Choice(tuple(forms)) if forms else UNKNOWN


def dotted(expression: Expression) -> str:
    """Return `a.b` for names and attributes of names, else an empty text."""
    parts: list[str] = []
    while isinstance(expression, Attribute):
        parts.append(expression.name)
        expression = expression.of
    return ".".join([expression.name, *reversed(parts)]) if isinstance(expression, Name) else ""
