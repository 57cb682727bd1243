"""The rate of a callback: one bucket for all that is sent to its endpoint."""

from __future__ import annotations

import asyncio

import pytest

from eventd.egress.callbacks.rate import RateLimiter
from eventd.egress.callbacks.selection import CallbackSelection
from eventd.log.cursors.cursors import create_cursor
from eventd.store.rows.callback_cursors import RESEND
from eventd.testing import NOW, ManualClock, give_turns, until
from federation.selector import Selector
from tests.support.callback_receivers import Receiver
from tests.support.called_back import CalledBack, callback


async def test_a_callback_and_its_resends_share_their_rate_and_its_reason_is_shown(
    called: CalledBack, receiver: Receiver, clock: ManualClock
) -> None:
    await called.declare(callback(receiver.url))
    await called.emit(*[f"e{number}" for number in range(20)])
    before = await called.caught_up()
    for number in (1, 2, 3):
        await called.log.database.write(
            create_cursor,
            f"{RESEND}:hook#{number}",
            kind=RESEND,
            topic_id=before.topic_id,
            position=0,
            until=20,
            selection=CallbackSelection(Selector()).to_json(),
            now=NOW,
        )
    receiver.requests.clear()
    await called.declare(callback(receiver.url, per_second=2))
    await called.emit(*[f"f{number}" for number in range(5)])
    await until(lambda: len(receiver.requests) == 2, "what the bucket holds")
    assert (before.state, before.reason) == ("running", "")
    passed, reasons = 0.0, set()
    while len(receiver.requests) < 40:
        await until(lambda: clock.waits, "a request that waits for its turn")
        assert len(receiver.requests) <= 2 + 2 * passed
        clock.advance(0.5)
        passed += 0.5
        assert passed <= 20, "turns are lost"
        cursor = await called.cursor()
        reasons.add((str(cursor.state), cursor.reason, cursor.attempts))
    assert reasons <= {("running", "", 0), ("running", "rate_limited", 0)}
    assert ("running", "rate_limited", 0) in reasons
    assert len({request.headers.get("routerd-repair") for request in receiver.requests}) == 2


async def test_a_request_that_is_given_up_while_it_waits_leaves_its_turn_to_the_next(clock: ManualClock) -> None:
    rate = RateLimiter(1, clock)
    assert not await rate.wait()
    waiting = [asyncio.create_task(rate.wait()) for _ in range(5)]
    await asyncio.sleep(0)
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    last = asyncio.create_task(rate.wait())
    await asyncio.sleep(0)
    clock.advance(1)
    await until(last.done, "the turn of the last one")
    assert last.result(), "it had to wait"


@pytest.mark.parametrize("step", [-7200.0, 7200.0])
async def test_a_step_of_the_wall_clock_does_not_change_the_rate(
    called: CalledBack, receiver: Receiver, clock: ManualClock, step: float
) -> None:
    await called.declare(callback(receiver.url, per_second=1))
    await called.emit("e1", "e2")
    await until(lambda: receiver.events == ["e1"])
    await until(lambda: clock.waits, "the second request to wait for its turn")
    clock.set_wall(clock.now() + int(step * 1e6))
    await give_turns()
    assert receiver.events == ["e1"]
    clock.advance(1)
    await until(lambda: receiver.events == ["e1", "e2"])
    sent_at = [int(request.headers["webhook-timestamp"]) for request in receiver.requests]
    assert sent_at == [NOW // 10**6, clock.now() // 10**6], "the time at which it is sent, after the wait"
