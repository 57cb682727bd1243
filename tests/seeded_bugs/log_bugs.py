"""Bugs of the log and of its database."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from eventd.log.core import append, commit, eventlog, head
from eventd.log.core.commit import CommitResult
from eventd.log.core.head import Recovery, read_head, read_instance, recover
from eventd.log.core.values import Head
from eventd.log.core.wakeups import Watch
from eventd.log.retention import evict, prefix
from eventd.runtime.clock import SECOND
from eventd.store.backup import backup
from eventd.store.engine import engines, statements
from eventd.store.engine.database import Connection, Database
from eventd.store.engine.failed_sync import FailedSync
from eventd.store.engine.fence import require_claim
from eventd.store.engine.file_guard import FileGuard
from eventd.store.engine.head_file import HeadMark
from eventd.store.engine.statements import BEGIN_WRITING, execute
from eventd.store.engine.thread_pool import ThreadConnections
from eventd.store.ids.known import store_ids
from tests.seeded_bugs.bug import replace_function


def commit_without_flushing(patch: pytest.MonkeyPatch) -> None:
    """Let no commit on Postgres wait for the disk."""
    original = Database.transaction

    def transaction(self: Database, *, durable: bool = True, waits: bool = True) -> Any:
        return original(self, durable=durable and self.kind == "sqlite", waits=waits)

    patch.setattr(Database, "transaction", transaction)


def keep_lost_connections(patch: pytest.MonkeyPatch) -> None:
    """Let a thread use its connection again that was lost."""

    @contextmanager
    def use(self: ThreadConnections) -> Iterator[Any]:
        own = self._of_this_thread
        if own is None:
            with engines.lend(self.engine) as conn:
                yield conn
        else:
            yield self._current(own)

    patch.setattr(ThreadConnections, "use", use)


def acknowledge_before_commit(patch: pytest.MonkeyPatch) -> None:
    """Answer with the result of a transaction that is undone; the same transaction is committed later."""

    class _Undone(Exception):
        pass

    def start_write(self: Database, fn: Callable[[Connection], Any], *, durable: bool = True) -> Future[Any]:
        def try_out() -> Any:
            found: list[Any] = []
            try:
                with self.transaction(durable=durable) as conn:
                    found.append(fn(conn))
                    raise _Undone
            except _Undone:
                return found[0]

        answer = self._submit(try_out)
        self._submit(self._write, fn, durable)
        return answer

    patch.setattr(Database, "start_write", start_write)


def leave_out_syncs(patch: pytest.MonkeyPatch) -> None:
    """Never sync the database."""
    prepare = engines._prepare_sqlite

    def prepare_unsynced(connection: Any) -> None:
        prepare(connection)
        connection.execute("PRAGMA synchronous=OFF")

    patch.setattr(engines, "_prepare_sqlite", prepare_unsynced)


def touch_nothing(patch: pytest.MonkeyPatch) -> None:
    """Write the value that is there already, so that nothing is flushed."""

    def touch(conn: Connection) -> None:
        execute(conn, "UPDATE log_heads SET flushes = flushes WHERE id = 1")

    replace_function(patch, head.touch_head, touch)


def answer_before_flush(patch: pytest.MonkeyPatch) -> None:
    """Forget that results of a transaction must wait for its flush."""
    never = property(lambda _self: False, lambda _self, _value: None)
    patch.setattr(CommitResult, "must_flush", never, raising=False)


def keep_epochs(patch: pytest.MonkeyPatch) -> None:
    """Begin no new epoch after a loss."""

    def recover_as_is(conn: Connection, _acknowledged: HeadMark | None) -> Recovery:
        return Recovery(read_head(conn), read_instance(conn), "")

    patch.setattr(eventlog, "recover", recover_as_is)


def begin_epochs_at_will(patch: pytest.MonkeyPatch) -> None:
    """Begin a new epoch at every start."""

    def recover_anew(conn: Connection, acknowledged: HeadMark | None) -> Recovery:
        head.renew_epoch(conn)
        return recover(conn, None)

    patch.setattr(eventlog, "recover", recover_anew)


def take_shorter_heads(patch: pytest.MonkeyPatch) -> None:
    """Continue a log that has lost its last commits while the process ran, without a new epoch."""

    def as_it_is(_conn: Connection, found: Head, _seen: int) -> Head:
        return found

    patch.setattr(commit, "require_whole", as_it_is)


def read_heads_without_lock(patch: pytest.MonkeyPatch) -> None:
    """Read the head without locking it."""
    replace_function(patch, head.lock_head, read_head)


def wait_for_later_heads(patch: pytest.MonkeyPatch) -> None:
    """Begin each wait without a look whether the log has grown since the read before it."""

    beyond = Watch.beyond

    def beyond_the_head(self: Watch, position: int, future: Any = None) -> Any:
        return beyond(self, max(position, self.head), future)

    patch.setattr(Watch, "beyond", beyond_the_head)


def forget_ids(patch: pytest.MonkeyPatch) -> None:
    """Take every id for a new one."""

    def store_anew(conn: Connection, topic_id: int, ids: Sequence[str], positions: Sequence[int]) -> bool:
        for each in ids:
            execute(conn, "DELETE FROM event_ids WHERE topic_id = ? AND event_id = ?", (topic_id, each))
        return store_ids(conn, topic_id, ids, positions)

    patch.setattr(append, "read_known", lambda *_: {})
    patch.setattr(append, "store_ids", store_anew)


def continue_after_rollback(patch: pytest.MonkeyPatch) -> None:
    """Continue a transaction that the database has undone by itself."""
    replace_function(patch, statements.in_transaction, lambda _conn: True)


def keep_failed_units(patch: pytest.MonkeyPatch) -> None:
    """Do not undo what a unit has written before it failed."""

    @contextmanager
    def no_savepoint(_conn: Connection) -> Iterator[None]:
        yield

    replace_function(patch, statements.savepoint, no_savepoint)


def evict_in_two_transactions(patch: pytest.MonkeyPatch) -> None:
    """Commit the removal of records before the topic's row says that they are removed."""
    note = prefix.note_losses

    def commit_first(conn: Connection, topic_id: int, losses: Any) -> None:
        conn.driver.execute("COMMIT")
        conn.driver.execute(BEGIN_WRITING if conn.dialect == "sqlite" else "BEGIN")
        note(conn, topic_id, losses)

    patch.setattr(prefix, "note_losses", commit_first)


