"""An operator makes tenants and keys; a secret is seen once, and is nowhere else, not even on disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from schemas.keys import ApiKey
from tests.cli_driver import Cli, Done

COMMANDS = (
    ("tenant", "create"),
    ("tenant", "list"),
    ("tenant", "limits"),
    ("key", "create"),
    ("key", "list"),
    ("key", "revoke"),
)


def listing(cli: Cli, *words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(cli.ok(*words, "--json").out)
    return found


def holders(folder: Path, text: str) -> list[Path]:
    """Return the files below a folder that hold a text; sockets and files that vanish are passed over."""
    found: list[Path] = []
    for path in folder.rglob("*"):
        try:
            if path.is_file() and text.encode() in path.read_bytes():
                found.append(path)
        except FileNotFoundError:
            continue
    return found


def test_a_key_is_made_listed_and_revoked(cli: Cli) -> None:
    """As in the help: a tenant, a key with scopes, a name and an end; its public part leads to it ever after."""
    assert cli.ok("tenant", "create", "acme", "--json").json["name"] == "acme"
    words = ("--tenant", "acme", "--scope", "query", "--scope", "index", "--name", "ci", "--expires", "90d")
    made = cli.ok("key", "create", *words, "--json").json
    key = ApiKey.parse(made["key"])
    assert key is not None and key.key_id == made["key_id"]
    assert (made["tenant"], made["name"], made["scopes"]) == ("acme", "ci", ["index", "query"])
    assert made["expires_at"] > made["created_at"] and not made["ended"]
    listed = listing(cli, "key", "list", "--tenant", "acme")
    assert listed == [{name: value for name, value in made.items() if name != "key"}]
    assert {one["name"]: one["keys"] for one in listing(cli, "tenant", "list")}["acme"] == 1
    revoked = cli.ok("key", "revoke", key.key_id, "--json").json
    assert revoked["ended"] and revoked["revoked_at"]
    assert {one["name"]: one["keys"] for one in listing(cli, "tenant", "list")}["acme"] == 0


def test_a_secret_is_in_no_output_but_the_first_and_in_no_file(cli: Cli) -> None:
    """Only the line of `key create` has it, alone on standard output; the public part is found where it is looked for."""
    done = cli.ok("key", "create", "--scope", "admin")
    key = ApiKey.parse(done.out.removesuffix("\n"))
    assert key is not None, "standard output is the key and nothing else"
    later: list[Done] = [
        cli.ok("key", "list"),
        cli.ok("key", "list", "--json"),
        cli.ok("tenant", "list"),
        cli.ok("doctor", "--json"),
        cli.ok("key", "revoke", key.key_id),
        cli.ok("key", "revoke", key.key_id, "--json"),
    ]
    shown = "".join([done.err, *(one.out + one.err for one in later)])
    assert key.key_id in shown
    assert key.secret not in shown
    assert holders(cli.home, key.key_id), "the search finds what is there"
    assert not holders(cli.home, key.secret)


def test_limits_are_set_one_by_one_and_taken_back(cli: Cli) -> None:
    def limits(*changes: str) -> dict[str, Any]:
        found: dict[str, Any] = cli.ok("tenant", "limits", "narrow", *changes, "--json").json["limits"]
        return found

    cli.ok("tenant", "create", "narrow")
    assert limits() == {}
    assert limits("streams=2", "requests_per_second=0.5") == {"streams": 2, "requests_per_second": 0.5}
    assert limits("streams=", "open_runs=0") == {"requests_per_second": 0.5, "open_runs": 0} == limits()
    assert "open_runs=0, requests_per_second=0.5" in cli.ok("tenant", "limits", "narrow").out


def test_what_is_not_right_is_said_before_a_key_is_made(cli: Cli) -> None:
    """Usage errors, exit code 2 each; no key comes of them."""
    before = listing(cli, "key", "list")
    wrong = {
        ("key", "create"): "scope",
        ("key", "create", "--scope", "everything"): "everything",
        ("key", "create", "--scope", "query", "--expires", "soon"): "90d",
        ("key", "create", "--scope", "query", "--tenant", "nobody"): "sapwood tenant create nobody",
        ("key", "revoke", "0123456789abcdef"): "sapwood key list",
        ("tenant", "create", "a/b"): "no name for a tenant",
        ("tenant", "limits", "nobody", "streams=1"): "sapwood tenant create nobody",
        ("tenant", "limits", "default", "of_tomorrow=1"): "requests_per_second",
        ("tenant", "limits", "default", "streams"): "KEY=VALUE",
        ("tenant", "limits", "default", "streams=many"): "streams",
        ("tenant", "limits", "default", "requests_per_second=0"): "requests_per_second",
    }
    for words, hint in wrong.items():
        done = cli.ok(*words, code=2)
        assert hint in " ".join(done.err.split()), words
        assert done.out == ""
    assert listing(cli, "key", "list") == before


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_each_command_explains_itself_with_an_example(cli: Cli, command: tuple[str, str]) -> None:
    text = " ".join(cli.ok(*command, "--help").out.split())
    assert "Usage" in text and "--json" in text
    assert f"sapwood {' '.join(command)}" in text
