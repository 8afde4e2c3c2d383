"""Python: what a file says, in forms and symbols; and that no text is too strange, too deep or too long."""

from __future__ import annotations

import os
import sysconfig
import unicodedata
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.codegraph import reading
from pipeline.codegraph.languages import language_of
from pipeline.codegraph.summary import (
    Assign,
    Attribute,
    Awaited,
    Block,
    Branch,
    Call,
    Choice,
    Class,
    Comprehension,
    Constant,
    Define,
    Delete,
    Evaluate,
    Expression,
    From,
    Function,
    Import,
    Index,
    Instance,
    Lambda,
    Loop,
    Mapping,
    Name,
    Opaque,
    Parameter,
    Raise,
    Return,
    Scope,
    Sequence,
    Star,
    Statement,
    Symbol,
    Try,
    Walrus,
    With,
    Yield,
)
from pipeline.ingest.parse import parse
from tests.frontends import damaged, summary_of

UNKNOWN = Opaque()
STDLIB = Path(sysconfig.get_paths()["stdlib"])


def body(text: str) -> Block:
    return summary_of("x.py", text).body


def one(text: str) -> Statement:
    (statement,) = body(text)
    return statement


def value(text: str) -> Expression | None:
    """Return the form of an expression."""
    statement = one(f"_ = {text}")
    assert isinstance(statement, Assign)
    return statement.value


def call(name: str, *arguments: Expression, line: int = 1) -> Call:
    return Call(Name(name), arguments, line=line)


def function(text: str) -> Function:
    statement = one(text)
    assert isinstance(statement, Define)
    return statement.function


def parts(form: object) -> list[object]:
    return [getattr(form, name) for name in getattr(form, "__struct_fields__", ())]


def symbols(text: str) -> dict[str, Symbol]:
    return {symbol.qualname: symbol for symbol in summary_of("x.py", text).symbols}


# --- expressions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("a.b.c", Attribute(Attribute(Name("a"), "b"), "c")),
        ("f(1, *a, k=b, **c)", Call(Name("f"), (Constant(1, "int"), Star(Name("a"))), (("k", Name("b")), ("**", Name("c"))), 1)),
        ("f()(g)", Call(call("f"), (Name("g"),), line=1)),
        ("'k'", Constant("k", "str")),
        ("'a' 'b'", Constant("ab", "str")),
        ("'a\\n'", Constant(None, "str")),
        ("b'a'", Constant(None, "bytes")),
        ("-1", Constant(-1, "int")),
        ("0x10", Constant(16, "int")),
        ("None", Constant(None, "None")),
        ("[a, *b]", Sequence((Name("a"), Star(Name("b"))))),
        ("(a, b)", Sequence((Name("a"), Name("b")))),
        ("[f] + g", Sequence((Name("f"), Star(Name("g"))))),
        ("{'k': f, 1: g, x: h, **m}", Mapping((("k", Name("f")), (1, Name("g")), (None, Name("h")), ("**", Name("m"))))),
        ("a['k']", Index(Name("a"), Constant("k", "str"))),
        ("a[b, 1]", Index(Name("a"), Sequence((Name("b"), Constant(1, "int"))))),
        ("a[1:2]", Index(Name("a"), Constant("1:2:", "slice"))),
        ("a[-2:]", Index(Name("a"), Constant("-2::", "slice"))),
        ("a[::2, b]", Index(Name("a"), Sequence((Constant("::2", "slice"), Name("b"))))),
        ("a[b:1]", Index(Name("a"), Constant(None, "slice"))),
        ("a[f():]", Index(Name("a"), Opaque((call("f"),)))),
        ("a if b else c", Choice((Name("a"), Name("c")))),
        ("a if b() else c", Choice((Name("a"), Name("c")), (call("b"),))),
        ("a or b or c", Choice((Name("a"), Name("b"), Name("c")))),
        ("a < b() < c", Opaque((call("b"),))),
        ("not a()", Opaque((call("a"),))),
        ("a + b.c", UNKNOWN),
        ("(y := f)", Walrus(Name("y"), Name("f"))),
        ("f'{a!r:>{w()}} {g()}'", Opaque((call("w"), call("g")))),
        ("f'{a}'", Constant(None, "str")),
        ("t'{g()}'", Opaque((call("g"),))),
        ("((((f))))", Name("f")),
        (
            "[f(x) for x in y if p(x) for z in x]",
            Comprehension((call("f", Name("x")),), ((Name("x"), Name("y")), (Name("z"), Name("x"))), (call("p", Name("x")),)),
        ),
        ("{k: v for k, v in m}", Comprehension((Name("k"), Name("v")), ((Sequence((Name("k"), Name("v"))), Name("m")),))),
        (
            "f(x for x in y)",
            call("f", Comprehension((Name("x"),), ((Name("x"), Name("y")),))),
        ),
        (
            "lambda a, *b, c=d, **e: a()",
            Lambda(
                Function(
                    "<lambda1>",
                    (Parameter("a"), Parameter("b", "*"), Parameter("c", "k", Name("d")), Parameter("e", "**")),
                    (Return(call("a")),),
                )
            ),
        ),
    ],
)  # fmt: skip
def test_an_expression_has_its_form(text: str, form: Expression) -> None:
    assert value(text) == form


