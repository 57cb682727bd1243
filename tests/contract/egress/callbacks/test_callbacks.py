"""What a callback's endpoint receives: formats, batches, order, retries of the same bytes."""

from __future__ import annotations

from eventd.testing import NOW, ManualClock, give_turns, until
from tests.contract.egress.conftest import BOTH_DATABASES
from tests.support.callback_receivers import CUT, Receiver, Reply
from tests.support.called_back import CalledBack, callback


@BOTH_DATABASES
async def test_every_event_is_a_request_in_order(called: CalledBack, receiver: Receiver) -> None:
    await called.declare(callback(receiver.url))
    await called.emit("e1", "e2", subject="10.0.0.1", payload={"k": "v"})
    await called.emit("e3")
    await until(lambda: receiver.events == ["e1", "e2", "e3"])
    first = receiver.accepted[0]
    assert first.json == {
        "type": "t",
        "timestamp": "2026-11-20T12:00:00Z",
        "data": {"k": "v"},
        "id": "e1",
        "subject": "10.0.0.1",
        "source": "a",
    }
    assert first.id == "e1"
    assert first.head.startswith("POST /hooks/ HTTP/1.1\r\nHost: 127.0.0.1:")
    assert first.headers["content-type"] == "application/json"
    assert first.headers["webhook-timestamp"] == str(NOW // 1_000_000)
    assert "webhook-signature" not in first.headers, "it has no key"

    await called.caught_up()
    found = await called.attempts()
    assert sum(one.events for one in found) == sum(one.requests for one in found) == 3
    assert {one.status for one in found} == {204}


async def test_the_declared_headers_are_sent(called: CalledBack, receiver: Receiver) -> None:
    await called.declare(callback(receiver.url, headers=(("X-Env", "prod"), ("X-Shop", "7"))))
    await called.emit("e1")
    await called.caught_up()
    (request,) = receiver.requests
    assert (request.headers["x-env"], request.headers["x-shop"]) == ("prod", "7")


async def test_a_failed_request_is_repeated_with_the_same_id_and_bytes(
    called: CalledBack, receiver: Receiver, clock: ManualClock
) -> None:
    receiver.always(503)
    await called.declare(callback(receiver.url))
    await called.emit("e1", "e2")
    await called.pass_failures(3)
    cursor = await called.cursor()
    assert (cursor.state, cursor.reason, cursor.attempts) == ("backing-off", "http_503", 3)
    assert cursor.retry_at == clock.now() + 4_000_000
    receiver.always(200)
    await called.rest(cursor)
    await until(lambda: receiver.events == ["e1", "e2"])
    assert len({(one.id, one.body) for one in receiver.requests[:4]}) == 1
    assert [one.attempt for one in await called.attempts() if one.reason] == [3, 2, 1]


async def test_a_lost_answer_is_a_repetition(called: CalledBack, receiver: Receiver) -> None:
    receiver.answer = lambda request: Reply(CUT if len(receiver.requests) == 1 else 204)
    await called.declare(callback(receiver.url))
    await called.emit("e1")
    cursor = await called.failed(1)
    assert cursor.reason == "unreachable"
    await called.rest(cursor)
    await until(lambda: receiver.events == ["e1"])
    assert receiver.requests[0].body == receiver.requests[1].body


async def test_batches_close_by_count_and_by_time_since_recording(
    called: CalledBack, receiver: Receiver, clock: ManualClock
) -> None:
    await called.declare(callback(receiver.url, format="batch", max_events=3, window=500_000))
    await called.emit(*[f"e{number}" for number in range(7)])
    await until(lambda: len(receiver.events) == 6)
    await until(lambda: clock.waits)
    await give_turns()
    assert [len(one.json) for one in receiver.accepted] == [3, 3]
    clock.advance(0.5)
    await until(lambda: len(receiver.events) == 7)
    assert [len(one.json) for one in receiver.accepted] == [3, 3, 1]


async def test_an_open_window_takes_what_comes_until_it_closes(
    called: CalledBack, receiver: Receiver, clock: ManualClock
) -> None:
    await called.declare(callback(receiver.url, format="batch", max_events=100, window=500_000))
    await called.emit("e0")
    await until(lambda: clock.waits)
    for number in range(1, 5):
        await called.emit(f"e{number}")
        await give_turns()
    assert receiver.requests == []
    clock.advance(0.5)
    await until(lambda: receiver.events == [f"e{number}" for number in range(5)])
    assert len(receiver.requests) == 1
    await called.emit("e5")
    await until(lambda: clock.waits)
    await called.emit(*[f"e{number}" for number in range(6, 105)])  # full: closes at once
    await until(lambda: len(receiver.events) == 105)
    assert [len(one.json) for one in receiver.accepted] == [5, 100]


async def test_a_batch_that_failed_gets_nothing_added(called: CalledBack, receiver: Receiver) -> None:
    receiver.always(503)
    await called.declare(callback(receiver.url, format="batch", max_events=100))
    await called.emit("e1", "e2")
    cursor = await called.failed(1)
    await called.emit("e3")
    receiver.always(200)
    await called.rest(cursor)
    await until(lambda: receiver.events == ["e1", "e2", "e3"])
    assert [one.body for one in receiver.requests[:2]] == [receiver.requests[0].body] * 2
    assert [len(one.json) for one in receiver.accepted] == [2, 1]


async def test_a_batch_under_way_at_a_crash_is_the_same_afterwards(called: CalledBack, receiver: Receiver) -> None:
    receiver.answer = lambda _: Reply(204, delay=30)
    await called.declare(callback(receiver.url, format="batch", max_events=100, timeout=60.0))
    await called.emit("e1", "e2")
    await until(lambda: len(receiver.requests) == 1)
    await called.emit("e3")
    receiver.always(200)
    await called.restart()
    await until(lambda: receiver.events[-1:] == ["e3"])
    assert receiver.requests[1].body == receiver.requests[0].body
    assert receiver.requests[1].id == receiver.requests[0].id
