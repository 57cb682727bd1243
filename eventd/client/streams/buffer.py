"""The events and gaps that a subscription has received and the program has not taken yet."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from eventd.client.refusals.kinds import OTHER_SERVER
from eventd.client.streams.values import Event, StreamGap, StreamSight
from eventd.errors import EventdError
from eventd.streams.frames import Flags, Frame
from eventd.streams.layouts import EventBatch, read_events
from eventd.streams.messages import (
    BadMessage,
    Error,
    EventBatchMessage,
    EventMessage,
    GapMessage,
    read_answer,
    read_payload,
)

COST: Final = 128
"""Bytes of memory that an event takes in addition to its payload."""
_EVENTS: Final = (Flags.EVENTS, Flags.SHARED_EVENTS, Flags.EVENTS | Flags.OFFSETS, Flags.SHARED_EVENTS | Flags.OFFSETS)


class EventBuffer:
    """Receives the frames of one subscription, and holds their events and gaps until the program takes them.

    A full buffer cannot slow the server down by QUIC's flow control, so it refuses further frames: the server is asked
    to stop, and when the buffer is empty, the subscription resumes at `offset`, the first event that was not received.
    """

    def __init__(self, offset: int | None, most_bytes: int) -> None:
        self.number = 0
        """The id of the subscription; 0 until the subscription has an id."""
        self.offset = offset
        self.is_over = False
        self.error: EventdError | None = None
        self.is_unnumbered = False
        """Whether events without offsets were received, after which the subscription cannot resume."""
        self.is_recreated = False
        """Whether the log was replaced, and no event of the new log was received yet."""
        self.gaps = 0
        """How many gaps were received."""
        self._sights: deque[StreamSight] = deque()
        self._bytes = 0
        self._most_bytes = most_bytes
        self._waiter: asyncio.Future[None] | None = None

    def __len__(self) -> int:
        return len(self._sights)

    def take(self) -> StreamSight:
        """Remove and return the oldest item."""
        sight = self._sights.popleft()
        self._bytes -= COST + (len(sight.payload) if isinstance(sight, Event) else 0)
        return sight

    def take_some(self, most: int) -> list[StreamSight]:
        """Remove and return up to `most` items in their order."""
        if most < len(self._sights):
            return [self.take() for _ in range(most)]
        sights = [*self._sights]
        self._sights.clear()
        self._bytes = 0
        return sights

    async def wait(self) -> None:
        """Wait until the buffer has an item, or the subscription is over."""
        if not self._sights and not self.is_over:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def take_frame(self, frame: Frame) -> bool:
        if frame.flags in _EVENTS:
            self._events(read_events(frame.flags, frame.payload))
        elif not frame.flags:
            self._message(frame.payload)
        else:
            raise BadMessage(f"unexpected flags {frame.flags:#06x}")
        self._wake()
        return self._bytes <= self._most_bytes and not self.is_over

    def ended(self, reason: str) -> None:
        if reason:
            self.error = EventdError(f"the subscription was ended: {reason}", hint=OTHER_SERVER)
        self.is_over = True
        self._wake()

    def _message(self, payload: bytes) -> None:
        match read_answer(payload):
            case EventMessage() as message:
                self._events(EventBatch([read_payload(message.payload)], None, message.offset))
            case EventBatchMessage() as message:
                self._events(EventBatch([*map(read_payload, message.payloads)], None, message.base_offset))
            case GapMessage() as message:
                self._gap(message)
            case Error():  # the server's last word, as when a token has ended
                self.is_over = True
            case _:
                raise BadMessage("the message is not one of a subscription")

    def _events(self, batch: EventBatch) -> None:
        if batch.subscription_id not in (None, self.number):
            raise BadMessage(f"events of the subscription {batch.subscription_id}")
        base, payloads = batch.base_offset, batch.payloads
        if base is None:
            self.is_unnumbered = True
            self._sights.extend([Event(None, payload) for payload in payloads])
        else:
            if self.offset is not None and base < self.offset and not self.is_recreated:
                payloads = payloads[self.offset - base :]  # given before
                base = self.offset
            self._sights.extend([Event(offset, payload) for offset, payload in enumerate(payloads, base)])
            if payloads:
                self.offset = base + len(payloads)
                self.is_recreated = False
        self._bytes += sum(map(len, payloads)) + COST * len(payloads)

    def _gap(self, message: GapMessage) -> None:
        if message.subscription_id != self.number:
            raise BadMessage(f"a gap of the subscription {message.subscription_id}")
        self._sights.append(StreamGap(message.first, message.to, message.reason, message.missed, message.epoch or ""))
        self._bytes += COST
        self.gaps += 1
        if message.reason == "recreated":
            self.offset, self.is_recreated = None, True
        else:
            self.offset = max(self.offset or 0, message.to + 1)

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
