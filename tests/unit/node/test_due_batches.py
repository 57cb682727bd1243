"""Which batches of a subscriber are due: full ones, and those whose window or retry ends soon enough."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eventd.log.cursors.cursors import Cursor, LinkState
from eventd.log.routemaster.backlog import QueuedEvents, SubscriberState
from eventd.node.due_batches import due_batches
from eventd.runtime.clock import SECOND
from eventd.store.rows.routemaster import SubscriberRow
from eventd.testing import NOW

WITHIN = SECOND
HOUR_MS = 3_600_000


def state(queued: int, *, most: int = 3, timeout_ms: int = 500, oldest: int = NOW) -> SubscriberState:
    row = SubscriberRow("app--1", "https://app.example", "", timeout_ms, most)
    return SubscriberState(row, QueuedEvents(queued, oldest if queued else None))


def cursor(retry_in: int | None) -> Cursor:
    """The cursor of a subscriber, whose retry is due in so many seconds; None: it works."""
    found = Cursor("callback:rm/app--1", "callback", 1, 0)
    if retry_in is None:
        return found
    return replace(found, state=LinkState.BACKING_OFF, retry_at=NOW + retry_in * SECOND)


@pytest.mark.parametrize(
    ("waiting", "retry_in", "due"),
    [
        (state(0), None, 0),
        (state(1), None, 1),  # its window ends in half a second
        (state(1, timeout_ms=0), None, 1),
        (state(1, timeout_ms=10_000), None, 0),
        (state(1, timeout_ms=10_000, oldest=NOW - 9 * SECOND), None, 1),
        (state(2, timeout_ms=HOUR_MS), None, 0),
        (state(3, timeout_ms=HOUR_MS), None, 1),  # full
        (state(7, timeout_ms=HOUR_MS), None, 2),
        (state(7), None, 3),
        (state(20_001, most=50_000, timeout_ms=HOUR_MS), None, 2),  # as large as batches get
        (state(1), 1, 1),
        (state(1), 2, 0),  # its retry is not due yet
        (state(7), 2, 2),
        (state(7), -5, 3),
    ],
)
def test_due_batches(waiting: SubscriberState, retry_in: int | None, due: int) -> None:
    assert due_batches(waiting, cursor(retry_in), NOW, WITHIN) == due
