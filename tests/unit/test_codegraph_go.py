"""Go: what a file says, in forms and symbols; and that no text is too strange or too deep."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.codegraph.go.frontend import package_name
from pipeline.codegraph.summary import (
    Assign,
    Attribute,
    Block,
    Branch,
    Call,
    Choice,
    Class,
    Constant,
    Define,
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
    Return,
    Sequence,
    Star,
    Statement,
    This,
)
from tests.frontends import damaged, summary_of

UNKNOWN = Opaque()
NIL = Constant(None, "nil")


def body(text: str) -> Block:
    return summary_of("x.go", "package p\n" + text).body


def inside(text: str) -> Block:
    """Return the statements of a function's body that stands in line 2."""
    (define,) = body("func f(s T) { " + text + " }")
    assert isinstance(define, Define)
    return define.function.body


def value(text: str) -> Expression | None:
    (assign,) = inside(f"x = {text}")
    assert isinstance(assign, Assign)
    return assign.value


def call(name: str, *arguments: Expression, line: int = 2) -> Call:
    return Call(Name(name), arguments, line=line)


def assign(name: str, form: Expression | None, kind: Expression | None = None) -> Assign:
    return Assign((Name(name),), form, kind)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("a.b", Attribute(Name("a"), "b")),
        ("f(a, b...)", call("f", Name("a"), Star(Name("b")))),
        ("a.b(c)[0]", Index(Call(Attribute(Name("a"), "b"), (Name("c"),), line=2), Constant(0, "int"))),
        ("&a", Name("a")),
        ("(*a).b", Attribute(Name("a"), "b")),
        ("!f()", Opaque((call("f"),))),
        ("<-c", Index(Name("c"), UNKNOWN)),
        ("a[1:f()]", Choice((Name("a"),), (call("f"),))),
        ("a + f() + b", Opaque((call("f"),))),
        ('"k"', Constant("k", "string")),
        ('"\\n"', Constant(None, "string")),
        ("`k`", Constant("k", "string")),
        ("T{A: 1, B: f()}", Call(Name("T"), (), (("A", Constant(1, "int")), ("B", call("f"))), 2, True)),
        ("&pkg.T{}", Call(Attribute(Name("pkg"), "T"), line=2, new=True)),
        ("[]T{{A: 1}, t}", Sequence((Call(Name("T"), (), (("A", Constant(1, "int")),), 2, True), Name("t")))),
        ("[]T{}", Instance(Sequence((Name("T"),)))),
        ('map[string]T{"a": {}, k: t}', Mapping((("a", Call(Name("T"), line=2, new=True)), (None, Name("t"))))),
        ("make([]T, f())", Choice((Instance(Sequence((Name("T"),))),), (call("f"),))),
        ("new(T)", Instance(Name("T"))),
        ("x.(*T)", Instance(Name("T"))),
        ("[]byte(f())", Choice((Instance(Sequence((Name("byte"),))),), (call("f"),))),
        ("f[int](a)", call("f", Name("a"))),
        (
            "func(a T) pkg.R { return g(a) }",
            Lambda(
                Function(
                    "f.<lambda1>", (Parameter("a", "", None, Name("T")),), (Return(call("g", Name("a"))),),
                    Attribute(Name("pkg"), "R"), bound=True,
                )
            ),
        ),
    ],
)  # fmt: skip
def test_an_expression_has_its_form(text: str, form: Expression) -> None:
    assert value(text) == form


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("x, y := f()", Assign((Sequence((Name("x"), Name("y"))),), call("f"))),
        ("x, ok := a.(T)", Assign((Sequence((Name("x"), Name("ok"))),), Sequence((Instance(Name("T")), UNKNOWN)))),
        ("x, ok := m[k]", Assign((Sequence((Name("x"), Name("ok"))),), Sequence((Index(Name("m"), Name("k")), UNKNOWN)))),
        ("var x *T", assign("x", None, Name("T"))),
        ("var x map[string][]T", assign("x", None, Index(Name("map"), Sequence((Name("string"), Sequence((Name("T"),))))))),
        ("x += f()", Assign((Name("x"),), call("f"), augmented=True)),
        ("defer f()", Evaluate(call("f"))),
        ("go a.f()", Evaluate(Call(Attribute(Name("a"), "f"), line=2))),
        ("c <- f()", Evaluate(Opaque((call("f"),)))),
        ("return a, nil", Return(Sequence((Name("a"), NIL)))),
        ("for f() { g() }", Loop((Evaluate(call("f")), Evaluate(call("g"))))),
        ("l: for { f() }", Loop((Evaluate(call("f")),))),
        ("for range f() { g() }", Loop((Evaluate(call("g")),), None, call("f"))),
        ("for _, x = range a { x() }", Loop((Evaluate(call("x")),), Name("x"), Name("a"))),
        ("switch a { case f(): g(); default: h() }", Branch(
            ((Evaluate(call("f")), Evaluate(call("g"))), (Evaluate(call("h")),)), True
        )),
        ("if a { f() }", Branch(((Evaluate(call("f")),),))),
        ("select { case c <- f(): g() }", Branch(((Evaluate(Opaque((call("f"),))), Evaluate(call("g"))),), True)),
        ("type t struct{}", Class("t", "f.t", kind="struct")),
    ],
)  # fmt: skip
def test_a_statement_has_its_form(text: str, form: Statement) -> None:
    assert inside(text) == (form,)


