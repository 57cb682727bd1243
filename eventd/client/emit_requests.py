"""Sends a publisher's events in requests: to nodes, and through proxies, that take no WebSocket."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from msgspec import Raw, Struct

from eventd.client.connection import Connection
from eventd.client.emit_queue import FULL, EmitQueue, EmitResult, Waiting, closed
from eventd.errors import EventdError, TooLarge
from eventd.runtime.supervisor import Supervisor


class _Answer(Struct):
    """The answer to a request: the number of events by result, and the result of each event that is not `new`."""

    counts: dict[str, int]
    results: list[EmitResult]


class RequestSender:
    """Sends events in requests, at most `requests` of them at a time.

    An event is sent at once if no request is under way. Otherwise it shares the next one, which is sent when none is
    under way, or when `FULL` events wait: a smaller one costs as much. `is_on`: whether it takes events of the queue,
    and not only batches that are `add`ed.
    """

    def __init__(self, connection: Connection, queue: EmitQueue, path: str, requests: int) -> None:
        self.is_on = False
        self._connection = connection
        self._queue = queue
        self._path = path
        self._requests = requests
        self._batches: deque[Sequence[Waiting]] = deque()
        self._busy = 0
        self._idle: list[asyncio.Future[None]] = []

    def start(self, senders: Supervisor) -> None:
        """Start its tasks, which do not end: callers of `emit` wait for them."""
        for number in range(self._requests):
            senders.keep(self._send_for_ever, f"publisher {number}")

    def add(self, batch: Sequence[Waiting]) -> None:
        """Send this batch in a request."""
        self._batches.append(batch)
        self.notify()

    def notify(self) -> None:
        """Send what is due: something has been added or put into the queue."""
        if self._idle and self._is_due:
            self._idle.pop().set_result(None)

    def close(self) -> None:
        """Refuse the batches that wait."""
        while self._batches:
            self._queue.refuse(self._batches.popleft(), closed())
        self._idle.clear()

    @property
    def _is_due(self) -> bool:
        """Return whether the waiting events should be sent now."""
        if self._batches:
            return True
        waiting = len(self._queue.waiting) if self.is_on else 0
        return waiting >= FULL if self._busy else waiting > 0

    async def _send_for_ever(self) -> None:
        while True:
            if self._is_due:
                self._busy += 1
                try:
                    await self._send(self._batches.popleft() if self._batches else self._queue.take(FULL))
                finally:
                    self._busy -= 1
            else:
                idle: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._idle.append(idle)
                await idle

    async def _send(self, batch: Sequence[Waiting]) -> None:
        """Send these events until each has a result or an error, or waits again after a split of its request."""
        try:
            while batch:
                batch = await self._ask(batch)
        except asyncio.CancelledError:
            self._queue.refuse(batch, closed())
            raise
        except Exception as error:  # whatever the error is, the emitters must not wait forever
            self._queue.refuse(batch, error)

    async def _ask(self, batch: Sequence[Waiting]) -> Sequence[Waiting]:
        """Send one request; return the events that must be sent again, because the node refused others of the request.

        If it is not encodable, or too large for us or the node, its second half waits again, and its first is returned.
        """
        content = self._queue.encode([event for event, _ in batch])
        if content is None:
            return self._divide(batch)
        body = Raw(b'{"exceptions":true,"events":%b}' % content)
        try:
            answer = await self._connection.ask("POST", self._path, _Answer, body)
        except EventdError as error:
            others = self._queue.refuse_wrong(batch, error)
            if others is not None:
                return others
            if isinstance(error, TooLarge) and len(batch) > 1:
                return self._divide(batch)
            raise
        self._queue.resolve(batch, answer.counts, answer.results)
        return ()

    def _divide(self, batch: Sequence[Waiting]) -> Sequence[Waiting]:
        half = len(batch) // 2
        self._batches.appendleft(batch[half:])
        return batch[:half]
