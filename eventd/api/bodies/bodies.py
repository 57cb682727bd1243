"""Reads request bodies within limits of size, time and memory, before they are decoded."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from eventd.api.bodies.memory_limit import MemoryLimit, find_limit
from eventd.api.errors.codes import SlowBody
from eventd.errors import Invalid, TooLarge
from eventd.log.topics.errors import Throttled

if TYPE_CHECKING:
    from aiohttp import web

BODY_SECONDS = 30.0
"""The time in which a body must arrive, so that slow senders cannot accumulate."""
SMALL_BYTES = 1 << 20
"""Bodies up to this size are decoded so fast that the event loop usually does it itself."""
LIGHT_BYTES = 64 << 10
"""Bodies up to this size do not count towards the memory for all bodies, and are always decoded on the event loop."""
HUGE_BYTES = 16 << 20
"""A body over this size is first decoded only as far as its members, and its events are checked a few at a time, so a
refused body is not in memory twice."""
BODIES_BYTES = 256 << 20
"""Maximum bytes of all bodies over `LIGHT_BYTES` that are admitted at once, or two bodies of the largest size, if that
is more: each takes several times its size until it is stored."""
GROWTH = 4
"""A body takes about this many times its size in memory until it is stored."""
RESERVE = 32 << 20
"""Bytes of a limited memory that are reserved for everything else."""

T = TypeVar("T")


class BodyMemory:
    """The memory for the bodies of all requests of this process. `held`: the reserved bytes.

    A body over `LIGHT_BYTES` reserves memory when the request's head names a length, or else as it grows. If it does
    not fit, the key with the most reserved memory loses the oldest of its bodies that are still arriving, if it holds
    more than the requesting key would. So bodies whose senders withhold the rest make room.
    """

    def __init__(self, largest: int, memory: MemoryLimit | None = None) -> None:
        """`largest`: maximum bytes of one body; `memory`: the memory limit of this process, if any."""
        self.most = max(BODIES_BYTES, 2 * largest)
        if memory is not None:
            self.most = min(self.most, memory.limit // (2 * GROWTH))
        self.held = 0
        self._memory = memory
        self._large: dict[BodyReservation, None] = {}  # in the order in which they became large

    @classmethod
    def of_process(cls, largest: int) -> BodyMemory:
        """Return a `BodyMemory` for this process, within the limit that the system sets, if any."""
        return cls(largest, find_limit())

    @contextmanager
    def hold(self, key: bytes = b"") -> Iterator[BodyReservation]:
        """Yield an empty reservation for a body of the key with this digest; it is freed at the end of the block."""
        body = BodyReservation(self, key)
        try:
            yield body
        finally:
            self.give_back(body)

    def make_room(self, body: BodyReservation, more: int) -> None:
        """Let bodies of other keys give way until `more` bytes of `body` fit. Raises `Throttled` if too few can."""
        while self.held + more > self.most:
            giving = self._find_giving(body, more)
            if giving is None:
                raise Throttled(f"{self.held} of {self.most} bytes for bodies are in use: retry later, or send less")
            self.give_back(giving)
            giving.give_way()

    def require_fits(self, size: int) -> None:
        """Raises `TooLarge` for a body of `size` bytes that would not fit even alone."""
        if size > self.most:
            raise TooLarge(
                f"the body is larger than the {self.most} bytes that the node's memory limit allows for all bodies",
                hint="send smaller requests, or raise the limit of the node's container or service",
            )

    def require_memory(self, more: int) -> None:
        """Raises `Throttled` if the process could reach its memory limit with `more` bytes."""
        if self._memory is not None and self._memory.free() < GROWTH * more + RESERVE:
            raise Throttled("the node is short of memory: send this body later, or in smaller parts")

    def take(self, body: BodyReservation, more: int) -> None:
        """Reserve `more` bytes for the body, without a check."""
        self._large[body] = None
        body.bytes += more
        self.held += more

    def give_back(self, body: BodyReservation) -> None:
        """Free the reservation of a body."""
        if body in self._large:
            del self._large[body]
            self.held -= body.bytes
            body.bytes = 0

    def _find_giving(self, asking: BodyReservation, more: int) -> BodyReservation | None:
        """Return the body that is stopped to make room for `more` bytes of the body `asking`.

        None if no body may be stopped.
        """
        by_key: Counter[bytes] = Counter()
        for body in self._large:
            by_key[body.key] += body.bytes
        (key, most), *_ = by_key.most_common(1) or [(asking.key, 0)]
        if key == asking.key or most <= by_key[asking.key] + more:
            return None
        return next((body for body in self._large if body.key == key and body.stop is not None), None)


class BodyReservation:
    """The reservation of one body. `stop` ends the body's arrival; None while the body cannot give way."""

    def __init__(self, bodies: BodyMemory, key: bytes) -> None:
        self.key = key
        self.bytes = 0
        self.stop: Callable[[], None] | None = None
        self.gave_way = False
        self._bodies = bodies

    def grow_to(self, size: int) -> None:
        """Reserve `size` bytes in all; nothing up to `LIGHT_BYTES`.

        Raises `TooLarge`, and `Throttled`, also if the body gave way.
        """
        if self.gave_way:
            raise needs_room_error()
        more = size - self.bytes
        if size <= LIGHT_BYTES or more <= 0:
            return
        self._bodies.require_fits(size)
        self._bodies.require_memory(more)
        self._bodies.make_room(self, more)
        self._bodies.take(self, more)

    @asynccontextmanager
    async def arriving(self) -> AsyncIterator[None]:
        """Allow the body to give way while the block reads it.

        Raises `Throttled` if the body gives way, and `SlowBody` after `BODY_SECONDS`.
        """
        try:
            async with asyncio.timeout(BODY_SECONDS) as deadline:
                self.stop = lambda: deadline.reschedule(asyncio.get_running_loop().time())
                yield
        except TimeoutError:
            raise needs_room_error() if self.gave_way else _slow() from None
        finally:
            self.stop = None

    def give_way(self) -> None:
        """Stop reading this body: a body of another key needs its memory."""
        assert self.stop is not None
        stop, self.stop, self.gave_way = self.stop, None, True
        stop()


