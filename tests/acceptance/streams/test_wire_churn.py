"""Clients that do anything in any order, break off anywhere and vanish leave nothing behind."""

from __future__ import annotations

import asyncio
import random
import time

from tests.support.aioquic_client import RawStream, connected
from tests.support.felix_wire import b64, frame, message, publish, publish_acked, publish_json, read_ack, scope
from tests.support.stream_nodes import Session, StreamNode, session
from tests.support.waiting import wait_for

ORDERS = "t1/default/orders"
CACHE = scope("t1/default/primary", "cache")
SECONDS = 1.5
LEFT = (
    "routerd_eventd_stream_connections",
    'routerd_eventd_stream_open_streams{kind="request"}',
    'routerd_eventd_stream_open_streams{kind="publish"}',
    "routerd_eventd_stream_subscriptions",
    "routerd_eventd_stream_unsent_bytes",
)


def request(chance: random.Random) -> bytes:
    """Return a request, or something like one."""
    key = f"k{chance.randint(0, 50)}"
    start = chance.choice(["earliest", "latest", {"offset": chance.randint(0, 2000)}])
    payloads = [b"x" * chance.randint(0, 3000)] * chance.randint(0, 20)
    found = [
        publish(ORDERS, *payloads),
        publish_acked(chance.randint(0, 9), chance.choice([ORDERS, "t1/default/none", "t2/a/b"]), *payloads),
        publish_json(ORDERS, b"z", request_id=chance.choice([1, "a"])),
        message("subscribe", **scope(ORDERS), start=start, on_gap=chance.choice(["tell", "error"])),
        message("subscribe", **scope(ORDERS), start=start, request_id="text"),
        message("cache_put", **CACHE, key=key, value=b64(bytes(9000)), ttl_ms=chance.choice([None, 5]), request_id=1),
        message("cache_get", **CACHE, key=key, request_id=chance.choice([1, "a"])),
        frame(0x0009, bytes(chance.randint(0, 20_000)), length=chance.randint(20_000, 1 << 20)),
        frame(chance.randrange(1 << 16), chance.randbytes(30)),
    ]
    return chance.choice(found)


def play(line: Session, chance: random.Random) -> None:
    """Do something on a new stream, and maybe on an old one."""
    client = line.client
    stream = client.open(unidirectional=chance.random() < 0.2)
    auth = line.auth(ext=["gap", "session", "receipt"], session="s") if chance.random() < 0.5 else line.auth()
    first = chance.choices([auth, line.auth(token="bad"), b""], [18, 1, 1])[0]
    data = first + b"".join(request(chance) for _ in range(chance.randint(0, 6)))
    stream.write(data[: chance.randint(0, len(data))] if chance.random() < 0.2 else data, end=chance.random() < 0.4)
    if chance.random() < 0.3:
        client.transmit()
    give_up(stream, chance)
    if chance.random() < 0.2:
        client.stall(chance.choice(list(client.streams.values())))
    if client.opened and chance.random() < 0.2:
        client.opened.popleft().stop(chance.randint(0, 5))


def give_up(stream: RawStream, chance: random.Random) -> None:
    """Maybe stop sending or receiving in the middle."""
    if chance.random() < 0.15 and stream.stopped_code is None:
        stream.reset(chance.randrange(1 << 30))
    if chance.random() < 0.15 and stream.id % 4 == 0 and not stream.is_over:
        stream.stop(chance.randrange(1 << 30))


async def churn(node: StreamNode, chance: random.Random, end: float) -> None:
    """Connect and play, again and again."""
    while time.monotonic() < end:
        async with connected(
            node.streams_port, idle_timeout=4, max_stream_data=chance.choice([2000, 1 << 20])
        ) as client:
            line = Session(client, node.maker.token(sub=f"client {chance.randint(0, 5)}"))
            for _ in range(chance.randint(1, 60)):
                if client.is_closed or time.monotonic() > end:
                    break
                play(line, chance)
                await asyncio.sleep(chance.choice([0, 0, 0, 0.01]))
            if chance.random() < 0.2:
                client.vanish()


async def test_nothing_is_left_of_clients_that_break_off_anywhere(node: StreamNode, chance: random.Random) -> None:
    before = node.memory()
    end = time.monotonic() + SECONDS
    await asyncio.gather(*(churn(node, random.Random(chance.getrandbits(32)), end) for _ in range(4)))
    assert node.ready()
    wait_for(lambda: not any(map(node.metric, LEFT)), "all connections and streams to end", seconds=30, every=0.2)
    async with session(node) as line:  # the bytes of those that are gone are given back: there is room for many more
        stream = await line.stream()
        stream.write(*(publish_acked(id, ORDERS, b"x" * 400_000) for id in range(30)), end=True)
        assert [read_ack(each).status for each in await stream.rest(30)] == [0] * 30
    assert node.memory() - before < 256 << 20
