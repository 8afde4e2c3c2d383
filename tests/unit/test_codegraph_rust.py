"""Rust: what a file says, in forms and symbols; and that no text is too strange or too deep."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.codegraph.summary import (
    Assign,
    Attribute,
    Awaited,
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
    This,
)
from tests.frontends import damaged, summary_of

UNKNOWN = Opaque()


def body(text: str) -> Block:
    return summary_of("x.rs", text).body


def inside(text: str) -> Block:
    """Return the statements of a function's body; its parameter is `s`."""
    define = body("fn f(s: T) { " + text + " }")[-1]
    assert isinstance(define, Define)
    return define.function.body


def value(text: str) -> Expression | None:
    (result,) = inside(text)
    assert isinstance(result, Return)
    return result.value


def call(of: str | Expression, *arguments: Expression, new: bool = False) -> Call:
    return Call(Name(of) if isinstance(of, str) else of, arguments, line=1, new=new)


def method(of: str | Expression, name: str, *arguments: Expression) -> Call:
    return call(Attribute(Name(of) if isinstance(of, str) else of, name), *arguments)


def assign(name: str, form: Expression | None, kind: Expression | None = None) -> Assign:
    return Assign((Name(name),), form, kind)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("a.b", Attribute(Name("a"), "b")),
        ("A::b", Attribute(Name("A"), "b")),
        ("f(a)", call("f", Name("a"))),
        ("a.b::<T>(c)", method("a", "b", Name("c"))),
        ("A::<T>::b()", method("A", "b")),
        ("<A as Tr>::b()", method("A", "b")),
        ("&mut *a", Name("a")),
        ("-f()", Opaque((call("f"),))),
        ("a + f() + b", Opaque((call("f"),))),
        ("f()?", Index(call("f"), UNKNOWN)),
        ("f().await", Awaited(call("f"))),
        ("a.clone().b()", method("a", "b")),
        ("a.unwrap()", Choice((Index(Name("a"), UNKNOWN), method("a", "unwrap")))),
        ("Some(f())", Sequence((call("f"),))),
        ("Box::new(a)", Name("a")),
        ("E::V(f())", Choice((Instance(Name("E")),), (call("f"),))),
        ("E::V { a: f() }", Choice((Instance(Name("E")),), (call("f"),))),
        ("Tup(a)", call("Tup", Name("a"), new=True)),
        ("S { a: b, c, ..d() }", Call(
            Name("S"), (), (("a", Name("b")), ("c", Name("c")), ("**", call("d"))), 1, True
        )),
        ("a as T", Instance(Name("T"))),
        ("[a, b]", Sequence((Name("a"), Name("b")))),
        ("(a, b)", Sequence((Name("a"), Name("b")))),
        ("a[0]", Index(Name("a"), Constant(0, "int"))),
        ('"k"', Constant("k", "str")),
        ('r#"k"#', Constant("k", "str")),
        ("vec![f(), a]", Sequence((call("f"), Name("a")))),
        ('format!("{}", a.b())', Choice((Constant(None, "String"),), (method("a", "b"),))),
        ('println!("{}", a.b())', Opaque((method("a", "b"),))),
        ("|a, b: T| a.g()", Lambda(
            Function(
                "f.<lambda1>", (Parameter("a"), Parameter("b", "", None, Name("T"))), (Return(method("a", "g")),), bound=True
            )
        )),
    ],
)  # fmt: skip
def test_an_expression_has_its_form(text: str, form: Expression) -> None:
    assert value(text) == form


