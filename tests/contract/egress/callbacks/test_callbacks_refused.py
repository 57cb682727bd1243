"""What a callback does with answers other than 2xx: what it waits for, what it gives up, and with which proof."""

from __future__ import annotations

import pytest

from eventd.egress.callbacks import sink
from eventd.testing import NOW, ManualClock, give_turns, until
from eventd.text.duration import HOUR
from tests.contract.egress.conftest import BOTH_DATABASES
from tests.support.callback_receivers import HANG, Received, Receiver, Reply
from tests.support.called_back import HOURLY, CalledBack, callback


def refusing(*poison: str, status: int = 400) -> object:
    """Answer with `status` to every request that contains one of these events."""

    def answer(request: Received) -> Reply:
        return Reply(status if any(f'"id":"{id}"'.encode() in request.body for id in poison) else 204)

    return answer


@BOTH_DATABASES
async def test_an_event_is_given_up_once_the_endpoint_accepts_the_next_one(
    called: CalledBack, receiver: Receiver
) -> None:
    receiver.answer = refusing("bad")  # type: ignore[assignment]
    await called.declare(callback(receiver.url))
    await called.emit("e1", "bad", "e2", "e3")
    await called.pass_failures(4)
    assert await called.letters() == []
    await called.rest(await called.cursor())
    await until(lambda: receiver.events == ["e1", "e2", "e3"])
    await called.caught_up()
    (letter,) = await called.letters()
    assert (letter.event_id, letter.reason, letter.attempts) == ("bad", "http_400", 6)
    assert [one.id for one in receiver.accepted] == ["e1", "e2", "e3"], "the one sent ahead is not sent again"
    assert (await called.cursor()).state == "running"


@BOTH_DATABASES
async def test_an_endpoint_that_recovers_before_the_event_sent_ahead_gets_the_refused_one_again(
    called: CalledBack, receiver: Receiver
) -> None:
    """It has refused the first event for as long as it refused all: its acceptance of the second proves nothing."""
    receiver.answer = lambda request: Reply(204 if b'"id":"e2"' in request.body or receiver.events else 400)
    await called.declare(callback(receiver.url, isolate_after=2))
    await called.emit("e1", "e2", "e3")
    await called.pass_failures(1)
    await called.rest(await called.cursor())
    await called.caught_up()
    assert [one.id for one in receiver.accepted] == ["e2", "e1", "e3"], "the one sent ahead is not sent again"
    assert await called.letters() == []
    assert (await called.cursor()).state == "running"


async def test_an_endpoint_that_asks_for_time_after_the_proof_gets_the_proof_only_once(
    called: CalledBack, receiver: Receiver
) -> None:
    answers = iter([400, 400, 204, 429, 400, 204, 204])  # e1, e1, e2 ahead, e1, e1 again, and then the rest
    receiver.answer = lambda request: Reply(next(answers))
    await called.declare(callback(receiver.url, isolate_after=2))
    await called.emit("e1", "e2", "e3")
    await called.pass_failures(1)
    await called.rest(await called.cursor())
    await called.rest(await called.failed(2))
    await called.caught_up()
    assert [one.id for one in receiver.accepted] == ["e2", "e3"], "what was sent ahead is not sent again"
    assert [letter.event_id for letter in await called.letters()] == ["e1"]