def evict_held_records(patch: pytest.MonkeyPatch) -> None:
    """Evict also what peers and callbacks have not got yet."""
    patch.setattr(evict, "_first_undelivered", lambda *_: None)
    patch.setattr(evict, "read_held_position", lambda *_: None)


def forget_evicted_ids(patch: pytest.MonkeyPatch) -> None:
    """Forget the ids of evicted events with the events."""
    note = evict._note_losses

    def note_and_forget(conn: Connection, topic: Any, *args: Any) -> Any:
        noted = note(conn, topic, *args)
        execute(conn, "DELETE FROM event_ids WHERE topic_id = ? AND gone_at IS NOT NULL", (topic.id,))
        execute(conn, "DELETE FROM gone_ids WHERE topic_id = ?", (topic.id,))
        return noted

    patch.setattr(evict, "_note_losses", note_and_forget)


def evict_too_early(patch: pytest.MonkeyPatch) -> None:
    """Evict by age what is not old yet."""
    by_age = evict._by_age
    days = 10 * 24 * 3600 * SECOND

    def far_ahead(conn: Connection, topic_id: int, window: Any, limits: Any, now: int) -> int:
        return by_age(conn, topic_id, window, limits, now + days)

    patch.setattr(evict, "_by_age", far_ahead)


def keep_what_is_old(patch: pytest.MonkeyPatch) -> None:
    """Never evict an event because of its age."""
    patch.setattr(evict, "_by_age", lambda *_: 0)


def record_no_losses(patch: pytest.MonkeyPatch) -> None:
    """Evict records without a note for the readers that have not got them."""
    patch.setattr(prefix, "note_losses", lambda *_: None)


def trust_failed_syncs(patch: pytest.MonkeyPatch) -> None:
    """Do not write the write-ahead log again after a failed flush."""
    patch.setattr(FailedSync, "rewrite_log", lambda *_: None)


def write_to_lost_files(patch: pytest.MonkeyPatch) -> None:
    """Write to a database file that was deleted or replaced."""
    patch.setattr(FileGuard, "require", lambda _self: None)


def back_up_without_log(patch: pytest.MonkeyPatch) -> None:
    """Copy the file of the database without its write-ahead log."""

    def copy_file_alone(conn: Connection, part: Path) -> None:
        ((_, _, file),) = conn.driver.execute("PRAGMA database_list").fetchall()
        shutil.copyfile(file, part)

    patch.setattr(backup, "copy_pages", copy_file_alone)


def write_without_claim(patch: pytest.MonkeyPatch) -> None:
    """Open sessions that can write while another instance holds the claim."""
    replace_function(patch, require_claim, lambda *_: None)
