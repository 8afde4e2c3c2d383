"""Java: which of several methods of one name a call means, and what would be a false edge."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pipeline.codegraph.linker.answers import differing
from pipeline.codegraph.linker.link import Linker
from pipeline.codegraph.rules import RULES
from tests.code_corpus import corpus, edges, link_all

KIN = {
    "A": "class A { void a() {} void both() {} }",
    "B": "class B extends A { void b() {} void a() {} }",
    "C": "class C { void c() {} void both() {} }",
}


def program(files: Mapping[str, str]) -> dict[str, str]:
    """Return files of the package `app`, each with its package clause, beside those of KIN."""
    return {f"app/{name}.java": f"package app;\n{text}" for name, text in {**KIN, **files}.items()}


def calls(files: Mapping[str, str], source: str) -> set[str]:
    """Return what a definition calls, without files and constructions."""
    found = [pair for pair in edges(program(files)) if pair[0].rpartition("::")[2] == source]
    return {target.rpartition("::")[2] for _, target in found if "." in target.rpartition("::")[2]}


def unresolved(files: Mapping[str, str], name: str) -> dict[str, int]:
    return dict(link_all(corpus(program(files)))[f"app/{name}.java"].unresolved)


CHOICES = (
    "class S { A f(int i) { return null; } C f(String s) { return null; } C f(double d) { return null; }\n"
    " A f(Object... all) { return null; }\n"
    " void t(int n, String s, Integer boxed, short small, long big, String[] many, boolean is, Object any) { %s } }"
)
CALLS: dict[str, set[str]] = {
    "f(1).both();": {"A.both"},
    'f("a").both();': {"C.both"},
    "f(n).both();": {"A.both"},
    "f(s).both();": {"C.both"},
    'f("a" + n).both();': {"C.both"},
    "f('c').both();": {"A.both"},
    "f(small).both();": {"A.both"},
    "f(big).both();": {"C.both"},
    "f(2f).both();": {"C.both"},
    "f(-1).both();": {"A.both"},
    "f(0x1L).both();": {"C.both"},
    "f(boxed).both();": {"A.both"},
    "f(is).both();": {"A.both"},
    "f(n == 1 || !is).both();": {"A.both"},
    "f(any).both();": {"A.both"},
    "f().both();": {"A.both"},
    "f(s, s).both();": {"A.both"},
    "f((String) any).both();": {"C.both"},
    "f((int) big).both();": {"A.both"},
    "f(many[0]).both();": {"C.both"},
    "f(many.length).both();": {"A.both"},
    "f(any.toString()).both();": {"C.both"},
    "f(any.hashCode()).both();": {"A.both"},
    "f(this).both();": {"A.both"},
    "f(new B()).both();": {"A.both"},
    "f(is ? s : null).both();": {"C.both"},
    "f(is ? 1 : n).both();": {"A.both"},
    "var v = s; f(v).both();": {"C.both"},
    "f(() -> 1).both();": {"A.both"},
}


@pytest.mark.parametrize("text", CALLS)
def test_the_types_of_arguments_choose_among_overloads(text: str) -> None:
    assert calls({"S": CHOICES % text}, "S.t") == {"S.f", *CALLS[text]}


@pytest.mark.parametrize("text", ["f(unknown.x()).both();", "f(any.unknown()).both();", "f(Unknown.FIELD).both();"])
def test_of_overloads_of_one_class_that_cannot_be_told_apart_the_edge_is_right_and_the_result_unknown(
    text: str,
) -> None:
    assert calls({"S": CHOICES % text}, "S.t") == {"S.f"}
    assert unresolved({"S": CHOICES % text}, "S")["ambiguous"] == 1


def test_overloads_of_several_classes_that_cannot_be_told_apart_are_ambiguous() -> None:
    files = {
        "S": "class S { void f(A a) {} }",
        "T": "class T extends S { void f(C c) {} void t(Unknown u) { f(u.x()); } void two() { f(new C()); f(new B()); } }",
    }
    assert calls(files, "T.t") == set()
    assert unresolved(files, "T")["ambiguous"] == 1
    assert calls(files, "T.two") == {"S.f", "T.f"}


PROGRAMS: dict[str, tuple[dict[str, str], str, set[str]]] = {
    "what an object is seen as decides, not what it is": (
        {
            "S": "class S { void f(Object o) {} }",
            "T": "class T extends S { void f(String s) {} }",
            "U": 'class U { void u() { S s = new T(); s.f("x"); } void v() { T t = new T(); t.f(1); } }',
        },
        "U.u",
        {"S.f"},
    ),
    "what an argument is seen as decides, not what it is": (
        {
            "S": "class S { C f(A a) { return null; } }",
            "T": "class T extends S { A f(B b) { return null; } void t() { A a = new B(); f(a).both(); } }",
        },
        "T.t",
        {"S.f", "C.both"},
    ),
    "a method with other parameters overrides nothing": (
        {
            "S": "class S { void run(short[] s) { f(s); } void f(short[] s) {} void f(char c) {} }",
            "T": "class T extends S { void f(char c) {} void t() { run(null); } }",
            "U": "class U { void u() { new T().f(new short[1]); } }",
        },
        "U.u",
        {"S.f"},
    ),
    "what overrides a method whose parameter is a parameter of types": (
        {
            "G": "abstract class G<T> { abstract void put(T t); void put(C c) {} }",
            "H": "class H extends G<A> { void put(A a) {} void t() { put(new A()); } void u() { put(new C()); } }",
        },
        "H.t",
        {"H.put"},
    ),
    "a private method is overridden by none": (
        {
            "S": "class S { void run() { f(); } private void f() {} }\n"
            "class T extends S { void f() {} void t() { new T().run(); } }"
        },
        "S.run",
        {"S.f"},
    ),
    "what fits exactly is meant, whatever else may fit": (
        {
            "S": "import x.Y;\nimport x.Z;\nclass S { static void f(Y y) {} }",
            "T": "import x.Y;\nimport x.Z;\nclass T extends S { static void f(Z z) {} void t(Object o) { f((Z) o); } }",
        },
        "T.t",
        {"T.f"},
    ),
    "arguments go to the parameters of the overload that is meant": (
        {
            "S": "class S { void f(Runnable r) { r.both(); } void f(A r) { r.a(); } }",
            "U": "class U { void u() { new S().f(new B()); } }",
        },
        "S.f",
        {"B.a"},
    ),
    "arguments go to the constructor that is meant": (
        {
            "S": "class S { Object x; S(A a) {} S(Object o, int n) { x = o; } S(Runnable o) { x = o; } void t() { x.both(); } }",
            "U": "class U { void u() { new S(new A()); } }",
        },
        "S.t",
        set(),
    ),
    "a record's own constructor beside one that is written": (
        {"S": "record S(A a) { S(A a, int n) { this(a); } static S of(A a) { return new S(a); } }"},
        "S.of",
        set(),
    ),
    "a class is not its constructor where its own members have it as a type": (
        {"S": "class S { S() {} S next() { return this; } void t(S other) { other.next().next(); } }"},
        "S.t",
        {"S.next"},
    ),
    "every class has the methods of objects itself": (
        {"S": "class S { public String toString() { return null; } class I { String t() { return toString(); } } }"},
        "S.I.t",
        set(),
    ),
    "a base outside may have what a class around has": (
        {"S": "import x.Y;\nclass S { void set() {} class I extends Y { void t() { set(); } } }"},
        "S.I.t",
        set(),
    ),
    "an interface of the language has few methods": (
        {"S": "class S { void set() {} class I implements Runnable { public void run() { set(); } } }"},
        "S.I.run",
        {"S.set"},
    ),
    "a reference to a method is neither the class nor a field": (
        {"S": "class S { C both; void t() { Runnable r = C::new; r.both(); Runnable q = this::both; q.both(); } }"},
        "S.t",
        set(),
    ),
    "static imports of one name from several classes": (
        {
            "P": "class P { static void f(int i) {} static void g() {} }",
            "Q": "class Q { static void f(String s) {} static void h() {} }",
            "U": 'import static app.P.f;\nimport static app.Q.f;\nclass U { void u() { f(1); f("x"); } }',
        },
        "U.u",
        set(),
    ),
    "static imports of all names from several classes": (
        {
            "P": "class P { static void f(int i) {} static void g() {} }",
            "Q": "class Q { static void f(String s) {} static void h() {} }",
            "U": "import static app.P.*;\nimport static app.Q.*;\nclass U { void u() { f(1); g(); h(); } }",
        },
        "U.u",
        {"P.g", "Q.h"},
    ),
    "super is the class above the text, not what a subclass implements": (
        {
            "S": "interface I { default void f() {} }\nclass S { void t() { super.f(); } }\n"
            "class T extends S implements I { void u() { t(); } }"
        },
        "S.t",
        set(),
    ),
    "an inherited class of a name hides the package's": (
        {
            "S": "class S { static class A { void both() {} } }",
            "T": "class T extends S { void t(A a) { a.both(); new A().both(); } }",
        },
        "T.t",
        {"S.A", "S.A.both"},
    ),
    "more overloads than a set has members": (
        {
            "S": "class S { S f(Object o) { return this; } "
            + " ".join(f"S f({kind} x) {{ return this; }} S f({kind}[] x) {{ return this; }}" for kind in
                       ("int", "long", "short", "byte", "char", "float", "double", "boolean", "A", "C"))
            + " void end() {} }",
            "U": "class U { void u(long[] x, Unknown y) { new S().f(x).f(1).f(y.z()).end(); } }",
        },
        "U.u",
        {"S.f", "S.end"},
    ),
    "any number of arguments, and none": (
        {
            "S": "class S { S all(int... of) { return this; } S all() { return this; } void end() {}\n"
            " void t() { all(1, 2).all().all(3).end(); } }",
        },
        "S.t",
        {"S.all", "S.end"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_false_edge_comes_of_names_that_several_definitions_share(name: str) -> None:
    files, source, expected = PROGRAMS[name]
    assert calls(files, source) == expected


# --- what depends on overloads ---------------------------------------------------------------------------------------

VARIANTS: dict[str, tuple[str, ...]] = {
    "app/S.java": (
        "class S { A x; C f(A a) { return null; } void f(C c, int n) {} S(A a) {} }",
        "class S { B x; C f(A a) { return null; } void f(C c, int n) {} S(A a) {} }",
        "class S { A x; C f(A a) { return null; } C f(B b) { return null; } S(A a) {} S(B b) {} }",
        "class S { A x; A f(A a) { return null; } private C f(B b) { return null; } S(Object o) {} static class A { } }",
        "class S extends Unknown { A x; C f(Object... a) { return null; } }",
    ),
    "app/T.java": (
        "class T extends S { T(A a) { super(a); } }",
        "class T extends S { A f(B b) { return null; } C f(Object o) { return null; } }",
        "class T { C f(long n) { return null; } A x; }",
    ),
    "app/U.java": (
        "class U { void u(T t, S s, A a) { t.f(a).both(); s.f(new B()).both(); t.f(t.x).a(); new S(new B()); t.f(1).both(); } }",
        "class U extends T { void u(A a) { f(a).both(); super.f(new B()).both(); f(x).both(); a.a(); } }",
    ),
}  # fmt: skip


@pytest.mark.parametrize("where", [(0, 0, 0), (1, 0, 1), (2, 1, 0), (3, 1, 1), (4, 1, 0)])
def test_a_file_links_to_the_same_while_no_answer_that_it_got_changes(where: tuple[int, int, int]) -> None:
    base = program({}) | {
        path: f"package app;\n{texts[at]}" for (path, texts), at in zip(VARIANTS.items(), where, strict=True)
    }
    kept = 0
    for path, text in [(path, text) for path, texts in VARIANTS.items() for text in texts]:
        before, after = corpus(base), corpus({**base, path: f"package app;\n{text}"})
        old, new = before.summary(path), after.summary(path)
        assert old is not None and new is not None
        changed = set(differing(path, old, new))
        for other in sorted(base.keys() - {path}):
            linked = Linker(before, RULES).link(other)
            if not changed & linked.reads:
                kept += 1
                assert Linker(after, RULES).link(other) == linked
    assert kept > len(VARIANTS)