def test_a_call_is_in_the_line_of_the_name_that_is_called() -> None:
    first = one("a\\\n  .b()\\\n  .c(\n x)")
    assert first == Evaluate(Call(Attribute(Call(Attribute(Name("a"), "b"), line=2), "c"), (Name("x"),), line=3))


def test_comments_and_joined_lines_are_nothing() -> None:
    """They may stand between any two parts, and are no argument."""
    text = "f( # one\n a, \\\n b)\nx = a \\\n + \\\n f()\nfrom \\\n a import \\\n b\n{'k': \\\n f()}\n"
    assert body(text) == (
        Evaluate(call("f", Name("a"), Name("b"))),
        Assign((Name("x"),), Opaque((call("f", line=6),))),
        From("a", (("b", "b"),), 0, 7),
        Evaluate(Mapping((("k", call("f", line=11)),))),
    )


def test_anonymous_functions_are_numbered_in_their_scope() -> None:
    text = "a = lambda: (lambda: 0)\ndef main(x=lambda: 1):\n  b = lambda: 2\n  c = lambda: 3\nclass C:\n  d = lambda s: 4\n"
    names: list[str] = []

    def look(form: object) -> None:
        if isinstance(form, Lambda):
            names.append(form.function.qualname)
        for each in (
            form
            if isinstance(form, tuple)
            else [getattr(form, name) for name in getattr(form, "__struct_fields__", ())]
        ):
            look(each)

    look(body(text))
    assert names == ["<lambda1>", "<lambda1>.<lambda1>", "<lambda2>", "main.<lambda1>", "main.<lambda2>", "C.<lambda1>"]


def test_names_are_compared_in_compatibility_composition() -> None:
    """PEP 3131: what is written in another way is the same name."""
    define, use = body("def cafe\u0301(): ...\n𝒸afé()")
    assert isinstance(define, Define)
    assert define.name == unicodedata.normalize("NFKC", "café") == define.function.qualname
    assert use == Evaluate(call("café", line=2))


# --- statements ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("import a.b", Import("a.b", "", 0, 1)),
        ("import a.b as c", Import("a.b", "c", 0, 1)),
        ("from a.b import c as d, e", From("a.b", (("c", "d"), ("e", "e")), 0, 1)),
        ("from ..a import (\n b,\n)", From("a", (("b", "b"),), 2, 1)),
        ("from . import *", From("", (("*", "*"),), 1, 1)),
        ("from __future__ import annotations", From("__future__", (("annotations", "annotations"),), 0, 1)),
        ("a = b = f", Assign((Name("a"), Name("b")), Name("f"))),
        ("a, (b, *c) = f", Assign((Sequence((Name("a"), Sequence((Name("b"), Star(Name("c")))))),), Name("f"))),
        ("x: 'a.B' = f", Assign((Name("x"),), Name("f"), Attribute(Name("a"), "B"))),
        ("x: int", Assign((Name("x"),), None, Name("int"))),
        ("x += f", Assign((Name("x"),), Name("f"), augmented=True)),
        ("type X = list[Y]", Assign((Name("X"),), Index(Name("list"), Name("Y")))),
        ("type(x).y = f()", Assign((Attribute(call("type", Name("x")), "y"),), call("f"))),
        ("type X[T] = T", Assign((Name("X"),), UNKNOWN)),
        ("raise E from f()", Evaluate(call("f"))),
        ("global a, b", Scope(("a", "b"), True)),
        ("nonlocal a", Scope(("a",))),
        ("del a, b.c", Delete((Name("a"), Attribute(Name("b"), "c")))),
        ("await f()", Evaluate(Awaited(call("f")))),
        ("yield from f", Evaluate(Yield(Name("f"), True))),
        ("assert a, f()", Evaluate(call("f"))),
    ],
)
def test_a_simple_statement_has_its_form(text: str, form: Statement) -> None:
    assert body(text)[0] == form


