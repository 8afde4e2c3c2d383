"""Rust: which file a path means, and to what names lead in other files."""

from __future__ import annotations

import pytest

from pipeline.codegraph.links import External, Found, Missing, Place
from pipeline.codegraph.rust.rules import RustRules
from tests.code_corpus import corpus, edges

FILES = {
    "Cargo.toml": '[package]\nname = "my-app"\n',
    "src/lib.rs": "pub mod a;",
    "src/main.rs": "",
    "src/a.rs": "pub mod b;",
    "src/a/b.rs": "",
    "src/c/mod.rs": "",
    "src/c/d.rs": "",
    "src/bin/tool.rs": "mod part;",
    "src/bin/part.rs": "",
    "tests/it.rs": "mod common;",
    "tests/common/mod.rs": "",
    "other/Cargo.toml": '[package]\nname = "x"\n[lib]\nname = "other_one"\n',
    "other/src/lib.rs": "",
    "broken/Cargo.toml": "[package",
}


def file(path: str) -> Place:
    return Place(path, (path,))


@pytest.mark.parametrize(
    ("module", "importer", "found"),
    [
        ("crate", "src/a/b.rs", file("src/lib.rs")),
        ("crate::a::b", "src/c/mod.rs", file("src/a/b.rs")),
        ("crate::c::d", "src/main.rs", file("src/c/d.rs")),
        ("crate::gone", "src/a.rs", Missing("crate::gone")),
        ("crate", "src/bin/tool.rs", file("src/bin/tool.rs")),
        ("self::part", "src/bin/tool.rs", file("src/bin/part.rs")),
        ("self::b", "src/a.rs", file("src/a/b.rs")),
        ("self::d", "src/c/mod.rs", file("src/c/d.rs")),
        ("self::common", "tests/it.rs", file("tests/common/mod.rs")),
        ("super", "src/a/b.rs", file("src/a.rs")),
        ("super", "src/c/d.rs", file("src/c/mod.rs")),
        ("super", "src/c/mod.rs", file("src/lib.rs")),
        ("super::super::c", "src/a/b.rs", file("src/c/mod.rs")),
        ("super", "src/lib.rs", Missing("super")),
        ("my_app::a", "tests/it.rs", file("src/a.rs")),
        ("other_one", "src/a.rs", file("other/src/lib.rs")),
        ("x", "src/a.rs", External("x")),
        ("std::io", "src/a.rs", External("std.io")),
        ("::std::io", "src/a.rs", External("std.io")),
    ],
)
def test_a_path_means_a_file(module: str, importer: str, found: Found) -> None:
    assert RustRules().module(module, 0, importer, corpus(FILES)) == found


def test_modules_below_and_around() -> None:
    files = corpus(FILES)
    assert RustRules().below(file("src/a.rs"), "b", "src/lib.rs", files) == file("src/a/b.rs")
    assert RustRules().below(file("src/a.rs"), "z", "src/lib.rs", files) is None
    assert RustRules().around("src/a.rs", files) is None


PROGRAM = {
    "Cargo.toml": '[package]\nname = "app"\n',
    "src/lib.rs": """pub mod store;
mod util;
pub use store::Store;
pub fn top() { util::help(); Store::new().add("x"); }
""",
    "src/util.rs": """use std::fs;
pub fn help() { crate::top(); fs::read("x"); super::store::free(); std::mem::swap(1, 2); }
""",
    "src/store/mod.rs": """use crate::util::{self, help as h};
mod item;
use self::item::Item;
pub trait Keep: Base { fn keep(&self) { self.done() } fn done(&self); }
pub trait Base {}
pub struct Store { items: Vec<Item>, first: Option<Box<Item>> }
impl Store {
    pub fn new() -> Self { Store { items: vec![], first: None } }
    pub fn add(&mut self, name: &str) -> Option<&Item> {
        util::help();
        h();
        self.items.first()
    }
}
impl Keep for Store { fn done(&self) {} }
pub fn free() { kept(&Store::new()) }
fn kept<T: Keep>(t: &T) { t.keep(); }
fn looped(s: &Store) { for each in s.items.iter() { each.touch(); } }
fn bound(s: &Store) { if let Some(x) = &s.first { x.touch(); } }
fn taken(s: &Store) { s.first.unwrap().touch(); }
fn tried(s: &Store) -> Option<u8> { s.first?.touch(); None }
fn closed() { let c = |i: &Item| i.touch(); c(Item::make()); }
#[cfg(test)]
mod tests {
    use super::*;
    fn free() {}
    fn test() { Store::new(); free(); super::free(); }
}
""",
    "src/store/item.rs": """pub struct Item { name: String }
impl Item {
    pub fn make() -> Item { Item { name: String::new() } }
    pub fn touch(&self) { super::free(); serde_json::to_string(self); }
}
""",
    "tests/it.rs": """use app::Store;
mod common;
fn test() { let s = Store::new(); common::setup(); app::top(); }
""",
    "tests/common/mod.rs": "pub fn setup() {}",
}


def test_calls_lead_over_paths_types_and_traits() -> None:
    store, item = "src/store/mod.rs", "src/store/item.rs::Item"
    assert set(edges(PROGRAM)) == {
        ("src/lib.rs::top", "src/util.rs::help"),
        ("src/lib.rs::top", f"{store}::Store.new"),
        ("src/lib.rs::top", f"{store}::Store.add"),
        ("src/util.rs::help", "src/lib.rs::top"),
        ("src/util.rs::help", f"{store}::free"),
        (f"{store}::Store.add", "src/util.rs::help"),
        (f"{store}::Store.new", f"{store}::Store"),
        (f"{store}::Keep.keep", f"{store}::Keep.done"),
        (f"{store}::Keep.keep", f"{store}::Store.done"),  # since it is called on a `Store`
        (f"{store}::free", f"{store}::Store.new"),
        (f"{store}::free", f"{store}::kept"),
        (f"{store}::kept", f"{store}::Keep.keep"),
        *((f"{store}::{name}", f"{item}.touch") for name in ("looped", "bound", "taken", "tried", "closed")),
        (f"{store}::closed", f"{item}.make"),
        (f"{store}::tests.test", f"{store}::Store.new"),
        (f"{store}::tests.test", f"{store}::tests.free"),
        (f"{store}::tests.test", f"{store}::free"),
        (f"{item}.make", item),
        (f"{item}.touch", f"{store}::free"),
        ("tests/it.rs::test", f"{store}::Store.new"),
        ("tests/it.rs::test", "tests/common/mod.rs::setup"),
        ("tests/it.rs::test", "src/lib.rs::top"),
    }
    assert set(edges(PROGRAM, "inherits")) == {
        (f"{store}::Store", f"{store}::Keep"),
        (f"{store}::Keep", f"{store}::Base"),
    }
    assert set(edges(PROGRAM, "calls", "external")) == {
        ("src/util.rs::help", "std.fs.read"),
        ("src/util.rs::help", "std.mem.swap"),
        (f"{item}.touch", "serde_json.to_string"),
    }


def test_imports_are_edges_to_files() -> None:
    found = set(edges(PROGRAM, "imports"))
    assert found >= {
        ("src/lib.rs", "src/util.rs"),
        ("src/lib.rs", "src/store/mod.rs"),
        ("src/util.rs", "src/lib.rs"),
        ("src/store/mod.rs", "src/util.rs"),
        ("src/store/mod.rs", "src/store/item.rs"),
        ("tests/it.rs", "src/lib.rs"),
        ("tests/it.rs", "tests/common/mod.rs"),
    }
