"""Go: which package an import means, and to what names lead in other files."""

from __future__ import annotations

import pytest

from pipeline.codegraph.go.rules import GoRules
from pipeline.codegraph.links import External, Found, Missing, Place
from tests.code_corpus import corpus, edges

FILES = {
    "go.mod": "// A module.\nmodule example.com/app // here\n\ngo 1.24\n",
    "main.go": "package main",
    "errors/errors.go": "package errors",
    "store/a.go": "package store",
    "store/b.go": "package store",
    "store/a_test.go": "package store",
    "store/notes.md": "",
    "vendor/github.com/x/y/y.go": "package y",
    "tools/go.mod": 'module "example.com/app/tools"',
    "tools/gen/gen.go": "package gen",
    "tools/main.go": "package main",
}
STORE = Place("store/", ("store/a.go", "store/b.go"))


@pytest.mark.parametrize(
    ("module", "importer", "found"),
    [
        ("example.com/app/store", "main.go", STORE),
        ("example.com/app/store", "store/a_test.go", STORE),
        ("example.com/app", "store/a.go", Place("", ("main.go",))),
        ("example.com/app/gone", "main.go", Missing("example.com/app/gone")),
        ("example.com/app/tools/gen", "tools/main.go", Place("tools/gen/", ("tools/gen/gen.go",))),
        ("example.com/app/store", "tools/main.go", STORE),
        ("github.com/x/y", "store/a.go", Place("vendor/github.com/x/y/", ("vendor/github.com/x/y/y.go",))),
        ("errors", "main.go", External("errors")),  # the standard library's, not the folder beside it
        ("github.com/pkg/errors", "main.go", External("github.com/pkg/errors")),
        ("example.com/application", "main.go", External("example.com/application")),
        ("fmt", "main.go", External("fmt")),
    ],
)
def test_an_import_means_a_package_of_the_module(module: str, importer: str, found: Found) -> None:
    assert GoRules().module(module, 0, importer, corpus(FILES)) == found


def test_without_a_manifest_no_path_is_the_corpus() -> None:
    files = corpus({"store/a.go": "package store", "main.go": "package main"})
    assert GoRules().module("example.com/app/store", 0, "main.go", files) == External("example.com/app/store")


def test_a_package_is_its_folder_and_only_tests_see_tests() -> None:
    files = corpus(FILES)
    assert GoRules().around("store/a.go", files) == STORE
    assert GoRules().around("store/a_test.go", files) == Place(
        "store/", ("store/a.go", "store/a_test.go", "store/b.go")
    )
    assert GoRules().around("main.go", files) == Place("", ("main.go",))
    assert GoRules().below(STORE, "a", "main.go", files) is None


PROGRAM = {
    "go.mod": "module example.com/app\n",
    "store/store.go": """package store

import "fmt"

type Item struct{ Name string }

func (i *Item) Touch() { helper() }

type Base struct{}

func (b Base) Close() {}

type Store struct {
	*Base
	list []*Item
}

type Keeper interface{ Keep(i *Item) error }

func New() *Store { return &Store{} }

func (s *Store) Add(name string) *Item {
	i := &Item{Name: name}
	fmt.Println(i)
	return i
}

func Each(k Keeper, list []*Item) {
	k.Keep(nil)
	for _, i := range list {
		i.Touch()
	}
}
""",
    "store/more.go": """package store

func helper() { New().Add("x").Touch() }
""",
    "store/store_test.go": """package store

func TestAdd() { helper(); only() }
func only() {}
""",
    "main.go": """package main

import (
	"example.com/app/store"
	other "example.com/app/store"
	"os"
)

func helper() {}

func main() {
	store := store.New()
	store.Add("a").Touch()
	store.Close()
	if i, ok := any(store).(*other.Item); ok {
		i.Touch()
	}
	run(func(i *other.Item) { i.Touch() })
	os.Exit(1)
}

func run(f func(*other.Item)) { f(nil) }
""",
}


def test_calls_lead_to_functions_methods_and_what_is_embedded() -> None:
    item, base, store = (f"store/store.go::{name}" for name in ("Item", "Base", "Store"))
    assert edges(PROGRAM) == sorted([
        ("main.go::main", "main.go::run"),
        ("main.go::main", "store/store.go::New"),
        ("main.go::main", f"{store}.Add"),
        ("main.go::main", f"{item}.Touch"),
        ("main.go::main", f"{base}.Close"),
        ("store/more.go::helper", "store/store.go::New"),
        ("store/more.go::helper", f"{store}.Add"),
        ("store/more.go::helper", f"{item}.Touch"),
        ("store/store.go::Each", "store/store.go::Keeper.Keep"),
        ("store/store.go::Each", f"{item}.Touch"),
        (f"{item}.Touch", "store/more.go::helper"),
        ("store/store.go::New", store),
        (f"{store}.Add", item),
        ("store/store_test.go::TestAdd", "store/more.go::helper"),
        ("store/store_test.go::TestAdd", "store/store_test.go::only"),
    ])  # fmt: skip
    assert edges(PROGRAM, "inherits") == [(store, base)]
    assert edges(PROGRAM, "calls", "external") == [("main.go::main", "os.Exit"), (f"{store}.Add", "fmt.Println")]
    assert edges(PROGRAM, "imports") == [("main.go", "store/more.go"), ("main.go", "store/store.go")]


def test_a_receiver_is_an_instance_of_its_type() -> None:
    text = """package a
type S struct{ b *B }
type B struct{}
func (b B) Close() {}
func (s *S) Run() { s.b.Close() }
func (s *S) Go() { t := s; t.Run(); func() { s.Run() }() }
"""
    assert edges({"a.go": text}) == [("a.go::S.Go", "a.go::S.Run"), ("a.go::S.Run", "a.go::B.Close")]
