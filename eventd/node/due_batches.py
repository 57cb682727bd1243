"""Counts the batches that are due to subscribers of the Routemaster surface, for its scaling probe."""

from __future__ import annotations

from eventd.log.core.eventlog import EventLog
from eventd.log.cursors.cursors import Cursor, LinkState, read_cursors
from eventd.log.routemaster.backlog import SubscriberState, read_states
from eventd.resources.subscriber_configuration import MOST_EVENTS
from eventd.runtime.clock import SECOND
from eventd.store.engine.database import Connection
from eventd.store.rows.callback_cursors import CALLBACK


class DueSubscriberBatches:
    """Counts due batches: those that are full, and those whose window or retry ends soon."""

    def __init__(self, log: EventLog) -> None:
        self._log = log

    async def count_due(self, within: float) -> int:
        """Return the number of batches that are due within this many seconds."""
        return await self._log.database.read(_count, self._log.clock.now(), int(within * SECOND))


def _count(conn: Connection, now: int, within: int) -> int:
    cursors = {cursor.name: cursor for cursor in read_cursors(conn, CALLBACK)}
    return sum(due_batches(state, cursors.get(state.row.cursor), now, within) for state in read_states(conn))


def waiting_batches(state: SubscriberState) -> int:
    """Return into how many batches the events that wait for a subscriber will be divided."""
    return -(-state.backlog.queued // min(state.row.max_events, MOST_EVENTS))


def due_batches(state: SubscriberState, cursor: Cursor | None, now: int, within: int) -> int:
    """Return how many of these batches are due within this many microseconds.

    A batch that failed is due when its retry is.
    """
    row, waiting = state.row, state.backlog
    if not waiting.queued or waiting.oldest is None:
        return 0
    full, rest = divmod(waiting.queued, min(row.max_events, MOST_EVENTS))
    # The window of the last batch opens with its own first event, at this time or later.
    closes_first = waiting.oldest + row.timeout_ms * 1000
    due = full + (rest > 0 and closes_first <= now + within)
    is_waiting = cursor is not None and cursor.state is not LinkState.RUNNING and cursor.retry_at is not None
    if is_waiting and cursor is not None and (cursor.retry_at or 0) > now + within:
        due -= 1
    return max(0, due)
