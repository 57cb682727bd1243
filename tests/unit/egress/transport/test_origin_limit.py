"""The limit of connections to one origin: turns are given in order, and idle connections make room."""

from __future__ import annotations

import asyncio

from eventd.egress.transport.origin_limit import MOST_CONNECTIONS, OriginLimit
from eventd.net.exchange import Exchange


class Wire(asyncio.Transport):
    """Cannot send."""

    def abort(self) -> None:
        pass


def connection() -> Exchange:
    exchange = Exchange()
    exchange.connection_made(Wire())
    return exchange


class Crowd:
    """Requests that want a turn, hold it until they are let go, and note when they have it."""

    def __init__(self) -> None:
        self.limit = OriginLimit()
        self.began: list[int] = []
        self.leave: dict[int, asyncio.Event] = {}
        self.tasks: dict[int, asyncio.Task[None]] = {}

    async def _work(self, number: int) -> None:
        async with self.limit.turn():
            self.began.append(number)
            await self.leave[number].wait()

    def come(self, *numbers: int) -> None:
        for number in numbers:
            self.leave[number] = asyncio.Event()
            self.tasks[number] = asyncio.create_task(self._work(number))

    async def end(self) -> None:
        for number, task in self.tasks.items():
            self.leave[number].set()
            await asyncio.wait([task])


async def turns(count: int = 10) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_turns_are_given_in_the_order_of_arrival() -> None:
    crowd = Crowd()
    crowd.come(*range(20))
    await turns()
    assert crowd.began == list(range(MOST_CONNECTIONS))
    for done, following in ((5, 16), (0, 17)):
        crowd.leave[done].set()
        crowd.come(100 + done)  # comes as the turn is free, and waits behind the others
        await turns()
        assert crowd.began[-1] == following
    await crowd.end()
    assert crowd.began[16:] == [16, 17, 18, 19, 105, 100]
    assert crowd.limit.is_unused


async def test_a_request_that_is_cancelled_takes_no_turn_with_it() -> None:
    crowd = Crowd()
    crowd.come(*range(19))
    await turns()
    crowd.tasks[16].cancel()  # it waits
    crowd.leave[0].set()
    await asyncio.sleep(0)  # 17 gets the turn, and has not noticed
    crowd.tasks[17].cancel()
    await turns()
    assert crowd.began[16:] == [18]
    crowd.tasks[3].cancel()  # it has its turn
    crowd.come(20)
    await turns()
    assert crowd.began[16:] == [18, 20]
    await crowd.end()
    assert crowd.limit.is_unused


async def test_idle_connections_are_closed_when_a_new_one_needs_their_room() -> None:
    limit = OriginLimit()
    connections = [connection() for _ in range(MOST_CONNECTIONS)]
    for exchange in connections:
        async with limit.turn():
            limit.make_room()
            limit.note_end(exchange)
    assert all(exchange.is_free for exchange in connections)
    assert not limit.is_unused
    limit.note_end(connections[0])  # the one used last
    async with limit.turn(), limit.turn():
        limit.make_room()
    assert [at for at, exchange in enumerate(connections) if not exchange.is_free] == [1, 2]


async def test_connections_that_ended_by_themselves_need_no_room() -> None:
    limit = OriginLimit()
    connections = [connection() for _ in range(MOST_CONNECTIONS)]
    for exchange in connections:
        limit.note_end(exchange)
    for exchange in connections[1:]:
        exchange.connection_lost(None)
        limit.note_end(exchange)
    async with limit.turn():
        limit.make_room()
    assert connections[0].is_free
    connections[0].connection_lost(None)
    assert limit.is_unused
