"""Publishes to a group: events emitted at the same time share messages, and each event has its own result."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import TracebackType
from urllib.parse import quote

from eventd.client.connection import Connection, only_text
from eventd.client.emit_channel import ChannelSender
from eventd.client.emit_queue import EmitQueue
from eventd.client.emit_requests import RequestSender
from eventd.client.json_values import name_type, require_event
from eventd.client.values import NewEvent
from eventd.errors import EventdError, Invalid, Unavailable
from eventd.runtime.clock import Clock, SystemClock
from eventd.runtime.supervisor import Supervisor


class Publisher:
    """Emits events into one group. Use it as a context manager, on one loop.

    The end of the block waits for its events, unless it raised. Events go over one connection that stays open
    (`ChannelSender`), or in requests (`RequestSender`) if the node or a proxy takes no WebSocket. An event is sent at
    once if little is under way. Otherwise it shares the next message. At most `window` events wait or are being sent;
    further calls of `emit` wait. What is lost is sent again unchanged, and nothing is stored twice, because an event
    has its id before it is sent.
    """

    def __init__(
        self,
        connection: Connection,
        group: str,
        *,
        window: int = 256,
        requests: int = 2,
        websocket: bool = True,
        clock: Clock | None = None,
    ) -> None:
        """`requests`: the most requests at a time; with `websocket` false, all events are sent in requests."""
        if window < 1 or requests < 1:
            raise Invalid(f"`window` {window} and `requests` {requests} of a publisher must both be at least 1")
        with only_text():
            path = f"/api/v1/groups/{quote(group, safe='')}"
        self._clock = clock or SystemClock()
        self._queue = EmitQueue(group, window, self._clock, connection.chance.token)
        self._by_request = RequestSender(connection, self._queue, f"{path}/events", requests)
        self._channel = ChannelSender(
            connection, self._queue, f"{path}/publish", window, self._use_requests, self._by_request.add
        )
        self._senders: Supervisor | None = None
        self._loop: asyncio.AbstractEventLoop
        if websocket:
            self._queue.on_put = self._channel.notify
        else:
            self._use_requests()

    def _use_requests(self) -> None:
        self._channel.is_on, self._by_request.is_on = False, True
        self._queue.on_put = self._by_request.notify
        self._by_request.notify()

    async def emit(self, event: NewEvent) -> str:
        """Emit an event: returns `new`, `refreshed` if it was stored with an earlier expiry, or else `duplicate`.

        An event without an id gets one, also in the object: emitted again, it is the same event. Raises the node's
        refusal, `Conflict` if the id belongs to another event, `Unavailable`, and `Invalid`, before it is sent, for an
        event without a type, a time without a time zone, or a member of another type. After a cancellation it is
        unknown whether the event was stored.
        """
        await self._queue.room()
        return await self._put(event)

    async def emit_all(self, events: Iterable[NewEvent]) -> list[str | EventdError]:
        """Emit events. Returns the result of each as from `emit`, or its `EventdError`, in the order of `events`.

        The events may be stored in another order.
        """
        emitted: list[asyncio.Future[str]] = []
        for event in events:
            await self._queue.room()
            try:
                emitted.append(self._put(event))
            except Invalid as error:
                emitted.append(self._loop.create_future())
                emitted[-1].set_exception(error)
        for future in emitted:
            if not future.done():  # the events of a message finish together, so few have to be awaited
                await asyncio.wait([future])
        return [_result_of(future) for future in emitted]

    def _put(self, event: object) -> asyncio.Future[str]:
        """Queue an event, for which there is room.

        Raises `Unavailable` if the publisher is not open, `Invalid` for another object or an event that cannot be
        sent, and then frees the room.
        """
        if self._senders is None:  # perhaps closed after the room was given: the event would never be sent
            self._queue.release(1)
            raise Unavailable("the publisher is not open", hint="async with client.publisher(GROUP) as publisher: …")
        if not isinstance(event, NewEvent):
            self._queue.release(1)
            raise Invalid(f"an event to emit is a NewEvent, not {name_type(event)}", hint="NewEvent(TYPE, SUBJECT)")
        try:
            require_event(event)
        except Invalid:
            self._queue.release(1)
            raise
        return self._queue.put(event, self._loop)

    async def __aenter__(self) -> Publisher:
        self._loop = asyncio.get_running_loop()
        self._senders = Supervisor(self._clock)
        self._channel.start(self._senders)
        self._by_request.start(self._senders)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._senders is not None
        try:
            if error is None:
                await self._queue.drain()
        finally:
            senders, self._senders = self._senders, None
            await senders.stop()
            self._channel.close()
            self._by_request.close()
            self._queue.close()


def _result_of(future: asyncio.Future[str]) -> str | EventdError:
    error = future.exception()
    if error is None:
        return future.result()
    if not isinstance(error, EventdError):
        raise error
    return error
