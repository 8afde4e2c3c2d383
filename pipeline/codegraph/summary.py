"""What one source file says, in the few forms that all languages share: enough to follow names and calls, nothing more.

A frontend (one per language) makes a `Summary` from the text of a file and nothing else; `link` reads summaries only, never
text. A summary is a pure function of the file's bytes. Statements stand in the order in which the file has them, since
what a name means depends on what came before.

Names are as the language compares them (Python: NFKC). Lines count from 1. A qualified name joins nested definitions with
points (`Store.add`, `outer.inner`); anonymous functions are `<lambda1>`, `<lambda2>`… in their scope. What a form cannot
express is `Opaque`: its parts are still looked at for calls, its value is unknown.
"""

from __future__ import annotations

from typing import Any

import msgspec

VERSION = "codegraph-2"
"""Changes whenever a summary of the same bytes would; part of the recipe of documents."""

MAX_NESTING = 200
"""Levels of nested forms that a frontend makes; deeper ones become `Opaque` without parts, and are counted."""


class Form(msgspec.Struct, frozen=True, array_like=True, tag_field="t", gc=False):
    """A piece of a summary, written as an array that begins with its tag."""


# --- expressions ---------------------------------------------------------------------------------------------------


class Name(Form, frozen=True, tag="n"):
    """A name looked up from where it stands."""

    name: str


class Attribute(Form, frozen=True, tag="a"):
    """`of.name`; in Rust also `of::name`."""

    of: Expression
    name: str


class Constant(Form, frozen=True, tag="k"):
    """A literal. Its value serves as a key; `type` is the language's own type of it (`str`, `int`, `String`) or empty."""

    value: str | int | None = None
    type: str = ""


class Call(Form, frozen=True, tag="c"):
    """A call. `new`: written as a construction (`new X()`, `X{}`); in Python a class is called like a function.

    An argument may be `Star` (`*xs`); `named` holds keyword arguments, one named `**` spreads a mapping.
    """

    of: Expression
    arguments: tuple[Expression, ...] = ()
    named: tuple[tuple[str, Expression], ...] = ()
    line: int = 0
    new: bool = False


class Sequence(Form, frozen=True, tag="l"):
    """A list, tuple or array literal, or a pattern of one on the left of an assignment."""

    items: tuple[Expression, ...]


class Mapping(Form, frozen=True, tag="d"):
    """A dictionary or object literal; a key that is no constant is None. A spread has the key `**`."""

    items: tuple[tuple[str | int | None, Expression], ...]


class Index(Form, frozen=True, tag="i"):
    """`of[key]`."""

    of: Expression
    key: Expression


class Star(Form, frozen=True, tag="*"):
    """`*of` in arguments, literals and patterns."""

    of: Expression


class Choice(Form, frozen=True, tag="u"):
    """One of several: conditional expressions, `a or b`. `conditions` are only looked at for calls."""

    options: tuple[Expression, ...]
    conditions: tuple[Expression, ...] = ()


class First(Form, frozen=True, tag="1"):
    """The first of these that is there: Java's `foo()` is of the innermost class that has it, inherited or its own.

    An option counts as there where it means a definition of the corpus; of the others the last one counts.
    """

    options: tuple[Expression, ...]


class Awaited(Form, frozen=True, tag="w"):
    """`await of`."""

    of: Expression


class Yield(Form, frozen=True, tag="y"):
    """`yield of`, or with `all` `yield from of`."""

    of: Expression | None = None
    all: bool = False


class Super(Form, frozen=True, tag="s"):
    """The superclass's view of the current object, where that is a keyword; Python calls the name `super`."""


class This(Form, frozen=True, tag="h"):
    """The current object, where that is a keyword (`this`, Rust's `self`); in Python it is the first parameter's name."""


class Lambda(Form, frozen=True, tag="f"):
    """A function as a value: lambda, arrow function, closure, function expression."""

    function: Function


class Comprehension(Form, frozen=True, tag="g"):
    """`[result for target in source if …]`: clauses bind from left to right. `conditions` are only looked at for calls."""

    result: tuple[Expression, ...]
    clauses: tuple[tuple[Expression, Expression], ...]
    conditions: tuple[Expression, ...] = ()


class Walrus(Form, frozen=True, tag="="):
    """An assignment that is an expression."""

    target: Expression
    value: Expression


class Instance(Form, frozen=True, tag="o"):
    """A value of which only the type is known (a cast, a Rust struct literal's fields apart)."""

    type: Expression


class Opaque(Form, frozen=True, tag="x"):
    """Anything else: an unknown value, whose parts may hold calls."""

    parts: tuple[Expression, ...] = ()


# --- statements ----------------------------------------------------------------------------------------------------


class Assign(Form, frozen=True, tag="A"):
    """Targets (`Name`, `Attribute`, `Index`, `Sequence`, `Star`) get a value, from left to right.

    `type` is a plain annotation; `value` None declares only. `augmented`: `x += value`.
    """

    targets: tuple[Expression, ...]
    value: Expression | None = None
    type: Expression | None = None
    augmented: bool = False


class Evaluate(Form, frozen=True, tag="E"):
    """An expression as a statement."""

    value: Expression


class Return(Form, frozen=True, tag="R"):
    """`return value`."""

    value: Expression | None = None


class Raise(Form, frozen=True, tag="X"):
    """`raise value`, `throw value`."""

    value: Expression | None = None


class Branch(Form, frozen=True, tag="B"):
    """One of the arms runs; `total` false: or none does (an `if` without `else`)."""

    arms: tuple[Block, ...]
    total: bool = False


