"""Java: what a file says, and to what its names lead in other files."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.codegraph.links import Linked
from pipeline.codegraph.reading import read
from pipeline.codegraph.summary import Summary, Symbol, decode, encode
from tests.code_corpus import corpus, link_all


def summary_of(text: str) -> Summary:
    summary = read("A.java", text)
    assert summary is not None
    assert "unreadable" not in summary.counts
    return summary


def symbols(text: str) -> dict[str, Symbol]:
    return {symbol.qualname: symbol for symbol in summary_of(text).symbols}


def linked(texts: Mapping[str, str]) -> dict[str, Linked]:
    return link_all(corpus(texts))


def edges(texts: Mapping[str, str], kind: str = "calls", scope: str = "corpus") -> set[str]:
    """Return edges with the names of files without folders where the file is in `app`."""
    return {
        f"{edge.source} -> {edge.target}".replace("src/main/java/app/", "")
        for each in linked(texts).values()
        for edge in each.edges
        if edge.kind == kind and edge.scope == scope
    }


def program(**files: str) -> dict[str, str]:
    """Return files of the package `app`, each with its package clause."""
    return {f"src/main/java/app/{name}.java": f"package app;\n{text}" for name, text in files.items()}


# --- symbols ---------------------------------------------------------------------------------------------------------


def test_all_kinds_of_definitions_are_symbols_with_their_lines_and_documentation() -> None:
    text = """/** About the file. */
package a.b;

import java.util.List;

/**
 * Keeps things.
 * @since 1
 */
