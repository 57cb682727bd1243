"""One stream of requests: authenticates, sends frames in an order, and hands over the frames of the answers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from eventd.client.refusals.kinds import OTHER_SERVER, Lost
from eventd.client.refusals.of_streams import refusal
from eventd.errors import EventdError
from eventd.quic.stream import QuicStream
from eventd.streams.frames import ASSUMED, KNOWN, BadFrame, Flags, Frame, StreamFrameReader, encode_frame
from eventd.streams.messages import AuthOk, AuthRequest, BadMessage, Error, Ok, read_answer, write_message

EXTENSIONS: Final = ("gap", "session", "receipt")
"""The extensions of the base protocol that this client understands."""
CHUNK: Final = 64 << 10
"""Maximum bytes of a frame that are given to the connection at a time, so that other streams can send in between."""
LAST_WORD_SECONDS: Final = 1.0
STOPPED: Final = 0
"""The error code with which the client abandons a stream."""


class Abilities(NamedTuple):
    """The flags of frames that the server understands, and the extensions in force on this stream."""

    flags: int = ASSUMED
    extensions: frozenset[str] = frozenset()

    @property
    def acknowledges(self) -> bool:
        """Return whether a publish in the binary layout can be acknowledged."""
        return bool(self.flags & Flags.ACKNOWLEDGED)

    @property
    def is_idempotent(self) -> bool:
        """Return whether the server recognizes a publish that is repeated under its id."""
        return "session" in self.extensions


class RequestStream:
    """A stream of requests. `answered` is called with each frame after the answer to the authentication.

    `ended` is done when no more answers come; `refusal` is then the error with which the server ended the stream, or
    None.
    """

    def __init__(self, answered: Callable[[Frame], None]) -> None:
        self.abilities = Abilities()
        self.refusal: EventdError | None = None
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = loop.create_future()
        self._authenticated: asyncio.Future[Abilities] = loop.create_future()
        self._answered = answered
        self._reader = StreamFrameReader()
        self._outbox: deque[bytes] = deque()
        self._sent = 0  # bytes of the first frame of the outbox
        self._room: deque[asyncio.Future[None]] = deque()
        self._stream: QuicStream
        self._ends = False

    @property
    def is_open(self) -> bool:
        """Return whether the stream can be written to."""
        return not self.ended.done()

    @property
    def has_capacity(self) -> bool:
        """Return whether all frames have been sent, except for a limited number of bytes that wait in the
        connection."""
        return not self._outbox and self._stream.unsent < self._stream.mark

    async def authenticate(self, stream: QuicStream, request: AuthRequest) -> None:
        """Send the request for authentication and wait for its answer. Raises the server's refusal, and `Lost`."""
        self._stream = stream
        stream.write(encode_frame(0, write_message(request)))
        try:
            self.abilities = await self._authenticated
        except BaseException:
            self.abandon()
            raise

    def write(self, frame: bytes, *, end: bool = False) -> None:
        """Send a frame after the earlier ones; a large frame in chunks.

        With `end` it is the last frame of the stream.
        """
        self._ends = self._ends or end
        if not self._outbox and len(frame) <= CHUNK and self._stream.unsent < self._stream.mark:
            self._stream.write(frame, end=end)
        else:
            self._outbox.append(frame)
            self.has_room()

    async def room(self) -> None:
        """Wait until the stream has room, or has ended."""
        while not self.has_capacity and self.is_open:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._room.append(waiter)
            await asyncio.wait((waiter, self.ended), return_when=asyncio.FIRST_COMPLETED)

    def finish(self) -> None:
        """Accept no more frames; frames that were written are still sent, and the server's answers are received."""
        self._ends = True
        if not self._outbox and self.is_open:
            self._stream.write(b"", end=True)

    def abandon(self) -> None:
        """Abandon the stream in both directions: send no more, and receive no more."""
        if self.is_open:
            self._stream.reset(STOPPED)
            self._stream.stop_receiving(STOPPED)
            self._end()

    # --- events of the stream

    def received(self, data: bytes, *, ended: bool) -> None:
        try:
            for frame in self._reader.feed(data):
                self._take(frame)
        except (BadFrame, BadMessage) as error:
            self.refusal = EventdError(f"the server's answer cannot be read: {error}", hint=OTHER_SERVER)
            self.abandon()
        if ended:
            self._end()

    def was_reset(self, code: int) -> None:
        self._end()

    def was_stopped(self, code: int) -> None:
        self._outbox.clear()
        self._sent = 0
        if self.is_open:  # the server's last word may still be on its way
            asyncio.get_running_loop().call_later(LAST_WORD_SECONDS, self.abandon)

    def has_room(self) -> None:
        """Write the next chunks to the connection, until it holds enough unsent bytes of this stream."""
        stream = self._stream
        while self._outbox and stream.unsent < stream.mark:
            frame = self._outbox[0]
            chunk = frame[self._sent : self._sent + CHUNK]
            self._sent += len(chunk)
            if self._sent == len(frame):
                self._outbox.popleft()
                self._sent = 0
            stream.write(chunk, end=self._ends and not self._outbox)
        while self._room and self.has_capacity:
            waiter = self._room.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def lost(self) -> None:
        self._end()

    def _take(self, frame: Frame) -> None:
        if self._authenticated.done():
            if self.is_open:
                self._answered(frame)
            return
        answer = read_answer(frame.payload) if not frame.flags else None
        if isinstance(answer, AuthOk):
            self._authenticated.set_result(Abilities(answer.server_flags & KNOWN, frozenset(answer.ext or ())))
        elif isinstance(answer, Ok):
            self._authenticated.set_result(Abilities())
        elif isinstance(answer, Error):
            self.refusal = refusal(answer.message)
            self._end()
        else:
            raise BadMessage("it does not answer the authentication")

    def _end(self) -> None:
        if self.ended.done():
            return
        self.ended.set_result(None)
        self._outbox.clear()
        if not self._authenticated.done():
            self._authenticated.set_exception(self.refusal or Lost("the connection ended before the node had answered"))
            self._authenticated.exception()  # the opener may have been cancelled
        for waiter in self._room:
            if not waiter.done():
                waiter.set_result(None)
        self._room.clear()
