"""Bugs that a simulation has to find, as patches of the product: the proof that its checks can fail."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

import msgspec
import pytest

from eventd.egress.loop.consumer import Consumer
from eventd.egress.loop.sink import Ack, LinkUnavailable
from eventd.egress.peers import push_v2
from eventd.egress.peers.push_v2 import PushV2
from eventd.ingress import batch
from eventd.log.core import append, eventlog, head
from eventd.log.core.head import Recovery, recover
from eventd.store.engine import engines
from eventd.store.engine.database import Connection, Database
from eventd.store.engine.head_file import HeadMark
from eventd.store.engine.statements import bulk_insert, execute
from federation.ranges import Mark, Range, Step, follow

Patch = Callable[[pytest.MonkeyPatch], None]


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

        answer = self._writer.submit(try_out)
        self._writer.submit(self._write, fn, durable)
        return answer

    patch.setattr(Database, "start_write", start_write)


def leave_out_syncs(patch: pytest.MonkeyPatch) -> None:
    """Never sync the database."""
    prepare = engines._prepare_sqlite

    def prepare_unsynced(connection: Any) -> None:
        prepare(connection)
        connection.execute("PRAGMA synchronous=OFF")

    patch.setattr(engines, "_prepare_sqlite", prepare_unsynced)


def move_cursor_without_receipt(patch: pytest.MonkeyPatch) -> None:
    """Take a missing answer for a receipt."""
    push = PushV2.push

    async def push_once(self: PushV2, outbound: Any) -> Ack:
        try:
            return await push(self, outbound)
        except LinkUnavailable as error:
            if error.reason in ("timeout", "unreachable"):
                return Ack(outbound.upto, (), (), push_v2.V2)
            raise

    patch.setattr(PushV2, "push", push_once)


def settle_out_of_order(patch: pytest.MonkeyPatch) -> None:
    """Settle the last batch that is done, and with it those before it, whether they are done or not."""

    async def settle_last(self: Any, progress: Any, cursor: Any) -> None:
        done = [at for at, (_, task) in enumerate(self._flying) if task.done()]
        last = done[-1] if done else 0
        batch, task = self._flying[last]
        await self._settle(progress, cursor, batch, await task)
        for _ in range(last + 1):
            self._flying.popleft()

    patch.setattr(Consumer, "_settle_first", settle_last)


def take_batches_ahead(patch: pytest.MonkeyPatch) -> None:
    """Store a batch that begins beyond the mark, as if nothing were missing before it."""

    def follow_blindly(mark: Mark | None, covered: Range) -> Step:
        if mark is not None and mark.epoch == covered.epoch and (covered.after or 0) > mark.upto:
            mark = msgspec.structs.replace(mark, upto=covered.after)
        return follow(mark, covered)

    patch.setattr(batch, "follow", follow_blindly)


def forget_receipts(patch: pytest.MonkeyPatch) -> None:
    """Keep no receipt of what is stored, so that a repeated batch is counted anew."""
    patch.setattr(batch, "keep_receipt", lambda *_args, **_options: None)


def forget_ids(patch: pytest.MonkeyPatch) -> None:
    """Take every id for a new one."""

    def insert_anew(conn: Connection, table: str, names: Any, rows: Any) -> None:
        if table == "event_ids":
            for row in rows:
                execute(conn, "DELETE FROM event_ids WHERE topic_id = ? AND event_id = ?", row[:2])
        bulk_insert(conn, table, names, rows)

    patch.setattr(append, "read_known", lambda *_: {})
    patch.setattr(append, "bulk_insert", insert_anew)


def begin_epochs_at_will(patch: pytest.MonkeyPatch) -> None:
    """Begin a new epoch at every start."""

    def recover_anew(conn: Connection, acknowledged: HeadMark | None) -> Recovery:
        head.renew_epoch(conn)
        return recover(conn, None)

    patch.setattr(eventlog, "recover", recover_anew)


BUGS: Final[dict[str, Patch]] = {
    bug.__name__: bug
    for bug in (
        acknowledge_before_commit,
        leave_out_syncs,
        move_cursor_without_receipt,
        settle_out_of_order,
        take_batches_ahead,
        forget_receipts,
        forget_ids,
        begin_epochs_at_will,
    )
}
