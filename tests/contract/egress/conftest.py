"""The log of these tests: on SQLite, and on both databases where a test is about what a transaction decides."""

from __future__ import annotations

import pytest

BOTH_DATABASES = pytest.mark.parametrize(
    "migrated_url", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True
)


@pytest.fixture
def migrated_url(request: pytest.FixtureRequest) -> str:
    """A SQLite file with an empty log; with `BOTH_DATABASES` the test runs once on SQLite and once on Postgres.

    The code under test holds no SQL: tests/contract/log and tests/contract/store show its statements on both.
    """
    url: str = request.getfixturevalue(f"migrated_{getattr(request, 'param', 'sqlite')}_url")
    return url
