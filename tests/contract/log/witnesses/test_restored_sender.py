"""A sender whose database went back: what its peers hold shows that, and its next tree states the loss."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import closing
from typing import Any

import pytest

from eventd.log.core.eventlog import EventLog
from eventd.log.core.head import renew_epoch
from eventd.log.history.trees import StoredCheckpoint, Tree
from eventd.log.witnesses.findings import read_findings
from eventd.log.witnesses.own_notes import OwnNote, Shown, take_own_note
from eventd.store.engine.database import Connection, Database
from eventd.store.engine.head_file import forget_head
from eventd.store.engine.statements import execute, execute_many, fetch
from eventd.testing import NOW, ManualClock
from federation.errors import TreeForked
from federation.history.checkpoints import Checkpoint, read_origin
from federation.history.entries import OpeningReason, read_opening_entry
from federation.history.notes import LOG_KEY, read_note, read_vkey
from federation.history.witnessing import HeldCheckpoint, Offer, Succession, check_offer, judge_succession
from tests.support.histories import OWNER, emit, signed, start

GROWN = {"checkpoints": "size", "blocks": "position", "event_ids": "position"}
"""Tables that only got rows, with the column that orders them."""
CHANGED = ("trees", "topics", "log_heads")


class Restored:
    """A sender of which a backup was made after two leaves, and restored after four, which a peer holds."""

    def __init__(self, log: EventLog, topic: int, tree: Tree, held: StoredCheckpoint) -> None:
        self.log = log
        self.topic = topic
        self.tree = tree
        self.held = held

    @property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint(read_origin(self.tree.origin), self.held.size, self.held.root)

    async def seal(self, event_id: str) -> tuple[Tree, StoredCheckpoint]:
        _, tree = await start(self.log)
        await emit(self.log, self.topic, event_id)
        return tree, await signed(self.log, self.topic)


def back_up(conn: Connection) -> dict[str, list[dict[str, Any]]]:
    def rows(table: str) -> list[dict[str, Any]]:
        if conn.dialect == "sqlite":
            names = [row[1] for row in fetch(conn, f"PRAGMA table_info({table})")]
        else:
            sql = "SELECT column_name FROM information_schema.columns WHERE table_name = ? ORDER BY ordinal_position"
            names = [row[0] for row in fetch(conn, sql, (table,))]
        return [dict(zip(names, row, strict=True)) for row in fetch(conn, f"SELECT {', '.join(names)} FROM {table}")]

    return {table: rows(table) for table in (*GROWN, *CHANGED, "tiles")}


def restore(conn: Connection, backup: dict[str, list[dict[str, Any]]]) -> None:
    for table, column in GROWN.items():
        execute(conn, f"DELETE FROM {table} WHERE {column} > ?", (max(row[column] for row in backup[table]),))
    execute(conn, "DELETE FROM tiles")
    names = [*backup["tiles"][0]]
    sql = f"INSERT INTO tiles ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
    execute_many(conn, sql, [tuple(row.values()) for row in backup["tiles"]])
    for table in CHANGED:
        for row in backup[table]:
            columns = ", ".join(f"{name} = ?" for name in row)
            execute(conn, f"UPDATE {table} SET {columns} WHERE id = ?", (*row.values(), row["id"]))


@pytest.fixture
async def restored(migrated_url: str, clock: ManualClock) -> AsyncIterator[Restored]:
    with closing(Database(migrated_url)) as database:
        log = await EventLog.open(database, clock)
        topic, tree = await start(log)
        await emit(log, topic, "x")
        await signed(log, topic)
        backup = await log.database.read(back_up)
        await emit(log, topic, "y", "z")
        held = await signed(log, topic)
        await log.database.write(restore, backup)
        await log.close()
        path = database.path
    if path is not None:
        forget_head(path)  # as on another machine: only the peer knows what was signed
    with closing(Database(migrated_url)) as database:
        log = await EventLog.open(database, clock)
        yield Restored(log, topic, tree, held)
        await log.close()


async def test_a_copy_that_signs_on_in_its_tree_forks_it(restored: Restored) -> None:
    tree, stored = await restored.seal("other")
    assert (tree.origin, stored.size) == (restored.tree.origin, 3)
    await emit(restored.log, restored.topic, "more")
    fork = await signed(restored.log, restored.topic)
    offer = Offer(read_note(fork.note.encode()), fork.size)
    with pytest.raises(TreeForked, match="has two roots at size 4"):
        check_offer(offer, read_vkey(tree.log_key, LOG_KEY), HeldCheckpoint(restored.checkpoint, restored.held.note))


async def test_a_copy_that_a_peer_shows_its_own_note_states_the_loss_in_a_new_tree(restored: Restored) -> None:
    shown = Shown(restored.topic, OWNER, "b", restored.held.note)
    assert await restored.log.database.write(take_own_note, shown, NOW) == (OwnNote.OLDER_COPY, True, 0)
    [found] = await restored.log.database.read(read_findings, restored.topic)
    assert (found.kind, found.size, found.other_size) == ("older_copy", 2, 4)
    await _require_stated(restored)


async def test_a_restore_with_a_new_epoch_states_the_loss_in_a_new_tree(restored: Restored) -> None:
    await restored.log.database.write(renew_epoch)
    await _require_stated(restored)


async def _require_stated(restored: Restored) -> None:
    tree, stored = await restored.seal("other")
    entry = read_opening_entry(tree.opening)
    assert tree.origin != restored.tree.origin
    assert (entry.opening.reason, stored.size) == (OpeningReason.EPOCH, 2)
    assert judge_succession(entry, restored.checkpoint) == (Succession.ROLLED_BACK, 2)
