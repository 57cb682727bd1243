"""Accepts the connections of a listener: each takes a slot at the limiter before its first byte is parsed.

With TLS, the slot is taken before the handshake, whose work counts towards the time for unproven bytes: a client that
begins thousands of handshakes and completes none displaces its own connections, and takes from other clients no more
than that share.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterable
from typing import Any, Protocol, cast

from aiohttp import web

from eventd.api.listener import vanished
from eventd.api.listener.addresses import BACKLOG
from eventd.api.listener.connection_limiter import ConnectionLimiter, address_of
from eventd.api.listener.parsing_time import READ_BYTES
from eventd.api.listener.vanished import Acknowledgements
from eventd.tls.listening import TlsListener
from eventd.tls.plain_http import PLAIN_HTTP_ANSWER
from eventd.tls.reasons import HandshakeFailed, Reason
from eventd.tls.transport import HANDSHAKE, TlsTransport

HEAD_SECONDS = 10.0
"""The time in which the head of a connection's first request must arrive, and its TLS handshake before that; later
heads have the keep-alive time."""
LINGER_SECONDS = 1.0
"""How long a refused connection stays open for the client to read why."""
_TURNS_TO_ENTER = 3
"""Maximum number of turns of the event loop between the accept of a connection and its arrival at the limiter."""
_FULL = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


async def open_site(
    runner: web.BaseRunner, limiter: ConnectionLimiter, host: str, port: int, tls: TlsListener | None = None
) -> None:
    """Listen at an address. Raises OSError with the message of the system instead of that of the event loop."""
    try:
        await ListeningSite(runner, limiter, tls, host=host, port=port).start()
    except OSError as error:
        if (error.errno or 0) <= 0:  # an unknown host name
            raise
        raise OSError(error.errno, os.strerror(error.errno or 0)) from None


async def open_site_at(
    runner: web.BaseRunner,
    limiter: ConnectionLimiter,
    sockets: Iterable[socket.socket],
    tls: TlsListener | None = None,
) -> None:
    """Accept connections at listening sockets, which other processes may share.

    The runner closes those that it serves; if this fails or is cancelled, the others are closed here.
    """
    rest = iter(sockets)
    try:
        for listening in rest:
            await ListeningSite(runner, limiter, tls, sock=listening).start()
    finally:
        for listening in rest:  # none, unless one failed
            listening.close()


class ServerProtocol(Protocol):
    """The methods of aiohttp's connection protocol, as `runner` extends it, that are used here."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def data_received(self, data: bytes) -> None: ...

    def eof_received(self) -> bool | None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...

    def hold_reading(self) -> None:
        """Stop reading from the connection until `release_reading`, even if aiohttp resumes it."""

    def release_reading(self) -> None: ...


