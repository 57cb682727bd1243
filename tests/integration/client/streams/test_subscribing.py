"""What a client of streams promises about subscriptions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing

import pytest

from eventd.client import At, Event, Lost, OffsetUnavailable, StreamClient, StreamGap, Subscription
from eventd.errors import EventdError, Forbidden, Invalid, NotFound, Unauthorized
from eventd.streams.frames import encode_frame
from eventd.streams.layouts import EventBatch, write_events
from eventd.streams.messages import EventBatchMessage, EventMessage, write_message
from tests.support.scripted_streams import ScriptedFeed, ScriptedServer, encode_text

ORDERS = "t1/default/orders"


async def events(subscription: Subscription, count: int) -> list[Event]:
    """The next events of a subscription, which must be no gaps."""
    found: list[Event] = []
    async with asyncio.timeout(10):
        while len(found) < count:
            sight = await anext(subscription)
            assert isinstance(sight, Event)
            found.append(sight)
    return found


async def test_a_subscription_gives_the_events_from_its_offset_and_then_new_ones(
    server: ScriptedServer, streams: StreamClient
) -> None:
    server.append(ORDERS, [b"a", b"b", b"c"])
    async with streams.subscribe("default/orders", start=At(1)) as subscription:
        assert await events(subscription, 2) == [Event(1, b"b"), Event(2, b"c")]
        await streams.publish("default/orders", b"d")
        assert await events(subscription, 1) == [Event(3, b"d")]
        assert (subscription.offset, subscription.epoch) == (4, "e1")
    await server.until(lambda: not server.feeds)


async def test_a_subscription_begins_at_the_end_or_at_the_beginning(
    server: ScriptedServer, streams: StreamClient
) -> None:
    server.append(ORDERS, [b"a"])
    async with (
        streams.subscribe("default/orders") as latest,
        streams.subscribe("default/orders", "earliest") as earliest,
    ):
        server.append(ORDERS, [b"b"])
        assert await events(latest, 1) == [Event(1, b"b")]
        assert await events(earliest, 2) == [Event(0, b"a"), Event(1, b"b")]


async def test_an_iteration_subscribes_by_itself(server: ScriptedServer, streams: StreamClient) -> None:
    server.append(ORDERS, [b"a", b"b"])
    found = []
    async with aclosing(streams.subscribe("default/orders", "earliest")) as subscription:
        async for sight in subscription:
            found.append(sight)
            if len(found) == 2:
                break
    assert found == [Event(0, b"a"), Event(1, b"b")]
    await server.until(lambda: not server.feeds)


async def test_a_subscription_continues_after_each_break_without_loss_or_repetition(
    server: ScriptedServer, streams: StreamClient
) -> None:
    found = []
    async with streams.subscribe("default/orders", "earliest") as subscription:
        for number in range(5):
            server.append(ORDERS, [b"%d" % number, b"+"])
            if number % 2:
                await server.until(lambda: server.feeds)
                server.cut()
            found += await events(subscription, 2)
    assert [event.offset for event in found] == [*range(10)]
    assert [event.payload for event in found] == server.records[ORDERS]


async def test_a_subscription_from_the_end_misses_nothing_of_a_break_before_its_first_event(
    server: ScriptedServer, streams: StreamClient
) -> None:
    server.append(ORDERS, [b"old"])
    async with streams.subscribe("default/orders") as subscription:
        server.cut()
        server.append(ORDERS, [b"new"])
        assert await events(subscription, 1) == [Event(1, b"new")]


async def test_a_subscription_continues_when_the_server_ends_its_events(
    server: ScriptedServer, streams: StreamClient
) -> None:
    async with streams.subscribe("default/orders") as subscription:
        server.feeds[0].end()
        server.append(ORDERS, [b"a"])
        assert await events(subscription, 1) == [Event(0, b"a")]
    assert len(server.links) == 1


async def test_a_subscription_ends_when_its_stream_is_deleted(server: ScriptedServer, streams: StreamClient) -> None:
    server.append(ORDERS, [b"a"])
    async with streams.subscribe("default/orders", "earliest") as subscription:
        del server.records[ORDERS]
        server.feeds[0].end()
        assert [sight async for sight in subscription] == [Event(0, b"a")]
        assert await subscription.take() == []


async def test_a_missing_stream_is_not_found(streams: StreamClient) -> None:
    with pytest.raises(NotFound, match="stream=missing"):
        await anext(streams.subscribe("default/missing"))


@pytest.mark.parametrize(
    "layout",
    [
        lambda feed, base, payloads: write_events(EventBatch(payloads, None, base)),
        lambda feed, base, payloads: write_events(EventBatch(payloads, feed.number, base)),
        lambda feed, base, payloads: encode_frame(
            0,
            write_message(
                EventBatchMessage(
                    tenant_id="t1",
                    namespace="default",
                    stream="orders",
                    payloads=[*map(encode_text, payloads)],
                    base_offset=base,
                )
            ),
        ),
        lambda feed, base, payloads: b"".join(
            encode_frame(
                0,
                write_message(
                    EventMessage(
                        tenant_id="t1",
                        namespace="default",
                        stream="orders",
                        payload=encode_text(payload),
                        offset=offset,
                    )
                ),
            )
            for offset, payload in enumerate(payloads, base)
        ),
    ],
    ids=["shared", "own", "json batch", "json"],
)
async def test_events_are_read_in_each_of_their_layouts(
    server: ScriptedServer, streams: StreamClient, layout: Callable[[ScriptedFeed, int, list[bytes]], bytes]
) -> None:
    server.layout = layout
    server.append(ORDERS, [b"\x00", b"", b"c"])
    async with streams.subscribe("default/orders", "earliest") as subscription:
        assert await events(subscription, 3) == [Event(0, b"\x00"), Event(1, b""), Event(2, b"c")]


@pytest.mark.parametrize("own", [True, False])
async def test_a_server_without_offsets_is_read_until_the_connection_breaks(
    server: ScriptedServer, streams: StreamClient, own: bool
) -> None:
    server.layout = lambda feed, base, payloads: write_events(EventBatch(payloads, feed.number if own else None))
    async with streams.subscribe("default/orders") as subscription:
        server.append(ORDERS, [b"a"])
        assert await events(subscription, 1) == [Event(None, b"a")]
        server.cut()
        with pytest.raises(Lost, match="does not number events"):
            await anext(subscription)


async def test_events_of_another_subscription_are_an_error(server: ScriptedServer, streams: StreamClient) -> None:
    server.layout = lambda feed, base, payloads: write_events(EventBatch(payloads, 77, base))
    async with streams.subscribe("default/orders") as subscription:
        server.append(ORDERS, [b"a"])
        with pytest.raises(EventdError, match="subscription 77"):
            await anext(subscription)


async def test_lost_events_are_given_as_a_gap(server: ScriptedServer, streams: StreamClient) -> None:
    server.append(ORDERS, [b"%d" % number for number in range(5)])
    server.oldest = 3
    async with streams.subscribe("default/orders", start=At(1)) as subscription:
        assert await anext(subscription) == StreamGap(1, 2, "cap", 2)
        assert subscription.offset == 3
        assert await events(subscription, 2) == [Event(3, b"3"), Event(4, b"4")]


async def test_a_missing_offset_can_be_an_error_instead(server: ScriptedServer, streams: StreamClient) -> None:
    server.append(ORDERS, [b"%d" % number for number in range(5)])
    server.oldest = 3
    with pytest.raises(OffsetUnavailable, match="no longer has an event at offset 1") as caught:
        await anext(streams.subscribe("default/orders", start=At(1), on_gap="error"))
    assert (caught.value.reason, caught.value.available) == ("too_old", 3)
    with pytest.raises(OffsetUnavailable, match="no event yet at offset 9"):
        await anext(streams.subscribe("default/orders", start=At(9)))


async def test_a_recreated_stream_is_read_from_its_beginning_after_a_gap(
    server: ScriptedServer, streams: StreamClient
) -> None:
    server.append(ORDERS, [b"%d" % number for number in range(5)])
    async with streams.subscribe("default/orders", "earliest") as subscription:
        await events(subscription, 5)
        server.epoch = "e2"
        server.records[ORDERS] = [b"new"]
        server.cut()
        sight = await anext(subscription)
        assert isinstance(sight, StreamGap)
        assert sight.reason == "recreated"
        assert await events(subscription, 1) == [Event(0, b"new")]
        assert (subscription.offset, subscription.epoch) == (1, "e2")
        server.cut()
        server.append(ORDERS, [b"newer"])
        assert await events(subscription, 1) == [Event(1, b"newer")]


async def test_a_slow_program_does_not_fill_the_memory_and_misses_nothing(
    server: ScriptedServer, streams: StreamClient
) -> None:
    server.append(ORDERS, [bytes(10_000)])
    async with streams.subscribe("default/orders", "earliest", buffer=100_000) as subscription:
        for number in range(100):
            await asyncio.sleep(0)
            server.append(ORDERS, [b"%d" % number + bytes(10_000)])
        await server.until(lambda: not server.feeds)
        held = await subscription.take()
        assert 10 <= len(held) <= 20
        found = [*held, *await events(subscription, 101 - len(held))]
    assert [event.offset for event in found if isinstance(event, Event)] == [*range(101)]
    assert len(server.subscribes) > 1


async def test_take_returns_what_has_arrived(server: ScriptedServer, streams: StreamClient) -> None:
    server.append(ORDERS, [b"a", b"b", b"c"])
    async with streams.subscribe("default/orders", "earliest") as subscription:
        assert await subscription.take(2) == [Event(0, b"a"), Event(1, b"b")]
        assert await subscription.take() == [Event(2, b"c")]


async def test_a_wait_that_is_given_up_costs_no_event(server: ScriptedServer, streams: StreamClient) -> None:
    subscription = streams.subscribe("default/orders")
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(subscription), 0.001)
    await server.until(lambda: server.feeds)
    server.append(ORDERS, [b"a"])
    assert await events(subscription, 1) == [Event(0, b"a")]
    assert len(server.subscribes) == 1


async def test_a_token_that_ended_is_read_again(server: ScriptedServer) -> None:
    tokens = ["first", "second"]
    async with (
        StreamClient(server.address, "t1", lambda: tokens[0], ca=server.ca) as streams,
        streams.subscribe("default/orders") as subscription,
    ):
        tokens.pop(0)
        server.feeds[0].end()
        server.append(ORDERS, [b"a"])
        assert await events(subscription, 1) == [Event(0, b"a")]
        server.refuse_token = lambda _: "auth failed"
        server.feeds[0].end()
        with pytest.raises(Unauthorized):
            await anext(subscription)
    assert server.tokens[:2] == ["first", "second"]


async def test_a_closed_client_ends_its_subscriptions(server: ScriptedServer) -> None:
    async with StreamClient(server.address, "t1", ca=server.ca) as streams:
        subscription = streams.subscribe("default/orders")
        waiting = asyncio.ensure_future(anext(subscription))
        await server.until(lambda: server.feeds)
    with pytest.raises(Lost, match="closed"):
        await waiting
    with pytest.raises(Invalid, match="not open"):
        streams.subscribe("default/orders")


async def test_a_closed_subscription_ends_its_iteration(server: ScriptedServer, streams: StreamClient) -> None:
    subscription = streams.subscribe("default/orders")
    waiting = asyncio.ensure_future(subscription.take())
    await server.until(lambda: server.feeds)
    await subscription.aclose()
    assert await waiting == []
    assert [sight async for sight in subscription] == []
    await server.until(lambda: not server.feeds)


async def test_a_lot_of_subscriptions_get_further_connections(server: ScriptedServer) -> None:
    async with StreamClient(server.address, "t1", ca=server.ca, connections=1) as streams:
        subscriptions = [streams.subscribe("default/orders") for _ in range(70)]
        for subscription in subscriptions:
            await subscription.__aenter__()
        assert len(server.links) == 2
        server.append(ORDERS, [b"a"])
        for subscription in subscriptions:
            assert await events(subscription, 1) == [Event(0, b"a")]


async def test_a_forbidden_subscription_is_an_error(server: ScriptedServer, streams: StreamClient) -> None:
    server.refuse_token = lambda _: "forbidden"
    with pytest.raises(Forbidden):
        await anext(streams.subscribe("default/orders"))
