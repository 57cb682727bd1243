"""The client against the listener of a node, over UDP and a real log."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eventd.api.quic.cache import Caches
from eventd.api.quic.listener import StreamListener
from eventd.api.quic.options import StreamOptions
from eventd.client import At, Event, OffsetUnavailable, StreamClient, StreamGap
from eventd.errors import Forbidden, Full, NotFound, Unauthorized
from eventd.quic.certificate import QuicCertificate
from eventd.resources.stream_configuration import CacheSpec
from eventd.runtime.clock import SystemClock
from eventd.streams.names import CacheName
from tests.support.certificates import Authority
from tests.support.stream_channels import TENANT, TokensOfTest
from tests.support.v0 import Server, serving


class Listening:
    """A listener of streams in this process. `tokens` decides who may do what."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.server = server
        self.tokens = TokensOfTest()
        self.caches = Caches(server.log.clock, 64 << 20, 100_000)
        self.caches.declare({CacheName(TENANT, "default", "primary"): CacheSpec(8 << 20, 10_000, None)})
        authority = Authority(folder)
        files = authority.issue("quic")
        self.ca = authority.file
        self.certificate = QuicCertificate.of_files(files.cert, files.key, SystemClock().now())
        self.listener: StreamListener

    async def start(self, port: int = 0) -> None:
        v0 = self.server.v0
        self.listener = StreamListener(
            v0, self.tokens, self.caches, StreamOptions(), v0.serving.metrics.streams, v0.supervisor
        )
        await self.listener.start("127.0.0.1", port, self.certificate)

    @property
    def port(self) -> int:
        assert self.listener.address is not None
        return self.listener.address[1]

    def client(self, token: str = "tester", **options: int) -> StreamClient:
        return StreamClient(f"127.0.0.1:{self.port}", TENANT, token, ca=self.ca, **options)  # type: ignore[arg-type]


@pytest.fixture
async def node(sqlite_url: str, tmp_path: Path) -> AsyncIterator[Listening]:
    async with serving(sqlite_url) as server:
        made = Listening(server, tmp_path)
        await server.ask("PUT", "/topics/stream:t1:default:orders", {"durability": "fsync"})
        await made.start()
        try:
            yield made
        finally:
            await made.listener.stop()


async def test_what_is_published_arrives_byte_for_byte(node: Listening) -> None:
    payloads = [b"", b"text", b"\x00", b"\xff\xfe", b'{"$b64":"AA=="}', bytes(range(256)), b"x" * (1 << 20)]
    async with node.client() as streams, streams.subscribe("default/orders") as subscription:
        done = await streams.publish_batch("default/orders", payloads)
        assert (done.offset, done.count) == (0, len(payloads))
        assert done.durability
        assert done.epoch == subscription.epoch
        assert [await anext(subscription) for _ in payloads] == [
            Event(offset, payload) for offset, payload in enumerate(payloads)
        ]


async def test_publishes_of_many_tasks_and_a_live_subscription(node: Listening) -> None:
    async with node.client() as streams, streams.subscribe("default/orders") as subscription:
        payloads = [b"%d" % number for number in range(500)]
        done = await asyncio.gather(*(streams.publish("default/orders", payload) for payload in payloads))
        assert [each.offset for each in done] == [*range(500)]
        found = [await anext(subscription) for _ in range(500)]
    assert [sight.payload for sight in found if isinstance(sight, Event)] == payloads


async def test_unacknowledged_records_are_stored_before_the_client_ends(node: Listening) -> None:
    async with node.client() as streams:
        for number in range(100):
            await streams.publish_batch("default/orders", [b"%d" % number] * 3, ack=False)
    async with node.client() as streams, streams.subscribe("default/orders", "earliest") as subscription:
        found = [await anext(subscription) for _ in range(300)]
    assert [sight.payload for sight in found if isinstance(sight, Event)] == [
        b"%d" % number for number in range(100) for _ in range(3)
    ]


async def test_a_client_continues_over_a_restart_of_the_listener(node: Listening) -> None:
    async with node.client() as streams, streams.subscribe("default/orders") as subscription:
        await streams.publish("default/orders", b"a")
        port = node.port
        await node.listener.stop()
        waiting = asyncio.ensure_future(streams.publish("default/orders", b"b"))
        await node.start(port)
        async with asyncio.timeout(30):
            assert (await waiting).offset == 1
            assert [await anext(subscription) for _ in range(2)] == [Event(0, b"a"), Event(1, b"b")]


async def test_a_slow_subscriber_resumes_and_misses_nothing(node: Listening) -> None:
    async with node.client() as streams, streams.subscribe("default/orders", buffer=200_000) as subscription:
        for number in range(40):
            await streams.publish_batch("default/orders", [b"%d" % number + bytes(30_000)] * 2)
        async with asyncio.timeout(30):
            found = [await anext(subscription) for _ in range(80)]
    assert [sight.offset for sight in found if isinstance(sight, Event)] == [*range(80)]


