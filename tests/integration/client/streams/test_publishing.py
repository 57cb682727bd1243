"""What a client of streams promises about publishes."""

from __future__ import annotations

import asyncio

import pytest

from eventd.client import Lost, Published, StreamClient, Throttled
from eventd.errors import EventdError, Forbidden, Full, Invalid, NotFound, TooLarge, Unauthorized
from eventd.streams.frames import ASSUMED
from tests.support.scripted_streams import ScriptedServer

ORDERS = "t1/default/orders"


async def test_a_publish_returns_where_and_how_safely_it_is_stored(
    server: ScriptedServer, streams: StreamClient
) -> None:
    assert await streams.publish("default/orders", b"a") == Published(0, 1, "fsync", "e1")
    assert await streams.publish_batch("default/orders", [b"b", b""]) == Published(1, 2, "fsync", "e1")
    assert server.records[ORDERS] == [b"a", b"b", b""]


async def test_publishes_of_many_tasks_share_frames_and_keep_their_order(
    server: ScriptedServer, streams: StreamClient
) -> None:
    payloads = [b"%d" % number for number in range(200)]
    done = await asyncio.gather(*(streams.publish("default/orders", payload) for payload in payloads))
    assert [each.offset for each in done] == [*range(200)]
    assert server.records[ORDERS] == payloads
    assert server.frames[0] == 1
    assert max(server.frames) == 64
    assert len(server.frames) <= 6


async def test_no_more_records_than_the_window_wait_for_an_answer(server: ScriptedServer) -> None:
    server.holds_answers = True
    async with StreamClient(server.address, "t1", ca=server.ca, window=3) as streams:
        calls = [asyncio.ensure_future(streams.publish("default/orders", b"%d" % number)) for number in range(9)]
        await server.until(lambda: server.records[ORDERS])
        server.holds_answers = False
        server.cut()
        done = await asyncio.gather(*calls)
    assert [each.offset for each in done] == [*range(9)]
    assert max(server.frames) <= 3


async def test_a_lost_answer_is_asked_for_again_and_the_record_is_written_once(
    server: ScriptedServer, streams: StreamClient
) -> None:
    server.holds_answers = True
    first = asyncio.ensure_future(streams.publish("default/orders", b"a"))
    other = asyncio.ensure_future(streams.publish("default/other", b"b"))
    await server.until(lambda: server.records[ORDERS] and server.records["t1/default/other"])
    server.holds_answers = False
    server.cut()
    assert [(await first).offset, (await other).offset] == [0, 0]
    assert server.records[ORDERS] == [b"a"]
    assert len(server.frames) == 4
    assert len({*server.sessions}) == 1
    assert server.sessions[0]


async def test_a_lost_answer_of_a_server_without_sessions_is_an_error(server: ScriptedServer) -> None:
    server.flags = None
    server.holds_answers = True
    async with StreamClient(server.address, "t1", ca=server.ca) as streams:
        first = asyncio.ensure_future(streams.publish("default/orders", b"a"))
        await server.until(lambda: server.records[ORDERS])
        server.cut()
        with pytest.raises(Lost, match="may be stored"):
            await first


async def test_a_server_that_knows_no_acknowledged_batches_gets_messages(server: ScriptedServer) -> None:
    server.flags = ASSUMED
    async with StreamClient(server.address, "t1", ca=server.ca) as streams:
        assert await streams.publish("default/orders", b"\xff\x00") == Published(None, 1)
    assert server.records[ORDERS] == [b"\xff\x00"]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("forbidden", Forbidden),
        ("topic full", Full),
        ("record too large", TooLarge),
        ("something else", EventdError),
        ("tenant mismatch", Forbidden),
    ],
)
async def test_a_refusal_is_raised_as_its_kind(
    server: ScriptedServer, streams: StreamClient, text: str, kind: type[EventdError]
) -> None:
    server.refuse = lambda _: text
    with pytest.raises(kind, match=text):
        await streams.publish("default/orders", b"a")


async def test_a_missing_stream_is_not_found(streams: StreamClient) -> None:
    with pytest.raises(NotFound, match="stream not found: tenant=t1 namespace=default stream=missing"):
        await streams.publish("default/missing", b"a")


async def test_an_overloaded_server_is_asked_again(server: ScriptedServer, streams: StreamClient) -> None:
    texts = ["server overloaded", "publish commit timeout"]
    server.refuse = lambda _: texts.pop() if texts else ""
    assert (await streams.publish("default/orders", b"a")).offset == 0
    assert server.records[ORDERS] == [b"a"]


async def test_without_patience_an_overloaded_server_is_throttled(server: ScriptedServer) -> None:
    server.refuse = lambda _: "publish queue full"
    async with StreamClient(server.address, "t1", ca=server.ca, patience=0) as streams:
        with pytest.raises(Throttled):
            await streams.publish("default/orders", b"a")


