"""What every keyword index must do. Inherit, and give `index`, `reference` and two distinct `corpora` as fixtures.

`reference` is an index whose answers are known to be right, filled with nothing. Chunks and their order are equal in all
indexes, scores within the relative tolerance `CLOSE`; answers of one index about one generation are equal bit for bit.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Mapping
from functools import partial
from typing import Protocol

import anyio

from pipeline.errors import NotFound
from pipeline.testing.cancelling import cancelled_at_each_await
from pipeline.testing.expecting import raises
from schemas.ids import CorpusId

K1, B = 1.2, 0.4
"""The parameters with which the index under test searches."""

CLOSE = 1e-12

Hits = list[tuple[int, float]]


class SearchableIndex(Protocol):
    """A keyword index whose generations are made by the suite."""

    async def publish(self, corpus: CorpusId, chunks: Mapping[int, str]) -> int:
        """Make the next generation of a corpus, with exactly these texts by chunk id; return its number."""
        ...

    async def search(
        self, corpus: CorpusId, generation: int, query: str, k: int, allowed: Collection[int] | None = None
    ) -> Hits:
        """Return (chunk id, score) of the `k` best that hold a term, best first, ties by chunk id.

        `allowed` restricts what is returned and leaves the statistics alone. Raises NotFound for an unknown generation.
        """
        ...


FRUIT = {30: "apple banana", 10: "apple apple cherry", 20: "date"}


def part(frequency: int, holders: int, chunks: int, length: int, average: float) -> float:
    """Return what one term adds to a chunk's score: equation 3.15 of Robertson and Zaragoza with the idf of Lucene."""
    idf = math.log(1 + (chunks - holders + 0.5) / (holders + 0.5))
    return idf * frequency / (frequency + K1 * (1 - B + B * length / average))


def alike(found: Hits, expected: Hits) -> None:
    """Assert that chunks and order are equal and scores close."""
    assert [chunk for chunk, _ in found] == [chunk for chunk, _ in expected], (found, expected)
    for (_, one), (_, two) in zip(found, expected, strict=True):
        assert math.isclose(one, two, rel_tol=CLOSE), (found, expected)


