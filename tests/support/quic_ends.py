"""Users of QUIC connections and streams for tests: they note what they are called with, and echo if asked to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from eventd.quic.certificate import QuicCertificate
from eventd.quic.client import connect
from eventd.quic.limits import TransportLimits
from eventd.quic.link import QuicLink
from eventd.quic.server import QuicServer
from eventd.quic.stream import QuicStream
from eventd.quic.trust import ServerTrust
from eventd.runtime.clock import SystemClock
from tests.support.certificates import Authority, Files

PATIENCE = 10.0


async def eventually(condition: Callable[[], object]) -> None:
    """Wait for a condition of which nothing calls back."""
    clock = SystemClock()
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await clock.sleep(0.005)


class StreamNotes:
    """The user of one stream. With `echo` it writes back what it gets, and ends its side when the peer does."""

    def __init__(self, *, echo: bool = False) -> None:
        self.data = bytearray()
        self.ended = self.is_lost = False
        self.reset_code: int | None = None
        self.stop_code: int | None = None
        self.rooms = 0
        self.stream: QuicStream
        self._echo = echo
        self._changed = asyncio.Event()

    def received(self, data: bytes, *, ended: bool) -> None:
        self.data += data
        self.ended = ended
        if self._echo:
            self.stream.write(data, end=ended)
        self._changed.set()

    def was_reset(self, code: int) -> None:
        self.reset_code = code
        self._changed.set()

    def was_stopped(self, code: int) -> None:
        self.stop_code = code
        self._changed.set()

    def has_room(self) -> None:
        self.rooms += 1
        self._changed.set()

    def lost(self) -> None:
        self.is_lost = True
        self._changed.set()

    async def until(self, condition: Callable[[StreamNotes], object]) -> None:
        """Wait until the condition holds; it is looked at after each call."""
        async with asyncio.timeout(PATIENCE):
            while not condition(self):
                self._changed.clear()
                await self._changed.wait()


class LinkNotes:
    """The user of one connection. It makes a `StreamNotes` for each stream that the peer opens."""

    def __init__(self, *, echo: bool = False) -> None:
        self.is_open = False
        self.end: tuple[int, str] | None = None
        self.streams: list[StreamNotes] = []
        self.link: QuicLink
        self._echo = echo
        self._changed = asyncio.Event()

    def opened(self) -> None:
        self.is_open = True
        self._changed.set()

    def stream_opened(self, stream: QuicStream) -> StreamNotes:
        notes = StreamNotes(echo=self._echo and not stream.is_unidirectional)
        notes.stream = stream
        self.streams.append(notes)
        self._changed.set()
        return notes

    def closed(self, code: int, reason: str) -> None:
        self.end = code, reason
        self._changed.set()

    def open(self, *, unidirectional: bool = False) -> StreamNotes:
        """Open a stream of this end."""
        notes = StreamNotes()
        notes.stream = self.link.open_stream(notes, unidirectional=unidirectional)
        return notes

    async def until(self, condition: Callable[[LinkNotes], object]) -> None:
        """Wait until the condition holds; it is looked at after each call."""
        async with asyncio.timeout(PATIENCE):
            while not condition(self):
                self._changed.clear()
                await self._changed.wait()


class Served:
    """A server for tests, and the users of its connections."""

    def __init__(self, files: Files, authority: Authority) -> None:
        self.files = files
        self.ca = authority.file.read_bytes()
        self.certificate = QuicCertificate.of_files(files.cert, files.key, SystemClock().now())
        self.links: list[LinkNotes] = []
        self.failures: list[str] = []
        self.server: QuicServer
        self._accepted = asyncio.Event()

    def accept(self, link: QuicLink) -> LinkNotes:
        notes = LinkNotes(echo=True)
        notes.link = link
        self.links.append(notes)
        self._accepted.set()
        return notes

    async def link(self, number: int = 0) -> LinkNotes:
        """Return a connection, once it is there."""
        async with asyncio.timeout(PATIENCE):
            while len(self.links) <= number:
                self._accepted.clear()
                await self._accepted.wait()
        return self.links[number]

    async def dial(self, *, trust: ServerTrust | None = None, **options: Any) -> LinkNotes:
        """Open a connection to it with the project's own client."""
        notes = LinkNotes()
        host, port = self.server.address
        trust = trust or ServerTrust(ca=self.ca)
        notes.link = await connect(host, port, notes, trust=trust, clock=SystemClock(), **options)
        return notes


@asynccontextmanager
async def serve(folder: Path, limits: TransportLimits | None = None, host: str = "127.0.0.1") -> AsyncIterator[Served]:
    """Yield a server on a free port that echoes on every bidirectional stream."""
    authority = Authority(folder)
    served = Served(authority.issue("quic"), authority)
    served.server = await QuicServer.listen(
        host,
        0,
        served.certificate,
        served.accept,
        clock=SystemClock(),
        spec=limits or TransportLimits(),
        failed=served.failures.append,
    )
    try:
        yield served
    finally:
        await served.server.close(0, "the test is over")