async def test_the_search_for_another_event_passes_expired_ones_in_few_reads(
    called: CalledBack, receiver: Receiver, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver.answer = refusing("bad")  # type: ignore[assignment]
    await called.declare(callback(receiver.url, isolate_after=2))
    await called.emit("bad")
    await called.emit(*(f"brief{number}" for number in range(1000)), expires=NOW + 1)
    await called.emit("e1")
    await called.pass_failures(1)
    reads, read = [], sink._read
    monkeypatch.setattr(sink, "_read", lambda *given: reads.append(given) or read(*given))
    await called.rest(await called.cursor())
    await called.caught_up()
    assert receiver.events == ["e1"]
    assert [letter.event_id for letter in await called.letters()] == ["bad"]
    assert len(reads) < 20


async def test_an_endpoint_that_refuses_everything_has_nothing_given_up(called: CalledBack, receiver: Receiver) -> None:
    receiver.always(500)
    await called.declare(callback(receiver.url))
    await called.emit("e1", "e2")
    await called.pass_failures(7)
    cursor = await called.cursor()
    assert (cursor.state, cursor.reason) == ("backing-off", "unproven")
    assert await called.letters() == []
    receiver.always(204)
    await called.rest(cursor)
    await until(lambda: receiver.events == ["e1", "e2"])
    await called.caught_up()
    assert await called.letters() == []


async def test_without_another_event_nothing_is_proven(called: CalledBack, receiver: Receiver) -> None:
    receiver.answer = refusing("bad")  # type: ignore[assignment]
    await called.declare(callback(receiver.url))
    await called.emit("bad")
    await called.pass_failures(6)
    assert (await called.cursor()).reason == "unproven"
    await called.emit("e1")
    await called.rest(await called.cursor())
    await until(lambda: receiver.events == ["e1"])
    await called.caught_up()
    assert [letter.event_id for letter in await called.letters()] == ["bad"]


@pytest.mark.parametrize("poison", ["e0", "e5", "e7"])
async def test_a_batch_is_halved_until_the_event_at_fault_is_alone(
    called: CalledBack, receiver: Receiver, poison: str
) -> None:
    receiver.answer = refusing(poison, status=422)  # type: ignore[assignment]
    await called.declare(callback(receiver.url, format="batch", max_events=8))
    ids = [f"e{number}" for number in range(8)]
    await called.emit(*ids)
    await called.pass_failures(4)
    await called.rest(await called.cursor())
    await called.emit("after")
    rest = [id for id in [*ids, "after"] if id != poison]
    await until(lambda: receiver.events == rest)

    async def given_up() -> bool:
        return [letter.event_id for letter in await called.letters()] == [poison]

    await until(given_up)
    assert len(receiver.requests) < 20
    attempts = await called.attempts()
    assert all(one.events and one.message_id for one in attempts), "each is a request"
    assert {one.reason for one in attempts if one.status == 422} == {"http_422"}


async def test_the_search_survives_a_restart(called: CalledBack, receiver: Receiver) -> None:
    receiver.answer = refusing("e2")  # type: ignore[assignment]
    await called.declare(callback(receiver.url, format="batch", max_events=4))
    await called.emit("e0", "e1", "e2", "e3")
    await called.pass_failures(3)
    await called.restart()
    await called.rest(await called.cursor())
    await called.failed(4)
    await called.rest(await called.cursor())
    await called.emit("e4")
    await until(lambda: receiver.events == ["e0", "e1", "e3", "e4"])
    await called.caught_up()
    assert [(letter.event_id, letter.reason) for letter in await called.letters()] == [("e2", "http_400")]


@pytest.mark.parametrize(
    ("status", "state", "wait"),
    [(503, "backing-off", 1), (429, "backing-off", 1), (408, "backing-off", 1), (301, "blocked", 60)]
    + [(status, "blocked", 60) for status in (401, 403, 404, 405, 415)],
)
async def test_the_classes_of_answers(
    called: CalledBack, receiver: Receiver, clock: ManualClock, status: int, state: str, wait: int
) -> None:
    receiver.always(status, b"no \x00 more", Location="http://127.0.0.1:1/")
    await called.declare(callback(receiver.url))
    await called.emit("e1")
    cursor = await called.failed(1)
    assert (cursor.state, cursor.reason) == (state, f"http_{status}")
    assert cursor.retry_at == clock.now() + wait * 1_000_000
    (attempt,) = await called.attempts()
    assert (attempt.status, attempt.answer, attempt.address) == (status, "no   more", "127.0.0.1")
    assert len(receiver.requests) == 1, "no redirect is followed"
    assert ("http://127.0.0.1:1/" in attempt.detail) == (status == 301)


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("https://user:pw@new.example:8443/hooks?token=pw#pw", "https://new.example:8443/hooks"),
        ("//pw@new.example/hooks", "//new.example/hooks"),
        ("/hooks/?token=pw", "/hooks/"),
        ("", ""),
        ("https://[::1/", ""),
    ],
)
async def test_the_target_of_a_redirect_is_shown_without_secrets(
    called: CalledBack, receiver: Receiver, location: str, shown: str
) -> None:
    receiver.always(308, b"moved", Location=location)
    await called.declare(callback(receiver.url))
    await called.emit("e1")
    cursor = await called.failed(1)
    told = f", a redirect to {shown}, which is not followed" if shown else ": moved"
    assert cursor.last_error == f"the endpoint answered 308{told}"


async def test_a_pause_that_the_endpoint_asks_for_is_kept(
    called: CalledBack, receiver: Receiver, clock: ManualClock
) -> None:
    receiver.always(503, Retry_After="1800")
    await called.declare(callback(receiver.url))
    await called.emit("e1")
    cursor = await called.failed(1)
    assert cursor.retry_at == clock.now() + 1800 * 1_000_000
    receiver.always(503, Retry_After="999999")
    await called.rest(cursor)
    assert (await called.failed(2)).retry_at == clock.now() + 3600 * 1_000_000


async def test_no_answer_never_counts_as_a_refusal(called: CalledBack, receiver: Receiver) -> None:
    receiver.answer = lambda _: Reply(HANG)
    await called.declare(callback(receiver.url, timeout=0.05))
    await called.emit("e1", "e2")
    await called.pass_failures(7)
    assert (await called.cursor()).reason == "timeout"
    assert await called.letters() == []
    assert {one.id for one in receiver.requests} == {"e1"}


