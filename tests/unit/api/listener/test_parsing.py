"""Bytes of unauthenticated clients are parsed in a share of the time, which addresses divide if it is short."""

from __future__ import annotations

import asyncio
import selectors
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any

import pytest
from aiohttp import web

from eventd.api.listener.connection_limiter import ConnectionLimiter
from eventd.api.listener.connections import open_site_at
from eventd.api.listener.parsing_time import BURST_SECONDS, READ_BYTES, SHARE, ParsingTime
from eventd.api.listener.runner import Runner
from eventd.runtime.chance import SYSTEM
from eventd.testing import until

COST = 0.01
"""Seconds of the processor for each piece that is parsed."""


class Processor:
    """Its time, as far as parsing takes it: `ParsingTime` asks before and after."""

    def __init__(self) -> None:
        self.asked = 0
        self.cost = COST

    def __call__(self) -> float:
        self.asked += 1
        return self.asked // 2 * self.cost


class Idle(selectors.DefaultSelector):
    """Lets time pass instead of waiting. Nothing else wakes the loop."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.now += max(timeout or 0.0, 1e-6)  # a time that stands would not reach a moment between two floats
        return super().select(0)


class Timeless(asyncio.SelectorEventLoop):
    """A loop whose time is that of its timers, however slow the machine is."""

    def __init__(self) -> None:
        self._idle = Idle()
        super().__init__(self._idle)

    def time(self) -> float:
        return self._idle.now


def timeless(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Run a test on a loop of its own time."""

    @wraps(test)
    def run() -> None:
        with asyncio.Runner(loop_factory=Timeless) as runner:
            runner.run(test())  # type: ignore[arg-type]

    return run


class Connection:
    """One that has proven nothing. `parsed` is shared by all of a test."""

    def __init__(self, address: str, parsed: list[tuple[str, bytes]]) -> None:
        self.address = address
        self.parsed = parsed
        self.held = False
        self.aborted = False

    def parse(self, data: bytes) -> None:
        self.parsed.append((self.address, data))

    def hold_reading(self) -> None:
        self.held = True

    def release_reading(self) -> None:
        self.held = False

    def abort(self) -> None:
        self.aborted = True


def crowd(parsing: ParsingTime, address: str, count: int, parsed: list[tuple[str, bytes]]) -> list[Connection]:
    """Connections of one address, each of which has sent something."""
    connections = [Connection(address, parsed) for _ in range(count)]
    for number, each in enumerate(connections):
        parsing.parse(each, b"%d" % number)
    return connections


@timeless
async def test_beyond_their_share_strangers_wait() -> None:
    loop, parsed = asyncio.get_running_loop(), list[tuple[str, bytes]]()
    parsing = ParsingTime(Processor())
    begun = loop.time()
    connections = crowd(parsing, "10.0.0.1", 20, parsed)
    assert 0 < sum(each.held for each in connections) < 20, "the share of a moment is there at once"
    await until(lambda: len(parsed) == 20, "all to have been parsed")
    used = 19 * COST  # the last one may begin when the others are paid for
    assert used <= SHARE * (loop.time() - begun + BURST_SECONDS) + COST
    assert not any(each.held for each in connections)
    assert parsed == [("10.0.0.1", b"%d" % number) for number in range(20)], "first come, first served"


@timeless
async def test_an_address_does_not_wait_for_all_connections_of_another() -> None:
    parsed: list[tuple[str, bytes]] = []
    parsing = ParsingTime(Processor())
    crowd(parsing, "10.0.0.1", 20, parsed)
    crowd(parsing, "10.0.0.2", 1, parsed)
    before = len(parsed)
    await until(lambda: ("10.0.0.2", b"0") in parsed, "the other address to have a turn")
    assert parsed.index(("10.0.0.2", b"0")) <= before + 1
    await until(lambda: len(parsed) == 21, "all to have been parsed")


@timeless
async def test_an_address_whose_bytes_cost_little_does_not_wait_for_all_others() -> None:
    """Such as a peer that is not known yet, and begins with a large batch."""
    parsed: list[tuple[str, bytes]] = []
    costs = {"10.0.0.9": COST / 100}
    parsing = ParsingTime(lambda: sum(costs.get(address, COST) for address, _ in parsed))
    for number in range(4):
        crowd(parsing, f"10.0.0.{number}", 10, parsed)
    loop = asyncio.get_running_loop()

    class Peer(Connection):
        left = 8

        def send(self) -> None:
            self.left -= 1
            parsing.parse(self, b"")

        def release_reading(self) -> None:
            if self.left:
                loop.call_soon(self.send)

    peer = Peer("10.0.0.9", parsed)
    peer.send()
    await until(lambda: len(parsed) == 48, "all to have been parsed")
    order = [address for address, _ in parsed]
    last = max(at for at, address in enumerate(order) if address == "10.0.0.9")
    assert last - 7 < 24, "the others do not have as many turns as the peer"


@timeless
async def test_a_connection_that_ends_leaves_the_queue() -> None:
    parsed: list[tuple[str, bytes]] = []
    parsing = ParsingTime(Processor())
    waiting = [each for each in crowd(parsing, "10.0.0.1", 20, parsed) if each.held]
    before = len(parsed)
    for each in waiting[:-1]:
        parsing.leave(each)
    await until(lambda: not waiting[-1].held, "the last one to have a turn")
    assert len(parsed) == before + 1
    parsing.leave(waiting[0])