def test_what_has_no_effect_is_left_out() -> None:
    assert body("'doc'\na\na.b\n1\n...\npass\na == b\nf'{a}'") == ()


def test_branches_stand_side_by_side_with_their_conditions() -> None:
    first = (Evaluate(call("b", line=2)),)
    second = (Evaluate(call("c", line=3)), Evaluate(call("d", line=4)))
    last = (Evaluate(call("e", line=6)),)
    text = "if a():\n  b()\nelif c():\n  d()\nelse:\n  e()"
    assert body(text) == (Evaluate(call("a")), Branch((first, second, last), True))
    assert body("if a:\n  b()") == (Branch((first,)),)


def test_what_a_condition_binds_is_known_to_the_arms_after_it() -> None:
    branch = one("if a:\n  1\nelif (m := f):\n  2\nelif b:\n  m()")
    walrus = Evaluate(Walrus(Name("m"), Name("f")))
    assert branch == Branch(((), (walrus,), (walrus, Evaluate(call("m", line=6)))))


def test_loops_try_and_with() -> None:
    assert one("for a, b in f():\n  a()\nelse:\n  c()") == Loop(
        (Evaluate(call("a", line=2)),), Sequence((Name("a"), Name("b"))), call("f"), (Evaluate(call("c", line=4)),)
    )
    assert one("while f():\n  g()") == Loop((Evaluate(call("f")), Evaluate(call("g", line=2))))
    assert one("async def f():\n  async with a as b, c() as (d, e):\n    b()") == Define(
        "f",
        Function(
            "f",
            body=(
                With(
                    ((Name("a"), Name("b")), (call("c", line=2), Sequence((Name("d"), Name("e"))))),
                    (Evaluate(call("b", line=3)),),
                ),
            ),
            coroutine=True,
        ),
    )
    text = "try:\n  a()\nexcept* (A, B) as e:\n  e()\nexcept C: ...\nelse:\n  c()\nfinally:\n  d()"
    assert one(text) == Try(
        (Evaluate(call("a", line=2)),),
        ((Sequence((Name("A"), Name("B"))), "e", (Evaluate(call("e", line=4)),)), (Name("C"), "", ())),
        (Evaluate(call("c", line=7)),),
        (Evaluate(call("d", line=9)),),
    )
    assert one("try: ...\nexcept A, B: ...") == Try((), ((Sequence((Name("A"), Name("B"))), "", ()),))  # PEP 758


@pytest.mark.parametrize(
    ("case", "bound"),
    [
        ("y", [Assign((Name("y"),), Name("s"))]),
        ("C() as y", [Assign((Name("y"),), Instance(Name("C")))]),
        ("m.C(a=y)", [Assign((Name("y"),), Attribute(Instance(Attribute(Name("m"), "C")), "a"))]),
        ("C() | D() as y", [Assign((Name("y"),), Choice((Instance(Name("C")), Instance(Name("D")))))]),
        ("[y, *z]", [Assign((Sequence((Name("y"), Star(Name("z")))),), Name("s"))]),
        ("y, C(a=z)", [
            Assign((Sequence((Name("y"), Sequence(()))),), Name("s")),
            Assign((Name("z"),), Attribute(Instance(Name("C")), "a")),
        ]),
        ("{'k': y, **z}", [Assign((Name("y"),), Index(Name("s"), Constant("k", "str"))), Assign((Name("z"),), UNKNOWN)]),
        ("(y)", [Assign((Name("y"),), Name("s"))]),
        ("m.CONSTANT | 1 | None", []),
    ],
)  # fmt: skip
def test_a_pattern_binds_its_names(case: str, bound: list[Statement]) -> None:
    assert one(f"match s:\n  case {case}: ...") == Branch((tuple(bound),), case == "y" or case == "(y)")


def test_a_match_evaluates_its_subject_once_and_ends_with_the_irrefutable_case() -> None:
    text = "match f():\n  case C() if g(): ...\n  case _:\n    h()"
    evaluated, branch = body(text)
    assert evaluated == Evaluate(call("f"))
    assert branch == Branch(((Evaluate(call("g", line=2)),), (Evaluate(call("h", line=4)),)), True)


# --- definitions -----------------------------------------------------------------------------------------------------


