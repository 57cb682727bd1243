"""Sends a publisher's events over a WebSocket: messages follow each other without waiting for answers.

A connection that ends is opened again, and all messages that were not answered are sent again: the node stores nothing
twice, because an event has its id before it is sent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec import Raw, Struct

from eventd.client.connection import REQUEST_SECONDS, Connection, SocketNotOffered
from eventd.client.emit_queue import FULL, MOST_BYTES, EmitQueue, EmitResult, Waiting, closed
from eventd.client.refusals.answers import restore
from eventd.client.refusals.kinds import WrongTls
from eventd.client.values import NewEvent
from eventd.errors import EventdError, Invalid, TooLarge, Unavailable
from eventd.net.web_socket import TOO_BIG, TRY_AGAIN_LATER, ClosedSocket, WebSocket
from eventd.runtime.supervisor import Supervisor
from eventd.tls.files import CertificateUnusable

FEW = 128
"""Events below which a window is not divided: each message costs the node as much as that many events."""
AHEAD = 2
"""Messages that are under way together even if they are not full: while the node writes one, the next is made and
read."""
MOST_UNDER_WAY = 32
"""Maximum messages under way; the node reads twice as many ahead."""
SILENT_SECONDS = 40.0
"""A connection on which the node has been silent for so long is not used again: an idle one gets a ping each 15 s."""
_NO_ERROR = Raw()


class _MessageAnswer(Struct):
    """The answer to a message: counts and results as of a request, or the status and the error of one."""

    seq: int
    counts: dict[str, int] = {}
    results: list[EmitResult] = []
    status: int = 0
    error: Raw = _NO_ERROR


class _FromNode(Struct):
    """A message of the node: answers, or the error with which it ends the connection."""

    answers: list[_MessageAnswer] = []
    status: int = 0
    error: Raw = _NO_ERROR


class _UnderWay(NamedTuple):
    """A message that is not answered, and when it was sent, by the loop's clock."""

    seq: int
    sent: float
    batch: Sequence[Waiting]


