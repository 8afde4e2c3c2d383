"""Settings on the command line: every mistake is named."""

from __future__ import annotations

import pytest

from pipeline.errors import ConfigurationError
from schemas.settings import CorpusSettings, recipe
from worker.changes import apply_changes


def test_values_are_json_or_else_text() -> None:
    changed = apply_changes(
        CorpusSettings(),
        ["chunk.max_chars=500", "embedding.provider=wordllama", 'extraction.entity_types=["Person"]'],
    )
    assert changed.chunk.max_chars == 500
    assert changed.embedding.provider == "wordllama"
    assert changed.extraction.entity_types == ("Person",)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("chunk.overlap=1200", "overlap"),
        ("chunk.max_chars=0", "chunk.max_chars"),
        ("chunk.nonsense=1", "chunk.nonsense.*chunk has max_chars"),
        ("chunk.max_char=1", r"did you mean chunk\.max_chars\?"),
        ("read_as.x=1", "section.field=value"),
        ("graph_search.max_hops=6", "graph_search.max_hops"),
        ("graph_search.max_related_entities_per_seed=0", "graph_search.max_related_entities_per_seed"),
        ("graph_search.chunk_neighbor_window=11", "graph_search.chunk_neighbor_window"),
        ("keyword.b=2", "keyword.b"),
        ("nonsense.x=1", "section.field=value"),
        ("chunk=1", "section.field=value"),
        ("chunk.max_chars", "section.field=value"),
    ],
)
def test_a_bad_setting_is_named(change: str, named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        apply_changes(CorpusSettings(), [change])


def test_the_recipe_follows_what_decides_the_rows_and_nothing_else() -> None:
    plain = CorpusSettings()
    assert recipe(plain, "a") == recipe(CorpusSettings(), "a")
    assert recipe(plain, "a") != recipe(plain, "b")
    assert recipe(plain) != recipe(apply_changes(plain, ["chunk.max_chars=500"]))
    assert recipe(plain) == recipe(apply_changes(plain, ["fusion.rrf_k=10", "retention.generations=5"]))