async def test_a_large_answer_counts_and_is_cut(called: CalledBack, receiver: Receiver) -> None:
    receiver.always(200, b"x" * (1 << 20))
    await called.declare(callback(receiver.url))
    await called.emit("e1", "e2")
    await until(lambda: receiver.events == ["e1", "e2"])

    async def kept() -> bool:
        return [len(one.answer) for one in await called.attempts()] == [500]

    await until(kept)


# --- giving an endpoint up ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("disable_after", "disabled_after"), [(20, 20), (2, 12)])
async def test_an_endpoint_that_fails_for_too_long_is_disabled(
    called: CalledBack, receiver: Receiver, clock: ManualClock, disable_after: int, disabled_after: int
) -> None:
    """After failures that are at least 12 h apart, however short `disable_after` is."""
    receiver.always(503)
    await called.declare(callback(receiver.url, disable_after=disable_after * HOUR, backoff=HOURLY))
    await called.emit("e1")
    half = disabled_after // 2
    for hour in range(half):
        assert called.changes == [], f"after {hour} h"
        await called.rest(await called.failed(hour + 1))
    await until(lambda: called.changes == [("hook", "failing")])
    for hour in range(half, disabled_after):
        assert called.changes == [("hook", "failing")], f"after {hour} h"
        await called.rest(await called.failed(hour + 1))
    await until(lambda: called.changes == [("hook", "failing"), ("hook", "disabled")])
    cursor = await called.cursor()
    assert (cursor.shown_state, cursor.paused_by) == ("paused", "the node")
    asked = len(receiver.requests)
    assert asked == disabled_after + 1
    clock.advance(100_000)
    await give_turns()
    assert len(receiver.requests) == asked
    receiver.always(204)
    await called.resume("hook")
    await until(lambda: receiver.events == ["e1"])
    await until(lambda: called.changes[2:] == [("hook", "recovered")])


async def test_a_restarted_node_knows_that_it_has_reported_a_failing_callback(
    called: CalledBack, receiver: Receiver
) -> None:
    receiver.always(503)
    await called.declare(callback(receiver.url, disable_after=100 * HOUR, backoff=HOURLY))
    await called.emit("e1")
    for hour in range(50):
        await called.rest(await called.failed(hour + 1))
    await until(lambda: called.changes == [("hook", "failing")])
    await called.restart()
    await called.rest(await called.cursor())
    cursor = await called.failed(52)
    receiver.always(204)
    await called.rest(cursor)
    await until(lambda: receiver.events == ["e1"])
    await until(lambda: called.changes[1:] == [("hook", "recovered")], "one notice of each change")


async def test_410_disables_at_once(called: CalledBack, receiver: Receiver) -> None:
    receiver.always(410)
    await called.declare(callback(receiver.url, disable_after=100 * HOUR))
    await called.emit("e1")
    await until(lambda: called.changes == [("hook", "disabled")])
    assert (await called.cursor()).shown_state == "paused"


async def test_410_only_blocks_a_callback_that_is_never_disabled(called: CalledBack, receiver: Receiver) -> None:
    receiver.always(410)
    await called.declare(callback(receiver.url))
    await called.emit("e1")
    assert (await called.failed(1)).state == "blocked"
    assert called.changes == []


async def test_equal_attempts_are_folded(called: CalledBack, receiver: Receiver) -> None:
    receiver.always(503)
    await called.declare(callback(receiver.url))
    await called.emit("e1")
    await called.pass_failures(20)
    rows = await called.attempts()
    assert [one.requests for one in rows] == [1, 1, 1, 1, 1, 15]
    assert [one.attempt for one in rows] == [20, 19, 18, 17, 16, 15]
    assert rows[-1].first_at < rows[-1].at


async def test_a_forbidden_address_is_not_connected_to(called: CalledBack, receiver: Receiver) -> None:
    await called.declare(callback("http://10.0.0.1:8080/"))
    await called.emit("e1")
    cursor = await called.failed(1)
    assert (cursor.state, cursor.reason) == ("blocked", "address_forbidden")
    assert "10.0.0.1" in cursor.last_error
    assert "EVENTD_CALLBACK_ALLOW" in cursor.last_error


async def test_several_events_in_a_row_are_given_up_one_by_one(called: CalledBack, receiver: Receiver) -> None:
    receiver.answer = refusing("bad1", "bad2", "bad3")  # type: ignore[assignment]
    await called.declare(callback(receiver.url, isolate_after=2))
    await called.emit("bad1", "bad2", "bad3", "e1", "e2")

    async def ended() -> bool:
        called.clock.advance(60)
        return (await called.cursor()).position == 5

    await until(ended)
    assert [letter.event_id for letter in await called.letters()] == ["bad1", "bad2", "bad3"]
    assert list(dict.fromkeys(receiver.events)) == ["e1", "e2"]
    assert receiver.events.count("e1") <= 3, "once in its turn, once ahead for each event that was given up"
