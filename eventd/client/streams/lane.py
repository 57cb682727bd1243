"""A lane: requests on one stream.

When the stream breaks, they are sent again until each has its answer or is too old.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

import msgspec
from msgspec import Struct

from eventd.client.refusals.answers import another
from eventd.client.refusals.kinds import Lost, Throttled, WrongTls
from eventd.client.refusals.of_streams import refusal
from eventd.client.streams.pool import ConnectionPool
from eventd.client.streams.request_stream import Abilities, RequestStream
from eventd.errors import EventdError, Invalid, TooLarge, Unauthorized, Unavailable
from eventd.runtime.backoff import Backoff
from eventd.runtime.chance import Chance
from eventd.runtime.clock import Clock
from eventd.runtime.supervisor import Supervisor
from eventd.streams.frames import Flags, Frame
from eventd.streams.layouts import BadLayout, read_ack
from eventd.streams.messages import (
    BadMessage,
    CacheOk,
    CacheValue,
    Error,
    PublishError,
    PublishOk,
    read_answer,
)

AGAIN: Final = Backoff(base=0.05, cap=2.0)
"""The delay before a further attempt to connect, or before a request that was throttled is sent again."""
LOOK_SECONDS: Final = 1.0
"""Seconds between two searches of a lane for requests that have waited too long."""
ANSWER_SECONDS: Final = 10.0
"""Seconds that a request still waits for its answer after the time for further attempts is over."""


class PublishReceipt(Struct, frozen=True):
    """Where and how safely records are stored."""

    offset: int | None = None
    count: int | None = None
    durability: str = ""
    epoch: str = ""


RequestAnswer = PublishReceipt | CacheValue | CacheOk
_RECEIPT: Final = msgspec.json.Decoder(PublishReceipt)


class StreamRequest(Protocol):
    """Interface: a request, with an id that is unique in its session."""

    id: int
    deadline: float
    failures: int

    def encode(self, abilities: Abilities) -> bytes:
        """Return the frame of the request. Raises ValueError if it is too large."""
        ...

    def settle(self, answer: RequestAnswer | EventdError) -> None:
        """End the request with its answer, or with an error instead of an answer. Called once."""
        ...

    @property
    def is_repeatable(self) -> bool:
        """Return whether the request can be sent again even if the server does not recognize repeated requests."""
        ...


class LaneTiming(NamedTuple):
    """The clock, the source of random numbers, and the seconds after which an unanswered request fails."""

    clock: Clock
    chance: Chance
    patience: float

    def delay(self, failures: int) -> float:
        """Return the seconds to wait after `failures` failures in a row."""
        return AGAIN.delay(failures, self.chance.fraction())

    def deadline(self) -> float:
        """Return the time at which a request that is made now fails without an answer."""
        return self.clock.monotonic() + self.patience


class Lane:
    """Sends requests in their order on the stream at one place of the pool; many may be under way."""

    def __init__(self, pool: ConnectionPool, place: int, timing: LaneTiming, supervisor: Supervisor) -> None:
        self._pool = pool
        self._place = place
        self._timing = timing
        self._supervisor = supervisor
        self._requests: dict[int, StreamRequest] = {}
        self._stream: RequestStream | None = None
        self._is_running = False
        self._failures = 0
        self._throttled: dict[int, None] = {}  # requests that are sent again later

    def __len__(self) -> int:
        return len(self._requests)

    def ask(self, request: StreamRequest) -> None:
        """Send a request, now or when there is a connection; it is settled when the answer comes."""
        self._requests[request.id] = request
        if self._stream is not None:
            self._send(self._stream, request)
        elif not self._is_running:
            self._is_running = True
            self._supervisor.spawn(self._run(), f"lane {self._place}")

    def close(self, error: EventdError) -> None:
        """Fail all requests with this error, and abandon the stream."""
        self._fail([*self._requests.values()], error)
        if self._stream is not None:
            self._stream.abandon()

    # --- connecting

    async def _run(self) -> None:
        """Keep a stream open as long as requests wait for answers, and open a new one when it breaks."""
        try:
            while self._requests:
                stream = await self._open()
                if stream is not None:
                    await self._use(stream)
            self._failures = 0
        finally:
            self._is_running = False

    async def _open(self) -> RequestStream | None:
        """Open a stream; None after a failure, when the requests that cannot wait longer have failed."""
        if self._failures:
            await self._timing.clock.sleep(self._timing.delay(self._failures))
        try:
            return await self._pool.open(self._place, self._answered)
        except Unavailable as error:
            if isinstance(error, WrongTls):
                self._fail([*self._requests.values()], error)
            else:
                self._expire(error)
        except Exception as error:  # whatever it is, the callers must not wait forever
            self._fail([*self._requests.values()], error)
        self._failures += 1
        return None

    async def _use(self, stream: RequestStream) -> None:
        """Send the requests again that were under way, and wait until the stream ends."""
        self._stream = stream
        for request in [*self._requests.values()]:
            if request.id not in self._throttled:
                self._send(stream, request)
        while not stream.ended.done():
            timer = self._timing.clock.timer(LOOK_SECONDS)
            await asyncio.wait((stream.ended, timer), return_when=asyncio.FIRST_COMPLETED)
            timer.cancel()
            self._expire(Lost("no answer came in time", hint="the request may have been carried out"), ANSWER_SECONDS)
        self._failures += 1
        unsafe = [request for request in self._requests.values() if not self._may_repeat(request)]
        self._fail(unsafe, Lost("the connection broke before the answer came", hint="the records may be stored"))
        self._stream = None
        if stream.refusal is not None and not isinstance(stream.refusal, Unauthorized):
            self._expire(stream.refusal)

    def _expire(self, error: EventdError, longer: float = 0.0) -> None:
        """Settle the requests that have waited for `longer` seconds more than they may."""
        now = self._timing.clock.monotonic() - longer
        self._fail([request for request in self._requests.values() if request.deadline <= now], error)

    # --- requests and answers

    def _send(self, stream: RequestStream, request: StreamRequest) -> None:
        try:
            stream.write(request.encode(stream.abilities))
        except UnicodeEncodeError:
            self._fail([request], Invalid("the key is not text: it contains bytes that are not UTF-8"))
        except ValueError as error:
            self._fail([request], TooLarge(f"the request does not fit into a frame: {error}"))

    def _answered(self, frame: Frame) -> None:
        if frame.flags == Flags.PUBLISH_ACK:
            try:
                ack = read_ack(frame.payload)
            except BadLayout as error:
                raise BadMessage(str(error)) from None
            self._settle(ack.request_id, refusal(ack.message) if ack.error else _receipt(ack.message))
            return
        message = read_answer(frame.payload) if not frame.flags else None
        match message:
            case CacheValue() | CacheOk():
                self._settle(message.request_id, message)
            case PublishOk():
                receipt = PublishReceipt(message.offset, message.count, message.durability or "", message.epoch or "")
                self._settle(message.request_id, receipt)
            case PublishError():
                self._settle(message.request_id, refusal(message.message))
            case Error():
                self._refused(message)
            case _:
                raise BadMessage("the message answers no request")

    def _refused(self, message: Error) -> None:
        """Handle an error message: it concerns the request that it names, else the whole stream, or else the oldest
        request."""
        error = refusal(message.message)
        if message.request_id is not None:
            self._settle(message.request_id, error)
        elif type(error) is EventdError or isinstance(error, Unauthorized | Unavailable):
            if self._stream is not None:
                self._stream.refusal = error
        elif self._requests:  # answers come in the order of requests
            self._settle(next(iter(self._requests)), error)

    def _settle(self, number: int | str | None, answer: RequestAnswer | EventdError) -> None:
        request = self._requests.get(number) if isinstance(number, int) else None
        if request is None:
            return  # it failed before, or was answered twice
        self._failures = 0
        may_succeed = isinstance(answer, Throttled) or (isinstance(answer, Lost) and self._may_repeat(request))
        if may_succeed and self._again(request):
            return
        del self._requests[request.id]
        request.settle(answer)

    def _again(self, request: StreamRequest) -> bool:
        """Schedule another attempt of a request that may succeed later; False if the request has waited too long."""
        request.failures += 1
        delay = self._timing.delay(request.failures)
        if self._timing.clock.monotonic() + delay >= request.deadline:
            return False
        if request.id not in self._throttled:
            self._throttled[request.id] = None
            self._timing.clock.timer(delay).add_done_callback(lambda _: self._retry(request))
        return True

    def _may_repeat(self, request: StreamRequest) -> bool:
        """Return whether a request may be sent again although it has perhaps been carried out."""
        return request.is_repeatable or (self._stream is not None and self._stream.abilities.is_idempotent)

    def _retry(self, request: StreamRequest) -> None:
        self._throttled.pop(request.id, None)
        if request.id in self._requests and self._stream is not None:
            self._send(self._stream, request)

    def _fail(self, requests: Iterable[StreamRequest], error: Exception) -> None:
        for request in requests:
            if self._requests.pop(request.id, None) is not None:
                request.settle(another(error, error.message) if isinstance(error, EventdError) else _unexpected(error))


def _receipt(text: str) -> PublishReceipt:
    """Return the receipt in the message of an acknowledgement; an empty receipt if the message contains none."""
    try:
        return _RECEIPT.decode(text) if text else PublishReceipt()
    except msgspec.DecodeError:
        return PublishReceipt()


def _unexpected(error: Exception) -> EventdError:
    found = EventdError(f"the request was not sent: {type(error).__name__}: {error}")
    found.__cause__ = error
    return found