def test_a_name_of_a_block_is_no_name_of_the_function() -> None:
    """What hides a name gets a name of its own; what is free stays what it is."""
    text = "x := s; if x := g(); x.ok() { x.a() } else { x.b() }; x.c(); { y := 1; y() }; y()"
    inner = Name("x@1")
    assert inside(text) == (
        assign("x", Name("s")),
        Assign((inner,), call("g")),
        Evaluate(Call(Attribute(inner, "ok"), line=2)),
        Branch(
            (
                (Evaluate(Call(Attribute(inner, "a"), line=2)),),
                (Evaluate(Call(Attribute(inner, "b"), line=2)),),
            ),
            True,
        ),
        Evaluate(Call(Attribute(Name("x"), "c"), line=2)),
        assign("y@2", Constant(1, "int")),
        Evaluate(call("y@2")),
        Evaluate(call("y")),
    )


def test_a_local_name_may_hide_a_package() -> None:
    assert inside("url := url.Parse(s); url.Go()") == (
        assign("url@1", Call(Attribute(Name("url"), "Parse"), (Name("s"),), line=2)),
        Evaluate(Call(Attribute(Name("url@1"), "Go"), line=2)),
    )


def test_a_type_switch_narrows() -> None:
    (branch,) = inside("switch v := s.(type) { case *A: v.a(); case B, p.C: v.b(); default: v.c() }")
    assert isinstance(branch, Branch)
    assert [arm[0].value for arm in branch.arms if isinstance(arm[0], Assign)] == [
        Instance(Name("A")),
        Choice((Instance(Name("B")), Instance(Attribute(Name("p"), "C")))),
        Name("s"),
    ]


def test_a_range_binds_the_element() -> None:
    assert inside("for i, v := range s { v.f() }") == (
        Loop((Evaluate(Call(Attribute(Name("v@2"), "f"), line=2)),), Name("v@2"), Name("s")),
    )
    assert inside("for i := range s { f(i) }") == (Loop((Evaluate(call("f", Name("i@1"))),), None, Name("s")),)


def test_imports() -> None:
    text = 'import (\n"fmt"\n. "math"\n_ "x/y"\nal "a.b/c"\n"gopkg.in/yaml.v2"\n)\nimport "C"'
    assert body(text) == (
        Import("fmt", "fmt", 0, 3),
        From("math", (("*", "*"),), 0, 4),
        Import("x/y", "", 0, 5),
        Import("a.b/c", "al", 0, 6),
        Import("gopkg.in/yaml.v2", "yaml", 0, 7),
        Import("C", "C", 0, 9),
    )
    names = ["a/b", "a/b/v2", "gopkg.in/b.v3", "github.com/x/go-b", "b"]
    assert [package_name(name) for name in names] == ["b"] * 5


def test_a_struct_has_fields_and_what_it_embeds() -> None:
    (found,) = body('type T[K any] struct {\n*Base\npkg.Other\nA, B []Foo `json:"a"`\nc K\nf func(int) string\n}')
    other = Attribute(Name("pkg"), "Other")
    assert found == Class(
        "T", "T", ((Name("Base"), 3), (other, 4)),
        (
            assign("Base", None, Name("Base")), assign("Other", None, other), assign("A", None, Sequence((Name("Foo"),))),
            assign("B", None, Sequence((Name("Foo"),))), assign("c", None, UNKNOWN), assign("f", None, UNKNOWN),
        ),
        kind="struct",
    )  # fmt: skip


def test_an_interface_has_methods_and_bases() -> None:
    (found,) = body("type I interface {\nBase\nM(a int) (R, error)\n~int | string\n}")
    method = Function(
        "I.M", (Parameter("a", "", None, Name("int")),), (), Sequence((Name("R"), Name("error"))), "method"
    )
    assert found == Class("I", "I", ((Name("Base"), 3),), (Define("M", method),), kind="interface")


def test_other_types() -> None:
    kind, alias = body("type E int\ntype A = p.T")
    assert kind == Class("E", "E", kind="class")
    assert alias == assign("A", Attribute(Name("p"), "T"))