def test_all_kinds_of_parameters() -> None:
    found = function("def f(a, /, b: int, c=1, *d: str, e: A.B = g(), **h: X[Y]) -> 'A | None': ...")
    assert found.parameters == (
        Parameter("a", "/"),
        Parameter("b", "", None, Name("int")),
        Parameter("c", "", Constant(1, "int")),
        Parameter("d", "*", None, Name("str")),
        Parameter("e", "k", call("g"), Attribute(Name("A"), "B")),
        Parameter("h", "**", None, Index(Name("X"), Name("Y"))),
    )
    assert found.returns == Choice((Name("A"), Constant(None, "None")))
    assert [each.kind for each in function("def f(a, *, b): ...").parameters] == ["", "k"]


@pytest.mark.parametrize(
    ("annotation", "form"),
    [
        ("'list[\"A\"]'", Index(Name("list"), Name("A"))),
        ("dict[str, A]", Index(Name("dict"), Sequence((Name("str"), Name("A"))))),
        ("Annotated[A, 'unit']", Name("A")),
        ("Annotated[A, f()]", Choice((Name("A"),), (call("f"),))),
        ("Literal['A', 'B']", Index(Name("Literal"), Constant(None, "str"))),
        ("'not an annotation'", UNKNOWN),
        ("T", Name("Base")),
        ("list[U]", Index(Name("list"), UNKNOWN)),
    ],
)
def test_an_annotation_is_read(annotation: str, form: Expression) -> None:
    """Also a string's; a parameter of types (PEP 695) stands for its bound."""
    assert function(f"def f[T: Base, U, *Ts, **P](a: {annotation}): ...").parameters[0].type == form


def test_functions_say_what_they_are() -> None:
    text = """
class C(Base, m.Other, metaclass=Meta, **kw):
    x: int = f
    @staticmethod
    def a(): ...
    @classmethod
    async def b(cls): yield
    @functools.cached_property
    def c(self): ...
    def __init_subclass__(cls): ...
    def d(self):
        def inner(): ...
        (lambda: (yield))
    @d.setter
    def d(self, v): ...
"""
    (found,) = body(text)
    assert isinstance(found, Class)
    assert found.bases == ((Name("Base"), 2), (Attribute(Name("m"), "Other"), 2))
    assert found.named == (("metaclass", Name("Meta")), ("**", Name("kw")))
    assert found.body[0] == Assign((Name("x"),), Name("f"), Name("int"))
    kinds = [(each.name, each.function.kind) for each in found.body if isinstance(each, Define)]
    assert kinds == [
        ("a", "static"), ("b", "class"), ("c", "getter"), ("__init_subclass__", "class"), ("d", "method"), ("d", "method"),
    ]  # fmt: skip
    second, fourth = found.body[2], found.body[5]
    assert isinstance(second, Define)
    assert isinstance(fourth, Define)
    assert (second.function.coroutine, second.function.generator) == (True, True)
    assert fourth.function.generator is False  # the lambda is one, not the method around it
    (inner, _) = fourth.function.body
    assert isinstance(inner, Define)
    assert (inner.function.qualname, inner.function.kind) == ("C.d.inner", "function")


def test_decorators_are_expressions_with_lines_and_texts() -> None:
    text = "@a\n@b.c(\n  1)\n# why\ndef f(): ...\n"
    define = one(text)
    assert isinstance(define, Define)
    assert define.decorators == ((Name("a"), 1), (Call(Attribute(Name("b"), "c"), (Constant(1, "int"),), line=2), 2))
    assert symbols(text)["f"].decorators == ("a", "b.c(")


def test_symbols_have_lines_offsets_signature_and_documentation() -> None:
    text = """# ü𝒳
'''The file.'''

@register
class Store(Base):
    '''

    Keeps things.
    '''

    async def add(
        self, x): 'Adds ü.'

def free(): r'''Raw.
    more'''
def free(): 'second'
if x:
    def conditional(): b'none'
"""
    found = symbols(text)
    assert summary_of("x.py", text).doc == "The file."
    assert list(found) == ["Store", "Store.add", "free", "conditional"]
    store, add, free, conditional = found.values()
    assert text[store.start : store.end].startswith("@register\nclass Store")
    assert text[store.start : store.end].endswith("'Adds ü.'")
    assert (store.kind, store.parent, store.first_line, store.last_line) == ("class", "", 4, 12)
    assert (store.signature, store.doc, store.decorators) == ("class Store(Base):", "Keeps things.", ("register",))
    assert (add.kind, add.parent, add.signature, add.doc) == ("method", "Store", "async def add(", "Adds ü.")
    assert (free.kind, free.doc, free.first_line) == ("function", "Raw.", 14)
    assert conditional.doc == ""


