"""Offline extraction: what is an entity, what is a stated relation, and what is not."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pipeline.deadline import Deadline
from pipeline.ingest.entity_types import type_of
from pipeline.ingest.offline import OfflineExtractor, carried, extract
from schemas.graph import Extraction, MentionOrigin
from schemas.ids import identity_key


def names(text: str) -> list[str]:
    return [mention.name for mention in extract(text).mentions]


def facts(text: str) -> list[tuple[str, str, str]]:
    return [(fact.subject, fact.type, fact.object) for fact in extract(text).facts]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The University of Oxford lies in England.", ["University of Oxford", "England"]),
        ("It was painted by Vincent van Gogh.", ["Vincent van Gogh"]),
        ("However, nothing happened. Maybe later.", []),
        ("Yesterday Ludwig van Beethoven met J. S. Bach.", ["Ludwig van Beethoven", "J. S. Bach"]),
        ("She wrote “The Left Hand of Darkness” in 1969.", ["The Left Hand of Darkness", "1969"]),
        ("He said “Nothing that I know of”.", []),
        ("On 11 September 1911, and again in March 1912, 20 km away.", ["11 September 1911", "March 1912", "20 km"]),
        ("Call `make_order` or `HttpClient`, or use my_helper.", ["make_order", "HttpClient", "my_helper"]),
        ("The 2016 Summer Olympics and the 7th Infantry Division.", ["2016 Summer Olympics", "7th Infantry Division"]),
        ("President Chester A. Arthur spoke.", ["Chester A. Arthur"]),
        ("The US and the WHO agreed; it told us.", ["US", "WHO"]),
        ("Microsoft's Azure and O'Brien's AT&T shares.", ["Microsoft", "Azure", "O'Brien", "AT&T"]),
        ("See https://Example.org/Some/Path for more.", []),
        ("Jobs at the Department of Health and Human Services.", ["Department of Health and Human Services"]),
        ("東京 is Tōkyō.", ["Tōkyō"]),
        ("", []),
    ],
)
def test_names_are_found_whole(text: str, expected: list[str]) -> None:
    """A name has its connectors and initials, and nothing that merely starts a sentence."""
    assert names(text) == expected


def test_a_name_across_a_wrapped_line_is_one_name() -> None:
    """Its line break becomes a space and it has no place; a short line is a line of its own."""
    wrapped = "This paragraph was wrapped by an editor in the middle of New\nYork, which is a city."
    mention = next(one for one in extract(wrapped).mentions if one.name == "New York")
    assert (mention.start, mention.end) == (-1, -1)
    assert names("Los\nAngeles") == ["Los", "Angeles"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Acme acquired Beta.", ("Acme", "ACQUIRED", "Beta")),
        ("Beta was acquired by Acme in 1999.", ("Acme", "ACQUIRED", "Beta")),
        ("Beta, which was later acquired by Acme, is gone.", ("Acme", "ACQUIRED", "Beta")),
        ("Jane Doe, born in Oslo, is a writer.", ("Jane Doe", "BORN_IN", "Oslo")),
        ("Paris is the capital of France.", ("Paris", "CAPITAL_OF", "France")),
        ("Oslo, the capital of Norway, is cold.", ("Oslo", "CAPITAL_OF", "Norway")),
        ("Norway's capital Oslo is cold.", ("Oslo", "CAPITAL_OF", "Norway")),
        ("Inception is a film directed by Christopher Nolan.", ("Christopher Nolan", "DIRECTED", "Inception")),
        ("Le Guin wrote the novel “The Dispossessed”.", ("Le Guin", "WROTE", "The Dispossessed")),
        ("The World Health Organization (WHO) met.", ("World Health Organization", "ALSO_KNOWN_AS", "WHO")),
        ("`OrderService` depends on `PostgreSQL`.", ("OrderService", "DEPENDS_ON", "PostgreSQL")),
        ("In May 1999 Acme acquired Beta.", ("Acme", "ACQUIRED", "Beta")),
    ],
)
def test_a_stated_relation_is_found(text: str, expected: tuple[str, str, str]) -> None:
    """Active, passive and relative verbs, nouns, appositions and abbreviations, in the right direction."""
    assert facts(text) == [expected]


def test_an_enumeration_gives_one_relation_for_each_object() -> None:
    """But only if it ends in "and", and no clause of its own begins with its last name."""
    assert [target for _, _, target in facts("Sapwood uses PostgreSQL, Valkey and Neo4j.")] == [
        "PostgreSQL",
        "Valkey",
        "Neo4j",
    ]
    assert facts("Acme acquired Beta and Gamma acquired Delta.") == [
        ("Acme", "ACQUIRED", "Beta"),
        ("Gamma", "ACQUIRED", "Delta"),
    ]


def test_place_and_date_of_one_event_are_two_relations() -> None:
    """ "Born in London on 10 December 1815" says both."""
    text = "Ada Lovelace was born in London on 10 December 1815."
    assert facts(text) == [("Ada Lovelace", "BORN_IN", "London"), ("Ada Lovelace", "BORN_ON", "10 December 1815")]


@pytest.mark.parametrize(
    "text",
    [
        "Acme did not acquire Beta.",
        "Acme didn't acquire Beta.",
        "Acme never acquired Beta.",
        "Acme hardly acquired Beta.",
        "Neither Acme nor Delta acquired Beta.",
        "Nobody says that Acme acquired Beta.",
        "If Acme acquired Beta, shares would rise.",
        "Had Acme acquired Beta, shares would have risen.",
        "Acme would have acquired Beta.",
        "Acme may have acquired Beta.",
        "Acme will acquire Beta.",
        "Acme allegedly acquired Beta.",
        "Acme denied that it acquired Beta.",
        "The claim that Acme acquired Beta was disproved.",
        "It is false that Acme acquired Beta.",
        "Has Acme acquired Beta?",
        "Acme, not Delta, acquired Beta.",
        "Acme acquired neither Beta nor Gamma.",
        "Acme failed to acquire Beta.",
        "Acme is not the owner of Beta.",
        "Acme is no longer a member of Beta.",
        "Acme stopped using Beta.",
    ],
)
def test_what_is_not_asserted_is_no_relation(text: str) -> None:
    """Negation, hearsay, condition, future and question state nothing; the names are still found."""
    assert facts(text) == []
    assert "Acme" in names(text) and "Beta" in names(text)


def test_a_negated_clause_does_not_silence_the_other() -> None:
    """The part before "but" stands, and so does the next sentence."""
    assert facts("Acme acquired Beta but did not acquire Gamma.") == [("Acme", "ACQUIRED", "Beta")]
    assert facts("Acme did not acquire Beta. Gamma founded Delta.") == [("Gamma", "FOUNDED", "Delta")]


@pytest.mark.parametrize(
    "text",
    [
        "Acme and Beta met in Oslo.",
        "Acme, Beta.",
        "The CEO of Acme founded Beta.",
        "From Paris, Texas, formed in 1990.",
    ],
)
def test_neighbourhood_is_no_relation(text: str) -> None:
    """Names side by side, or a name inside another phrase, are not subject and object."""
    assert facts(text) == []


@given(st.text(alphabet=st.sampled_from("AB cd.,'\"`()\n-0129_éß東 isofthebyandfounded"), max_size=200))
def test_every_place_is_the_name_and_every_end_a_mention(text: str) -> None:
    """Offsets hold, both ends of a fact are mentions, and the same text gives the same result."""
    found = extract(text)
    known = {(one.name, one.type) for one in found.mentions}
    assert len(known) == len(found.mentions)
    for one in found.mentions:
        assert one.start == one.end == -1 or text[one.start : one.end] == one.name
    for fact in found.facts:
        assert {(fact.subject, fact.subject_type), (fact.object, fact.object_type)} <= known
        assert 0 <= fact.start < fact.end <= len(text)
    assert extract(text) == found


@given(st.text(min_size=1, max_size=40))
def test_a_type_follows_from_the_identity_key(name: str) -> None:
    """Two spellings of one name never differ in type, so they can not become two entities."""
    other = f" {name.upper()} "
    assume(identity_key(other) == identity_key(name))  # not so for `ß`, whose capital is `SS`
    assert type_of(name) == type_of(identity_key(name)) == type_of(other)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Ada Lovelace", "Person"),
        ("University of Oxford", "Organization"),
        ("Acme Corp.", "Organization"),
        ("Lake Geneva", "Place"),
        ("the United States", "Place"),
        ("11 September 1911", "Date"),
        ("1990s", "Date"),
        ("20 km", "Number"),
        ("Apple", "Topic"),
    ],
)
def test_types(name: str, expected: str) -> None:
    """Small lists of cues decide; what nothing gives away is a topic."""
    assert type_of(name) == expected


def test_title_and_headings_are_carried_once() -> None:
    """The title wins over an equal heading; nothing empty is carried."""
    found = carried("Lake Geneva", ["Lake Geneva", "History", " "])
    assert [(one.name, one.type, one.origin) for one in found] == [
        ("Lake Geneva", "Place", MentionOrigin.TITLE),
        ("History", "Topic", MentionOrigin.HEADING),
    ]


async def test_the_extractor_gives_one_extraction_for_each_text() -> None:
    """In order, over more texts than one slice holds."""
    texts = [f"Acme{n} acquired Beta{n}." for n in range(200)]
    found = await OfflineExtractor().extract(texts, Deadline.after(60))
    assert found == [extract(text) for text in texts] and isinstance(found[0], Extraction)


def test_a_hostile_text_takes_linear_time() -> None:
    """Long runs of what starts a pattern do not make the expressions backtrack without bound."""
    for piece in ("A", "A ", "A.", "Ab of ", "a_", "1,", '"A', "`", "(", "is a b ", "Acme founded ", "'s ", "\n"):
        extract(piece * 5_000)
