"""Publishes records without an answer: records that are lost with a connection are not sent again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from eventd.client.refusals.kinds import WrongTls
from eventd.client.refusals.of_streams import refusal
from eventd.client.streams.lane import LaneTiming
from eventd.client.streams.pool import ConnectionPool
from eventd.client.streams.request_stream import RequestStream
from eventd.errors import EventdError, Forbidden, Unavailable
from eventd.streams.frames import Frame
from eventd.streams.layouts import PublishBatch, write_publish
from eventd.streams.messages import Error, read_answer
from eventd.streams.names import StreamName

END_SECONDS: Final = 5.0
"""Seconds that a closing client waits until the server has read all written records."""


class UnacknowledgedLane:
    """Writes publishes in their order to one stream, apart from acknowledged ones: a refusal ends the stream."""

    def __init__(self, pool: ConnectionPool, place: int, timing: LaneTiming) -> None:
        self._pool = pool
        self._place = place
        self._timing = timing
        self._turn = asyncio.Lock()
        self._stream: RequestStream | None = None
        self._refusal: EventdError | None = None

    async def publish(self, name: StreamName, payloads: Sequence[bytes]) -> None:
        """Write a publish when the stream has room.

        Raises `Unavailable` without a connection, and once the refusal of an earlier publish.
        """
        frame = write_publish(PublishBatch(*name, payloads))
        async with self._turn:  # in the order of calls
            stream = self._stream
            while stream is None or not stream.is_open or not stream.has_capacity:
                self._raise_refusal(stream)
                if stream is None or not stream.is_open:
                    stream = self._stream = await self._open()
                else:
                    await stream.room()
            stream.write(frame)

    async def finish(self) -> None:
        """End the stream, and wait until the server has read it, at most `END_SECONDS`."""
        stream = self._stream
        if stream is not None and stream.is_open:
            stream.finish()
            timer = self._timing.clock.timer(END_SECONDS)
            await asyncio.wait((stream.ended, timer), return_when=asyncio.FIRST_COMPLETED)
            timer.cancel()

    def raise_forbidden(self) -> None:
        """Raise `Forbidden` if the server has refused a publish permanently, and no call has raised this refusal
        yet."""
        error = self._refusal or (self._stream.refusal if self._stream is not None else None)
        if isinstance(error, Forbidden):
            self._refusal = self._stream = None
            raise error

    def _raise_refusal(self, stream: RequestStream | None) -> None:
        error = self._refusal or (stream.refusal if stream is not None else None)
        if error is not None:
            self._refusal = self._stream = None
            raise error

    async def _open(self) -> RequestStream:
        """Open a stream, in several attempts if necessary."""
        deadline = self._timing.deadline()
        failures = 0
        while True:
            try:
                return await self._pool.open(self._place, self._answered)
            except WrongTls:
                raise
            except Unavailable:
                failures += 1
                delay = self._timing.delay(failures)
                if self._timing.clock.monotonic() + delay >= deadline:
                    raise
            await self._timing.clock.sleep(delay)

    def _answered(self, frame: Frame) -> None:
        message = read_answer(frame.payload) if not frame.flags else None
        if isinstance(message, Error):
            self._refusal = refusal(message.message)
