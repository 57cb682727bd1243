"""Applying resources from several processes at once: each sees the result of the one before it."""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing

import pytest

from eventd.resources.apply import apply_loaded, delete_resources
from eventd.resources.reading.documents import Identity, load_text
from eventd.resources.reading.problems import InvalidResources
from eventd.store.engine.database import Connection, Database
from eventd.store.engine.statements import fetch
from eventd.store.rows.registry import read_resources
from eventd.testing import NOW, until
from tests.support.declared import API_VERSION, declare, group, peer


@pytest.mark.usefixtures("log")
async def test_a_peer_is_not_declared_for_a_group_that_is_just_being_deleted(
    database: Database, migrated_url: str
) -> None:
    await database.write(apply_loaded, load_text("test", declare(group("a", secret="/nowhere"))), now=NOW)
    deleted, go_on = threading.Event(), threading.Event()

    def delete(conn: Connection) -> None:
        delete_resources(conn, [Identity(API_VERSION, "EventGroup", "edge")], now=NOW)
        deleted.set()
        assert go_on.wait(10)

    with closing(Database(migrated_url)) as other:
        deleting = other.start_write(delete)
        await until(deleted.is_set)
        late = asyncio.ensure_future(database.write(apply_loaded, load_text("test", declare(peer("b", 1))), now=NOW))
        if database.kind == "postgresql":
            waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            await until(lambda: database.read(fetch, waiting), "the declaration to wait for the one before it")
        go_on.set()
        await asyncio.wrap_future(deleting)
        with pytest.raises(InvalidResources, match="edge"):
            await late
    assert await database.read(read_resources) == []
