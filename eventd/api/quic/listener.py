"""The QUIC listener of a node: its connections, their common limits, and how it stops."""

from __future__ import annotations

import asyncio
import itertools
import logging
from typing import Final

from eventd.api.framework.limits import ConcurrencyLimiter
from eventd.api.quic.budgets import ListenerBudget
from eventd.api.quic.cache import Caches
from eventd.api.quic.caching import Caching
from eventd.api.quic.context import ServerContext
from eventd.api.quic.interfaces import Authenticator
from eventd.api.quic.options import StreamOptions
from eventd.api.quic.publishing import Publisher
from eventd.api.quic.session import StreamSession
from eventd.api.quic.subscribing import Subscribing
from eventd.api.topics.calls import V0
from eventd.observe.stream_figures import StreamMetrics
from eventd.quic.certificate import QuicCertificate
from eventd.quic.limits import TransportLimits
from eventd.quic.link import QuicLink
from eventd.quic.server import QuicServer
from eventd.runtime.log_pause import LogPause
from eventd.runtime.supervisor import Supervisor

CHECK_SECONDS: Final = 0.25
"""Seconds between two checks for connections and streams that have ended or take too long."""
DRAIN_SECONDS: Final = 0.02
"""Seconds between two checks whether a stopping listener still has to wait."""
LINGER_SECONDS: Final = 0.1
"""Seconds that a stopping listener waits for the last data of streams to leave."""
GOODBYE: Final = "broker shutting down"

logger = logging.getLogger("eventd.streams")


class StreamListener:
    """Streams and caches over QUIC. `address` is its host and port, None before `start`."""

    def __init__(
        self,
        v0: V0,
        access: Authenticator,
        caches: Caches,
        options: StreamOptions,
        metrics: StreamMetrics,
        supervisor: Supervisor,
    ) -> None:
        loop = asyncio.get_running_loop()
        per_key = v0.limits.max_sse_connections_per_key
        self.address: tuple[str, int] | None = None
        self._clock = v0.clock
        self._options = options
        self._metrics = metrics
        self._caches = caches
        self._subscribing = Subscribing(v0, metrics, options)
        self._context = ServerContext(
            clock=v0.clock,
            supervisor=supervisor,
            pause=LogPause(v0.clock.monotonic),
            access=access,
            publisher=Publisher(v0, options),
            subscribing=self._subscribing,
            caching=Caching(caches, metrics, v0.clock),
            options=options,
            metrics=metrics,
            budget=ListenerBudget(options.inflight_bytes, options.max_frame_bytes, loop.call_soon),
            connections=ConcurrencyLimiter("QUIC connections", 0, per_key),
            streams=ConcurrencyLimiter("QUIC streams", 0, per_key),
            subscriptions=v0.serving.concurrency.streams,
            shed=self._shed,
        )
        self._ids = itertools.count(1)
        self._sessions: dict[QuicLink, StreamSession] = {}
        self._server: QuicServer | None = None
        self._had_room_at = v0.clock.monotonic()
        """When the frames of all connections were last within their limit."""
        self._chores: list[asyncio.Task[None]] = []
        metrics.unsent(lambda: sum(link.unsent for link in self._sessions))

    async def start(self, host: str, port: int, certificate: QuicCertificate) -> None:
        """Listen. Raises OSError, `MissingExtra` and `CertificateUnusable`."""
        limits = TransportLimits(most_connections=self._options.max_connections)
        self._server = await QuicServer.listen(
            host, port, certificate, self.accept, clock=self._clock, spec=limits, failed=self._failed
        )
        self.address = self._server.address
        keep = self._context.supervisor.keep
        self._chores = [
            keep(self._check_for_ever, "checks of QUIC connections"),
            keep(self._caches.sweep_for_ever, "sweep of the caches"),
            keep(self._subscribing.measure_for_ever, "lag of subscriptions"),
        ]

    def reload(self, certificate: QuicCertificate) -> None:
        """Show another certificate to new connections. Raises `CertificateUnusable`."""
        if self._server is not None:
            self._server.use(certificate)

    def access_changed(self) -> None:
        """End all streams and subscriptions that were permitted by keys or tenants which are now removed."""
        self._check()

    async def stop(self) -> None:
        """Stop accepting, let requests under way end, then close all connections."""
        server, self._server = self._server, None
        if server is None:
            return
        server.stop_accepting()
        until = self._clock.monotonic() + max(1.0, self._options.drain / 2)
        while True:
            for session in list(self._sessions.values()):
                session.drain(GOODBYE)
            await self._clock.sleep(DRAIN_SECONDS)
            if all(session.has_ended for session in self._sessions.values()) or self._clock.monotonic() >= until:
                break
        if any(not session.is_closed for session in self._sessions.values()):
            await self._clock.sleep(LINGER_SECONDS)  # ends of streams that are written are not necessarily sent
        await server.close(0, GOODBYE)
        for chore in self._chores:
            chore.cancel()

    def accept(self, link: QuicLink) -> StreamSession:
        """Return the user of a new connection."""
        self._forget_closed()
        session = self._sessions[link] = StreamSession(self._context, link, self._ids)
        return session

    # --- inside

    def _forget_closed(self) -> None:
        for link in [link for link, session in self._sessions.items() if session.is_closed]:
            del self._sessions[link]

    def _failed(self, reason: str) -> None:
        self._metrics.transport_error()

    async def _check_for_ever(self) -> None:
        while True:
            await self._clock.sleep(CHECK_SECONDS)
            self._check()

    def _check(self) -> None:
        self._forget_closed()
        now = self._clock.now()
        for session in list(self._sessions.values()):
            session.check(now)
        self._check_memory()

    def _check_memory(self) -> None:
        """Free memory if frames that do not end have left others no room for a while."""
        budget, passed = self._context.budget, self._clock.monotonic()
        if not budget.is_over():
            self._had_room_at = passed
        elif passed - self._had_room_at > self._options.ingress_wait:
            waiting = {session: session.unhandled for session in self._sessions.values() if not session.is_closed}
            if sum(waiting.values()) * 2 > budget.used:
                max(waiting, key=lambda session: waiting[session]).shed()

    def _shed(self) -> None:
        """Free the memory of the connection whose frames take most."""
        sessions = [session for session in self._sessions.values() if not session.is_closed]
        if sessions:
            max(sessions, key=lambda session: session.budget.used).shed()
