"""What becomes of a batch that waits when its callback is declared differently, and of attempts that end with time."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

from eventd.egress.callbacks.selection import CallbackSelection
from eventd.groups.callback_history import read_attempt_list
from eventd.log.cursors.cursors import create_cursor, move_cursor, read_cursors
from eventd.log.cursors.selections import declare_selection
from eventd.log.retention.evict import EvictionLimits, evict
from eventd.node.callbacks import CallbackPurpose
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch
from eventd.store.rows.callback_attempts import delete_old_attempts
from eventd.store.rows.callback_cursors import CALLBACK, RESEND
from eventd.testing import NOW, ManualClock, until
from eventd.text.duration import HOUR
from federation.selector import Selector
from tests.contract.egress.conftest import BOTH_DATABASES
from tests.support.callback_receivers import Receiver, Reply
from tests.support.called_back import HOURLY, CalledBack, callback


@BOTH_DATABASES
async def test_a_batch_that_waits_is_cut_anew_for_single_events(called: CalledBack, receiver: Receiver) -> None:
    receiver.always(503)
    await called.declare(callback(receiver.url, format="batch", max_events=100))
    await called.emit("e1", "e2", "e3")
    cursor = await called.failed(1)
    receiver.always(204)
    await called.declare(callback(receiver.url, format="standard"))
    await called.rest(cursor)
    await called.caught_up()
    assert receiver.events == ["e1", "e2", "e3"]
    assert [one.id for one in receiver.accepted] == ["e1", "e2", "e3"]


async def test_a_lower_limit_counts_for_a_batch_that_waits(called: CalledBack, receiver: Receiver) -> None:
    receiver.always(503)
    await called.declare(callback(receiver.url, format="batch", max_events=100))
    await called.emit("e1", "e2", "e3", "e4")
    cursor = await called.failed(1)
    receiver.always(204)
    await called.declare(callback(receiver.url, format="batch", max_events=2))
    await called.rest(cursor)
    await called.caught_up()
    assert [len(one.json) for one in receiver.accepted] == [2, 2]


async def test_another_format_has_other_ids(called: CalledBack, receiver: Receiver) -> None:
    receiver.always(503)
    await called.declare(callback(receiver.url, format="batch", max_events=100))
    await called.emit("e1", "e2")
    cursor = await called.failed(1)
    receiver.always(204)
    await called.declare(callback(receiver.url, format="records", max_events=100))
    await called.rest(cursor)
    await called.caught_up()
    assert len({one.id for one in receiver.requests}) == 2


async def test_a_batch_that_waits_is_the_same_after_its_attempts_have_aged(
    called: CalledBack, receiver: Receiver, clock: ManualClock
) -> None:
    receiver.always(503)
    await called.declare(callback(receiver.url, format="batch", max_events=100))
    await called.emit("e1", "e2")
    cursor = await called.failed(1)
    await called.emit("e3")
    await called.log.database.write(delete_old_attempts, clock.now() + 1, 100)
    await called.callbacks.stop(0.0)
    called.begin()
    await called.adjust()
    receiver.always(204)
    await called.rest(cursor)
    await called.caught_up()
    assert receiver.requests[0].id == receiver.requests[1].id
    assert receiver.requests[0].body == receiver.requests[1].body


async def test_the_limit_of_a_body_counts_bytes(called: CalledBack, receiver: Receiver) -> None:
    await called.declare(callback(receiver.url, format="batch", max_events=100, max_bytes=2000))
    await called.emit("e1", "e2", "e3", payload={"k": "日" * 400})
    await called.caught_up()
    assert [len(one.json) for one in receiver.accepted] == [1, 1, 1]


async def test_an_event_that_expires_while_its_page_is_sent_is_not_sent(
    called: CalledBack, receiver: Receiver, clock: ManualClock
) -> None:
    def answer(request: object) -> Reply:
        clock.advance(2)
        return Reply(204)

    receiver.answer = answer
    await called.declare(callback(receiver.url, from_earliest=True))
    await called.emit("e1")
    await called.emit("brief", expires=NOW + 1_000_000)
    await called.emit("e3")
    await called.caught_up()
    assert receiver.events == ["e1", "e3"]


async def test_a_node_that_was_down_does_not_disable_a_callback(
    called: CalledBack, receiver: Receiver, clock: ManualClock
) -> None:
    receiver.always(503)
    await called.declare(callback(receiver.url, disable_after=12 * HOUR, backoff=HOURLY))
    await called.emit("e1")
    await called.failed(1)
    await called.callbacks.stop(0.0)
    clock.advance(24 * 3600)
    called.begin()
    await called.adjust()
    cursor = await called.failed(2)
    assert cursor.paused_at is None
    assert cursor.failing_since is not None
    assert cursor.failing_since >= NOW + 22 * HOUR
    for number in range(2, 13):  # eleven hours: the one before the node was down counts
        await called.rest(await called.failed(number))
    await until(lambda: called.changes[-1:] == [("hook", "disabled")])


async def test_the_newest_deliveries_are_shown_after_a_move_back(
    called: CalledBack, receiver: Receiver, clock: ManualClock
) -> None:
    await called.declare(callback(receiver.url, from_earliest=True))
    for number in range(8):
        await called.emit(f"e{number}")
        await called.caught_up()
        clock.advance(1)
    receiver.answer = lambda request: Reply(204 if request.id == "e0" else 503)
    await called.log.database.write(_move_back, clock.now())
    await called.adjust()
    await called.failed(1)
    rows = await called.log.database.read(_newest)
    assert ("e0", 204) in rows


def _move_back(conn: Connection, now: int) -> None:
    move_cursor(conn, "callback:hook", to=0, now=now)
    declare_selection(conn, "callback:hook", 2, CallbackSelection(Selector()).to_json(), now)


def _newest(conn: Connection) -> list[tuple[str, int]]:
    return [(one.message_id, one.status) for one in read_attempt_list(conn, "hook", before=None, limit=3)]


async def test_a_resend_does_not_inherit_the_attempts_of_the_one_before(called: CalledBack, receiver: Receiver) -> None:
    await called.declare(callback(receiver.url))
    await called.emit("e1", "e2", "e3")
    cursor = await called.caught_up()
    receiver.always(500)
    for _ in range(2):
        await _resend(called, cursor.topic_id)
        await until(partial(_tried, called), "an attempt")
        attempts = [one.attempt for one in await called.attempts() if one.status == 500]
        assert attempts == [1]
        receiver.always(204)
        await called.rest((await called.resends())[0])
        await until(partial(_ended, called), "the end")
        receiver.always(500)


async def _resend(called: CalledBack, topic_id: int) -> None:
    selection = CallbackSelection(Selector(), None, frozenset({2})).to_json()
    name = f"{RESEND}:hook#1"
    more = {"kind": RESEND, "topic_id": topic_id, "position": 1, "until": 2, "selection": selection, "now": NOW}
    await called.log.database.write(create_cursor, name, **more)
    await called.adjust()


async def _tried(called: CalledBack) -> bool:
    return any(cursor.attempts for cursor in await called.resends())


async def _ended(called: CalledBack) -> bool:
    return not await called.resends()


async def test_an_event_that_is_refused_again_when_it_is_sent_again_is_a_dead_letter_again(
    called: CalledBack, receiver: Receiver
) -> None:
    await called.declare(callback(receiver.url, isolate_after=1))
    await called.emit("e1", "e2", "e3")
    cursor = await called.caught_up()
    receiver.answer = lambda request: Reply(400 if request.id == "e2" else 204)
    await _resend(called, cursor.topic_id)
    await until(partial(_ended, called), "the end of the resend")
    assert [(letter.event_id, letter.reason) for letter in await called.letters()] == [("e2", "http_400")]


async def test_a_resend_to_an_endpoint_that_accepts_nothing_waits_for_proof(
    called: CalledBack, receiver: Receiver
) -> None:
    await called.declare(callback(receiver.url, isolate_after=1))
    await called.emit("e1", "e2", "e3")
    cursor = await called.caught_up()
    receiver.always(400)
    await called.emit("e4")
    await called.failed(1)
    await _resend(called, cursor.topic_id)
    await until(partial(_tried, called), "an attempt")
    (resend,) = await called.resends()
    assert (resend.reason, "no other event" in resend.last_error) == ("unproven", True)


async def test_the_ledger_has_the_attempts_of_a_delivery_and_what_a_resend_picked(
    called: CalledBack, receiver: Receiver
) -> None:
    receiver.always(503)
    await called.declare(callback(receiver.url))
    await called.emit("e1", "e2", "e3")
    await called.rest(await called.failed(1))
    cursor = await called.failed(2)
    receiver.always(204)
    await called.rest(cursor)
    await called.caught_up()
    await _resend(called, cursor.topic_id)
    await until(partial(_ended, called), "the end of the resend")
    rows = await called.log.database.read(fetch, "SELECT events, attempts, picked FROM batches ORDER BY id")
    assert [(events, attempts, json.loads(picked or "[]")) for events, attempts, picked in rows] == [
        (1, 3, []),
        (2, 1, []),
        (1, 1, [2]),
    ]


async def test_a_resend_that_fails_disables_nothing(called: CalledBack, receiver: Receiver) -> None:
    await called.declare(callback(receiver.url, disable_after=12 * HOUR))
    await called.emit("e1", "e2")
    cursor = await called.caught_up()
    receiver.always(410)
    await _resend(called, cursor.topic_id)
    await until(partial(_tried, called), "an attempt")
    (resend,) = await called.resends()
    assert (resend.state, resend.reason, resend.paused_at) == ("blocked", "gone", None)
    assert called.changes == []


async def test_a_subscription_that_changes_while_it_is_read_is_served_once_it_is_read_again(
    called: CalledBack, receiver: Receiver
) -> None:
    config = callback(receiver.url)
    await called.declare(config)
    await called.caught_up()
    (cursor,) = await called.log.database.read(read_cursors, CALLBACK)
    selection = CallbackSelection(config.selector)
    for version, running in ((cursor.selector_version - 1, 0), (cursor.selector_version, 1)):
        await called.callbacks.retire({"hook": CallbackPurpose(config, selection, version=version)})
        await called.callbacks.adjust([cursor])
        assert len(called.callbacks) == running


async def test_what_the_search_for_proof_passes_is_accounted_for(
    called: CalledBack, receiver: Receiver, clock: ManualClock
) -> None:
    await called.write("x", "rm")
    receiver.answer = lambda request: Reply(400 if b"https://x/bad" in request.body else 204)
    single = callback(receiver.url, group="", topic="rm", format="routemaster", max_events=1, isolate_after=2)
    await called.declare(single)
    await called.write("w.create", "rm", data='{"url":"https://x/bad","t":1}')
    await called.write("w.seen", "rm")  # has no form in this format
    await called.write("w.create", "rm", data='{"url":"https://x/1","t":1}')
    await called.rest(await called.failed(1))
    await called.caught_up()
    letters = await called.letters()
    assert sorted((one.position, one.reason) for one in letters) == [(2, "http_400"), (3, "unsuitable")]
    assert [one.detail for one in letters if one.reason == "unsuitable"] == [
        "the record has no form in the format routemaster, which needs a tag TOPIC.ACTION (create, update, delete or"
        " noop), and data with url, t and perhaps data"
    ]


async def test_an_answer_to_the_search_for_proof_counts(
    called: CalledBack, receiver: Receiver, clock: ManualClock
) -> None:
    receiver.answer = lambda request: Reply(400) if request.id == "a" else Reply(429, headers={"Retry-After": "1800"})
    await called.declare(callback(receiver.url, isolate_after=1))
    await called.emit("a", "b")
    cursor = await called.failed(1)
    assert cursor.reason == "http_429"
    assert cursor.last_error == "the endpoint answered 429 and asked for a pause of 30m0s"
    assert cursor.retry_at is not None
    assert cursor.retry_at - clock.now() >= 1_800_000_000


async def test_a_refused_report_of_losses_is_no_success(
    called: CalledBack, receiver: Receiver, clock: ManualClock
) -> None:
    receiver.always(400)
    await called.declare(callback(receiver.url, isolate_after=1, disable_after=12 * HOUR, backoff=HOURLY))
    await called.emit("e1", "e2")
    for number in range(1, 7):
        await called.rest(await called.failed(number))
    cursor = await called.failed(7)
    assert called.changes == [("hook", "failing")]
    limits = EvictionLimits(max_records=1, keep_undelivered=False)
    await called.log.database.write(evict, cursor.topic_id, limits, now=NOW)
    await called.rest(cursor)

    async def passed() -> bool:
        return (await called.cursor()).position == 1

    await until(passed, "the report to be given up")
    assert (await called.cursor()).failing_since == cursor.failing_since
    assert called.changes == [("hook", "failing")]


async def test_the_search_for_proof_does_not_pass_a_loss(called: CalledBack, receiver: Receiver) -> None:
    receiver.answer = lambda request: Reply(400 if request.id == "e1" else 204)
    receiver.gate.clear()
    await called.declare(callback(receiver.url, isolate_after=1))
    await called.emit("e1", "e2", "e3")
    await until(lambda: receiver.requests)
    topic = await called.log.topic("group:g")
    limits = EvictionLimits(max_records=1, keep_undelivered=False)
    await called.log.database.write(evict, topic, limits, now=NOW)  # while the answer to e1 is under way
    receiver.gate.set()
    cursor = await called.failed(1)
    assert (cursor.position, cursor.reason) == (0, "unproven")
    await called.rest(cursor)
    await called.caught_up()
    gap, event = (request.json for request in receiver.accepted)
    assert (gap["type"], gap["data"]["from"], gap["data"]["to"]) == ("routerd.callback.gap", 1, 2)
    assert event["id"] == "e3"
    assert await called.letters() == [], "the loss says that e1 is not delivered"


async def test_attempts_at_a_batch_of_another_selection_do_not_count(called: CalledBack, receiver: Receiver) -> None:
    receiver.always(503)
    config = callback(receiver.url, format="batch", max_events=10)
    await called.declare(config)
    await called.emit("e1")
    await called.emit("e2", type="other")
    await called.rest(await called.failed(1))
    cursor = await called.failed(2)
    await called.callbacks.stop(0.0)
    selector = Selector(types=("other",))
    selection = CallbackSelection(selector).to_json()
    await called.log.database.write(declare_selection, cursor.name, 2, selection, called.clock.now())
    await called.declare(replace(config, selector=selector))
    await called.rest(cursor)
    await called.failed(cursor.attempts + 1)
    newest, *before = await called.attempts()
    assert (newest.attempt, newest.events) == (1, 1)
    assert [one.attempt for one in before] == [2, 1]


async def test_records_without_a_tag_are_sent(called: CalledBack, receiver: Receiver) -> None:
    await called.write("", "plain")
    await called.declare(callback(receiver.url, group="", topic="plain", from_earliest=True, format="records"))
    await called.write("", "plain", count=3)
    await called.caught_up()
    assert sum(len(one.json["records"]) for one in receiver.accepted) == 4


async def test_what_was_counted_for_a_callback_ends_with_it(called: CalledBack, receiver: Receiver) -> None:
    def attempts() -> dict[str, float]:
        return {
            sample.labels["callback"]: sample.value
            for metric in called.registry.collect()
            for sample in metric.samples
            if sample.name == "routerd_eventd_callback_attempts_total"
        }

    for number in range(20):
        name = f"c{number}"
        await called.declare(callback(receiver.url, name=name))
        await called.emit(f"e{number}")
        await called.caught_up(name)
        assert attempts() == {name: 1}
        await called.remove(name)
        assert attempts() == {}
