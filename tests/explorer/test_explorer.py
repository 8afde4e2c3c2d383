"""The rooms of the explorer in a real browser: what they show is what the API says, as it comes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.to_thread
import asyncpg
from playwright.async_api import Locator, expect

from tests.explorer.browser import Visit, Visitor
from tests.explorer.conftest import Site

WAITING = """
select count(*) from pg_stat_activity
where datname = current_database() and wait_event_type = 'Lock' and query like '%<=>%'
"""
"""Counts the searches for near vectors that wait for a lock; a worker's own rounds may wait for it, too."""
QUESTION = "Who may use the laser cutter?"


async def ask_api(site: Site, path: str, **params: Any) -> Any:
    return await anyio.to_thread.run_sync(lambda: site.get(path, **params))


@asynccontextmanager
async def locked(site: Site, table: str) -> AsyncIterator[asyncpg.Connection[Any]]:
    """Hold a table, so that whoever reads it waits in the server; yield a connection to watch them with."""
    holder, watcher = await asyncpg.connect(site.database), await asyncpg.connect(site.database)
    try:
        async with holder.transaction():
            await holder.execute(f"lock table sapwood.{table} in access exclusive mode")
            yield watcher
    finally:
        await holder.close()
        await watcher.close()


async def waiting(watcher: asyncpg.Connection[Any], number: int) -> None:
    """Wait until so many statements wait for a lock."""
    with anyio.fail_after(20):
        while await watcher.fetchval(WAITING) != number:  # noqa: ASYNC110 - a server tells nobody
            await anyio.sleep(0.02)


async def vectors_of(site: Site, corpus: str) -> str:
    """Return the table that holds the vectors of a corpus: without it the dense leg hangs."""
    (current, *_) = await ask_api(site, f"v1/corpora/{corpus}/generations")
    return str(current["manifest"]["collection"])


async def open_graph(visit: Visitor, corpus: str = "handbook", **how: Any) -> Visit:
    made = await visit(**how)
    await made.go(f"graph/{corpus}")
    await expect(made.page.locator("#nodes button").first).to_be_visible()
    return made


async def open_question(visit: Visitor, text: str = QUESTION, *, deadline: str = "10", **how: Any) -> Visit:
    made = await visit(**how)
    await made.go("ask/handbook")
    await made.page.get_by_label("Question").fill(text)
    await made.page.get_by_label("Deadline, seconds").fill(deadline)
    return made


def leg(made: Visit, name: str) -> Locator:
    return made.page.locator(f".leg[data-leg={name}]")


async def test_corpora_are_shown_with_the_account_of_their_documents(site: Site, visit: Visitor) -> None:
    made = await visit()
    await made.go("corpora/handbook")
    page, (summary,) = made.page, [one for one in await ask_api(site, "v1/corpora") if one["name"] == "handbook"]
    await expect(page.locator(".figures dd")).to_have_count(6)
    shown = dict(zip(await made.texts(".figures dt"), await made.texts(".figures dd"), strict=True))
    for what in ("documents", "chunks", "entities", "relations"):
        assert shown[what] == f"{summary['counts'][what]:,}"
    stats = await ask_api(site, "api/graph/handbook/stats")
    assert (shown["generation"], shown["communities"]) == ("1", f"{stats['total_communities']:,}")
    run, *_ = await ask_api(site, "v1/corpora/handbook/runs")
    counts = (await ask_api(site, f"v1/runs/{run['run_id']}/documents"))["counts"]
    assert counts["failed"] == counts["empty"] == 1
    for outcome, number in counts.items():
        await expect(page.locator(".outcomes")).to_contain_text(f"{number} {outcome}")

    await page.locator("button.run").press("Enter")
    await expect(page.locator(".more li", has_text="broken.pdf")).to_contain_text("failed")
    await expect(page.locator(".more li", has_text="nothing.md")).to_contain_text("empty")
    await made.picture("corpora-documents")


async def test_what_is_empty_says_how_to_fill_it(visit: Visitor) -> None:
    made = await visit(expected="status of 404")
    for room in ("corpora", "graph", "ask"):
        await made.go(f"{room}/blank")
        await expect(made.page.locator("pre")).to_have_text("sapwood index blank FOLDER")
    await made.picture("empty-corpus")
    await made.go("graph/missing")
    await expect(made.page.get_by_role("alert")).to_contain_text("Not there.")


