"""Bugs that a simulation has to find, as patches of the product: the proof that its checks can fail."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final

import pytest

from eventd.egress.loop.sink import Ack, LinkUnavailable
from eventd.egress.peers import push_v2
from eventd.egress.peers.push_v2 import PushV2
from eventd.store.engine import engines
from eventd.store.engine.database import Connection, Database

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


BUGS: Final[dict[str, Patch]] = {
    bug.__name__: bug for bug in (acknowledge_before_commit, leave_out_syncs, move_cursor_without_receipt)
}
