"""Generations, manifests and pins in dictionaries of one process: each call is one step that nothing can come between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import anyio
import anyio.lowlevel

from pipeline.deadline import Deadline
from pipeline.errors import Conflict, NotFound, PromotionConflict
from pipeline.generations.gate import Facts, sparse_override
from pipeline.generations.manifest import Draft, Figures, check, collection_name, manifest
from pipeline.generations.pins import Key
from pipeline.generations.rows import DocumentRows
from schemas.corpora import Corpus
from schemas.ids import CorpusId, RunId
from schemas.manifest import Manifest, StoreCheck
from schemas.settings import CorpusSettings

TENANT = "default"

Contents = dict[str, DocumentRows]


@dataclass(slots=True)
class _Generation:
    run: RunId
    contents: Contents
    state: str = "building"
    manifest: Manifest | None = None


@dataclass(slots=True)
class _Corpus:
    name: str
    last: int = 0
    generations: dict[int, _Generation] = field(default_factory=dict[int, _Generation])

    @property
    def current(self) -> int | None:
        """The number that is current."""
        return next((n for n, one in self.generations.items() if one.state == "current"), None)


class MemoryManifests:
    """The store and its pins. `names` are those of the corpora. Awaits come before a step, never within one."""

    def __init__(self, names: Mapping[CorpusId, str]) -> None:
        self._corpora = {corpus: _Corpus(name) for corpus, name in names.items()}
        self._pins: dict[tuple[Key, str], float] = {}

    async def begin(self, corpus: CorpusId, run: RunId) -> int:
        """Return the number that the run builds: the next one, or the one it began before.

        Raises:
            NotFound: there is no such corpus.
            Conflict: another run's build is open.
        """
        await anyio.lowlevel.checkpoint()
        known = self._corpus(corpus)
        for number, one in known.generations.items():
            if one.state == "building":
                if one.run != run:
                    raise Conflict(f"Generation {number} of this corpus is still being built or undone.")
                return number
        number = self._next(known)
        contents = known.generations[known.current].contents if known.current else Contents()
        known.generations[number] = _Generation(run, dict(contents))
        return number

    async def write(
        self, corpus: CorpusId, number: int, documents: Sequence[DocumentRows], removed: Sequence[str] = ()
    ) -> None:
        """Replace and remove documents in an open build."""
        await anyio.lowlevel.checkpoint()
        contents = self._corpus(corpus).generations[number].contents
        contents.update((one.document_id, one) for one in documents)
        for name in removed:
            contents.pop(name, None)

    async def promote(self, corpus: CorpusId, number: int, draft: Draft) -> Manifest:
        """Make the build current and return its manifest.

        Raises:
            PromotionRefused: the gate found something; nothing is changed.
            PromotionConflict: the generation is not open.
        """
        await anyio.lowlevel.checkpoint()
        known = self._corpus(corpus)
        one = _opened(known, number)
        stores = _checks(one.contents)
        at = datetime.now(UTC).isoformat()
        facts = Facts(draft.policy, stores, draft.extracted, schema_hash=draft.schema_hash)
        override = sparse_override(facts, draft.override, draft.sparse, draft.paid, at)
        base = known.generations[known.current].manifest if known.current else None
        named = replace(draft, collection=collection_name(corpus, draft.embedding))
        return self._publish(known, one, manifest(known.name, number, named, Figures(stores, 0, 0, at), override, base))

    async def rollback(self, corpus: CorpusId, target: int, number: int, run: RunId) -> Manifest:
        """Publish what an earlier, retained generation holds under an open number.

        Raises:
            NotFound: the target is not retained, or is the current one.
            PromotionConflict: the number is not open.
        """
        await anyio.lowlevel.checkpoint()
        known = self._corpus(corpus)
        wanted = known.generations.get(target)
        if wanted is None or wanted.state != "superseded" or wanted.manifest is None:
            raise NotFound(f"Generation {target} is not an earlier, retained one of this corpus.")
        one = _opened(known, number)
        one.contents = dict(wanted.contents)
        changes: dict[str, Any] = {
            "generation": number,
            "run_id": run,
            "outcomes": {},
            "rolled_back_from": target,
            "promoted_at": datetime.now(UTC).isoformat(),
        }
        return self._publish(known, one, wanted.manifest.model_copy(update=changes))

    async def abort(self, corpus: CorpusId, number: int) -> None:
        """Forget what an open build holds; any other number is left alone."""
        await anyio.lowlevel.checkpoint()
        one = self._corpora[corpus].generations.get(number) if corpus in self._corpora else None
        if one is not None and one.state == "building":
            one.state, one.contents = "aborted", {}

    async def collect(self, corpus: CorpusId, keep: int) -> tuple[int, ...]:
        """Close all but the newest `keep` generations to readers, unless pinned or current; return their numbers."""
        await anyio.lowlevel.checkpoint()
        known = self._corpora.get(corpus, _Corpus(""))
        now = anyio.current_time()
        self._pins = {pin: until for pin, until in self._pins.items() if until > now}
        readable = [n for n, one in known.generations.items() if one.state in ("current", "superseded")]
        surplus = sorted(readable, reverse=True)[max(keep, 1) :]
        closed = tuple(n for n in sorted(surplus) if not self._held((corpus, n)))
        for number in closed:
            known.generations[number].state, known.generations[number].contents = "reclaimed", {}
        return closed

    async def states(self, corpus: CorpusId) -> list[tuple[int, str, int]]:
        """Return (number, state, live pins) of all generations, newest first."""
        await anyio.lowlevel.checkpoint()
        known = self._corpora.get(corpus, _Corpus(""))
        return [(n, one.state, self._held((corpus, n))) for n, one in sorted(known.generations.items(), reverse=True)]

    async def read(self, corpus: CorpusId, number: int) -> tuple[Manifest, list[str]]:
        """Return the manifest of a generation and the ids of its documents, sorted. Raises NotFound."""
        await anyio.lowlevel.checkpoint()
        found = self._readable((corpus, number))
        if found is None:
            raise NotFound(f"Generation {number} of this corpus cannot be read (any more).")
        return found, sorted(self._corpora[corpus].generations[number].contents)

    async def current(self, tenant: str, name: str, deadline: Deadline) -> Corpus:
        """See `PinStore`."""
        await anyio.lowlevel.checkpoint()
        for corpus, known in self._corpora.items():
            if (tenant, name) == (TENANT, known.name):
                return Corpus(corpus, tenant, name, CorpusSettings(), known.current)
        raise NotFound(f"Corpus not found: {name}.")

    async def take(self, key: Key, holder: str, lease: float, deadline: Deadline) -> Manifest | None:
        """See `PinStore`."""
        await anyio.lowlevel.checkpoint()
        found = self._readable(key)
        if found is not None:
            self._pins[key, holder] = anyio.current_time() + lease
        return found

    async def renew(self, keys: Sequence[Key], holder: str, lease: float, deadline: Deadline) -> set[Key]:
        """See `PinStore`."""
        await anyio.lowlevel.checkpoint()
        kept = {key for key in keys if (key, holder) in self._pins}
        self._pins.update(((key, holder), anyio.current_time() + lease) for key in kept)
        return kept

    async def drop(self, keys: Sequence[Key], holder: str, deadline: Deadline) -> None:
        """See `PinStore`."""
        await anyio.lowlevel.checkpoint()
        for key in keys:
            self._pins.pop((key, holder), None)

    def _corpus(self, corpus: CorpusId) -> _Corpus:
        if corpus not in self._corpora:
            raise NotFound("The corpus is gone.")
        return self._corpora[corpus]

    def _next(self, known: _Corpus) -> int:
        known.last += 1
        return known.last

    def _held(self, key: Key) -> int:
        now = anyio.current_time()
        return sum(pinned == key and until > now for (pinned, _), until in self._pins.items())

    def _readable(self, key: Key) -> Manifest | None:
        corpus, number = key
        one = self._corpora[corpus].generations.get(number) if corpus in self._corpora else None
        return one.manifest if one is not None and one.state in ("current", "superseded") else None

    def _publish(self, known: _Corpus, one: _Generation, made: Manifest) -> Manifest:
        if known.current:
            known.generations[known.current].state = "superseded"
        one.state, one.manifest = "current", made
        return made


def _opened(known: _Corpus, number: int) -> _Generation:
    one = known.generations.get(number)
    if one is None or one.state != "building":
        raise PromotionConflict()
    return one


def _checks(contents: Contents) -> dict[str, StoreCheck]:
    """Return the check of each store; entities and relations are none, since nothing is derived here."""
    documents = [hash((one.document_id, one.content_hash)) for one in contents.values()]
    chunks = [int(chunk.chunk_id) for one in contents.values() for chunk in one.chunks]
    sums: dict[str, list[int]] = {"documents": documents, "chunks": chunks, "dense": chunks}
    none = {name: check(0, 0) for name in ("mentions", "facts", "entities", "relations", "memberships")}
    return none | {name: check(len(ids), sum(ids)) for name, ids in sums.items()}
