"""Interface that stores a consumer's position and failures, and its usual form: one stored cursor."""

from __future__ import annotations

from typing import Protocol

from eventd.egress.loop.sink import Ack
from eventd.log.core.eventlog import EventLog
from eventd.log.cursors.cursors import Cursor, read_cursor
from eventd.log.cursors.steps import Postponement, Step


class CursorStore(Protocol):
    """Interface: reads and stores a consumer's position and its failures."""

    async def read(self) -> Cursor:
        """Return the cursor: its position, and when to try next. Raises `NotFound` if it was deleted."""
        ...

    async def settle(self, step: Step, ack: Ack | None = None) -> None:
        """Move the cursor by this step, and write the effect of the delivery in the same transaction.

        Raises `FenceLost` if the cursor has another position or selection than the step says.
        """
        ...

    async def postpone(self, failure: Postponement) -> None:
        """Record a failed attempt, with the time of the next one."""
        ...


class StoredCursor:
    """Stores a consumer's position in one cursor of the database."""

    def __init__(self, log: EventLog, name: str) -> None:
        self._log = log
        self._name = name
        self.postpone = log.postpone

    async def read(self) -> Cursor:
        return await self._log.database.read_for_delivery(read_cursor, self._name)

    async def settle(self, step: Step, ack: Ack | None = None) -> None:
        await self._log.settle(step, None if ack is None else ack.effect)