@pytest.mark.parametrize(
    ("text", "forms"),
    [
        ("let x: Box<T> = f();", (assign("x", call("f"), Name("T")),)),
        ("let x; x = f();", (assign("x", None), assign("x", call("f")))),
        ("x += f();", (Assign((Name("x"),), call("f"), augmented=True),)),
        ("let (a, _) = f();", (
            assign("<value1>", call("f")), assign("a", Index(Name("<value1>"), Constant(0, "int"))),
        )),
        ("let Some(a) = s else { return g(); };", (
            Branch(((Return(call("g")),),)), assign("a", Index(Name("s"), UNKNOWN)),
        )),
        ("let S { a, b: Tup(c) } = s;", (
            assign("a", Attribute(Instance(Name("S")), "a")), assign("c", Attribute(Instance(Name("Tup")), "0")),
        )),
        ("return f();", (Return(call("f")),)),
        ("unsafe { f() };", (Evaluate(call("f")),)),
        ("while f() { g(); }", (Loop((Evaluate(call("f")), Evaluate(call("g")))),)),
        ("while let Some(x) = s { x.f(); }", (
            Loop((assign("x@1", Index(Name("s"), UNKNOWN)), Evaluate(method("x@1", "f")))),
        )),
        ("loop { break f(); }", (Loop((Evaluate(call("f")),)),)),
        ("for x in s.iter() { x.f(); }", (
            Loop((Evaluate(method("x@1", "f")),), Name("x@1"), Choice((Name("s"), method("s", "iter")))),
        )),
        ("for (i, x) in f() { }", (Loop(
            (
                assign("i@1", Index(Name("<value1>"), Constant(0, "int"))),
                assign("x@2", Index(Name("<value1>"), Constant(1, "int"))),
            ),
            Name("<value1>"), call("f"),
        ),)),
        ("if let Some(x) = s && x.ok() { x.f(); } else { g(); };", (Branch((
            (assign("x@1", Index(Name("s"), UNKNOWN)), Evaluate(method("x@1", "ok")), Evaluate(method("x@1", "f"))),
            (Evaluate(call("g")),),
        ), True),)),
        ("fn g() { h() } g();", (
            Define("g", Function("f.g", body=(Return(call("h")),))), Evaluate(call("g")),
        )),
    ],
)  # fmt: skip
def test_a_statement_has_its_form(text: str, forms: Block) -> None:
    assert inside(text) == forms


def test_a_branch_gives_its_value_through_a_name() -> None:
    assert inside("let x = if a() { b } else { c() }; x.d()") == (
        Branch(((Evaluate(call("a")), assign("<value1>", Name("b"))), (assign("<value1>", call("c")),)), True),
        assign("x", Name("<value1>")),
        Return(method("x", "d")),
    )


def test_a_match_binds_in_its_arms() -> None:
    text = "match f() { Some(x) if x.ok() => x.a(), E::V(y) => { y.b() } n @ (A | B) => n.c(), _ => d() };"
    subject = Name("<value1>")
    assert inside(text) == (
        assign("<value1>", call("f")),
        Branch(
            (
                (assign("x@1", Index(subject, UNKNOWN)), Evaluate(method("x@1", "ok")), Evaluate(method("x@1", "a"))),
                (assign("y@2", UNKNOWN), Evaluate(method("y@2", "b"))),
                (assign("n@3", subject), Evaluate(method("n@3", "c"))),
                (Evaluate(call("d")),),
            ),
            True,
        ),
    )


def test_a_new_binding_is_a_new_name() -> None:
    assert inside("let x = s.a(); let x = x.b(); { let x = 1; } x.c();") == (
        assign("x", method("s", "a")),
        assign("x@1", method("x", "b")),
        assign("x@2", Constant(1, "int")),
        Evaluate(method("x@1", "c")),
    )


@pytest.mark.parametrize(
    ("text", "forms"),
    [
        ("use std::io;", (From("std", (("io", "io"),), 0, 1),)),
        ("use serde;", (Import("serde", "serde", 0, 1),)),
        ("use a::b::{self, c as d, e::*, f::{g}};", (
            From("a", (("b", "b"),), 0, 1), From("a::b", (("c", "d"),), 0, 1), From("a::b::e", (("*", "*"),), 0, 1),
            From("a::b::f", (("g", "g"),), 0, 1),
        )),
        ("pub use crate::x::Y;", (From("crate::x", (("Y", "Y"),), 0, 1, True),)),
        ("use super::z as _;", (From("super", (("z", ""),), 0, 1),)),
        ("use ::a::b;", (From("::a", (("b", "b"),), 0, 1),)),
        ("extern crate a as b;", (Import("a", "b", 0, 1),)),
        ("mod m;", (Import("self::m", "m", 0, 1),)),
        ("use a::A; pub use A as B;", (From("a", (("A", "A"),), 0, 1), assign("B", Name("A")))),
        ("use a::E::{V, W as X};", (
            From("a", (("E", "<path1>"),), 0, 1), assign("V", Attribute(Name("<path1>"), "V")),
            assign("X", Attribute(Name("<path1>"), "W")),
        )),
        ("mod m; pub use m::X;", (
            Import("self::m", "m", 0, 1), assign("X", Attribute(Name("m"), "X")),
        )),
    ],
)  # fmt: skip
def test_imports(text: str, forms: Block) -> None:
    assert body(text) == forms


