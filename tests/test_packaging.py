"""Our three top-level names are short and not ours by right: nobody else in this environment may own one."""

from __future__ import annotations

from importlib import import_module, metadata
from importlib.resources import files
from pathlib import Path

import pytest

NAMES = ("pipeline", "schemas", "worker")


@pytest.mark.parametrize("name", NAMES)
def test_no_other_distribution_ships_a_package_of_our_name(name: str) -> None:
    owners = set(metadata.packages_distributions().get(name, []))
    assert owners <= {"sapwood"}, f"uninstall {sorted(owners - {'sapwood'})}: it overwrites our '{name}'"


def test_the_three_packages_come_from_one_place() -> None:
    places = {Path(str(import_module(name).__file__)).resolve().parents[1] for name in NAMES}
    assert len(places) == 1


@pytest.mark.parametrize("name", NAMES)
def test_each_package_is_marked_as_typed(name: str) -> None:
    assert (files(name) / "py.typed").is_file()


def test_the_distribution_is_private_and_has_our_name() -> None:
    try:
        about = metadata.metadata("sapwood")
    except metadata.PackageNotFoundError:
        pytest.skip("sapwood is not installed in this environment; `make test` installs it")
    assert "Private :: Do Not Upload" in about.get_all("Classifier", [])
