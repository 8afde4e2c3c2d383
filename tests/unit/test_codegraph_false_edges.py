"""Programs of Go, Rust and JavaScript that asked for a false edge: what is not known is counted, never picked."""

from __future__ import annotations

import pytest

from tests.code_corpus import corpus, edges, link_all

GO = {"go.mod": "module ex.com/m\n"}
EMBEDDED = """package p
import "net/http"
type Deep struct{}
func (d Deep) X() { d.y() }
func (d Deep) y() {}
func (d Deep) Shutdown() {}
type Left struct{ Deep }
func (l Left) y() {}
type Right struct{}
func (Right) X() {}
type Both struct { Left; Right }
func both(b Both) { b.X() }
type Served struct { *http.Server; Left }
func served(s Served) { s.Shutdown() }
func left(l Left) { l.X(); l.y(); l.Deep.y() }
"""
SYSTEMS = {
    **GO,
    "p/all.go": "package p\ntype T struct{}\nfunc run(t T) { open(); t.M(); once() }\n",
    "p/x_linux.go": "package p\nfunc open() { mine() }\nfunc mine() {}\nfunc (t T) M() { open() }\nfunc once() {}\n",
    "p/x_windows_amd64.go": "package p\nfunc open() { mine() }\nfunc mine() {}\nfunc (t T) M() { open() }\n",
    "p/near_linux_test.go": "package p\nfunc near() { open(); once() }\n",
    "p/near_android.go": "package p\nfunc on() { once() }\n",
    "q/use.go": 'package q\nimport "ex.com/m/p"\nfunc use() { p.Open() }\n',
    "p/open_unix.go": "//go:build unix\n\npackage p\nfunc Open() {}\n",
    "p/open_other.go": "//go:build !unix\n\npackage p\nfunc Open() {}\n",
}
CARGO = {"Cargo.toml": '[package]\nname = "k"\n'}
CONFIGURED = """pub struct A; pub struct B;
impl A { fn go(&self) {} #[cfg(unix)] fn pick(&self) -> A { A } #[cfg(not(unix))] fn pick(&self) -> B { B } }
impl B { fn go(&self) {} }
#[cfg(unix)] fn make() -> A { A }
#[cfg(windows)] fn make() -> B { B }
fn functions() { make().go(); }
#[cfg(unix)] mod system { pub fn make() -> super::A { super::A } }
#[cfg(windows)] mod system { pub fn make() -> super::B { super::B } }
fn modules() { system::make().go(); }
mod one { pub fn f() {} } mod two { pub fn f() {} }
#[cfg(unix)] use one as which;
#[cfg(windows)] use two as which;
fn names() { which::f(); }
fn methods() { A.pick().go(); }
#[cfg(feature = "more")] fn alone() -> A { A }
fn single() { alone().go(); }
"""
ELSEWHERE = {
    **CARGO,
    "src/lib.rs": "mod a;\nmod b;\nmod c;\n",
    "src/a.rs": "pub struct T;\nimpl T { pub fn f(&self) {} pub fn new() -> T { T } }\n",
    "src/b.rs": "pub struct T;\nimpl T { pub fn f(&self) {} }\nimpl crate::a::T { pub fn h(&self) { self.f() } }\n"
    "fn use_it(t: T) { t.f(); t.h(); }\n",
    "src/c.rs": "use crate::a::T;\nimpl T { pub fn g(&self) { self.f(); self.k(); Self::new(); } fn k(&self) {} }\n"
    "fn use_it(t: T) { t.g(); }\n",
}
PROGRAMS: dict[str, tuple[dict[str, str], str, set[str]]] = {
    "go: what is embedded does not see in what": ({**GO, "p/a.go": EMBEDDED}, "p/a.go::Deep.X", {"p/a.go::Deep.y"}),
    "go: what is embedded less deeply wins": ({**GO, "p/a.go": EMBEDDED}, "p/a.go::both", {"p/a.go::Right.X"}),
    "go: nothing is known below what is embedded from outside": ({**GO, "p/a.go": EMBEDDED}, "p/a.go::served", set()),
    "go: methods of what is embedded": (
        {**GO, "p/a.go": EMBEDDED},
        "p/a.go::left",
        {"p/a.go::Deep.X", "p/a.go::Left.y", "p/a.go::Deep.y"},
    ),
    "go: what several files define is ambiguous": (SYSTEMS, "p/all.go::run", {"p/x_linux.go::once"}),
    "go: a file's own definitions are its system's": (SYSTEMS, "p/x_linux.go::open", {"p/x_linux.go::mine"}),
    "go: methods of one system call what that has": (SYSTEMS, "p/x_linux.go::T.M", {"p/x_linux.go::open"}),
    "go: a file's name tells what is built with it": (
        SYSTEMS,
        "p/near_linux_test.go::near",
        {"p/x_linux.go::open", "p/x_linux.go::once"},
    ),
    "go: a system that takes another one's files": (SYSTEMS, "p/near_android.go::on", {"p/x_linux.go::once"}),
    "go: of other packages too": (SYSTEMS, "q/use.go::use", set()),
    "go: a program in a package's folder is none of it": (
        {
            **GO,
            "p/a.go": "package p\nfunc A() { helper(); Here() }\nfunc Here() {}\n",
            "p/gen.go": "//go:build ignore\n\npackage main\nfunc helper() {}\nfunc Here() {}\nfunc main() { helper() }\n",
            "q/q.go": 'package q\nimport "ex.com/m/p"\nfunc use() { p.Here() }\n',
        },
        "p/a.go::A",
        {"p/a.go::Here"},
    ),
    "go: nor for those who import the package": (
        {
            **GO,
            "p/a.go": "package p\nfunc A() {}\n",
            "p/gen.go": "package main\nfunc Here() {}\n",
            "q/q.go": 'package q\nimport "ex.com/m/p"\nfunc use() { p.Here(); p.A() }\n',
        },
        "q/q.go::use",
        {"p/a.go::A"},
    ),
    "rust: functions that are compiled for one system each": (
        {**CARGO, "src/lib.rs": CONFIGURED},
        "src/lib.rs::functions",
        {"src/lib.rs::make"},
    ),
    "rust: modules": ({**CARGO, "src/lib.rs": CONFIGURED}, "src/lib.rs::modules", {"src/lib.rs::system.make"}),
    "rust: names": (
        {**CARGO, "src/lib.rs": CONFIGURED},
        "src/lib.rs::names",
        {"src/lib.rs::one.f", "src/lib.rs::two.f"},
    ),
    "rust: methods": ({**CARGO, "src/lib.rs": CONFIGURED}, "src/lib.rs::methods", {"src/lib.rs::A.pick"}),
    "rust: one that may be left out": (
        {**CARGO, "src/lib.rs": CONFIGURED},
        "src/lib.rs::single",
        {"src/lib.rs::alone", "src/lib.rs::A.go"},
    ),
    "rust: an impl for a type of another file, beside one of its name": (
        ELSEWHERE,
        "src/b.rs::use_it",
        {"src/b.rs::T.f"},
    ),
    "rust: what such an impl calls": (ELSEWHERE, "src/b.rs::T.h", set()),
    "rust: an impl for a type that is imported": (
        ELSEWHERE,
        "src/c.rs::T.g",
        {"src/a.rs::T.f", "src/a.rs::T.new", "src/c.rs::T.k"},
    ),
    "rust: and who uses it": (ELSEWHERE, "src/c.rs::use_it", {"src/c.rs::T.g"}),
    "javascript: defaults are evaluated by calls": (
        {"a.js": "class C { m() {} }\nfunction f(x = new C(), y = g()) { x.m(); }\nfunction g() {}\n"},
        "a.js",
        set(),
    ),
    "javascript: in the function": (
        {"a.js": "class C { m() {} }\nfunction f(x = new C(), y = g()) { x.m(); }\nfunction g() {}\n"},
        "a.js::f",
        {"a.js::C", "a.js::C.m", "a.js::g"},
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_a_definition_calls_and_nothing_else(name: str) -> None:
    texts, source, expected = PROGRAMS[name]
    assert {target for each, target in edges(texts) if each == source} == expected


def test_what_is_ambiguous_is_counted() -> None:
    linked = link_all(corpus(SYSTEMS))
    assert linked["p/all.go"].unresolved["ambiguous"] == 2
    assert linked["q/use.go"].unresolved["ambiguous"] == 1
    assert link_all(corpus({**CARGO, "src/lib.rs": CONFIGURED}))["src/lib.rs"].unresolved["ambiguous"] == 3


def test_a_file_is_imported_with_all_files_of_a_package_that_may_be_built_with_it() -> None:
    texts = {
        **GO,
        "p/a.go": "package p\n",
        "p/a_linux.go": "package p\n",
        "p/a_windows.go": "package p\n",
        "p/a_test.go": "package p\n",
        "p/gen.go": "package main\n",
        "q/any.go": 'package q\nimport "ex.com/m/p"\nvar X = p.X\n',
        "q/any_linux.go": 'package q\nimport "ex.com/m/p"\nvar Y = p.Y\n',
    }
    imports = edges(texts, "imports")
    assert {target for source, target in imports if source == "q/any.go"} == {
        "p/a.go",
        "p/a_linux.go",
        "p/a_windows.go",
    }
    assert {target for source, target in imports if source == "q/any_linux.go"} == {"p/a.go", "p/a_linux.go"}
