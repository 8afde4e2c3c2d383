"""Keys: their form, what they show of themselves, and how the gateway takes them, by a clock that the test holds."""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass, field, replace

import anyio
import pytest
import typer

from pipeline.deadline import Deadline
from pipeline.errors import StoreUnavailable, Unauthorized
from schemas.keys import ApiKey, Scope, StoredKey
from worker.gateway import keys as module
from worker.gateway.keys import MOST, NOTE_EVERY, REMEMBER, KeyAuthenticator
from worker.key_commands import lifetime
from worker.log import Redaction


@dataclass
class Book:
    """Keys in memory, with a record of who looked."""

    stored: dict[str, StoredKey] = field(default_factory=dict[str, StoredKey])
    looked: list[str] = field(default_factory=list[str])
    noted: list[str] = field(default_factory=list[str])
    broken: bool = False

    def add(self, *scopes: str, seconds: float | None = None) -> ApiKey:
        key = ApiKey.new()
        self.stored[key.key_id] = StoredKey(key.key_id, "acme", frozenset(scopes), key.hash(), seconds, True)
        return key

    def end(self, key: ApiKey) -> None:
        self.stored[key.key_id] = replace(self.stored[key.key_id], good=False)

    async def find(self, key_id: str, deadline: Deadline) -> StoredKey | None:
        self.looked.append(key_id)
        found = self.stored.get(key_id)
        await anyio.lowlevel.checkpoint()
        if self.broken:
            raise StoreUnavailable()
        return found

    async def note_use(self, key_id: str, deadline: Deadline) -> None:
        self.noted.append(key_id)
        if self.broken:
            raise StoreUnavailable()


@dataclass
class Clock:
    """Says the time that the test wants."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Gate:
    """An authenticator over a book and a clock."""

    book: Book = field(default_factory=Book)
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.authenticator = KeyAuthenticator(self.book, self.clock)

    async def admits(self, key: ApiKey) -> bool:
        try:
            await self.authenticator.principal(f"Bearer {key.reveal()}")
        except Unauthorized:
            return False
        return True


@pytest.fixture
def gate() -> Gate:
    return Gate()


def test_a_key_is_256_random_bits_behind_a_public_id_and_comes_back_from_its_text() -> None:
    key, other = ApiKey.new(), ApiKey.new()
    assert re.fullmatch(r"sw_[0-9a-f]{16}_[0-9a-f]{64}", key.reveal())
    assert ApiKey.parse(key.reveal()) == key
    assert key.secret != other.secret and key.key_id != other.key_id
    assert len(key.hash()) == 32 and key.hash() != other.hash()


def test_what_is_no_key_is_none() -> None:
    text = ApiKey.new().reveal()
    spoilt = [
        "",
        text[:-1],
        text + "0",
        text + "\n",
        text.upper(),
        text.replace("sw_", "sk_"),
        "sw_" + text,
        text[:-1] + "\N{FULLWIDTH DIGIT ZERO}",
    ]
    assert [ApiKey.parse(one) for one in spoilt] == [None] * len(spoilt)


async def test_no_repr_error_or_log_shows_the_secret(gate: Gate) -> None:
    key = gate.book.add("query")
    shown = [repr(key), str(key), f"{key}", repr(gate.book.stored), repr(vars(gate.authenticator))]
    await gate.authenticator.principal(f"Bearer {key.reveal()}")
    shown.append(repr(vars(gate.authenticator)))
    wrong = ApiKey(key.key_id, ApiKey.new().secret)
    with pytest.raises(Unauthorized) as caught:
        await gate.authenticator.principal(f"Bearer {wrong.reveal()}")
    shown += [repr(caught.value), str(caught.value.__cause__), str(caught.value.__context__)]
    redaction = Redaction()
    texts = [f"key={key.reveal()}", f"x{key.reveal()}y", f"?key={key.reveal()}&a", f"Bearer {key.reveal()}"]
    shown += [redaction.text(text) for text in texts]
    shown.append(repr(redaction.value({"headers": [("authorization", f"Bearer {key.reveal()}")], "given": key})))
    for text in shown:
        for secret in (key.secret, wrong.secret, key.hash().hex(), repr(key.hash())):
            assert secret not in text
    assert key.key_id in redaction.text(texts[0]), "the public part may be seen"


async def test_a_good_key_says_who_asks_and_what_they_may(gate: Gate) -> None:
    """A scope that a newer program gave is left out; the scheme is case-insensitive."""
    key = gate.book.add("query", "inspect", "fly")
    for scheme in ("Bearer", "bearer", "BEARER"):
        found = await gate.authenticator.principal(f"{scheme} {key.reveal()}")
        assert (found.tenant, found.key_id) == ("acme", key.key_id)
        assert found.scopes == {Scope.QUERY, Scope.INSPECT}


async def test_every_refusal_is_the_same(gate: Gate) -> None:
    """Nothing, nonsense, unknown, wrong (also of a key that is remembered), ended: one type, one text, no cause."""
    good, ended = gate.book.add("query"), gate.book.add("query")
    gate.book.end(ended)
    assert await gate.admits(good)
    headers = [
        None,
        "",
        "Bearer",
        "Bearer nonsense",
        f"Basic {good.reveal()}",
        good.reveal(),
        f"Bearer {ApiKey.new().reveal()}",
        f"Bearer {ApiKey(good.key_id, ApiKey.new().secret).reveal()}",
        f"Bearer {ended.reveal()}",
        f"Bearer {ApiKey(ended.key_id, ApiKey.new().secret).reveal()}",
    ]
    seen: set[tuple[object, ...]] = set()
    for header in headers:
        with pytest.raises(Unauthorized) as caught:
            await gate.authenticator.principal(header)
        seen.add((type(caught.value), str(caught.value), caught.value.__cause__, caught.value.__context__))
    assert seen == {(Unauthorized, "No valid key was given.", None, None)}
    assert await gate.admits(good)


async def test_an_unknown_key_is_compared_too(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same constant-time comparison for unknown, wrong and right keys: one each, over 32 bytes."""
    compared: list[tuple[int, int]] = []

    def watched(a: bytes, b: bytes) -> bool:
        compared.append((len(a), len(b)))
        return hmac.compare_digest(a, b)

    monkeypatch.setattr(module, "hmac", type("Watched", (), {"compare_digest": staticmethod(watched)}))
    known = gate.book.add("query")
    for key in (ApiKey.new(), ApiKey(known.key_id, ApiKey.new().secret), known, known):
        await gate.admits(key)
    assert compared == [(32, 32)] * 4
    assert len(gate.book.looked) == 3, "the last one was remembered"


