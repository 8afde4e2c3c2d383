"""Offline entities: names, quoted titles, dates, amounts and identifiers, by their written form; no model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from pipeline.ingest.lexicon import COMMON_WORDS, FUNCTION_WORDS, ORGANIZATION_CUES, words

_UPPER = "".join(chr(c) for c in range(0x41, 0x530) if chr(c).isupper())
_LETTER = r"[^\W\d_]"
_MONTH = (
    r"(?:January|February|March|April|May|June|July|August|September|October|November|December"
    r"|(?:Jan|Feb|Mar|Apr|Aug|Sept?|Oct|Nov|Dec)\b\.?)"
)
_DAY = r"(?:[12]\d|3[01]|0?[1-9])(?:st|nd|rd|th)?"
_YEAR = r"(?:1\d{3}|20\d{2})"
_COUNT = r"(?:\d+|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|fifteen|twenty|thirty|forty|fifty)"
_SPAN_OF_TIME = rf"{_COUNT}[ ]?-?[ ]?(?:years?|months?|weeks?|days?|decades|centuries|hours|minutes)\b"
_DATE = rf"""
    {_DAY}[ ]{_MONTH}(?:[ ]?,?[ ]\d{{4}})?\b
  | {_YEAR}-\d\d-\d\d\b
  | (?:{_YEAR}|\d0)s\b
  | {_YEAR}(?:[-–/]\d\d(?:\d\d)?)?\b(?!,?\d|[ ]?%)
  | \d{{1,2}}(?:st|nd|rd|th)[ -]century\b
  | \d{{1,4}}[ ](?:BCE?|AD|CE)\b
  | {_SPAN_OF_TIME}"""
_DAY_NAME = rf"""
    {_MONTH}[ ]{_DAY}\b(?:[ ]?,?[ ]{_YEAR}\b)?
  | {_MONTH}[ ]?,?[ ]{_YEAR}\b
  | (?:January|February|April|June|July|August|September|October|November|December
      |(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day)\b(?![ ][{_UPPER}])"""
_UNIT = (
    r"(?:%|percent\b|per[ ]cent\b|million\b|billion\b|trillion\b|km²|[kcm]?m\b|(?:kilo)?met(?:re|er)s\b|miles?\b"
    r"|feet\b|ft\b|inch(?:es)?\b|acres\b|hectares\b|[km]?g\b|kilograms\b|tons\b|tonnes\b|pounds\b|dollars\b|euros\b"
    r"|[KMGT]i?B\b|[kM]?W\b|[kMG]?Hz\b|ms\b)"
)
_NUMBER = rf"""
    \d[\d,]*(?:\.\d+)?[ ]?{_UNIT}
  | \d{{1,3}}(?:,\d{{3}})+"""
_ABBREVIATION = (
    r"(?:St|Mt|Ft|Dr|Mr|Mrs|Ms|Jr|Sr|Ph\.?D|Inc|Ltd|Corp|Bros|Prof|Gen|Col|Lt|Sgt|Capt|Rev|Gov|Sen|Vol|No)\."
)
_WORD = rf"""(?:
    [{_UPPER}]\.(?:[ -]?[{_UPPER}]\.)*(?![^\W\d_])
  | {_ABBREVIATION}
  | [{_UPPER}](?:[^\W_]|['’](?=[{_UPPER}])|(?<={_LETTER})['’](?={_LETTER}{{2}})|[-–](?=[{_UPPER}\d])
      |&(?=[{_UPPER}]))*[+#]{{0,2}}
  | [a-z][a-z0-9]*(?:_\w*[^\W_]|[{_UPPER}]\w*))"""
_CONNECTOR = (
    r"(?:of(?:[ ]the)?|and(?:[ ]the)?|for(?:[ ]the)?|the|&|de(?:[ ]l[ao]s?)?|del|dell[ao]|d[aio]|dos|das|du|des"
    r"|van(?:[ ]de[nr]?)?|von|der|den|ter|zu|l[ae]|l[ao]s|el|al|bin|ibn|y|et|['’]s)"
)
_LINK = rf"(?:(?:['’]s)?[ ](?:{_CONNECTOR}[ ])?|[ ]?,[ ](?=(?:Inc|Ltd|Corp|LLC|Jr|Sr)\b))"
# At most 16 words, so that a text of capitals alone takes linear time.
_NAME = rf"""{_WORD}(?:{_LINK}{_WORD}|[ ]\d{{1,3}}(?:\.\d+)*\b(?![\d,]|[ ]?{_MONTH}|[ ]?%)){{0,15}}"""
_EVENT = rf"""
    \d{{1,3}}(?:st|nd|rd|th)[ ](?!Century){_NAME}
  | {_YEAR}(?:[-–]\d\d(?:\d\d)?)?[ ](?:{_WORD}[ ]){{0,5}}
    (?:Cup|Olympics?|Games|Championships?|Season|Elections?|Tour|League|Open|Series|Prix|Awards?|Tournament|Festival|Census|Act)\b"""
_TOKEN = rf"""(?<!\w)(?:
        (?=[{_UPPER}])(?:(?P<day>{_DAY_NAME})|(?P<name>{_NAME}))
      | (?=[a-z])(?:(?P<skip>https?://\S+|www\.\S+)|(?P<brand>{_NAME})|(?P<length>{_SPAN_OF_TIME}))
      | (?<![.,$€£¥])(?=\d)(?:(?P<event>{_EVENT})|(?P<date>{_DATE})|(?P<number>{_NUMBER}))
      | (?P<amount>[$€£¥]\d[\d,]*(?:\.\d+)?(?:[ ]?(?:million|billion|trillion)\b)?)
      | (?P<code>`[^`\n]{{1,60}}`)
      | (?P<quote>(?:["“«]|``)[ ]?(?=[{_UPPER}\d])[^"“”«»`\n]{{2,80}}?(?:["”»]|'')))"""
_SEAM = re.compile(r"['’]s (?!['’])| ['’]s | (?:and|for|of)(?: the)? | the ")
_HARD_WRAP = re.compile(r"\n(?<=[^\n]{50}\n)(?=\w)")
_SENTENCE_START = re.compile(r"(?:^|[.!?:;•|>*#\n\"“«]|\n[ \t]*(?:[-+]|\d+[.)]))[\"'“”‘’»)\]*_` \t]*\Z")
_OFFICES = words(
    "president king queen emperor minister secretary director chairman chairwoman mayor governor bishop archbishop "
    "professor head member chief ambassador general commander captain dean founder editor author ceo"
)
_BODIES = ORGANIZATION_CUES | words("center centre campaign award prize medal movement program programme")
_POSSESSED = words("choice cathedral church college day hospital school park island guild cup party championship army")

_FORMS_OF_ADDRESS = re.compile(
    r"(?:(?:(?:Vice |Prime )?(?:President|Minister)|Mrs?\.?|Ms\.?|Dr\.?|Sir|Senator|Governor|Chancellor|Premier"
    r"|Reverend|Professor|Colonel|Admiral|Secretary) )+(?=\w)(?!of |General|and |for )"
)
_NO_NAMES = _OFFICES | {"prime minister", "vice president", "inc.", "ltd.", "corp.", "jr.", "sr.", "no.", "vol."}
_LIKE_WORDS = frozenset({"US", "WHO", "IT"})

Span = tuple[int, int]


def unwrapped(text: str) -> str:
    """Return the text with the line breaks of wrapped paragraphs as spaces; every offset stays what it was."""
    return _HARD_WRAP.sub(" ", text)


@cache
def _tokens() -> re.Pattern[str]:
    """Return the pattern, compiled when it is needed: that takes longer than all imports of a query."""
    return re.compile(_TOKEN, re.VERBOSE)


def find_spans(text: str, start: int = 0, end: int | None = None) -> Iterator[Span]:
    """Yield where entities stand, in order, without overlap."""
    end = len(text) if end is None else end
    tokens = _tokens()
    while found := tokens.search(text, start, end):
        kind, begin, start = found.lastgroup, found.start(), found.end()
        if kind == "name":
            first = text[begin:start].split(" ", 1)[0]
            if first.lower() in FUNCTION_WORDS and first not in _LIKE_WORDS:
                start = begin + len(first)
            else:
                yield from _names(text, begin, start)
        elif kind == "event":
            yield from _names(text, begin, start)
        elif kind == "quote":
            yield from _quoted(text, begin, start)
        elif kind == "code":
            yield from _code(text, begin, start)
        elif kind != "skip":
            yield begin, start


def _names(text: str, start: int, end: int) -> Iterator[Span]:
    """Cut a run of capitalised words where a connector joins two names rather than parts of one."""
    if " " in text[start:end]:
        if address := _FORMS_OF_ADDRESS.match(text, start, end):
            start = address.end()
        for seam in _SEAM.finditer(text, start, end):
            if not _joins(text[start : seam.start()], seam.group().strip(), text[seam.end() : end]):
                yield from _name(text, start, seam.start())
                start = seam.end()
    yield from _name(text, start, end)


def _joins(left: str, connector: str, right: str) -> bool:
    """Whether the words left and right of a connector are parts of one name."""
    before = left.lower().split()
    if connector.startswith("of"):
        return before[-1] not in _OFFICES
    if connector.startswith("and"):
        return before[0] in _BODIES and ("of" in before or "for" in before)
    if connector.startswith("for"):
        return not _BODIES.isdisjoint(before)
    if connector == "the":
        return " " not in right
    return right.split(" ", 1)[0].lower() in _POSSESSED


def _name(text: str, start: int, end: int) -> Iterator[Span]:
    """Yield the span unless it is no name: an initial, an office, or a common word that only starts a sentence."""
    name = text[start:end]
    lower = name.lower()
    if len(name.rstrip(".")) == 1 or lower in _NO_NAMES:
        return
    common = lower in COMMON_WORDS or lower.removesuffix("s") in COMMON_WORDS
    if common and name not in _LIKE_WORDS and _SENTENCE_START.search(text, max(0, start - 12), start):
        return
    yield start, end


def _quoted(text: str, start: int, end: int) -> Iterator[Span]:
    """A quotation is a title if its long words are capitalised; else it is read like any other text."""
    opening, closing = (2 if text[start] == "`" else 1), (2 if text[end - 1] == "'" else 1)
    inner = text[start + opening : end - closing]
    title = inner.strip().rstrip(" ,.")
    telling = [word for word in title.split() if len(word) > 3 or word[0].isupper()]
    if len(title) > 1 and telling and len(telling) <= 10 and not any(word[0].islower() for word in telling):
        begin = text.index(title, start)
        yield begin, begin + len(title)
    else:
        yield from find_spans(text, start + opening, end - closing)


def _code(text: str, start: int, end: int) -> Iterator[Span]:
    """The inside of back-ticks, if it has a letter and is not padded."""
    inner = text[start + 1 : end - 1]
    if inner == inner.strip() and any(c.isalpha() for c in inner):
        yield start + 1, end - 1