class ChannelSender:
    """Sends events of a queue over a WebSocket at `path`, which it keeps open.

    `fall_back` is called once if the node offers none; `aside` gets batches that may be too large for a message.
    """

    def __init__(
        self,
        connection: Connection,
        queue: EmitQueue,
        path: str,
        window: int,
        fall_back: Callable[[], None],
        aside: Callable[[Sequence[Waiting]], None],
    ) -> None:
        self.is_on = True
        """Whether it takes events of the queue."""
        self._connection = connection
        self._queue = queue
        self._path = path
        self._most = min(FULL, max(window // AHEAD, min(window, FEW)))
        self._fall_back = fall_back
        self._aside = aside
        self._socket: WebSocket | None = None
        self._under_way: deque[_UnderWay] = deque()
        self._seq = 0
        self._trouble: EventdError | None = None  # nothing is sent until it has been waited for
        self._reason: EventdError | None = None  # why the node ends the connection
        self._lost_first: NewEvent | None = None  # the first unanswered event when the last connection broke
        self._failures = 0
        self._failing_since = 0.0
        self._idle: asyncio.Future[None] | None = None
        self._is_due = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self, senders: Supervisor) -> None:
        """Start the task that opens connections."""
        self._loop = asyncio.get_running_loop()
        senders.keep(self._connect_for_ever, "publisher's connection")

    def notify(self) -> None:
        """Send what is due at the end of this turn of the loop: something has been put into the queue."""
        if self._socket is None or self._trouble is not None:
            self._wake()
        elif not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._flush)

    def close(self) -> None:
        """Close the connection, and refuse what is under way."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._stop_timer()
        while self._under_way:
            self._queue.refuse(self._under_way.popleft().batch, closed())
        self._trouble, self._reason, self._failures, self._idle = None, None, 0, None

    # --- the connection -----------------------------------------------------------------------------------------------

    async def _connect_for_ever(self) -> None:
        while True:
            if self._trouble is not None:
                await self._wait_for_next_try(self._trouble)
            elif self.is_on and self._socket is None and self._queue.waiting:
                await self._open()
            else:
                self._flush()
                self._idle = self._loop.create_future()
                await self._idle

    def _wake(self) -> None:
        if self._idle is not None and not self._idle.done():
            self._idle.set_result(None)

    async def _open(self) -> None:
        try:
            socket = await self._connection.open_socket(self._path)
        except SocketNotOffered:
            self._fall_back()
        except (WrongTls, CertificateUnusable) as error:  # another attempt would fail as well
            self._refuse_waiting(error)
        except Unavailable as error:
            self._trouble = error
        except EventdError as error:
            self._refuse_waiting(error)
        else:
            self._socket, self._seq = socket, 0
            socket.on_message, socket.on_end = self._hear, self._lose
            self._flush()

    async def _wait_for_next_try(self, error: EventdError) -> None:
        """Wait, or refuse all events that wait, if there were too many failures in a row, or for too long."""
        now, retry = self._loop.time(), self._connection.retry
        self._failures += 1
        if self._failures == 1:
            self._failing_since = now
        delay = self._connection.delay(self._failures, getattr(error, "retry_after", 0.0))
        if self._failures >= retry.tries or now - self._failing_since + delay > retry.patience:
            self._refuse_waiting(error)
        else:
            await self._connection.pause(delay)
        self._trouble = None

    def _refuse_waiting(self, error: EventdError) -> None:
        self._failures = 0
        self._queue.refuse(self._queue.take(len(self._queue.waiting)), error)

    def _lose(self, end: ClosedSocket) -> None:
        """Let everything that is under way wait again: the connection has ended."""
        reason, self._reason = self._reason, None
        self._socket = None
        self._stop_timer()
        if self._is_broken_again(end):
            for message in self._under_way:
                self._aside(message.batch)
            self._under_way.clear()
        self._take_back()
        if end.code == TOO_BIG or isinstance(reason, TooLarge):  # its limit is smaller than our messages
            self._fall_back()
        elif reason is not None and not isinstance(reason, Unavailable) and end.code != TRY_AGAIN_LATER:
            self._refuse_waiting(reason)
        elif isinstance(reason, Unavailable):
            self._trouble = reason
        elif self._trouble is None:
            self._trouble = self._connection.lost(end.reason if reason is None else reason.message)
        self._wake()

    def _is_broken_again(self, end: ClosedSocket) -> bool:
        """Return whether connections have broken twice in a row with the same message first.

        It may be too large: a node that refuses to read on resets the connection, and the code 1009 can be lost.
        """
        first = self._under_way[0].batch[0][0] if self._under_way and not end.code else None
        is_again = first is not None and first is self._lost_first
        self._lost_first = None if is_again else first
        return is_again

    def _take_back(self) -> None:
        while self._under_way:
            self._queue.put_back(self._under_way.pop().batch)

    def _cut(self, reason: str) -> None:
        """End a connection that cannot be used any more."""
        if self._socket is not None:
            self._socket.abort()
            self._lose(ClosedSocket(0, reason))

    # --- messages -----------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Send the waiting events that are due."""
        self._is_due = False
        now = self._loop.time()
        if self._socket is not None and self._queue.waiting and now - self._socket.heard_at > SILENT_SECONDS:
            self._cut(f"nothing was heard of it for {SILENT_SECONDS:g} s")
        while self._socket is not None and self._may_send and self._has_room(self._socket):
            self._send(self._socket, self._queue.take(self._most), now)

    @property
    def _may_send(self) -> bool:
        return self._trouble is None and self._reason is None

    def _has_room(self, socket: WebSocket) -> bool:
        waiting, under_way = len(self._queue.waiting), len(self._under_way)
        if not waiting or under_way >= MOST_UNDER_WAY or socket.is_full:
            return False
        least = 1 if not under_way else self._most // 2 if under_way < AHEAD else self._most
        return waiting >= least

    def _send(self, socket: WebSocket, batch: Sequence[Waiting], now: float) -> None:
        try:
            content = self._queue.encode([event for event, _ in batch])
        except Invalid as error:
            self._queue.refuse(batch, error)
            return
        if content is None:
            half = len(batch) // 2
            self._send(socket, batch[:half], now)
            self._send(socket, batch[half:], now)
        elif len(content) > MOST_BYTES:
            self._aside(batch)
        else:
            self._seq += 1
            self._under_way.append(_UnderWay(self._seq, now, batch))
            socket.send(b'{"seq":%d,"events":%b}' % (self._seq, content))
            if self._timer is None:
                self._timer = self._loop.call_later(REQUEST_SECONDS, self._expire)

    def _hear(self, content: bytes) -> None:
        try:
            heard = self._connection.decode(content, _FromNode)
        except EventdError as error:
            self._cut(error.message)
            return
        for answer in heard.answers:
            if not self._under_way or self._under_way[0].seq != answer.seq:
                self._cut("it answered a message that was not sent")
                return
            self._settle(self._under_way.popleft().batch, answer)
        if heard.error:
            self._reason = restore(heard.status, _body(heard.error))  # the connection ends next
        self.notify()

    def _settle(self, batch: Sequence[Waiting], answer: _MessageAnswer) -> None:
        try:
            if answer.error:
                raise restore(answer.status, _body(answer.error))
            self._queue.resolve(batch, answer.counts, answer.results)
            self._failures = 0
        except Unavailable as error:
            self._queue.put_back(batch)
            self._trouble = error
        except EventdError as error:
            others = self._queue.refuse_wrong(batch, error)
            if others is None and isinstance(error, TooLarge) and len(batch) > 1:
                self._aside(batch)  # which divides it
            elif others is None:
                self._queue.refuse(batch, error)
            else:
                self._queue.put_back(others)

    def _expire(self) -> None:
        """Cut the connection if the oldest message is not answered in time."""
        self._timer = None
        if not self._under_way:
            return
        left = self._under_way[0].sent + REQUEST_SECONDS - self._loop.time()
        if left <= 0:
            self._cut(f"no answer within {REQUEST_SECONDS:g} s")
        else:
            self._timer = self._loop.call_later(left, self._expire)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _body(error: Raw) -> bytes:
    """Return the body of an answer with this error."""
    return b'{"error":%b}' % bytes(error)
