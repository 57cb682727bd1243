"""Publishes to a group: events emitted at the same time share requests, and each event has its own result."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from urllib.parse import quote

import msgspec
from msgspec import Raw, Struct

from eventd.client.connection import Connection, only_text
from eventd.client.refusals.answers import another, problems_of
from eventd.client.refusals.kinds import OTHER_SERVER
from eventd.client.values import NewEvent
from eventd.errors import Conflict, EventdError, Invalid, Unavailable
from eventd.runtime.clock import Clock, SystemClock
from eventd.runtime.supervisor import Supervisor
from federation.event import new_event_ids

FULL = 512
"""Maximum events of one request. A request sent while another is under way always has this many: a smaller one costs
as much."""
MOST_BYTES = 1 << 20
"""Maximum bytes of one request, unless a single event has more."""


class _Emit(Struct):
    events: Sequence[NewEvent]
    exceptions: bool = True


class _Owner(Struct, rename="camel"):
    source_node: str


class _EventResult(Struct):
    index: int
    result: str
    owner: _Owner | None = None


class _Answer(Struct):
    """The answer to a request: the number of events by result, and the result of each event that is not `new`."""

    counts: dict[str, int]
    results: list[_EventResult]


Waiting = tuple[NewEvent, asyncio.Future[str]]
"""An event and the future that its emitter awaits."""


class Publisher:
    """Emits events into one group. Use it as a context manager, on one loop.

    The end of the block waits for its events, unless it raised. An event is sent at once if no request is under way.
    Otherwise it shares the next one, which is sent when none is under way, or when `FULL` events wait and fewer than
    `requests` requests are under way. At most `window` events wait or are being sent; further calls of `emit` wait. A
    lost request is repeated unchanged, and nothing is stored twice, because an event has its id before it is sent.
    """

    def __init__(
        self, connection: Connection, group: str, *, window: int = 256, requests: int = 2, clock: Clock | None = None
    ) -> None:
        if window < 1 or requests < 1:
            raise Invalid(f"`window` {window} and `requests` {requests} of a publisher must both be at least 1")
        with only_text():
            self._path = f"/api/v1/groups/{quote(group, safe='')}/events"
        self._group = group
        self._connection = connection
        self._window = window
        self._requests = requests
        self._busy = 0
        self._clock = clock or SystemClock()
        self._waiting: deque[Waiting] = deque()
        self._open = 0
        self._idle: list[asyncio.Future[None]] = []
        self._crowd: deque[asyncio.Future[None]] = deque()
        self._drained: asyncio.Future[None] | None = None
        self._senders: Supervisor | None = None
        self._loop: asyncio.AbstractEventLoop

    async def emit(self, event: NewEvent) -> str:
        """Emit an event: returns `new`, `refreshed` if it was stored with an earlier expiry, or else `duplicate`.

        An event without an id gets one, also in the object: emitted again, it is the same event. Raises the node's
        refusal, `Conflict` if the id belongs to another event, `Invalid` if it has no JSON form, and `Unavailable`.
        After a cancellation it is unknown whether the event was stored.
        """
        await self._room()
        return await self._put(event)

    async def emit_all(self, events: Iterable[NewEvent]) -> list[str | EventdError]:
        """Emit events. Returns the result of each as from `emit`, or its `EventdError`, in the order of `events`.

        The events may be stored in another order.
        """
        emitted = []
        for event in events:
            await self._room()
            emitted.append(self._put(event))
        for future in emitted:
            if not future.done():  # the events of a request finish together, so few have to be awaited
                await asyncio.wait([future])
        return [_result_of(future) for future in emitted]

    def _put(self, event: NewEvent) -> asyncio.Future[str]:
        """Queue an event, for which there is room. Raises `Unavailable`, and frees the room, if it is not open."""
        if self._senders is None:  # perhaps closed after the room was given: the event would never be sent
            self._release(1)
            raise Unavailable("the publisher is not open", hint="async with client.publisher(GROUP) as publisher: …")
        future: asyncio.Future[str] = self._loop.create_future()
        self._waiting.append((event, future))
        if self._idle and self._is_due:
            self._idle.pop().set_result(None)
        return future

    @property
    def _is_due(self) -> bool:
        """Return whether the waiting events should be sent now."""
        return len(self._waiting) >= FULL if self._busy else bool(self._waiting)

    async def _room(self) -> None:
        """Wait until the window has room for one more event, and take that room."""
        if self._open < self._window:
            self._open += 1
            return
        place: asyncio.Future[None] = self._loop.create_future()
        self._crowd.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():
                self._release(1)
            raise

    async def _send_for_ever(self) -> None:
        while True:
            if self._is_due:
                self._busy += 1
                try:
                    await self._send(self._take())
                finally:
                    self._busy -= 1
            else:
                idle: asyncio.Future[None] = self._loop.create_future()
                self._idle.append(idle)
                await idle

    def _take(self) -> Sequence[Waiting]:
        """Remove and return the waiting events that the next request carries, at most `FULL`."""
        if len(self._waiting) > FULL:
            return [self._waiting.popleft() for _ in range(FULL)]
        batch = [*self._waiting]
        self._waiting.clear()
        return batch

    async def _send(self, batch: Sequence[Waiting]) -> None:
        """Send these events until each has a result or an error, or waits again after a split of its request."""
        try:
            while batch:
                batch = await self._ask(batch)
        except asyncio.CancelledError:
            self._refuse(batch, _closed())
            raise
        except Exception as error:  # whatever the error is, the emitters must not wait forever
            self._refuse(batch, error)

    async def _ask(self, batch: Sequence[Waiting]) -> Sequence[Waiting]:
        """Send one request; return the events that must be sent again, because the node refused others of the request.

        If it is too large or not encodable, it is not sent: its second half waits again, and its first is returned.
        """
        content = self._encode([event for event, _ in batch])
        if content is None:
            half = len(batch) // 2
            self._waiting.extendleft(reversed(batch[half:]))
            return batch[:half]
        try:
            answer = await self._connection.ask("POST", self._path, _Answer, Raw(content))
        except EventdError as error:
            wrong = problems_of(error)
            if not wrong or not all(0 <= at < len(batch) for at in wrong):
                raise
            for at, message in wrong.items():
                self._refuse([batch[at]], another(error, message))
            return [one for at, one in enumerate(batch) if at not in wrong]
        results = {one.index: one for one in answer.results}
        if sum(answer.counts.values()) != len(batch) or not all(0 <= at < len(batch) for at in results):
            raise EventdError("the node did not return one result for each event", hint=OTHER_SERVER)
        self._resolve(batch, results)
        self._release(len(batch))
        return ()

    def _resolve(self, batch: Sequence[Waiting], results: Mapping[int, _EventResult]) -> None:
        """Set the result of each event: `new`, unless `results` has another for its index; `conflict` is an error."""
        for at, (event, future) in enumerate(batch):
            if future.done():  # its emitter was cancelled
                continue
            known = results.get(at) if results else None
            if known is not None and known.result == "conflict":
                future.set_exception(self._conflict(event, known.owner))
            else:
                future.set_result("new" if known is None else known.result)

    def _encode(self, events: Sequence[NewEvent]) -> bytes | None:
        """Return the body of a request; None if it must be split: it is too large, or an event cannot be encoded.

        Events without an id get one. Raises `Invalid` for a single event that cannot be encoded.
        """
        nameless = [event for event in events if not event.id]
        made = new_event_ids(self._clock.now(), len(nameless), self._connection.chance.token)
        for event, event_id in zip(nameless, made, strict=True):
            event.id = event_id
        try:
            content = msgspec.json.encode(_Emit(events))
        except (UnicodeEncodeError, TypeError, ValueError) as error:
            if len(events) > 1:
                return None
            raise Invalid(f"the event cannot be written as JSON: {error}") from None
        return None if len(content) > MOST_BYTES and len(events) > 1 else content

    def _conflict(self, event: NewEvent, owner: _Owner | None) -> Conflict:
        source = f" of {owner.source_node}" if owner is not None and owner.source_node else ""
        return Conflict(
            f"the id {event.id} is taken in group {self._group} by another event{source}",
            hint="give the new event an id of its own",
        )

    def _refuse(self, batch: Sequence[Waiting], error: Exception) -> None:
        for _, future in batch:
            if not future.done():
                future.set_exception(another(error, error.message) if isinstance(error, EventdError) else error)
        self._release(len(batch))

    def _release(self, count: int) -> None:
        """Free the room of `count` events in the window; waiting calls of `emit` get it at once."""
        self._open -= count
        while self._crowd and self._open < self._window:
            place = self._crowd.popleft()
            if not place.done():
                place.set_result(None)
                self._open += 1
        if not self._open and self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    async def __aenter__(self) -> Publisher:
        self._loop = asyncio.get_running_loop()
        self._senders = Supervisor(self._clock)
        for number in range(self._requests):
            # Supervised, so that they do not end: callers of `emit` wait for them.
            self._senders.keep(self._send_for_ever, f"publisher {number}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._senders is not None
        try:
            if self._open and error is None:
                self._drained = self._loop.create_future()
                await self._drained
        finally:
            senders, self._senders = self._senders, None
            await senders.stop()
            for place in self._crowd:
                if not place.done():
                    place.set_exception(_closed())
            self._crowd.clear()
            self._refuse(self._waiting, _closed())
            self._waiting.clear()


def _result_of(future: asyncio.Future[str]) -> str | EventdError:
    error = future.exception()
    if error is None:
        return future.result()
    if not isinstance(error, EventdError):
        raise error
    return error


def _closed() -> Unavailable:
    return Unavailable(
        "the publisher was closed before the event was confirmed",
        hint="emit it again, with the same id: it may be stored",
    )
