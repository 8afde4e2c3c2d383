"""A batch of documents: every one ends in exactly one outcome, and nothing is lost when a page is away."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from pipeline.adapters.hash_embedder import HashEmbedder
from pipeline.deadline import Deadline
from pipeline.errors import DocumentError
from pipeline.ingest.batch import BatchPipeline, BatchResult
from pipeline.ingest.embed import Embedding
from pipeline.ingest.offline import OfflineExtractor
from pipeline.ingest.prepare import Prepared, Request
from pipeline.ingest.repositories import Repositories
from pipeline.ingest.sources import list_all
from pipeline.ingest.stages import prepare
from pipeline.plan import Known
from pipeline.ports import Extractor
from pipeline.testing.doubles import MemoryCache
from schemas.documents import DocumentOutcome, Item, Outcome, Source, SourceKind
from schemas.ids import CorpusId
from schemas.payloads import BatchPayload
from schemas.settings import CorpusSettings, EmbeddingSettings
from tests.git_world import repository

SETTINGS = CorpusSettings()
PAGE = Source(SourceKind.URL, "https://example.org/page")


class Offline:
    """The models of a corpus that pays for none."""

    def __init__(self) -> None:
        self._embedding = Embedding(HashEmbedder())

    def embedding(self, wanted: EmbeddingSettings) -> Embedding:
        return self._embedding

    async def extractor(self, settings: CorpusSettings) -> Extractor | None:
        return OfflineExtractor()

    def summariser(self, settings: CorpusSettings) -> None:
        return None


class Here:
    """Prepares in this process."""

    def expect(self, documents: int) -> None:
        pass

    async def prepare(self, requests: Sequence[Request]) -> list[Prepared | DocumentError]:
        return prepare(requests)


class Web:
    """A web of one page, or none."""

    def __init__(self, page: bytes | None) -> None:
        self._page = page

    async def fetch(self, url: str, deadline: Deadline) -> tuple[bytes, str]:
        if self._page is None:
            raise DocumentError("no connection to the server")
        return self._page, "text/plain"


async def run(
    items: Sequence[Item], known: dict[str, Known] | None = None, page: bytes | None = None, home: Path = Path("none")
) -> BatchResult:
    parts = (Offline(), Here(), Web(page), Repositories(home), MemoryCache(), anyio.CapacityLimiter(4))
    batch = BatchPipeline(*parts)  # type: ignore[arg-type]
    payload = BatchPayload(corpus="c", generation=1, collection="dense_1_0", settings=SETTINGS, items=tuple(items))
    return await batch.run(CorpusId(1), payload, known or {}, Deadline.after(60))


def outcomes(result: BatchResult) -> dict[str, Outcome]:
    return {one.document_id: one.outcome for one in result.outcomes}


@pytest.fixture
def folder(tmp_path: Path) -> Source:
    (tmp_path / "good.md").write_text("# Bath\n\nBath is located in Somerset.\n")
    (tmp_path / "empty.md").write_text(" \n")
    return Source(SourceKind.FOLDER, str(tmp_path))


def item(folder: Source, name: str) -> Item:
    return Item(name, folder, name, 1, 1)


async def test_every_document_has_one_outcome(folder: Source) -> None:
    result = await run([item(folder, name) for name in ("good.md", "empty.md", "vanished.md")])
    assert outcomes(result) == {
        "good.md": Outcome.INDEXED,
        "empty.md": Outcome.EMPTY,
        "vanished.md": Outcome.FAILED,
    }
    assert all(one.reason for one in result.outcomes if one.outcome is not Outcome.INDEXED)


async def test_a_chunk_carries_its_title_and_what_it_states(folder: Source) -> None:
    [rows] = (await run([item(folder, "good.md")])).documents
    assert {mention.name for mention in rows.mentions[0]} >= {"Bath", "Somerset"}
    assert [(fact.subject, fact.object) for fact in rows.facts[0]] == [("Bath", "Somerset")]
    assert rows.vectors.shape == (1, 128)


async def test_the_same_content_is_unchanged_and_its_stamp_is_noted(folder: Source) -> None:
    one = item(folder, "good.md")
    [rows] = (await run([one])).documents
    known = Known("good.md", rows.content_hash, rows.recipe, 0, 0, "", 1)
    again = await run([one], {"good.md": known})
    assert outcomes(again) == {"good.md": Outcome.UNCHANGED}
    assert [noted.document_id for noted in again.restat] == ["good.md"]
    assert not again.gone


async def test_a_file_that_can_no_longer_be_read_is_gone(folder: Source) -> None:
    known = Known("vanished.md", b"", b"", 0, 0, "", 1)
    assert (await run([item(folder, "vanished.md")], {"vanished.md": known})).gone == ["vanished.md"]


async def test_a_page_that_is_away_keeps_its_last_version() -> None:
    page = Item("page", PAGE, PAGE.location)
    result = await run([page], {"page": Known("page", b"", b"", None, None, "", 1)})
    assert result.outcomes == [
        DocumentOutcome("page", Outcome.FAILED, "no connection to the server (its last version stays)")
    ]
    assert not result.gone


async def test_a_repository_that_is_away_keeps_its_last_version(tmp_path: Path) -> None:
    source = Source(SourceKind.GIT, f"git+file://{tmp_path}/gone@main", revision="0" * 40)
    blob = Item("a.md", source, "1" * 40, 1, 0)
    result = await run([blob], {"a.md": Known("a.md", b"", b"", 1, 0, "2" * 40, 1)}, home=tmp_path)
    assert outcomes(result) == {"a.md": Outcome.FAILED}
    assert result.outcomes[0].reason.endswith("(its last version stays)") and not result.gone


async def test_a_blob_that_a_rule_leaves_out_is_skipped_and_gone(tmp_path: Path) -> None:
    def made() -> str:
        return repository(tmp_path / "r", {"a.go": "// Code generated by a tool. DO NOT EDIT.\n", "b.md": "# Bath\n"})

    source = Source(SourceKind.GIT, f"git+file://{tmp_path}/r@main", revision=await anyio.to_thread.run_sync(made))
    held = Repositories(tmp_path)
    listed = await list_all([source], held, Deadline.after(60))
    known = {one.document_id: Known(one.document_id, b"", b"", 1, 0, "2" * 40, 1) for one in listed.items}
    result = await run(listed.items, known, home=tmp_path)
    assert outcomes(result) == {"a.go": Outcome.SKIPPED, "b.md": Outcome.INDEXED}
    assert result.gone == ["a.go"]


async def test_a_page_is_indexed() -> None:
    assert outcomes(await run([Item("page", PAGE, PAGE.location)], page=b"Some words.")) == {"page": Outcome.INDEXED}
