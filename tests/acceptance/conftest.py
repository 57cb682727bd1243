"""The federation whose lake is damaged: one for all files and processes of a run."""

from __future__ import annotations

import os

import pytest

from tests.support.campaign.federation import Federation
from tests.support.campaign.shared import share_federation


@pytest.fixture(scope="session")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    """What three nodes left behind after some hours; tests change copies of it."""
    folder = tmp_path_factory.getbasetemp()
    return share_federation((folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "federation")
