"""Source code from files to a graph, with the frontends and the linker that are used: W39, W41 to W44, public cases 5 to 7."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.errors import Refused
from pipeline.generations.gate import check_ceiling, graph_policy, policy_of
from schemas.settings import CorpusSettings, GraphIndexingSettings
from tests.code_repository import CODE, Place
from worker.changes import apply_changes


@pytest.fixture
def place(database: str, redis_url: str, tmp_path: Path) -> Place:
    return Place(database, redis_url, tmp_path)


W39 = {
    "a.py": "class Base:\n    pass\n\n\ndef helper(x):\n    return x\n",
    "b.py": (
        "import os\nimport typing\nfrom a import Base, helper as h\n\n\n"
        "class Child(Base):\n    def run(self):\n        h(1)\n        self.go()\n        return Base()\n\n"
        "    def go(self):\n        return other()\n\n\n"
        "def other():\n    return os.getcwd()\n"
    ),
}


async def test_w39_what_stands_in_a_file_and_what_it_refers_to(place: Place) -> None:
    async with place.open() as repository:
        info = await repository.index(W39)
        assert await repository.edges("calls") == [
            ("b.py::Child.go", "calls", "b.py::other"),
            ("b.py::Child.run", "calls", "a.py::Base"),
            ("b.py::Child.run", "calls", "a.py::helper"),
            ("b.py::Child.run", "calls", "b.py::Child.go"),
            ("b.py::other", "calls", "external::os.getcwd"),
        ]
        assert await repository.edges("inherits") == [("b.py::Child", "inherits", "a.py::Base")]
        assert await repository.edges("imports") == [
            ("b.py", "imports", "a.py"),
            ("b.py", "imports", "external::os"),
            ("b.py", "imports", "external::typing"),
        ]
        contains = await repository.edges("contains")
        assert [target for source, _, target in contains if source.startswith("b.py")] == [
            "b.py::Child", "b.py::other", "b.py::Child.go", "b.py::Child.run",
        ]  # fmt: skip
        report = await repository.report(info)
        assert report["policy"] == "code"
        assert report["code"]["files"] == {"python": 2}
        assert report["code"]["edges"] == {"calls": 5, "contains": 6, "imports": 3, "inherits": 1}
        lines = {(one["type"], one["properties"]["line"]) for one in await repository.lines("relations")}
        assert {("inherits", 6), ("imports", 1), ("calls", 8), ("calls", 17)} < lines


async def test_w41_a_text_has_chunks_and_no_entities(place: Place) -> None:
    async with place.open() as repository:
        await repository.index({"notes.md": "# Harbour\n\nThe Laser Cutter is located in Bristol.\n"})
        assert await repository.lines("chunks")
        assert not await repository.lines("entities")
        await repository.index({"notes.md": "# Harbour\n\nThe Laser Cutter is located in Bristol.\n", **W39})
        assert {"a.py", "b.py"} < (await repository.entities()).keys()
        assert not [one for one in await repository.entities() if "Bristol" in one or "notes" in one]


async def test_w42_it_does_not_matter_which_file_comes_first(place: Place) -> None:
    async with place.open() as repository:
        await repository.index({"a.py": W39["a.py"]}, "first")
        await repository.index(W39, "first")
        await repository.index({"b.py": W39["b.py"]}, "second")
        await repository.index(W39, "second")
        assert await repository.body("first") == await repository.body("second")
        numbers = [one["entity_id"] for one in await repository.lines("entities", "first")]
        assert len(numbers) == len(set(numbers))


def test_w43_the_policy_follows_from_the_settings() -> None:
    assert graph_policy(internal=True, enabled=True, code=True) == "excluded"
    assert graph_policy(internal=False, enabled=False, code=True) == "off"
    assert [policy_of(apply_changes(CODE, [f"graph_indexing.{one}"])) for one in ("enabled=true", "enabled=false")] == [
        "code", "off",
    ]  # fmt: skip
    assert policy_of(CorpusSettings()) == "semantic"


def test_w44_only_a_semantic_graph_has_a_ceiling() -> None:
    with pytest.raises(Refused, match=r"40,001 eligible chunks exceeds .* 40,000"):
        check_ceiling("semantic", 40_001, 40_000)
    check_ceiling("code", 40_001, 40_000)


async def test_no_extractor_is_asked_nor_needed(place: Place) -> None:
    """Without an endpoint the provider cannot even be opened; prose in docstrings is prose."""
    async with place.open() as repository:
        settings = apply_changes(CODE, ["extraction.provider=openai", "graph_indexing.semantic_kg_max_chunks=1"])
        text = '"""Trotec is based in Marchtrenk."""\n\n\ndef cut():\n    """The Laser Cutter was made by Trotec."""\n'
        await repository.index({"a.py": text, "b.md": "# Trotec\n\nTrotec is based in Marchtrenk."}, settings=settings)
        assert await repository.entities() == {"a.py": "module", "a.py::cut": "function"}
        described = {one["entity_id"]: one["description"] for one in await repository.lines("entities")}
        assert described["a.py::cut"] == "The Laser Cutter was made by Trotec."


async def test_weights_are_those_of_the_settings_and_changing_one_changes_the_graph(place: Place) -> None:
    async with place.open() as repository:
        await repository.index(W39)
        changes = [f"graph_indexing.ast_{kind}_weight={n}" for kind, n in
                   (("contains", 0.5), ("inherits", 0.25), ("imports", 0.125), ("calls", 0))]  # fmt: skip
        await repository.index(W39, settings=apply_changes(CODE, changes))
        weights = {one["type"]: one["weight"] for one in await repository.lines("relations")}
        assert weights == {"contains": 0.5, "inherits": 0.25, "imports": 0.125, "calls": 0}
        again = await repository.index(W39, settings=apply_changes(CODE, changes))
        assert (await repository.report(again))["result"] == "unchanged"


async def test_a_corpus_becomes_a_code_graph_and_back(place: Place) -> None:
    async with place.open() as repository:
        await repository.index(W39, settings=CorpusSettings())
        before = await repository.body()
        await repository.index(W39)
        assert "a.py::Base" in await repository.entities()
        assert await repository.lines("links")
        await repository.index(W39, settings=CorpusSettings())
        assert await repository.body() == before
        assert not await repository.lines("links")


async def test_an_unknown_language_is_text_and_counted(place: Place) -> None:
    async with place.open() as repository:
        info = await repository.index({"main.c": "int main(void) { return 0; }\n", "a.py": "x = 1\n", "b.md": "# B"})
        assert (await repository.report(info))["code"]["files"] == {"python": 1, "unknown": 1}
        assert await repository.entities() == {"a.py": "module"}
        assert {one["document_id"] for one in await repository.lines("chunks")} == {"main.c", "a.py", "b.md"}


async def test_an_empty_file_is_there_for_those_who_import_it(place: Place) -> None:
    async with place.open() as repository:
        files = {"pkg/__init__.py": "", "pkg/a.py": "x = 1\n", "b.py": "import pkg\nfrom pkg import a\n"}
        await repository.index(files)
        edges = [(source, target) for source, _, target in await repository.edges("imports")]
        assert edges == [("b.py", "pkg/__init__.py"), ("b.py", "pkg/a.py")]
        unchanged = await repository.index(files)
        assert (await repository.report(unchanged))["result"] == "unchanged"
        await repository.index({name: text for name, text in files.items() if name != "pkg/__init__.py"})
        assert "pkg/__init__.py" not in await repository.entities()
        await repository.index(files, "anew")
        await repository.index(files)
        assert await repository.body() == await repository.body("anew")


HOSTILE = {
    "latin1.py": b"# -*- coding: latin-1 -*-\ndef caf\xe9_handler(): pass\ndef plain_one(): pass\n",
    "bom.py": b"\xef\xbb\xbfdef with_bom(): pass",
    "only_bom.py": b"\xef\xbb\xbf",
    "empty.py": b"",
    "badbyte.py": b"# \xff\ndef after_a_bad_byte(): pass\n",
    "nfd.py": "def cafe\u0301():\n    pass\n\n\ndef caller():\n    caf\u00e9()\n".encode(),
}


async def test_case_5_hostile_encodings(place: Place) -> None:
    async with place.open() as repository:
        info = await repository.index(HOSTILE)
        found = await repository.entities()
        assert {"latin1.py::caf\u00e9_handler", "latin1.py::plain_one", "bom.py::with_bom"} < found.keys()
        assert "badbyte.py::after_a_bad_byte" in found
        assert await repository.edges("calls") == [("nfd.py::caller", "calls", "nfd.py::caf\u00e9")]
        outcomes, notable = await repository.app.accounting(info.run_id)
        assert outcomes == {"indexed": 4, "empty": 2}
        assert {one.document_id for one in notable} == {"empty.py", "only_bom.py"}


async def test_what_could_not_be_read_is_listed_and_counted(place: Place) -> None:
    async with place.open() as repository:
        info = await repository.index(
            {"good.py": "def f(): pass\n", "bad.py": "def f(:\n", "big.py": b"\0\1\2\3" * 100}
        )
        outcomes, notable = await repository.app.accounting(info.run_id)
        listed = {one.document_id: (str(one.outcome), one.reason) for one in notable}
        assert listed["bad.py"] == ("indexed", "1 syntax_error")
        assert listed["big.py"][0] == "failed"
        assert outcomes == {"indexed": 2, "failed": 1}
        assert (await repository.report(info))["code"]["unread"] == {"syntax_error": 1}


CASE_6 = {
    "pkg/__init__.py": "",
    "pkg/gate.py": "def validate(rows):\n    return bool(rows)\n",
    "other/gate.py": "def validate(x):\n    return x\n",
    "pkg/a.py": "from pkg import gate as m_gate\n\n\ndef run():\n    return m_gate.validate([1])\n",
    "pkg/b.py": (
        "try:\n    from pkg import gate as m_gate\nexcept ImportError:\n    m_gate = None\n\n\n"
        "def run():\n    return m_gate.validate([1])\n"
    ),
    "pkg/c.py": (
        "from pkg import gate\nfrom other import gate as other_gate\n\n\n"
        "def run():\n    gate.validate(1)\n    other_gate.validate(1)\n"
    ),
    "backend/colors.py": "x = 1\n",
    "backend/clock.py": "import time\n\n\ndef now():\n    return time.time()\n",
    "src/time.ts": "export function time() { return 1; }\n",
    "frontend/x.ts": 'import colors from "tailwindcss/colors";\n\nexport const red = colors.red;\n',
}


async def test_case_6_aliases_and_modules_of_the_same_name(place: Place) -> None:
    async with place.open() as repository:
        await repository.index(CASE_6)
        assert await repository.edges("calls") == [
            ("backend/clock.py::now", "calls", "external::time.time"),
            ("pkg/a.py::run", "calls", "pkg/gate.py::validate"),
            ("pkg/b.py::run", "calls", "pkg/gate.py::validate"),
            ("pkg/c.py::run", "calls", "other/gate.py::validate"),
            ("pkg/c.py::run", "calls", "pkg/gate.py::validate"),
        ]
        imports = await repository.edges("imports")
        suffixes = {(source.rpartition(".")[2], target.rpartition(".")[2]) for source, _, target in imports}
        assert not suffixes & {("ts", "py"), ("py", "ts")}
        assert ("backend/clock.py", "imports", "external::time") in imports


CASE_7 = {
    "nettacker.py": "from nettacker.main import run\n",
    "nettacker/__init__.py": "",
    "nettacker/main.py": "from nettacker.core.app import App\n\n\ndef run():\n    return App()\n",
    "nettacker/core/__init__.py": "",
    "nettacker/core/app.py": "from nettacker import logger\n\n\nclass App:\n    pass\n",
    "nettacker/logger.py": "x = 1\n",
    "a.py": "import b\n",
    "b.py": "import a\n",
    "klass.py": (
        "def decorator(f):\n    return f\n\n\nclass Klass:\n    async def one(self):\n        await self.two()\n\n"
        "    @staticmethod\n    @decorator\n    async def two():\n        pass\n\n"
        "    @classmethod\n    def make(cls):\n        return cls()\n\n\nAlias = Klass\nAlias.make()\n"
    ),
}


async def test_case_7_a_package_beside_its_module_cycles_and_decorated_methods(place: Place) -> None:
    async with place.open() as repository:
        await repository.index(CASE_7)
        imports = {(source, target) for source, _, target in await repository.edges("imports")}
        assert not [pair for pair in imports if pair[1] == "nettacker.py"]
        assert {("a.py", "b.py"), ("b.py", "a.py"), ("nettacker.py", "nettacker/main.py")} <= imports
        assert ("nettacker/core/app.py", "nettacker/logger.py") in imports
        found = await repository.entities()
        assert {f"klass.py::Klass.{name}": "method" for name in ("one", "two", "make")}.items() <= found.items()
        calls = await repository.edges("calls")
        assert ("klass.py", "calls", "klass.py::Klass.make") in calls
        assert ("klass.py::Klass.one", "calls", "klass.py::Klass.two") in calls


async def test_an_edit_of_one_file_brings_the_graph_of_a_new_index(place: Place) -> None:
    async with place.open() as repository:
        await repository.index(W39)
        edited = {**W39, "a.py": W39["a.py"].replace("helper", "assist") + "\n\ndef other():\n    helper(2)\n"}
        await repository.index(edited)
        await repository.index(edited, "anew")
        assert await repository.body() == await repository.body("anew")
        assert ("b.py::Child.run", "calls", "a.py::helper") not in await repository.edges("calls")


def test_settings_have_the_bounds_of_the_specification() -> None:
    fresh = GraphIndexingSettings()
    assert not fresh.build_code_graph
    for kind in ("contains", "inherits", "imports", "calls"):
        assert getattr(fresh, f"ast_{kind}_weight") == 1.0
        for value in (-0.1, 1.1):
            with pytest.raises(ValueError, match=f"ast_{kind}_weight"):
                GraphIndexingSettings.model_validate({f"ast_{kind}_weight": value})
