"""Counts refused and failed actions, and stores at most one row a minute for equal ones.

So neither a client that repeats a failing request nor a client without a valid key can fill the record. A process that
is killed loses about the last minute of counts, but no action that took effect.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from eventd.errors import EventdError
from eventd.log.core.head import lock_head
from eventd.runtime.clock import SECOND, Clock
from eventd.store.engine.database import Connection, Database
from eventd.store.rows.actions import ActionRow, add_action, find_similar

ROW_SECONDS: Final = 60
"""Seconds between two rows of one kind."""
LOOK_SECONDS: Final = 5.0
"""Seconds between two writes of the due counts."""
MOST_KINDS: Final = 1000
"""Maximum number of kinds in one minute; further ones are stored without their objects."""

_Kind = tuple[str, ...]

logger = logging.getLogger("eventd.actions")


class RefusedActions:
    """The refused and failed actions of one process that are not stored yet, by caller, operation, object and code."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._waiting: dict[_Kind, ActionRow] = {}
        self._written: dict[_Kind, float] = {}

    async def add(self, row: ActionRow) -> None:
        """Count an action, and store it now unless an equal one was stored in the last minute."""
        kind = _kind_of(row)
        if kind not in self._waiting and len(self._waiting) + len(self._written) >= MOST_KINDS:
            row = replace(row, object="", arguments="{}")
            kind = _kind_of(row)
        self._count(kind, row)
        if not self._is_written(kind):
            await self._write([kind], ends=False)

    def _count(self, kind: _Kind, row: ActionRow) -> None:
        before = self._waiting.get(kind)
        newest = row if before is None or row.at >= before.at else before
        self._waiting[kind] = replace(newest, count=row.count + (before.count if before else 0))

    def _is_written(self, kind: _Kind) -> bool:
        at = self._written.get(kind)
        return at is not None and self._clock.monotonic() - at < ROW_SECONDS

    async def write_for_ever(self) -> None:
        """Store the due counts every few seconds, until cancelled."""
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            await self.write()

    async def write(self, *, ends: bool = False) -> None:
        """Store the counts of kinds without a row in the last minute; all counts if the process `ends`."""
        self._written = {kind: at for kind, at in self._written.items() if self._is_written(kind)}
        due = [kind for kind in self._waiting if ends or kind not in self._written]
        if due:
            await self._write(due, ends=ends)

    async def _write(self, kinds: Sequence[_Kind], *, ends: bool) -> None:
        """Store the counts of these kinds. A failure is logged, and the counts are kept for the next write."""
        due = {kind: self._waiting.pop(kind) for kind in kinds}
        now = self._clock.monotonic()
        self._written |= dict.fromkeys(due, now)
        after = None if ends else self._clock.now() - ROW_SECONDS * SECOND
        try:
            left = await self._database.write(_store, list(due.values()), after)
        except EventdError as error:
            left = list(due.values())
            logger.warning("recording failed", extra={"error": str(error)})
        for row in left:  # another process has stored an equal one
            self._count(_kind_of(row), row)


def _kind_of(row: ActionRow) -> _Kind:
    return row.kind, row.who, row.operation, row.object, row.result


def _store(conn: Connection, rows: Sequence[ActionRow], after: int | None) -> list[ActionRow]:
    """Store rows, except those for which an equal row later than `after` is stored (`after` None: store all).

    Return the rows that were not stored.
    """
    lock_head(conn)
    left = []
    for row in rows:
        if after is not None and find_similar(conn, row, after) is not None:
            left.append(row)
        else:
            add_action(conn, row)
    return left
