"""How the files of the explorer are served: types, caching, policy, and nothing that is not one of them."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import anyio
import anyio.to_thread

from tests.gateway_driver import running, settings
from worker.gateway.explorer import routes

STATIC = Path(routes.__file__).parent / "static"
ELSEWHERE = (
    "../routes.py",
    "%2e%2e/routes.py",
    "..%2froutes.py",
    "vendor/../../routes.py",
    "/etc/passwd",
    "%2fetc/passwd",
    "vendor",
    "vendor/",
    "vendor/NOTICE",
    "missing.js",
    "app.js%00",
)


def test_every_file_that_the_page_names_is_there_and_no_script_is_inline() -> None:
    found = routes.assets()
    for path, asset in found.items():
        text = asset.content.decode()
        if path.endswith(".js"):
            for name in re.findall(r"from '\./([^']+)'", text):
                assert name in found, f"{path} imports {name}"
            assert not re.search(r"\.(inner|outer)HTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text)
    page = found[routes.PAGE].content.decode()
    assert re.findall(r"<script(?![^>]* src=)", page) == re.findall(r"\son\w+=|\sstyle=|<style", page) == []
    for name in re.findall(r'(?:src|href)="([^"#]+)"', page):
        assert name in found, name


def test_the_library_is_the_one_that_its_notice_names() -> None:
    notice = (STATIC / "vendor/NOTICE").read_text()
    library = (STATIC / "vendor/cytoscape.esm.min.mjs").read_bytes()
    assert f"sha256 {hashlib.sha256(library).hexdigest()}" in notice
    version = re.search(r"cytoscape (\S+), MIT", notice)
    assert version and f'.version="{version[1]}"'.encode() in library
    assert "Permission is hereby granted, free of charge" in (STATIC / "vendor/LICENSE").read_text()


async def test_files_are_served_to_anybody_with_their_types_and_a_strict_policy(
    tmp_path: Path, database: str, redis_url: str
) -> None:
    """Also where data needs a key: these files hold none."""
    given = settings(tmp_path, database, redis_url, gateway_auth="keys")
    names = await anyio.to_thread.run_sync(lambda: sorted(routes.assets()))
    async with running(given) as gateway:
        get = gateway.http.get
        gateway.http.follow_redirects = False
        for way in ("/", "/explorer"):
            found = await get(way)
            assert (found.status_code, found.headers["location"]) == (307, "explorer/")
        for name in ("", *names):
            found = await get(f"/explorer/{name}")
            assert found.status_code == 200
            assert found.headers["content-type"] == routes.TYPES[name.rpartition(".")[2] or "html"]
            assert found.headers["content-security-policy"] == routes.POLICY
            assert found.headers["x-content-type-options"] == "nosniff"
            assert found.headers["referrer-policy"] == "no-referrer"
            again = await get(f"/explorer/{name}", headers={"if-none-match": f'"other", W/{found.headers["etag"]}'})
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", found.headers["etag"])
            changed = await get(f"/explorer/{name}", headers={"if-none-match": '"other"'})
            assert (changed.status_code, changed.content) == (200, found.content)
        head = await gateway.http.head("/explorer/app.js")
        assert (head.status_code, head.content) == (200, b"")


async def test_nothing_else_is_served(tmp_path: Path, database: str, redis_url: str) -> None:
    async with running(settings(tmp_path, database, redis_url)) as gateway:
        host, port = gateway.http.base_url.host, gateway.http.base_url.port
        assert port
        for path in ELSEWHERE:
            async with await anyio.connect_tcp(host, port) as wire:  # a client would tidy the path up
                await wire.send(
                    f"GET /explorer/{path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode()
                )
                answer = b"".join([part async for part in wire])
            assert answer.splitlines()[0].split()[1] in (b"404", b"400"), (path, answer)
            assert b"import" not in answer and b"root:" not in answer


async def test_without_keys_the_page_is_for_this_machine_alone(tmp_path: Path, database: str, redis_url: str) -> None:
    async with running(settings(tmp_path, database, redis_url)) as gateway:
        for headers in ({"host": "attacker.example"}, {"origin": "https://attacker.example"}):
            assert (await gateway.http.get("/explorer/", headers=headers)).status_code == 403
        assert (await gateway.http.get("/explorer/", headers={"host": "localhost:1"})).status_code == 200
