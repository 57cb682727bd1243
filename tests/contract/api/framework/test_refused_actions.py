"""Refused and failed actions: counted, and few rows. On both databases."""

from __future__ import annotations

import pytest

from eventd.api.framework import refused_actions
from eventd.api.framework.refused_actions import ROW_SECONDS, RefusedActions
from eventd.log.core.eventlog import EventLog
from eventd.log.core.head import lock_head
from eventd.runtime.clock import SECOND
from eventd.store.engine.database import Connection
from eventd.store.rows import actions
from eventd.store.rows.actions import ActionFilter, ActionPage, ActionRow, add_action, delete_old_actions, read_actions
from eventd.testing import NOW, ManualClock
from tests.support.fresh import on_sqlite


def row(at: int, *, operation: str = "keys.create", thing: str = "", result: str = "forbidden") -> ActionRow:
    return ActionRow(at, "unknown", "unknown", "::1", operation, thing, "{}", result, "r")


ALL = ActionFilter()


async def page(log: EventLog, wanted: ActionFilter = ALL, before: int | None = None) -> ActionPage:
    return await log.database.read(read_actions, wanted, before, 3)


async def counts(log: EventLog) -> list[int]:
    return [each.count for each in (await page(log)).rows][::-1]


async def test_equal_ones_are_one_row_a_minute_with_their_number(log: EventLog, clock: ManualClock) -> None:
    refused = RefusedActions(log.database, clock)
    for _ in range(5):
        await refused.add(row(clock.now()))
    await refused.write()
    assert await counts(log) == [1]
    clock.advance(ROW_SECONDS + 1)
    await refused.write()
    assert await counts(log) == [1, 4]
    await refused.add(row(clock.now()))
    await refused.write(ends=True)
    assert await counts(log) == [1, 4, 1]


@on_sqlite
async def test_two_processes_share_the_row_of_a_minute(log: EventLog, clock: ManualClock) -> None:
    one, other = (RefusedActions(log.database, clock) for _ in range(2))
    await one.add(row(clock.now()))
    await other.add(row(clock.now()))
    assert await counts(log) == [1]
    await other.write(ends=True)
    assert await counts(log) == [1, 1]


@on_sqlite
async def test_a_client_that_invents_objects_gets_few_rows(
    log: EventLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refused_actions, "MOST_KINDS", 2)
    refused = RefusedActions(log.database, clock)
    for number in range(50):
        await refused.add(row(clock.now(), thing=f"key {number}", result="not_found"))
    rows = (await page(log)).rows
    assert [each.object for each in rows] == ["", "key 1", "key 0"]


async def test_a_page_looks_at_a_bounded_number_of_rows(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    def add(conn: Connection) -> None:
        lock_head(conn)
        for number in range(10):
            add_action(conn, row(NOW + number * SECOND, operation="rare" if number == 0 else "often"))

    await log.database.write(add)
    monkeypatch.setattr(actions, "MOST_SCANNED", 4)
    seen, before = [], None
    for _ in range(3):
        found = await page(log, ActionFilter(operation="rare"), before)
        seen.append(([each.operation for each in found.rows], found.searched_to))
        before = found.before
    assert seen == [([], NOW + 5 * SECOND), ([], NOW + SECOND), (["rare"], None)]
    assert before is None


async def test_old_rows_are_deleted_a_portion_at_a_time(log: EventLog) -> None:
    def add(conn: Connection) -> None:
        lock_head(conn)
        for number in range(5):
            add_action(conn, row(NOW + number))

    await log.database.write(add)
    assert await log.database.write(delete_old_actions, NOW + 3, 2) == 2
    assert await log.database.write(delete_old_actions, NOW + 3, 2) == 1
    assert [each.at for each in (await page(log)).rows] == [NOW + 4, NOW + 3]
