"""The mechanical house rules, so that nobody has to look for them in a review."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MODULES = sorted(path for room in ("schemas", "pipeline", "worker") for path in (ROOT / room).rglob("*.py"))
QUERIES = sorted(path for folder in ("sql", "cypher") for path in (ROOT / "pipeline" / folder).glob("*.*ql"))
NAME = re.compile(r"^(?:--|//) name: (\w+)\s*$", re.MULTILINE)
MODULE_LINES, FUNCTION_LINES, PORT_METHODS = 500, 60, 8
FORBIDDEN_NAMES = {"utils", "util", "helpers", "common", "base", "misc"}
BANNED_CALLS = {"create_task", "ensure_future", "gather", "wait_for", "shield"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def where(path: Path, node: ast.AST | None = None) -> str:
    line = getattr(node, "lineno", 1)
    return f"{path.relative_to(ROOT)}:{line}"


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def functions(path: Path) -> list[Function]:
    return [node for node in ast.walk(tree(path)) if isinstance(node, Function)]


def calls(path: Path) -> list[ast.Call]:
    return [node for node in ast.walk(tree(path)) if isinstance(node, ast.Call)]


def committed() -> list[Path]:
    """Return the files of the project: what git tracks or would track, or all where there is no git."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("this is no git checkout, so there is no telling which files belong to the project")
    return [path for name in sorted(filter(None, listed.stdout.split("\0"))) if (path := ROOT / name).is_file()]


def is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def test_there_is_something_to_look_at() -> None:
    assert len(MODULES) > 20
    assert QUERIES


def test_modules_are_short() -> None:
    long = [where(path) for path in MODULES if len(path.read_text("utf-8").splitlines()) > MODULE_LINES]
    assert not long


def test_functions_are_short() -> None:
    long = [
        f"{where(path, node)} {node.name}"
        for path in MODULES
        for node in functions(path)
        if (node.end_lineno or 0) - node.lineno + 1 > FUNCTION_LINES
    ]
    assert not long


def test_every_module_says_what_it_is_and_has_postponed_annotations() -> None:
    code = [path for path in MODULES if path.read_text("utf-8").strip()]
    silent = [where(path) for path in code if not ast.get_docstring(tree(path))]
    eager = [
        where(path)
        for path in code
        if path.name != "__init__.py" and "from __future__ import annotations" not in path.read_text("utf-8")
    ]
    assert (silent, eager) == ([], [])


def test_no_module_is_a_drawer_for_odds_and_ends() -> None:
    assert not [where(path) for path in MODULES if FORBIDDEN_NAMES & {path.stem, path.parent.name}]


def ports() -> list[ast.ClassDef]:
    modules = (ROOT / "pipeline").rglob("ports.py")
    return [node for module in modules for node in tree(module).body if isinstance(node, ast.ClassDef)]


def test_a_port_is_narrow_and_documented() -> None:
    found = [port for port in ports() if any("Protocol" in ast.unparse(parent) for parent in port.bases)]
    assert found, "no `ports.py` declares a Protocol"
    for port in found:
        methods = [node for node in port.body if isinstance(node, Function)]
        assert len(methods) <= PORT_METHODS, f"{port.name} has {len(methods)} methods"
        silent = [f"{port.name}.{method.name}" for method in methods if not ast.get_docstring(method)]
        assert not silent
        assert ast.get_docstring(port), port.name


def test_every_error_is_documented_drawn_and_lives_in_one_tree() -> None:
    module = tree(ROOT / "pipeline/errors.py")
    drawing = ast.get_docstring(module) or ""
    classes = [node for node in module.body if isinstance(node, ast.ClassDef)]
    names = {node.name for node in classes}
    assert not [node.name for node in classes if not ast.get_docstring(node)]
    assert not [name for name in names if not re.search(rf"\b{name}\b", drawing)], "the drawing lacks one"
    parents = {node.name: {ast.unparse(parent) for parent in node.bases} for node in classes}
    orphans = [name for name, above in parents.items() if name != "SapwoodError" and not above & names]
    assert not orphans


