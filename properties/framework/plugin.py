"""The pytest option `--laws=quick|ci|night`; alone, `--laws` is quick. An installed purestep gives it to pytest."""

import os

import pytest

from .profiles import ORDER, VARIABLE


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option --laws."""
    group = parser.getgroup("purestep")
    about = f"how hard laws look (default: ${VARIABLE} or quick)"
    group.addoption("--laws", nargs="?", const=ORDER[0], choices=ORDER, default=None, help=about)


def pytest_configure(config: pytest.Config) -> None:
    """Set the profile for this process and the workers that it starts, until the session ends."""
    chosen, before = config.getoption("--laws"), os.environ.get(VARIABLE)
    if chosen:
        os.environ[VARIABLE] = chosen
        config.add_cleanup(lambda: _restore(before))


def _restore(before: str | None) -> None:
    if before is None:
        os.environ.pop(VARIABLE, None)
    else:
        os.environ[VARIABLE] = before
