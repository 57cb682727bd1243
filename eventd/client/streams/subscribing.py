"""Subscriptions: the events of a stream from an offset on, each only once, also after interruptions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Final, Literal, NamedTuple

from eventd.client.refusals.answers import another
from eventd.client.refusals.kinds import OTHER_SERVER, Lost, WrongTls
from eventd.client.refusals.of_streams import OffsetUnavailable, refusal
from eventd.client.streams.buffer import EventBuffer
from eventd.client.streams.connection import StreamConnection
from eventd.client.streams.lane import LaneTiming
from eventd.client.streams.pool import ConnectionPool
from eventd.client.streams.values import StreamGap, StreamSight
from eventd.errors import EventdError, NotFound, Unavailable
from eventd.runtime.supervisor import Supervisor
from eventd.streams.frames import Frame, encode_frame
from eventd.streams.messages import (
    At,
    BadMessage,
    Error,
    SubscribeCursorError,
    Subscribed,
    SubscribeRequest,
    read_answer,
    write_message,
)
from eventd.streams.names import StreamName

ANSWER_SECONDS: Final = 10.0
RECREATED: Final = "recreated"
"""The reason of a gap after which the stream is read from its beginning."""
TAKE: Final = 1024
"""Maximum items that `take` returns, unless asked for fewer."""

Start = Literal["latest", "earliest"] | At
OnGap = Literal["tell", "error"]


class SubscribeOptions(NamedTuple):
    """Where a subscription begins, what happens if events are missing, and the size of its buffer: `most_bytes`."""

    start: Start
    on_gap: OnGap
    epoch: str
    skip_behind: int | None
    most_bytes: int


class Subscription:
    """An asynchronous iterable of `Event` and `StreamGap`. It ends when the stream is deleted.

    As a context manager it begins at once, otherwise with the first item that is asked for. `offset`, the next event,
    and `epoch` say where a later subscription continues.
    """

    def __init__(
        self,
        pool: ConnectionPool,
        name: StreamName,
        options: SubscribeOptions,
        timing: LaneTiming,
        supervisor: Supervisor,
        closed: Callable[[Subscription], None],
    ) -> None:
        self.epoch = options.epoch
        self.offset: int | None = options.start.offset if isinstance(options.start, At) else None
        self._pool = pool
        self._name = name
        self._options = options
        self._timing = timing
        self._supervisor = supervisor
        self._closed = closed
        self._start = options.start
        self._next_epoch = options.epoch
        self._buffer = EventBuffer(None, 0)
        self._buffer.is_over = True
        self._connection: StreamConnection | None = None
        self._beginning: asyncio.Task[None] | None = None
        self._has_begun = False
        self._is_closed = False
        self._error: EventdError | None = None
        self._fruitless = 0  # times in a row that it began and got nothing

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> StreamSight:
        if not self._buffer and not await self._fill():
            raise StopAsyncIteration
        sight = self._buffer.take()
        self._note_given(sight)
        return sight

    async def take(self, most: int = TAKE) -> list[StreamSight]:
        """Return the items that have arrived, up to `most` in their order; wait for the first one.

        Empty if the stream is deleted.
        """
        if not self._buffer and not await self._fill():
            return []
        sights = self._buffer.take_some(max(1, most))
        for sight in sights if self._buffer.gaps else sights[-1:]:
            self._note_given(sight)
        return sights

    async def aclose(self, error: EventdError | None = None) -> None:
        """End the subscription; a call that waits for an item gets the error, or the end of the iteration."""
        if self._is_closed:
            return
        self._is_closed = True
        self._error = error
        if self._beginning is not None:
            self._beginning.cancel()
            await asyncio.wait((self._beginning,))
        self._detach()
        self._closed(self)

    async def __aenter__(self) -> Subscription:
        await self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _note_given(self, sight: StreamSight) -> None:
        """Note that the program has received this item; a later subscription continues after it."""
        self._fruitless = 0
        self.epoch = self._next_epoch  # before that, a gap that tells of a new epoch could get lost
        if isinstance(sight, StreamGap):
            if sight.reason == RECREATED:
                self._start, self.offset = "earliest", None
                self._next_epoch = self.epoch = sight.epoch or self.epoch
            else:
                self.offset = max(self.offset or 0, sight.last + 1)
        elif sight.offset is not None:
            self.offset = sight.offset + 1

    async def _fill(self) -> bool:
        """Wait until the buffer has an item; False if the stream is deleted. Raises the server's refusal."""
        while not self._is_closed:
            try:
                await self._begin()
            except NotFound as error:
                if not self._has_begun or isinstance(error, OffsetUnavailable):
                    raise
                return False
            buffer = self._buffer
            await buffer.wait()
            if buffer:
                return True
            self._fruitless += 1
            if buffer.error is not None:
                raise another(buffer.error, buffer.error.message)
            if buffer.is_unnumbered:
                raise Lost("the connection broke, and the server does not number events", hint="some may be missed")
        if self._error is not None:
            raise another(self._error, self._error.message)
        return False

    # --- beginning, again after an interruption

    async def _begin(self) -> None:
        """Subscribe at the server, unless a subscription is under way."""
        if not self._buffer.is_over or self._is_closed:
            return
        if self._beginning is None:
            work = self._begin_again()
            self._beginning = self._supervisor.spawn(work, f"subscribe to {self._name.resource}", expects=Exception)
        beginning = self._beginning
        await asyncio.wait((beginning,))  # a caller that is cancelled does not end it
        if self._beginning is beginning:
            self._beginning = None
        if not beginning.cancelled():
            beginning.result()

    async def _begin_again(self) -> None:
        """Subscribe at the server, in several attempts if necessary."""
        self._detach()
        deadline = self._timing.deadline()
        failures = self._fruitless
        while True:
            if failures:
                await self._timing.clock.sleep(self._timing.delay(failures))
            try:
                return await self._attempt()
            except WrongTls:
                raise
            except Unavailable:
                failures += 1
                if self._timing.clock.monotonic() + self._timing.delay(failures) >= deadline:
                    raise

    async def _attempt(self) -> None:
        connection = await self._pool.connection_for_subscription()
        buffer = EventBuffer(self.offset, self._options.most_bytes)
        buffer.number = connection.add(buffer)
        try:
            subscribed = await self._ask(connection, buffer.number)
        except BaseException:
            connection.end(buffer.number)
            raise
        if self.offset is None and subscribed.offset is not None:
            self.offset = subscribed.offset
            buffer.offset = subscribed.offset if buffer.offset is None else buffer.offset
        self._next_epoch = subscribed.epoch or self.epoch
        self.epoch = self.epoch or self._next_epoch
        self._has_begun = True
        self._buffer, self._connection = buffer, connection

    async def _ask(self, connection: StreamConnection, number: int) -> Subscribed:
        """Send the request for the subscription, and return its answer. Raises the server's refusal."""
        answers: list[Frame] = []
        stream = await self._pool.open_on(connection, answers.append)
        request = SubscribeRequest(
            tenant_id=self._name.tenant,
            namespace=self._name.namespace,
            stream=self._name.stream,
            subscription_id=number,
            start=self._start if self.offset is None else At(self.offset),
            epoch=self.epoch or None,
            on_gap=None if self._options.on_gap == "error" else "tell",
            skip_behind=self._options.skip_behind,
        )
        stream.write(encode_frame(0, write_message(request)), end=True)
        timer = self._timing.clock.timer(ANSWER_SECONDS)
        try:
            await asyncio.wait((stream.ended, timer), return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            stream.abandon()
        if not answers:
            raise stream.refusal or Lost("the connection ended before the node had answered")
        return _answer(answers[0], number)

    def _detach(self) -> None:
        """Abandon the subscription that is under way at the server."""
        if self._connection is not None:
            self._connection.end(self._buffer.number)
            self._connection = None
        self._buffer.ended("")


def _answer(frame: Frame, number: int) -> Subscribed:
    """Return the answer to a subscription. Raises the refusal."""
    try:
        answer = None if frame.flags else read_answer(frame.payload)
    except BadMessage:
        answer = None
    match answer:
        case Subscribed() if answer.subscription_id == number:
            return answer
        case SubscribeCursorError():
            raise OffsetUnavailable(answer.reason, answer.requested, answer.available)
        case Error():
            raise refusal(answer.message)
    raise EventdError("the server does not answer the subscription as a node does", hint=OTHER_SERVER)
