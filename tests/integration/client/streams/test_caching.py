"""What a client of streams promises about caches."""

from __future__ import annotations

import asyncio

import pytest

from eventd.client import StreamClient
from eventd.errors import Forbidden, Invalid, NotFound, TooLarge
from tests.support.scripted_streams import ScriptedServer


async def test_a_value_is_stored_and_read(server: ScriptedServer, streams: StreamClient) -> None:
    cache = streams.cache("default/primary")
    await cache.put("k", b"\x00v", ttl=60.0)
    await cache.put("for ever", b"")
    assert await cache.get("k") == b"\x00v"
    assert await cache.get("for ever") == b""
    assert await cache.get("missing") is None
    assert server.ttls == {"k": 60_000, "for ever": None}


async def test_requests_are_pipelined_on_four_streams(server: ScriptedServer, streams: StreamClient) -> None:
    cache = streams.cache("default/primary")
    await asyncio.gather(*(cache.put(f"k{number}", b"%d" % number) for number in range(100)))
    found = await asyncio.gather(*(cache.get(f"k{number}") for number in range(100)))
    assert found == [b"%d" % number for number in range(100)]
    assert len(server.streams) == 4
    assert len(server.links) == 2


async def test_a_request_whose_answer_is_lost_is_sent_again(server: ScriptedServer, streams: StreamClient) -> None:
    cache = streams.cache("default/primary")
    await cache.put("k", b"v")
    server.holds_answers = True
    calls = [asyncio.ensure_future(cache.get("k")) for _ in range(3)]
    await asyncio.sleep(0)
    server.holds_answers = False
    server.cut()
    assert await asyncio.gather(*calls) == [b"v"] * 3


async def test_a_refused_request_costs_no_other(server: ScriptedServer) -> None:
    async with StreamClient(server.address, "t1", ca=server.ca, cache_streams=1) as streams:
        server.refuse = lambda cache: {"primary": "", "secret": "forbidden"}.get(
            cache, f"cache scope not found: t1/default/{cache}"
        )
        calls = [
            streams.cache(f"default/{name}").put("k", b"v") for name in ("missing", "primary", "secret", "primary")
        ]
        found = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(each) for each in found] == [NotFound, type(None), Forbidden, type(None)]
    assert len(server.streams) == 2


async def test_values_and_times_are_checked_before_anything_is_sent(
    server: ScriptedServer, streams: StreamClient
) -> None:
    cache = streams.cache("default/primary")
    with pytest.raises(TooLarge):
        await cache.put("k", bytes((1 << 20) + 1))
    for ttl in (-1.0, float("nan"), float("inf")):
        with pytest.raises(Invalid, match="time to live"):
            await cache.put("k", b"", ttl=ttl)
    with pytest.raises(Invalid, match="NAMESPACE/CACHE"):
        streams.cache("primary")
    assert server.links == []
    with pytest.raises(Invalid, match="not text"):
        await cache.get("\udc80")


async def test_a_value_of_the_largest_size_comes_back(streams: StreamClient) -> None:
    cache = streams.cache("default/primary")
    value = bytes(range(256)) * 4096
    await cache.put("k", value, ttl=0.0001)
    assert await cache.get("k") == value
