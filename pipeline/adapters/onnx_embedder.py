"""Sentence embeddings by an ONNX model out of a folder of yours (extra `onnx`): `model.onnx` and `tokenizer.json`.

Any transformer will do whose output is one vector for each token, as the exports of sentence-transformers; a text's vector
is the mean of those of its tokens. Nothing is downloaded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import anyio
import anyio.to_thread
import numpy as np
from numpy.typing import NDArray

from pipeline.deadline import Deadline
from pipeline.errors import ConfigurationError, EmbeddingError, MissingExtra
from pipeline.ingest.embed import Rows

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

MODEL, TOKENIZER = "model.onnx", "tokenizer.json"

MAX_TOKENS = 256
"""Tokens of a text that are read: a chunk of 1,200 characters has about 300, and attention costs their square."""

THREADS = 2
"""Processor threads of one model, however many callers it has."""

_SLICE = 16
_INPUTS = frozenset({"input_ids", "attention_mask", "token_type_ids"})
_ENDS = 1 << 20

Tensor = NDArray[np.float32]


class _Session(Protocol):
    def get_inputs(self) -> Sequence[Any]: ...
    def get_outputs(self) -> Sequence[Any]: ...
    def run(self, names: None, feed: dict[str, NDArray[np.int64]]) -> Sequence[Any]: ...


class OnnxEmbedder:
    """An `EmbeddingProvider`. The model is read at the first call; calls run in a thread, one after the other, in slices of
    16 texts of like length.

    The fingerprint follows from the files, not from where they lie: the tokenizer, and of the model its size and the first
    and last MiB.
    """

    paid = False

    def __init__(self, folder: Path) -> None:
        """Look at the files; reads from disk, so not in the event loop.

        Raises:
            MissingExtra: onnxruntime or tokenizers is not installed.
            ConfigurationError: the folder or one of the two files cannot be read.
        """
        for package in ("onnxruntime", "tokenizers"):
            if find_spec(package) is None:
                raise MissingExtra("embedding.provider: `onnx` needs `pip install sapwood[onnx]`.")
        self._folder = folder
        self.fingerprint = f"onnx-1/{_digest(folder)}"
        self._model: _Model | None = None
        self._turn = anyio.Lock()

    async def embed(self, texts: Sequence[str], deadline: Deadline) -> Rows:
        """Return one vector for each text, of length 1.

        Raises:
            ConfigurationError: the files are no model and tokenizer that fit together.
            EmbeddingError: the model failed, or its output is not one vector for each token.
            DeadlineExceeded: the deadline passed between two slices.
        """
        async with self._turn:
            if self._model is None:
                self._model = await anyio.to_thread.run_sync(_Model, self._folder)
            model = self._model
        rows: list[Tensor | None] = [None] * len(texts)
        for places in _slices(texts):
            deadline.budget(1.0)
            async with self._turn:
                found = await anyio.to_thread.run_sync(model.embed, [texts[at] for at in places])
            for at, row in zip(places, found, strict=True):
                rows[at] = row
        return cast("Rows", rows)


class _Model:
    """A session and its tokenizer; used by one thread at a time."""

    def __init__(self, folder: Path) -> None:
        self._tokenizer = _tokenizer(folder / TOKENIZER)
        self._session = _session(folder / MODEL)
        self._inputs = {one.name for one in self._session.get_inputs()}
        outputs = self._session.get_outputs()
        if "input_ids" not in self._inputs or not self._inputs <= _INPUTS or not outputs:
            takes = ", ".join(sorted(self._inputs)) or "nothing"
            raise ConfigurationError(f"embedding.model: {folder / MODEL} takes {takes}, not the tokens of a text.")
        if len(outputs[0].shape) != 3:
            raise ConfigurationError(
                f"embedding.model: {folder / MODEL} gives {outputs[0].shape}, not one vector for each token."
            )

    def embed(self, texts: list[str]) -> Tensor:
        encoded = self._tokenizer.encode_batch([text.encode("utf-8", "replace").decode() for text in texts])
        mask = _padded([one.attention_mask for one in encoded])
        given = {"input_ids": _ids(encoded), "attention_mask": mask, "token_type_ids": np.zeros_like(mask)}
        try:
            output = self._session.run(None, {name: given[name] for name in self._inputs})[0]
        except Exception as error:  # the library has no narrower one
            raise EmbeddingError(f"The ONNX model failed with {type(error).__name__}.") from error
        vectors = np.asarray(output, dtype=np.float32)
        if vectors.ndim != 3 or vectors.shape[:2] != mask.shape:
            raise EmbeddingError(f"The ONNX model returned {vectors.shape} for tokens of shape {mask.shape}.")
        sums = (vectors * mask[:, :, np.newaxis]).sum(axis=1)
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        pooled: Tensor = sums / np.where(lengths > 0, lengths, 1)  # the mean has the direction of the sum
        return pooled


def _ids(encoded: Sequence[Encoding]) -> NDArray[np.int64]:
    return _padded([one.ids for one in encoded])


def _padded(rows: Sequence[Sequence[int]]) -> NDArray[np.int64]:
    table = np.zeros((len(rows), max(map(len, rows))), dtype=np.int64)
    for place, row in enumerate(rows):
        table[place, : len(row)] = row
    return table


def _slices(texts: Sequence[str]) -> Iterator[list[int]]:
    order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
    return (order[at : at + _SLICE] for at in range(0, len(order), _SLICE))


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    try:
        digest.update((folder / TOKENIZER).read_bytes())
        with (folder / MODEL).open("rb") as model:
            digest.update(model.read(_ENDS))
            size = model.seek(0, 2)
            model.seek(max(size - _ENDS, 0))
            digest.update(model.read() + size.to_bytes(8, "big"))
    except OSError as error:
        missing = folder if not folder.is_dir() else error.filename
        raise ConfigurationError(f"embedding.model: {missing} cannot be read ({error.strerror}).") from error
    return digest.hexdigest()[:16]


def _tokenizer(file: Path) -> Tokenizer:
    from tokenizers import Tokenizer

    try:
        tokenizer: Any = Tokenizer.from_buffer(file.read_bytes())  # half of its methods have no types
    except Exception as error:  # the library has no narrower one
        raise ConfigurationError(f"embedding.model: {file} is no `tokenizer.json`.") from error
    tokenizer.enable_truncation(MAX_TOKENS)
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True  # `[SEP]` in a text is text
    return cast("Tokenizer", tokenizer)


def _session(file: Path) -> _Session:
    runtime: Any = import_module("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = THREADS, 1
    # Both would keep what slices of each length took, for good.
    options.enable_cpu_mem_arena = options.enable_mem_pattern = False
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    try:
        return cast("_Session", runtime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"]))
    except Exception as error:  # the library has no narrower one
        raise ConfigurationError(f"embedding.model: {file} is no ONNX model that can be run here.") from error
