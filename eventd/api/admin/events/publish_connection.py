"""One WebSocket on which a client publishes to a group: messages are written and answered in their order.

While a transaction runs, the next messages are read and checked. All messages of a transaction are answered together,
after its commit.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from aiohttp import WSCloseCode, WSMessage, WSMsgType, web

from eventd.api.admin.events.emitting import prepare, show_exceptions
from eventd.api.admin.events.message_memory import EVENT_BYTES, MessageMemory
from eventd.api.admin.events.publish_messages import (
    PublishMessage,
    UnnumberedMessage,
    estimate_events,
    read_message,
    refusal,
    write_answers,
    write_end,
)
from eventd.api.admin.events.writer_shares import WriterShares
from eventd.api.admin.resources.groups import EmitTarget, find_target
from eventd.api.bodies.bodies import SMALL_BYTES, BodyReservation, aside
from eventd.api.errors.codes import internal
from eventd.api.framework.operations import Services
from eventd.api.listener.messages import IncomingMessages
from eventd.api.listener.sending import PARTING_SECONDS, PING, ClientStream, text_frame
from eventd.api.listener.unread_answers import UnreadAnswers
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
_MOST_RESULTS: Final = 1000
"""Number of results of events in an answer message from which the next answer waits until its client has read it."""
logger = logging.getLogger("eventd.api")


@dataclass(slots=True, eq=False)
class UnansweredMessage:
    """A message from its arrival to its answer. `place`: the group and topic that its events were checked for.

    `done` gets the result of its transaction, or the error of its check. `size`: bytes of its text; `memory`: what it
    uses of the connection's `MessageMemory`.
    """

    message: PublishMessage
    size: int
    memory: int
    held: BodyReservation | None
    now: int
    place: EmitTarget
    done: asyncio.Future[AppendResult]
    drafts: Drafts | None = None

    @property
    def is_refused(self) -> bool:
        """Return whether it is done, and its events were not written."""
        return self.done.done() and self.done.exception() is not None


class PublishConnection:
    """The connection of one client. `count` is called with the number of events of each answer, by result.

    `shares` and `unread` are those of all publishing clients.
    """

    def __init__(
        self,
        services: Services,
        place: EmitTarget,
        socket: web.WebSocketResponse,
        messages: IncomingMessages,
        stream: ClientStream,
        memory: MessageMemory,
        shares: WriterShares,
        unread: UnreadAnswers,
        count: Callable[[Mapping[str, int]], None],
    ) -> None:
        self.group = place.group.name
        self._services = services
        self._place = place
        self._socket = socket
        self._messages = messages
        self._stream = stream
        self._memory = memory
        self._shares = shares
        self._unread = unread
        self._count = count
        self._unanswered: deque[UnansweredMessage] = deque()
        self._events = self._bytes = 0
        self._events_read = 0  # since the loop last turned to other work
        # Held while messages are checked and handed to the writer, so that this happens in their order.
        self._order = asyncio.Lock()
        self._ending: tuple[EventdError, int] | None = None
        self._is_over = False  # no message follows
        self._news: asyncio.Future[None] | None = None  # of the task that answers: a message, or the end
        self._room: asyncio.Future[None] | None = None  # of the task that reads: an answer
        self._turn: asyncio.Future[None] | None = None  # of the task that reads: its share of the writer
        self._end: asyncio.Future[None] | None = None  # of the task that answers, while its client does not read
        self._reading: BodyReservation | None = None  # of the message that is read, and not yet unanswered
        self._give_way: Callable[[], None] | None = None  # while the client does not read its answers
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
                if self._ending is not None or self._messages.refusal is not None or self._stream.closed:
                    break  # the memory of this message may already belong to another
                if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                    break  # it broke the protocol, or was too large, and the connection is closed already
                await self._read(message, self._messages.take())
                await self._stream.drain()  # a client that does not read answers gets no more of them
        except ConnectionError:
            pass  # the client disconnected
        finally:
            self._is_over = True
            _wake(self._news)
            _wake(self._end)
            try:
                await asyncio.wait({answering})
            finally:
                self._memory.close()
                for each in self._unanswered:
                    each.done.cancel()  # the writer skips what it has not begun
                    self._messages.release(each.held)

    def end(self, error: EventdError, code: int) -> None:
        """Answer the messages that the writer has, drop the others, then send the error and close with this code."""
        if self._ending is None:
            self._ending = error, code
            self._is_over = True
            _wake(self._news)
            _wake(self._room)
            _wake(self._turn)
            _wake(self._end)

    def ping_if_silent(self, now: float) -> None:
        """Ping a client that reads and got nothing for `SILENT_SECONDS`. `now` is monotonic."""
        if now - self._answered_at >= SILENT_SECONDS and not self._stream.full:
            self._write(PING)

    def _write(self, frame: bytes) -> None:
        self._stream.write(frame)
        self._answered_at = self._services.clock.monotonic()

    def _cut_unanswered(self, answering: asyncio.Task[None]) -> None:
        """Cut the connection if the task that answers has failed: its client sends unanswered messages again."""
        if answering.cancelled() or answering.exception() is not None:
            self._stream.abort()
            self._is_over = True
            _wake(self._room)
            _wake(self._turn)

    # --- reading ------------------------------------------------------------------------------------------------------

    async def _read(self, frame: WSMessage, held: BodyReservation | None) -> None:
        text = frame.data.encode() if frame.type is WSMsgType.TEXT else bytes(frame.data)
        was_idle = not self._unanswered
        events = estimate_events(text)
        memory = EVENT_BYTES * events + (len(text) if held is None else 0)
        has_share = False
        self._reading = held
        if held is not None:
            held.stop = self._give_way
        try:
            has_share, shortage = await self._wait_for_room(len(text), events, memory)
            if has_share and not self._is_over:
                message = await aside(len(text), read_message, text, shortage)
                await self._submit(message, events, memory, len(text), held)
                has_share, held = False, None
        except UnnumberedMessage as error:
            self.end(error, WSCloseCode.POLICY_VIOLATION)
        finally:
            if has_share:
                self._shares.give_back(self._memory.key, events)
            self._reading = None
            self._messages.handled()
            self._messages.release(held)
        if was_idle or self._events_read >= _AT_ONCE:  # the first transaction begins before further messages are read
            self._events_read = 0
            await self._services.clock.sleep(0)

    async def _wait_for_room(self, size: int, events: int, memory: int) -> tuple[bool, EventdError | None]:
        """Wait until a message may be decoded and handed to the writer; return whether it has its share of the writer.

        It has none if the connection ends. The error is why there is no memory for it, even without any other message.
        """
        while not self._is_over:
            if self._has_room(size):
                if not await self._take_share(events):
                    break
                shortage = self._memory.find_shortage(memory)
                if shortage is None or not self._unanswered:
                    return True, shortage
                self._shares.give_back(self._memory.key, events)
            self._room = asyncio.get_running_loop().create_future()
            await self._room
        return False, None

    def _has_room(self, size: int) -> bool:
        if not self._unanswered:
            return True
        are_few = len(self._unanswered) < UNANSWERED and self._events < UNANSWERED_EVENTS
        return are_few and self._bytes + size <= UNANSWERED_BYTES

    async def _take_share(self, events: int) -> bool:
        """Wait for a share of the writer; return whether it was granted before the connection ended."""
        turn = self._shares.ask(self._memory.key, events)
        self._turn = turn.future
        try:
            await turn.future
        except asyncio.CancelledError:
            if turn.is_granted:
                self._shares.give_back(self._memory.key, events)
            raise
        finally:
            if not turn.is_granted:
                self._shares.withdraw()
        return turn.is_granted

    async def _submit(
        self, message: PublishMessage, events: int, memory: int, size: int, held: BodyReservation | None
    ) -> None:
        """Check a message and hand it to the writer; from now on it is unanswered.

        Its share of the writer, for so many events, is given back when the writer is done with it.
        """
        async with self._order:
            now, done = self._services.clock.now(), asyncio.get_running_loop().create_future()
            entry = UnansweredMessage(message, size, memory, held, now, self._place, done)
            await self._write_events(entry)
            entry.done.add_done_callback(lambda _: self._shares.give_back(self._memory.key, events))
            self._unanswered.append(entry)
            self._events += len(message.events)
            self._events_read += max(len(message.events), size >> 6)  # 64 bytes of a refused message take as long
            self._bytes += size
            self._memory.use(memory)
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
            answers: list[Mapping[str, Any]] = []
            results = 0
            while self._unanswered and self._unanswered[0].done.done() and results < _MOST_RESULTS:
                entry = self._unanswered[0]
                answer = await self._answer(entry)
                if answer is None:
                    break
                answers.append(answer)
                results += len(answer.get("results", ()))
                self._forget(entry)
            if answers:
                frame = text_frame(write_answers(answers))
                with self._unread.hold(self._stream.transport, len(frame)):
                    self._write(frame)
                    await self._wait_until_read()
        await self._close()

    async def _wait_until_read(self) -> None:
        """Wait while the client has too much to read; it is cut if it still does not read once the connection ends.

        What is unanswered meanwhile gives way to messages of other keys.
        """
        if not self._stream.full:
            return
        assert self._services.spawn is not None
        reading = self._services.spawn(self._drain(), "a publishing client that reads its answers")
        self._end = asyncio.get_running_loop().create_future()
        self._allow_giving_way(self._stream.abort)
        if not self._is_over:
            await asyncio.wait({reading, self._end}, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait({reading}, timeout=PARTING_SECONDS)
        self._allow_giving_way(None)
        if not reading.done():
            self._stream.abort()

    def _allow_giving_way(self, stop: Callable[[], None] | None) -> None:
        """Let the memory of all messages give way to another key, by a call of `stop`; None: not any more."""
        self._give_way = stop
        self._memory.allow_giving_way(stop)
        for held in (self._reading, *(entry.held for entry in self._unanswered)):
            if held is not None:
                held.stop = stop

    async def _drain(self) -> None:
        with suppress(ConnectionError):  # then the task that reads has ended as well
            await self._stream.drain()

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
                if present is not entry.place and await self._write_again(entry, present):
                    return None
        if not isinstance(error, EventdError):
            incident = self._services.log.chance.token(4).hex()
            logger.error("message failed", exc_info=error, extra={"incident": incident})
            error = internal(incident)
        self._count({"refused": max(1, len(entry.message.events))})
        return refusal(entry.message.seq, error)

    async def _write_again(self, first: UnansweredMessage, present: EmitTarget) -> bool:
        """Check the messages that were refused by a replaced declaration by the present one, in their order.

        What the writer refused for the change itself keeps its order: all later messages name the same declaration. A
        message that is refused before one that was stored was wrong under their common declaration, and stays refused.
        Returns whether the first unanswered message was handed to the writer again.
        """
        async with self._order:
            self._place = present
            await asyncio.wait({entry.done for entry in self._unanswered})
            stored = max((at for at, entry in enumerate(self._unanswered) if not entry.is_refused), default=-1)
            for entry in [*self._unanswered][stored + 1 :]:
                if entry.place is not present and entry.message.problem is None:
                    await self._write_events(entry)
        return first.place is present

    def _forget(self, entry: UnansweredMessage) -> None:
        """Free what the first unanswered message holds: its answer is ready."""
        self._unanswered.popleft()
        self._events -= len(entry.message.events)
        self._bytes -= entry.size
        self._messages.release(entry.held)
        self._memory.free(entry.memory)
        _wake(self._room)

    async def _close(self) -> None:
        if self._ending is None:
            return
        error, code = self._ending
        self._stream.send_last(text_frame(write_end(error)))
        await self._socket.close(code=code, message=error.code.encode()[:100], drain=False)


def stopping() -> Unavailable:
    """Return the error of a node that stops, with which it ends every connection."""
    return Unavailable("the node is stopping: reconnect, and send unanswered messages again")


def _wake(future: asyncio.Future[None] | None) -> None:
    if future is not None and not future.done():
        future.set_result(None)