async def test_the_graph_shows_its_communities_and_hides_those_one_does_not_want(site: Site, visit: Visitor) -> None:
    made = await open_graph(visit)
    page = made.page
    names = await made.texts("#nodes .name")
    known = {one["name"] for one in await ask_api(site, "api/graph/handbook/entities", limit=2000)}
    assert names and set(names) <= known
    legend = await made.texts("#legend .name")
    assert len(legend) > 3 and len(set(legend)) == len(legend)
    shapes = await page.locator("#legend svg > *").evaluate_all("all => all.map(one => one.outerHTML)")
    assert len(set(shapes)) == len(shapes), "no two communities look alike"

    size = int((await made.texts("#legend .hint"))[0])
    await page.locator("#legend input").first.uncheck()
    await expect(page.locator("#nodes button")).to_have_count(len(names) - size)
    hidden = next(iter(set(names) - set(await made.texts("#nodes .name"))))
    assert await point(made, await id_of(site, hidden)) is None
    await page.locator("#legend input").first.check()
    await expect(page.locator("#nodes button")).to_have_count(len(names))


async def id_of(site: Site, name: str) -> str:
    found = await ask_api(site, "api/graph/handbook/entities", q=name)
    return str(next(one["entity_id"] for one in found if one["name"] == name))


async def point(made: Visit, entity: str) -> dict[str, float] | None:
    """Return where on the page an entity is drawn."""
    found: dict[str, float] | None = await made.page.locator("#canvas").evaluate("(it, id) => it.pointOf(id)", entity)
    return found


async def evidence_is_that_of(site: Site, made: Visit, name: str) -> None:
    """Check that the panel shows an entity with its relations, and its evidence by file and lines."""
    await expect(made.page.locator("#panel h2")).to_have_text(name)
    entity = await id_of(site, name)
    sources = (await ask_api(site, "api/graph/handbook/entity/sources", entity_id=entity, limit=5))["sources"]
    assert sources
    await expect(made.page.locator(".passages > li")).to_have_count(len(sources))
    ends = [(one["start_line"], one["end_line"]) for one in sources]
    lines = [f"{first}" if first == last else f"{first}-{last}" for first, last in ends]
    places = [f"{one['file_path']}:{line}" for one, line in zip(sources, lines, strict=True)]
    assert await made.texts("#panel .place") == places
    await expect(made.page.locator(".passages blockquote").first).to_have_text(
        sources[0]["content"], use_inner_text=True
    )
    outgoing = await ask_api(site, "api/graph/handbook/entity/relationships", entity_id=entity)
    for one in outgoing:
        await expect(made.page.locator(".relations")).to_contain_text(one["relation_type"])


async def test_search_enter_and_arrows_reach_everything_without_a_mouse(site: Site, visit: Visitor) -> None:
    made = await open_graph(visit)
    page = made.page
    before = await page.locator("#nodes button").count()
    await page.keyboard.press("/")
    await expect(page.locator("#search")).to_be_focused()
    await page.keyboard.type("tool-librar")  # `-` counts as a space
    await expect(page.locator("#results button").first).to_contain_text("Harbour Tool Library")
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    await evidence_is_that_of(site, made, "Harbour Tool Library")

    found = await ask_api(site, "api/graph/handbook/entities", q="open", limit=30)
    drawn = set(await made.texts("#nodes .name"))
    lone = next(one for one in found if one["name"] not in drawn)
    await page.locator("#search").fill("open")
    await page.locator(f'#results button[data-id="{lone["entity_id"]}"]').press("Enter")
    await evidence_is_that_of(site, made, lone["name"])
    await expect(page.locator("#nodes button")).to_have_count(before + 1)

    await page.locator('#nodes button[tabindex="0"]').focus()
    for key, place in (("Home", 0), ("ArrowDown", 1), ("ArrowDown", 2), ("ArrowUp", 1), ("End", before)):
        await page.keyboard.press(key)
        await expect(page.locator("#nodes button").nth(place)).to_be_focused()
    await page.keyboard.press("Home")
    first = (await made.texts("#nodes .name"))[0]
    await page.keyboard.press("Enter")
    await evidence_is_that_of(site, made, first)
    assert await page.evaluate("document.activeElement.querySelector('.name').textContent") == first, "focus stays"


async def test_a_click_on_the_drawing_expands_and_so_does_a_relation(site: Site, visit: Visitor) -> None:
    made = await open_graph(visit, "handbook?entity=topic:none", expected="status of 404")
    await expect(made.page.get_by_role("alert")).to_contain_text("topic:none")
    entity = await id_of(site, "Laser Cutter")
    spot = await point(made, entity)
    assert spot
    await made.page.mouse.click(spot["x"], spot["y"])
    await evidence_is_that_of(site, made, "Laser Cutter")
    near = await ask_api(site, "api/graph/handbook/entity/neighbors", entity_id=entity, max_hops=1)
    shown = set(await made.texts("#nodes .name"))
    assert {one["name"] for one in near["entities"]} <= shown
    related = made.page.locator(".relations button").first
    name = await related.inner_text()
    await related.click()
    await evidence_is_that_of(site, made, name)