class Connection(asyncio.BufferedProtocol):
    """One connection: its data goes to aiohttp's protocol, which is created once the connection is admitted.

    `trusted` is empty while the connection is untrusted. Of a trusted one, it holds the shares towards which it counts,
    `key K` and `address A`, or one empty text if it counts towards none.
    """

    def __init__(
        self, limiter: ConnectionLimiter, serve: Callable[[], ServerProtocol], listener: TlsListener | None = None
    ) -> None:
        self.trusted: tuple[str, ...] = ()
        self.address = ""
        self._limiter = limiter
        self._serve = serve
        self._listener = listener
        self._served: ServerProtocol | None = None
        self._raw: asyncio.Transport | None = None
        self._tls: TlsTransport | None = None
        self._is_first = True
        self._refused = False
        self._clock: asyncio.TimerHandle | None = None
        self._next_look: asyncio.TimerHandle | None = None

    @property
    def _transport(self) -> asyncio.Transport | None:
        """Return the transport that the application writes to, and that the limiter knows.

        None before the connection is admitted.
        """
        return self._tls or self._raw

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        raw = cast(asyncio.Transport, transport)
        self.address = address_of(raw)
        tls = None if self._listener is None else self._listener.wrap(raw)
        if not self._limiter.enter(tls or raw, self):
            if tls is None:
                raw.write(_FULL)
            raw.close()
            return
        self._raw, self._tls = raw, tls
        self._clock = asyncio.get_running_loop().call_later(
            HEAD_SECONDS, self._limiter.dismiss, tls or raw, "slow_head"
        )
        if tls is None:
            self._begin(raw)
        self._look(raw, Acknowledgements(raw))

    def _begin(self, transport: asyncio.Transport) -> None:
        self._served = self._serve()
        self._served.connection_made(transport)

    def _look(self, transport: asyncio.Transport, acknowledgements: Acknowledgements) -> None:
        """Close the connection if its remote end has vanished; repeated while it is open."""
        loop = asyncio.get_running_loop()
        if acknowledgements.have_ended(loop.time()) and self._transport is not None:
            self._limiter.dismiss(self._transport, "vanished")
        else:
            self._next_look = loop.call_later(vanished.LOOK_SECONDS, self._look, transport, acknowledgements)

    def clock_off(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    # --- reading ----------------------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._limiter.buffer if self.trusted else self._limiter.buffer[:READ_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        if self._refused:
            return
        data = bytes(self._limiter.buffer[:nbytes])
        if self.trusted:
            self.parse(data)
        else:
            self._limiter.parsing.parse(self, data)

    def parse(self, data: bytes) -> None:
        """Take bytes of the client. The first one tells whether it speaks TLS, as the listener does."""
        if self._refused:
            return
        if self._is_first:
            self._is_first = False
            if self._tls is None and data[0] == HANDSHAKE:
                self._limiter.count_refused(Reason.NOT_SPOKEN)  # the answer is aiohttp's, in the form of all errors
            elif self._tls is not None and data[0] != HANDSHAKE:
                self._refuse_plain()
                return
        if self._tls is None:
            if self._served is not None:
                self._served.data_received(data)
        elif self._served is None:
            self._shake_hands(self._tls, data)
        else:
            self._tls.receive(data, self._served)

    def _shake_hands(self, tls: TlsTransport, data: bytes) -> None:
        try:
            done = tls.shake_hands(data)
        except HandshakeFailed as failure:
            self._refuse(failure)
            return
        if done:
            self._begin(tls)
            if self._served is not None:
                tls.receive(b"", self._served)

    def _refuse_plain(self) -> None:
        if self._raw is not None:
            self._raw.write(PLAIN_HTTP_ANSWER)
        self._refuse(HandshakeFailed(Reason.REQUIRED, "a client does not speak TLS, and this node does"))

    def _refuse(self, failure: HandshakeFailed) -> None:
        """Count a failed handshake; close when the client does, or after `LINGER_SECONDS`.

        A connection that is closed with unread bytes is reset, and the client would lose the answer.
        """
        self._refused = True
        self._note(failure)
        self.clock_off()
        if self._raw is not None:
            self._raw.write_eof()
            self._clock = asyncio.get_running_loop().call_later(LINGER_SECONDS, self._raw.abort)

    def _note(self, failure: HandshakeFailed) -> None:
        self._limiter.count_refused(failure.reason)
        if self._listener is not None:
            self._listener.failed(failure, self.address)

    def hold_reading(self) -> None:
        if self._served is not None:
            self._served.hold_reading()
        elif self._raw is not None:
            self._raw.pause_reading()

    def release_reading(self) -> None:
        if self._served is not None:
            self._served.release_reading()
        elif self._raw is not None:
            self._raw.resume_reading()

    def eof_received(self) -> bool | None:
        return self._served.eof_received() if self._served is not None else None

    # --- the rest ---------------------------------------------------------------------------------------------

    def abort(self) -> None:
        if self._raw is not None:
            self._raw.abort()

    def pause_writing(self) -> None:
        if self._served is not None:
            self._served.pause_writing()

    def resume_writing(self) -> None:
        if self._served is not None:
            self._served.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self.clock_off()
        self._limiter.parsing.leave(self)
        if self._next_look is not None:
            self._next_look.cancel()
        if self._transport is not None:
            is_by_client = self._limiter.holds(self._transport)
            self._limiter.leave(self._transport)
            if (
                is_by_client
                and self._tls is not None
                and self._served is None
                and not (self._refused or self._is_first)
            ):
                self._note(HandshakeFailed(Reason.UNFINISHED, "the client ended the handshake"))
        if self._served is not None:
            self._served.connection_lost(exc)


class ListeningSite(web.BaseSite):
    """aiohttp's TCP site, with the limiter in front of its server."""

    def __init__(
        self, runner: web.BaseRunner, limiter: ConnectionLimiter, tls: TlsListener | None, **where: Any
    ) -> None:
        super().__init__(runner, backlog=BACKLOG)
        self._limiter = limiter
        self._tls = tls
        self._where = where

    @property
    def name(self) -> str:
        return f"http://{self._where}"

    async def start(self) -> None:
        await super().start()
        server = self._runner.server
        assert server is not None
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self._limiter, cast(Callable[[], ServerProtocol], server), self._tls),
            backlog=self._backlog,
            start_serving=False,  # otherwise a cancellation here would leave sockets open that nothing refers to
            **self._where,
        )
        await self._server.start_serving()

    async def stop(self) -> None:
        """Stop, after every connection that was already accepted has arrived at the limiter, which refuses it.

        A server of asyncio that closes would leave such connections open for ever.
        """
        self._limiter.shut()
        loop = asyncio.get_running_loop()
        for listening in getattr(self._server, "sockets", ()):
            loop.remove_reader(listening.fileno())
        for _ in range(_TURNS_TO_ENTER):
            turned = loop.create_future()
            loop.call_soon(_set_done, turned)
            await turned
        await super().stop()


def _set_done(turned: asyncio.Future[None]) -> None:
    if not turned.done():  # the stop was cancelled
        turned.set_result(None)