def test_no_error_is_declared_outside_the_tree() -> None:
    elsewhere = [
        f"{where(path, node)} {node.name}"
        for path in MODULES
        if path != ROOT / "pipeline/errors.py"
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ClassDef)
        and any(re.search(r"(Error|Exception|FencedOut)$", ast.unparse(parent)) for parent in node.bases)
    ]
    assert not elsewhere


def test_shielded_cleanup_is_bounded() -> None:
    """`CancelScope(shield=True)` can hang for ever; `move_on_after(seconds, shield=True)` cannot."""
    unbounded = [
        where(path, call)
        for path in MODULES
        for call in calls(path)
        if any(word.arg == "shield" and is_true(word.value) for word in call.keywords)
        and not (ast.unparse(call.func).endswith(("move_on_after", "fail_after")) and call.args)
        and not any(word.arg == "deadline" for word in call.keywords)
    ]
    assert not unbounded


def test_below_the_edge_nothing_takes_a_timeout() -> None:
    takers = [
        f"{where(path, node)} {node.name}"
        for path in MODULES
        if "pipeline" in path.parts and "adapters" not in path.parts
        for node in functions(path)
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        if argument.arg.startswith("timeout")
    ]
    assert not takers


def test_concurrency_is_structured() -> None:
    loose = [
        where(path, call)
        for path in MODULES
        if path != ROOT / "worker/cancellation.py"
        for call in calls(path)
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in BANNED_CALLS
        and ast.unparse(call.func.value) in {"asyncio", "loop", "asyncio.get_running_loop()"}
    ]
    assert not loose


def test_no_broad_exception_is_swallowed() -> None:
    swallowed = [
        where(path, node)
        for path in MODULES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or ast.unparse(node.type) in {"Exception", "BaseException"})
        and all(isinstance(statement, ast.Pass | ast.Continue) for statement in node.body)
    ]
    assert not swallowed


def test_types_have_no_escape_hatch() -> None:
    escape = re.compile(r"#\s*(?:type:\s*ignore|pyright:\s*ignore|mypy:)")
    assert not [where(path) for path in MODULES if escape.search(path.read_text("utf-8"))]


@pytest.mark.parametrize("path", QUERIES, ids=lambda path: path.name)
def test_every_query_is_named_explained_and_used(path: Path) -> None:
    parts = NAME.split(path.read_text("utf-8"))
    names, bodies = parts[1::2], parts[2::2]
    mark = "--" if path.suffix == ".sql" else "//"
    assert names, f"{path.name} has no named block"
    assert len(set(names)) == len(names)
    uncommented = [name for name, body in zip(names, bodies, strict=True) if not body.lstrip().startswith(mark)]
    assert not uncommented, "a comment below the name says what it does"
    code = "\n".join(module.read_text("utf-8") for module in MODULES)
    unused = [name for name in names if not re.search(rf"[\"']{name}[\"']", code)]
    assert not unused


def test_migrations_are_numbered_without_gaps() -> None:
    numbers = [int(path.name[:4]) for path in sorted((ROOT / "pipeline/sql/migrations").glob("*.sql"))]
    assert numbers == list(range(1, len(numbers) + 1))


def test_no_committed_file_names_a_path_of_this_machine() -> None:
    ours = (ROOT, ROOT.parent / "shared", Path.home(), Path(sys.prefix))
    places = {f"{place}/" for place in ours if place != Path("/")}
    named: list[str] = []
    for path in committed():
        content = path.read_bytes()
        named += [f"{where(path)} {place}" for place in places if place.encode() in content]
    assert not named


def test_nothing_is_left_to_do_in_the_code() -> None:
    words = re.compile("\\b(?:TO" + "DO|FIX" + "ME|XX" + "X)\\b")
    assert not [where(path) for path in MODULES if words.search(path.read_text("utf-8"))]


def test_tests_have_no_init_files() -> None:
    assert not list((ROOT / "tests").rglob("__init__.py"))