class Loop(Form, frozen=True, tag="L"):
    """The body runs any number of times, with the target bound to an element of `source` if there is one; then `orelse`."""

    body: Block
    target: Expression | None = None
    source: Expression | None = None
    orelse: Block = ()


class Try(Form, frozen=True, tag="T"):
    """`handlers` are (types of exception, name bound or empty, block); the body may stop anywhere."""

    body: Block
    handlers: tuple[tuple[Expression | None, str, Block], ...] = ()
    orelse: Block = ()
    final: Block = ()


class With(Form, frozen=True, tag="W"):
    """Context managers with their targets, then the body."""

    items: tuple[tuple[Expression, Expression | None], ...]
    body: Block


class Scope(Form, frozen=True, tag="G"):
    """Names that belong to another scope: Python's `global` (else `nonlocal`)."""

    names: tuple[str, ...]
    all: bool = False


class Delete(Form, frozen=True, tag="D"):
    """`del` targets."""

    targets: tuple[Expression, ...]


class Import(Form, frozen=True, tag="I"):
    """`import module as name`: `module` is the text that names it (`a.b`, `./x`, `crate::a`), `level` Python's leading dots.

    Without `name` the first part of a dotted Python module is bound; in other languages the frontend gives the name, and
    an empty one binds nothing. `line` is the evidence.
    """

    module: str
    name: str = ""
    level: int = 0
    line: int = 0


class From(Form, frozen=True, tag="F"):
    """`from module import (name as bound), …`. The name `*` takes all; `default` is JavaScript's default export.

    `exported`: the names are passed on (`export … from`, `pub use`).
    """

    module: str
    names: tuple[tuple[str, str], ...]
    level: int = 0
    line: int = 0
    exported: bool = False


class Export(Form, frozen=True, tag="P"):
    """A name under which a file offers a value, where it does not offer all of its names (JavaScript)."""

    name: str
    value: Expression


class Parameter(Form, frozen=True, tag="p"):
    """`kind`: ordinary ``, positional only `/`, keyword only `k`, rest `*`, named rest `**`. `pattern`: bound by taking apart."""

    name: str
    kind: str = ""
    default: Expression | None = None
    type: Expression | None = None
    pattern: Expression | None = None


class Function(Form, frozen=True, tag="m"):
    """A function or method. `returns` is a plain annotation. `kind`: `function`, `method` (has a receiver), `static`,
    `class` (Python's classmethod), `getter`, `constructor`, `private` (a method that none overrides; Java). `receiver` names
    the type of a Go method or Rust impl, whose definition stands outside of the type; by its path where it is no name. In an
    arrow function and a Rust closure `bound`: `this` is that of outside.
    """

    qualname: str
    parameters: tuple[Parameter, ...] = ()
    body: Block = ()
    returns: Expression | None = None
    kind: str = "function"
    receiver: str = ""
    generator: bool = False
    coroutine: bool = False
    bound: bool = False


class Define(Form, frozen=True, tag="M"):
    """A function is defined, and its name bound to it after its decorators (outermost first), each with its line."""

    name: str
    function: Function
    decorators: tuple[tuple[Expression, int], ...] = ()


class Class(Form, frozen=True, tag="C"):
    """A class, interface, enum, struct or trait. Fields are `Assign`s of the body; `bases` come with their lines.

    `kind` as in `Symbol`. Python's `metaclass=` and such are in `named`.
    """

    name: str
    qualname: str
    bases: tuple[tuple[Expression, int], ...] = ()
    body: Block = ()
    decorators: tuple[tuple[Expression, int], ...] = ()
    kind: str = "class"
    named: tuple[tuple[str, Expression], ...] = ()


Expression = (
    Name | Attribute | Constant | Call | Sequence | Mapping | Index | Star | Choice | Awaited | Yield | Super | This
    | Lambda | Comprehension | Walrus | Instance | Opaque | First
)  # fmt: skip
Statement = (
    Assign | Evaluate | Return | Raise | Branch | Loop | Try | With | Scope | Delete | Import | From | Export | Define
    | Class
)  # fmt: skip
Block = tuple[Statement, ...]


# --- the file --------------------------------------------------------------------------------------------------------


class Symbol(msgspec.Struct, frozen=True, array_like=True):
    """A definition that becomes an entity. `kind`: class, interface, enum, struct, trait, function, method.

    `start` and `end` are character offsets in the document's text, decorators included; lines count from 1, inclusive.
    `signature` is the first line of the definition (at most 200 characters), `doc` the first line of its documentation.
    `parent` is the qualified name of the definition around it, empty for the file itself. `duplicate` definitions of a
    qualified name are left out: the first one stays.
    """

    qualname: str
    name: str
    kind: str
    parent: str
    start: int
    end: int
    first_line: int
    last_line: int
    signature: str = ""
    doc: str = ""
    decorators: tuple[str, ...] = ()


class Summary(msgspec.Struct, frozen=True):
    """A file. `package` is what it says of its own place (Java, Go: the package clause), else empty.

    `exports`: names that `*` takes (`__all__`), None where the language's rule decides. `counts`: what could not be read,
    by reason (`syntax_error`, `nested_too_deeply`). `doc` is the first line of the file's own documentation.
    """

    language: str
    symbols: tuple[Symbol, ...] = ()
    body: Block = ()
    package: str = ""
    exports: tuple[str, ...] | None = None
    counts: dict[str, int] = {}
    doc: str = ""


_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[Summary] = msgspec.msgpack.Decoder(Summary)


def encode(summary: Summary) -> bytes:
    """Return the summary as it is stored."""
    return _ENCODER.encode(summary)


def decode(data: bytes | Any) -> Summary:
    """Return a stored summary. Raises msgspec.ValidationError for anything else."""
    return _DECODER.decode(data)
