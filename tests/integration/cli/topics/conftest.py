"""`routerctl` over the API: a command for topics sends the same requests to a node and to the database beside it.

`tests/integration/api/topics` shows on both databases what these requests do.
"""

from __future__ import annotations

import pytest

from tests.integration.cli.conftest import Control

beside_a_file_too = pytest.mark.parametrize("routerctl", ["sqlite", "api"], indirect=True)
"""Runs a test on a SQLite file too: each command once."""


@pytest.fixture(params=["api"])
def routerctl(routerctl: Control) -> Control:
    return routerctl
