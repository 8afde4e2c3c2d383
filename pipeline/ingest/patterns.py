"""Offline relations: only what the words between two names state outright, never their mere neighbourhood.

Two names that follow each other are related when the whole text between them is one of three forms: a verb ("X
founded Y", "Y was founded by X", "X was born in Y"), a noun ("X is the capital of Y", "X, the capital of Y", "Y's
capital X"), or another name in brackets ("World Health Organization (WHO)"). A clause that is negated, hypothetical,
hearsay or a question states nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pipeline.ingest.entity_types import DATE, NUMBER, PERSON, PLACE, type_of
from pipeline.ingest.lexicon import FUNCTION_WORDS
from pipeline.ingest.relation_words import (
    ACTIVE,
    BY_PLACE_OR_DATE,
    PARTICIPLES,
    PASSIVE,
    RETRACTIONS,
    ROLES,
    SITES,
    STOP,
    VAGUE,
    WITH_PREPOSITION,
)
from schemas.ids import identity_key

MAX_GAP = 90
"""Characters between two names beyond which no form is looked for."""

_CLOSE, _OPEN = r"[\"”»'’`*]{0,3}", r"[\"“«'‘`(*]{0,3}"
_BE = r"(?:is|was|are|were|been|being|became|remains)"
_REST = r"(?P<rest>(?:(?:the|a|an|his|her|its|their|both|fellow|its own|[a-z-]+) ){0,3})"
_VERB = re.compile(
    rf"{_CLOSE}(?P<comma>,?) (?:(?:who|which|that) )?(?P<kind>(?:is|was|are|were) (?:a|an|the) (?:[a-z-]+ ){{1,4}}?)?"
    rf"(?P<aux>(?:(?:{_BE}|has|have|had|also|later|then|soon|first|now|once|[a-z]+ly) )*)"
    r"(?P<verb>[a-z]+(?:-[a-z]+)?) "
    r"(?:(?P<preposition>by|up in|up by|in|on|at|near|to|for|with|into|from|of|after|as|upon|through|within) )?"
    rf"{_REST}{_OPEN}"
)
_NOUN = re.compile(
    rf"{_CLOSE}(?P<link>,|,? (?:(?:who|which|that) )?(?:(?:has|had) )?{_BE}(?: (?:the first|also|now|currently))?"
    r"|,? (?:served|serves|worked) as)"
    rf"(?P<words>(?: [a-z][a-z-]*){{1,5}}) (?P<preposition>of|in|to) (?:the )?{_OPEN}"
)
_POSSESSIVE = re.compile(rf"['’]s (?:[a-z]+ )?(?P<noun>[a-z-]+),? {_OPEN}")
_PASSIVE = re.compile(rf"\b{_BE}\b")
_BREAK = re.compile(r"[.;:?!()]|\n\s*\n")
_RELATIVE = re.compile(r"who|which|that")
_ONWARD = re.compile(r",? (?:in|on|at) (?:the )?")
_ASIDE = re.compile(r" \([^()]{0,120}\)")
_BOUNDARY = re.compile(r"(?<!\b[A-Z])(?<!Mr)(?<!Dr)(?<!St)(?<!Mrs)(?<!Inc)(?<!Ltd)[.!?][\"”')\]]*\s|\n\s*\n|;")
_TURN = re.compile(r",? (?:but|although|though|while|whereas|however)\b")
_RETRACTED = re.compile(RETRACTIONS, re.IGNORECASE)
_PREPOSITION = r"\b(?:of|in|at|for|from|with|by|on|to|near|into|than|about|between|through|under|after|like|as)"
_AFTER_PREPOSITION = re.compile(
    rf"(?:{_PREPOSITION}(?: the| an?)?|\bby(?: [A-Za-z-]+){{1,3}}|,|\band(?: the)?) [\"“`]?\Z", re.IGNORECASE
)
_IN_PHRASE = re.compile(rf"{_PREPOSITION}(?: (?:the|an?)(?: [A-Za-z-]+){{0,3}}| [a-z]+)? [\"“`]?\Z", re.IGNORECASE)
_DEEP_IN_PHRASE = re.compile(rf"{_PREPOSITION}(?: [A-Za-z-]+){{0,4}} [\"“`]?\Z", re.IGNORECASE)
_NAMED_BY_OF = re.compile(
    r"\b(?:city|town|village|state|kingdom|island|county|university|republic|province) of (?:the )?\Z"
)
_LISTED = re.compile(r"(,?) (and )?(?:the )?")
_AFTER_LIST = re.compile(r"[\"”`]?(?:[.,;:)]|\s*\Z|\s(?:in|on|for|from|at|as|with|to|by)\b)")
_HEAD_FOLLOWS = re.compile(r"['’]s?\b|-\w| (?P<word>[a-z]+)\b")
_END_OF_APPOSITION = re.compile(r"[\"”`*]?\s?(?:[.,;:)–—]|\Z|\n)")
_ARTICLES = frozenset({"the", "a", "an"})

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Statement:
    """A relation between two spans of a text, with the span of its evidence."""

    subject: Span
    type: str
    object: Span
    evidence: Span


def find_statements(text: str, spans: Sequence[Span]) -> list[Statement]:
    """Return the relations stated between these names (spans in order, without overlap), in order of appearance."""
    found: list[Statement] = []
    for left in range(len(spans) - 1):
        for right in _candidates(text, spans, left):
            found.extend(_between(text, spans, left, right))
    return [one for one in found if _holds(text, one)] if found else found


def _candidates(text: str, spans: Sequence[Span], left: int) -> Iterator[int]:
    """Yield the next name, and the first name behind an aside in brackets."""
    end = spans[left][1]
    if spans[left + 1][0] - end <= MAX_GAP:
        yield left + 1
    if aside := _ASIDE.match(text, end):
        right = next((i for i in range(left + 1, len(spans)) if spans[i][0] >= aside.end()), None)
        if right is not None and right > left + 1 and spans[right][0] - aside.end() <= MAX_GAP:
            yield right


def _between(text: str, spans: Sequence[Span], left: int, right: int) -> Iterator[Statement]:
    start, end = spans[left][1], spans[right][0]
    if aside := _ASIDE.match(text, start, end):
        start = aside.end()
    gap = text[start:end]
    if gap.endswith("("):
        yield from _alias(text, spans[left], spans[right])
    elif len(gap) < 5 or _BREAK.search(gap):
        return
    elif found := _POSSESSIVE.fullmatch(gap):
        yield from _possessive(spans[left], spans[right], found["noun"])
    else:
        stated = list(_verb(text, spans, left, right, found)) if (found := _VERB.fullmatch(gap)) else []
        yield from stated
        if not stated and (found := _NOUN.fullmatch(gap)):
            yield from _noun(text, spans[left], spans[right], found)


def _verb(text: str, spans: Sequence[Span], left: int, right: int, found: re.Match[str]) -> Iterator[Statement]:
    passive = bool(found["kind"] or _PASSIVE.search(found["aux"]))
    read = _reading(found["verb"], found["preposition"] or "", passive)
    words = found["rest"].split() + (found["kind"] or "").split()[1:]
    if read is None or not STOP.isdisjoint(words) or _attached(text, spans[left][0], found, passive):
        return
    relation, reverse = read
    for other in [right, *_listed(text, spans, right)]:
        yield from _fit(text, spans[left], relation, spans[other], reverse, bool(found["preposition"]))
    if found["preposition"] and not reverse and relation in BY_PLACE_OR_DATE and right + 1 < len(spans):
        onward = text[spans[right][1] : spans[right + 1][0]]
        if _ONWARD.fullmatch(onward) and _dated(text, spans[right]) != _dated(text, spans[right + 1]):
            yield from _fit(text, spans[left], relation, spans[right + 1], False, True)


def _reading(verb: str, preposition: str, passive: bool) -> tuple[str, bool] | None:
    """Return the relation a verb states and whether its subject stands behind it."""
    reverse = preposition in ("by", "up by")
    if reverse:
        relation = PASSIVE.get(verb)
    elif preposition:
        relation = WITH_PREPOSITION.get((verb, preposition))
    else:
        relation = None if passive else ACTIVE.get(verb)
    return (relation, reverse) if relation else None


def _attached(text: str, start: int, found: re.Match[str], passive: bool) -> bool:
    """Whether the name at `start` is probably not the subject: "the head of *Acme* founded", "from Paris, *Texas*,
    formed in".
    """
    reduced = bool(found["preposition"]) and not passive and found["verb"] in PARTICIPLES
    before = text[max(0, start - 60) : start]
    if bool(found["comma"]) and before.endswith(", "):
        return True
    if not reduced:
        return _inside_phrase(before)
    return bool(_AFTER_PREPOSITION.search(before) or (found["comma"] and _DEEP_IN_PHRASE.search(before)))


def _fit(
    text: str, subject: Span, relation: str, target: Span, reverse: bool, preposition: bool
) -> Iterator[Statement]:
    """Give the relation its direction and, for those of place or time, its ending; refuse a date where none belongs."""
    dated = _dated(text, target)
    if preposition and not reverse and relation in BY_PLACE_OR_DATE:
        relation += "_ON" if dated else "_IN"
    elif dated:
        return
    evidence = (subject[0], target[1])
    yield Statement(target, relation, subject, evidence) if reverse else Statement(subject, relation, target, evidence)


def _dated(text: str, span: Span) -> bool:
    return type_of(text[slice(*span)]) in (DATE, NUMBER)


def _listed(text: str, spans: Sequence[Span], last: int) -> list[int]:
    """Return the names that follow in "Y, Z and W", if the enumeration is closed by "and" and no new clause begins
    there.
    """
    found: list[int] = []
    for at in range(last + 1, len(spans)):
        link = _LISTED.fullmatch(text, spans[at - 1][1], spans[at][0])
        if link is None or not (link[1] or link[2]):
            return []
        found.append(at)
        if link[2]:
            return found if _AFTER_LIST.match(text, spans[at][1]) else []
    return []


def _noun(text: str, left: Span, right: Span, found: re.Match[str]) -> Iterator[Statement]:
    words, preposition, apposed = found["words"].split(), found["preposition"], found["link"] == ","
    noun = words[-1]
    if not STOP.isdisjoint(words) or noun in VAGUE or len(noun) < 3 or sum(word in _ARTICLES for word in words) > 1:
        return
    first = next((word for word in words if not word.endswith("ly")), noun)
    if first not in _ARTICLES and first not in ROLES and not found["link"].endswith("as"):
        return
    if apposed and (
        noun.endswith("s")
        or not _END_OF_APPOSITION.match(text, right[1])
        or text[: left[0]].rstrip()[-3:] in ("In", "At", "On")
    ):
        return
    before = text[max(0, left[0] - 60) : left[0]]
    if not apposed and (_inside_phrase(before) or (_RELATIVE.search(found["link"]) and before.endswith(", "))):
        return
    if relation := _noun_relation(noun, preposition):
        yield Statement(left, relation, right, (left[0], right[1]))


def _noun_relation(noun: str, preposition: str) -> str | None:
    if preposition == "in":
        return "LOCATED_IN" if noun in SITES else None
    if preposition == "to":
        return f"{noun.upper()}_TO" if noun in ("successor", "heir", "sequel", "prequel", "alternative") else None
    singular = noun[:-1] if noun.endswith("s") and not noun.endswith(("ss", "us", "is", "headquarters")) else noun
    return singular.upper().replace("-", "_") + "_OF"


def _possessive(left: Span, right: Span, noun: str) -> Iterator[Statement]:
    if noun in ROLES:
        yield Statement(right, f"{noun.upper().replace('-', '_')}_OF", left, (left[0], right[1]))


def _alias(text: str, left: Span, right: Span) -> Iterator[Statement]:
    """`World Health Organization (WHO)`: the letters of the one are the initials of the other."""
    name, short = text[slice(*left)], text[slice(*right)]
    initials = "".join(word[0] for word in re.split(r"[\s-]+", name) if word[:1].isupper())
    if len(short) > 1 and short.replace(".", "") == initials and text[right[1] : right[1] + 1] == ")":
        yield Statement(left, "ALSO_KNOWN_AS", right, (left[0], right[1]))


def _inside_phrase(before: str) -> bool:
    """Whether a name after this text stands in a prepositional phrase ("the head of …"), so that another word is the
    subject.
    """
    return bool(_IN_PHRASE.search(before)) and not _NAMED_BY_OF.search(before)


def _holds(text: str, one: Statement) -> bool:
    """Whether the clause asserts it, of two different names, whole ones."""
    subject, target = text[slice(*one.subject)], text[slice(*one.object)]
    if identity_key(subject) == identity_key(target) or _dated(text, one.subject):
        return False
    if type_of(subject) == PLACE and type_of(target) == PERSON and one.type.endswith("_OF"):
        return False
    if (after := _HEAD_FOLLOWS.match(text, one.evidence[1])) and not _goes_on(after["word"]):
        return False
    return not _RETRACTED.search(_clause(text, one.evidence))


def _goes_on(word: str | None) -> bool:
    """Whether a word after a name belongs to the sentence rather than to the name ("in 1990", not "the Beta
    *shares*").
    """
    return word is not None and (word in FUNCTION_WORDS or word in STOP or word.endswith(("ly", "ing", "ed")))


def _clause(text: str, evidence: Span) -> str:
    """Return the sentence around the evidence, without the parts beyond a "but" or its like."""
    start, end = 0, len(text)
    for boundary in _BOUNDARY.finditer(text):
        if boundary.end() <= evidence[0]:
            start = boundary.end()
        elif boundary.start() >= evidence[1]:
            end = boundary.end()
            break
    for turn in _TURN.finditer(text, start, end):
        if turn.end() <= evidence[0]:
            start = turn.end()
        elif turn.start() >= evidence[1]:
            end = turn.start()
            break
    return text[start:end]
