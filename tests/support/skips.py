"""In CI, the skip of a test marked `postgres`, `spark` or `browser` is a failure with its reason.

The same holds for the markers in TESTS_NEED, which `.ci/run` sets.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

_NEVER_SKIPPED_IN_CI = ("postgres", "spark", "browser", *os.environ.get("TESTS_NEED", "").split())


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() not in ("", "0", "false", "no")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    expected_failure = hasattr(report, "wasxfail")  # also reported as skipped
    if report.skipped and not expected_failure and in_ci() and any(map(item.get_closest_marker, _NEVER_SKIPPED_IN_CI)):
        _fail(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.skipped and in_ci():  # a skip of a whole file hides the markers of its tests
        _fail(report)
    return report


def mark_needs(items: list[pytest.Item]) -> None:
    """Mark tests that use Postgres or Spark: `-m "not spark"` leaves them out, and their skip fails in CI.

    A fixture that a test asks for by its name is not among those of the test; then its parameter says `postgres`.
    """
    for item in items:
        for fixture, marker in (("postgres_server", "postgres"), ("spark", "spark")):
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(marker)
        if any(value == "postgres" for value in _params(item)):
            item.add_marker("postgres")


def _params(item: pytest.Item) -> list[object]:
    return list(item.callspec.params.values()) if hasattr(item, "callspec") else []


def _fail(report: pytest.TestReport | pytest.CollectReport) -> None:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    report.outcome = "failed"
    report.longrepr = f"not allowed to be skipped in CI: {reason.removeprefix('Skipped: ')}"
