"""The server of a listener, as far as it differs from the library's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest
from aiohttp import web

from eventd.api.listener.runner import Runner
from eventd.api.listener.unread_answers import UnreadAnswers
from eventd.runtime.chance import SYSTEM

MIB = 1 << 20


class Link(asyncio.Transport):
    """A connection whose other end is at an address, and has `left` bytes to take."""

    def __init__(self, host: str = "10.0.0.1", left: int = 0) -> None:
        super().__init__({"peername": (host, 4711)})
        self.left = left
        self.ended = False
        self.reading = True

    def get_write_buffer_size(self) -> int:
        return self.left

    def abort(self) -> None:
        self.ended = True

    def close(self) -> None:
        self.ended = True

    def is_closing(self) -> bool:
        return self.ended

    def write(self, data: Any) -> None: ...

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


async def test_what_comes_after_bytes_that_cannot_be_read_is_not_kept() -> None:
    """A client can send megabytes before its refusal has a turn."""
    runner = Runner(web.Application(), SYSTEM)
    await runner.setup()
    assert runner.server is not None
    connection = cast(Any, runner.server())
    connection.connection_made(Link())
    connection.data_received(b"GET / HTTP/1.1\r\nX: ")
    for _ in range(3):
        connection.data_received(b"x" * MIB)
    assert len(connection._messages) == 1
    assert connection._messages[0][0].exc.__traceback__ is None, "its frames hold the bytes"
    connection.connection_lost(None)
    await runner.cleanup()


@pytest.fixture
async def connection() -> AsyncIterator[Any]:
    runner = Runner(web.Application(), SYSTEM)
    await runner.setup()
    assert runner.server is not None
    connection = cast(Any, runner.server())
    connection.connection_made(Link())
    yield connection
    connection.connection_lost(None)
    await runner.cleanup()


async def test_reading_goes_on_when_neither_the_listener_nor_the_library_holds_it(connection: Any) -> None:
    link = connection.transport
    connection.data_received(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")
    connection.hold_reading()
    connection.pause_reading()
    connection.resume_reading()
    assert not link.reading, "the listener holds it"
    connection.release_reading()
    assert link.reading
    connection.pause_reading()
    connection.hold_reading()
    connection.release_reading()
    assert not link.reading, "the library holds it"
    connection.resume_reading()
    assert link.reading


async def test_chunks_of_a_body_are_read_as_one_piece(connection: Any) -> None:
    """Each piece that is read costs the library several times what its parser does for a chunk."""
    connection.data_received(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    body = connection._messages[-1][1]
    for number in range(3):
        connection.data_received(b"1\r\n%d\r\n" % number * 1000)
    assert len(body._buffer) == 1
    assert await body.readany() == b"0" * 1000 + b"1" * 1000 + b"2" * 1000
    connection.data_received(b"1\r\nx\r\n" * 20_000)
    found = b""
    while len(found) < 20_000:
        found += await body.readany()
    connection.data_received(b"2\r\nyz\r\n0\r\n\r\n")
    assert (found, await body.readany(), body.is_eof()) == (b"x" * 20_000, b"yz", True)


async def test_an_answer_that_is_not_taken_makes_room_for_others() -> None:
    untaken = UnreadAnswers(3 * MIB)
    stuck, slow, other = Link(left=MIB), Link(left=MIB // 2), Link("10.0.0.2", left=MIB)
    with untaken.hold(stuck, MIB), untaken.hold(slow, MIB), untaken.hold(other, MIB):
        with untaken.hold(Link("10.0.0.3"), MIB):
            assert (stuck.ended, slow.ended, other.ended) == (True, False, False), "of the largest client, the slowest"
            assert untaken.held == 3 * MIB
            with untaken.hold(Link("10.0.0.4"), 64 << 10):
                assert untaken.held == 3 * MIB, "small ones do not count"
        with untaken.hold(Link("10.0.0.3"), 10 * MIB):
            assert (slow.ended, other.ended) == (True, True), "one always has room"
    assert untaken.held == 0
