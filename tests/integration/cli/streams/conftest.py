"""`routerctl` over the API: commands for streams send the same requests to a node and to the database beside it."""

from __future__ import annotations

import pytest

from tests.integration.cli.conftest import Control


@pytest.fixture(params=["api"])
def routerctl(routerctl: Control) -> Control:
    return routerctl
