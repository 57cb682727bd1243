"""A drain: what it admits, which events are outdated, and when a batch counts as received."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventd.client.drain import Drain, DrainEvent, HandlerFailed, LatestTimes, read_batch
from eventd.errors import Invalid
from eventd.testing import ManualClock
from federation.errors import BadKey, ClockSkew, Forbidden, Malformed, Unauthorized, UnsupportedMedia
from federation.webhooks import format_secret, read_key, sign

UUID = "shop--0123"
OLD, NEW, OTHER = (format_secret(bytes([filler]) * 32) for filler in (1, 2, 3))
SENT = 1_800_000_000
EVENT = {"topic": "orders", "type": "create", "url": "https://shop.example/orders/1", "t": 1795173885369}


def encoded(*events: dict[str, Any]) -> bytes:
    return msgspec.json.encode(events)


def basic(user: str, password: str = "x") -> str:
    return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"


def headers(authorization: str = basic(UUID), content_type: str = "application/json") -> dict[str, str]:
    return {"Authorization": authorization, "Content-Type": content_type}


def about(url: str, t: float, type: str = "update") -> DrainEvent:
    return DrainEvent("orders", type, url, t)


class Handler:
    """Keeps the batches that it handled; fails as often as it is told."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.handled: list[list[DrainEvent]] = []

    async def __call__(self, events: Sequence[DrainEvent]) -> None:
        if self.failures:
            self.failures -= 1
            raise RuntimeError("no disk")
        self.handled.append([*events])


def drain(handler: Handler | None = None, **options: Any) -> Drain:
    return Drain(handler or Handler(), options.pop("uuids", UUID), **options)


# What a batch is.


def test_events_of_a_batch_in_their_order() -> None:
    events = read_batch(encoded(EVENT, {**EVENT, "type": "noop", "t": -1.5, "data": {}}))
    assert events == [
        DrainEvent("orders", "create", "https://shop.example/orders/1", 1795173885369, None),
        DrainEvent("orders", "noop", "https://shop.example/orders/1", -1.5, {}),
    ]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "truncated"),
        (b"[", "truncated"),
        (b"\xff", "malformed"),
        (b"[]", "the batch has no events"),
        (encoded(EVENT) + b"x", "trailing"),
        (b"{}", "Expected `array`, got `object`"),
        (b"[null]", "at `$[0]`"),
        (b'[{"topic":"a"}]', "missing required field `type`"),
        (b'[{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}]", "not a batch"),
        (encoded(EVENT, {**EVENT, "t": "1"}), "`$[1].t`"),
        (encoded({**EVENT, "t": True}), "`$[0].t`"),
        (encoded({**EVENT, "t": None}), "`$[0].t`"),
        (encoded({**EVENT, "t": 2**63}), "`$[0].t`"),
        (encoded(EVENT).replace(b"1795173885369", b"1e400"), "`$[0].t`"),
        (encoded(EVENT).replace(b"1795173885369", b"9" * 5000), "`$[0].t`"),
        (encoded({**EVENT, "type": "created"}), "`$[0].type`"),
        (encoded({**EVENT, "topic": "Orders"}), "`$[0].topic`"),
        (encoded({**EVENT, "topic": "orders\n"}), "`$[0].topic`"),
        (encoded({**EVENT, "url": ""}), "`$[0].url`"),
        (encoded({**EVENT, "url": "u" * 8193}), "`$[0].url`"),
        (encoded({**EVENT, "data": None}), "`$[0].data`"),
        (encoded({**EVENT, "data": [1]}), "`$[0].data`"),
        (encoded({**EVENT, "key": 1}), "unknown field `key`"),
    ],
)
def test_what_is_no_batch(body: bytes, words: str) -> None:
    with pytest.raises(Malformed) as refused:
        read_batch(body)
    assert words in str(refused.value)
    assert (refused.value.status, refused.value.reason) == (400, "bad_batch")


@given(
    st.binary()
    | st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists, max_leaves=5).map(msgspec.json.encode)
)
def test_any_other_body_is_refused(body: bytes) -> None:
    with pytest.raises(Malformed):
        read_batch(body)


# Who may send one.


@pytest.mark.parametrize("uuids", [UUID, ["first", UUID], ("second", UUID, "third")])
@pytest.mark.parametrize("password", ["x", "", "a:b"])
def test_accepted_uuid_with_any_password(uuids: Any, password: str) -> None:
    drain(uuids=uuids).admit(headers(basic(UUID, password)))
    drain(uuids=uuids).admit({name.lower(): value for name, value in headers(basic(UUID, password)).items()})