@pytest.mark.parametrize(
    ("text", "exports"),
    [
        (
            "__all__ = ['a', 'b']\n__all__ += ('c',)\n__all__.extend(['d'])\n__all__.append('e')\n__all__.remove('a')",
            "bcde",
        ),
        ("__all__: list[str] = ['a'] + ['b']", "ab"),
        ("__all__ = ['a']\n__all__ = ['b']", "b"),
        ("if x:\n  __all__ = ['a']\nelse:\n  __all__ = ['b']", "ab"),
        ("__all__ = []", ""),
        ("__all__ = ['a'] + other.__all__", None),
        ("__all__ = [n for n in dir()]", None),
        ("a = ['__all__']", None),
        ("def f():\n  __all__ = ['a']", None),
    ],
)
def test_all_says_what_a_star_takes(text: str, exports: str | None) -> None:
    """What is computed is not known: then the language's rule decides."""
    assert summary_of("x.py", text).exports == (None if exports is None else tuple(exports))


# --- strange texts ---------------------------------------------------------------------------------------------------


def test_definitions_around_a_syntax_error_are_found() -> None:
    text = "def before(): f()\n\ndef broken(:\n    pass )\n\nclass After:\n    def method(self): g()\n"
    summary = summary_of("x.py", text)
    assert {"before", "After", "After.method"} <= {symbol.qualname for symbol in summary.symbols}
    assert summary.counts["syntax_error"] >= 1
    assert summary_of("x.py", "def f(): ...").counts == {}


def test_python_2_is_read_as_far_as_the_grammar_goes() -> None:
    text = "def f((a, b)):\n    print 'x', g()\n    exec code\n    raise E, h()\n"
    assert {"g", "h"} <= names_called(text)


def names_called(text: str) -> set[str]:
    found: set[str] = set()
    pending: list[object] = [body(text)]
    while pending:
        form = pending.pop()
        if isinstance(form, Call) and isinstance(form.of, Name):
            found.add(form.of.name)
        pending.extend(
            form
            if isinstance(form, tuple)
            else [getattr(form, name) for name in getattr(form, "__struct_fields__", ())]
        )
    return found


def indented(line: str, times: int) -> str:
    return "".join(" " * place + line + "\n" for place in range(times)) + " " * times + "pass"


@pytest.mark.parametrize(
    "text",
    [
        "(" * 100_000 + ")" * 100_000,
        "(" * 100_000,
        "f(" * 5_000 + ")" * 5_000,
        "a" + ".a()" * 5_000,
        "x = " + "[" * 5_000 + "]" * 5_000,
        "not " * 5_000 + "a",
        "lambda: " * 5_000 + "a",
        "a if b() else " * 5_000 + "c",
        "x: " + "A[" * 5_000 + "B" + "]" * 5_000,
        "f()" + " ** f()" * 5_000,
        "match x:\n case " + "[" * 300 + "]" * 300 + ": ...",
        indented("if x():", 400),
        indented("def f():", 400),
        indented("class C:", 400),
        indented("for x in y: ", 400),
    ],
)
def test_nesting_is_bounded_and_counted(text: str) -> None:
    summary = summary_of("x.py", text)
    assert set(summary.counts) <= {"nested_too_deeply", "syntax_error"}
    assert summary.counts or text.startswith("(")


def test_what_is_long_is_not_deep() -> None:
    """A sum or an `if` of many parts is one form."""
    total = "f()" + " + f()" * 3_000
    assert value(total) == Opaque((call("f"),) * 3_001)
    assert value("a" + " or a" * 3_000) == Choice((Name("a"),) * 3_001)
    (branch,) = body("if a: pass\n" + "elif b: pass\n" * 3_000)
    assert isinstance(branch, Branch)
    assert len(branch.arms) == 3_001
    (walrus,) = body("if a: pass\n" + "elif (m := b): pass\n" * 100)
    assert isinstance(walrus, Branch)
    assert len(walrus.arms[-1]) <= 10  # what earlier conditions bind is repeated within bounds


def test_a_file_that_is_too_long_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_LENGTH", 20)
    assert reading.read("x.py", "def f(): pass #......") == reading.Summary("python", counts={"too_long": 1})
    assert summary_of("x.py", "def f(): pass #.....").symbols


