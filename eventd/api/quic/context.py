"""The dependencies that the streams of all connections share, and those of one connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final, Protocol

from eventd.api.framework.limits import ConcurrencyLimiter
from eventd.api.keys.api_key import ApiKey
from eventd.api.quic.answer_backlog import AnswerBacklog
from eventd.api.quic.answers import OVERLOADED
from eventd.api.quic.budgets import ConnectionBudget, ListenerBudget
from eventd.api.quic.interfaces import Authenticator, ClientGrant, NoPlace, Subscriber, SubscriptionPlaces
from eventd.api.quic.options import StreamOptions
from eventd.api.quic.publishing import Publisher
from eventd.log.topics.errors import Throttled
from eventd.observe.stream_figures import StreamMetrics
from eventd.quic.link import QuicLink
from eventd.runtime.clock import Clock
from eventd.runtime.log_pause import LogPause
from eventd.runtime.supervisor import Supervisor
from eventd.streams.messages import CacheGetRequest, CachePutRequest, Message, SubscribeRequest
from eventd.streams.names import CacheName, StreamName

LONGEST_PAUSE: Final = 5.0
"""Seconds for which a connection is paused at a time."""


class SubscriptionStarter(Protocol):
    """Interface: begins subscriptions."""

    async def subscribe(
        self, subscriber: Subscriber, request: SubscribeRequest, name: StreamName
    ) -> tuple[Message, Callable[[], None] | None]:
        """Return the answer, and what to call as soon as it is written: that starts the events."""
        ...


class CacheRequests(Protocol):
    """Interface: serves the requests of caches. Raises `UnknownCache`, `ValueTooLarge` and `BadMessage`."""

    def put(self, request: CachePutRequest, name: CacheName) -> Message: ...

    def get(self, request: CacheGetRequest, name: CacheName) -> Message: ...


class HeldPlace:
    """One place of a limiter, which is taken until it is given back."""

    def __init__(self, limiter: ConcurrencyLimiter, grant: ClientGrant) -> None:
        """Take a place of the grant's identity. Raises `NoPlace`."""
        self._use = ExitStack()
        try:
            self._use.enter_context(limiter.take(ApiKey(grant.identity, frozenset(), ())))
        except Throttled:
            raise NoPlace(OVERLOADED) from None

    def give_back(self) -> None:
        """Give the place back; further calls have no effect."""
        self._use.close()


@dataclass(frozen=True, slots=True)
class ServerContext:
    """The dependencies of all connections. The limiters count by the identity of clients.

    `shed` frees the memory of the connection that holds most.
    """

    clock: Clock
    supervisor: Supervisor
    pause: LogPause
    access: Authenticator
    publisher: Publisher
    subscribing: SubscriptionStarter
    caching: CacheRequests
    options: StreamOptions
    metrics: StreamMetrics
    budget: ListenerBudget
    connections: ConcurrencyLimiter
    streams: ConcurrencyLimiter
    subscriptions: ConcurrencyLimiter
    shed: Callable[[], None]


class PausableLink(Protocol):
    """Interface: a connection that calls nothing back while it is paused."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...


class LinkPause:
    """Pauses a connection while publishes of its streams wait for memory: the client gets no credit meanwhile."""

    def __init__(self, link: PausableLink, soon: Callable[[Callable[[], None]], object]) -> None:
        self._link = link
        self._soon = soon
        self._waiting = 0
        self._is_paused = False
        self._seen_at: float | None = None
        """When `check` first saw the present pause."""

    def begin(self) -> None:
        """Note that a publish waits."""
        self._waiting += 1
        if not self._is_paused:
            self._is_paused = True
            self._link.pause()

    def end(self) -> None:
        """Note that a publish no longer waits."""
        self._waiting -= 1
        if not self._waiting:
            self._soon(self._resume)  # not at once: resuming calls the streams back

    def check(self, now: float) -> None:
        """End a pause that takes too long: the end of the connection is not noticed meanwhile. `now` is monotonic."""
        if not self._is_paused or self._seen_at is None:
            self._seen_at = now if self._is_paused else None
        elif now - self._seen_at >= LONGEST_PAUSE:
            self._end()

    def _resume(self) -> None:
        if self._is_paused and not self._waiting:
            self._end()

    def _end(self) -> None:
        self._is_paused, self._seen_at = False, None
        self._link.resume()


@dataclass(frozen=True, slots=True)
class ConnectionContext:
    """The dependencies of the streams of one connection.

    `admit` counts the connection for the identity of a stream that was authenticated, and raises `NoPlace`.
    `shed` frees the memory of the stream that holds most. `authenticating` is held by the stream whose token is being
    verified: a connection with many of them delays no other, and a token that several streams show is verified once.
    `unread`: the answers that the client does not read.
    """

    server: ServerContext
    link: QuicLink
    budget: ConnectionBudget
    places: SubscriptionPlaces
    admit: Callable[[ClientGrant], None]
    shed: Callable[[], None]
    pause: LinkPause
    unread: AnswerBacklog
    authenticating: asyncio.Lock = field(default_factory=asyncio.Lock)

    def check_memory(self) -> None:
        """Free memory if the frames of the connection take too much."""
        if self.budget.is_exceeded:
            self.shed()
        elif self.server.budget.is_exceeded:
            self.server.shed()
