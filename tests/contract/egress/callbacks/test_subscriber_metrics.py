"""What is counted of the requests to a subscriber of the Routemaster surface, under the names of Routemaster."""

from __future__ import annotations

from eventd.egress.callbacks.selection import CallbackSelection
from eventd.groups.callback_history import count_losses
from eventd.log.cursors.cursors import create_cursor
from eventd.log.routemaster.surface_topic import OpenTopic, surface_topic_config
from eventd.store.rows.callback_cursors import RESEND
from eventd.store.rows.routemaster import Interval
from eventd.testing import ManualClock, until
from federation.selector import Selector
from tests.support.callback_receivers import Receiver
from tests.support.called_back import CalledBack, callback

QUEUE = "app--1"
NAME = f"rm/{QUEUE}"
URL = '{"url":"https://shop.example/1","t":1}'


async def subscribe(called: CalledBack, receiver: Receiver) -> int:
    """Run a subscriber whose batches have two events; return the id of its topic."""
    topic_id = await called.write("orders.create", "routemaster", data=URL)
    config = callback(receiver.url, name=NAME, group="", topic="routemaster", format="routemaster", max_events=2)
    await called.declare(config, intervals=(Interval("orders", topic_id and 1),))
    return topic_id


def counted(called: CalledBack, name: str, **labels: str) -> float:
    registry = called.registry
    return registry.get_sample_value(f"routemaster_{name}_total", {"queue": QUEUE, **labels}) or 0


async def test_requests_count_by_their_outcome_and_a_retry_that_waits_is_throttled(
    called: CalledBack, receiver: Receiver, clock: ManualClock
) -> None:
    await subscribe(called, receiver)
    receiver.always(503)
    await called.write("orders.create", "routemaster", data=URL, count=2)
    cursor = await called.failed(1, NAME)
    receiver.always(204)
    await called.rest(cursor)
    await called.caught_up(NAME)
    await called.write("orders.update", "routemaster", data=URL, count=4)
    await until(lambda: len(receiver.accepted) == 3, "two more batches")
    await called.caught_up(NAME)
    events = {status: counted(called, "delivery_events", status=status) for status in ("success", "failure")}
    assert events == {"success": 6, "failure": 2}
    batches = {s: counted(called, "delivery_batches", status=s) for s in ("success", "failure", "throttled")}
    assert batches == {"success": 3, "failure": 1, "throttled": 1}
    assert counted(called, "delivery_events", status="throttled") == 2
    assert counted(called, "latency_batches_count") == 3
    assert counted(called, "latency_batches_first_attempt") == 0  # the clock stood still
    assert 1000 <= counted(called, "latency_batches_last_attempt") < 1100  # one back-off, in milliseconds


async def test_what_an_operator_sends_again_has_not_waited(
    called: CalledBack, receiver: Receiver, clock: ManualClock
) -> None:
    topic_id = await subscribe(called, receiver)
    await called.write("orders.create", "routemaster", data=URL)
    cursor = await called.caught_up(NAME)
    clock.advance(3600)
    await called.log.database.write(
        create_cursor,
        f"{RESEND}:{NAME}#1",
        kind=RESEND,
        topic_id=topic_id,
        position=0,
        until=cursor.position,
        selection=CallbackSelection(Selector()).to_json(),
        now=clock.now(),
    )
    await called.adjust()
    await until(lambda: len(receiver.accepted) == 2, "the resend")

    async def ended() -> bool:
        return not await called.resends()

    await until(ended, "its end")
    assert counted(called, "delivery_batches", status="success") == 2
    assert counted(called, "latency_batches_count") == 1
    assert counted(called, "latency_batches_last_attempt") < 1000


async def test_what_retention_removed_first_is_counted_as_dropped(called: CalledBack, receiver: Receiver) -> None:
    await subscribe(called, receiver)
    receiver.always(503)
    await called.write("orders.create", "routemaster", data=URL, count=2)
    cursor = await called.failed(1, NAME)
    small = surface_topic_config(cap_bytes=len(URL), discard="old")
    await called.log.submit(OpenTopic(small, random=b"1" * 16))
    await called.write("orders.update", "routemaster", data=URL)  # takes the place of all others
    receiver.always(204)
    await called.rest(cursor)
    await called.caught_up(NAME)
    assert counted(called, "events_autodropped") == 2
    lost = await called.log.database.read(count_losses, 0)
    assert {name: loss.records for name, loss in lost.items()} == {NAME: 2}
    assert await called.log.database.read(count_losses, lost[NAME].last_at + 1) == {}
    assert [[one["type"] for one in request.json] for request in receiver.accepted] == [["update"]]


async def test_a_declared_callback_has_no_series_of_the_surface(called: CalledBack, receiver: Receiver) -> None:
    await called.declare(callback(receiver.url))
    await called.emit("e1")
    await called.caught_up()
    samples = [sample for family in called.registry.collect() for sample in family.samples]
    assert [sample.name for sample in samples if sample.name.startswith("routemaster_")] == []
