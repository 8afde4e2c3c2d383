"""How the explorer behaves: keys, hostile documents, keyboards, small and dark screens, gateways that go away."""

from __future__ import annotations

import re
from typing import Any

import anyio
import anyio.to_thread
import pytest
from playwright.async_api import expect

from tests.cli_driver import HANDBOOK
from tests.explorer.browser import Visit, Visitor
from tests.explorer.conftest import HOSTILE, Site, free_port, serving
from tests.explorer.test_explorer import QUESTION, ask_api, locked, open_graph, open_question

ROOMS = ("corpora/handbook", "graph/handbook", "ask/handbook")

CONTROLS = "a[href], button, input, select, textarea, summary"

NAMELESS = """(controls) => [...document.querySelectorAll(controls)].filter((it) => it.checkVisibility()).filter((it) => {
  const labels = [...(it.labels ?? [])].map((one) => one.textContent);
  const pictures = [...it.querySelectorAll('img')].map((one) => one.alt);
  return ![it.getAttribute('aria-label'), it.textContent, ...labels, ...pictures].some((text) => text?.trim());
}).map((it) => it.outerHTML)"""
"""Returns the controls that have no name."""

REACHABLE = """(controls) => {
  const wanted = (it) => it.checkVisibility() && it.tabIndex >= 0 && !it.disabled;
  return [...document.querySelectorAll(controls)].filter(wanted).length;
}"""
"""Counts what the tab key must reach."""

MARK = """() => {
  const it = document.activeElement;
  const { outlineStyle, outlineWidth } = getComputedStyle(it);
  const seen = it.matches('.skip, body') || (outlineStyle !== 'none' && parseFloat(outlineWidth) >= 2);
  const again = window.reached.has(it);
  if (it !== document.body) window.reached.add(it);
  return { again, seen, html: it.outerHTML.slice(0, 200) };
}"""
"""Returns whether the focus is where it was before, and whether it is seen there."""

PALE = """() => {
  const parsed = (text) => text.match(/[\\d.]+/g).map(Number);
  const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const ground = (it) => {
    for (; it; it = it.parentElement) {
      const colour = parsed(getComputedStyle(it).backgroundColor);
      if (colour.length === 3 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const ratio = (it) => {
    const [a, b] = [light(parsed(getComputedStyle(it).color)), light(ground(it))].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05);
  };
  const speaks = (it) => [...it.childNodes].some((one) => one.nodeType === 3 && one.textContent.trim());
  const pale = (it) => speaks(it) && it.checkVisibility() && !it.disabled && ratio(it) < 4.5;
  return [...document.querySelectorAll('body *')].filter(pale)
    .map((it) => `${ratio(it).toFixed(2)} ${it.outerHTML.slice(0, 120)}`);
}"""
"""Returns the texts whose contrast is below 4.5 to 1, which WCAG 2 asks for."""


async def settled(made: Visit, room: str) -> None:
    """Go to a room and wait until it shows data."""
    await made.go(room)
    data = {"corpora": ".outcomes .count", "graph": "#nodes button", "ask": "#text"}[room.split("/")[0]]
    await expect(made.page.locator(data).first).to_be_visible()


async def good(made: Visit, name: str) -> None:
    """Check that what is seen can be named, read and fits, and keep a picture of it."""
    page = made.page
    assert await page.evaluate(NAMELESS, CONTROLS) == []
    assert await page.evaluate(PALE) == []
    assert await page.locator("h1").count() == await page.locator("main").count() == 1
    widths = await page.evaluate("[document.documentElement.scrollWidth, document.body.scrollWidth, innerWidth]")
    assert max(widths) == widths[-1], (name, widths)
    await made.picture(name)


async def test_an_error_in_the_console_is_noticed(visit: Visitor) -> None:
    """What makes the other tests mean something: errors, uncaught ones, and what the policy refuses, all are seen."""
    made = await visit()
    await made.go()
    attempts = {
        "said": "console.error('said')",
        "thrown": "setTimeout(() => { throw new Error('thrown') })",
        "TrustedHTML": "try { document.body.innerHTML = '<b>x</b>' } catch (error) { console.error(error.message) }",
        "inline style": "document.body.setAttribute('style', 'color: red')",
        "img-src": "document.body.append(Object.assign(new Image(), {src: 'https://elsewhere.invalid/x.png'}))",
        "connect-src": "fetch('https://elsewhere.invalid/').catch(() => {})",
    }
    for pattern, attempt in attempts.items():
        made.wrong.clear()
        await made.page.evaluate(attempt)
        with anyio.fail_after(10):
            while not any(re.search(pattern, one) for one in made.wrong):  # noqa: ASYNC110 - a console tells nobody
                await anyio.sleep(0.02)
    made.wrong.clear()


