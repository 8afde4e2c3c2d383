"""A user indexes source code and is told what became of it."""

from __future__ import annotations

from pathlib import Path

from tests.cli_driver import Cli


def test_the_command_reports_the_code_graph_and_what_it_could_not_read(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import os\n\n\ndef f():\n    return os.getcwd()\n")
    (tmp_path / "b.c").write_text("int main(void) { return 0; }\n")
    (tmp_path / "broken.py").write_text("def g(:\n")
    done = cli.index("code-report", tmp_path, "--set", "graph_indexing.build_code_graph=true")
    assert done["policy"] == "code"
    assert done["code"]["files"] == {"python": 2, "unknown": 1}
    assert done["code"]["edges"]["calls"] == 1
    assert [(one["document"], one["outcome"], one["reason"]) for one in done["documents"]] == [
        ("broken.py", "indexed", "1 syntax_error")
    ]
    (tmp_path / "lost.py").write_bytes(b"\x00\x01\x02\x03" * 64)
    (tmp_path / "a.py").write_text("def f():\n    return 1\n")
    shown = cli.ok("index", "code-report", str(tmp_path), code=3).out
    assert "lost.py" in shown
    assert "files: 2 python, 1 unknown" in shown
    assert "unread: 1 syntax_error" in shown
