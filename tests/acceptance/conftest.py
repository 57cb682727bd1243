"""What acceptance tests share: databases for nodes, and a federation whose lake is damaged."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

import pytest

from tests.support.campaign.federation import Federation
from tests.support.campaign.shared import share_federation
from tests.support.fresh import create_current
from tests.support.postgres import PostgresServer


@pytest.fixture
def make_postgres_database(postgres_server: PostgresServer) -> Callable[[], str]:
    """Creates databases at the newest schema: to apply all migrations would take most of a node's start."""
    return partial(create_current, postgres_server)


@pytest.fixture(scope="session")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Federation:
    """What three nodes left behind after some hours; tests change copies of it."""
    folder = tmp_path_factory.getbasetemp()
    return share_federation((folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "federation")
