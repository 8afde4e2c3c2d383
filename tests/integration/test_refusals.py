"""Hostile URLs, paths and archives through the gateway: each is refused by a rule that is named, and nothing is touched."""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import anyio
import anyio.to_thread
import psutil
import pytest
from anyio.abc import SocketAttribute, SocketStream

from pipeline.deadline import Deadline
from pipeline.ingest.prepare import Limits
from pipeline.ingest.urls import Fetcher, normalised
from schemas.keys import Scope
from tests.figures import say
from tests.gateway_driver import Gateway, running, settings
from tests.hostile import BOMBS, FAILED_URLS, PAGES, PRIVATE, PUBLIC, REFUSED_URLS, TAME, TARGETS
from worker.app import Sapwood
from worker.gateway.access import Principal

CANARY = "CANARY-THAT-NOBODY-MAY-SEE"
SEVERAL = 64 << 20
"""Bytes that a child has beside what its limit counts: code, and what libraries only reserve."""


class Red:
    """Admits everybody to the tenant `red`."""

    async def principal(self, authorization: str | None) -> Principal:
        """See `Authenticator`."""
        return Principal("red", "key", frozenset(Scope))


@asynccontextmanager
async def gateway(tmp_path: Path, database: str, redis_url: str) -> AsyncGenerator[Gateway, None]:
    """Serve callers with keys, whose tenant may name files below `roots/red` alone, and takes uploads."""
    given = settings(
        tmp_path / "home", database, redis_url, gateway_auth="keys", gateway_source_roots=str(tmp_path / "roots")
    )
    async with running(given, Red()) as found:
        await found.app.services.keys.create_tenant("red", Deadline.after(10))
        app: Any = found.server.config.app
        app.state.settings = given.model_copy(update={"database_url": None})
        await found.ok("POST", "/v1/corpora", 201, json={"name": "c"})
        yield found


async def indexed(gateway: Gateway, *sources: str, **more: Any) -> dict[str, tuple[str, str]]:
    """Index, insist that the accounting adds up, and return outcome and reason by document."""
    order = {"sources": sources, **more}
    run = (await gateway.ok("POST", "/v1/corpora/c/index-runs", 202, json=order))["run_id"]
    ended = await Sapwood(gateway.app.services, "red").work(run)
    assert ended.state == "completed", ended.error
    page = await gateway.ok("GET", f"/v1/runs/{run}/documents", params={"limit": 1000})
    found = {one["document_id"]: (one["outcome"], one["reason"]) for one in page["documents"]}
    counts = {outcome: sum(one == outcome for one, _ in found.values()) for outcome, _ in found.values()}
    assert page["counts"] == counts, "every document is counted once"
    return found


async def everything(gateway: Gateway) -> str:
    """Return all that the corpus holds."""
    return "\n".join([line async for line in Sapwood(gateway.app.services, "red").export("c")])


