"""A real browser for tests: Chromium without a window, and pages on which nothing may go wrong unseen."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from playwright.async_api import Browser, ConsoleMessage, Error, Page, Playwright, expect

from tests.neo4j_server import cannot

ROOT = Path(__file__).resolve().parents[2]
SCREENSHOTS = ROOT / "build" / "screenshots"
"""Where pictures are kept, for whoever runs the tests; git ignores it."""

PATIENCE = 20_000.0
"""Milliseconds after which a test gives up; nothing is asserted about times."""

NAMES = ("chromium", "google-chrome", "google-chrome-stable", "chromium-browser", "chrome")
MAC = Path("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome")
FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
"""What keeps it from talking to anybody but us."""

DESKTOP, PHONE = (1280, 800), (390, 844)


def executable() -> str:
    """Return where the browser is; without one the test is skipped with what to install, and fails in CI."""
    found = next(filter(None, map(shutil.which, NAMES)), str(MAC) if MAC.exists() else None)
    return found or cannot_browse("there is no Chromium or Chrome to test the explorer with")


def cannot_browse(reason: str) -> str:
    """End the test for want of a browser."""
    cannot(f"{reason}: `tests/explorer/install-browser` installs it, or says how")
    raise AssertionError  # never reached: `cannot` raises


async def launched(playwright: Playwright) -> Browser:
    """Start the browser, with an empty profile of its own."""
    sandbox = [] if os.geteuid() else ["--no-sandbox"]  # which Chromium refuses to have as root
    try:
        return await playwright.chromium.launch(executable_path=executable(), args=[*FLAGS, *sandbox])
    except Error as error:
        cannot_browse(f"the browser does not start ({error.message.splitlines()[0]})")
        raise


@dataclass
class Visit:
    """One page, and what went wrong on it: errors and warnings of its console, among them what its policy refused."""

    page: Page
    url: str
    wrong: list[str] = field(default_factory=list[str])

    async def go(self, place: str = "") -> None:
        """Open the explorer at `#/place`."""
        await self.page.goto(f"{self.url}/explorer/#/{place}")
        await expect(self.page.locator("main h1")).to_be_attached()

    async def picture(self, name: str, *, full: bool = False) -> None:
        """Keep what is seen as `build/screenshots/NAME.png`."""
        content = await self.page.screenshot(full_page=full)
        await anyio.Path(SCREENSHOTS).mkdir(parents=True, exist_ok=True)
        await anyio.Path(SCREENSHOTS / f"{name}.png").write_bytes(content)

    async def texts(self, selector: str) -> list[str]:
        """Return what the elements say, in order."""
        return [text.strip() for text in await self.page.locator(selector).all_inner_texts()]

    def note(self, message: ConsoleMessage) -> None:
        """Keep a message of the console that says that something is wrong."""
        if message.type in ("error", "warning"):
            self.wrong.append(f"{message.type}: {message.text}")


Visitor = Callable[..., Awaitable[Visit]]
"""Opens a page. `url`: of which gateway; `phone`, `dark`; `expected`: what the console may say, as a pattern."""


@asynccontextmanager
async def visitor(browser: Browser, url: str) -> AsyncIterator[Visitor]:
    """Give a `Visitor` with pages of the gateway at `url`; at the end nothing may have gone wrong on any of them."""
    visits: list[tuple[Visit, re.Pattern[str] | None]] = []

    async def visit(*, at: str = url, phone: bool = False, dark: bool = False, expected: str = "") -> Visit:
        width, height = PHONE if phone else DESKTOP
        options: dict[str, Any] = {"has_touch": True, "is_mobile": True} if phone else {}
        context = await browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
            **options,
        )
        context.set_default_timeout(PATIENCE)
        page = await context.new_page()
        made = Visit(page, at)
        page.on("console", made.note)
        page.on("pageerror", lambda error: made.wrong.append(f"uncaught: {error}"))
        visits.append((made, re.compile(expected) if expected else None))
        return made

    try:
        yield visit
    finally:
        for made, _ in visits:
            await made.page.context.close()
    wrong = [one for made, fine in visits for one in made.wrong if fine is None or not fine.search(one)]
    assert not wrong, wrong
