"""What retention keeps for a callback that is behind, and when it stops to."""

from __future__ import annotations

from eventd.log.retention.evict import EvictionLimits, evict
from eventd.log.topics.limits import sweep
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch
from eventd.testing import ManualClock
from tests.contract.egress.conftest import BOTH_DATABASES
from tests.support.callback_receivers import Receiver
from tests.support.called_back import CalledBack, callback

HOUR = 3600 * 1_000_000
NOTHING_STAYS = EvictionLimits(max_records=0, keep_undelivered=False)


async def _evicted(called: CalledBack) -> int:
    cursor = await called.cursor()
    done = await called.log.database.write(evict, cursor.topic_id, NOTHING_STAYS, now=called.clock.now())
    return done.upto_seq


@BOTH_DATABASES
async def test_events_are_kept_for_a_failing_callback_until_its_hold_ends(
    called: CalledBack, receiver: Receiver, clock: ManualClock
) -> None:
    receiver.always(503)
    await called.declare(callback(receiver.url, hold=2 * HOUR))
    await called.emit("e1", "e2")
    await called.failed(1)
    assert await _evicted(called) == 0
    for attempts in range(2, 35):  # the node tries all the time
        clock.advance(200)
        await called.failed(attempts)
    assert await _evicted(called) == 0
    for attempts in range(35, 39):
        clock.advance(200)
        await called.failed(attempts)
    assert await _evicted(called) == 2


async def test_the_hold_begins_with_the_first_failure_however_long_nothing_happened(
    called: CalledBack, receiver: Receiver, clock: ManualClock
) -> None:
    await called.declare(callback(receiver.url, hold=2 * HOUR))
    await called.emit("e1")
    await called.caught_up()
    clock.advance(3 * 3600)
    receiver.always(503)
    await called.emit("e2")
    await called.failed(1)
    assert await _evicted(called) == 1  # what was delivered


async def test_a_callback_without_a_hold_keeps_nothing(called: CalledBack, receiver: Receiver) -> None:
    receiver.always(503)
    await called.declare(callback(receiver.url, hold=None))
    await called.emit("e1")
    await called.failed(1)
    assert await _evicted(called) == 1


async def test_a_disabled_callback_keeps_nothing(called: CalledBack, receiver: Receiver) -> None:
    receiver.always(410)
    await called.declare(callback(receiver.url, hold=2 * HOUR, disable_after=HOUR))
    await called.emit("e1")
    await called.failed(1)
    assert (await called.cursor()).paused_by == "the node"
    assert await _evicted(called) == 1


async def test_what_is_delivered_is_kept_no_longer(called: CalledBack, receiver: Receiver) -> None:
    await called.declare(callback(receiver.url, hold=2 * HOUR))
    await called.emit("e1")
    await called.caught_up()
    assert await _evicted(called) == 1


def _limit(conn: Connection, name: str) -> None:
    execute(conn, "UPDATE topics SET config = ?, due_at = 1 WHERE name = ?", ('{"ttl_ms":1000}', name))


def _stored(conn: Connection, name: str) -> int:
    sql = "SELECT coalesce(sum(records), 0) FROM blocks JOIN topics t ON t.id = topic_id WHERE name = ?"
    return int(fetch(conn, sql, (name,))[0][0])


async def test_records_outlive_their_time_for_a_callback_that_is_behind(
    called: CalledBack, receiver: Receiver, clock: ManualClock
) -> None:
    await called.write("t", "orders")
    await called.log.database.write(_limit, "orders")
    receiver.always(503)
    await called.declare(callback(receiver.url, group="", topic="orders", hold=2 * HOUR))
    await called.write("t", "orders", count=3)
    await called.failed(1)
    clock.advance(5)
    await called.log.database.write(sweep, clock.now())
    assert await called.log.database.read(_stored, "orders") == 3, "the first one was not for the callback"
    cursor = await called.failed(2)
    receiver.always(204)
    await called.rest(cursor)
    await called.caught_up()
    assert len(receiver.accepted) == 3
    clock.advance(5)
    await called.log.database.write(sweep, clock.now())
    assert await called.log.database.read(_stored, "orders") == 0
