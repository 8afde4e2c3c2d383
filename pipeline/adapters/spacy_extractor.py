"""Extraction by any installed spaCy pipeline (extra `nlp`): its named entities, and relations along its dependency
parse.

A relation joins two entities by a verb whose subject and object they are ("Acme acquired Beta", "Beta was bought by
Acme", "Ada was born in London": ACQUIRE, BUY, BEAR_IN). A verb that is negated, modal, conditional or asked about
states nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol, TypeAlias, cast

import anyio
import anyio.to_thread

from pipeline.deadline import Deadline
from pipeline.errors import ConfigurationError, MissingExtra, SapwoodError
from schemas.graph import Extraction, Fact, Mention
from schemas.ids import identity_key

_SLICE = 16
_SUBJECTS, _PASSIVE_SUBJECTS = ("nsubj",), ("nsubjpass", "nsubj:pass")
_OBJECTS = ("dobj", "obj", "attr", "dative")
_UNCERTAIN = (
    "if",
    "whether",
    "unless",
    "would",
    "could",
    "might",
    "may",
    "should",
    "allegedly",
    "reportedly",
    "neither",
    "nor",
    "never",
)

Token: TypeAlias = Any
"""A spaCy token; the library has no usable types."""


class _Pipeline(Protocol):
    meta: dict[str, Any]

    def pipe(self, texts: Iterable[str], *, batch_size: int) -> Iterator[Any]: ...


class SpacyExtractor:
    """An `Extractor` over the installed pipeline of this name, e.g. `en_core_web_sm`; in a thread, 16 texts at a
    time.
    """

    paid = False

    def __init__(self, model: str, pipeline: _Pipeline) -> None:
        """Use a loaded pipeline; see `load`."""
        self._pipeline = pipeline
        self._turn = anyio.Lock()  # a pipeline's caches are not made for several threads
        version = import_module("spacy").__version__
        self.fingerprint = f"spacy-{version}/{model}-{pipeline.meta.get('version', '')}/1"

    @classmethod
    async def load(cls, model: str) -> SpacyExtractor:
        """Load a pipeline, in a thread.

        Raises:
            MissingExtra: spaCy is not installed.
            ConfigurationError: there is no such pipeline.
        """
        if not model.isidentifier():  # a package: never a path, of which anybody who may set settings could name one
            raise ConfigurationError("extraction.model: name an installed spaCy pipeline, e.g. en_core_web_sm.")
        return cls(model, await anyio.to_thread.run_sync(_load, model))

    async def extract(self, texts: Sequence[str], deadline: Deadline) -> list[Extraction | SapwoodError]:
        """Return what each text holds. Raises DeadlineExceeded."""
        found: list[Extraction | SapwoodError] = []
        async with self._turn:
            for at in range(0, len(texts), _SLICE):
                deadline.budget(1.0)
                found.extend(await anyio.to_thread.run_sync(self._read, texts[at : at + _SLICE]))
        return found

    def _read(self, texts: Sequence[str]) -> list[Extraction]:
        return [_extraction(parsed) for parsed in self._pipeline.pipe(texts, batch_size=_SLICE)]


def _load(model: str) -> _Pipeline:
    if find_spec("spacy") is None:
        raise MissingExtra("extraction.provider: `spacy` needs `pip install sapwood[nlp]`.")
    try:
        if find_spec(model) is not None:
            # Also finds pipelines whose package is not registered under its own name.
            return cast("Callable[[], _Pipeline]", import_module(model).load)()
        return cast("Callable[[str], _Pipeline]", import_module("spacy").load)(model)
    except (OSError, ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(f"extraction.model: {model!r} is no installed spaCy pipeline.") from error


def _extraction(parsed: Any) -> Extraction:
    mentions: dict[tuple[str, str], Mention] = {}
    for entity in parsed.ents:
        name = entity.text
        if identity_key(name):
            mentions.setdefault((name, entity.label_), Mention(name, entity.label_, entity.start_char, entity.end_char))
    facts = (
        dict.fromkeys(fact for sentence in parsed.sents for fact in _facts(sentence))
        if parsed.has_annotation("DEP")
        else {}
    )
    return Extraction(tuple(mentions.values()), tuple(facts))


def _facts(sentence: Any) -> Iterator[Fact]:
    entities = {token.i: entity for entity in sentence.ents for token in entity if identity_key(entity.text)}
    if len({entity.start for entity in entities.values()}) < 2 or sentence.text.rstrip().endswith("?"):
        return
    for verb in sentence:
        if verb.pos_ in ("VERB", "AUX") and _asserted(verb):
            yield from _of_verb(verb, entities)


def _of_verb(verb: Token, entities: dict[int, Any]) -> Iterator[Fact]:
    active = [token for token in verb.children if token.dep_ in _SUBJECTS]
    passive = [token for token in verb.children if token.dep_ in _PASSIVE_SUBJECTS]
    for subject in _entities(active or passive, entities):
        for relation, target in _targets(verb, entities):
            if passive and relation.endswith("_BY"):
                yield from _fact(target, relation.removesuffix("_BY"), subject)
            else:
                yield from _fact(subject, relation, target)


def _targets(verb: Token, entities: dict[int, Any]) -> Iterator[tuple[str, Any]]:
    """Yield what the verb acts on, directly, by a preposition, or by a noun with one ("is the capital of")."""
    lemma = verb.lemma_.upper()
    for child in verb.children:
        if child.dep_ in _OBJECTS:
            for target in _entities([child], entities):
                yield lemma, target
            if child.i not in entities and child.dep_ == "attr":
                for of in (token for token in child.children if token.lower_ == "of"):
                    yield from ((f"{child.lemma_.upper()}_OF", target) for target in _entities(of.children, entities))
        elif child.dep_ in ("prep", "agent"):
            yield from ((f"{lemma}_{child.lower_.upper()}", target) for target in _entities(child.children, entities))


def _entities(tokens: Iterable[Token], entities: dict[int, Any]) -> Iterator[Any]:
    """Yield the entities whose head is one of these tokens, or is joined to one by "and"."""
    for token in tokens:
        if token.i in entities:
            yield entities[token.i]
        yield from _entities((child for child in token.children if child.dep_ == "conj"), entities)


def _fact(subject: Any, relation: str, target: Any) -> Iterator[Fact]:
    start, end = min(subject.start_char, target.start_char), max(subject.end_char, target.end_char)
    if identity_key(subject.text) != identity_key(target.text):
        yield Fact(subject.text, subject.label_, relation, target.text, target.label_, 1.0, start, end)


def _asserted(verb: Token) -> bool:
    """Whether neither the verb nor one that it depends on is negated, modal or conditional."""
    chain = [verb, *(token for token in verb.ancestors if token.pos_ in ("VERB", "AUX"))]
    return not any(
        child.dep_ == "neg" or child.lower_ in _UNCERTAIN or child.tag_ == "MD"
        for one in chain
        for child in one.children
    )