async def read_body(
    request: web.Request, most: int, held: BodyReservation, *, setting: bool = True
) -> bytes | bytearray:
    """Return the body of a request; empty if it has none.

    Raises `TooLarge` beyond `most` bytes, `Throttled`, `SlowBody`, and `Invalid` for a broken body. `setting`: `most`
    is EVENTD_MAX_BODY_BYTES, which the hint of `TooLarge` names.
    """
    if (request.content_length or 0) > most:
        raise _too_large(most, setting)
    held.grow_to(request.content_length or 0)
    content = request.content
    try:
        if content.is_eof():  # small bodies usually arrive with the head
            body: bytes | bytearray = content.read_nowait()
        else:
            async with held.arriving():
                body = await _gather(content, most, held, setting)
    except _payload_error():
        raise Invalid("the body is broken: it does not follow its own length or encoding") from None
    if len(body) > most:
        raise _too_large(most, setting)
    return body


def _payload_error() -> type[Exception]:
    """Return the class of the server's error for a broken body.

    It is imported here, because commands load this module for its limits, without the server.
    """
    from aiohttp.web import RequestPayloadError

    return RequestPayloadError


async def _gather(content: Any, most: int, held: BodyReservation, setting: bool) -> bytearray:
    body = bytearray()  # grows in place: joining parts would need twice the memory
    try:
        while part := await content.readany():
            if len(body) + len(part) > most:
                raise _too_large(most, setting)
            held.grow_to(len(body) + len(part))
            body += part
    except BaseException:
        body.clear()  # the error refers to this frame, and the connection keeps the error until garbage collection
        raise
    return body


def needs_room_error() -> Throttled:
    """Return the error for a body that was dropped because the memory for bodies was used up."""
    return Throttled("the memory for this body is needed by another key: retry later")


def _slow() -> SlowBody:
    return SlowBody(f"the body did not arrive within {BODY_SECONDS:g} s")


def _too_large(most: int, setting: bool) -> TooLarge:
    hint = "send a smaller request, or raise EVENTD_MAX_BODY_BYTES" if setting else "send a smaller request"
    return TooLarge(f"the body is over the limit of {most} bytes", hint=hint)


async def aside(size: int, work: Callable[..., T], *args: Any, light: int = SMALL_BYTES) -> T:
    """Return the result of `work`, which runs in a thread if the body's `size` is over `light` bytes.

    On the event loop, it would delay other requests.
    """
    return await asyncio.to_thread(work, *args) if size > light else work(*args)
