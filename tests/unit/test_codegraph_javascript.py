"""JavaScript and TypeScript: what a file says, and to what its names lead in other files."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.codegraph.links import Linked
from pipeline.codegraph.reading import read
from pipeline.codegraph.summary import MAX_NESTING, Summary, Symbol, decode, encode
from tests.code_corpus import corpus, link_all


def summary_of(path: str, text: str) -> Summary:
    summary = read(path, text)
    assert summary is not None
    assert "unreadable" not in summary.counts
    return summary


def symbols(path: str, text: str) -> dict[str, Symbol]:
    return {symbol.qualname: symbol for symbol in summary_of(path, text).symbols}


def linked(texts: Mapping[str, str]) -> dict[str, Linked]:
    return link_all(corpus(texts))


def edges(texts: Mapping[str, str], kind: str = "calls", scope: str = "corpus") -> set[str]:
    return {
        f"{edge.source} -> {edge.target}"
        for each in linked(texts).values()
        for edge in each.edges
        if edge.kind == kind and edge.scope == scope
    }


# --- symbols ---------------------------------------------------------------------------------------------------------


def test_all_kinds_of_definitions_are_symbols_with_their_lines_and_documentation() -> None:
    text = """import x from './x';

/**
 * Adds things up.
 * @param a one
 */
export async function add(a: number): Promise<number> { return a; }

/** The store. */
@Injectable()
export class Store extends Base implements Keeper {
  private items: Item[] = [];
  #secret = 1;
  constructor(private readonly log: Log, size?: number) { super(); }
  /** Takes one. */
  @timed()
  static async take() {}
  get size() { return 1; }
  set size(value) {}
  handle = (event: Event) => { this.take(); };
  abstract close(): void;
  [Symbol.iterator]() {}
}
export interface Keeper { keep(item: Item): Store; readonly name: string; }
type Props = { store: Store; onSave(): void };
type Id = string | number;
export enum Kind { A, B = 'b' }
namespace Deep.Inner { export function go() {} }
const helper = async (x) => x, twice = function () {};
export const api = { list() {}, get: (id) => id, nested: { drop() {} } };
declare function ambient(x: string): void;
"""
    found = symbols("a.ts", text)
    assert {name: symbol.kind for name, symbol in found.items()} == {
        "add": "function",
        "Store": "class",
        "Store.constructor": "method",
        "Store.take": "method",
        "Store.size": "method",
        "Store.handle": "method",
        "Store.close": "method",
        "Store.@@iterator": "method",
        "Keeper": "interface",
        "Keeper.keep": "method",
        "Props": "interface",
        "Props.onSave": "method",
        "Kind": "enum",
        "Deep.Inner.go": "function",
        "helper": "function",
        "twice": "function",
        "api.list": "method",
        "api.get": "method",
        "api.nested.drop": "method",
        "ambient": "function",
    }
    assert (found["add"].doc, found["add"].first_line, found["add"].last_line) == ("Adds things up.", 7, 7)
    assert found["add"].signature == "export async function add(a: number): Promise<number> { return a; }"
    store = found["Store"]
    assert (store.doc, store.decorators, store.first_line) == ("The store.", ("Injectable()",), 10)
    assert store.signature == "export class Store extends Base implements Keeper {"
    take = found["Store.take"]
    assert (take.doc, take.decorators, take.parent) == ("Takes one.", ("timed()",), "Store")
    assert (take.signature, take.first_line, take.last_line) == ("static async take() {}", 16, 17)
    assert text[take.start : take.end] == "@timed()\n  static async take() {}"
    assert found["api.nested.drop"].parent == ""
    assert text[found["twice"].start : found["twice"].end] == "twice = function () {}"


def test_offsets_are_of_characters() -> None:
    text = "// 🌲 ä\nconst größe = () => 'é', next = () => 1;\n"
    found = symbols("a.js", text)
    assert text[found["größe"].start : found["größe"].end] == "größe = () => 'é'"
    assert text[found["next"].start : found["next"].end] == "next = () => 1"


def test_the_first_definition_of_a_name_stays_and_signatures_yield_to_the_implementation() -> None:
    text = "function f(a: string): void;\nfunction f(a: any) { return 1; }\nif (x) { function f() {} }\n"
    assert symbols("a.ts", text)["f"].first_line == 2
    declared = symbols(
        "a.d.ts", "export declare function g(a: string): void;\nexport declare function g(a: number): void;\n"
    )
    assert list(declared) == ["g"]


def test_default_exports_without_a_name_are_called_default() -> None:
    assert symbols("a.js", "export default () => 1;")["default"].kind == "function"
    assert symbols("b.js", "export default class extends X { m() {} }")["default.m"].parent == "default"
    assert symbols("c.js", "module.exports = function () {};")["default"].kind == "function"
    assert symbols("d.js", "module.exports = function named() {};")["named"].kind == "function"


def test_functions_without_a_name_are_no_symbols_but_what_is_defined_in_them_is() -> None:
    found = symbols(
        "a.js", "run(() => { const inner = () => 1; });\nnew (class { m() {} })();\nuse({ onClick() {} });\n"
    )
    assert [(symbol.qualname, symbol.parent) for symbol in found.values()] == [("<lambda1>.inner", "")]


def test_functions_with_a_prototype_are_classes() -> None:
    text = """var inherits = require('util').inherits;
