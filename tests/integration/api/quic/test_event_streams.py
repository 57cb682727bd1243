"""Event streams over real connections: the client's flow control is what makes a subscriber slow."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eventd.api.quic.options import StreamOptions
from eventd.api.quic.subscribing import Subscribing
from eventd.streams.frames import StreamFrameReader
from eventd.streams.layouts import read_events
from eventd.testing import until
from tests.support.event_streams import ORDERS, StreamClient
from tests.support.quic_ends import Served, StreamNotes, serve
from tests.support.topics import Topics
from tests.support.v0 import Server, serving

TOPIC = ORDERS.topic


@pytest.fixture
async def server(migrated_sqlite_url: str) -> AsyncIterator[Server]:
    async with serving(migrated_sqlite_url) as opened:
        await Topics(opened.log).make(TOPIC)
        yield opened


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serve(tmp_path) as opened:
        yield opened


def offsets(stream: StreamNotes) -> list[int]:
    """Return the offsets of all events that have arrived."""
    found: list[int] = []
    for flags, payload in StreamFrameReader().feed(stream.data):
        if flags:
            batch = read_events(flags, payload)
            assert batch.base_offset is not None
            found += range(batch.base_offset, batch.base_offset + len(batch.payloads))
    return found


async def test_events_arrive_and_a_client_unsubscribes_with_stop_sending(server: Server, served: Served) -> None:
    topics, client = Topics(server.log), await served.dial()
    subscribing = Subscribing(server.v0, server.v0.serving.metrics.streams, StreamOptions())
    link = await served.link()
    subscriber = StreamClient(subscribing, link.link)
    for _ in range(2):
        _, start = await subscriber.ask(start="earliest")
        assert start is not None
        start()
    await topics.put(TOPIC, *["x" * 1000] * 500)
    await client.until(lambda notes: len(notes.streams) == 2)
    first, second = client.streams
    assert first.stream.is_unidirectional
    for stream in (first, second):
        await stream.until(lambda notes: len(offsets(notes)) == 500)
        assert offsets(stream) == [*range(500)]
    first.stream.stop_receiving()
    await until(lambda: len(subscriber.places.open) == 1, "the subscription to end")
    await topics.put(TOPIC, "last")
    await second.until(lambda notes: offsets(notes)[-1] == 500)
    await server.delete(TOPIC)
    await second.until(lambda notes: notes.ended)
    assert not subscriber.places.open
    client.link.close()
    await client.until(lambda notes: notes.end)


async def test_the_loss_of_the_connection_ends_its_subscriptions(server: Server, served: Served) -> None:
    client = await served.dial()
    subscribing = Subscribing(server.v0, server.v0.serving.metrics.streams, StreamOptions())
    link = await served.link()
    subscriber = StreamClient(subscribing, link.link)
    _, start = await subscriber.ask()
    assert start is not None
    start()
    assert len(subscriber.places.open) == 1
    client.link.close()
    await until(lambda: not subscriber.places.open, "the subscription to end")
    await client.until(lambda notes: notes.end)
    assert not served.failures