async def test_names_out_of_documents_never_become_markup(site: Site, visit: Visitor) -> None:
    made = await open_graph(visit, "hostile", expected="status of 404")
    page = made.page
    await page.locator("#nodes button", has_text="<img").press("Enter")
    await expect(page.locator("#panel h2")).to_have_text(HOSTILE)
    await expect(page.locator("#panel .tag").first).to_have_text("<u>Thing</u>")
    await expect(page.locator(".relations")).to_contain_text("<i>MADE_BY</i>")
    await expect(page.locator("#panel .place").first).to_contain_text("<b>notes</b>:1")
    await expect(page.locator(".passages mark").first).to_have_text(HOSTILE)
    await page.locator("#search").fill("<img")
    await expect(page.locator("#results button")).to_contain_text(HOSTILE)
    await made.picture("hostile-entity")
    await made.go("ask/hostile")
    await page.get_by_label("Question").fill("Who made <img src=x>?")
    await page.get_by_label("Question").press("Enter")
    await expect(page.locator(".hit blockquote").first).to_contain_text("<svg onload=")
    await made.go("graph/hostile?entity=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E")
    await expect(page.get_by_role("alert")).to_contain_text("<img src=x onerror=alert(1)>")
    assert await page.evaluate("document.querySelectorAll('main img, main script, main b.x, svg[onload]').length") == 0
    assert "owned" not in await page.title()


async def test_a_key_is_asked_for_refused_and_taken(locked_site: str, keys: dict[str, str], visit: Visitor) -> None:
    """It goes into a header; it is kept nowhere unless the box is ticked, and then for this tab alone."""
    key = keys["reader"]
    made = await visit(at=locked_site, expected="status of 401")
    page = made.page
    urls: list[str] = []
    page.on("request", lambda request: urls.append(request.url))
    await page.goto(f"{locked_site}/")
    await expect(page.locator("dialog")).to_contain_text("asks for a key")
    await expect(page.get_by_label("Key", exact=True)).to_be_focused()
    await expect(page.get_by_label("Key", exact=True)).to_have_attribute("type", "password")
    await made.picture("key-wanted")
    await page.keyboard.type("sw_wrong_key")
    await page.keyboard.press("Enter")
    await expect(page.locator("dialog")).to_contain_text("not known here")
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("alert")).to_contain_text("A key is needed.")
    await made.picture("key-refused")

    await page.get_by_role("button", name="Key").click()
    await page.get_by_label("Key", exact=True).fill(key)
    await page.keyboard.press("Enter")
    await expect(page.locator(".figures dd").first).to_be_visible()
    await made.page.locator("nav a", has_text="Ask").click()
    await page.get_by_label("Question").fill(QUESTION)
    await page.get_by_label("Question").press("Enter")
    await expect(page.locator("#state")).to_have_text("Complete")
    kept = "Object.values(sessionStorage).concat(Object.values(localStorage), document.cookie).join()"
    assert key not in await page.evaluate(kept)
    await page.reload()
    await expect(page.locator("dialog")).to_be_visible()
    await page.get_by_label("Key", exact=True).fill(key)
    await page.get_by_label("Remember it").check()
    await page.get_by_role("button", name="Use this key").click()
    await page.reload()
    await expect(page.get_by_label("Question")).to_be_visible()
    assert key in await page.evaluate(kept)
    await page.get_by_role("button", name="Key: set").click()
    await page.get_by_role("button", name="Forget it").click()
    await expect(page.locator("dialog")).to_contain_text("asks for a key")
    assert key not in await page.evaluate(kept)
    assert not [url for url in urls if key in url]


async def test_a_key_without_the_scope_says_which_one_it_lacks(
    locked_site: str, keys: dict[str, str], visit: Visitor
) -> None:
    key = keys["indexer"]
    made = await visit(at=locked_site, expected="status of 40[13]")
    await made.page.goto(f"{locked_site}/explorer/#/graph/handbook")
    await made.page.get_by_label("Key", exact=True).fill(key)
    await made.page.keyboard.press("Enter")
    await expect(made.page.get_by_role("alert")).to_contain_text("Not allowed.")
    await expect(made.page.get_by_role("alert")).to_contain_text("inspect")


