"""Writes that are attached to an operation: in its first transaction, once, or not at all. On both databases."""

from __future__ import annotations

import asyncio

import pytest

from eventd.errors import Invalid
from eventd.log.core.commit import ChangeUnit, Transaction
from eventd.log.core.eventlog import EventLog
from eventd.log.topics.errors import TopicNotFound
from eventd.log.topics.topics import PatchTopic
from eventd.store.engine.attached import AttachedWrite, attach
from eventd.store.engine.database import Connection
from eventd.store.rows.actions import OK, ActionFilter, ActionRow, add_action, read_actions


class Note(AttachedWrite):
    """Adds a row for an operation; `refuses` and `fails` say where it raises."""

    def __init__(self, name: str, *, refuses: bool = False, fails: bool = False) -> None:
        super().__init__()
        self._row = ActionRow(1, "key", "ci", "", name, "", "{}", OK, "")
        self._refuses, self._fails = refuses, fails

    def begin(self, conn: Connection) -> None:
        if self._refuses:
            raise Invalid("refused")

    def end(self, conn: Connection) -> None:
        add_action(conn, self._row)
        if self._fails:
            raise ValueError("failed")


class Touch(ChangeUnit[None]):
    """Adds a row of its own."""

    def __init__(self, name: str) -> None:
        self._name = name

    def make(self, tx: Transaction) -> None:
        _touch(tx.conn, self._name)


def _touch(conn: Connection, name: str) -> None:
    add_action(conn, ActionRow(1, "key", "ci", "", name, "", "{}", OK, ""))


async def names(log: EventLog) -> list[str]:
    page = await log.database.read(read_actions, ActionFilter(), None, 200)
    return [row.operation for row in page.rows][::-1]


async def test_the_first_transaction_carries_it_and_no_later_one(log: EventLog) -> None:
    for write in (log.database.write, None):
        with attach(note := Note("note")):
            for name in ("a", "b"):
                await (write(_touch, name) if write else log.submit(Touch(name)))
        assert note.is_written
    assert await names(log) == ["a", "note", "b"] * 2


async def test_a_failed_transaction_leaves_it_to_the_next_one(log: EventLog) -> None:
    def fail(conn: Connection) -> None:
        raise Invalid("no")

    with attach(note := Note("note")):
        with pytest.raises(Invalid):
            await log.database.write(fail)
        with pytest.raises(TopicNotFound):
            await log.submit(PatchTopic("none", {}))
        assert not note.is_written
        await log.submit(Touch("a"))
    assert await names(log) == ["a", "note"]


async def test_what_refuses_it_refuses_the_operation_and_no_other(log: EventLog) -> None:
    with attach(Note("note", refuses=True)):
        with pytest.raises(Invalid):
            await log.database.write(_touch, "b")
        refused = log.submit(Touch("a"))
    other = log.submit(Touch("c"))
    with pytest.raises(Invalid):
        await refused
    await other
    assert await names(log) == ["c"]


async def test_an_operation_whose_row_fails_is_undone_and_its_neighbours_are_not(log: EventLog) -> None:
    with attach(Note("note", fails=True)):
        failed = log.submit(Touch("a"))
    neighbour = log.submit(Touch("b"))
    with pytest.raises(ValueError, match="failed"):
        await failed
    await neighbour
    assert await names(log) == ["b"]


async def test_a_task_that_outlives_its_operation_carries_nothing(log: EventLog) -> None:
    released = asyncio.Event()

    async def later() -> None:
        await released.wait()
        await log.database.write(_touch, "later")

    with attach(note := Note("note")):
        task = asyncio.create_task(later())
    released.set()
    await task
    assert not note.is_written
    assert await names(log) == ["later"]
