"""What waits for subscribers, as the states of their callbacks show it: the log is read once for all of them."""

from __future__ import annotations

import pytest

from eventd.groups import callbacks
from eventd.groups.callbacks import CallbackStatus, read_callback_statuses, read_callbacks
from eventd.log.core.eventlog import EventLog
from eventd.runtime.clock import SECOND
from eventd.store.engine.database import Connection
from eventd.testing import NOW, ManualClock
from tests.contract.log.routemaster.test_routemaster_log import emit, settle, subscribe


def _read(conn: Connection) -> list[CallbackStatus]:
    return read_callback_statuses(conn, [*read_callbacks(conn).values()], NOW + 60 * SECOND)


async def statuses(log: EventLog) -> dict[str, tuple[int, bool, int]]:
    """The waiting events of each subscriber, whether that is all, and the age of the oldest in seconds."""
    return {
        one.callback.config.name.removeprefix("rm/"): (
            one.backlog.events,
            one.backlog.exact,
            one.backlog.lag(NOW + 60 * SECOND) // SECOND,
        )
        for one in await log.database.read(_read)
    }


async def test_events_are_counted_for_each_by_its_topics_and_position(log: EventLog, clock: ManualClock) -> None:
    await subscribe(log, "behind--1", "orders", "users")
    await subscribe(log, "users--1", "users")
    for topic in ("orders", "users", "orders"):
        await emit(log, topic)
        clock.advance(10)
    assert await statuses(log) == {"behind--1": (3, True, 60), "users--1": (1, True, 50)}
    await settle(log, 2, "behind--1")
    await settle(log, 3, "users--1")
    assert await statuses(log) == {"behind--1": (1, True, 40), "users--1": (0, True, 0)}


async def test_of_one_that_is_far_behind_the_oldest_event_is_known_and_the_number_is_a_lower_bound(
    log: EventLog, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await subscribe(log, "behind--1", "orders")
    await subscribe(log, "app--1", "orders")
    for _ in range(6):
        await emit(log)
        clock.advance(1)
    await settle(log, 5, "app--1")
    monkeypatch.setattr(callbacks, "MOST_BLOCKS", 2)
    assert await statuses(log) == {"behind--1": (2, False, 60), "app--1": (1, True, 55)}


async def test_more_than_a_thousand_are_not_counted_to_the_end(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    await subscribe(log, "app--1", "orders")
    for _ in range(5):
        await emit(log)
    monkeypatch.setattr(callbacks, "COUNTED", 4)
    assert await statuses(log) == {"app--1": (4, False, 60)}