function Tree(name) { this.name = name; this.cut = function () {}; }
inherits(Tree, Plant);
Tree.prototype.grow = function () { this.water(); };
Tree.prototype.water = function () {};
Tree.plant = function () { return new Tree(); };
"""
    found = symbols("a.js", text)
    assert {name: symbol.kind for name, symbol in found.items()} == {
        "Tree": "class", "Tree.cut": "method", "Tree.grow": "method", "Tree.water": "method", "Tree.plant": "method",
    }  # fmt: skip
    assert edges({"a.js": text}) == {"a.js::Tree.grow -> a.js::Tree.water", "a.js::Tree.plant -> a.js::Tree"}


# --- edges between files ---------------------------------------------------------------------------------------------

DECOYS = {
    "other/client.ts": "export function api() {}\nexport class Client { send() {} }\nexport default function start() {}\n",
    "client.ts": "export function api() {}\nexport class Client { send() {} }\n",
}
CLIENT = "export function api() { return new Client(); }\nexport class Client { send() {} }\nexport default function start() {}\n"

PROGRAMS: dict[str, tuple[dict[str, str], set[str]]] = {
    "named import with an alias": (
        {
            "app/client.ts": CLIENT,
            "app/a.ts": "import { api as call } from './client';\nexport const run = () => call();\n",
        },
        {"app/a.ts::run -> app/client.ts::api"},
    ),
    "default import under any name": (
        {
            "app/client.ts": CLIENT,
            "app/a.ts": "import go, { Client } from './client.js';\nfunction run() { go(); new Client(); }\n",
        },
        {"app/a.ts::run -> app/client.ts::start", "app/a.ts::run -> app/client.ts::Client"},
    ),
    "namespace import": (
        {
            "app/client.ts": CLIENT,
            "app/a.ts": "import * as c from './client';\nfunction run() { c.api(); c.default(); }\n",
        },
        {"app/a.ts::run -> app/client.ts::api", "app/a.ts::run -> app/client.ts::start"},
    ),
    "re-exports through an index": (
        {
            "app/client.ts": CLIENT,
            "app/index.ts": "export * from './client';\nexport { default as begin, api as call } from './client';\n"
            "export * as whole from './client';\n",
            "app/a.ts": "import { begin, call, Client, whole } from '.';\n"
            "function run() { begin(); call(); new Client(); whole.api(); }\n",
            "app/b.ts": "import start from '.';\nexport const none = () => start();\n",
        },
        {
            "app/a.ts::run -> app/client.ts::start",
            "app/a.ts::run -> app/client.ts::api",
            "app/a.ts::run -> app/client.ts::Client",
        },
    ),
    "what is not exported is not there": (
        {
            "app/client.ts": "function api() {}\n",
            "app/a.ts": "import { api } from './client';\nconst run = () => api();\n",
        },
        set(),
    ),
    "classes across files": (
        {
            "app/base.ts": "export abstract class Base { save() { this.check(); }\n check() {} }\n",
            "app/store.ts": "import { Base } from './base';\n"
            "export class Store extends Base { check() { super.check(); }\n run() { this.save(); } }\n",
            "app/use.ts": "import { Store } from './store';\n"
            "export function use(store: Store) { store.save(); store.run(); }\n"
            "export const make = () => { const s = new Store(); s.check(); };\n",
        },
        {
            "app/base.ts::Base.save -> app/base.ts::Base.check",
            "app/store.ts::Store.check -> app/base.ts::Base.check",
            "app/store.ts::Store.run -> app/base.ts::Base.save",
            "app/use.ts::use -> app/base.ts::Base.save",
            "app/use.ts::use -> app/store.ts::Store.run",
            "app/use.ts::make -> app/store.ts::Store",
            "app/use.ts::make -> app/store.ts::Store.check",
        },
    ),
    "typed fields, parameter properties and returns": (
        {
            "app/client.ts": CLIENT,
            "app/a.ts": "import { Client, api } from './client';\n"
            "class Service { other: Client;\n constructor(private client: Client) {}\n"
            " one() { this.client.send(); }\n two() { this.other.send(); }\n get(): Client { return null!; } }\n"
            "const list = (all: Client[]) => { for (const c of all) c.send(); };\n"
            "async function later(): Promise<Service> { return null as any; }\n"
            "async function last() { (await later()).get().send(); (x as Client).send(); api().send(); }\n",
        },
        {
            "app/client.ts::api -> app/client.ts::Client",
            "app/a.ts::Service.one -> app/client.ts::Client.send",
            "app/a.ts::Service.two -> app/client.ts::Client.send",
            "app/a.ts::list -> app/client.ts::Client.send",
            "app/a.ts::last -> app/a.ts::later",
            "app/a.ts::last -> app/a.ts::Service.get",
            "app/a.ts::last -> app/client.ts::Client.send",
            "app/a.ts::last -> app/client.ts::api",
        },
    ),
    "interfaces as receivers": (
        {
            "app/types.ts": "export interface Sink { write(s: string): Sink; }\nexport type Props = { sink: Sink };\n",
            "app/a.ts": "import type { Sink, Props } from './types';\n"
            "function run(sink: Sink) { sink.write('a'); }\nfunction view({ sink }: Props) { sink.write('b'); }\n",
        },
        {"app/a.ts::run -> app/types.ts::Sink.write", "app/a.ts::view -> app/types.ts::Sink.write"},
    ),
    "block scopes": (
        {
            "app/client.ts": CLIENT,
            "app/a.ts": "import { api } from './client';\nfunction near() {}\n"
            "function run() { if (x) { const api = near; api(); }\n api(); }\n"
            "function other() { for (const api of list) { api(); } }\n"
            "function last() { try { } catch (api) { api(); } }\n",
        },
        {"app/a.ts::run -> app/a.ts::near", "app/a.ts::run -> app/client.ts::api"},
    ),
    "hoisting, closures and assignments to outer names": (
        {
            "app/a.js": "let chosen;\nfunction start() { chosen = first; use();\n"
            " function use() { inner(); }\n const inner = () => 1; }\n"
            "function first() {}\nfunction go() { chosen(); }\n",
        },
        {
            "app/a.js::start -> app/a.js::start.use",
            "app/a.js::start.use -> app/a.js::start.inner",
            "app/a.js::go -> app/a.js::first",
        },
    ),
    "destructuring": (
        {
            "app/client.ts": CLIENT,
            "app/a.ts": "import * as c from './client';\nconst { api: call, Client: { prototype } } = c;\n"
            "const [first, second] = [call, c.default];\n"
            "function run({ send } = { send: call }) { call(); second(); }\n",
        },
        {"app/a.ts::run -> app/client.ts::api", "app/a.ts::run -> app/client.ts::start"},
    ),
    "object literals and their this": (
        {
            "app/o.js": "export const api = { list() { return this.get(1); }, get: (id) => id };\n"
            "export default { start() { this.stop(); }, stop() {} };\n"
            "export function make() { return ({ open() { this.close(); }, close() {} }); }\n",
            "app/a.js": "import life, { api, make } from './o';\nfunction run() { api.list(); life.start(); make().close(); }\n",
        },
        {
            "app/o.js::api.list -> app/o.js::api.get",
            "app/o.js::default.start -> app/o.js::default.stop",
            "app/o.js::make.open -> app/o.js::make.close",
            "app/a.js::run -> app/o.js::api.list",
            "app/a.js::run -> app/o.js::default.start",
            "app/a.js::run -> app/o.js::make",
            "app/a.js::run -> app/o.js::make.close",
        },
    ),
    "CommonJS": (
        {
            "lib/math.js": "function add() {}\nexports.sub = () => add();\nexports.sub.too = 1;\n"
            "module.exports.mul = function times() {};\n",
            "lib/whole.js": "class Whole { run() {} }\nmodule.exports = Whole;\nmodule.exports.VERSION = '1';\n",
            "lib/table.js": "const { sub } = require('./math');\nmodule.exports = { sub, div() { return sub(); } };\n",
            "lib/a.js": "const math = require('./math'), { sub: minus } = require('./table');\n"
            "const Whole = require('./whole.js');\n"
            "function run() { math.sub(); math.mul(); minus(); require('./table').div(); new Whole().run(); }\n",
            "lib/b.mjs": "import Whole, { VERSION } from './whole.js';\nexport const make = () => new Whole();\n",
        },
        {
            "lib/math.js::sub -> lib/math.js::add",
            "lib/table.js::div -> lib/math.js::sub",
            "lib/a.js::run -> lib/math.js::sub",
            "lib/a.js::run -> lib/math.js::mul",
            "lib/a.js::run -> lib/table.js::div",
            "lib/a.js::run -> lib/whole.js::Whole",
            "lib/a.js::run -> lib/whole.js::Whole.run",
            "lib/b.mjs::make -> lib/whole.js::Whole",
        },
    ),
    "what TypeScript makes of modules": (
        {
            "lib/x.js": "'use strict';\nObject.defineProperty(exports, '__esModule', { value: true });\n"
            "exports.foo = exports.Bar = void 0;\nfunction foo() {}\nexports.foo = foo;\n"
            "class Bar { baz() {} }\nexports.Bar = Bar;\nexports.default = Bar;\n",
            "lib/index.js": "var __exportStar = function () {};\nvar x_1 = require('./x');\n"
            "Object.defineProperty(exports, 'again', { enumerable: true, get: function () { return x_1.foo; } });\n"
            "__exportStar(require('./x'), exports);\n",
            "lib/a.js": "const x_1 = __importDefault(require('./x'));\nconst all = require('./index');\n"
            "function run() { (0, x_1.foo)(); new x_1.default().baz(); all.again(); new all.Bar(); }\n",
        },
        {
            "lib/a.js::run -> lib/x.js::foo",
            "lib/a.js::run -> lib/x.js::Bar",
            "lib/a.js::run -> lib/x.js::Bar.baz",
        },
    ),
    "types written where they are used": (
        {
            "app/client.ts": CLIENT,
            "app/a.tsx": "import { Client } from './client';\n"
            "export function Page({ client, more: { deep } }: { client: Client; more: { deep?: Client | null } }) {\n"
            " client.send(); const load = useCallback(async () => { await deep.send(); }, []); return <b onClick={load}/>; }\n"
            "function run(p: { get(): Client }) { p.get().send(); }\n"
            "type Shape = { kind: 'a'; client: Client } | { kind: 'b' };\nconst any = (s: Shape) => s.client.send();\n",
        },
        {
            "app/a.tsx::Page -> app/client.ts::Client.send",
            "app/a.tsx::Page.load -> app/client.ts::Client.send",
            "app/a.tsx::run -> app/client.ts::Client.send",
            "app/a.tsx::any -> app/client.ts::Client.send",
        },
    ),
    "packages of CommonJS behind an index": (
        {
            "lib/x.js": "exports = module.exports = create;\nfunction create() { return new App(); }\nclass App { use() {} }\n"
            "exports.App = App;\nexports.Router = function Router() {};\n",
            "index.js": "module.exports = require('./lib/x');\n",
            "main.js": "const e = require('./');\nfunction run() { e().use(); new e.App(); e.Router(); }\n",
        },
        {
            "lib/x.js::create -> lib/x.js::App",
            "main.js::run -> lib/x.js::create",
            "main.js::run -> lib/x.js::App.use",
            "main.js::run -> lib/x.js::App",
            "main.js::run -> lib/x.js::Router",
        },
    ),
    "JSX": (
        {
            "ui/button.tsx": "export const Button = React.memo(({ onClick }) => <b onClick={onClick}/>);\n"
            "export const Menu = { Item: () => null };\n",
            "ui/page.tsx": "import { Button, Menu } from './button';\nimport Other from 'other';\n"
            "export function Page() { const save = () => store();\n"
            "  return <div><Button onClick={() => save()}><Menu.Item/></Button><Other/></div>; }\nfunction store() {}\n",
        },
        {
            "ui/page.tsx::Page -> ui/button.tsx::Button",
            "ui/page.tsx::Page -> ui/button.tsx::Menu.Item",
            "ui/page.tsx::Page -> ui/page.tsx::Page.save",
            "ui/page.tsx::Page.save -> ui/page.tsx::store",
        },
    ),
    "decorators, generators, tags, optional calls and template literals": (
        {
            "app/a.ts": "function log(x?: any) { return x; }\n@log() class A { @log m() {} }\n"
            "function* all() { yield* some(); }\nfunction* some() {}\n"
            "const run = () => { log`x${all()}`; log?.(`${some()}`); };\n",
        },
        {
            "app/a.ts -> app/a.ts::log",
            "app/a.ts::A -> app/a.ts::log",
            "app/a.ts::all -> app/a.ts::some",
            "app/a.ts::run -> app/a.ts::log",
            "app/a.ts::run -> app/a.ts::all",
            "app/a.ts::run -> app/a.ts::some",
        },
    ),
    "a type and a value of one name": (
        {
            "app/k.ts": "export interface Kind { go(): void; }\n"
            "export const Kind = { make() { return null as any as Kind; } };\n",
            "app/a.ts": "import { Kind } from './k';\nfunction run(k: Kind) { k.go(); Kind.make(); }\n",
        },
        {"app/a.ts::run -> app/k.ts::Kind.go", "app/a.ts::run -> app/k.ts::Kind.make"},
    ),
    "namespaces": (
        {
            "app/n.ts": "export namespace Geo { export function area() { return side(); }\n function side() {} }\n",
            "app/a.ts": "import { Geo } from './n';\nfunction run() { Geo.area(); }\n",
        },
        {"app/n.ts::Geo.area -> app/n.ts::Geo.side", "app/a.ts::run -> app/n.ts::Geo.area"},
    ),
    "dynamic import": (
        {
            "app/client.ts": CLIENT,
            "app/a.ts": "async function run() { const c = await import('./client'); c.api(); }\n",
        },
        {"app/a.ts::run -> app/client.ts::api", "app/client.ts::api -> app/client.ts::Client"},
    ),
    "cycles": (
        {
            "app/a.ts": "import { b } from './b';\nexport function a() { b(); }\n",
            "app/b.ts": "import { a } from './a';\nexport function b() { a(); }\n",
        },
        {"app/a.ts::a -> app/b.ts::b", "app/b.ts::b -> app/a.ts::a"},
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_calls_lead_to_the_right_definitions_and_to_no_other(name: str) -> None:
    texts, expected = PROGRAMS[name]
    if texts.get("app/client.ts") == CLIENT:
        expected = expected | {"app/client.ts::api -> app/client.ts::Client"}
    assert edges({**DECOYS, **texts}) == expected


def test_w40_an_alias_an_external_base_and_an_arrow_function() -> None:
    texts = {
        "web/client.ts": "export function api() {}\n",
        "web/store.ts": "import create, { Base } from 'zustand';\nimport { api as call } from './client';\n"
        "export class Store extends Base {}\nconst helper = () => create();\nexport const run = () => { helper(); call(); };\n",
        "client.ts": "export function api() {}\n",
    }
    assert edges(texts) == {"web/store.ts::run -> web/store.ts::helper", "web/store.ts::run -> web/client.ts::api"}
    assert edges(texts, "imports") == {"web/store.ts -> web/client.ts"}
    assert edges(texts, "imports", "external") == {"web/store.ts -> zustand"}
    assert edges(texts, "inherits", "external") == {"web/store.ts::Store -> zustand.Base"}
    assert edges(texts, scope="external") == {"web/store.ts::helper -> zustand.default"}
    assert edges(texts, "inherits") == set()


def test_a_package_of_the_same_name_in_another_language_is_no_target() -> None:
    texts = {
        "frontend/x.ts": "import colors from 'tailwindcss/colors';\ncolors.red();\n",
        "backend/colors.py": "def red(): pass\n",
        "frontend/colors.ts": "export default { red() {} };\n",
        "src/time.ts": "export function time() {}\n",
        "src/clock.py": "import time\n\ndef now():\n    return time.time()\n",
    }
    assert edges(texts, "imports") == edges(texts, "calls") == set()
    assert edges(texts, "imports", "external") == {"frontend/x.ts -> tailwindcss/colors", "src/clock.py -> time"}


def test_a_relative_path_is_looked_for_in_the_order_of_typescript() -> None:
    holder = "export const a = () => 1;\n"
    for files, expected in [
        (("lib/m.js", "lib/m.ts"), "lib/m.ts"),
        (("lib/m.js", "lib/m/index.ts"), "lib/m.js"),
        (("lib/m/index.js", "m.ts"), "lib/m/index.js"),
        (("lib/m.d.ts", "lib/m.jsx"), "lib/m.d.ts"),
    ]:
        texts = {**dict.fromkeys(files, holder), "lib/use.ts": "import { a } from './m';\na();\n"}
        assert edges(texts, "imports") == {f"lib/use.ts -> {expected}"}
    types = {"lib/m.d.ts": "export declare function a(): void;\n", "lib/use.d.ts": "import { a } from './m.ts';\n"}
    assert edges(types, "imports") == {"lib/use.d.ts -> lib/m.d.ts"}
    result = linked(
        {"use.ts": "import { a } from '../m';\nimport './style.css';\nimport { b } from '@/lib/b';\na(); b();\n"}
    )["use.ts"]
    assert result.unresolved["missing_module"] >= 2
    assert {edge.target for edge in result.edges if edge.scope == "external"} == {"@/lib/b", "@/lib/b.b"}


def test_what_an_import_looks_for_in_vain_is_read() -> None:
    result = linked({"a/use.ts": "import { x } from './m';\n"})["a/use.ts"]
    assert {"a/m.ts", "a/m.js", "a/m/index.tsx"} <= result.reads


# --- hostile text ----------------------------------------------------------------------------------------------------

SAMPLE = """import d, { a as b, type T } from './x'; import * as ns from 'y'; export * from './z'; export { b as c };
@dec() export class S<T extends U> extends B<T> implements I { #p?: T[] = [1]; constructor(private x: X = 1) { super(x); }
  get v() { return this.#p?.[0]; } static { f(); } handle = async (e) => { await e; }; *g() { yield* this; } }
function f({ a, b: [c, ...d], ...r } = {}, [x = 1, , y]) { for (const { z } of r) { label: for (let k in z) break label; } }
namespace N.M { export enum E { A = 1, B } } interface I extends J { m(x: number): Promise<A | null>; }
var app = exports = module.exports = { m() { return this.n(); }, [k]: 1, ...s }; F.prototype.q = function q() { q(); };
const C = ({ a }: P) => <A.B x={1} {...p} on={() => f()}>{g()}<></></A.B>, t = `a${b`c`}`, u = (x as T)!, w = new (class {})();
try { throw a ? b : c; } catch ({ m }) { switch (m) { case 1: let q = 2; default: } } finally { do { a ||= b; } while (c); }
"""
PATHS = ("a.js", "a.ts", "a.tsx")


def check(path: str, text: str) -> Summary:
    summary = summary_of(path, text)
    assert decode(encode(summary)) == summary
    for symbol in summary.symbols:
        assert 0 <= symbol.start < symbol.end <= len(text)
        assert 1 <= symbol.first_line <= symbol.last_line <= text.count("\n") + 1
        assert symbol.parent == "" or symbol.parent in {other.qualname for other in summary.symbols}
    assert not linked({path: text})[path].edges or summary.body
    return summary


@given(st.text(max_size=400), st.sampled_from(PATHS))
@example("\ud800 = () => '\ud800'", "a.ts")
@example("export {", "a.ts")
def test_any_text_has_a_summary(text: str, path: str) -> None:
    check(path, text)


@settings(deadline=None)
@given(st.data(), st.sampled_from(PATHS))
def test_damaged_programs_have_a_summary(data: st.DataObject, path: str) -> None:
    start = data.draw(st.integers(0, len(SAMPLE)))
    end = data.draw(st.integers(start, min(len(SAMPLE), start + 60)))
    put = data.draw(
        st.sampled_from(["", "{", "}", "(", "`", "<", "=>", "/*", "'", "class ", "export ", "é\n", "@", "...", "\0"])
    )
    check(path, SAMPLE[:start] + put + SAMPLE[end:])


DEEP = {
    "parentheses": "(" * 3000 + "f()" + ")" * 3000,
    "calls": "f(" * 3000 + ")" * 3000,
    "chains": "f()" + ".g()" * 3000,
    "arrows": "x => " * 3000 + "f()",
    "objects": "x = " + "{a: " * 3000 + "f()" + "}" * 3000,
    "returned objects": "".join("function f() { return { m() { this; " for _ in range(400)) + "}}; }" * 400,
    "blocks": "if (a) {" * 3000 + "f()" + "}" * 3000,
    "functions": "function f() {" * 1000 + "}" * 1000,
    "classes": "class A { m() {" * 1000 + "}}" * 1000,
    "class expressions": "x = class { y = " * 1000 + "1" + "}" * 1000,
    "arrays": "x = " + "[" * 3000 + "]" * 3000,
    "patterns": "let " + "[" * 1000 + "a" + "]" * 1000 + " = b",
    "object patterns": "let " + "{a: " * 1000 + "b" + "}" * 1000 + " = c",
    "ternaries": "a ? b : " * 2000 + "c",
    "assignments": "a = " * 2000 + "f()",
    "templates": "`${" * 1000 + "f()" + "}`" * 1000,
    "elements": "<A>" * 1000 + "</A>" * 1000,
    "spreads": "x = [" + "...[" * 1000 + "]" * 1001,
    "prototypes": "A.prototype.b = function () {" * 800 + "}" * 800,
    "exports": "exports.a = " * 1000 + "{}",
    "requires": "__importDefault(" * 1000 + "require('x')" + ")" * 1000,
}
WIDE = {
    "sums": "f() + " * 20000 + "g()",
    "elses": "if (a) f(); else " * 3000 + "g()",
    "choices": "a() || " * 5000 + "b",
}
DEEP_TYPES = {
    "generics": "let a: " + "Promise<" * 1000 + "A" + ">" * 1000,
    "arrays of types": "let a: A" + "[]" * 3000,
    "qualified names": "let a: A" + ".B" * 3000,
    "unions": "let a: " + "A | " * 3000 + "B",
    "casts": "x = a" + " as A" * 3000,
    "namespaces": "namespace A {" * 600 + "}" * 600,
    "non-null": "x = a" + "!" * 3000,
}


@pytest.mark.parametrize("name", [*DEEP, *WIDE])
@pytest.mark.parametrize("path", ["a.js", "a.tsx"])
def test_nesting_has_a_bound(name: str, path: str) -> None:
    summary = check(path, {**DEEP, **WIDE}[name])
    if name in WIDE:
        assert "nested_too_deeply" not in summary.counts


@pytest.mark.parametrize("name", DEEP_TYPES)
def test_nesting_of_types_has_a_bound(name: str) -> None:
    check("a.ts", DEEP_TYPES[name])


def test_what_is_nested_too_deeply_is_counted() -> None:
    assert summary_of("a.js", "f(" * (MAX_NESTING + 10) + ")" * (MAX_NESTING + 10)).counts["nested_too_deeply"] == 1
    assert summary_of("a.ts", "class {").counts["syntax_error"] == 1
