"""The type of an offline entity, a function of its identity key alone, so that a carried title and a text agree."""

from __future__ import annotations

import re
from functools import lru_cache

from pipeline.ingest.lexicon import GIVEN_NAMES, LONG_PLACES, ORGANIZATION_CUES, PLACE_CUES, PLACES, words
from schemas.ids import identity_key

PERSON, ORGANIZATION, PLACE, DATE, NUMBER, TOPIC = "Person", "Organization", "Place", "Date", "Number", "Topic"

_MONTHS = (
    "january|february|march|april|may|june|july|august|september|october|november|december"
    "|jan|feb|mar|apr|aug|sept?|oct|nov|dec"
)
_DATE = re.compile(
    rf"(?:\d{{1,2}}(?:st|nd|rd|th)? )?(?:{_MONTHS})(?: \d{{1,2}}(?:st|nd|rd|th)?)?(?: \d{{4}})?"
    r"|(?:1\d|20)\d\d(?: \d\d(?:\d\d)?(?: \d\d)?)?"
    r"|(?:\d\d)?\d0s|\d{1,2}(?:st|nd|rd|th) century|\d{1,4} (?:bce?|ad|ce)|(?:mon|tues|wednes|thurs|fri|satur|sun)day"
    r"|\w+ (?:years?|months?|weeks?|days?|decades|centuries|hours|minutes)"
)
_NUMBER = re.compile(r"\d[\d ]*(?: ?[a-z]+\d?)?")
_CLEARLY_PLACES = words(
    "airport bay canyon city county creek island islands lake mount mountains peninsula river valley"
)
_HONORIFICS = words("mr mrs ms dr sir lord lady saint dame")


@lru_cache(maxsize=65_536)
def type_of(name: str) -> str:
    """Return `Person`, `Organization`, `Place`, `Date`, `Number` or, where nothing gives it away, `Topic`."""
    key = identity_key(name)
    if _DATE.fullmatch(key):
        return DATE
    if key[:1].isdigit() and _NUMBER.fullmatch(key):
        return NUMBER
    if key in PLACES or key in LONG_PLACES:
        return PLACE
    return _by_words(key.split())


def _by_words(words: list[str]) -> str:
    if len(words) < 2:
        return TOPIC
    head = words[words.index("of") - 1] if "of" in words[1:] else words[-1]
    if head in ORGANIZATION_CUES:
        return ORGANIZATION
    if head in PLACE_CUES or words[0] in _CLEARLY_PLACES:
        return PLACE
    if words[0] in _HONORIFICS or (words[0] in GIVEN_NAMES and len(words) <= 4 and "of" not in words):
        return PERSON
    return TOPIC
