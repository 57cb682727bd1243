"""The connections of a client to one server; each is opened when it is needed, and reopened after it was lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

from eventd.client.refusals.kinds import Lost, Throttled, WrongTls
from eventd.client.streams.connection import StreamConnection
from eventd.client.streams.request_stream import EXTENSIONS, RequestStream
from eventd.client.streams.token import TokenSource
from eventd.errors import Invalid, Unavailable
from eventd.quic.client import connect
from eventd.quic.limits import TransportLimits
from eventd.quic.link import NoStreamsLeft
from eventd.quic.trust import ServerTrust, Unreachable, Untrusted
from eventd.runtime.clock import Clock
from eventd.runtime.supervisor import Supervisor
from eventd.streams.frames import KNOWN, Frame
from eventd.streams.messages import AuthRequest
from eventd.tls.files import CertificateUnusable, read_pem

AUTHENTICATION_SECONDS: Final = 10.0
MOST_SUBSCRIPTIONS: Final = 64
"""Maximum subscriptions of a connection; more subscriptions get a further connection."""
MOST_CONNECTIONS: Final = 64
CHECK_NODE: Final = "check that the node is running and that this is its address for streams"


class StreamServer(NamedTuple):
    """The address of the server, and how its certificate is verified."""

    host: str
    port: int
    trust: ServerTrust
    ca_file: str

    async def read_trust(self) -> ServerTrust:
        """Return the rules by which the server's certificate is verified at present. Raises `CertificateUnusable`."""
        if not self.ca_file:
            return self.trust
        content = await asyncio.to_thread(read_pem, Path(self.ca_file))
        try:
            return replace(self.trust, ca=content)
        except Invalid as error:
            raise CertificateUnusable(f"{self.ca_file}: {error.message}", hint=error.hint) from None

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class StreamIdentity(NamedTuple):
    """Who the client is: its tenant, its token, and the session under which its publishes are numbered."""

    tenant: str
    token: TokenSource
    session: str


class _Slot:
    """A place of the pool: a connection, or the attempt to open one."""

    def __init__(self) -> None:
        self.connection: StreamConnection | None = None
        self.attempt: asyncio.Task[StreamConnection] | None = None


class ConnectionPool:
    """Up to `size` connections for requests; subscriptions share them, and open further ones when these are full.

    A connection sends a packet if it has sent none for `alive` seconds. It is lost if no packet of the server has
    arrived for three times as long.
    """

    def __init__(
        self,
        server: StreamServer,
        identity: StreamIdentity,
        *,
        size: int,
        alive: float,
        clock: Clock,
        supervisor: Supervisor,
    ) -> None:
        self._server = server
        self._identity = identity
        self._slots = [_Slot() for _ in range(size)]
        self._alive = alive
        self._clock = clock
        self._supervisor = supervisor
        self._limits = TransportLimits(idle_seconds=3 * alive)
        supervisor.keep(self._ping_for_ever, "keep connections alive")

    async def open(self, place: int, answered: Callable[[Frame], None]) -> RequestStream:
        """Open and authenticate a stream of requests; streams with the same `place` share a connection.

        Raises the refusal of the server, `Lost`, and what reading the token raises.
        """
        connection = await self._connect(self._slots[place % len(self._slots)])
        return await self.open_on(connection, answered)

    async def open_on(self, connection: StreamConnection, answered: Callable[[Frame], None]) -> RequestStream:
        """Open and authenticate a stream of requests on a connection, as `open` does."""
        request = AuthRequest(
            tenant_id=self._identity.tenant,
            token=await self._identity.token.read(),
            client_flags=KNOWN,
            ext=[*EXTENSIONS],
            session=self._identity.session,
        )
        opened = RequestStream(answered)
        try:
            stream = connection.link.open_stream(opened)
        except NoStreamsLeft:
            if not connection.is_usable:
                raise self._lost("the connection ended") from None
            raise Throttled(f"{self._server} allows no further stream at present") from None
        try:
            async with asyncio.timeout(AUTHENTICATION_SECONDS):
                await opened.authenticate(stream, request)
        except TimeoutError:
            raise self._lost(f"no answer within {AUTHENTICATION_SECONDS:g} s") from None
        return opened

    async def connection_for_subscription(self) -> StreamConnection:
        """Return the connection with the fewest subscriptions; if all have their maximum, a further one.

        Raises as `open`.
        """
        slot = min(self._slots, key=lambda slot: slot.connection.subscriptions if slot.connection else 0)
        if slot.connection is not None and slot.connection.subscriptions >= MOST_SUBSCRIPTIONS:
            if len(self._slots) >= MOST_CONNECTIONS:
                raise Throttled(f"the client has {MOST_CONNECTIONS} connections of {MOST_SUBSCRIPTIONS} subscriptions")
            slot = _Slot()
            self._slots.append(slot)
        return await self._connect(slot)

    def close(self) -> None:
        """Close all connections without waiting for the server."""
        for slot in self._slots:
            if slot.connection is not None:
                link = slot.connection.link
                link.close()
                link.flush()
                link.abandon("the client was closed")

    async def _connect(self, slot: _Slot) -> StreamConnection:
        """Return the connection of a slot. Callers that need it at the same time share one attempt to open it."""
        if slot.connection is not None and slot.connection.is_usable:
            return slot.connection
        if slot.attempt is None:
            slot.attempt = self._supervisor.spawn(self._attempt(slot), f"connect to {self._server}", expects=Exception)
        attempt = slot.attempt
        await asyncio.wait((attempt,))
        return attempt.result()

    async def _attempt(self, slot: _Slot) -> StreamConnection:
        connection = StreamConnection()
        try:
            connection.link = await connect(
                self._server.host,
                self._server.port,
                connection,
                trust=await self._server.read_trust(),
                clock=self._clock,
                limits=self._limits,
            )
        except (Untrusted, CertificateUnusable) as error:
            raise WrongTls(error.message, hint=error.hint) from None
        except Unreachable as error:
            raise Lost(error.message, hint=CHECK_NODE) from None
        finally:
            slot.attempt = None
        slot.connection = connection
        return connection

    def _lost(self, words: str) -> Unavailable:
        return Lost(f"cannot reach {self._server}: {words}", hint=CHECK_NODE)

    async def _ping_for_ever(self) -> None:
        while True:
            await self._clock.sleep(self._alive)
            for slot in self._slots:
                if slot.connection is not None and slot.connection.is_usable:
                    slot.connection.link.ping()