@timeless
async def test_connections_that_come_and_go_leave_nothing_behind() -> None:
    parsed: list[tuple[str, bytes]] = []
    parsing = ParsingTime(Processor())
    crowd(parsing, "10.0.0.1", 20, parsed)
    for _ in range(100):
        connection = Connection("10.0.0.2", parsed)
        parsing.parse(connection, b"")
        parsing.leave(connection)
    assert (len(parsing._order), len(parsing._used)) == (2, 0), "one place for each address that waits"
    await until(lambda: parsing._next_turn is None, "all to have been parsed")
    assert not any((parsing._order, parsing._ranked, parsing._used, parsing._waiting))


@timeless
async def test_addresses_that_are_always_new_leave_turns_to_the_others_and_are_forgotten() -> None:
    """As a host has, that sends from one network after another."""
    parsed: list[tuple[str, bytes]] = []
    parsing = ParsingTime(Processor())
    flooding, kept, loop = 50, [0], asyncio.get_running_loop()
    names = (f"2001:db8:{number:x}::" for number in range(1_000_000))

    class Flood(Connection):
        def release_reading(self) -> None:
            kept.append(max(len(parsing._used), len(parsing._order), len(parsing._ranked)))
            if len(parsed) < 1000:
                loop.call_soon(send)

    def send() -> None:
        parsing.parse(Flood(next(names), parsed), b"")

    crowd(parsing, "10.0.0.1", 10, parsed)
    before = len(parsed)
    for _ in range(flooding):
        send()
    peers = crowd(parsing, "10.0.0.9", 5, parsed)
    await until(lambda: parsing._next_turn is None, "all to have been parsed", seconds=1000)
    turns = [at for at, (address, _) in enumerate(parsed[before:], 1) if address == "10.0.0.9"]
    assert len(turns) == len(peers)
    rounds = range(1, len(peers) + 1)
    assert all(at <= 2 * number * (flooding + 2) for number, at in zip(rounds, turns, strict=True)), turns
    assert max(kept) <= 3 * flooding, "no more than wait, and as many that have just had their turn"
    assert len(parsed) >= 1000


@timeless
async def test_a_connection_whose_bytes_cannot_be_parsed_ends_and_is_charged() -> None:
    parsed: list[tuple[str, bytes]] = []
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    parsing = ParsingTime(Processor())
    crowd(parsing, "10.0.0.1", 10, parsed)

    class Broken(Connection):
        def parse(self, data: bytes) -> None:
            super().parse(data)
            raise RuntimeError("no parser is without faults")

    broken = Broken("10.0.0.2", parsed)
    parsing.parse(broken, b"")
    spent, before = parsing._spent, len(parsed)
    await until(lambda: len(parsed) == 11, "all to have been parsed")
    assert (broken.aborted, broken.held) == (True, True), "nothing more is read from it"
    assert parsing._spent - spent == pytest.approx((11 - before) * COST), "its time counts"
    assert [str(context["exception"]) for context in reported] == ["no parser is without faults"]


class Figures:
    def connections(self, group: str, count: int | None) -> None: ...

    def turned_away(self, group: str, reason: str) -> None: ...


@asynccontextmanager
async def listening(parsing: ParsingTime, trusted: list[str]) -> AsyncIterator[int]:
    """Yield a port that answers with the size of a body, and trusts clients that request a `trusted` path."""
    limiter = ConnectionLimiter("", 64, Figures(), parsing)

    async def answer(request: web.Request) -> web.Response:
        if request.path in trusted:
            limiter.trust(request.transport, "key")
        return web.Response(text=str(len(await request.read())))

    app = web.Application(client_max_size=1 << 30)
    app.router.add_route("*", "/{path:.*}", answer)
    runner = Runner(app, SYSTEM)
    await runner.setup()
    listener = socket.create_server(("127.0.0.1", 0))
    await open_site_at(runner, limiter, [listener])
    try:
        yield listener.getsockname()[1]
    finally:
        await runner.cleanup()


async def ask(port: int, path: str, body: bytes, *, chunked: int = 0, host: str = "127.0.0.1") -> str:
    """What comes back on a connection of its own, for a body in one piece or in chunks of so many bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0))
    how = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % len(body)
    writer.write(b"POST %b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%b\r\n\r\n" % (path.encode(), how))
    if chunked:
        parts = [body[at : at + chunked] for at in range(0, len(body), chunked)]
        body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in [*parts, b""])
    writer.write(body)
    answer = (await reader.read()).rpartition(b"\r\n")[2].decode()
    writer.close()
    return answer


async def test_bodies_are_complete_however_slowly_they_are_parsed() -> None:
    processor = Processor()
    async with listening(ParsingTime(processor), []) as port:
        flood = [asyncio.create_task(ask(port, "/", bytes(5_000), chunked=1)) for _ in range(8)]
        assert await ask(port, "/", bytes(30_000), chunked=1000, host="127.0.0.2") == "30000"
        assert await asyncio.gather(*flood) == ["5000"] * 8
    assert processor.asked >= 2 * 8 * (30_000 // READ_BYTES), "they were charged for each piece"


async def test_who_is_trusted_is_not_charged() -> None:
    processor = Processor()
    async with listening(ParsingTime(processor), ["/known"]) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = b"POST /known HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
        writer.write(head % 0)
        await reader.readuntil(b"\r\n\r\n0")
        charged = processor.asked
        processor.cost = 3600.0
        writer.write(head % (4 << 20) + bytes(4 << 20))
        await reader.readuntil(b"\r\n\r\n4194304")
        assert processor.asked == charged
        writer.close()