async def test_a_revoked_key_stops_within_the_seconds_that_it_is_remembered(gate: Gate) -> None:
    """Just before it is still taken (so it was the memory that let it in); from then on it is not, however often it came."""
    key = gate.book.add("query")
    assert await gate.admits(key)
    gate.book.end(key)
    for _ in range(4):
        gate.clock.now += REMEMBER / 5
        assert await gate.admits(key)
    gate.clock.now += REMEMBER / 5
    assert not await gate.admits(key)
    assert not await gate.admits(key)


async def test_a_key_is_not_taken_beyond_its_own_end(gate: Gate) -> None:
    key = gate.book.add("query", seconds=REMEMBER / 2)
    assert await gate.admits(key)
    gate.book.end(key)
    gate.clock.now += REMEMBER / 2
    assert not await gate.admits(key)


async def test_a_revocation_during_the_look_is_not_missed_for_longer(gate: Gate) -> None:
    """The seconds count from before the look: the clock moves on while the database answers."""
    key = gate.book.add("query")

    class Slow(Book):
        async def find(self, key_id: str, deadline: Deadline) -> StoredKey | None:
            found = await super().find(key_id, deadline)
            gate.clock.now += REMEMBER
            return found

    slow = Slow(stored=gate.book.stored)
    authenticator = KeyAuthenticator(slow, gate.clock)
    await authenticator.principal(f"Bearer {key.reveal()}")
    slow.end(key)
    with pytest.raises(Unauthorized):
        await authenticator.principal(f"Bearer {key.reveal()}")


async def test_a_good_key_is_looked_up_once_in_a_while_and_noted_once_a_minute(gate: Gate) -> None:
    key = gate.book.add("query")
    start = gate.clock.now
    while gate.clock.now < start + NOTE_EVERY * 2:
        assert await gate.admits(key)
        gate.clock.now += REMEMBER / 10
    looks = NOTE_EVERY * 2 / REMEMBER
    assert looks * 0.8 <= len(gate.book.looked) <= looks * 1.2
    assert len(gate.book.noted) == 2


async def test_requests_at_the_same_time_note_the_use_once(gate: Gate) -> None:
    key = gate.book.add("query")
    assert await gate.admits(key)
    gate.clock.now += NOTE_EVERY
    async with anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(gate.admits, key)
    assert len(gate.book.noted) == 2


async def test_a_refused_key_is_neither_noted_nor_remembered(gate: Gate) -> None:
    """Nobody fills the memory with keys that do not exist."""
    for _ in range(50):
        assert not await gate.admits(ApiKey.new())
    assert gate.book.noted == []
    assert vars(gate.authenticator)["_known"] == {}


async def test_the_memory_is_bounded(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST >= 1000
    monkeypatch.setattr(module, "MOST", 3)
    keys = [gate.book.add("query") for _ in range(10)]
    for key in keys:
        assert await gate.admits(key)
    assert list(vars(gate.authenticator)["_known"]) == [key.key_id for key in keys[-3:]]


async def test_a_database_that_cannot_be_asked_lets_nobody_in_but_whom_it_knew_a_moment_ago(gate: Gate) -> None:
    """A look that fails is the database's error, not the key's; a note that fails is nobody's."""
    known, new = gate.book.add("query"), gate.book.add("query")
    assert await gate.admits(known)
    gate.book.broken = True
    assert await gate.admits(known)
    for key in (new, ApiKey.new()):
        with pytest.raises(StoreUnavailable):
            await gate.admits(key)
    gate.clock.now += REMEMBER
    with pytest.raises(StoreUnavailable):
        await gate.admits(known)
    gate.book.broken = False
    assert await gate.admits(known)
    gate.clock.now += NOTE_EVERY
    assert await gate.admits(known)


async def test_a_note_that_fails_is_no_refusal(gate: Gate) -> None:
    key = gate.book.add("query")
    assert await gate.admits(key)
    gate.clock.now += REMEMBER
    assert await gate.admits(key)
    gate.clock.now += NOTE_EVERY - REMEMBER * 1.5
    assert await gate.admits(key)
    gate.book.broken = True
    gate.clock.now += REMEMBER / 2
    assert await gate.admits(key), "it is remembered, and its note is due"
    assert len(gate.book.noted) == 2


def test_a_time_to_live_is_read_and_nonsense_refused() -> None:
    assert lifetime("") is None
    assert [lifetime(text) for text in ("30m", "12h", "90d", "2w")] == [1800.0, 43200.0, 7776000.0, 1209600.0]
    for text in ("0d", "90", "-1d", "1y", "d", "99999d", "1.5d", "999999999w"):
        with pytest.raises(typer.BadParameter):
            lifetime(text)