def test_paths_of_the_crate_are_imported_for_the_expression() -> None:
    """By convention the first part in capitals is a type, and what is behind it is its own."""
    found = body("fn f() {\ncrate::a::b::g();\nsuper::T::new();\ncrate::a::b::g() }")
    assert found[:2] == (
        From("crate::a::b", (("g", "<path1>"),), 0, 2),
        From("super", (("T", "<path2>"),), 0, 3),
    )
    define = found[2]
    assert isinstance(define, Define)
    assert [each.value.of for each in define.function.body if isinstance(each, Evaluate) and isinstance(each.value, Call)] == [
        Name("<path1>"), Attribute(Name("<path2>"), "new"),
    ]  # fmt: skip


def test_a_free_name_before_a_path_is_another_crate() -> None:
    """Unless a star may bring it, or it is a name of the function."""
    imported = body("fn f() { serde_json::to_string(1); std::mem::swap(a, b); u8::from(1) }")
    assert imported[:2] == (
        From("serde_json", (("to_string", "<path1>"),), 0, 1),
        From("std::mem", (("swap", "<path2>"),), 0, 1),
    )
    assert len(imported) == 3
    assert len(body("use a::*; fn f() { b::c() }")) == 2
    assert inside("use std::mem; mem::swap()") == (
        From("std", (("mem", "mem"),), 0, 1),
        Return(method("mem", "swap")),
    )


def test_a_module_within_the_file_is_a_set_of_names() -> None:
    text = """fn f() { m::g() }
mod m {
    use super::*;
    pub fn g() { h(); f(); super::f() }
    fn h() {}
    mod n { use super::h; fn i() { h() } }
}"""
    by_name = {each.name: each.function for each in body(text) if isinstance(each, Define)}
    assert by_name["f"].body == (Return(call("m.g")),)
    calls = [each.value for each in by_name["m.g"].body if isinstance(each, Evaluate | Return)]
    assert [each.of for each in calls if isinstance(each, Call)] == [Name("m.h"), Name("f"), Name("f")]
    assert by_name["m.n.i"].body == (Return(Call(Name("m.h"), line=6)),)
    names = {each.targets[0]: each.value for each in body(text) if isinstance(each, Assign)}
    inner = Mapping((("g", Name("m.g")), ("h", Name("m.h")), ("n", Name("m.n"))))
    assert names[Name("m")] == inner
    assert [symbol.qualname for symbol in summary_of("x.rs", text).symbols] == ["f", "m.g", "m.h", "m.n.i"]


def test_types_are_what_a_method_call_sees() -> None:
    text = """mod m; struct S<T: Tr> {
    a: i32, b: Vec<Foo>, c: &'a mut Bar, d: Option<Box<dyn Tr>>, e: Arc<m::X>, f: HashMap<K, V>, g: T, h: [Foo; 2],
    i: fn() -> A, j: (A, B), k: Foo<A>,
}"""
    found = body(text)[-1]
    assert isinstance(found, Class)
    types = {each.targets[0]: each.type for each in found.body if isinstance(each, Assign)}
    assert [types[Name(name)] for name in "abcdefghijk"] == [
        Name("i32"), Sequence((Name("Foo"),)), Name("Bar"), Sequence((Name("Tr"),)), Attribute(Name("m"), "X"),
        Index(Name("map"), Sequence((Name("K"), Name("V")))), Name("Tr"), Sequence((Name("Foo"),)), UNKNOWN,
        Sequence((Name("A"), Name("B"))), Name("Foo"),
    ]  # fmt: skip


