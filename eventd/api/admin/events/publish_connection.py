"""One WebSocket on which a client publishes to a group: messages are written and answered in their order.

While a transaction runs, the next messages are read and checked. All messages of a transaction are answered together,
after its commit.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import WSCloseCode, WSMessage, WSMsgType, web

from eventd.api.admin.events.emitting import prepare, show_exceptions
from eventd.api.admin.events.publish_messages import (
    PublishMessage,
    UnnumberedMessage,
    read_message,
    refusal,
    write_answers,
    write_end,
)
from eventd.api.admin.resources.groups import EmitTarget, find_target
from eventd.api.bodies.bodies import SMALL_BYTES, BodyMemory, BodyReservation, aside
from eventd.api.errors.codes import internal
from eventd.api.framework.operations import Services
from eventd.api.listener.messages import IncomingMessages
from eventd.api.listener.sending import PING, ClientStream, text_frame
from eventd.errors import EventdError, NotFound, Unavailable
from eventd.log.core.values import AppendResult, Drafts

UNANSWERED: Final = 64
"""Maximum number of messages of one client that are read and not answered."""
UNANSWERED_EVENTS: Final = 20_000
"""Number of unanswered events of one client from which no further message is read."""
UNANSWERED_BYTES: Final = 8 << 20
"""Bytes of unanswered messages of one client from which no further message is read."""
SILENT_SECONDS: Final = 15.0
"""After this time without an answer sent to it, a client is pinged, which detects a dead connection."""
_AT_ONCE: Final = 1000
"""Number of events of one client that are read before the event loop turns to other work."""
_STEP: Final = 256 << 10
"""Bytes by which the memory for small messages of one client grows."""
logger = logging.getLogger("eventd.api")


@dataclass(slots=True, eq=False)
class UnansweredMessage:
    """A message from its arrival to its answer. `place`: the group and topic that its events were checked for.

    `done` gets the result of its transaction, or the error of its check.
    """

    message: PublishMessage
    size: int
    held: BodyReservation | None
    now: int
    place: EmitTarget
    done: asyncio.Future[AppendResult]
    drafts: Drafts | None = None

    @property
    def is_refused(self) -> bool:
        """Return whether it is done, and its events were not written."""
        return self.done.done() and self.done.exception() is not None


class MessageMemory:
    """The memory for the unanswered messages of one client that are too small to be counted one by one."""

    def __init__(self, bodies: BodyMemory, key: bytes) -> None:
        self._bodies = bodies
        self._held = BodyReservation(bodies, key)
        self._used = 0

    def fits(self, size: int) -> bool:
        """Return whether the memory for a message of so many bytes is, or could be, reserved; a single one always."""
        used = self._used + size
        if self._used and used > self._held.bytes and used > _STEP:
            try:
                self._held.grow_to(used + _STEP)
            except EventdError:  # the message waits until the others are answered
                return False
        return True

    def use(self, size: int) -> None:
        """Count a message."""
        self._used += size

    def free(self, size: int) -> None:
        """Note that a message is answered. Without any other, the reservation is given back."""
        self._used -= size
        if not self._used:
            self.close()

    def close(self) -> None:
        """Give the reservation back: the connection has ended."""
        self._bodies.give_back(self._held)


class PublishConnection:
    """The connection of one client. `count` is called with the number of events of each answer, by result."""

    def __init__(
        self,
        services: Services,
        place: EmitTarget,
        socket: web.WebSocketResponse,
        messages: IncomingMessages,
        stream: ClientStream,
        memory: MessageMemory,
        count: Callable[[Mapping[str, int]], None],
    ) -> None:
        self.group = place.group.name
        self._services = services
        self._place = place
        self._socket = socket
        self._messages = messages
        self._stream = stream
        self._memory = memory
        self._count = count
        self._unanswered: deque[UnansweredMessage] = deque()
        self._events = self._bytes = self._heard = 0  # `_heard`: events since the loop last turned to other work
        # Held while messages are checked and handed to the writer, so that this happens in their order.
        self._order = asyncio.Lock()
        self._ending: tuple[EventdError, int] | None = None
        self._is_over = False  # no message follows
        self._news: asyncio.Future[None] | None = None  # of the task that answers: a message, or the end
        self._room: asyncio.Future[None] | None = None  # of the task that reads: an answer
        self._answered_at = services.clock.monotonic()

    async def run(self) -> None:
        """Serve until the client disconnects or is refused, or `end` is called; then answer what was read."""
        assert self._services.spawn is not None
        # Runs once: if it fails, the connection ends, and the client sends its messages again over another.
        answering = self._services.spawn(self._answer_all(), "answers to a publishing client")
        answering.add_done_callback(self._cut_unanswered)
        self._messages.attend(lambda error: self.end(error, WSCloseCode.TRY_AGAIN_LATER))
        try:
            async for message in self._socket:
                if self._ending is not None or self._messages.refusal is not None:
                    break  # the memory of this message may already belong to another
                if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                    break  # it broke the protocol, or was too large, and the connection is closed already
                await self._hear(message, self._messages.take())
                await self._stream.drain()  # a client that does not read answers gets no more of them
        except ConnectionError:
            pass  # the client disconnected
        finally:
            self._is_over = True
            _wake(self._news)
            await asyncio.wait({answering})
            self._memory.close()
            for each in self._unanswered:
                self._messages.release(each.held)

    def end(self, error: EventdError, code: int) -> None:
        """Read no more messages, answer those that were read, then send the error and close with this code."""
        if self._ending is None:
            self._ending = error, code
            self._is_over = True
            _wake(self._news)
            _wake(self._room)

    def beat(self, now: float) -> None:
        """Ping a client that reads and got nothing for `SILENT_SECONDS`. `now` is monotonic."""
        if now - self._answered_at >= SILENT_SECONDS and not self._stream.full:
            self._write(PING)

    def _write(self, frame: bytes) -> None:
        self._stream.write(frame)
        self._answered_at = self._services.clock.monotonic()

    def _cut_unanswered(self, answering: asyncio.Task[None]) -> None:
        """Cut the connection if the task that answers has failed: its client sends what was not answered again."""
        if answering.cancelled() or answering.exception() is not None:
            self._stream.abort()
            self._is_over = True
            _wake(self._room)

    # --- reading ------------------------------------------------------------------------------------------------------

    async def _hear(self, frame: WSMessage, held: BodyReservation | None) -> None:
        text = frame.data.encode() if frame.type is WSMsgType.TEXT else bytes(frame.data)
        was_idle = not self._unanswered
        try:
            message = await aside(len(text), read_message, text)
            await self._wait_for_room(len(text), is_small=held is None)
            if not self._is_over:
                await self._submit(message, len(text), held)
                held = None
        except UnnumberedMessage as error:
            self.end(error, WSCloseCode.POLICY_VIOLATION)
        finally:
            self._messages.handled()
            self._messages.release(held)
        if was_idle or self._heard >= _AT_ONCE:  # the first transaction begins before further messages are read
            self._heard = 0
            await self._services.clock.sleep(0)

    async def _wait_for_room(self, size: int, *, is_small: bool) -> None:
        """Wait until the message may be handed to the writer, or the connection ends."""
        while self._unanswered and not self._is_over:
            are_few = len(self._unanswered) < UNANSWERED and self._events < UNANSWERED_EVENTS
            if are_few and self._bytes + size <= UNANSWERED_BYTES and (not is_small or self._memory.fits(size)):
                return
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    async def _submit(self, message: PublishMessage, size: int, held: BodyReservation | None) -> None:
        """Check a message and hand it to the writer; from now on it is unanswered."""
        async with self._order:
            now, done = self._services.clock.now(), asyncio.get_running_loop().create_future()
            entry = UnansweredMessage(message, size, held, now, self._place, done)
            await self._write_events(entry)
            self._unanswered.append(entry)
            self._events += len(message.events)
            self._heard += len(message.events)
            self._bytes += size
            if held is None:
                self._memory.use(size)
        _wake(self._news)

    async def _write_events(self, entry: UnansweredMessage) -> None:
        """Hand the events of a message to the writer. An error becomes that of its `done`."""
        entry.place = self._place
        try:
            if entry.message.problem is not None:
                raise entry.message.problem
            large = entry.size > SMALL_BYTES
            entry.drafts, unit = await prepare(
                self._services, entry.message.events, entry.place, entry.now, large=large
            )
            entry.done = self._services.log.submit(unit)
        except Exception as error:  # answered in the order of the messages
            entry.done = asyncio.get_running_loop().create_future()
            entry.done.set_exception(error)

    # --- answering ----------------------------------------------------------------------------------------------------

    async def _answer_all(self) -> None:
        while self._unanswered or not self._is_over:
            if not self._unanswered:
                self._news = asyncio.get_running_loop().create_future()
                await self._news
                continue
            await asyncio.wait({self._unanswered[0].done})
            answers = []
            while self._unanswered and self._unanswered[0].done.done():
                entry = self._unanswered[0]
                answer = await self._answer(entry)
                if answer is None:
                    break
                answers.append(answer)
                self._forget(entry)
            if answers:
                self._write(text_frame(write_answers(answers)))
        await self._close()

    async def _answer(self, entry: UnansweredMessage) -> Mapping[str, Any] | None:
        """Return the answer to a message that is done; None if its events were handed to the writer again."""
        error = entry.done.exception()
        if error is None:
            assert entry.drafts is not None
            shown = await show_exceptions(self._services.log, entry.drafts, entry.done.result())
            self._count(shown["counts"])
            return {"seq": entry.message.seq, **shown}
        if isinstance(error, EventdError) and error is not entry.message.problem:
            try:
                present = await find_target(self._services.database, self.group, entry.now)
            except EventdError as unfound:
                error = unfound
                if isinstance(unfound, NotFound):
                    self.end(unfound, WSCloseCode.POLICY_VIOLATION)
            else:
                if present is not entry.place:
                    await self._write_again(present)
                    return None
        if not isinstance(error, EventdError):
            incident = self._services.log.chance.token(4).hex()
            logger.error("message failed", exc_info=error, extra={"incident": incident})
            error = internal(incident)
        self._count({"refused": len(entry.message.events)})
        return refusal(entry.message.seq, error)

    async def _write_again(self, present: EmitTarget) -> None:
        """Check the messages that were refused by a replaced declaration by the present one, in their order.

        What the writer refused for the change itself keeps its order: all later messages name the same declaration.
        """
        async with self._order:
            self._place = present
            await asyncio.wait({entry.done for entry in self._unanswered})
            for entry in self._unanswered:
                if entry.is_refused and entry.place is not present and entry.message.problem is None:
                    await self._write_events(entry)

    def _forget(self, entry: UnansweredMessage) -> None:
        """Free what the first unanswered message holds: its answer is ready."""
        self._unanswered.popleft()
        self._events -= len(entry.message.events)
        self._bytes -= entry.size
        self._messages.release(entry.held)
        if entry.held is None:
            self._memory.free(entry.size)
        _wake(self._room)

    async def _close(self) -> None:
        if self._ending is None:
            return
        error, code = self._ending
        self._stream.send_last(text_frame(write_end(error)))
        await self._socket.close(code=code, message=error.code.encode()[:100], drain=False)


def stopping() -> Unavailable:
    """Return the error of a node that stops, with which it ends every connection."""
    return Unavailable("the node is stopping: reconnect, and send what was not answered again")


def _wake(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)