@Service @Named("s")
public abstract class Store<T> extends Base<T> implements Keeper {
  private final List<T> items = new ArrayList<>();
  public Store(int size) { super(size); }
  /** Takes one. */
  @Override
  public <U> T take(U hint) throws Exception { return null; }
  public T take() { return null; }
  abstract void close();
  enum Kind { A { void go() {} }, B; void go() {} }
  record Point(int x, Point next) { Point { check(x); } }
  interface Inner { default void d() {} }
  @interface Mark { int value() default 1; }
  void run() { class Local { void m() {} } new Thread(new Runnable() { public void run() {} }); }
}
class Other {}
"""
    summary = summary_of(text)
    assert (summary.package, summary.doc, summary.language) == ("a.b", "About the file.", "java")
    found = symbols(text)
    assert {name: symbol.kind for name, symbol in found.items()} == {
        "Store": "class",
        "Store.Store": "method",
        "Store.take": "method",
        "Store.close": "method",
        "Store.Kind": "enum",
        "Store.Kind.go": "method",
        "Store.Point": "class",
        "Store.Point.x": "method",
        "Store.Point.next": "method",
        "Store.Point.Point": "method",
        "Store.Inner": "interface",
        "Store.Inner.d": "method",
        "Store.Mark": "interface",
        "Store.Mark.value": "method",
        "Store.run": "method",
        "Store.run.Local": "class",
        "Store.run.Local.m": "method",
        "Other": "class",
    }
    store = found["Store"]
    assert (store.doc, store.decorators, store.first_line) == ("Keeps things.", ("Service", 'Named("s")'), 10)
    assert store.signature == "public abstract class Store<T> extends Base<T> implements Keeper {"
    take = found["Store.take"]
    assert (take.doc, take.decorators, take.parent, take.first_line) == ("Takes one.", ("Override",), "Store", 15)
    assert take.signature == "public <U> T take(U hint) throws Exception { return null; }"
    assert text[take.start : take.end].startswith("@Override\n  public <U> T take(U hint)")


def test_offsets_are_of_characters() -> None:
    text = "class Größe { /* 🌲 */ void nächste() { } }"
    symbol = symbols(text)["Größe.nächste"]
    assert text[symbol.start : symbol.end] == "void nächste() { }"


# --- edges between files ---------------------------------------------------------------------------------------------

DECOY = {
    "other/app/Client.java": "package other.app;\n"
    "public class Client { public Client send() { return this; } public static void ping() {} }\n",
    "src/main/java/lib/Client.java": "package lib;\npublic class Client { public void send() {} public static void ping() {} }\n",
}
CLIENT = (
    "public class Client { public Client send() { return this; } public static void ping() {}\n"
    " protected void close() {} public static class Part { public void part() {} } }"
)

PROGRAMS: dict[str, tuple[dict[str, str], set[str]]] = {
    "the own package needs no import": (
        program(Client=CLIENT, A="class A { void run() { new Client().send().send(); Client.ping(); } }"),
        {
            "A.java::A.run -> Client.java::Client",
            "A.java::A.run -> Client.java::Client.send",
            "A.java::A.run -> Client.java::Client.ping",
        },
    ),
    "an import wins over the own package": (
        {
            **program(
                Client=CLIENT, A="import lib.Client;\nclass A { void run(Client c) { c.send(); Client.ping(); } }"
            ),
        },
        {
            "A.java::A.run -> src/main/java/lib/Client.java::Client.send",
            "A.java::A.run -> src/main/java/lib/Client.java::Client.ping",
        },
    ),
    "the own package wins over an import on demand": (
        program(Client=CLIENT, A="import lib.*;\nclass A { void run(Client c) { c.send(); } }"),
        {"A.java::A.run -> Client.java::Client.send"},
    ),
    "an import on demand": (
        {
            "src/main/java/shop/A.java": "package shop;\nimport java.util.*;\nimport lib.*;\n"
            "class A { void run(Client c) { c.send(); } }\n",
        },
        {"src/main/java/shop/A.java::A.run -> src/main/java/lib/Client.java::Client.send"},
    ),
    "static imports": (
        program(
            Client=CLIENT,
            A="import static app.Client.ping;\nclass A { void run() { ping(); } }",
            B="import static app.Client.*;\nclass B { void run() { ping(); near(); } void near() {} }",
            C="import static app.Client.*;\nclass C { void run() { ping(); } void ping() {} }",
        ),
        {
            "A.java::A.run -> Client.java::Client.ping",
            "B.java::B.run -> Client.java::Client.ping",
            "B.java::B.run -> B.java::B.near",
            "C.java::C.run -> C.java::C.ping",
        },
    ),
    "names with their package and nested classes": (
        program(
            Client=CLIENT,
            A="import app.Client.Part;\n"
            "class A { lib.Client c; void run() { c.send(); new Client.Part().part(); new Part().part();\n"
            " lib.Client.ping(); } }",
        ),
        {
            "A.java::A.run -> src/main/java/lib/Client.java::Client.send",
            "A.java::A.run -> src/main/java/lib/Client.java::Client.ping",
            "A.java::A.run -> Client.java::Client.Part",
            "A.java::A.run -> Client.java::Client.Part.part",
        },
    ),
    "inherited and overridden methods": (
        program(
            Base="abstract class Base { void save() { check(); } void check() {} }",
            Middle="class Middle extends Base { @Override void check() { super.check(); } }",
            A="class A extends Middle { void run() { save(); this.check(); super.save(); } }",
            Use="class Use { void use(A a, Base b) { a.check(); b.check(); new A().save(); } }",
        ),
        {
            "Base.java::Base.save -> Base.java::Base.check",
            "Middle.java::Middle.check -> Base.java::Base.check",
            "A.java::A.run -> Base.java::Base.save",
            "A.java::A.run -> Middle.java::Middle.check",
            "Use.java::Use.use -> Middle.java::Middle.check",
            "Use.java::Use.use -> Base.java::Base.check",
            "Use.java::Use.use -> A.java::A",
            "Use.java::Use.use -> Base.java::Base.save",
        },
    ),
    "typed receivers": (
        program(
            Client=CLIENT,
            A="import java.util.List;\n"
            "class A { private Client field; static final Client SHARED = new Client(); Client get() { return field; }\n"
            " void a() { field.send(); this.field.send(); } void b() { SHARED.send(); A.SHARED.send(); }\n"
            " void c() { get().send(); var v = get(); v.send(); } void d(Client[] all) { for (Client c : all) c.send(); }\n"
            " void e(Object o) { if (o instanceof Client c && c.send() != null) c.send(); ((Client) o).send(); }\n"
            " void f() { try (Client c = get()) { c.send(); } catch (Exception e) { } }\n"
            " void g(List<Client> all) { for (var c : all) { } all.forEach((Client c) -> c.send()); } }",
        ),
        {
            *(f"A.java::A.{name} -> Client.java::Client.send" for name in "abcdefg"),
            "A.java::A -> Client.java::Client",
            "A.java::A.c -> A.java::A.get",
            "A.java::A.f -> A.java::A.get",
        },
    ),
    "interfaces": (
        program(
            Sink='interface Sink { Sink write(String s); default void end() { write(""); } static Sink none() { return null; } }',
            File="class File implements Sink { public Sink write(String s) { return this; } }",
            A='class A { void run(Sink s) { s.write("a").end(); Sink.none().end(); new File().end(); } }',
        ),
        {
            "Sink.java::Sink.end -> Sink.java::Sink.write",
            "A.java::A.run -> Sink.java::Sink.write",
            "A.java::A.run -> Sink.java::Sink.end",
            "A.java::A.run -> Sink.java::Sink.none",
            "A.java::A.run -> File.java::File",
        },
    ),
    "inner, local and anonymous classes, lambdas and method references": (
        program(
            A="class A { void outer() {} void helper() {}\n"
            " class Inner { void in() { outer(); A.this.helper(); } }\n"
            " void run() { Runnable r = () -> outer(); Runnable s = this::helper; s.run();\n"
            "  class Local { void l() { helper(); } } new Local().l();\n"
            "  new Thread(new Runnable() { public void run() { outer(); mine(); } void mine() {} }); } }",
        ),
        {
            "A.java::A.Inner.in -> A.java::A.outer",
            "A.java::A.Inner.in -> A.java::A.helper",
            "A.java::A.run -> A.java::A.outer",
            "A.java::A.run.Local.l -> A.java::A.helper",
            "A.java::A.run -> A.java::A.run.Local",
            "A.java::A.run -> A.java::A.run.Local.l",
        },
    ),
    "enums and records": (
        program(
            Kind="enum Kind { A, B; Kind next() { return B; } static Kind first() { return A; } }",
            Point="record Point(int x, Kind kind) { Point move() { return new Point(x, kind()); } }",
            Use="class Use { void use(Point p) { Kind.A.next(); Kind.first().next(); p.kind().next(); p.move(); } }",
        ),
        {
            "Point.java::Point.move -> Point.java::Point",
            "Point.java::Point.move -> Point.java::Point.kind",
            "Use.java::Use.use -> Kind.java::Kind.next",
            "Use.java::Use.use -> Kind.java::Kind.first",
            "Use.java::Use.use -> Point.java::Point.kind",
            "Use.java::Use.use -> Point.java::Point.move",
        },
    ),
    "a field and a method of one name, and locals of several blocks": (
        program(
            Client=CLIENT,
            Other="class Other { void send() {} }",
            A="class A { Client client; Client client() { return client; }\n"
            " void run() { client.send(); client().send(); }\n"
            " void two() { { Client x = client; x.send(); } { Other x = new Other(); x.send(); } } }",
        ),
        {
            "A.java::A.run -> Client.java::Client.send",
            "A.java::A.run -> A.java::A.client",
            "A.java::A.two -> Client.java::Client.send",
            "A.java::A.two -> Other.java::Other",
            "A.java::A.two -> Other.java::Other.send",
        },
    ),
    "overloads share an id": (
        program(A="class A { void f(int i) { g(); } void f(String s) { h(); } void g() {} void h() {} }"),
        {"A.java::A.f -> A.java::A.g", "A.java::A.f -> A.java::A.h"},
    ),
    "the number of arguments tells overloads of a base apart": (
        program(
            Base="class Base { String tell(String s) { return tell(s, 1); } String tell(String s, int n) { return s; }\n"
            " void all(String s, Object... rest) {} void all(String s, int n) { only(); } void only() {} }",
            A="class A extends Base { String tell(String s, int n) { return tell(s); }\n"
            ' void run() { all("a"); all("a", 1); all("a", 1, 2, 3); } }',
            Use='class Use { void use(A a) { a.tell("a").trim(); } void two(A a) { a.tell("a", 1); } }',
        ),
        {
            "Base.java::Base.all -> Base.java::Base.only",
            "A.java::A.tell -> Base.java::Base.tell",
            "A.java::A.run -> Base.java::Base.all",
            "Use.java::Use.use -> Base.java::Base.tell",
            "Use.java::Use.two -> A.java::A.tell",
        },
    ),
    "switches": (
        program(
            Client=CLIENT,
            A="class A { void run(Object o) {\n"
            " Client r = switch (o) { case Client c -> c.send(); default -> { yield make(); } };\n"
            " r.send(); switch (o.hashCode()) { case 1: make(); break; default: other(); } }\n"
            " Client make() { return null; } void other() {} }",
        ),
        {
            "A.java::A.run -> Client.java::Client.send",
            "A.java::A.run -> A.java::A.make",
            "A.java::A.run -> A.java::A.other",
        },
    ),
    "type parameters stand for their bounds": (
        program(
            Client=CLIENT,
            A="class A<T extends Client> { T held; <U extends T> void run(T t, U u) { t.send(); held.send(); } }",
        ),
        {"A.java::A.run -> Client.java::Client.send"},
    ),
    "a test sees the package that it tests": (
        {
            **program(Client=CLIENT),
            "src/test/java/app/ClientTest.java": "package app;\nclass ClientTest { void t() { new Client().close(); } }\n",
        },
        {
            "src/test/java/app/ClientTest.java::ClientTest.t -> Client.java::Client",
            "src/test/java/app/ClientTest.java::ClientTest.t -> Client.java::Client.close",
        },
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_calls_lead_to_the_right_definitions_and_to_no_other(name: str) -> None:
    texts, expected = PROGRAMS[name]
    assert edges({**DECOY, **texts}) == expected


def test_imports_and_bases_lead_to_files_and_classes_or_outside() -> None:
    texts = {
        **program(
            Base="public class Base {}",
            A="import java.io.Closeable;\nimport java.util.*;\nimport lib.Client;\n"
            "class A extends Base implements Closeable, Runnable {\n void run() { new Base() { }; Objects.hash(); } }",
        ),
        **DECOY,
    }
    assert edges(texts, "imports") == {"A.java -> src/main/java/lib/Client.java"}
    assert edges(texts, "imports", "external") == {"A.java -> java.io", "A.java -> java.util"}
    assert edges(texts, "inherits") == {"A.java::A -> Base.java::Base"}
    assert edges(texts, "inherits", "external") == {"A.java::A -> java.io.Closeable"}
    assert edges(texts, "inherits", "builtin") == {"A.java::A -> Runnable"}
    assert edges(texts, scope="external") == {"A.java::A.run -> java.util.Objects.hash"}


def test_a_class_that_lies_in_several_places_is_that_beside_the_importer_or_none() -> None:
    holder = "package lib;\npublic class Twice { public static void f() {} }\n"
    importer = "package app;\nimport lib.Twice;\nclass A { void run() { Twice.f(); } }\n"
    texts = {"one/src/lib/Twice.java": holder, "two/src/lib/Twice.java": holder, "two/src/app/A.java": importer}
    assert edges(texts) == {"two/src/app/A.java::A.run -> two/src/lib/Twice.java::Twice.f"}
    elsewhere = {"one/src/lib/Twice.java": holder, "two/src/lib/Twice.java": holder, "three/app/A.java": importer}
    assert edges(elsewhere) == set()
    assert linked(elsewhere)["three/app/A.java"].unresolved["missing_module"] >= 1


# --- hostile text ----------------------------------------------------------------------------------------------------

SAMPLE = """package a.b; import java.util.*; import static x.Y.z; import static x.Y.*;
/** D. */ @X(a = f()) public class C<T extends F> extends p.B<T> implements I { private int[] m = {1, f()}, n;
 { init(); } static { s(); } C(int a, F... r) { super(a); this.m = new q.R<T>(a) { void r() { } }; }
 <U> U g(final List<U> l) { return (U) l.stream().map(F::b).map(C::new).collect(toList()); }
 enum E { A(1) { void z() {} }, B; E(int x) {} } record R(int a, F b) { R { c(a); } }
 interface J { default void d() { C.this.f(); I.super.d(); } } @interface N { int v() default 1; }
 void s(Object o) { for (F f : fs) f.g(); for (int i = 0; i < 3; i++) {}
 if (o instanceof R(int a, var b) && b.c()) {} else if (o instanceof F f) {}
 int v = switch (o) { case F f when f.x() -> 1; default -> { yield 2; } };
 try (F r = open(); s) { } catch (E1 | E2 e) { } finally { } synchronized (this) { x = y += 1; } throw new E();
 lbl: do { var q = c ? a : b; } while (a); assert x : y(); F[] z = new F[f()]; o.new I(); String t = \"\"\"
 \"\"\"; } }
"""


def check(text: str) -> Summary:
    summary = summary_of(text)
    assert decode(encode(summary)) == summary
    for symbol in summary.symbols:
        assert 0 <= symbol.start < symbol.end <= len(text)
        assert 1 <= symbol.first_line <= symbol.last_line <= text.count("\n") + 1
        assert symbol.parent == "" or symbol.parent in {other.qualname for other in summary.symbols}
    assert not linked({"A.java": text})["A.java"].edges or summary.body
    return summary


@given(st.text(max_size=400))
@example("class \ud800 { void m() { x = '\ud800'; } }")
@example("")
@example("import")
def test_any_text_has_a_summary(text: str) -> None:
    check(text)


@settings(deadline=None)
@given(st.data())
def test_damaged_programs_have_a_summary(data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(SAMPLE)))
    end = data.draw(st.integers(start, min(len(SAMPLE), start + 60)))
    put = data.draw(
        st.sampled_from(["", "{", "}", "(", "<", "->", "/*", '"', "class ", "import ", "é\n", "@", "...", "\0", "::"])
    )
    check(SAMPLE[:start] + put + SAMPLE[end:])


DEEP = {
    "parentheses": "(" * 3000 + "f()" + ")" * 3000,
    "calls": "f(" * 3000 + ")" * 3000,
    "chains": "f()" + ".g()" * 3000,
    "fields": "x = a" + ".b" * 3000,
    "lambdas": "x = " + "a -> " * 3000 + "f()",
    "blocks": "if (a) {" * 3000 + "f();" + "}" * 3000,
    "anonymous classes": "new A() { void m() { " * 800 + "}};" * 800,
    "local classes": "class A { void m() { " * 800 + "}}" * 800,
    "ternaries": "x = " + "a ? b : " * 2000 + "c",
    "assignments": "a = " * 2000 + "f()",
    "casts": "x = " + "(A) " * 2000 + "f()",
    "switches": "x = " + "switch (a) { case 1 -> " * 800 + "f();" + "};" * 800,
    "types": "A<" * 1000 + "B" + ">" * 1000 + " x",
    "arrays": "int[] x = " + "{" * 2000 + "}" * 2000,
    "patterns": "if (o instanceof " + "R(" * 1000 + "A a" + ")" * 1000 + ") {}",
}
WIDE = {"sums": "x = " + "f() + " * 20000 + "g()", "elses": "if (a) f(); else " * 3000 + "g()"}


@pytest.mark.parametrize("name", [*DEEP, *WIDE])
def test_nesting_has_a_bound(name: str) -> None:
    summary = check("class C { void m() { " + {**DEEP, **WIDE}[name] + "; } }")
    if name in WIDE:
        assert "nested_too_deeply" not in summary.counts


def test_nested_classes_have_a_bound() -> None:
    assert check("class A { " * 1000 + "}" * 1000).counts["nested_too_deeply"] == 1
