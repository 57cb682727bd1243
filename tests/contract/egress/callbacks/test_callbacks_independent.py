"""Each callback has its own pace: one that is slow, or on which this node fails, holds up no other."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from eventd.egress.callbacks import delivery
from eventd.egress.callbacks.formats import CallbackItem
from eventd.egress.transport.origin_limit import MOST_CONNECTIONS
from eventd.testing import ManualClock, give_turns, until
from tests.support.callback_receivers import HANG, Received, Receiver, Reply
from tests.support.called_back import CalledBack, callback


@pytest.fixture
async def other(called: CalledBack) -> AsyncIterator[Receiver]:
    made = await Receiver().start()
    yield made
    await called.callbacks.stop(0.0)
    await made.stop()


async def test_many_slow_endpoints_hold_up_no_other(called: CalledBack, receiver: Receiver, other: Receiver) -> None:
    other.answer = lambda _: Reply(HANG)
    for number in range(12):
        await called.declare(callback(other.url, name=f"slow-{number}", timeout=3600.0))
    await called.declare(callback(receiver.url))
    await called.emit("e1")
    await until(lambda: len(other.requests) == 12)
    await called.emit("e2", "e3")
    await until(lambda: receiver.events == ["e1", "e2", "e3"])
    assert len(other.requests) == 12


async def test_callbacks_at_one_endpoint_share_its_connections(called: CalledBack, receiver: Receiver) -> None:
    receiver.gate.clear()
    names = [f"hook-{number}" for number in range(MOST_CONNECTIONS + 4)]
    for name in names:
        await called.declare(callback(receiver.url, name=name, timeout=3600.0))
    await called.emit("e1")
    await until(lambda: len(receiver.requests) == MOST_CONNECTIONS)
    await give_turns()
    assert receiver.connections == MOST_CONNECTIONS
    receiver.gate.set()
    for name in names:
        await called.caught_up(name)
    assert len(receiver.requests) == len(names)


async def test_a_fault_of_this_node_ends_one_callback_alone_until_it_is_tried_again(
    called: CalledBack, receiver: Receiver, other: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    body_of = delivery.body_of

    def break_batches(items: list[CallbackItem], format: str, topic: str, epoch: str) -> bytes:
        if format == "batch":
            raise RuntimeError("a defect")
        return body_of(items, format, topic, epoch)

    monkeypatch.setattr(delivery, "body_of", break_batches)
    await called.declare(callback(other.url, name="broken", format="batch"))
    await called.declare(callback(receiver.url))
    await called.emit("e1", "e2")
    await until(lambda: receiver.events == ["e1", "e2"])
    cursor = await called.failed(1, "broken")
    assert (cursor.state, cursor.reason) == ("failed", "internal")
    assert "RuntimeError" in cursor.last_error
    monkeypatch.setattr(delivery, "body_of", body_of)
    await called.rest(cursor)
    await until(lambda: other.events == ["e1", "e2"])


@pytest.mark.parametrize("format", ["standard", "batch", "routemaster"])
async def test_one_request_is_under_way_at_a_time(
    called: CalledBack, receiver: Receiver, clock: ManualClock, format: str
) -> None:
    """Order is strict: the next request begins once the answer to the one before has come."""

    def answer(_: Received) -> Reply:
        return Reply(503 if len(receiver.requests) % 5 == 3 else 204, delay=0.003)

    receiver.answer = answer
    source = {"group": "", "topic": "rm"} if format == "routemaster" else {}
    await called.write("x", "rm")
    await called.declare(callback(receiver.url, format=format, max_events=1 if format == "standard" else 2, **source))
    for number in range(12):
        await called.emit(f"e{number:02}")
        await called.write("orders.create", "rm", data=f'{{"url":"https://x/{number:02}","t":1}}')

    async def delivered() -> bool:
        clock.advance(70)
        return len(_names(receiver)) == 12

    await until(delivered)
    assert _names(receiver) == sorted(_names(receiver))
    assert len(receiver.requests) > len(receiver.accepted)
    assert receiver.most_at_once == 1


def _names(receiver: Receiver) -> list[str]:
    bodies = [request.json for request in receiver.accepted]
    events = [event for body in bodies for event in (body if isinstance(body, list) else [body])]
    return [event.get("id") or event["url"] for event in events]
