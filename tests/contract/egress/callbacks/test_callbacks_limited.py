"""How fast a callback gets events that wait, and what operators see meanwhile."""

from __future__ import annotations

from functools import partial

import pytest

from eventd.api.admin.callbacks.callbacks import describe_callback
from eventd.resources.apply import apply_loaded
from eventd.resources.reading.documents import load_text
from eventd.testing import ManualClock, give_turns, until
from tests.support.callback_receivers import Receiver
from tests.support.called_back import CalledBack, callback
from tests.support.declared import callback as resource
from tests.support.declared import declare, group


async def shown(called: CalledBack) -> tuple[str, str]:
    found = await called.log.database.read(describe_callback, "hook", called.clock.now())
    return found["state"], found["reason"]


def has_accepted(receiver: Receiver, number: int) -> bool:
    return len(receiver.accepted) == number


@pytest.mark.parametrize(("format", "batch"), [("standard", 1), ("batch", 2)])
async def test_requests_beyond_the_rate_wait_and_the_reason_is_shown(
    called: CalledBack, receiver: Receiver, clock: ManualClock, format: str, batch: int
) -> None:
    text = declare(group("a", name="g"), resource("hook", group="g"))
    await called.log.database.write(apply_loaded, load_text("a.yaml", text), now=clock.now())
    await called.declare(callback(receiver.url, per_second=2, format=format, max_events=batch))
    await called.emit(*[f"e{number}" for number in range(6 * batch)])
    for sent in (2, 3, 4, 5):  # those of the bucket at once, then one every half second
        await until(partial(has_accepted, receiver, sent))
        await until(lambda: clock.waits, "a wait")
        await give_turns()
        assert len(receiver.accepted) == sent
        assert await shown(called) == ("running", "" if sent == 2 else "rate_limited")
        clock.advance(0.5)
    await called.caught_up()
    assert len(receiver.accepted) == 6
    assert await shown(called) == ("running", ""), "nothing waits any more"
    clock.advance(60)
    await called.emit(*[f"f{number}" for number in range(2 * batch)])
    await called.caught_up()
    assert (len(receiver.accepted), (await called.cursor()).reason) == (8, ""), "the bucket is full again"