def test_a_method_names_its_receiver() -> None:
    (define,) = body("func (t *T[K]) M(a, b int, c ...K) (r R, err error) { t.m(); return }")
    assert define == Define(
        "M",
        Function(
            "T.M",
            (Parameter("a", "", None, Name("int")), Parameter("b", "", None, Name("int")), Parameter("c", "*", None, UNKNOWN)),
            (
                assign("t", This()), assign("r", None, Name("R")), assign("err", None, Name("error")),
                Evaluate(Call(Attribute(Name("t"), "m"), line=2)), Return(Sequence((Name("r"), Name("err")))),
            ),
            Sequence((Name("R"), Name("error"))), "method", "T",
        ),
    )  # fmt: skip


def test_a_constraint_is_the_type_of_what_it_bounds() -> None:
    (define,) = body("func F[A Iface, B any](a A, b B) A {}")
    assert isinstance(define, Define)
    assert [each.type for each in define.function.parameters] == [Name("Iface"), UNKNOWN]
    assert define.function.returns == Name("Iface")


def test_declarations_come_before_variables() -> None:
    """The order of a package's declarations means nothing: a variable may use what stands below it."""
    kinds = [type(each).__name__ for each in body('var x, y T = f(), 2\nfunc f() {}\ntype T int\nimport "a"')]
    assert kinds == ["Define", "Class", "Import", "Assign", "Assign", "Assign"]


SOURCE = """// Package store keeps things.
package store

import "fmt"

// Store keeps ü.
//
// More.
type Store struct {
	items map[string]*Item
}

type (
	// Item is one.
	Item struct{ name string }
	Keeper interface {
		// Keep it.
		Keep(i Item)
	}
)

// not its documentation

func New() *Store { return &Store{items: map[string]*Item{}} }

/* Add adds. */
func (s *Store) Add(name string) {
	for _, i := range s.items {
		if i, ok := find(i.name); ok {
			go func() { i.touch() }()
		}
	}
	switch x := any(s).(type) {
	case Keeper:
		x.Keep(Item{name})
	}
	fmt.Println(name)
}
"""


def test_symbols_have_lines_offsets_signature_and_documentation() -> None:
    summary = summary_of("a/store.go", SOURCE)
    assert (summary.package, summary.doc, summary.exports) == ("store", "Package store keeps things.", None)
    found = {symbol.qualname: symbol for symbol in summary.symbols}
    assert list(found) == ["Store", "Item", "Keeper", "Keeper.Keep", "New", "Store.Add"]
    kinds = {name: symbol.kind for name, symbol in found.items()}
    assert list(kinds.values()) == ["struct", "struct", "interface", "method", "function", "method"]
    docs = [symbol.doc for symbol in found.values()]
    assert docs == ["Store keeps ü.", "Item is one.", "", "Keep it.", "", "Add adds."]
    add = found["Store.Add"]
    assert (add.parent, add.signature) == ("Store", "func (s *Store) Add(name string) {")
    assert SOURCE[add.start : add.end].startswith("func (s *Store) Add")
    assert SOURCE[add.start : add.end].endswith("}")
    assert found["Store"].signature == "type Store struct {"
    assert SOURCE[found["Item"].start : found["Item"].end] == "Item struct{ name string }"


def test_definitions_around_a_syntax_error_are_found() -> None:
    summary = summary_of("x.go", "package p\nfunc a() { f() }\nfunc broken( {\n}\nfunc b() { g() }\n")
    assert {"a", "b"} <= {symbol.qualname for symbol in summary.symbols}
    assert summary.counts["syntax_error"] >= 1


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "(" * 5_000 + ")" * 5_000,
        "a" + ".a()" * 5_000,
        "f(" * 500 + ")" * 500,
        "x = " + "&" * 5_000 + "a",
        "{" * 500 + "}" * 500,
        "func() {" * 500 + "}()" * 500,
        "x = T{" + "{" * 500 + "}" * 500 + "}",
        "var x " + "[]" * 500 + "T",
        "switch { case a(): " * 300 + "}" * 300,
        "if a { } " + "else if b() { } " * 2_000,
        "if a { } " + "else if x := b(); x { } " * 1_000,
        "x = 1" + " + f()" * 3_000,
    ],
)
def test_nesting_is_bounded_and_counted(text: str) -> None:
    summary = summary_of("x.go", "package p\nfunc f() {\n" + text + "\n}\n")
    assert set(summary.counts) <= {"nested_too_deeply", "syntax_error"}


@given(st.text(max_size=200))
@settings(max_examples=100, deadline=None)
@example("func")
@example("package p; func () M() {}")
@example("package p; type")
@example("package p; func f() { x := }")
@example('package p; import "')
def test_any_text_is_read(text: str) -> None:
    summary_of("x.go", text)


@given(damaged([SOURCE]))
@settings(max_examples=100, deadline=None)
def test_damaged_files_are_read(text: str) -> None:
    summary_of("x.go", text)
