"""Which folders a corpus's settings may name for a model, and who is asked to say so."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.errors import ConfigurationError, Refused
from pipeline.ingest.model_folders import model_folder
from schemas.settings import CorpusSettings
from worker.changes import apply_changes
from worker.gateway.local import check_model
from worker.settings import WorkerSettings, load

ROOT = Path("/srv/models")


@pytest.mark.parametrize(
    "model", ["minilm", "a/../minilm", "./minilm/", "/srv/models/minilm", "/srv/x/../models/minilm"]
)
@pytest.mark.parametrize("anywhere", [True, False])
def test_below_the_root_a_path_leads_from_it_or_is_absolute(model: str, anywhere: bool) -> None:
    assert model_folder(model, ROOT, anywhere=anywhere) == ROOT / "minilm"


@pytest.mark.parametrize(
    "model", ["..", "../other", "a/../../other", "/srv/models-other", "/srv", "/etc/passwd", "/srv/models/../x"]
)
@pytest.mark.parametrize("anywhere", [True, False])
def test_what_leads_elsewhere_is_refused_by_the_rule(model: str, anywhere: bool) -> None:
    with pytest.raises(Refused, match=r"model rule: .*SAPWOOD_MODELS_ROOT"):
        model_folder(model, ROOT, anywhere=anywhere)


def test_without_a_root_any_absolute_path_will_do_where_that_is_allowed() -> None:
    assert model_folder("/home/me/minilm", None, anywhere=True) == Path("/home/me/minilm")
    for model in ("/home/me/minilm", "minilm", ""):
        with pytest.raises(Refused, match="which is not set"):
            model_folder(model, None, anywhere=False)


@pytest.mark.parametrize(("model", "root"), [("", None), ("minilm", None), ("", ROOT), ("a\0b", ROOT)])
def test_what_names_no_folder_is_said_to(model: str, root: Path | None) -> None:
    with pytest.raises(ConfigurationError, match=r"embedding\.model: name the absolute path"):
        model_folder(model, root, anywhere=True)


def given(**more: str) -> WorkerSettings:
    return load({"SAPWOOD_HOME": "/h", **{f"SAPWOOD_{name}": text for name, text in more.items()}})


def test_the_gateway_asks_for_the_root_where_it_asks_for_keys() -> None:
    """With the embedded database, too: a key is somebody else's. Other providers are none of its business."""
    onnx = apply_changes(CorpusSettings(), ["embedding.provider=onnx", "embedding.model=/etc"])
    for settings in (
        given(GATEWAY_AUTH="keys"),
        given(GATEWAY_LISTEN="0.0.0.0:80"),
        given(GATEWAY_AUTH="keys", MODELS_ROOT="/m"),
    ):
        with pytest.raises(Refused, match="model rule"):
            check_model(onnx, settings)
        check_model(CorpusSettings(), settings)
        check_model(None, settings)
    check_model(onnx, given())
    check_model(onnx, given(GATEWAY_AUTH="keys", MODELS_ROOT="/etc"))
