"""Figures that tests measure: said by a test, printed when it is over, in whichever process it runs."""

from __future__ import annotations

import pytest

FIGURE = "figure"


def say(request: pytest.FixtureRequest, figure: str) -> None:
    """Have a measured figure printed on the terminal when the test is over."""
    request.node.user_properties.append((FIGURE, figure))


class Figures:
    """A plugin that prints them, past pytest's capture."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Print the figures of a test that is over."""
        terminal = self._config.pluginmanager.getplugin("terminalreporter")
        if report.when == "teardown" and terminal is not None:
            for name, figure in report.user_properties:
                if name == FIGURE:
                    terminal.write_line(f"    {figure}")