@dataclass
class Network:
    """A network in which any address at all is answered by one server, which notes who was asked for what."""

    port: int
    connected: list[str] = field(default_factory=list[str])
    asked: list[str] = field(default_factory=list[str])
    resolved: dict[str, int] = field(default_factory=dict[str, int])

    async def resolve(self, host: str, port: int) -> list[str]:
        """Names ending in `.test` are ours; what else looks like a number or this machine is the system's to say."""
        self.resolved[host] = self.resolved.get(host, 0) + 1
        ours = {
            "private.test": [PRIVATE],
            "both.test": [PUBLIC, PRIVATE],
            "rebinding.test": [PUBLIC if self.resolved[host] == 1 else PRIVATE],
            "metadata.google.internal": ["169.254.169.254"],
        }
        if host in ours or host.endswith(".test"):
            return ours.get(host, [PUBLIC])
        found = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return [str(address[0]) for *_, address in found]

    async def answer(self, stream: SocketStream) -> None:
        """Answer one request, by the name that was asked for."""
        async with stream:
            head = ""
            while "\r\n\r\n" not in head:
                head += (await stream.receive()).decode("latin-1")
            host = re.search(r"(?im)^host: ([^:\r]*)", head)
            name = host[1] if host else ""
            self.asked.append(name)
            body, packed = PAGES.get(name, (CANARY.encode(), "identity"))
            lines = [f"Content-Length: {len(body)}", "Connection: close", f"Content-Encoding: {packed}"]
            lines += ["Content-Type: text/html"]
            status = "200 OK"
            if name in TARGETS:
                status, lines = "302 Found", [f"Location: {TARGETS[name]}", "Content-Length: 0", "Connection: close"]
                body = b""
            await stream.send("\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode() + body)


@asynccontextmanager
async def network(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Network, None]:
    """Give the product such a network: its own rules, our names, and every connection noted and led to one server."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    found = Network(listener.extra(SocketAttribute.local_port))
    connect = cast("Callable[..., Awaitable[SocketStream]]", anyio.connect_tcp)

    async def to_the_server(remote_host: Any, remote_port: int, **more: Any) -> SocketStream:
        if remote_port in (80, 443):
            found.connected.append(str(remote_host))
            return await connect("127.0.0.1", found.port)
        return await connect(remote_host, remote_port, **more)

    monkeypatch.setattr(anyio, "connect_tcp", to_the_server)
    monkeypatch.setattr("worker.compose.Fetcher", partial(Fetcher, resolver=found.resolve))
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, found.answer)
        yield found
        group.cancel_scope.cancel()


async def test_no_url_leads_into_a_private_place(
    tmp_path: Path,
    database: str,
    redis_url: str,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """By its form when the run is asked for, else as a document of the run; nobody but public servers is connected to."""
    assert len(REFUSED_URLS) + len(FAILED_URLS) >= 40
    async with network(monkeypatch) as net, gateway(tmp_path, database, redis_url) as place:
        for name, (url, rule) in REFUSED_URLS.items():
            refusal = await place.ok("POST", "/v1/corpora/c/index-runs", 422, json={"sources": [url]})
            assert refusal["code"] == "Refused" and rule in refusal["detail"], (name, refusal)
        assert await place.ok("GET", "/v1/corpora/c/runs") == []
        urls = ["http://public.test/", "http://packed.test/", *FAILED_URLS.values()]
        found = await indexed(place, *urls)
        held = await everything(place)
        say(request, f"{len(REFUSED_URLS)} URLs refused at once, {len(FAILED_URLS)} as documents; none connected")
    for name, url in FAILED_URLS.items():
        outcome, reason = found[normalised(url).split("://", 1)[1]]
        assert outcome == "failed" and re.search("(address|scheme|port|credential|redirect) rule", reason), (
            name,
            reason,
        )
    assert len(found) == len(FAILED_URLS) + 2
    assert set(net.connected) == {PUBLIC}, "any other place would have answered, too"
    assert set(net.asked) == {"public.test", "packed.test", *TARGETS}
    assert CANARY not in held
    assert "PUBLIC page" in held and "PACKED page" in held, "what is public is read"


async def test_without_the_rule_the_canary_is_seen(
    tmp_path: Path, database: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control: a fetcher that allows every address goes to the private ones, and the network notes it."""
    async with network(monkeypatch) as net:
        monkeypatch.setattr("worker.compose.Fetcher", partial(Fetcher, resolver=net.resolve, rule=lambda address: ""))
        async with gateway(tmp_path, database, redis_url) as place:
            await indexed(place, "http://private.test/", "http://rebinding.test/")
            held = await everything(place)
    assert PRIVATE in net.connected
    assert CANARY in held


@dataclass(frozen=True, slots=True)
class Trees:
    """The folders of a tenant, its neighbours, and a secret outside of them all."""

    own: Path
    secret: Path

    @classmethod
    def planted(cls, tmp_path: Path) -> Trees:
        """Make them."""
        own, secret = tmp_path / "roots" / "red", tmp_path / "secret.md"
        for folder in (own / "docs", tmp_path / "roots" / "red-too", tmp_path / "roots" / "green"):
            folder.mkdir(parents=True)
            (folder / "note.md").write_text(CANARY if folder.parent != own else "The Allowed Note is in Bath.")
        secret.write_text(CANARY)
        (own / "link.md").symlink_to(secret)
        (own / "linked").symlink_to(tmp_path / "roots" / "green")
        return cls(own, secret)


SOURCES: dict[str, str] = {
    "absolute": "/etc/passwd",
    "the root": "/",
    "a secret beside the roots": "{secret}",
    "climbing out": "{own}/../../secret.md",
    "climbing far": "{own}/../../../../../../../../etc/passwd",
    "climbing within": "{own}/docs/../../green/note.md",
    "the neighbour": "{own}/../green",
    "a neighbour of similar name": "{own}-too/note.md",
    "the roots themselves": "{own}/..",
    "a link to a file": "{own}/link.md",
    "a link to a folder": "{own}/linked/note.md",
    "the home of the user": "~/.ssh/id_rsa",
    "the home of another": "~root/.bashrc",
    "as triples": "triples:/etc/passwd",
    "as triples, climbing": "triples:{own}/../../secret.md",
    "relative": "../../etc/passwd",
    "relative to here": "README.md",
    "environment": "/proc/self/environ",
    "descriptors": "/proc/self/fd/0",
    "folder of the process": "/proc/self/cwd/README.md",
    "endless device": "/dev/zero",
    "waiting device": "/dev/tty",
    "standard input": "/dev/stdin",
    "full-width dots": "．．/．．/etc/passwd",
    "full-width slash": "{own}／..／..／secret.md/../../../secret.md",
    "two dots in one": "‥/‥/etc/passwd",
    "doubled slashes": "//etc//passwd",
    "file URL": "file:///etc/passwd",
    "file URL with a host": "file://localhost/etc/passwd",
    "overlong": "/" + "a/" * 2000 + "x",
}
"""What a tenant may not name as a source; all are Refused."""

UNSTORABLE: dict[str, str] = {
    "NUL": "/etc/passwd\0.md",
    "a lone surrogate": "/etc/\ud800passwd",
    "longer than any path": "/" * 5000,
}
"""What is no path at all; all are InvalidRequest."""

UPLOADS: dict[str, bytes] = {
    "climbing, escaped": b"%2e%2e/x.md",
    "climbing, in capitals": b"%2E%2E/x.md",
    "climbing from within": b"a/%2e%2e/%2e%2e/x.md",
    "climbing, slash escaped": b"..%2f..%2fx.md",
    "climbing, plain": b"a/../../x.md",
    "half escaped": b".%2e/x.md",
    "here": b"%2e/x.md",
    "absolute": b"%2fetc%2fpasswd",
    "absolute, doubled": b"%2f%2fetc/passwd",
    "hidden": b".hidden.md",
    "hidden folder": b"a/.git/config",
    "empty name": b"a//b.md",
    "folder": b"a/",
    "NUL": b"a%00b.md",
    "delete": b"a%7fb.md",
    "escape": b"a%1b[31m.md",
    "right to left": b"a%e2%80%aedm.exe",
    "no break space": b"a%c2%a0b.md",
    "zero width": b"a%e2%80%8bb.md",
    "lone byte": b"a%ff.md",
    "overlong encoding of a dot": b"%c0%ae%c0%ae/x.md",
    "surrogate": b"a%ed%a0%80.md",
    "long name": b"x" * 201,
    "long in bytes": b"%c3%a9" * 101,
    "deep": b"a/" * 20 + b"x.md",
}
"""Paths of uploads that are refused, as they go over the wire."""


async def test_no_path_leads_out_of_a_tenants_folder(
    tmp_path: Path, database: str, redis_url: str, request: pytest.FixtureRequest
) -> None:
    """Neither as a source nor as an upload; nothing is read from there, nothing written, and what is allowed works."""
    assert min(len(SOURCES) + len(UNSTORABLE), len(UPLOADS)) >= 20
    trees = await anyio.to_thread.run_sync(Trees.planted, tmp_path)
    async with gateway(tmp_path, database, redis_url) as place:
        before = await anyio.to_thread.run_sync(census, tmp_path)
        for name, path in SOURCES.items():
            order = {"sources": [path.replace("{own}", str(trees.own)).replace("{secret}", str(trees.secret))]}
            refusal = await place.ok("POST", "/v1/corpora/c/index-runs", 422, json=order)
            assert refusal["code"] == "Refused" and "rule" in refusal["detail"], (name, refusal)
        for name, path in UNSTORABLE.items():
            body, kind = json.dumps({"sources": [path]}), {"content-type": "application/json"}
            refusal = await place.ok("POST", "/v1/corpora/c/index-runs", 422, content=body, headers=kind)
            assert refusal["code"] == "InvalidRequest", (name, refusal)
        for name, raw in UPLOADS.items():
            for method in ("PUT", "DELETE"):
                answer = await raw_request(place, method, b"/v1/corpora/c/files/" + raw)
                assert answer == (422, "Refused"), (method, name, answer)
        line_end = await raw_request(place, "PUT", b"/v1/corpora/c/files/a%0ab.md")
        assert line_end == (404, "NotFound"), "no route has such a path"
        assert await place.ok("GET", "/v1/corpora/c/runs") == []
        assert await anyio.to_thread.run_sync(census, tmp_path) == before, "nothing was written"
        assert (await raw_request(place, "PUT", b"/v1/corpora/c/files/a/fine%20name.md"))[0] == 201
        found = await indexed(place, str(trees.own / "docs"), uploads=True)
        held = await everything(place)
        say(request, f"{len(SOURCES) + len(UNSTORABLE)} sources and {len(UPLOADS)} uploads refused")
    assert {outcome for outcome, _ in found.values()} == {"indexed"}
    assert "Allowed Note" in held and "uploaded text" in held, "what is allowed is read"
    assert CANARY not in held


async def raw_request(place: Gateway, method: str, raw: bytes) -> tuple[int, str]:
    """Send a request whose path nobody tidies up on the way, and return the status and the code of its problem, if any."""
    url = place.http.base_url
    body = b"The uploaded text is here." if method == "PUT" else b""
    head = f" HTTP/1.1\r\nHost: {url.host}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    answer = b""
    async with await anyio.connect_tcp(url.host, url.port or 80) as stream:
        await stream.send(method.encode() + b" " + raw + head.encode() + body)
        async for part in stream:
            answer += part
    said, _, content = answer.partition(b"\r\n\r\n")
    return int(said.split(b" ")[1]), json.loads(content).get("code", "") if content else ""


def census(root: Path) -> set[str]:
    """Return all files below a folder, with their sizes."""
    return {f"{path}:{path.lstat().st_size}" for path in root.rglob("*") if not path.is_dir()}


async def test_what_is_in_a_folder_cannot_lead_out_of_it(tmp_path: Path, database: str, redis_url: str) -> None:
    """Links, pipes and sockets in a source are skipped with the rule, and counted; hidden files are not seen at all."""
    trees = await anyio.to_thread.run_sync(Trees.planted, tmp_path)
    await anyio.to_thread.run_sync(snares, trees)
    async with gateway(tmp_path, database, redis_url) as place:
        found = await indexed(place, str(trees.own))
        held = await everything(place)
    assert found.pop("docs/note.md") == ("indexed", "")
    assert set(found) == {*LINKS, "link.md", "linked", "pipe.md", "hard/pipe.md"}
    for name, (outcome, reason) in found.items():
        assert outcome == "skipped", name
        assert reason.startswith("file rule" if "pipe" in name else "symlink rule"), (name, reason)
    assert "Allowed Note" in held
    assert CANARY not in held


LINKS = {
    "etc": "/etc",
    "proc.md": "/proc/self/environ",
    "zero.md": "/dev/zero",
    "up": "..",
    "far.md": "../../../../../../../../etc/passwd",
    "circle": "circle",
    "one": "two",
    "two": "one",
    "gone.md": "nowhere",
    "chain.md": "link.md",
    "neighbour": "../green/note.md",
}
"""Links in a folder, by their names."""


def snares(trees: Trees) -> None:
    """Lay the links, and what is no file; and what is hidden."""
    for name, target in LINKS.items():
        (trees.own / name).symlink_to(target)
    (trees.own / "hard").mkdir()
    os.mkfifo(trees.own / "pipe.md")
    os.mkfifo(trees.own / "hard" / "pipe.md")
    (trees.own / ".hidden.md").write_text(CANARY)
    (trees.own / ".git").mkdir()
    (trees.own / ".git" / "config").write_text(CANARY)


async def test_archives_made_to_burst_cost_one_document_each(
    tmp_path: Path,
    database: str,
    redis_url: str,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """Each fails by a rule or at the limit of its process, which no process passes; the others of the run are indexed."""
    assert len(BOMBS) + 3 >= 10
    folder = tmp_path / "roots" / "red" / "bombs"
    made = {name: make for name, (make, _) in BOMBS.items()} | dict(TAME)
    await anyio.to_thread.run_sync(write, folder, made)
    peaks, held, found = list[int](), "", dict[str, tuple[str, str]]()
    pages = {"bomb.test": "size rule", "twice.test": "damaged|encoding rule", "unasked.test": "encoding rule"}
    async with (
        network(monkeypatch),
        gateway(tmp_path, database, redis_url) as place,
        anyio.create_task_group() as group,
    ):
        group.start_soon(watch, peaks)
        found = await indexed(place, str(folder), *(f"http://{host}/" for host in pages))
        held = await everything(place)
        group.cancel_scope.cancel()
    expected = {name: rule for name, (_, rule) in BOMBS.items()} | {f"{host}/": rule for host, rule in pages.items()}
    for name, rule in expected.items():
        outcome, reason = found.pop(name)
        assert outcome == "failed" and re.search(rule, reason), (name, reason)
    assert {name: outcome for name, (outcome, _) in found.items()} == dict.fromkeys(TAME, "indexed"), found
    assert held.count("TAME") >= len(TAME)
    assert peaks and max(peaks) <= Limits().memory + SEVERAL
    packed = sum([(await (anyio.Path(folder) / name).stat()).st_size for name in BOMBS])
    say(request, f"{len(expected)} bombs of {packed >> 10} KiB: {max(peaks) >> 20} MiB at most in one process")


def write(folder: Path, made: dict[str, Callable[[], bytes]]) -> None:
    """Write what these make."""
    folder.mkdir(parents=True)
    for name, make in made.items():
        (folder / name).write_bytes(make())


async def watch(peaks: list[int]) -> None:
    """Note the memory of this process's children, again and again."""
    while True:
        peaks += await anyio.to_thread.run_sync(sizes)
        await anyio.sleep(0.05)


def sizes() -> list[int]:
    """Return the bytes that each child that prepares documents holds."""
    found: list[int] = []
    for child in psutil.Process().children():
        try:
            if "pipeline.ingest.child" in child.cmdline():
                found.append(child.memory_info().rss)
        except (psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
    return found
