"""The simulated network: what is sent arrives whole and in order, or the connection ends; never anything else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from eventd.simulation.world.life import Life
from eventd.simulation.world.loop import VirtualLoop
from eventd.simulation.world.network import Network
from eventd.simulation.world.path import Wall
from eventd.simulation.world.streams import ChanceStreams

PORT = 9000
SENT = bytes(range(256)) * 40


class Receiver(asyncio.Protocol):
    """Keeps what arrives, and how the connection ended."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.ended: list[object] = []
        self.way: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.way = transport

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.append(exc)


class Bench:
    """Two machines; `serve` accepts on the second one, and `connect` connects the first one to it."""

    def __init__(self, seed: int) -> None:
        self.loop = VirtualLoop()
        self.network = self.loop.network = Network(self.loop, ChanceStreams(seed))
        self.near = Life("a", 1, self.network.add("a"))
        self.far = Life("b", 1, self.network.add("b"))
        self.accepted: list[Receiver] = []

    def accept(self) -> Receiver:
        self.accepted.append(Receiver())
        return self.accepted[-1]

    async def serve(self) -> None:
        async def listen() -> None:
            server = await self.loop.create_server(self.accept, self.far.address, PORT)
            await server.start_serving()

        await self.far.start(listen())

    async def connect(self) -> Receiver:
        async def dial() -> Receiver:
            made: Receiver = (await self.loop.create_connection(Receiver, self.far.address, PORT))[1]
            return made

        found: Receiver = await self.near.start(dial())
        await self.loop.pause(1.0)
        return found

    def run(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.loop.run_until_complete(work())


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench(1)
    yield made
    made.loop.end()


@pytest.mark.parametrize("seed", range(10))
def test_what_is_written_arrives_whole_and_in_order(seed: int) -> None:
    bench = Bench(seed)

    async def main() -> None:
        await bench.serve()
        end = await bench.connect()
        for at in range(0, len(SENT), 1000):
            end.way.write(SENT[at : at + 1000])
        end.way.close()
        await bench.loop.pause(10.0)

    bench.run(main)
    assert bytes(bench.accepted[0].data) == SENT
    assert bench.accepted[0].ended == [None]
    bench.loop.end()


def test_a_wall_delays_what_is_sent_and_loses_nothing(bench: Bench) -> None:
    async def main() -> None:
        await bench.serve()
        end = await bench.connect()
        way = bench.network.path("a", "b")
        end.way.write(SENT[:5000])
        way.wall = Wall.DROP
        end.way.write(SENT[5000:])
        await bench.loop.pause(3.0)
        assert not bench.accepted[0].data
        way.wall = Wall.NONE
        await bench.loop.pause(30.0)

    bench.run(main)
    assert bytes(bench.accepted[0].data) == SENT


def test_a_connection_that_breaks_delivers_a_prefix(bench: Bench) -> None:
    async def main() -> None:
        await bench.serve()
        bench.network.path("a", "b").cut = 1.0
        end = await bench.connect()
        end.way.write(SENT)
        end.way.write(SENT)
        await bench.loop.pause(10.0)
        assert isinstance(end.ended[0], ConnectionResetError)

    bench.run(main)
    assert SENT.startswith(bytes(bench.accepted[0].data))
    assert isinstance(bench.accepted[0].ended[0], ConnectionResetError)


def test_a_killed_process_has_its_connections_reset(bench: Bench) -> None:
    async def main() -> None:
        await bench.serve()
        end = await bench.connect()
        bench.far.is_dead = True
        bench.network.end_life(bench.far, resets=True)
        await bench.loop.pause(1.0)
        assert isinstance(end.ended[0], ConnectionResetError)
        with pytest.raises(ConnectionRefusedError):
            await bench.connect()

    bench.run(main)


def test_a_machine_without_power_answers_nothing_and_resets_once_it_is_up_again(bench: Bench) -> None:
    async def main() -> None:
        await bench.serve()
        end = await bench.connect()
        bench.far.is_dead = True
        bench.network.end_life(bench.far, resets=False)
        bench.network.take_down("b")
        end.way.write(SENT)
        with pytest.raises(TimeoutError):
            await bench.connect()
        assert not end.ended
        bench.network.bring_up("b")
        await bench.loop.pause(60.0)
        assert isinstance(end.ended[0], ConnectionResetError)

    bench.run(main)


def test_a_reader_that_pauses_gets_the_rest_later(bench: Bench) -> None:
    async def main() -> None:
        await bench.serve()
        end = await bench.connect()
        there = bench.accepted[0]
        there.way.pause_reading()
        end.way.write(SENT)
        await bench.loop.pause(5.0)
        assert not there.data
        there.way.resume_reading()
        await bench.loop.pause(1.0)
        assert bytes(there.data) == SENT

    bench.run(main)
