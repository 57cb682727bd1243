"""`routerctl` on a SQLite file and over the API: the two ways in which a command runs an operation.

`tests/contract` shows on both databases what the operations do.
"""

from __future__ import annotations

import pytest

from tests.integration.cli.conftest import Control


@pytest.fixture(params=["sqlite", "api"])
def routerctl(routerctl: Control) -> Control:
    return routerctl
