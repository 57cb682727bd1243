"""The cache as a second library uses it."""

from __future__ import annotations

from typing import Any

from tests.support.felix_wire import b64, message, scope
from tests.support.processes import Processes
from tests.support.stream_nodes import Session, StreamNode, cache, session

PRIMARY = scope("t1/default/primary", "cache")


def put(
    key: str, value: bytes, id: int | None = 1, *, ttl: int | None = None, where: dict[str, str] = PRIMARY
) -> bytes:
    asked: dict[str, Any] = {} if id is None else {"request_id": id}
    return message("cache_put", **where, key=key, value=b64(value), **asked, ttl_ms=ttl)


def get(key: str, id: int | None = 1, *, where: dict[str, str] = PRIMARY) -> bytes:
    asked: dict[str, Any] = {} if id is None else {"request_id": id}
    return message("cache_get", **where, key=key, **asked)


async def test_a_value_is_there_until_its_time_and_a_put_replaces_both(line: Session) -> None:
    stream = await line.stream()

    async def value(key: str) -> str | None:
        answer = await stream.ask(get(key, 9))
        assert {name: answer[name] for name in PRIMARY} == PRIMARY
        assert (answer["type"], answer["key"], answer["request_id"]) == ("cache_value", key, 9)
        found: str | None = answer["value"]
        return found

    assert await value("none") is None
    assert await stream.ask(put("k", b"v\xff\0")) == {"type": "cache_ok", "request_id": 1}
    assert await value("k") == b64(b"v\xff\0")
    await stream.ask(put("k", b"", ttl=60_000))
    assert await value("k") == ""
    await stream.ask(put("k", b"gone", ttl=0))
    assert await value("k") is None
    await stream.ask(put("soon", b"x", ttl=300))
    assert await value("soon") == b64(b"x")
    await stream.ask(put("soon", b"y", ttl=None))
    await stream.ask(put("late", b"x", ttl=1))
    while await value("late") is not None:
        pass
    assert await value("soon") == b64(b"y")
    await stream.ask(put("ü\n", b"odd key"))
    assert await value("ü\n") == b64(b"odd key")
    await stream.ask(put("for ever", b"x", ttl=2**64 - 1))
    assert await value("for ever") == b64(b"x")


async def test_keys_of_tenants_namespaces_and_caches_are_apart(node: StreamNode, line: Session) -> None:
    node.apply(cache("t1", "second"))
    second = PRIMARY | {"cache": "second"}
    stream = await line.stream()
    await stream.ask(put("same", b"1"))
    await stream.ask(put("same", b"2", where=second))
    assert (await stream.ask(get("same")))["value"] == b64(b"1")
    assert (await stream.ask(get("same", where=second)))["value"] == b64(b"2")
    node.ask("DELETE", "/resources/StreamCache/t1-second")
    gone = {"type": "error", "message": "cache scope not found: t1/default/second", "request_id": 1}
    assert await stream.ask(get("same", where=second)) == gone
    assert (await stream.ask(get("same")))["value"] == b64(b"1")


async def test_a_cache_keeps_within_its_bytes_and_entries(node: StreamNode, line: Session) -> None:
    node.apply(cache("t1", "small", maxBytes="64KiB"), cache("t1", "few", maxEntries=10))
    small, few = PRIMARY | {"cache": "small"}, PRIMARY | {"cache": "few"}
    stream = await line.stream()
    for number in range(200):
        await stream.ask(put(f"k{number}", b"x" * 1000, where=small))
        await stream.ask(put(f"k{number}", b"x", where=few))
        assert (await stream.ask(get("k0", where=few)))["value"] is not None  # it is used, so it stays
    kept = [number for number in range(200) if (await stream.ask(get(f"k{number}", where=small)))["value"]]
    assert kept == [*range(200 - len(kept), 200)]
    assert len(kept) == (64 << 10) // (1000 + 128 + 4)
    kept = [number for number in range(200) if (await stream.ask(get(f"k{number}", where=few)))["value"]]
    assert kept == [0, *range(191, 200)]
    await stream.ask(put("expired", b"x", ttl=1, where=few))
    await stream.ask(put("k191", b"again", where=few))
    metrics = node.process.get("/metrics")[1].decode()
    assert "routerd_eventd_cache_entries" in metrics


async def test_a_cache_is_empty_after_a_restart(processes: Processes) -> None:
    node = StreamNode(processes, "restarts")
    async with session(node) as line:
        stream = await line.stream()
        await stream.ask(put("kept", b"x"))
    node.kill9()
    node.start()
    async with session(node) as line:
        stream = await line.stream()
        assert (await stream.ask(get("kept")))["value"] is None
    assert node.stop() == 0