@pytest.mark.parametrize("name", ["light", "dark", "phone", "phone-dark"])
async def test_every_room_is_named_readable_and_fits(visit: Visitor, name: str) -> None:
    """On a desk and on a phone, where light is wanted and where dark is."""
    dark = "dark" in name
    made = await visit(phone="phone" in name, dark=dark)
    await settled(made, "corpora/handbook")
    ground = await made.page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", ground))) < 150) is dark
    await good(made, f"corpora-{name}")
    await settled(made, "graph/handbook")
    await good(made, f"graph-{name}")
    await made.page.locator("#nodes button", has_text="Workshop Team").click()
    await expect(made.page.locator(".passages > li").first).to_be_visible()
    await expect(made.page.locator("#panel h2")).to_be_in_viewport()
    await good(made, f"entity-{name}")
    await settled(made, "ask/handbook")
    await made.page.get_by_label("Question").fill(QUESTION)
    await made.page.get_by_role("button", name="Ask", exact=True).click()
    await expect(made.page.locator(".hit").first).to_be_visible()
    await good(made, f"answer-{name}")


async def test_the_tab_key_reaches_every_control_and_the_focus_is_seen(visit: Visitor) -> None:
    made = await visit()
    for room in ROOMS:
        await settled(made, room)
        await tabbed(made)


async def tabbed(made: Visit) -> None:
    """Check that the tab key reaches every control that wants it, where the focus is seen, and leads round."""
    await made.page.evaluate("window.reached = new Set(); document.activeElement.blur()")
    wanted = await made.page.evaluate(REACHABLE, CONTROLS)
    for _ in range(wanted + 10):
        await made.page.keyboard.press("Tab")
        found: dict[str, Any] = await made.page.evaluate(MARK)
        assert found["seen"], found["html"]
        if found["again"]:
            break
    assert found["again"], "the tab key leads round"
    assert await made.page.evaluate("window.reached.size") >= wanted > 5


async def test_a_run_under_way_is_followed_even_when_its_gateway_starts_anew(site: Site, visit: Visitor) -> None:
    """The page comes back with the id of the last event it had, and shows the end."""
    port = free_port()
    cli = site.cli.given(SAPWOOD_GATEWAY_AUTH="none")
    made = await visit(expected="ERR_CONNECTION_REFUSED|ERR_INCOMPLETE|ERR_EMPTY")
    last: list[str] = []
    made.page.on("request", lambda request: last.append(request.headers.get("last-event-id", "")))
    async with locked(site, "chunk"):
        first = serving(cli, port=port)
        url = await anyio.to_thread.run_sync(first.__enter__)
        try:
            await anyio.to_thread.run_sync(site.index, "followed", str(HANDBOOK))
            await made.page.goto(f"{url}/explorer/#/corpora/followed")
            await expect(made.page.locator(".outcomes")).to_contain_text("planned")
            await made.picture("run-under-way")
        finally:
            await anyio.to_thread.run_sync(first.__exit__, None, None, None)
    second = serving(cli, port=port)
    await anyio.to_thread.run_sync(second.__enter__)
    try:
        await expect(made.page.locator("button.run .state")).to_have_text("completed")
        await expect(made.page.locator(".outcomes")).to_contain_text("generation 1 is current")
    finally:
        await anyio.to_thread.run_sync(second.__exit__, None, None, None)
    runs = await ask_api(site, "v1/corpora/followed/runs")
    assert runs[0]["state"] == "completed"
    asked = [int(number) for number in last if number]
    assert asked[0] == 0 < max(asked)


async def test_a_gateway_that_is_away_is_told_in_words_and_tried_again(visit: Visitor) -> None:
    made = await open_question(visit, expected="ERR_INTERNET_DISCONNECTED")
    await made.page.context.set_offline(True)
    await made.page.get_by_label("Question").press("Enter")
    await expect(made.page.get_by_role("alert")).to_contain_text("No connection.")
    await expect(made.page.get_by_role("alert")).to_contain_text("sapwood up --gateway")
    await made.picture("no-connection")
    await made.page.context.set_offline(False)
    await made.page.get_by_role("button", name="Try again").click()
    await expect(made.page.locator("#state")).to_have_text("Complete")