class KeywordContract:
    """The suite."""

    async def test_scores_are_those_of_the_formula(
        self, index: SearchableIndex, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """Worked out by hand for three chunks of 2, 3 and 1 terms."""
        made = await index.publish(corpora[0], FRUIT)
        apple = [(10, part(2, 2, 3, 3, 2.0)), (30, part(1, 2, 3, 2, 2.0))]
        alike(await index.search(corpora[0], made, "apple", 9), apple)
        both = [(30, part(1, 2, 3, 2, 2.0) + part(1, 1, 3, 2, 2.0)), (10, part(2, 2, 3, 3, 2.0))]
        alike(await index.search(corpora[0], made, "Apples, BANANAS", 9), both)
        alike(await index.search(corpora[0], made, "date", 9), [(20, part(1, 1, 3, 1, 2.0))])

    async def test_ties_are_in_the_order_of_chunk_ids(
        self, index: SearchableIndex, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """Also where `k` cuts through a tie, and for ids at both ends of their range."""
        ids = [2**63 - 1, 7, 2**40, 1, 99, 3]
        made = await index.publish(corpora[0], {**dict.fromkeys(ids, "same words"), 50: "words same words"})
        found = [chunk for chunk, _ in await index.search(corpora[0], made, "words", 9)]
        assert found == [50, *sorted(ids)]
        for k in range(1, 8):
            assert [chunk for chunk, _ in await index.search(corpora[0], made, "words", k)] == found[:k]

    async def test_k_bounds_the_answer(self, index: SearchableIndex, corpora: tuple[CorpusId, CorpusId]) -> None:
        """None of it at zero, all of it beyond; a smaller answer is the head of a larger one, bit for bit."""
        made = await index.publish(corpora[0], {n: "word " * n + "end" for n in range(1, 9)})
        whole = await index.search(corpora[0], made, "word end", 1000)
        assert len(whole) == 8
        for k in (0, 1, 7, 8, 9):
            assert await index.search(corpora[0], made, "word end", k) == whole[:k]

    async def test_only_allowed_chunks_are_returned_and_scores_stay(
        self, index: SearchableIndex, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """Ids that are not in the generation are ignored; an empty filter lets nothing through."""
        made = await index.publish(corpora[0], FRUIT)
        whole = await index.search(corpora[0], made, "apple date", 9)
        for allowed in ({10, 20}, {30}, {30, 31, 999}, {31}, set[int]()):
            found = await index.search(corpora[0], made, "apple date", 9, allowed)
            assert found == [hit for hit in whole if hit[0] in allowed]
        (best,) = await index.search(corpora[0], made, "apple date", 1, {20, 30})
        assert best == next(hit for hit in whole if hit[0] in {20, 30})

    async def test_a_query_without_terms_finds_nothing(
        self, index: SearchableIndex, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """Empty, blank, or nothing but signs."""
        made = await index.publish(corpora[0], {1: "!?", 2: "a word"})
        for query in ("", " \n\t", "!? … --", "_", "\u200b"):
            assert await index.search(corpora[0], made, query, 9) == []

    async def test_unknown_terms_add_nothing(self, index: SearchableIndex, corpora: tuple[CorpusId, CorpusId]) -> None:
        """Alone they find nothing, and beside others they change nothing."""
        made = await index.publish(corpora[0], FRUIT)
        assert await index.search(corpora[0], made, "zebra quagga", 9) == []
        known = await index.search(corpora[0], made, "apple", 9)
        assert await index.search(corpora[0], made, "zebra apple quagga", 9) == known

    async def test_a_term_given_twice_counts_twice(
        self, index: SearchableIndex, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """As it is in the formula, where the sum is over the query."""
        made = await index.publish(corpora[0], FRUIT)
        once = await index.search(corpora[0], made, "apple", 9)
        alike(await index.search(corpora[0], made, "apple apples APPLE", 9), [(c, 3 * score) for c, score in once])

    async def test_a_term_in_every_chunk_still_counts(
        self, index: SearchableIndex, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """Its idf is small and positive, so that every chunk is found."""
        made = await index.publish(corpora[0], {n: "every " + "filler " * n for n in range(1, 6)})
        average = sum(n + 1 for n in range(1, 6)) / 5
        expected = [(n, part(1, 5, 5, n + 1, average)) for n in range(1, 6)]
        alike(await index.search(corpora[0], made, "every", 9), expected)

    async def test_a_corpus_of_one_chunk(self, index: SearchableIndex, corpora: tuple[CorpusId, CorpusId]) -> None:
        """Its length is the average."""
        made = await index.publish(corpora[0], {5: "one two two"})
        alike(await index.search(corpora[0], made, "two", 9), [(5, part(2, 1, 1, 3, 3.0))])

    async def test_a_corpus_without_chunks_or_words(
        self, index: SearchableIndex, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """Nothing is found and nothing is divided by zero."""
        for chunks in ({}, {1: "…", 2: ""}, {}):
            made = await index.publish(corpora[0], chunks)
            assert await index.search(corpora[0], made, "word", 9) == []
            assert await index.search(corpora[0], made, "word", 9, {1}) == []

    async def test_a_very_long_text(self, index: SearchableIndex, corpora: tuple[CorpusId, CorpusId]) -> None:
        """Its length counts in full; more than 255 times the same term count as 255."""
        made = await index.publish(corpora[0], {1: "often " * 60_000 + "once", 2: "once often", 3: "other"})
        average = (60_001 + 2 + 1) / 3
        expected = [(2, part(1, 2, 3, 2, average)), (1, part(255, 2, 3, 60_001, average))]
        found = await index.search(corpora[0], made, "often", 9)
        alike(found, sorted(expected, key=lambda hit: -hit[1]))
        alike(await index.search(corpora[0], made, "once " + "nowhere " * 500, 1), [(2, part(1, 2, 3, 2, average))])

    async def test_words_of_other_scripts_are_found(
        self, index: SearchableIndex, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """Accents do not matter, scripts without spaces go by pairs, and identifiers by their parts."""
        texts = {1: "Zoë déjà-vu", 2: "東京都庁", 3: "HTTPServer add_event", 4: "данные", 5: "x" * 500}
        made = await index.publish(corpora[0], texts)
        queries = {"zoe": 1, "京都": 2, "server": 3, "ДАННЫЕ": 4, "x" * 400: 5}
        for query, chunk in queries.items():
            assert [found for found, _ in await index.search(corpora[0], made, query, 9)] == [chunk]

    async def test_a_generation_never_changes(self, index: SearchableIndex, corpora: tuple[CorpusId, CorpusId]) -> None:
        """Whatever is edited, added or removed afterwards, each number goes on answering as it did."""
        states = [FRUIT, {**FRUIT, 20: "apple"}, {30: "apple banana"}, {}, {**FRUIT, 40: "apple date"}]
        answers: dict[int, Hits] = {}
        for state in states:
            made = await index.publish(corpora[0], state)
            assert made not in answers
            answers[made] = await index.search(corpora[0], made, "apple date", 9)
            for number, answer in answers.items():
                assert await index.search(corpora[0], number, "apple date", 9) == answer
        assert [len(answer) for answer in answers.values()] == [3, 3, 1, 0, 4]

    async def test_the_way_to_a_generation_does_not_show(
        self, index: SearchableIndex, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """What was dead on the way is in no count: scores are those of the same chunks published at once."""
        last = {n: f"word{n % 3} shared " * (n % 4 + 1) for n in range(1, 30, 2)}
        noise = dict.fromkeys(range(1, 40), "word1 noise"), dict[int, str](), dict.fromkeys(range(1, 9), "shared noise")
        for state in noise:
            await index.publish(corpora[0], state)
        long_way = await index.publish(corpora[0], last)
        at_once = await index.publish(corpora[1], last)
        for query in ("shared", "word1 shared", "noise", "word0 word2"):
            found = await index.search(corpora[0], long_way, query, 99)
            assert found == await index.search(corpora[1], at_once, query, 99)

    async def test_corpora_are_apart(self, index: SearchableIndex, corpora: tuple[CorpusId, CorpusId]) -> None:
        """Another corpus with the same chunk ids and terms is neither found nor counted."""
        mine, other = corpora
        made = await index.publish(mine, FRUIT)
        before = await index.search(mine, made, "apple secret", 9)
        foreign = await index.publish(other, {10: "apple", 20: "apple secret", 77: "secret " * 9})
        assert await index.search(mine, made, "apple secret", 9) == before
        assert [chunk for chunk, _ in before] == [10, 30]
        assert await index.search(mine, made, "secret", 9, {20, 77}) == []
        assert [chunk for chunk, _ in await index.search(other, foreign, "secret", 9)] == [77, 20]

    async def test_what_was_not_published_is_not_found(
        self, index: SearchableIndex, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """Neither a number to come nor one that only the other corpus has."""
        mine, other = corpora
        await raises(NotFound, index.search(mine, 1, "apple", 9))
        made = await index.publish(mine, FRUIT)
        await raises(NotFound, index.search(mine, made + 1, "apple", 9))
        await raises(NotFound, index.search(other, made, "apple", 9))

    async def test_readers_and_writers_at_once(
        self, index: SearchableIndex, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """Readers of one number get one answer while both corpora move on."""
        made = await index.publish(corpora[0], FRUIT)
        expected = await index.search(corpora[0], made, "apple date", 9)
        answers: list[Hits] = []

        async def read() -> None:
            answers.extend([await index.search(corpora[0], made, "apple date", 9) for _ in range(5)])

        async def write(corpus: CorpusId) -> None:
            for turn in range(3):
                await index.publish(corpus, {turn: "apple date", 10: "apple"})

        async with anyio.create_task_group() as group:
            for corpus in corpora:
                group.start_soon(write, corpus)
            for _ in range(4):
                group.start_soon(read)
        assert answers == [expected] * 20

    async def test_a_search_may_be_left_at_any_await(
        self, index: SearchableIndex, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """The next one is as right as if there had been none."""
        await index.publish(corpora[0], {10: "apple"})
        made = await index.publish(corpora[0], FRUIT)
        found = await cancelled_at_each_await(partial(index.search, corpora[0], made, "apple", 9))
        alike(found, [(10, part(2, 2, 3, 3, 2.0)), (30, part(1, 2, 3, 2, 2.0))])

    async def test_a_publication_may_be_left_at_any_await(
        self, index: SearchableIndex, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """The generation before stays as it is, and the repeated publication holds what it was given, once."""
        first = await index.publish(corpora[0], {10: "apple", 11: "apple date"})
        before = await index.search(corpora[0], first, "apple date", 9)

        async def unchanged() -> None:
            assert await index.search(corpora[0], first, "apple date", 9) == before

        made = await cancelled_at_each_await(partial(index.publish, corpora[0], FRUIT), unchanged)
        await unchanged()
        assert made > first
        alike(
            await index.search(corpora[0], made, "apple", 9), [(10, part(2, 2, 3, 3, 2.0)), (30, part(1, 2, 3, 2, 2.0))]
        )

    async def test_generated_corpora_answer_like_the_reference(
        self, index: SearchableIndex, reference: SearchableIndex, corpora: tuple[CorpusId, CorpusId]
    ) -> None:
        """Eight generations of a corpus that grows, shrinks and is rewritten, thirty queries each."""
        dice = random.Random(19)
        words = [f"w{n}" for n in range(25)]
        state: dict[int, str] = {}
        for _ in range(8):
            for _ in range(15):
                state[dice.randrange(1, 60)] = " ".join(dice.choices(words, range(25, 0, -1), k=dice.randrange(12)))
            for chunk in dice.sample(sorted(state), len(state) // 4):
                del state[chunk]
            made, right = await index.publish(corpora[0], state), await reference.publish(corpora[0], state)
            for _ in range(30):
                query, k = " ".join(dice.choices([*words, "never"], k=dice.randrange(1, 5))), dice.choice((1, 5, 99))
                allowed = None if dice.random() < 0.5 else dice.sample(range(60), 30)
                found = await index.search(corpora[0], made, query, k, allowed)
                alike(found, await reference.search(corpora[0], right, query, k, allowed))