@pytest.mark.parametrize(
    "authorization",
    [
        basic("other"),
        basic(""),
        basic(UUID[:-1]),
        basic(f"{UUID}x"),
        basic(UUID).replace("Basic", "basic"),
        basic(UUID).replace(" ", "  "),
        basic(UUID).replace("Basic", "Bearer"),
        f"Basic {b64encode(UUID.encode()).decode()}",
        f"Basic {UUID}:x",
        "Basic ü",
        "Basic",
        "",
    ],
)
def test_other_credentials(authorization: str) -> None:
    with pytest.raises(Forbidden) as refused:
        drain().admit(headers(authorization))
    assert refused.value.status == 403
    assert UUID not in str(refused.value)


def test_no_credentials() -> None:
    with pytest.raises(Unauthorized) as refused:
        drain().admit({"Content-Type": "application/json"})
    assert refused.value.status == 401


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json; charset=utf-8",
        "application/json;",
        "Application/JSON",
        "application/vnd.x+json",
        "text/json",
        "",
    ],
)
def test_other_content_types(content_type: str) -> None:
    with pytest.raises(UnsupportedMedia) as refused:
        drain().admit(headers(content_type=content_type))
    assert refused.value.status == 415


def test_compressed_body() -> None:
    with pytest.raises(UnsupportedMedia, match="compressed"):
        drain().admit({**headers(), "Content-Encoding": "gzip"})


@pytest.mark.parametrize("uuids", ["", [], ["a", ""], "a:b"])
def test_uuid_that_no_bus_can_send(uuids: Any) -> None:
    with pytest.raises(Invalid, match="only the part before a colon"):
        drain(uuids=uuids)


def test_unusable_secret_and_capacity() -> None:
    with pytest.raises(BadKey, match="key '2'"):
        drain(secrets=[OLD, "geheim"])
    with pytest.raises(Invalid, match="pass 1 or more"):
        drain(remembered=0)


# Signatures.


def signed(secret: str, sent: int = SENT) -> dict[str, str]:
    signature = sign([read_key("k", secret)], "orders-1", sent, encoded(EVENT))
    return {"webhook-id": "orders-1", "webhook-timestamp": str(sent), "webhook-signature": signature}


def test_either_secret_of_a_rotation() -> None:
    receiving = drain(secrets=[OLD, NEW], clock=ManualClock(SENT * 1_000_000))
    for secret in (OLD, NEW):
        assert len(receiving.read(signed(secret), encoded(EVENT))) == 1


@pytest.mark.parametrize(
    ("given_headers", "body", "error"),
    [
        ({}, encoded(EVENT), Unauthorized),
        ({**signed(OLD), "webhook-timestamp": "soon"}, encoded(EVENT), Unauthorized),
        (signed(OTHER), encoded(EVENT), Unauthorized),
        (signed(OLD), encoded(EVENT, EVENT), Unauthorized),
        (signed(OLD, SENT - 301), encoded(EVENT), ClockSkew),
        (signed(OLD, SENT + 301), encoded(EVENT), ClockSkew),
    ],
)
def test_wrong_signatures_are_about_the_sender_and_not_about_the_events(
    given_headers: dict[str, str], body: bytes, error: type[Unauthorized]
) -> None:
    """With 400, a bus would isolate the events of the batch, as if they could not be handled."""
    with pytest.raises(error) as refused:
        drain(secrets=OLD, clock=ManualClock(SENT * 1_000_000)).read(given_headers, body)
    assert refused.value.status == 401


# Which events are outdated.


def test_equal_times_are_handed_on_in_order_and_earlier_ones_are_not() -> None:
    times = LatestTimes()
    create, update = about("u", 5, "create"), about("u", 5, "update")
    assert times.select([create, update, about("u", 4), about("v", 4)]) == [create, update, about("v", 4)]
    times.note([create, update])
    assert times.select([about("u", 4.5), update, about("u", 6), about("u", 5)]) == [update, about("u", 6)]


def test_selecting_changes_nothing() -> None:
    times = LatestTimes()
    times.select([about("u", 5)])
    assert times.select([about("u", 4)]) == [about("u", 4)]


def test_the_urls_whose_events_arrived_last_are_remembered() -> None:
    times = LatestTimes(2)
    times.note([about("a", 5), about("b", 5), about("a", 1), about("c", 5)])
    assert len(times) == 2
    assert times.select([about("a", 4), about("b", 4), about("c", 4)]) == [about("b", 4)]


