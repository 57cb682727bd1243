"""Measures from a write to its watchers: 1, 100 and 1,000 streams of server-sent events or long polls.

A write is sent when all watchers have received the one before and wait again; measured are milliseconds from its first
byte to the first byte at each watcher. The rival stores nothing: it sends as many bytes to as many connections.
`stalled`: the same while one more watcher does not read, alternating with the same without it. Verified: each watcher
received each record once, in order; the stalled one too, when it reads again.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from eventd.bench import streams as watchers
from eventd.bench.streams import WatcherStream, WriteProgress, mark_of
from tests.bench.topics_site import Figures, Site, site, write_of
from tests.bench.wire import HttpConnection, call, client_of, compact, load, open_line, percentile, read_answer, request

SOME_SECONDS = 0.02
SECONDS_PER_WATCHER = 0.0005
"""Time for each watcher to wait again after a write, long polls too."""
LONGEST = 60.0
STALL_BYTES = 16 << 20
"""Bytes that are written while only the stalled watcher is connected: far more than sockets buffer."""
STALL_SIZE = 16 << 10


async def measure_watch(directory: Path, options: argparse.Namespace) -> Figures:
    figures: Figures = {}
    with site(directory) as at:
        for count in options.watchers:
            figures |= await _streams(at, count, options)
            figures |= await _polls(at, count, options)
        figures |= await _stalled(at, options)
    return figures


class Poll(HttpConnection):
    """A watcher that polls again after each answer. `asked(n)` is its request after n answers."""

    def __init__(self, turn: WriteProgress, asked: Callable[[int], bytes]) -> None:
        super().__init__()
        self.received: list[bytes] = []
        self._turn = turn
        self._asked = asked

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.write(self._asked(0))

    def answered(self, raw: bytes) -> None:
        if read_answer(raw).status != 200:
            self._turn.fail(AssertionError(f"a poll was answered {raw!r}"))
            return
        if self._turn.mark in raw:
            self._turn.heard()
        self.received.append(raw)
        self.transport.write(self._asked(len(self.received)))


# --- writing to them ----------------------------------------------------------------------------------------------


async def write_all(
    port: int, turn: WriteProgress, asked: Callable[[int], bytes], numbers: range, watchers: int
) -> tuple[list[float], list[float], float]:
    """Write one after the other: seconds to each watcher, to the last one of each write, and the share of a core."""
    line = await open_line(port)
    seconds: list[float] = []
    longest: list[float] = []
    busy = taken = 0.0
    try:
        for number in numbers:
            await asyncio.sleep(SOME_SECONDS + watchers * SECONDS_PER_WATCHER)
            everybody = turn.begin(mark_of(number), watchers)
            cpu, begun = time.process_time(), time.perf_counter()
            answered = line.ask(asked(number))
            async with asyncio.timeout(LONGEST):
                await everybody
            taken += time.perf_counter() - begun
            busy += time.process_time() - cpu
            seconds += [at - begun for at in turn.times]
            longest.append(max(turn.times) - begun)
            assert read_answer(await answered).status == 200
    finally:
        line.close()
    return seconds, longest, busy / taken


def _told(
    name: str, mine: tuple[list[float], list[float], float], rival: tuple[list[float], list[float], float]
) -> Figures:
    (seconds, longest, busy), (others, _, _) = mine, rival
    return {
        f"{name}_p50_ms": percentile(seconds, 50),
        f"{name}_p99_ms": percentile(seconds, 99),
        f"{name}_last_p50_ms": percentile(longest, 50),
        f"{name}_rival_p50_ms": percentile(others, 50),
        f"{name}_rival_p99_ms": percentile(others, 99),
        f"{name}_p50_to_rival": round(percentile(seconds, 50) / percentile(others, 50), 2),
        f"{name}_client_busy": round(busy, 2),
    }


async def _make_topic(port: int, topic: str, size: int) -> None:
    """Create a topic with one record, number 0."""
    await load(port, [[write_of(topic, [0], size)]])


async def _streams(at: Site, count: int, options: argparse.Namespace) -> Figures:
    topic = f"streams-{count}"
    numbers, turn = range(1, options.told + 1), WriteProgress()
    await _make_topic(at.port, topic, options.size)
    streams = await open_streams(at.port, topic, count, turn, from_seq=0)
    mine = await write_all(at.port, turn, lambda n: write_of(topic, [n], options.size), numbers, count)
    for stream in streams:
        stream.close()
        assert stream.numbers() == [0, *numbers], "each record once, in order"
    size = sum(map(len, streams[0].received)) // (len(numbers) + 1)
    asked = request("GET", "/stream")
    others = [await _open(at.rival.port, lambda: WatcherStream(turn, asked, b"retry:")) for _ in range(count)]
    await asyncio.gather(*(stream.begun for stream in others))
    rival = await write_all(at.rival.port, turn, lambda n: _tell(n, size), numbers, count)
    for stream in others:
        stream.close()
    return _told(f"sse_{count}", mine, rival)


def _tell(number: int, size: int) -> bytes:
    return request("POST", "/tell", {"n": number, "pad": "x" * max(0, size - 60)})


async def open_streams(port: int, topic: str, count: int, turn: WriteProgress, *, from_seq: int) -> list[WatcherStream]:
    """Return watchers with a session each, all at the head."""
    return await watchers.open_streams(client_of(port), [topic] * count, turn, from_seq=from_seq)


async def _open(port: int, make: Callable[[], Any], **options: Any) -> Any:
    where = options or {"host": "127.0.0.1", "port": port}
    return (await asyncio.get_running_loop().create_connection(make, **where))[1]


async def _polls(at: Site, count: int, options: argparse.Namespace) -> Figures:
    topic = f"polls-{count}"
    numbers, turn = range(1, options.told + 1), WriteProgress()
    await _make_topic(at.port, topic, options.size)
    path = f"/v0/topics/{topic}/diff"
    asked = [request("POST", path, {"from_seq": 1 + seq, "wait_ms": 30_000}) for seq in range(len(numbers) + 1)]
    polls = [await _open(at.port, lambda: Poll(turn, asked.__getitem__)) for _ in range(count)]
    mine = await write_all(at.port, turn, lambda n: write_of(topic, [n], options.size), numbers, count)
    for poll in polls:
        poll.close()
        pages = [read_answer(raw).json()["records"] for raw in poll.received]
        assert [one["data"]["n"] for page in pages for one in page] == [*numbers], "each record once, in order"
    size = len(polls[0].received[0])
    body = request("POST", "/wait", compact({"from_seq": 1, "wait_ms": 30_000}))
    others = [await _open(at.rival.port, lambda: Poll(turn, lambda _: body)) for _ in range(count)]
    rival = await write_all(at.rival.port, turn, lambda n: _tell(n, size), numbers, count)
    for poll in others:
        poll.close()
    return _told(f"poll_{count}", mine, rival)


# --- one that does not read -----------------------------------------------------------------------------------------


async def _stalled(at: Site, options: argparse.Namespace) -> Figures:
    medians: dict[bool, list[float]] = {False: [], True: []}
    for turn in range(2 * options.turns):
        is_stalled = turn % 2 == 1
        medians[is_stalled].append(await _beside(at, f"stalled-{turn}", options, is_stalled=is_stalled))
    without, beside = statistics.median(medians[False]), statistics.median(medians[True])
    return {
        "without_stalled_p50_ms": round(without, 3),
        "beside_stalled_p50_ms": round(beside, 3),
        "beside_to_without": round(beside / without, 3),
    }


async def _beside(at: Site, topic: str, options: argparse.Namespace, *, is_stalled: bool) -> float:
    """Measure milliseconds to the watchers of a topic, with or without one among them that does not read."""
    turn, count = WriteProgress(), options.beside
    await _make_topic(at.port, topic, STALL_SIZE)
    stalled = await _open_stalled(at.port, topic) if is_stalled else None
    before = STALL_BYTES // STALL_SIZE
    batches = [range(first, min(before, first + 64)) for first in range(1, before, 64)]
    await load(at.port, [[write_of(topic, batch, STALL_SIZE) for batch in batches]])
    streams = await open_streams(at.port, topic, count, turn, from_seq=before - 1)
    numbers = range(before, before + options.told)
    seconds, _, _ = await write_all(at.port, turn, lambda n: write_of(topic, [n], STALL_SIZE), numbers, count)
    for stream in streams:
        stream.close()
        assert stream.numbers() == [before - 1, *numbers], "each record once, in order"
    if stalled is not None:
        await _read_on(stalled, numbers[-1])
    return percentile(seconds, 50)


async def _open_stalled(port: int, topic: str) -> WatcherStream:
    """Return a watcher that reads its first record and nothing more, with a small socket buffer."""
    room = socket.socket()
    room.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    room.connect(("127.0.0.1", port))
    room.setblocking(False)
    session = await call(port, "POST", "/v0/watch", {"topics": {topic: {"from_seq": 0}}, "heartbeat_ms": 60_000})
    asked = request("GET", session["stream_url"])
    stream: WatcherStream = await _open(port, lambda: WatcherStream(WriteProgress(), asked, b"caught-up"), sock=room)
    await stream.begun
    stream.transport.pause_reading()
    return stream


async def _read_on(stalled: WatcherStream, last: int) -> None:
    """Check that it has received less than was written, and receives the rest when it reads again."""
    got = len(stalled.received)
    stalled.transport.resume_reading()
    mark = mark_of(last)
    async with asyncio.timeout(LONGEST):
        while not any(mark in each for each in stalled.received[got:]) or stalled.numbers()[-1] != last:
            got = max(got, len(stalled.received) - 2)
            await asyncio.sleep(0.05)
    stalled.close()
    assert stalled.numbers() == [*range(last + 1)], "each record once, in order"
