"""A played receiver of callbacks: it accepts messages, refuses them, answers late or not at all, and notes each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple, cast

from httptools import HttpParserError, HttpRequestParser

from eventd.simulation.world.life import Life
from eventd.simulation.world.loop import VirtualLoop
from eventd.simulation.world.network import Network

PORT: Final = 7000


class ReceivedMessage(NamedTuple):
    """A request: when it had arrived, its headers in lower case, and its body."""

    at: float
    headers: dict[str, str]
    body: bytes


class PlayedAnswer(NamedTuple):
    """What the receiver does: it answers with a status after some seconds; 0: not at all, -1: it hangs up."""

    status: int
    seconds: float = 0.0


Conduct = Callable[[ReceivedMessage], PlayedAnswer]
"""Decides on the answer to a message."""


def open_receiver(loop: VirtualLoop, network: Network, life: Life, conduct: Conduct) -> None:
    """Let the process `life` receive messages at `receiver_url` from now on."""
    server = network.listen(life, lambda: _Connection(loop, conduct), life.address, PORT)
    network.open((life.address, PORT), server)


def receiver_url(life: Life) -> str:
    """Return the URL of the receiver of a process."""
    return f"http://{life.address}:{PORT}/hook"


class _Connection(asyncio.Protocol):
    """One connection to the receiver."""

    def __init__(self, loop: VirtualLoop, conduct: Conduct) -> None:
        self._loop = loop
        self._conduct = conduct
        self._parser = HttpRequestParser(self)
        self._headers: dict[str, str] = {}
        self._body = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except HttpParserError:
            self._transport.abort()

    def on_message_begin(self) -> None:
        self._headers, self._body = {}, b""

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode().lower()] = value.decode()

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        answer = self._conduct(ReceivedMessage(self._loop.time(), self._headers, self._body))
        if answer.status < 0:
            self._transport.abort()
        elif answer.status:
            self._loop.call_later(answer.seconds, self._answer, answer.status)

    def _answer(self, status: int) -> None:
        self._transport.write(f"HTTP/1.1 {status} Played\r\nContent-Length: 0\r\n\r\n".encode())