async def test_more_neighbours_and_more_evidence_come_when_asked_for(site: Site, visit: Visitor) -> None:
    made = await open_graph(visit)
    entity = await id_of(site, "Workshop Team")
    total = len((await ask_api(site, "api/graph/handbook/entity/sources", entity_id=entity, limit=100))["sources"])
    assert total > 5
    await made.page.locator(f'#nodes button[data-id="{entity}"]').press("Enter")
    await expect(made.page.locator(".passages > li")).to_have_count(5)
    await made.page.get_by_role("button", name="More evidence").press("Enter")
    await expect(made.page.locator(".passages > li")).to_have_count(min(total, 10))


async def test_a_question_shows_its_events_in_the_order_in_which_they_come(site: Site, visit: Visitor) -> None:
    made = await open_question(visit)
    await made.page.keyboard.press("Control+Home")
    await made.page.get_by_label("Question").press("Enter")
    await expect(made.page.locator("#state")).to_have_text("Complete")
    kinds = await made.texts("#events b")
    assert (kinds[0], kinds[-1], kinds[1:-1]) == ("pinned", "completed", ["leg"] * 3)
    events = " ".join(await made.texts("#events li"))
    for name in ("keyword", "dense", "graph"):
        assert f"{name} completed" in events
        await expect(leg(made, name)).to_contain_text("hits")
    await expect(made.page.locator(".hit")).to_have_count(5)
    place = await made.page.locator(".hit .place").first.inner_text()
    assert place.startswith("tools/laser-cutter.md:")

    await made.page.get_by_label("Legs").select_option("keyword")
    await made.page.get_by_label("Hits").fill("2")
    await made.page.get_by_role("button", name="Ask", exact=True).click()
    await expect(made.page.locator(".hit")).to_have_count(2)
    assert await made.texts("#events b") == ["pinned", "leg", "completed"]
    await made.page.get_by_label("Question").fill("qwertzuiop")
    await made.page.get_by_label("Question").press("Enter")
    await expect(made.page.locator("#hits .vacant")).to_contain_text("Nothing was found.")


async def test_a_strategy_of_several_searches_says_which_one_a_leg_belongs_to(site: Site, visit: Visitor) -> None:
    made = await open_question(visit)
    await made.page.get_by_label("Legs").select_option("hierarchical")
    await made.page.get_by_label("Question").press("Enter")
    await expect(made.page.locator("#state")).to_have_text("Complete")
    names = await made.texts("#legs .name")
    assert {"shortlist.keyword", "shortlist.dense"} <= set(names)
    assert not [one for one in await made.texts("#legs .leg") if "missing" in one or "running" in one]
    await expect(made.page.locator(".hit").first).to_be_visible()


async def test_legs_are_seen_before_the_answer_and_the_deadline_gives_a_part_of_it(site: Site, visit: Visitor) -> None:
    """With the vectors locked the dense leg hangs; what the others found comes at the deadline."""
    made = await open_question(visit, deadline="3")
    async with locked(site, await vectors_of(site, "handbook")):
        await made.page.get_by_label("Question").press("Enter")
        await expect(leg(made, "keyword")).to_contain_text("hits")
        await expect(leg(made, "dense")).to_contain_text("running")
        await expect(made.page.locator("#state")).to_have_text("Running")
        assert await made.page.locator(".hit").count() == 0
        await made.picture("question-running")
        await expect(made.page.locator("#state")).to_have_text("Partial")
    await expect(leg(made, "dense")).to_contain_text("not done in time")
    await expect(made.page.locator(".notice")).to_contain_text("dense")
    await expect(made.page.locator(".hit").first).to_be_visible()
    assert (await made.texts("#events b"))[-1] == "completed"
    await made.picture("question-partial")


async def test_a_question_that_takes_no_part_of_an_answer_expires(site: Site, visit: Visitor) -> None:
    made = await open_question(visit, deadline="1")
    await made.page.get_by_label("Take what was found at the deadline").uncheck()
    async with locked(site, await vectors_of(site, "handbook")):
        await made.page.get_by_label("Question").press("Enter")
        await expect(made.page.locator("#state")).to_have_text("Expired")
    assert await made.page.locator(".hit").count() == 0
    assert (await made.texts("#events b"))[-1] == "expired"


async def test_cancel_stops_the_question_here_and_in_the_server(site: Site, visit: Visitor) -> None:
    made = await open_question(visit, deadline="600")
    async with locked(site, await vectors_of(site, "handbook")) as watcher:
        for stop in ("button", "Escape"):
            await made.page.get_by_label("Question").press("Enter")
            await expect(leg(made, "keyword")).to_contain_text("hits")
            await waiting(watcher, 1)
            if stop == "button":
                await made.page.get_by_role("button", name="Cancel").click()
            else:
                await made.page.keyboard.press(stop)
            await expect(made.page.locator("#state")).to_have_text("Cancelled")
            await waiting(watcher, 0)
            await made.picture("question-cancelled")
    await made.page.get_by_label("Question").press("Enter")
    await expect(made.page.locator("#state")).to_have_text("Complete")
