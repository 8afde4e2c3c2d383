"""Where a model may lie that a corpus names: who may set a corpus's settings may not have any folder of a worker read."""

from __future__ import annotations

import os
from pathlib import Path

from pipeline.errors import ConfigurationError, Refused

RULE = "model rule: `embedding.model` of the provider `onnx` names a folder below SAPWOOD_MODELS_ROOT"


def model_folder(model: str, root: Path | None, *, anywhere: bool) -> Path:
    """Return the folder that `embedding.model` names: below `root`, from which a relative path leads; without a root any
    folder, by its absolute path, but only where `anywhere` is allowed. Nothing on disk is looked at.

    Raises:
        ConfigurationError: it names no folder.
        Refused: it leads elsewhere, or there is no root and there must be one.
    """
    if root is None and not anywhere:
        raise Refused(f"{RULE}, which is not set")
    if not model or "\0" in model or not (root or os.path.isabs(model)):
        raise ConfigurationError(f"embedding.model: name the absolute path of a folder, not {model!r}.")
    if root is None:
        return Path(model)
    folder = Path(os.path.normpath(root / model))
    if not folder.is_relative_to(os.path.normpath(root)):
        raise Refused(RULE)
    return folder
