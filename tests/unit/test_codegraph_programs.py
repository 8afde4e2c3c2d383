"""The linker against the truth: small programs are run, what calls what is watched, and the two call graphs are compared.

In a program without branches all that is claimed must happen. `missed` names the calls that happen and are not found.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import pytest

from tests.code_corpus import call_edges

Edges = frozenset[tuple[str, str]]


class Program(NamedTuple):
    """Files by path, and the calls that are not found."""

    files: dict[str, str]
    missed: Edges = frozenset()


def main(text: str, *missed: tuple[str, str], **others: str) -> Program:
    files = {"main.py": text} | {f"{name.replace('__', '/')}.py": other for name, other in others.items()}
    return Program({path: textwrap.dedent(each) for path, each in files.items()}, frozenset(missed))


def happened(program: Program, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Edges:
    """Run a program and return which of its functions called which."""
    for path, text in program.files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, "utf-8")
    monkeypatch.syspath_prepend(str(folder))
    known = set(sys.modules)
    found: set[tuple[str, str]] = set()

    def name(code: CodeType) -> str | None:
        file = Path(code.co_filename)
        if not file.is_relative_to(folder):
            return None
        module = ".".join(file.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
        qualname = code.co_qualname.replace("<locals>.", "").replace("<lambda>", "<lambda1>").removeprefix("<module>")
        return f"{module}.{qualname}" if qualname else module

    def watch(frame: FrameType, event: str, arg: Any) -> None:
        if event != "call" or not frame.f_code.co_flags & inspect.CO_OPTIMIZED or is_part(frame.f_code):
            return
        caller = frame.f_back
        while caller is not None and (is_part(caller.f_code) or name(caller.f_code) is None):
            if caller.f_code.co_name == "_call_with_frames_removed":
                return
            caller = caller.f_back
        source, target = name(caller.f_code) if caller is not None else None, name(frame.f_code)
        if source is not None and target is not None:
            found.add((source, target))

    code = compile(program.files["main.py"], str(folder / "main.py"), "exec")
    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        exec(code, {"__name__": "main"})
    finally:
        sys.setprofile(before)
        for module in set(sys.modules) - known:
            del sys.modules[module]
    return frozenset(found)


def is_part(code: CodeType) -> bool:
    """Whether code counts for the scope around it."""
    return code.co_name in ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>")


PROGRAMS: dict[str, Program] = {
    # --- builtins ----------------------------------------------------------------------------------------------------
    "builtins: what map calls is found": main(
        """
        def double(x):
            return x + x
        def total(xs):
            return sum(map(double, xs))
        total([1, 2])
        """
    ),
    "builtins: the key of sorted, and what filter asks": main(
        """
        def size(word):
            return len(word)
        def long(word):
            return len(word) > 2
        def order(words):
            return sorted(filter(long, words), key=size)
        order(["abc", "de", "fgh"])
        """
    ),
    "builtins: getattr with a constant": main(
        """
        class Door:
            def open(self):
                return self.bolt()
            def bolt(self):
                return None
        getattr(Door(), "open")()
        """
    ),
    "builtins: methods of literals are no functions of ours": main(
        """
        def split(text):
            return text
        "a b".split()
        [1].append(2)
        {}.update({})
        split("x")
        """
    ),
    "builtins: next and iter follow the protocol": main(
        """
        class Down:
            def __init__(self):
                self.n = 2
            def __iter__(self):
                return self
            def __next__(self):
                self.n -= 1
                return leaf
        def leaf():
            return None
        walker = Down()
        next(walker)()
        """
    ),
    # --- dicts -------------------------------------------------------------------------------------------------------
    "dicts: a value is called by its key": main(
        """
        def red():
            return 1
        def blue():
            return 2
        def grey():
            return 3
        paint = {"r": red, "b": blue}
        paint["g"] = grey
        paint["r"]()
        paint["g"]()
        """
    ),
    "dicts: a later value replaces the first": main(
        """
        def old():
            return 1
        def new():
            return 2
        table = {"k": old}
        table["k"] = new
        table["k"]()
        """
    ),
    "dicts: a function adds a key": main(
        """
        def added():
            return 1
        def fill(box):
            box["a"] = added
        shelf = {}
        fill(shelf)
        shelf["a"]()
        """
    ),
    "dicts: the key is a parameter": main(
        """
        def one():
            return 1
        def two():
            return 2
        jobs = {"one": one, "two": two, "three": print}
        def start(name):
            jobs[name]()
        start("one")
        start("two")
        """
    ),
    "dicts: nested, updated and handed back": main(
        """
        def leaf():
            return 1
        def other():
            return 2
        def make():
            return {"in": {"deep": leaf}}
        tree = make()
        tree.update({"more": other})
        tree["in"]["deep"]()
        tree["more"]()
        """
    ),
    "dicts: numbers and words are different keys": main(
        """
        def number():
            return 1
        def word():
            return 2
        mixed = {1: number, "1": word}
        mixed["1"]()
        """
    ),
    "dicts: the same dictionary under two names": main(
        """
        def before():
            return 1
        def after():
            return 2
        one = {"k": before}
        two = one
        two["k"] = after
        one["k"]()
        """
    ),
    "dicts: all values in turn": main(
        """
        def a():
            return 1
        def b():
            return 2
        for name, job in {"a": a, "b": b}.items():
            job()
        """
    ),
    # --- dynamic -----------------------------------------------------------------------------------------------------
    "dynamic: what a text calls is not guessed": main(
        """
        def hidden():
            return 1
        eval("hidden()")
        """,
        ("main", "main.hidden"),
    ),
    "dynamic: a name made at run time is not guessed": main(
        """
        class Tool:
            def cut(self):
                return 1
        getattr(Tool(), "".join(["c", "ut"]))()
        """,
        ("main", "main.Tool.cut"),
    ),
    # --- exceptions --------------------------------------------------------------------------------------------------
    "exceptions: raising a class makes an instance": main(
        """
        class Broken(Exception):
            def __init__(self):
                self.why = reason()
        def reason():
            return "so"
        def fail():
            raise Broken
        try:
            fail()
        except Broken as error:
            error.why
        """
    ),
    "exceptions: methods of what was caught": main(
        """
        class Broken(Exception):
            def tell(self):
                return 1
        kinds = Broken
        try:
            raise kinds()
        except (ValueError, Broken) as error:
            error.tell()
        """
    ),
    "exceptions: through an attribute": main(
        """
        class Errors:
            class Late(Exception):
                def __init__(self):
                    super().__init__("late")
        def stop():
            raise Errors.Late()
        try:
            stop()
        except Errors.Late:
            pass
        """
    ),
    # --- external ----------------------------------------------------------------------------------------------------
    "external: what the library calls is its own": main(
        """
        import functools
        def add(a, b):
            return a
        functools.reduce(add, [1, 2])
        def shown():
            return functools.partial(add, 1)
        shown()
        """,
        ("main", "main.add"),
    ),
    "external: a base outside keeps our methods": main(
        """
        import threading
        class Job(threading.Thread):
            def run(self):
                self.step()
            def step(self):
                return 1
        Job(daemon=True).run()
        """
    ),
    # --- generators --------------------------------------------------------------------------------------------------
    "generators: what is yielded is called": main(
        """
        def leaf():
            return 1
        def each():
            yield leaf
        for one in each():
            one()
        """
    ),
    "generators: an iterable class": main(
        """
        class Rows:
            def __init__(self, count):
                self.count = count
            def __iter__(self):
                return self
            def __next__(self):
                if not self.count:
                    raise StopIteration
                self.count -= 1
                return row
        def row():
            return 1
        for each in Rows(2):
            each()
        """
    ),
    "generators: from one to the next": main(
        """
        def leaf():
            return 1
        def inner():
            yield leaf
        def outer():
            yield from inner()
        def use(source):
            for one in source():
                one()
        use(outer)
        """
    ),
    "generators: comprehension over one": main(
        """
        def leaf():
            return 1
        def numbers():
            yield leaf
        found = [one() for one in numbers()]
        """
    ),
    # --- kwargs ------------------------------------------------------------------------------------------------------
    "kwargs: by name, by default, by spreading": main(
        """
        def red():
            return 1
        def blue():
            return 2
        def usual():
            return 3
        def paint(first=usual, *, second=usual):
            first()
            second()
        paint(second=red)
        paint(**{"first": blue})
        """
    ),
    "kwargs: handed on": main(
        """
        def leaf():
            return 1
        def last(job):
            job()
        def middle(**options):
            last(**options)
        middle(job=leaf)
        """
    ),
    "kwargs: all the rest": main(
        """
        def leaf():
            return 1
        def run(*jobs, **named):
            jobs[0]()
            named["extra"]()
        def other():
            return 2
        run(leaf, extra=other)
        """
    ),
    # --- lambdas -----------------------------------------------------------------------------------------------------
    "lambdas: called, handed on, given back": main(
        """
        def leaf():
            return 1
        def use(job):
            return job()
        use(lambda: leaf())
        def make():
            return lambda: leaf()
        make()()
        """
    ),
    "lambdas: what their parameter calls": main(
        """
        def leaf():
            return 1
        run = lambda job: job()
        run(leaf)
        """
    ),
    "lambdas: a default keeps a value": main(
        """
        def one():
            return 1
        def two():
            return 2
        job = one
        late = lambda f=job: f()
        job = two
        late()
        """
    ),
    # --- lists -------------------------------------------------------------------------------------------------------
    "lists: by place, by slice, from the end": main(
        """
        def a():
            return 1
        def b():
            return 2
        def c():
            return 3
        jobs = [a, b, c]
        jobs[0]()
        jobs[-1]()
        rest = jobs[1:2]
        rest[0]()
        """
    ),
    "lists: nested, appended, in a loop": main(
        """
        def a():
            return 1
        def b():
            return 2
        rows = [[a], []]
        rows[0][0]()
        more = []
        more.append(b)
        for job in more:
            job()
        """
    ),
    "lists: a comprehension of calls": main(
        """
        def make(x):
            return leaf
        def leaf():
            return 1
        made = [make(x) for x in [1, 2]]
        made[0]()
        """
    ),
    "lists: the place is a parameter": main(
        """
        def a():
            return 1
        def b():
            return 2
        jobs = [a, b]
        def start(place):
            jobs[place]()
        start(1)
        """
    ),
    # --- returns -----------------------------------------------------------------------------------------------------
    "returns: through files": main(
        """
        from shop import find
        find()()
        """,
        shop="""
        import parts
        def find():
            return parts.pick()
        """,
        parts="""
        def pick():
            return made
        def made():
            return 1
        """,
    ),
    "returns: what a function was given": main(
        """
        def a():
            return 1
        def b():
            return 2
        def same(x):
            return x
        same(a)()
        kept = same(b)
        """
    ),
    "returns: an object with what it was made of": main(
        """
        class Engine:
            def start(self):
                return 1
        class Car:
            def __init__(self, engine):
                self.engine = engine
            def drive(self):
                return self.engine
        def build():
            return Car(Engine())
        build().drive().start()
        """
    ),
    "returns: itself, again and again": main(
        """
        class Query:
            def where(self):
                return self
            def run(self):
                return 1
        Query().where().where().run()
        """
    ),
    # --- classes -----------------------------------------------------------------------------------------------------
    "classes: properties, class methods, static methods, aliases": main(
        """
        class Shape:
            @property
            def size(self):
                return self.measure()
            def measure(self):
                return 1
            @classmethod
            def make(cls):
                return cls.blank()
            @staticmethod
            def blank():
                return Shape()
        Alias = Shape
        Alias.make().size
        """
    ),
    "classes: super along the order of bases": main(
        """
        class Root:
            def go(self):
                return 1
        class Left(Root):
            def go(self):
                return super().go()
        class Right(Root):
            def go(self):
                return super().go()
        class Both(Left, Right):
            def go(self):
                return super().go()
        Both().go()
        Left().go()
        """,
    ),
    "classes: an attribute names a function": main(
        """
        def helper(self):
            return 1
        class Tool:
            run = helper
            def go(self):
                self.run()
        Tool().go()
        """
    ),
    "classes: called objects and managers": main(
        """
        class Lock:
            def __enter__(self):
                return self
            def __exit__(self, *error):
                return None
            def __call__(self):
                return 1
        with Lock() as held:
            held()
        """
    ),
    "classes: a subclass fills in what the base calls": main(
        """
        class Base:
            def run(self):
                self.step()
        class Real(Base):
            def step(self):
                return 1
        Real().run()
        """
    ),
    "classes: set from outside": main(
        """
        def hook():
            return 1
        class Tool:
            def go(self):
                self.on_go()
        tool = Tool()
        tool.on_go = hook
        tool.go()
        """
    ),
    "classes: the kept object of a list": main(
        """
        class Leaf:
            def cut(self):
                return 1
        class Tree:
            def __init__(self):
                self.leaves = []
            def add(self, leaf):
                self.leaves.append(leaf)
            def cut(self):
                for leaf in self.leaves:
                    leaf.cut()
        tree = Tree()
        tree.add(Leaf())
        tree.cut()
        """
    ),
    # --- functions ---------------------------------------------------------------------------------------------------
    "functions: an inner one hides an outer one": main(
        """
        def work():
            return 1
        def run():
            def work():
                return 2
            work()
        run()
        """
    ),
    "functions: a name means what it means then": main(
        """
        def first():
            return 1
        def second():
            return 2
        job = first
        job()
        job = second
        job()
        job = print
        job()
        """
    ),
    "functions: decorators with arguments, on two functions": main(
        """
        def times(count):
            def wrap(f):
                def inner():
                    return f()
                return inner
            return wrap
        @times(2)
        def a():
            return 1
        @times(3)
        def b():
            return 2
        a()
        b()
        """,
    ),
    "functions: awaited": main(
        """
        async def leaf():
            return answer
        def answer():
            return 1
        async def run():
            found = await leaf()
            found()
        try:
            run().send(None)
        except StopIteration:
            pass
        """,
    ),
    "functions: what is changed belongs to the file": main(
        """
        class Bag:
            def add(self, job):
                return job
        def leaf():
            return 1
        def other():
            return 2
        bag = Bag()
        jobs = []
        table = {}
        def fill():
            bag.add(leaf)
            jobs.append(leaf)
            table["k"] = other
        fill()
        jobs[0]()
        table["k"]()
        """,
    ),
    "functions: global and nonlocal": main(
        """
        def one():
            return 1
        def two():
            return 2
        current = None
        def choose():
            global current
            current = one
        def run():
            chosen = None
            def pick():
                nonlocal chosen
                chosen = two
            pick()
            chosen()
        choose()
        current()
        run()
        """
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_claimed_happens_and_what_happens_is_found(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = PROGRAMS[name]
    true = happened(program, tmp_path, monkeypatch)
    ours = frozenset([edge for edge in call_edges(program.files) if edge[1].startswith(modules(program))])
    assert sorted(ours - true) == []
    assert sorted(true - ours) == sorted(program.missed)


def modules(program: Program) -> tuple[str, ...]:
    """Return what the names of the program's own functions begin with."""
    return tuple([path.removesuffix(".py").replace("/", ".") + "." for path in program.files])
