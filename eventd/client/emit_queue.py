"""The events of a publisher that are not stored yet: a bounded number, each with the future that its emitter awaits."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import msgspec
from msgspec import Struct

from eventd.client.refusals.answers import another, problems_of
from eventd.client.refusals.kinds import OTHER_SERVER
from eventd.client.values import NewEvent
from eventd.errors import Conflict, EventdError, Invalid, Unavailable
from eventd.runtime.clock import Clock
from federation.event import new_event_ids

FULL = 512
"""Maximum events of one request or message."""
MOST_BYTES = 1 << 20
"""Maximum bytes of the events of one request or message, unless a single event has more."""


class EventOwner(Struct, rename="camel"):
    """The owner of an id that another event has."""

    source_node: str


class EmitResult(Struct):
    """The result of an event that is not `new`, by its index."""

    index: int
    result: str
    owner: EventOwner | None = None


Waiting = tuple[NewEvent, asyncio.Future[str]]
"""An event and the future that its emitter awaits."""


class EmitQueue:
    """The events that are emitted into one group and have no result yet, at most `window` of them.

    Those that are not being sent wait here. `on_put` is called when one is added. `token` returns random bytes.
    """

    def __init__(self, group: str, window: int, clock: Clock, token: Callable[[int], bytes]) -> None:
        self.on_put: Callable[[], None] = lambda: None
        self.waiting: deque[Waiting] = deque()
        self._group = group
        self._window = window
        self._clock = clock
        self._token = token
        self._open = 0
        self._crowd: deque[asyncio.Future[None]] = deque()
        self._drained: asyncio.Future[None] | None = None

    async def room(self) -> None:
        """Wait until the window has room for one more event, and take that room."""
        if self._open < self._window:
            self._open += 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._crowd.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():
                self.release(1)
            raise

    def put(self, event: NewEvent, loop: asyncio.AbstractEventLoop) -> asyncio.Future[str]:
        """Queue an event, for which there is room; return the future of its result."""
        future: asyncio.Future[str] = loop.create_future()
        self.waiting.append((event, future))
        self.on_put()
        return future

    def take(self, most: int) -> Sequence[Waiting]:
        """Remove and return the first waiting events, at most so many."""
        if len(self.waiting) > most:
            return [self.waiting.popleft() for _ in range(most)]
        batch = [*self.waiting]
        self.waiting.clear()
        return batch

    def put_back(self, batch: Sequence[Waiting]) -> None:
        """Let events wait again, before all others."""
        self.waiting.extendleft(reversed(batch))

    def encode(self, events: Sequence[NewEvent]) -> bytes | None:
        """Return the events as JSON; None if they must be split: they are too large, or one cannot be encoded.

        Events without an id get one. Raises `Invalid` for a single event that cannot be encoded.
        """
        nameless = [event for event in events if not event.id]
        made = new_event_ids(self._clock.now(), len(nameless), self._token)
        for event, event_id in zip(nameless, made, strict=True):
            event.id = event_id
        try:
            content = msgspec.json.encode(events)
        except (UnicodeEncodeError, TypeError, ValueError) as error:
            if len(events) > 1:
                return None
            raise Invalid(f"the event cannot be written as JSON: {error}") from None
        return None if len(content) > MOST_BYTES and len(events) > 1 else content

    def resolve(self, batch: Sequence[Waiting], counts: Mapping[str, int], results: Sequence[EmitResult]) -> None:
        """Set the result of each event: `new`, unless `results` has another for its index; `conflict` is an error.

        Raises `EventdError` if the node's answer does not have one for each.
        """
        found = {one.index: one for one in results}
        if sum(counts.values()) != len(batch) or not all(0 <= at < len(batch) for at in found):
            raise EventdError("the node did not return one result for each event", hint=OTHER_SERVER)
        for at, (event, future) in enumerate(batch):
            if future.done():  # its emitter was cancelled
                continue
            known = found.get(at) if found else None
            if known is not None and known.result == "conflict":
                future.set_exception(self._conflict(event, known.owner))
            else:
                future.set_result("new" if known is None else known.result)
        self.release(len(batch))

    def refuse_wrong(self, batch: Sequence[Waiting], error: EventdError) -> Sequence[Waiting] | None:
        """Refuse the events that the error names as wrong, and return the others, which were not stored because of
        them; None if it names none."""
        wrong = problems_of(error)
        if not wrong or not all(0 <= at < len(batch) for at in wrong):
            return None
        for at, message in wrong.items():
            self.refuse([batch[at]], another(error, message))
        return [one for at, one in enumerate(batch) if at not in wrong]

    def refuse(self, batch: Sequence[Waiting], error: Exception) -> None:
        """Give each event a copy of the error."""
        for _, future in batch:
            if not future.done():
                future.set_exception(another(error, error.message) if isinstance(error, EventdError) else error)
        self.release(len(batch))

    def release(self, count: int) -> None:
        """Free the room of `count` events in the window; waiting calls of `room` get it at once."""
        self._open -= count
        while self._crowd and self._open < self._window:
            place = self._crowd.popleft()
            if not place.done():
                place.set_result(None)
                self._open += 1
        if not self._open and self._drained is not None and not self._drained.done():
            self._drained.set_result(None)

    async def drain(self) -> None:
        """Wait until every event has its result."""
        if self._open:
            self._drained = asyncio.get_running_loop().create_future()
            await self._drained

    def close(self) -> None:
        """Refuse all events that wait, and all waiting calls of `room`."""
        for place in self._crowd:
            if not place.done():
                place.set_exception(closed())
        self._crowd.clear()
        self.refuse(self.take(len(self.waiting)), closed())

    def _conflict(self, event: NewEvent, owner: EventOwner | None) -> Conflict:
        source = f" of {owner.source_node}" if owner is not None and owner.source_node else ""
        return Conflict(
            f"the id {event.id} is taken in group {self._group} by another event{source}",
            hint="give the new event an id of its own",
        )


def closed() -> Unavailable:
    """Return the error of an event whose publisher was closed."""
    return Unavailable(
        "the publisher was closed before the event was confirmed",
        hint="emit it again, with the same id: it may be stored",
    )
