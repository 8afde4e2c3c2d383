"""What an index run decides to do, before it does anything."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pipeline.plan import BATCH_BYTES, MOST_DOCUMENTS, Known, batches, plan
from schemas.documents import Item, Source, SourceKind

FOLDER = Source(SourceKind.FOLDER, "/corpus")
RECIPE = b"recipe"


def item(name: str, size: int = 10, mtime_ns: int | None = 1, locator: str = "") -> Item:
    return Item(name, FOLDER, locator or f"/corpus/{name}", size, mtime_ns)


def known(name: str, recipe: bytes = RECIPE, mtime_ns: int | None = 1) -> Known:
    return Known(name, b"hash", recipe, 10, mtime_ns, f"/corpus/{name}", 1)


def names(items: tuple[Item, ...]) -> list[str]:
    return [one.document_id for one in items]


def test_new_changed_and_vanished_files_are_told_apart() -> None:
    items = [item("new"), item("same"), item("touched", mtime_ns=2), item("grown", size=11)]
    before = {name: known(name) for name in ("same", "touched", "grown", "gone")}
    found = plan(items, frozenset(), before, RECIPE)
    assert names(found.to_do) == ["new", "touched", "grown"]
    assert found.unchanged == ("same",)
    assert found.removed == ("gone",)


def test_another_recipe_means_that_everything_is_done_again() -> None:
    found = plan([item("a")], frozenset(), {"a": known("a", recipe=b"older")}, RECIPE)
    assert names(found.to_do) == ["a"]


def test_a_file_without_a_trusted_time_stamp_is_read() -> None:
    """A file that was written a moment before it was indexed is remembered without its time stamp."""
    found = plan([item("a")], frozenset(), {"a": known("a", mtime_ns=None)}, RECIPE)
    assert names(found.to_do) == ["a"]


def test_a_page_without_any_stamp_is_always_read() -> None:
    page = Item("page", Source(SourceKind.URL, "https://example.org/"), "https://example.org/")
    assert names(plan([page], frozenset(), {"page": known("page")}, RECIPE).to_do) == ["page"]


def test_a_known_document_that_is_now_left_out_is_removed() -> None:
    found = plan([], frozenset({"huge"}), {"huge": known("huge")}, RECIPE)
    assert found.removed == ("huge",)


@given(st.lists(st.integers(0, 2 * BATCH_BYTES), max_size=300))
def test_batches_hold_every_document_once_and_are_bounded(sizes: list[int]) -> None:
    items = [item(f"{at:04d}", size) for at, size in enumerate(sizes)]
    units = list(batches(items))
    assert [one for unit in units for one in unit] == items
    for unit in units:
        assert 1 <= len(unit) <= MOST_DOCUMENTS
        assert len(unit) == 1 or sum(one.size or 0 for one in unit) <= BATCH_BYTES