async def test_one_refused_publish_costs_no_other_of_its_frame(server: ScriptedServer, streams: StreamClient) -> None:
    server.refuse = lambda _: "record too large" if server.frames[-1] > 1 or len(server.frames) == 3 else ""
    done = await asyncio.gather(
        *(streams.publish("default/orders", b"%d" % number) for number in range(4)), return_exceptions=True
    )
    assert [type(each).__name__ for each in done] == ["Published", "TooLarge", "Published", "Published"]
    assert server.records[ORDERS] == [b"0", b"2", b"3"]


async def test_what_is_too_large_is_refused_before_anything_is_sent(
    server: ScriptedServer, streams: StreamClient
) -> None:
    with pytest.raises(TooLarge, match="1048577 bytes"):
        await streams.publish("default/orders", bytes((1 << 20) + 1))
    with pytest.raises(TooLarge, match="10001 records"):
        await streams.publish_batch("default/orders", [b""] * 10_001)
    with pytest.raises(TooLarge, match="frame"):
        await streams.publish_batch("default/orders", [bytes(1 << 20)] * 16)
    with pytest.raises(TooLarge):
        await streams.publish("default/orders", bytes((1 << 20) + 1), ack=False)
    assert server.links == []


async def test_a_large_payload_arrives_whole_and_holds_up_no_other_stream(
    server: ScriptedServer, streams: StreamClient
) -> None:
    large = [bytes([number]) * (1 << 20) for number in range(6)]
    async with asyncio.TaskGroup() as group:
        whole = [group.create_task(streams.publish("default/orders", payload)) for payload in large]
        small = group.create_task(streams.publish("default/other", b"small"))
        await small
        assert not all(task.done() for task in whole)
    assert server.records[ORDERS] == large


@pytest.mark.parametrize("name", ["orders", "default/", "/orders", "a/b/c", "default/a b", "default/" + "x" * 81])
async def test_a_name_that_no_stream_can_have_is_invalid(streams: StreamClient, name: str) -> None:
    with pytest.raises(Invalid, match="NAMESPACE/STREAM"):
        await streams.publish(name, b"a")


async def test_unacknowledged_records_are_sent_before_the_client_ends(server: ScriptedServer) -> None:
    async with StreamClient(server.address, "t1", ca=server.ca) as streams:
        for number in range(50):
            assert await streams.publish_batch("default/orders", [b"%d" % number] * 10, ack=False) is None
    assert server.records[ORDERS] == [b"%d" % number for number in range(50) for _ in range(10)]
    assert server.frames == []


async def test_a_refused_unacknowledged_publish_is_reported_by_a_later_one(
    server: ScriptedServer, streams: StreamClient
) -> None:
    server.refuse = lambda _: "forbidden"

    async def publish_until_refused() -> None:
        while True:
            await streams.publish("default/orders", b"b", ack=False)
            await asyncio.sleep(0.01)

    async with asyncio.timeout(10):
        with pytest.raises(Forbidden):
            await publish_until_refused()
    server.refuse = lambda _: ""
    await streams.publish("default/orders", b"c", ack=False)
    await server.until(lambda: server.records[ORDERS] == [b"c"])


async def test_the_end_of_a_client_reports_that_its_unacknowledged_publishes_were_forbidden(
    server: ScriptedServer,
) -> None:
    server.refuse = lambda _: "forbidden"
    with pytest.raises(Forbidden):
        async with StreamClient(server.address, "t1", ca=server.ca) as streams:
            await streams.publish("default/orders", b"a", ack=False)


async def test_a_refused_token_is_unauthorized_at_once(server: ScriptedServer, streams: StreamClient) -> None:
    server.refuse_token = lambda _: "auth failed"
    with pytest.raises(Unauthorized, match="auth failed"):
        await streams.publish("default/orders", b"a")
    with pytest.raises(Unauthorized):
        await streams.reach()


async def test_a_publish_that_waits_when_the_client_ends_is_lost(server: ScriptedServer) -> None:
    server.holds_answers = True
    streams = StreamClient(server.address, "t1", ca=server.ca)
    async with asyncio.timeout(10):
        await streams.__aenter__()
        first = asyncio.ensure_future(streams.publish("default/orders", b"a"))
        await server.until(lambda: server.records[ORDERS])
        second = asyncio.ensure_future(streams.publish("default/orders", b"b"))
        await asyncio.sleep(0)
        await streams.close()
        for call in (first, second):
            with pytest.raises(Lost, match="closed"):
                await call


async def test_a_cancelled_publish_frees_its_room(server: ScriptedServer) -> None:
    server.holds_answers = True
    async with StreamClient(server.address, "t1", ca=server.ca, window=1) as streams:
        first = asyncio.ensure_future(streams.publish("default/orders", b"a"))
        await server.until(lambda: server.records[ORDERS])
        waiting = asyncio.ensure_future(streams.publish("default/orders", b"b"))
        await asyncio.sleep(0)
        waiting.cancel()
        first.cancel()
        server.holds_answers = False
        server.cut()
        assert (await streams.publish("default/orders", b"c")).offset == 1
    assert server.records[ORDERS] == [b"a", b"c"]