def test_a_defect_of_a_frontend_costs_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr("pipeline.codegraph.python.frontend.summarize", fail)
    summary = reading.read("x.py", "def f(): pass")
    assert summary is not None
    assert (summary.language, summary.symbols, summary.counts) == ("python", (), {"unreadable": 1})


@given(st.text(max_size=300))
@settings(max_examples=150, deadline=None)
@example("def f\ud800(): pass")
@example("def f\0(): pass")
@example("class")
@example("@\ndef f(): pass")
@example("x: ''")
@example("x: ' '")
@example("from . import")
@example("match x:\n case")
@example("{**a}")
@example("f(*)")
def test_any_text_is_read(text: str) -> None:
    summary_of("x.py", text)


SOURCES = [
    (STDLIB / name).read_text(encoding="utf-8")
    for name in ("functools.py", "enum.py", "contextlib.py", "types.py", "asyncio/taskgroups.py")
]


@given(damaged(SOURCES))
@settings(max_examples=40, deadline=None)
def test_damaged_files_are_read(text: str) -> None:
    for symbol in summary_of("x.py", text).symbols:
        assert text[symbol.start : symbol.end].startswith(("def", "class", "async", "@"))


def test_the_standard_library_is_read() -> None:
    """A sample of about a hundred files: everything that is no syntax error on purpose."""
    files = sorted(path for path in STDLIB.rglob("*.py") if "site-packages" not in path.parts)
    strange: dict[str, object] = {}
    for path in files[:: max(1, len(files) // 100)]:
        text = path.read_bytes().decode("utf-8", "replace")
        counts = summary_of(path.name, text).counts
        if counts and not {"bad", "lib2to3"} & {part.partition("_")[0].partition("syntax")[0] for part in path.parts}:
            strange[os.fspath(path)] = counts
    assert strange == {}


# --- hostile encodings, from bytes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "names"),
    [
        (
            b"# -*- coding: latin-1 -*-\ndef caf\xe9_handler(): pass\ndef plain_one(): pass\n",
            ["café_handler", "plain_one"],
        ),
        (b"#!/usr/bin/python\r\n# vim: set fileencoding=cp1252 :\r\ndef \x8cuvre(): pass\r\n", ["Œuvre"]),
        ("# coding: shift_jis\ndef 関数(): pass\n".encode("shift_jis"), ["関数"]),
        (b"\xef\xbb\xbfdef with_bom(): pass", ["with_bom"]),
        (b"\xef\xbb\xbf# coding: latin-1\ndef caf\xc3\xa9(): pass", ["café"]),
        ("def wide(): pass\n".encode("utf-16"), ["wide"]),
        (b"x = 1\n# coding: latin-1\ndef caf\xc3\xa9(): pass\n", ["café"]),  # PEP 263: code stands before the cookie
        (b"\xef\xbb\xbf", []),
        (b"", []),
        (b"# \xff\ndef after(): pass", ["after"]),
        ("def cafe\u0301(): ...\ndef g(): caf\u00e9()".encode(), ["café", "g"]),
        (b"def mac():\r  pass\rdef end(): pass\r", ["mac", "end"]),
    ],
)
def test_all_definitions_are_found_in_hostile_encodings(data: bytes, names: list[str]) -> None:
    document = parse("x.py", data)
    summary = reading.read("x.py", document.text, document.media_type)
    assert summary is not None
    assert [symbol.qualname for symbol in summary.symbols] == names


@pytest.mark.parametrize(
    ("path", "media_type", "language"),
    [
        ("a/b.py", "", "python"), ("b.PYI", "", "python"), ("b", "text/x-py", "python"), ("b.go", "", "go"),
        ("b.txt", "text/x-rs; charset=utf-8", "rust"), ("b.md", "text/markdown", ""), ("py", "", ""), ("b.rb", "text/x-rb", ""),
    ],
)  # fmt: skip
def test_the_language_follows_from_media_type_or_name(path: str, media_type: str, language: str) -> None:
    assert language_of(path, media_type) == language
    summary = reading.read(path, "", media_type)
    assert (None if summary is None else summary.language) == (language or None)


def test_the_order_of_evaluation_is_kept() -> None:
    text = "a()\nb = c(d())\nreturn e(f=g())\n"
    assert body(text) == (
        Evaluate(call("a")),
        Assign((Name("b"),), call("c", call("d", line=2), line=2)),
        Return(Call(Name("e"), (), (("f", call("g", line=3)),), 3)),
    )
    assert body("raise f()")[0] == Raise(call("f"))
