"""Real repositories for tests, and a server that serves them as git's own does."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_NOBODY = {
    "GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@example.org", "GIT_COMMITTER_NAME": "t",
    "GIT_COMMITTER_EMAIL": "t@example.org", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1",
}  # fmt: skip


def git(folder: Path, *arguments: str, data: bytes = b"") -> str:
    """Run git in a folder and return what it writes."""
    found = subprocess.run(
        ["git", *arguments], cwd=folder, input=data, capture_output=True, check=True, env={**os.environ, **_NOBODY}
    )
    return found.stdout.decode().strip()


def repository(folder: Path, files: Mapping[str, str | bytes]) -> str:
    """Make a repository with one commit of these files, and return that."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    return commit(folder, files)


def commit(folder: Path, files: Mapping[str, str | bytes]) -> str:
    """Write files, commit all there is, and return the commit."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    git(folder, "add", "--all", "--force")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "c")
    return git(folder, "rev-parse", "HEAD")


class Requests(list[str]):
    """The paths that a server was asked for."""


@contextmanager
def served(root: Path, redirect: str = "") -> Generator[tuple[int, Requests], None, None]:
    """Serve the repositories below a folder on loopback with `git http-backend`; yield the port and what is asked."""
    asked = Requests()

    class Backend(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer(b"")

        def do_POST(self) -> None:
            self._answer(self.rfile.read(int(self.headers.get("content-length", 0))))

        def log_message(self, format: str, *args: object) -> None:
            pass

        def _answer(self, body: bytes) -> None:
            path, _, query = self.path.partition("?")
            asked.append(path)
            if redirect:
                self.send_response(302)
                self.send_header("Location", redirect + self.path)
                self.end_headers()
                return
            environment = {
                "PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": str(root), "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path,
                "QUERY_STRING": query, "REQUEST_METHOD": self.command, "CONTENT_LENGTH": str(len(body)),
                "CONTENT_TYPE": self.headers.get("content-type", ""), "REMOTE_ADDR": "127.0.0.1",
                "GIT_PROTOCOL": self.headers.get("git-protocol", ""), **_NOBODY,
                "HTTP_CONTENT_ENCODING": self.headers.get("content-encoding", ""),
            }  # fmt: skip
            command = ["git", "-c", "uploadpack.allowFilter=true", "-c", "uploadpack.allowAnySHA1InWant=true"]
            command += ["-c", "safe.directory=*", "http-backend"]
            said = subprocess.run(command, input=body, capture_output=True, check=False, env=environment).stdout
            head, _, content = said.partition(b"\r\n\r\n")
            headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
            self.send_response(int(headers.pop("Status", "200 OK").split()[0]))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Backend)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1], asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
