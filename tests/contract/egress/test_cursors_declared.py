"""Cursors follow the applied resources: all writers wait for the update, so it costs no more than the change."""

from __future__ import annotations

import pytest

from eventd.egress.cursors import follow, read_declared, reconcile
from eventd.log.core.eventlog import EventLog
from eventd.log.cursors import cursors
from eventd.log.cursors.cursors import create_cursor, read_cursors
from eventd.store.engine.database import Connection, Database
from eventd.store.rows.registry import read_resources
from eventd.testing import NOW, ManualClock
from tests.contract.egress.conftest import BOTH_DATABASES
from tests.support.group_ledger import GroupLedger
from tests.support.statements import statements

ROUTERS = 50


def _route(conn: Connection) -> None:
    for number in range(ROUTERS):
        create_cursor(conn, f"router:r{number}", kind="router", topic_id=1, position=0, now=NOW)


@BOTH_DATABASES
async def test_the_cursors_of_routers_are_not_read(
    log: EventLog, database: Database, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    books = GroupLedger(log, clock)
    await books.declare("b", "c")
    await database.write(_route)
    kinds: list[str] = []
    of_row = cursors._cursor

    def note(row: object) -> cursors.Cursor:
        cursor = of_row(row)
        kinds.append(cursor.kind)
        return cursor

    monkeypatch.setattr(cursors, "_cursor", note)
    await books.declare("b", c="types: [up]")
    version, declared, _ = await database.read(read_declared)
    found = await database.write(follow, version, declared, [], NOW)
    assert found is not None
    assert [cursor.name for cursor in found[0]] == ["peer:g/b", "peer:g/c"]
    assert "router" not in kinds
    assert len(await database.read(read_cursors)) == ROUTERS + 2


@BOTH_DATABASES
async def test_what_stays_as_it_was_is_not_asked_for_one_by_one(
    log: EventLog, database: Database, clock: ManualClock
) -> None:
    books, sent = GroupLedger(log, clock), []
    for peers in (("b",), tuple(f"b{number}" for number in range(20))):
        await books.declare(*peers)
        stored = await database.read(read_resources)
        with statements() as each:
            await database.write(reconcile, stored, NOW)
        sent.append(len(each))
    assert sent[0] == sent[1], "a link more costs no statement more"