def test_an_own_type_of_a_common_name_is_no_container() -> None:
    found = body("struct Option<T> { t: T }\nfn f(a: Option<X>) {}")
    define = found[1]
    assert isinstance(define, Define)
    assert define.function.parameters[0].type == Name("Option")


def test_implementations_name_their_type() -> None:
    text = """impl<T> S<T> {
    pub fn new(a: i32) -> Self { Self { a } }
    async fn g(&mut self) -> Result<Foo, E> { self.h(); Self::new(1) }
}
impl Tr for S<u8> { type Item = X; fn m(&self) {} }
struct S<T> { t: T }
impl Tr for other::Q { fn m(&self) {} }
impl<T: Base> Tr for T { fn all(&self) {} }
"""
    found = body(text)
    functions = [each.function for each in found if isinstance(each, Define)]
    assert [(each.qualname, each.kind, each.receiver, each.coroutine) for each in functions] == [
        ("S.new", "static", "S", False), ("S.g", "method", "S", True), ("S.m", "method", "S", False),
        ("Q.m", "method", "other::Q", False), ("Tr.all", "method", "Tr", False),
    ]  # fmt: skip
    assert functions[0].parameters == (Parameter("a", "", None, Name("i32")),)
    assert functions[0].returns == Name("S")
    assert functions[0].body == (Return(Call(Name("S"), (), (("a", Name("a")),), 2, True)),)
    assert functions[1].body == (
        Evaluate(Call(Attribute(This(), "h"), line=3)),
        Return(Call(Attribute(Name("S"), "new"), (Constant(1, "int"),), line=3)),
    )
    assert functions[1].returns == Sequence((Name("Foo"),))
    (struct,) = (each for each in found if isinstance(each, Class))
    assert struct.bases == ((Name("Tr"), 5),)
    assert summary_of("x.rs", text).counts == {"foreign_impl": 2}


def test_traits_and_enums() -> None:
    trait, enum = body("trait Tr: Base + Send { fn a(&self) -> Self; fn b() { c() } }\nenum E { A, B(X), C { d: X } }")
    assert isinstance(trait, Class)
    assert (trait.kind, trait.bases) == ("trait", ((Name("Base"), 1), (Name("Send"), 1)))
    methods = [each.function for each in trait.body if isinstance(each, Define)]
    assert [(each.qualname, each.kind, each.returns) for each in methods] == [
        ("Tr.a", "method", Name("Tr")), ("Tr.b", "static", None),
    ]  # fmt: skip
    own = Instance(Name("E"))
    assert enum == Class("E", "E", body=(assign("A", own), assign("B", own), assign("C", own)), kind="enum")


SOURCE = """//! The store.
use std::fmt::{self, Display};

/// Keeps ü.
///
/// More.
#[derive(Debug, Clone)]
#[allow(dead_code)]
pub struct Store<'a, T: Display> where T: Clone {
    items: Vec<T>,
    name: &'a str,
}

// not its documentation
#[cfg(test)]
mod tests {
    use super::*;

    /** Adds. */
    #[test]
    fn adds() {
        let store = Store::new("x");
        assert_eq!(store.add(1), 2);
    }
}

impl<'a, T: Display> Store<'a, T> {
    /// Makes one.
    pub fn new(name: &'a str) -> Self { Store { items: vec![], name } }

    fn add(&mut self, item: T) -> Option<usize> {
        match self.items.iter().find(|each| each.same(&item)) {
            Some(found) => { found.touch()?; None }
            None if self.full() => return None,
            _ => { self.items.push(item); Some(self.items.len()) }
        }
    }
}

impl<T: Display> fmt::Display for Store<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result { write!(f, "{}", self.name) }
}

macro_rules! twice { ($x:expr) => { $x; $x } }
"""


