"""Memory and work of a node under clients that take more than they need."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, suppress

from eventd.quic.client import connect as dial_quic
from eventd.quic.trust import ServerTrust
from eventd.runtime.clock import SystemClock
from tests.support.aioquic_client import RawClient, StreamOver, connect
from tests.support.felix_wire import b64, frame, message, publish, publish_acked, publish_json, read_ack, scope
from tests.support.processes import Processes
from tests.support.quic_ends import LinkNotes
from tests.support.stream_nodes import Session, StreamNode, session, topic
from tests.support.waiting import wait_for

ORDERS = "t1/default/orders"
MANY = 10_000
OVERLOAD = (
    "server overloaded",
    "publish queue full",
    "publish ingress byte budget exhausted",
    "publish ingress per-connection byte budget exhausted",
    "publish admission timed out",
)


async def test_ten_thousand_streams_that_announce_16_mib_each_take_no_memory(node: StreamNode) -> None:
    announced = frame(0x0009, b"\0" * 20, length=16 << 20)
    async with session(node) as good:
        before = node.memory()
        crowd = [await dial(node) for _ in range(10)]  # the node's own library: it is quicker
        for number, notes in enumerate(crowd):
            auth = Session(good.client, node.maker.token(sub=f"client {number}")).auth()
            streams = [notes.open() for _ in range(MANY // len(crowd))]
            for each in streams:
                each.stream.write(auth + announced)
            await streams[-1].until(lambda it: it.data)
        assert node.metric('routerd_eventd_stream_open_streams{kind="request"}') == MANY
        assert node.memory() - before < MANY * 16 << 10
        assert node.ready()
        begun = time.monotonic()
        await good.publish(ORDERS, b"there is room for others")
        assert time.monotonic() - begun < 1
        for notes in crowd:
            notes.link.close()
        wait_for(lambda: node.metric('routerd_eventd_stream_open_streams{kind="request"}') <= 1, "all to end")
        await good.publish(ORDERS, b"afterwards")


async def dial(node: StreamNode) -> LinkNotes:
    """Connect with the node's own library."""
    notes = LinkNotes()
    trust, clock = ServerTrust(is_blind=True), SystemClock()
    notes.link = await dial_quic("127.0.0.1", node.streams_port, notes, trust=trust, clock=clock)
    return notes


async def test_a_connection_whose_half_frames_take_too_much_is_stopped_and_then_closed(processes: Processes) -> None:
    limits = {"EVENTD_QUIC_MAX_FRAME_BYTES": "1MiB", "EVENTD_QUIC_CONN_INFLIGHT_BYTES": "2MiB"}
    node = StreamNode(processes, "tight", **limits)
    where = node.create("default/orders")
    async with session(node) as good:
        before = node.memory()
        greedy = await connect(node.streams_port)
        line = Session(greedy, node.maker.token())
        streams = [await line.stream() for _ in range(8)]
        for stream in streams:
            stream.write(frame(0x0009, b"\0" * 900_000, length=1 << 20))
        await greedy.closed(20)
        assert any(stream.stopped_code is not None for stream in streams)
        assert node.memory() - before < 60 << 20
        await good.publish(where, b"x" * 1_000_000)
        await greedy.bye()
    assert node.stop() == 0


async def test_half_frames_of_many_connections_leave_others_room_after_a_while(processes: Processes) -> None:
    limits = {
        "EVENTD_QUIC_MAX_FRAME_BYTES": "1MiB",
        "EVENTD_QUIC_CONN_INFLIGHT_BYTES": "1MiB",
        "EVENTD_QUIC_INFLIGHT_BYTES": "2MiB",
        "EVENTD_QUIC_INGRESS_WAIT": "500ms",
    }
    node = StreamNode(processes, "held", **limits)
    where = node.create("default/orders")
    async with AsyncExitStack() as stack:
        good, *greedy = [await stack.enter_async_context(session(node)) for _ in range(3)]
        for line in greedy:
            for _ in range(2):
                stream = await line.stream()
                stream.write(frame(0x0009, b"\0" * 600_000, length=1 << 20))
        stream = await good.stream()
        types = []
        async with asyncio.timeout(10):
            while types[-2:] != ["publish_error", "publish_ok"]:
                answer = await stream.ask(publish_json(where, b"x", request_id=1))
                assert answer.get("message", OVERLOAD[0]) in OVERLOAD
                types.append(answer["type"])
        assert not good.client.is_closed
    assert node.stop() == 0