async def test_lost_events_are_gaps(node: Listening) -> None:
    config = {"durability": "fsync", "cap_records": 3}
    await node.server.ask("PUT", "/topics/stream:t1:default:orders", config)
    async with node.client() as streams:
        await streams.publish_batch("default/orders", [b"%d" % number for number in range(10)])
        async with streams.subscribe("default/orders", At(0)) as subscription:
            gap = await anext(subscription)
            assert isinstance(gap, StreamGap)
            assert (gap.first, gap.last, gap.missed, gap.reason) == (0, 6, 7, "cap")
            assert await anext(subscription) == Event(7, b"7")
        with pytest.raises(OffsetUnavailable) as caught:
            await anext(streams.subscribe("default/orders", At(0), on_gap="error"))
        assert caught.value.available == 7


async def test_a_stream_that_was_made_again_is_told_apart(node: Listening) -> None:
    async with node.client() as streams, streams.subscribe("default/orders") as subscription:
        await streams.publish("default/orders", b"old")
        await anext(subscription)
        epoch, offset = subscription.epoch, subscription.offset
        await node.server.ask("DELETE", "/topics/stream:t1:default:orders")
        async with asyncio.timeout(20):
            assert [sight async for sight in subscription] == []
        await node.server.ask("PUT", "/topics/stream:t1:default:orders", {"durability": "fsync"})
        await streams.publish("default/orders", b"new")
        assert offset is not None
        async with streams.subscribe("default/orders", At(offset), epoch=epoch) as again:
            gap = await anext(again)
            assert isinstance(gap, StreamGap)
            assert gap.reason == "recreated"
            assert await anext(again) == Event(0, b"new")
            assert again.epoch not in ("", epoch)


async def test_refusals_of_the_node(node: Listening) -> None:
    async with node.client("reader stream.subscribe:*") as streams:
        with pytest.raises(Forbidden):
            await streams.publish("default/orders", b"a")
        with pytest.raises(Forbidden):
            await streams.cache("default/primary").put("k", b"v")
    async with node.client("nobody") as streams:
        with pytest.raises(Unauthorized):
            await streams.reach()
    async with node.client() as streams:
        with pytest.raises(NotFound, match="stream not found"):
            await streams.publish("default/missing", b"a")
        with pytest.raises(NotFound, match="stream not found"):
            await anext(streams.subscribe("default/missing"))
        with pytest.raises(NotFound, match="cache scope not found"):
            await streams.cache("default/missing").get("k")
        config = {"durability": "fsync", "cap_records": 2, "discard": "reject"}
        await node.server.ask("PUT", "/topics/stream:t1:default:orders", config)
        await streams.publish_batch("default/orders", [b"a", b"b"])
        with pytest.raises(Full):
            await streams.publish("default/orders", b"c")


async def test_a_subscription_ends_with_its_grant_and_continues_with_another_token(node: Listening) -> None:
    async with node.client() as streams, streams.subscribe("default/orders") as subscription:
        for grant in node.tokens.grants:
            grant.reason = "token expired"
        await streams.publish("default/orders", b"a")
        async with asyncio.timeout(20):
            assert await anext(subscription) == Event(0, b"a")
        for grant in node.tokens.grants:
            grant.reason = "token expired"
        await streams.publish("default/orders", b"b")
        async with asyncio.timeout(20):
            assert await anext(subscription) == Event(1, b"b")


async def test_a_cache_of_the_node(node: Listening) -> None:
    async with node.client() as streams:
        cache = streams.cache("default/primary")
        await asyncio.gather(*(cache.put(f"k{number}", b"%d" % number * 1000) for number in range(200)))
        found = await asyncio.gather(*(cache.get(f"k{number}") for number in range(201)))
        assert found == [*(b"%d" % number * 1000 for number in range(200)), None]
        await cache.put("k0", b"", ttl=0)
        assert await cache.get("k0") is None
        await cache.put("large", bytes(1 << 20), ttl=60.0)
        assert await cache.get("large") == bytes(1 << 20)


async def test_large_payloads_of_several_streams_arrive_whole(node: Listening) -> None:
    names = [f"default/s{number}" for number in range(4)]
    for number in range(4):
        await node.server.ask("PUT", f"/topics/stream:t1:default:s{number}", {"durability": "fsync"})
    async with node.client() as streams:
        payloads = {name: bytes([65 + at]) * (1 << 20) for at, name in enumerate(names)}
        async with asyncio.timeout(60):
            await asyncio.gather(*(streams.publish(name, payloads[name]) for name in names for _ in range(3)))
            for name in names:
                async with streams.subscribe(name, "earliest") as subscription:
                    assert [await anext(subscription) for _ in range(3)] == [
                        Event(offset, payloads[name]) for offset in range(3)
                    ]
