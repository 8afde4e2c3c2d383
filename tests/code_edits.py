"""Small corpora of source code in every language, and edits of them: few names and files, so that everything meets everything."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hypothesis import strategies as st

NAMES = ("f", "g", "K", "L")
PARTS = ("f", "g", "x")


@dataclass(frozen=True, slots=True)
class Grammar:
    """How programs of one language are drawn: hubs define, users import and use; `head` and `foot` stand around each file.

    Hubs and users come with statements that they begin with, so that most names lead somewhere.
    """

    hubs: dict[str, tuple[str, ...]]
    users: dict[str, tuple[str, ...]]
    imports: tuple[str, ...]
    defines: tuple[str, ...]
    uses: tuple[str, ...]
    head: str = ""
    foot: str = ""
    fixed: tuple[tuple[str, str], ...] = ()


GRAMMARS = {
    "python": Grammar(
        {
            "a.py": (
                "class L:\n    def __init__(self, y):\n        self.x = y\n    def g(self):\n        return self.x()",
                "class K(L):\n    def f(self):\n        return self.x",
                "def f(y):\n    return K(y)",
                "def g(y=f):\n    y(f)\n    return y",
            ),
            "p/__init__.py": ("from a import *",),
            "p/b.py": (
                "from p import f, K",
                "class L(K):\n    def x(self):\n        return f",
                "def g(y):\n    return L(y)",
            ),
        },
        {
            "u.py": ("from p import f, g, K, L", "f(g).f()()", "f(g).g()", "K(g).x()", "g()(f)", "L(f).g()"),
            "p/v.py": ("from p.b import *", "class M(L):\n    def h(self):\n        self.x()", "g(f).f()", "M(g).h()"),
        },
        (
            "from {hub:.} import *",
            "from {hub:.} import f, g, K, L",
            "from {hub:.} import {name} as {other}",
            "import {hub:.}",
            "from p import b",
        ),
        (
            "def {name}(y):\n    return {other}",
            "def {name}(y={other}):\n    y({other})\n    return {other}()",
            "def {name}(y):\n    y.append({other})",
            "def {name}(y):\n    def inner(z={other}):\n        return y()\n    return inner",
            "@{other}\ndef {name}(y):\n    return y",
            "class {name}:\n    def __init__(self, y):\n        self.x = y\n    def {part}(self):\n        return {other}()",
            "class {name}({other}):\n    {part} = {other}\n    def g(self, y={other}):\n        self.x = {other}",
            "class {name}({other}):\n    def {part}(self):\n        return self.x()",
            "{name} = {other}",
            "{name} = [{other}]\n{name}.append({other})",
            "if {other}:\n    def {name}(y):\n        return {other}\nelse:\n    {name} = {other}",
            "__all__ = ['{name}', '{other}']",
            "raise {other}",
            "global {name}",
        ),
        (
            "{name}({other})",
            "{name}()()",
            "{name}({other}).{part}()",
            "{name}().x()",
            "{hub:.}.{name}({other})",
            "def {name}(y):\n    {other}(y)\n    return {name}",
            "class {name}({other}):\n    def h(self):\n        self.{part}(g)",
            "{name}.{part} = {other}",
        ),
    ),
    "javascript": Grammar(
        {
            "a.js": (
                "export class L { constructor(y) { this.x = y } g() { return this.x() } }",
                "export class K extends L { f() { return this.x } }",
                "export function f(y) { return new K(y) }",
                "export const g = (y) => { y(f); return y }",
            ),
            "b.js": ("export * from './a'", "function K(y) { f(y) }\nK.prototype.x = function () { return g }"),
        },
        {
            "u.js": ("import { f, g, K, L } from './a'", "f(g).f()()", "f(g).g()", "new K(g).x()", "g(f)()"),
            "v.js": ("import * as g from './b'", "g.f(g.g).f()", "new g.K(f).g()", "g.g(g.f)()"),
        },
        (
            "import {{ f, g, K, L }} from './{hub}'",
            "import * as {name} from './{hub}'",
            "import {name} from './{hub}'",
            "export * from './{hub}'",
            "export {{ {name} as {other} }} from './{hub}'",
            "const {name} = require('./{hub}')",
            "const {{ f, K }} = require('./{hub}')",
        ),
        (
            "export function {name}(y) {{ y(); return {other} }}",
            "export const {name} = (y) => {other}(y)",
            "export default {name}",
            "export class {name} {{ constructor(y) {{ this.x = y }} {part}() {{ return {other}() }} }}",
            "export class {name} extends {other} {{ {part}() {{ return this.x() }} }}",
            "function {name}(y) {{ this.x = y }}\n{name}.prototype.{part} = function () {{ return {other}() }}",
            "module.exports = {{ {name}, {part}: function () {{ return {other}() }} }}",
            "exports.{name} = function () {{ return {other} }}",
            "module.exports = {name}",
        ),
        (
            "{name}({other})",
            "{name}()()",
            "new {name}({other}).{part}()",
            "new {name}({other}).x()",
            "{name}.{part}({other})",
            "{name}.{part} = {other}",
            "class {name} extends {other} {{ h() {{ this.{part}() }} }}",
        ),
    ),
    "go": Grammar(
        {
            "a.go": ("type K struct { x L }", "func (t K) f() L { return t.x }", "func f() { K{}.f() }"),
            "p/b.go": ("type K struct { L }", "type L struct { x K }", "func f(y func()) K { y(); return K{} }"),
            "p/c.go": ("func (t L) x() K { return t.x }", "func (t *K) g() { f(f) }", "func g() L { return f(g).L }"),
        },
        {
            "u.go": (
                'import "m/p"',
                "func u1() { p.f(f).x() }",
                "func u2() { p.K{}.g(); p.g().x() }",
                "func u3() { f() }",
            ),
            "p/v.go": ("func u1() { f(g).g(); g().x().g() }", "func u2(y K) { y.g(); y.x() }"),
        },
        ('import "m/p"', 'import . "m/p"'),
        (
            "func {name}(y func()) {other} {{ y(); return {other}{{}} }}",
            "type {name} struct {{ x {other} }}",
            "type {name} struct {{ {other} }}",
            "type {name} interface {{ {part}() }}",
            "func (t {name}) {part}() {other} {{ t.{other}(); return t.x }}",
            "func (t *{name}) {part}() {{ {other}() }}",
            "func {name}() {{ {other}() }}",
            "var {name} = {other}{{}}",
        ),
        (
            "func u1() {{ {name}({other}) }}",
            "func u2() {{ {name}{{}}.{part}() }}",
            "func u3() {{ p.{name}({other}).{part}() }}",
            "func u4() {{ p.{name}{{}}.{part}() }}",
            "func u5(y {name}) {{ y.{part}(); y.x.{part}() }}",
        ),
        head="package {folder}",
        fixed=(("go.mod", "module m\n"),),
    ),
    "rust": Grammar(
        {
            "src/a.rs": (
                "pub struct L { x: K }",
                "pub struct K { x: L }",
                "impl K { pub fn g(&self) -> L { f(self) } }",
                "impl L { pub fn f(&self) -> K { self.x.g(); K() } }",
                "pub fn f(y: K) -> L { y.g() }",
            ),
            "src/b.rs": ("pub use crate::a::*;", "pub fn g() { f(K) }"),
        },
        {
            "src/lib.rs": ("mod a; mod b; mod v;", "use a::{f, K, L};", "fn u1(y: K) { y.g().f(); f(y).f(); K::g(); }"),
            "src/v.rs": ("use crate::b::{f, g, K};", "fn u1(y: K) { f(y).f().g(); g(); y.x.f(); }"),
        },
        (
            "use crate::{hub}::{{f, g, K, L}};",
            "use crate::{hub}::*;",
            "pub use crate::{hub}::{name} as {other};",
            "use crate::{hub};",
        ),
        (
            "pub fn {name}(y: {other}) -> {other} {{ {other}(); y }}",
            "pub fn {name}() {{ {other}(); }}",
            "pub struct {name} {{ x: {other} }}",
            "impl {name} {{ pub fn {part}(&self) -> {other} {{ self.x.{part}(); {other}() }} }}",
            "pub trait {name} {{ fn {part}(&self) {{ {other}() }} }}",
            "impl {other} for {name} {{ fn {part}(&self) {{ {name}() }} }}",
        ),
        (
            "fn u1() {{ {name}({other}); }}",
            "fn u2(y: {name}) {{ y.{part}(); y.x.{part}(); }}",
            "fn u3() {{ {name}({other}).{part}(); }}",
            "fn u4() {{ {hub}::{name}(); {name}::{part}(); }}",
        ),
        fixed=(("Cargo.toml", '[package]\nname = "m"\n'),),
    ),
    "java": Grammar(
        {
            "p/K.java": (
                "public L f(L y) { return y; }",
                "public static K g() { return new K(); }",
                "public L x = L.g();",
            ),
            "p/L.java": (
                "public K x;",
                "public L(K y) { this.x = y; }",
                "public static L g() { return new L(K.g()); }",
            ),
        },
        {
            "p/U.java": (
                "void u1(K y) { y.f(L.g()).x.f(y.x); K.g().x.f(y); }",
                "void u2() { new L(K.g()).x.f(x); f(x); }",
            ),
            "q/V.java": ("void u1(K y, L z) { y.x.x.f(z); z.x.x.f(z); L.g().f(z); }",),
        },
        ("",),
        (
            "public {other} f({other} y) {{ return y.f(y); }}",
            "public static {other} g() {{ return new {other}(); }}",
            "public {other} x = {other}.g();",
            "public {file}({other} y) {{ this.x = y; }}",
            "public void {part}() {{ x.{part}(); }}",
            "public static class M extends {other} {{ public void {part}() {{ g(); }} }}",
            "public interface M {{ void {part}(); }}",
        ),
        (
            "void u1(K y, L z) {{ y.{part}(); z.x.{part}(); y.f(z).{part}(); }}",
            "void u2() {{ K.g().{part}(); new L(new K()).x.{part}(); }}",
            "void u3() {{ {part}(); new K.M().{part}(); }}",
            "K x = L.g();",
        ),
        head="package {folder};\nimport p.K;\nimport p.L;\npublic class {file} extends {base} {{",
        foot="}}",
    ),
}


class Hub(str):
    """The name of a hub, as modules are named (`.`: with points)."""

    def __format__(self, spec: str) -> str:
        return self.replace("/", ".").removesuffix(".__init__") if spec else str(self.rpartition("/")[2])


@st.composite
def statements(draw: st.DrawFn, grammar: Grammar, kinds: str, path: str) -> str:
    """Draw a statement of one of the kinds: `i`mports, `d`efines, `u`ses."""
    forms = {"i": grammar.imports, "d": grammar.defines, "u": grammar.uses}[draw(st.sampled_from(kinds))]
    name, other = draw(st.sampled_from(NAMES)), draw(st.sampled_from(NAMES))
    if path.endswith(".java"):
        name, other = draw(st.sampled_from("fg")), draw(st.sampled_from("KL"))
    hub = Hub(draw(st.sampled_from(sorted(grammar.hubs))).rpartition(".")[0])
    part = draw(st.sampled_from(PARTS))
    return draw(st.sampled_from(forms)).format(name=name, other=other, part=part, hub=hub, file=_file(path))


def _file(path: str) -> str:
    return path.rpartition("/")[2].partition(".")[0]


def text_of(grammar: Grammar, path: str, lines: list[str]) -> str:
    """Return a file as it is written."""
    folder = path.rpartition("/")[0].rpartition("/")[2] or "m"
    place = {"folder": folder, "file": _file(path), "base": "Object" if path.endswith("L.java") else "L"}
    return "\n".join([*[grammar.head.format(**place)] * bool(grammar.head), *lines, grammar.foot.format(**place)])


@st.composite
def histories(draw: st.DrawFn, language: str, most: int = 3) -> list[dict[str, str]]:
    """Draw a corpus, and what becomes of it by edits of few statements each, most of them in hubs."""
    grammar = GRAMMARS[language]
    program = {path: list(lines) for path, lines in (*grammar.hubs.items(), *grammar.users.items())}
    for path, lines in program.items():
        for _ in range(draw(st.integers(0, 2))):
            edit(draw, lines, statements(grammar, "dui", path))
    states = [program]
    for _ in range(draw(st.integers(1, most))):
        program = {path: list(lines) for path, lines in program.items()}
        paths = draw(st.lists(st.sampled_from([*grammar.hubs, *grammar.hubs, *grammar.users]), min_size=1, max_size=2))
        for path in paths:
            edit(draw, program.setdefault(path, []), statements(grammar, "dddi", path))
        if draw(st.integers(0, 9)) == 9:
            program.pop(paths[0])
        states.append(program)
    return [
        {path: text_of(grammar, path, lines) for path, lines in state.items()} | dict(grammar.fixed) for state in states
    ]


def edit(draw: st.DrawFn, lines: list[str], statement: st.SearchStrategy[str]) -> None:
    """Add, remove, replace or move a statement, or change a name in it."""
    at = draw(st.integers(0, len(lines)))
    what = draw(st.sampled_from(("add", "remove", "replace", "move", "rename", "rename", "space")))
    if what == "add" or at == len(lines):
        lines.insert(at, draw(statement))
    elif what == "remove":
        del lines[at]
    elif what == "replace":
        lines[at] = draw(statement)
    elif what == "move":
        lines.append(lines.pop(at))
    elif what == "rename":
        was, now = draw(st.sampled_from(NAMES + PARTS)), draw(st.sampled_from(NAMES + PARTS))
        lines[at] = re.sub(rf"\b{was}\b", now, lines[at])
    else:
        lines.insert(at, "")
