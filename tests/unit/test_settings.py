"""Settings: what the environment may say, and what an error says of it."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from pipeline.errors import ConfigurationError
from worker.settings import WorkerSettings, load, misspelt

SECRET = "correct-horse-battery"
URL = f"postgresql://me:{SECRET}@db.example/sapwood"


def test_an_empty_environment_means_embedded_servers_in_the_users_data_folder() -> None:
    settings = load({})
    assert settings.embedded
    assert settings.home == Path.home() / ".local/share/sapwood"
    assert settings.secrets == ()


def test_the_home_follows_xdg_and_an_explicit_home_wins() -> None:
    assert load({"XDG_DATA_HOME": "/data"}).home == Path("/data/sapwood")
    assert load({"XDG_DATA_HOME": "relative"}).home == Path.home() / ".local/share/sapwood"
    assert load({"XDG_DATA_HOME": "/data", "SAPWOOD_HOME": "~/x"}).home == Path.home() / "x"


def test_a_tokenizer_is_a_file_of_the_users() -> None:
    assert load({}).tokenizer_file is None
    assert load({"SAPWOOD_TOKENIZER_FILE": "~/t.json"}).tokenizer_file == Path.home() / "t.json"
    assert misspelt({"SAPWOOD_TOKENIZERS_FILE": "x"}) == {"SAPWOOD_TOKENIZERS_FILE": "SAPWOOD_TOKENIZER_FILE"}


def test_an_empty_variable_counts_as_not_set() -> None:
    assert load({"SAPWOOD_DATABASE_URL": "", "SAPWOOD_LEASE_SECONDS": ""}) == load({})


def test_a_secret_shows_in_no_representation() -> None:
    settings = load({"SAPWOOD_DATABASE_URL": URL, "SAPWOOD_OPENAI_API_KEY": SECRET})
    for shown in (repr(settings), str(settings), settings.model_dump_json(), f"{settings.model_dump()}"):
        assert SECRET not in shown
    assert settings.secrets == (URL, SECRET)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SAPWOOD_DATABASE_URL", f"mysql://me:{SECRET}@db"),
        ("SAPWOOD_REDIS_URL", f"memcached://:{SECRET}@cache"),
        ("SAPWOOD_OPENAI_BASE_URL", f"file:///{SECRET}"),
        ("SAPWOOD_LEASE_SECONDS", "0"),
        ("SAPWOOD_LEASE_SECONDS", "nan"),
        ("SAPWOOD_LEASE_SECONDS", "inf"),
        ("SAPWOOD_DATABASE_POOL_SIZE", "many"),
        ("SAPWOOD_LOG_FORMAT", "xml"),
    ],
)
def test_an_invalid_value_is_an_error_that_names_the_variable_and_hides_the_value(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=name) as caught:
        load({name: value})
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None


def test_every_wrong_variable_is_named_at_once() -> None:
    with pytest.raises(ConfigurationError, match=r"SAPWOOD_INDEX_JOBS.*SAPWOOD_LEASE_SECONDS"):
        load({"SAPWOOD_LEASE_SECONDS": "x", "SAPWOOD_INDEX_JOBS": "y"})


def test_settings_are_frozen() -> None:
    settings = load({})
    with pytest.raises(ValueError, match="frozen"):
        settings.index_jobs = 3  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert isinstance(settings, WorkerSettings)


def test_a_misspelt_variable_is_found_and_what_kubernetes_sets_is_left_alone() -> None:
    environ = {"SAPWOOD_LEASE_SECOND": "3", "SAPWOOD_PORT": "tcp://10.0.0.1:80", "SAPWOOD_SERVICE_HOST": "10.0.0.1"}
    assert misspelt(environ) == {"SAPWOOD_LEASE_SECOND": "SAPWOOD_LEASE_SECONDS"}
    assert load(environ) == load({})
    links = {"SAPWOOD_METRICS_PORT": "tcp://10.0.0.1:9", "SAPWOOD_GATEWAY_PORT_80_TCP": "tcp://10.0.0.1:80"}
    assert (load(links), misspelt(links)) == (load({}), {})
