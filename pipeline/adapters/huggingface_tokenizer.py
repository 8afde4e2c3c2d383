"""The tokenizer of a model out of its `tokenizer.json` (extra `tokens`): a file of yours, so nothing is downloaded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.errors import ConfigurationError, MissingExtra

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Vocabulary


class HuggingFaceTokenizer:
    """A `Tokenizer`. What the file says of truncation, padding and added special tokens is left out of account.

    A window of 2,000 tokens takes it some 30 ms with the vocabulary of Llama 2: not for the event loop.
    """

    def __init__(self, file: Path) -> None:
        """Read the file: not in the event loop.

        Raises:
            MissingExtra: the package is not installed.
            ConfigurationError: the file is missing or no tokenizer.
        """
        self._vocabulary = _load(file)

    def count(self, text: str) -> int:
        """Return the tokens of a text, in which special tokens are plain text."""
        storable = text.encode("utf-8", "replace").decode()  # a lone surrogate is no text for the library
        return len(self._vocabulary.encode(storable, add_special_tokens=False))


def _load(file: Path) -> Vocabulary:
    try:
        from tokenizers import Tokenizer as Vocabulary
    except ImportError as error:
        raise MissingExtra("tokenizer_file: it needs `pip install sapwood[tokens]`.") from error
    try:
        vocabulary = Vocabulary.from_buffer(file.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"tokenizer_file: {file} cannot be read ({error.strerror}).") from error
    except Exception as error:  # the library has no narrower one
        raise ConfigurationError(f"tokenizer_file: {file} is no `tokenizer.json`.") from error
    vocabulary.no_truncation()
    vocabulary.no_padding()
    vocabulary.encode_special_tokens = True
    return vocabulary
