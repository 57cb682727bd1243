"""What a callback gets: events that match, records of topics, each format, losses, and what is sent again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from eventd.egress.callbacks.selection import CallbackSelection
from eventd.groups.callback_history import LostRecords, read_losses
from eventd.log.cursors.cursors import create_cursor
from eventd.log.retention.evict import EvictionLimits, evict
from eventd.store.engine.database import Connection
from eventd.store.rows.callback_cursors import RESEND
from eventd.store.rows.routemaster import Interval
from eventd.testing import NOW, ManualClock, until
from federation.selector import Selector
from federation.webhooks import format_secret, read_key, verify
from tests.contract.egress.conftest import BOTH_DATABASES
from tests.support.callback_receivers import HANG, Received, Receiver, Reply
from tests.support.called_back import CalledBack, callback


async def test_only_what_matches_is_sent(called: CalledBack, receiver: Receiver) -> None:
    selector = Selector.of(types=["client.*"], subject_prefixes=["10."], payload={"k": "v"})
    await called.declare(callback(receiver.url, selector=selector))
    await called.emit("e1", type="client.up", subject="10.1", payload={"k": "v"})
    await called.emit("e2", type="server.up", subject="10.1", payload={"k": "v"})
    await called.emit("e3", type="client.up", subject="11.1", payload={"k": "v"})
    await called.emit("e4", type="client.up", subject="10.1", payload={"k": "w"})
    await called.emit("e5", type="client.down", subject="10.2", payload={"k": "v", "l": "m"})
    await until(lambda: receiver.events == ["e1", "e5"])


async def test_an_expired_event_is_an_exception_and_is_not_sent(
    called: CalledBack, receiver: Receiver, clock: ManualClock
) -> None:
    receiver.always(503)
    await called.declare(callback(receiver.url))
    await called.emit("e1")
    await called.emit("brief", expires=NOW + 1_500_000)
    await called.emit("e2")
    cursor = await called.failed(1)
    clock.advance(1)
    cursor = await called.failed(2)
    receiver.always(204)
    await called.rest(cursor)
    await until(lambda: receiver.events == ["e1", "e2"])

    async def noted() -> bool:
        rows = await called.log.database.read(_exceptions)
        return [row for row in rows if row] == ['[[2,"expired"]]']

    await until(noted)


@pytest.mark.parametrize(("format", "most"), [("standard", 1), ("batch", 10)])
async def test_an_event_that_expired_before_the_first_of_two_attempts_stays_an_exception(
    called: CalledBack, receiver: Receiver, clock: ManualClock, format: str, most: int
) -> None:
    """The ledger would otherwise have neither a delivery of it nor the reason why there is none."""
    receiver.always(503)
    await called.emit("e1", "e2", expires=NOW + 500_000)
    await called.emit("e3")
    clock.advance(1)
    await called.declare(callback(receiver.url, format=format, max_events=most, from_earliest=True))
    await called.pass_failures(2)
    cursor = await called.failed(2)
    receiver.always(204)
    await called.restart()
    await called.rest(cursor)
    await called.caught_up()
    assert receiver.events == ["e3"]
    rows = await called.log.database.read(_exceptions)
    assert [row for row in rows if row] == ['[[1,"expired"],[2,"expired"]]']


def _exceptions(conn: object) -> list[str]:
    from eventd.store.engine.statements import fetch

    return [text for (text,) in fetch(conn, "SELECT exceptions FROM batches ORDER BY id")]  # type: ignore[arg-type]


@BOTH_DATABASES
async def test_records_of_a_topic_as_v0_shows_them(called: CalledBack, receiver: Receiver) -> None:
    await called.write("old", "orders")
    await called.declare(
        callback(
            receiver.url,
            group="",
            topic="orders",
            format="records",
            max_events=10,
            selector=Selector.of(types=["new.*"]),
        )
    )
    await called.write("new.a", "orders", data='{"n":1.50}', node="shop", count=2)
    await called.write("other", "orders")
    await until(lambda: receiver.accepted)
    content = receiver.accepted[0].json
    assert (content["topic"], content["epoch"]) == ("orders", called.log.epoch)
    assert [(one["$seq"], one["$tag"], one["$node"]) for one in content["records"]] == [
        (2, "new.a", "shop"),
        (3, "new.a", "shop"),
    ]
    assert b'"data":{"n":1.50}' in receiver.accepted[0].body, "numbers stay as they were written"


async def test_the_format_routemaster_is_exact(called: CalledBack, receiver: Receiver) -> None:
    await called.write("x", "rm")
    await called.declare(
        callback(receiver.url, group="", topic="rm", format="routemaster", max_events=100, username="secret-uuid")
    )
    await called.write("w.create", "rm", data='{"url":"https://x/1","t":1795173885369}')
    await called.write("w.update", "rm", data='{"url":"https://x/1","t":1.50,"data":{"a":1e2}}')
    await until(lambda: sum(len(one.json) for one in receiver.accepted) == 2)
    body = b"".join(one.body for one in receiver.accepted)
    assert body.replace(b"][", b",") == (
        b'[{"topic":"w","type":"create","url":"https://x/1","t":1795173885369},'
        b'{"topic":"w","type":"update","url":"https://x/1","t":1.50,"data":{"a":1e2}}]'
    )
    names = [line.split(":")[0] for line in receiver.accepted[0].head.split("\r\n")[1:] if line]
    assert names[:5] == ["Host", "Authorization", "Content-Type", "User-Agent", "Accept"]
    assert names[-1] == "Content-Length"


async def test_a_record_that_has_no_form_in_the_format_is_a_dead_letter(called: CalledBack, receiver: Receiver) -> None:
    await called.write("x", "rm")
    await called.declare(callback(receiver.url, group="", topic="rm", format="routemaster", max_events=100))
    await called.write("w.seen", "rm")
    await called.write("w.create", "rm", data='{"url":"https://x/1","t":1}')
    await called.caught_up()
    (letter,) = await called.letters()
    assert (letter.position, letter.reason) == (2, "unsuitable")
    assert [one["type"] for each in receiver.accepted for one in each.json] == ["create"]


async def test_intervals_are_no_filter_of_the_backlog(called: CalledBack, receiver: Receiver) -> None:
    await called.write("x.noop", "rm")
    receiver.always(503)
    config = callback(receiver.url, group="", topic="rm", format="batch", max_events=100)
    await called.declare(config, intervals=(Interval("a", 1, None),))
    await called.write("a.create", "rm")  # position 2
    await called.write("b.create", "rm")
    await called.write("a.update", "rm")
    cursor = await called.failed(1)
    # `a` ends after position 4, `b` begins there.
    await called.declare(config, intervals=(Interval("a", 1, 4), Interval("b", 4, None)))
    await called.write("a.delete", "rm")
    await called.write("b.update", "rm")
    receiver.always(204)
    await called.rest(cursor)
    await until(lambda: sum(len(one.json) for one in receiver.accepted) == 3)
    assert [one["type"] for each in receiver.accepted for one in each.json] == ["a.create", "a.update", "b.update"]


async def test_a_loss_is_reported_before_what_follows_it(called: CalledBack, receiver: Receiver) -> None:
    receiver.always(503)
    await called.declare(callback(receiver.url, format="batch", max_events=10))
    await called.emit("e1", "e2", "e3")
    cursor = await called.failed(1)
    await called.log.database.write(
        evict, cursor.topic_id, EvictionLimits(max_records=1, keep_undelivered=False), now=NOW
    )
    receiver.always(204)
    await called.rest(cursor)
    await until(lambda: len(receiver.accepted) == 2)
    gap, rest = receiver.accepted
    [told] = gap.json
    assert told["type"] == "routerd.callback.gap"
    assert told["data"] == {"callback": "hook", "from": 1, "to": 2, "count": 2, "reason": "cap"}
    assert [one["id"] for one in rest.json] == ["e3"]


async def test_requests_are_signed_by_the_active_and_the_retiring_keys(
    called: CalledBack, receiver: Receiver, tmp_path: object
) -> None:
    from pathlib import Path

    from eventd.resources.callback_configuration import CallbackKeyConfig

    keys, files = [], Path(str(tmp_path))
    for name, state in (("new", "active"), ("old", "retiring"), ("next", "pending")):
        (files / name).write_text(format_secret(name.ljust(24, "-").encode()))
        keys.append(CallbackKeyConfig(name, state, str(files / name)))
    await called.declare(callback(receiver.url, keys=tuple(keys)))
    await called.emit("e1")
    await until(lambda: receiver.accepted)
    request = receiver.accepted[0]
    for name in ("new", "old"):
        key = read_key(name, (files / name).read_bytes())
        assert verify([key], request.headers, request.body, now=NOW).id == "e1"
    assert len(request.headers["webhook-signature"].split()) == 2
    await called.caught_up()
    assert (await called.attempts())[0].key_ids == "new old"


async def test_a_resend_goes_beside_the_cursor_and_is_marked(called: CalledBack, receiver: Receiver) -> None:
    await called.declare(callback(receiver.url))
    await called.emit("e1", "e2", "e3")
    await until(lambda: receiver.events == ["e1", "e2", "e3"])
    cursor = await called.cursor()
    selection = CallbackSelection(Selector(), None, frozenset({2})).to_json()
    await called.log.database.write(
        create_cursor,
        f"{RESEND}:hook#1",
        kind=RESEND,
        topic_id=cursor.topic_id,
        position=1,
        until=2,
        selection=selection,
        now=NOW,
    )
    await called.adjust()
    await until(lambda: receiver.events == ["e1", "e2", "e3", "e2"])
    again = receiver.accepted[-1]
    assert (again.id, again.body) == (receiver.accepted[1].id, receiver.accepted[1].body)
    assert again.headers["routerd-repair"] == "1"

    async def ended() -> bool:
        return not await called.resends()

    await until(ended)


async def test_several_requests_may_be_under_way_and_the_cursor_moves_in_order(
    called: CalledBack, receiver: Receiver
) -> None:
    def answer(request: Received) -> Reply:
        return Reply(503 if request.id == "e1" and len(receiver.requests) < 4 else 204)

    receiver.answer = answer
    await called.declare(callback(receiver.url, in_flight=4))
    await called.emit("e0", "e1", "e2", "e3")
    cursor = await called.failed(1)
    assert cursor.position == 1
    await called.rest(cursor)

    async def settled() -> bool:
        return (await called.cursor()).position == 4

    await until(settled)
    assert set(receiver.events) == {"e0", "e1", "e2", "e3"}


async def test_a_repeated_report_of_a_loss_has_the_same_bytes(called: CalledBack, receiver: Receiver) -> None:
    receiver.always(503)
    await called.declare(callback(receiver.url))
    await called.emit("e1", "e2")
    cursor = await called.failed(1)
    await called.log.database.write(
        evict, cursor.topic_id, EvictionLimits(max_records=1, keep_undelivered=False), now=NOW
    )
    await called.rest(cursor)
    cursor = await called.failed(2)
    receiver.always(204)
    await called.rest(cursor)
    await called.caught_up()
    first, again = (one for one in receiver.requests if b"callback.gap" in one.body)
    assert (first.id, first.body) == (again.id, again.body)
    (loss,) = await called.log.database.read(_losses)
    assert (loss.first, loss.last, loss.records, loss.reasons) == (1, 1, 1, ["cap"])


def _losses(conn: Connection) -> list[LostRecords]:
    return read_losses(conn, "hook", limit=5)


@pytest.mark.parametrize("levels", [90, 900, 100_000])
@pytest.mark.parametrize("format", ["standard", "batch", "records", "routemaster"])
async def test_a_record_that_is_nested_too_deep_to_decode_does_not_hold_the_callback(
    called: CalledBack, receiver: Receiver, format: str, levels: int
) -> None:
    """Whether a nested text can be decoded depends on the stack, which may be deeper here than where it was written."""
    topic = "deep"
    await called.write("first", topic)
    selector = Selector.of(types=["orders.*", "routerd.*"], sources=["n"])
    config = callback(receiver.url, group="", topic=topic, format=format, selector=selector)
    await called.declare(config)
    nested = "[" * levels + "]" * levels
    data = f'{{"url":"https://a.example/","t":1,"data":{{"d":{nested}}},"callback":{nested}}}'
    for tag in ("orders.create", "routerd.callback.failing"):
        await called.write(tag, topic, data=data, node="n")
    await called.write("orders.update", topic, data='{"url":"https://a.example/","t":2}', node="n")
    cursor = await called.caught_up()
    assert (cursor.attempts, cursor.last_error) == (0, "")
    bodies = [request.body.decode() for request in receiver.accepted]
    assert any('"t":2' in body for body in bodies)
    if format != "routemaster":
        assert sum(nested in body for body in bodies) == 2


@pytest.mark.parametrize("format", ["standard", "batch", "records"])
async def test_a_report_that_a_crash_interrupts_is_repeated_with_the_same_bytes(
    called: CalledBack, receiver: Receiver, clock: ManualClock, format: str
) -> None:
    """Whatever follows the loss by then, and however often the node restarts."""
    receiver.answer = lambda request: Reply(HANG)
    await called.declare(callback(receiver.url, format=format, timeout=3600.0))
    await called.emit("e1", "e2")
    cursor = await called.cursor()
    limits = EvictionLimits(max_records=0, keep_undelivered=False)
    await called.restart()
    await called.log.database.write(evict, cursor.topic_id, limits, now=NOW)
    await called.restart()

    def gaps() -> list[Received]:
        return [one for one in receiver.requests if b"gap" in one.body]

    for number in (1, 2, 3):
        await until(partial(_has, gaps, number))
        clock.advance(60)
        if number == 2:
            await called.emit("e3")
        if number == 3:
            receiver.always(204)
        await called.restart()
    await called.caught_up()
    assert len(gaps()) == 4
    assert len({(one.id, one.body) for one in gaps()}) == 1
    assert b"e3" in receiver.accepted[-1].body
    assert [one.reason for one in await called.attempts()] == ["", ""], "no attempt is under way any more"


async def test_how_often_a_report_was_refused_is_known_after_a_restart(
    called: CalledBack, receiver: Receiver, clock: ManualClock
) -> None:
    receiver.always(400)
    await called.declare(callback(receiver.url, isolate_after=4))
    await called.emit("e1", "e2")
    cursor = await called.failed(1)
    limits = EvictionLimits(max_records=1, keep_undelivered=False)
    await called.log.database.write(evict, cursor.topic_id, limits, now=NOW)
    for number in (2, 3, 4):
        await called.rest(await called.cursor())
        await called.failed(number)
        await called.restart()
    assert (await called.cursor()).position == 0
    await called.rest(await called.cursor())

    async def passed() -> bool:
        return (await called.cursor()).position == 1

    await until(passed, "the report to be given up")
    assert sum(b"gap" in one.body for one in receiver.requests) == 4


def _has(gaps: Callable[[], list[Received]], number: int) -> bool:
    return len(gaps()) == number