async def test_over_the_budget_acknowledged_publishes_are_refused_and_nothing_of_them_is_written(
    processes: Processes,
) -> None:
    limits = {"EVENTD_QUIC_CONN_INFLIGHT_BYTES": "1MiB", "EVENTD_QUIC_INFLIGHT_BYTES": "2MiB"}
    node = StreamNode(processes, "over", **limits)
    where = node.create("default/orders")
    async with session(node, idle_timeout=60) as line:
        streams = [await line.stream() for _ in range(8)]
        for id in range(12):
            for at, stream in enumerate(streams):
                stream.write(publish_acked(id, where, b"%d-%d " % (at, id) + b"x" * 60_000))
        for stream in streams:
            stream.end()
        acknowledged = set()
        for at, stream in enumerate(streams):
            acks = [read_ack(each) for each in await stream.rest(30) if each.flags]
            assert [ack.request_id for ack in acks] == [*range(len(acks))]
            assert {ack.message for ack in acks if ack.status} <= set(OVERLOAD)
            acknowledged |= {b"%d-%d" % (at, ack.request_id) for ack in acks if not ack.status}
        stored = [each["data"].split(" ")[0].encode() for each in node.records(topic(where))]
        assert sorted(stored) == sorted(acknowledged)
        assert stored
    assert node.stop() == 0


async def test_unacknowledged_publishes_wait_for_room(processes: Processes) -> None:
    limits = {"EVENTD_QUIC_CONN_INFLIGHT_BYTES": "1MiB", "EVENTD_QUIC_INFLIGHT_BYTES": "2MiB"}
    node = StreamNode(processes, "waits", **limits)
    where = node.create("default/orders")
    async with session(node) as line:
        uni = line.uni(*(publish(where, b"%d" % id * 30_000) for id in range(40)), end=True)
        reading = await line.subscribe(where, start="earliest")
        seen = await reading.until(40, seconds=20)
        assert seen == [b"%d" % id * 30_000 for id in range(40)]
        assert uni.stopped_code is None
    assert node.stop() == 0


async def test_connections_have_a_limit_and_one_that_ends_makes_room(processes: Processes) -> None:
    node = StreamNode(processes, "full", EVENTD_QUIC_MAX_CONNECTIONS="5")
    node.create("default/orders")
    clients = [await connect(node.streams_port) for _ in range(5)]
    refused: RawClient | None = None
    with suppress(ConnectionError, TimeoutError):
        refused = await connect(node.streams_port, seconds=1)
    if refused is not None:
        await refused.closed(3)
        refused.vanish()
    await Session(clients[0], node.maker.token()).publish(ORDERS, b"still")
    await clients.pop().bye()
    async with asyncio.timeout(10):
        while True:
            try:
                last = await connect(node.streams_port, seconds=1)
                await Session(last, node.maker.token()).publish(ORDERS, b"room")
                break
            except (ConnectionError, TimeoutError, StreamOver):
                continue
    for client in (*clients, last):
        await client.bye()
    assert node.stop() == 0


async def test_floods_of_bad_tokens_and_bad_frames_keep_nobody_out(node: StreamNode) -> None:
    async with session(node) as line, session(node) as good:
        bad = line.auth(token=node.maker.token() + "x")
        for _ in range(4):
            streams = [line.client.open() for _ in range(50)]
            for number, stream in enumerate(streams):
                stream.write(bad if number % 2 else b"\xff" * 5000)
            publishing = good.publish(ORDERS, b"in between")
            async with asyncio.timeout(5):
                await publishing
            for stream in streams:
                await stream.over()


async def test_answers_that_are_not_read_take_no_more_than_their_share_of_memory(processes: Processes) -> None:
    node = StreamNode(processes, "unread", EVENTD_QUIC_CONN_INFLIGHT_BYTES="2MiB")
    where = node.create("default/orders")
    get = message("cache_get", **scope("t1/default/primary", "cache"), key="large", request_id=1)
    async with session(node) as good, session(node, max_stream_data=1000) as line:
        value = b64(b"v" * 400_000)
        put = message(
            "cache_put", **scope("t1/default/primary", "cache"), key="large", value=value, ttl_ms=None, request_id=1
        )
        assert (await (await good.stream()).ask(put))["type"] == "cache_ok"
        before = node.memory()
        streams = [line.client.open() for _ in range(40)]
        for stream in streams:
            line.client.stall(stream)
            stream.write(line.auth(), get, get)
        await line.client.wait(lambda: sum(stream.arrived > 0 for stream in streams) == len(streams), "all to begin")
        await good.publish(where, b"in between")
        assert node.metric("routerd_eventd_stream_unsent_bytes") < 6 << 20
        assert node.memory() - before < 40 << 20
        for stream in streams:
            line.client.resume(stream)
        for stream in streams:
            assert [(await stream.message(30))["type"] for _ in range(3)] == ["auth_ok", "cache_value", "cache_value"]
    assert node.stop() == 0