def test_symbols_have_lines_offsets_signature_documentation_and_attributes() -> None:
    summary = summary_of("src/store.rs", SOURCE)
    assert (summary.doc, summary.exports, summary.counts) == ("The store.", None, {})
    found = {symbol.qualname: symbol for symbol in summary.symbols}
    assert list(found) == ["Store", "tests.adds", "Store.new", "Store.add", "Store.fmt"]
    assert [symbol.kind for symbol in found.values()] == ["struct", "function", "method", "method", "method"]
    assert [symbol.doc for symbol in found.values()] == ["Keeps ü.", "Adds.", "Makes one.", "", ""]
    store = found["Store"]
    assert store.decorators == ("derive(Debug, Clone)", "allow(dead_code)")
    assert SOURCE[store.start : store.end].startswith("#[derive")
    assert SOURCE[store.start : store.end].endswith("str,\n}")
    assert store.signature == "pub struct Store<'a, T: Display> where T: Clone {"
    assert (found["tests.adds"].parent, found["Store.new"].parent) == ("", "Store")
    assert SOURCE[found["Store.new"].start :].startswith("pub fn new")


def test_a_macro_that_is_no_list_of_expressions_is_counted() -> None:
    summary = summary_of("x.rs", "fn f() { m!(a => b; c); lazy! { static ref X: T = g(); } n!(h()) }")
    assert summary.counts == {"macro": 2}
    define = summary.body[0]
    assert isinstance(define, Define)
    assert define.function.body == (Return(Opaque((call("h"),))),)


def test_lines_within_macros_are_those_of_the_file() -> None:
    define = body("fn f() {\n  assert!(\n    g(),\n    vec![\n      h()]);\n}")[0]
    assert isinstance(define, Define)
    (evaluated,) = define.function.body
    assert evaluated == Evaluate(Opaque((Call(Name("g"), line=3), Sequence((Call(Name("h"), line=5),)))))


def test_definitions_around_a_syntax_error_are_found() -> None:
    summary = summary_of("x.rs", "fn a() { f() }\nfn broken( {\n}\nfn b() { g() }\n")
    assert "a" in {symbol.qualname for symbol in summary.symbols}
    assert summary.counts["syntax_error"] >= 1


@pytest.mark.parametrize(
    "text",
    [
        "let x = " + "(" * 5_000 + ")" * 5_000 + ";",
        "a" + ".a()" * 5_000,
        "f(" * 500 + ")" * 500,
        "!" * 5_000 + "a",
        "{" * 500 + "}" * 500,
        "|a| " * 500 + "a",
        "a()" + ".unwrap()" * 1_000,
        "a" + "?" * 5_000,
        "a" + "::a" * 5_000 + "()",
        "m!(" * 500 + ")" * 500,
        "return " * 1_000 + "a",
        "match x { A => " * 300 + "1" + "}" * 300,
        "if x { " * 300 + "}" * 300,
        "fn f() {" * 300 + "}" * 300,
        "let " + "(" * 500 + "a" + ",)" * 500 + " = x;",
        "let x: " + "Box<" * 500 + "T" + ">" * 500 + ";",
        "if a { } " + "else if b() { } " * 2_000,
        "if a { } " + "else if let Some(x) = b() { x() } " * 1_000,
    ],
)
def test_nesting_is_bounded_and_counted(text: str) -> None:
    summary = summary_of("x.rs", "fn f() {\n" + text + "\n}\n")
    assert set(summary.counts) <= {"nested_too_deeply", "syntax_error", "macro"}


@pytest.mark.parametrize("text", ["mod m {" * 300 + "}" * 300, "use " + "a::{" * 300 + "b" + "}" * 300 + ";"])
def test_nested_modules_are_bounded(text: str) -> None:
    summary_of("x.rs", text)


@given(st.text(max_size=200))
@settings(max_examples=100, deadline=None)
@example("fn")
@example("impl {}")
@example("use ;")
@example("use super;")
@example("use self::*;")
@example("mod m { use super::super::x; use self::y; }")
@example("fn f() { a!() }")
@example("fn f() { a!(]) }")
@example("struct r#fn { r#type: r#T }")
def test_any_text_is_read(text: str) -> None:
    summary_of("x.rs", text)


@given(damaged([SOURCE]))
@settings(max_examples=100, deadline=None)
def test_damaged_files_are_read(text: str) -> None:
    summary_of("x.rs", text)
