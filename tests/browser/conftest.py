"""Fixtures of the tests in a browser."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.browser import Visitor, Visitors, running_browser
from tests.support.console import ConsoleNode
from tests.support.console_worlds import make_broken, make_empty, make_full
from tests.support.processes import Processes
from tests.support.source import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser

PICTURES = ROOT / "build" / "browser"
_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    item.stash[_FAILED] = item.stash.get(_FAILED, False) or report.failed
    return report


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """One browser for all tests of this package."""
    with running_browser() as started:
        yield started


@pytest.fixture
def visitors(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Visitors]:
    """Makes visitors. What their pages report fails the test, and a test that failed leaves pictures of them."""
    if "processes" in request.fixturenames:
        request.getfixturevalue("processes")  # its nodes outlive the pages, which would report that they are gone
    made = Visitors(browser)
    yield made
    if request.node.stash.get(_FAILED, False):
        PICTURES.mkdir(parents=True, exist_ok=True)
        for file in made.photograph(PICTURES, re.sub(r"\W+", "-", request.node.name)[:80]):
            print(f"picture: {file}")  # noqa: T201
    reports = made.close()
    assert not reports, "the pages reported:\n" + "\n".join(reports)


@pytest.fixture
def visitor(visitors: Visitors) -> Visitor:
    """One visitor with a window of 1280×900, light colours and JavaScript."""
    return visitors()


@pytest.fixture(scope="package")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """The processes of nodes that all tests of this package share. Tests that change or kill a node start their own."""
    processes = Processes(tmp_path_factory.mktemp("nodes"))
    yield processes
    processes.close()


@pytest.fixture(scope="package")
def empty(shared: Processes) -> ConsoleNode:
    """A node with nothing to show."""
    return make_empty(shared)


@pytest.fixture(scope="package")
def full(shared: Processes) -> ConsoleNode:
    """A node with everything to show."""
    return make_full(shared)


@pytest.fixture(scope="package")
def broken(shared: Processes) -> ConsoleNode:
    """A node where everything fails."""
    return make_broken(shared)
