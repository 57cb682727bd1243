"""One connection of a client: its streams, its subscriptions, and the memory that its frames take."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

from eventd.api.quic.answer_backlog import AnswerBacklog
from eventd.api.quic.budgets import CONNECTION_FULL
from eventd.api.quic.context import ConnectionContext, HeldPlace, LinkPause, ServerContext
from eventd.api.quic.interfaces import Channel, ClientGrant, NoPlace, OpenSubscription
from eventd.api.quic.request_stream import RequestStream
from eventd.quic.link import QuicLink

PING_SECONDS: Final = 10.0
"""The pause between two pings of a connection that is in use: a quiet one would end after its idle time."""
UNUSED_SECONDS: Final = 30.0
"""How long a connection may be open before a stream of it is authenticated: pings of its client do not prolong that."""
UNUSED: Final = "no stream was authenticated"
SUBSCRIPTIONS_FULL: Final = "max subscriptions per connection exceeded"
ID_IN_USE: Final = "subscription_id is in use"
ID_TOO_LARGE: Final = "subscription_id is not below 2^53"
_IDS: Final = 2**53


class ConnectionSubscriptions:
    """The subscriptions of one connection; ids that a client does not choose come from `ids`."""

    def __init__(self, server: ServerContext, link: QuicLink, ids: Iterator[int]) -> None:
        self._server = server
        self._link = link
        self._ids = ids
        self._places: dict[int, HeldPlace] = {}
        self._open: dict[int, OpenSubscription] = {}

    def __len__(self) -> int:
        """Return the number of subscriptions, with those that are about to begin."""
        return len(self._places)

    def take(self, grant: ClientGrant, asked: int | None) -> int:
        """Reserve a place, and return the id of the subscription: the one asked for, or a new one. Raises `NoPlace`."""
        beginning = len(self._places) - len(self._open)
        if len(self) >= self._server.options.max_subscriptions:
            raise NoPlace(SUBSCRIPTIONS_FULL)
        if self._link.streams_left(unidirectional=True) <= beginning:
            raise NoPlace(SUBSCRIPTIONS_FULL)
        if asked is not None and asked in self._places:
            raise NoPlace(ID_IN_USE)
        if asked is not None and asked >= _IDS:
            raise NoPlace(ID_TOO_LARGE)
        id = next(id for id in self._ids if id not in self._places) if asked is None else asked
        self._places[id] = HeldPlace(self._server.subscriptions, grant)
        return id

    def hold(self, id: int, subscription: OpenSubscription) -> None:
        """Note whose place it is."""
        if id in self._places:
            self._open[id] = subscription

    def release(self, id: int) -> None:
        """Give a place back."""
        self._open.pop(id, None)
        place = self._places.pop(id, None)
        if place is not None:
            place.give_back()

    def check(self, now: int) -> None:
        """End the subscriptions whose grant has ended. `now`: wall time."""
        for subscription in list(self._open.values()):
            if reason := subscription.grant.ended(now):
                subscription.end(reason)

    def end(self, reason: str) -> None:
        """End all subscriptions."""
        for subscription in list(self._open.values()):
            subscription.end(reason)


class StreamSession:
    """Handles the events of one client's QUIC connection (see `LinkEvents`)."""

    def __init__(self, server: ServerContext, link: QuicLink, ids: Iterator[int]) -> None:
        self._server = server
        self._link = link
        self._subscriptions = ConnectionSubscriptions(server, link, ids)
        self.budget = server.budget.open(server.options.conn_inflight_bytes)
        pause = LinkPause(link, asyncio.get_running_loop().call_soon)
        self._unread = AnswerBacklog(server.options.conn_inflight_bytes)
        self._context = ConnectionContext(
            server, link, self.budget, self._subscriptions, self._admit, self.shed, pause, self._unread
        )
        self._streams: dict[RequestStream, None] = {}
        self._place: HeldPlace | None = None
        self._was_cut = False
        self._opened_at = self._pinged_at = server.clock.monotonic()
        self.is_closed = False
        server.metrics.connected()

    # --- events of the connection

    def opened(self) -> None:
        """Note that the handshake is complete."""

    def stream_opened(self, channel: Channel) -> RequestStream:
        """Return the reader of a stream that the client has opened."""
        stream = RequestStream(self._context, channel, self._forget)
        self._streams[stream] = None
        return stream

    def closed(self, code: int, reason: str) -> None:
        """Note that the connection has ended; its streams know already."""
        if not self.is_closed:
            self.is_closed = True
            self._server.metrics.disconnected()
            if self._place is not None:
                self._place.give_back()

    # --- for the listener

    @property
    def has_ended(self) -> bool:
        """Return whether no stream has anything under way, and everything that was written is sent."""
        return self.is_closed or self._link.is_closed or not (self._streams or self._subscriptions or self._link.unsent)

    @property
    def unhandled(self) -> int:
        """Return the bytes of its streams that were not handled: most are of frames that have not arrived entirely."""
        return sum(stream.unhandled for stream in self._streams)

    def check(self, now: int) -> None:
        """End streams and subscriptions that are no longer permitted or take too long.

        Keep the connection alive while it is in use.
        """
        if self._link.is_closed:
            return
        self._context.pause.check(self._server.clock.monotonic())
        self._subscriptions.check(now)
        self._unread.check()
        for stream in list(self._streams):
            stream.check(now)
        passed = self._server.clock.monotonic()
        if self._place is None and passed - self._opened_at >= UNUSED_SECONDS:
            self._link.close(0, UNUSED)
        elif passed - self._pinged_at >= PING_SECONDS:
            self._pinged_at = passed
            if self._place is not None and (self._streams or self._subscriptions):
                self._link.ping()

    def drain(self, reason: str) -> None:
        """End the subscriptions, and each stream that has no request under way."""
        self._subscriptions.end(reason)
        for stream in list(self._streams):
            if stream.is_idle:
                stream.close()

    def shed(self) -> None:
        """Drop the bytes of the stream that holds most; at the second call, end the connection."""
        if self._was_cut:
            self._link.close(0, CONNECTION_FULL)
            return
        self._was_cut = True
        largest = max(self._streams, key=lambda stream: stream.unhandled, default=None)
        if largest is not None:
            largest.cut(CONNECTION_FULL)

    # --- inside

    def _admit(self, grant: ClientGrant) -> None:
        if self._place is None:
            self._place = HeldPlace(self._server.connections, grant)

    def _forget(self, stream: RequestStream) -> None:
        self._streams.pop(stream, None)