URLS = st.sampled_from(["a", "b", "c", "d"])
TIMES = st.integers(0, 6) | st.sampled_from([2.5, 3.5])
EVENTS = st.builds(about, URLS, TIMES, st.sampled_from(["create", "update", "delete", "noop"]))
BATCHES = st.lists(st.lists(EVENTS, min_size=1, max_size=6), min_size=1, max_size=8)


@st.composite
def deliveries(draw: st.DrawFn) -> list[tuple[list[DrainEvent], bool]]:
    """Batches, each sent at least once, in any order, some again much later; and whether the handler fails."""
    batches = draw(BATCHES)
    order = draw(
        st.permutations([*range(len(batches)), *draw(st.lists(st.integers(0, len(batches) - 1), max_size=12))])
    )
    return [(batches[number], draw(st.booleans())) for number in order]


async def received(
    sent: list[tuple[list[DrainEvent], bool]], remembered: int
) -> AsyncIterator[tuple[list[DrainEvent], list[DrainEvent]]]:
    """Yield for each batch that did not fail the events that were handed on, and those that had to be.

    An event has to be handed on unless one of its url with a larger time was received before, or is before it in its
    batch.
    """
    handler, earlier = Handler(), list[DrainEvent]()
    receiving = drain(handler, remembered=remembered)
    for batch, fails in sent:
        handler.failures, handler.handled = int(fails), []
        try:
            number = await receiving.hand_on(batch)
        except HandlerFailed:
            continue
        handed_on = [event for events in handler.handled for event in events]
        assert number == len(handed_on)
        yield (
            handed_on,
            [
                event
                for at, event in enumerate(batch)
                if all(other.t <= event.t for other in [*earlier, *batch[:at]] if other.url == event.url)
            ],
        )
        earlier += batch


@given(deliveries())
async def test_any_deliveries_hand_on_what_is_not_outdated_and_times_never_decrease(
    sent: list[tuple[list[DrainEvent], bool]],
) -> None:
    everything: list[DrainEvent] = []
    async for handed_on, expected in received(sent, remembered=4):
        assert handed_on == expected
        everything += handed_on
    for url in "abcd":
        times = [event.t for event in everything if event.url == url]
        assert times == sorted(times)


@given(deliveries(), st.integers(1, 3))
async def test_nothing_new_is_dropped_if_urls_are_forgotten(
    sent: list[tuple[list[DrainEvent], bool]], remembered: int
) -> None:
    async for handed_on, expected in received(sent, remembered):
        rest = iter(handed_on)
        assert all(event in rest for event in expected), "in the batch's order"


@given(BATCHES, st.integers(1, 3))
def test_memory_is_bounded(batches: list[list[DrainEvent]], capacity: int) -> None:
    times = LatestTimes(capacity)
    for batch in batches:
        times.note(batch)
        assert len(times) <= capacity


# When a batch counts as received.


async def test_failed_batch_is_handed_on_again_completely() -> None:
    handler = Handler(failures=1)
    receiving = drain(handler)
    batch = [about("u", 1), about("u", 2)]
    with pytest.raises(HandlerFailed) as failed:
        await receiving.hand_on(batch)
    assert str(failed.value.__cause__) == "no disk"
    assert await receiving.hand_on(batch) == 2
    assert handler.handled == [batch]


async def test_handler_is_not_called_for_a_batch_that_is_outdated() -> None:
    handler = Handler()
    receiving = drain(handler)
    await receiving.hand_on([about("u", 2)])
    assert await receiving.hand_on([about("u", 1)]) == 0
    assert handler.handled == [[about("u", 2)]]


async def test_batches_are_handled_one_at_a_time_in_the_order_of_arrival() -> None:
    """A bus that gave up waiting sends its batch again while the handler still works on it."""
    order: list[str] = []
    has_begun, may_end = asyncio.Event(), asyncio.Event()

    async def handler(events: Sequence[DrainEvent]) -> None:
        order.append(f"begin {events[0].t}")
        has_begun.set()
        await may_end.wait()
        order.append(f"end {events[0].t}")

    receiving = Drain(handler, UUID)
    async with asyncio.TaskGroup() as group:
        for t in (1, 2):
            group.create_task(receiving.hand_on([about("u", t)]))
        await has_begun.wait()
        may_end.set()
    assert order == ["begin 1", "end 1", "begin 2", "end 2"]
