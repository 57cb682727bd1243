"""Cache requests on the wire: their answers come in order, and what ends the stream."""

from __future__ import annotations

from typing import Any

from eventd.resources.stream_configuration import CacheSpec
from eventd.streams.names import CacheName
from tests.support import felix_wire as wire
from tests.support.stream_channels import StreamsInMemory

WHERE = "t1/default/primary"
SCOPE = wire.scope(WHERE, "cache")


def put(key: str, value: bytes, where: str = WHERE, **members: Any) -> bytes:
    scope = wire.scope(where, "cache")
    return wire.message("cache_put", **scope, key=key, value=wire.b64(value), **{"ttl_ms": None, **members})


def get(key: str, where: str = WHERE, **members: Any) -> bytes:
    return wire.message("cache_get", **wire.scope(where, "cache"), key=key, **members)


async def test_pipelined_requests_are_answered_in_their_order(streams: StreamsInMemory) -> None:
    stream = await streams.stream()
    sent = [put(str(n), b"%d" % n, request_id=n) for n in range(100)]
    sent += [get(str(n), request_id=n) for n in reversed(range(101))]
    stream.send(*sent)
    for n in range(100):
        assert await stream.message() == {"type": "cache_ok", "request_id": n}
    for n in reversed(range(101)):
        value = wire.b64(b"%d" % n) if n < 100 else None
        wanted = {"type": "cache_value", **SCOPE, "key": str(n), "value": value, "request_id": n}
        assert await stream.message() == wanted
    assert streams.counted("cache_gets_total", result="hit") == 100
    assert streams.counted("cache_gets_total", result="miss") == 1
    assert streams.counted("cache_entries") == 100


async def test_a_request_without_an_id_ends_its_stream(streams: StreamsInMemory) -> None:
    stream = await streams.stream()
    assert await stream.ask(put("k", b"v")) == {"type": "ok"}
    assert await stream.ended()
    stream = await streams.stream()
    assert await stream.ask(get("k")) == {"type": "cache_value", **SCOPE, "key": "k", "value": "dg=="}
    assert await stream.ended()
    stream = await streams.stream()
    stream.send(get("k", "t1/default/other"))
    assert await stream.error() == "cache scope not found: t1/default/other"


async def test_a_refusal_with_an_id_leaves_the_stream_open(streams: StreamsInMemory) -> None:
    stream = await streams.stream()
    unknown = await stream.ask(get("k", "t1/default/other", request_id=1))
    assert unknown == {"type": "error", "message": "cache scope not found: t1/default/other", "request_id": 1}
    large = await stream.ask(put("k", bytes((1 << 20) + 1), request_id=2))
    assert (large["type"], large["request_id"]) == ("error", 2)
    assert "value too large" in large["message"]
    assert (await stream.ask(get("k", request_id=3)))["value"] is None


async def test_what_a_client_says_is_not_repeated_at_any_length(streams: StreamsInMemory) -> None:
    stream = await streams.stream()
    long = "x" * ((16 << 20) - 300)
    refused = await stream.ask(get(long, request_id=1))
    assert (refused["type"], refused["request_id"], len(refused["message"]) < 300) == ("error", 1, True)
    refused = await stream.ask(get("k", f"t1/default/{long}", request_id=2))
    assert refused["message"] == f"cache scope not found: t1/default/{'x' * 1024}…"
    stream.send(get("k", request_id="i" * 257))
    assert await stream.error() == "malformed message"
    stream = await streams.stream()
    stream.send(wire.message("subscribe", **wire.scope(f"t1/n/{long}", "stream")))
    assert await stream.error() == f"stream not found: tenant=t1 namespace=n stream={'x' * 1024}…"


async def test_a_text_as_id_gets_ok_and_may_leave_out_names(streams: StreamsInMemory) -> None:
    streams.caches.declare({CacheName("t1", "default", "default"): CacheSpec(1 << 20, 10, None)})
    stream = await streams.stream()
    request = wire.message("cache_put", key="k", value="dg==", request_id="a", ttl_ms=60_000)
    assert await stream.ask(request) == {"type": "ok", "request_id": "a"}
    answer = await stream.ask(wire.message("cache_get", key="k", request_id="b"))
    scope = {**SCOPE, "cache": "default"}
    assert answer == {"type": "cache_value", **scope, "key": "k", "value": "dg==", "request_id": "b"}


async def test_reading_and_writing_are_two_permissions(streams: StreamsInMemory) -> None:
    reader = "ann cache.read:cache:t1/*"
    stream = await streams.stream(reader)
    assert (await stream.ask(get("k", request_id=1)))["value"] is None
    stream.send(put("k", b"v", request_id=2))
    assert await stream.error() == "forbidden"
    stream = await streams.stream("ann cache.write:cache:t1/default/primary")
    assert (await stream.ask(put("k", b"v", request_id=1)))["type"] == "cache_ok"
    stream.send(get("k", request_id=2))
    assert await stream.error() == "forbidden"
    stream = await streams.stream()
    stream.send(get("k", "t2/default/primary", request_id=1))
    assert await stream.error() == "tenant mismatch"


async def test_a_value_that_is_not_base64_is_malformed(streams: StreamsInMemory) -> None:
    stream = await streams.stream()
    stream.send(wire.message("cache_put", **SCOPE, key="k", value="a", request_id=1, ttl_ms=None))
    assert await stream.error() == "malformed message"
