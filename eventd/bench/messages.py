"""Load: batches of events as messages over one WebSocket, several under way, which the node answers as they commit."""

from __future__ import annotations

import asyncio
import gc
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count

import msgspec

from eventd.api.errors.codes import restore
from eventd.bench.pouring import LoadRun
from eventd.bench.result import Show
from eventd.bench.targets import GroupTarget
from eventd.bench.wire import LOOK_SECONDS, SECONDS, LoadResult, cpu_now, nothing_sent, now
from eventd.errors import EventdError, Unavailable
from eventd.net.exchange import NoAnswer
from eventd.net.web_socket import ClosedSocket, UpgradeRefused, WebSocket, client_frame
from eventd.runtime.chance import SYSTEM


@dataclass(slots=True)
class MessageRun(LoadRun):
    """One run whose batches go over one WebSocket, at most `under_way` of them without an answer."""

    under_way: int = 1
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def _next(self, line: int) -> bytes:
        assert isinstance(self.target, GroupTarget)
        events = self.wanted.batch
        if not self.wanted.seconds:
            events = min(events, self.wanted.events - self.ledger.count)
        message = self.target.message(next(self._numbers), self.ledger.take(0, events))
        self.sent_bytes += len(message)
        return client_frame(message, SYSTEM.token(4))

    async def pour(self, show: Show, words: str) -> LoadResult:
        """Send the events of the plan, or as many as fit in its duration; return the times.

        Raises the node's error if it refuses a message or the connection.
        """
        assert isinstance(self.target, GroupTarget)
        socket: WebSocket = await self.client.open(partial(WebSocket, SYSTEM.token))
        try:
            await socket.open(self.client.head(self.target.publish_path))
        except UpgradeRefused as refused:
            raise restore(refused.answer.status, refused.answer.body) from None
        except NoAnswer as error:
            raise Unavailable(f"no WebSocket opens: {error}") from None
        wanted, deadline = self.wanted, now() + self.wanted.seconds
        sender = _MessageSender(socket, self._row(0, deadline), self.under_way)
        gc.collect()
        gc.disable()
        try:
            cpu, begun = cpu_now(), now()
            sender.begin()
            while not (await asyncio.wait({sender.done}, timeout=LOOK_SECONDS))[0]:
                done = min(now() - begun, wanted.seconds) * 10 if wanted.seconds else len(sender.latencies)
                show(
                    words,
                    int(done) * (1 if wanted.seconds else wanted.batch),
                    int(wanted.seconds * 10) or wanted.events,
                )
                if now() - begun > SECONDS:
                    raise Unavailable(f"the node did not finish within {SECONDS:g} s")
            sender.done.result()
            seconds, busy = now() - begun, cpu_now() - cpu
        finally:
            gc.enable()
            socket.close()
        if not sender.latencies:
            raise nothing_sent()
        return LoadResult([], sender.latencies, seconds, round(busy / seconds, 2))


class _MessageSender:
    """Sends messages, each as soon as fewer than `under_way` are without an answer, without waking a task."""

    def __init__(self, socket: WebSocket, messages: Iterator[bytes], under_way: int) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.latencies: list[float] = []
        self._socket = socket
        self._messages = messages
        self._most = under_way
        self._sent: deque[float] = deque()
        socket.on_message, socket.on_end = self._hear, self._lose

    def begin(self) -> None:
        """Send what may be sent; note the end once everything is answered."""
        while len(self._sent) < self._most and (message := next(self._messages, None)) is not None:
            self._sent.append(now())
            self._socket.send_frame(message)
        if not self._sent and not self.done.done():
            self.done.set_result(None)

    def _hear(self, content: bytes) -> None:
        told, at = msgspec.json.decode(content), now()
        for answer in told.get("answers", ()):
            if "error" in answer:
                self._fail(restore(answer["status"], msgspec.json.encode({"error": answer["error"]})))
                return
            self.latencies.append(at - self._sent.popleft())
        if "error" in told:
            self._fail(restore(told["status"], msgspec.json.encode({"error": told["error"]})))
            return
        self.begin()

    def _lose(self, end: ClosedSocket) -> None:
        self._fail(Unavailable(f"the connection to the node was lost: {end.reason}"))

    def _fail(self, error: EventdError) -> None:
        if not self.done.done():
            self.done.set_exception(error)
