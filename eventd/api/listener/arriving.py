"""Limits the memory of request bodies that are still arriving, and chooses the one to drop above the limit.

The sender of a body is not proven before its last byte has arrived. So when memory is short, the address that holds
most of it loses its slowest body: bodies whose senders withhold the rest make room for bodies that arrive.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field

from aiohttp import web

from eventd.api.bodies.bodies import BODY_SECONDS
from eventd.api.listener.connection_limiter import address_of
from federation.errors import TooLarge, V1Refused


class NoRoom(Exception):
    """The memory for arriving bodies is used up, and this body had to give way."""


@dataclass(eq=False, slots=True)
class _Body:
    """An arriving body. `size`: bytes that have arrived; `begun`: when reading began, by the loop's clock (seconds)."""

    address: str
    begun: float
    deadline: asyncio.Timeout
    size: int = 0
    chunks: list[bytes] = field(default_factory=list)

    def speed(self, now: float) -> float:
        return self.size / max(now - self.begun, 1e-9)


class ArrivingBodies:
    """The arriving bodies of one protocol at one listener, which together hold at most `most` bytes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held = 0
        self._bodies: dict[_Body, None] = {}

    async def read(self, request: web.Request, limit: int) -> bytes:
        """Return the raw body of a request.

        Raises `TooLarge` as soon as it is known to exceed `limit` bytes, `NoRoom` if it has to give way, and
        `V1Refused` if it cannot be read or takes longer than `BODY_SECONDS`.
        """
        error = TooLarge(f"a body has at most {limit} bytes", limit=limit, unit="bytes")
        if request.content_length is not None and request.content_length > limit:
            raise error
        loop = asyncio.get_running_loop()
        body = _Body(address_of(request.transport), loop.time(), asyncio.timeout(BODY_SECONDS))
        self._bodies[body] = None
        try:
            async with body.deadline:
                async for chunk in request.content.iter_any():
                    self._take(body, chunk, loop.time())
                    if body.size > limit:
                        raise error
        except BaseException as problem:
            body.chunks.clear()  # the error refers to this frame, and the connection keeps the error
            if not isinstance(problem, TimeoutError | ConnectionError | web.RequestPayloadError | ValueError):
                raise
            if body not in self._bodies:
                raise NoRoom from None
            raise V1Refused("read_body") from None
        finally:
            self._give_back(body)
        return b"".join(body.chunks)

    def _take(self, body: _Body, chunk: bytes, now: float) -> None:
        if body not in self._bodies:  # it gave way, but this chunk arrived before its deadline
            raise NoRoom
        body.chunks.append(chunk)
        body.size += len(chunk)
        self._held += len(chunk)
        while self._held > self._most:
            slowest = self._slowest(now)
            self._give_back(slowest)
            if slowest is body:
                raise NoRoom
            slowest.deadline.reschedule(now)

    def _slowest(self, now: float) -> _Body:
        """Return the slowest body of the address whose bodies hold most memory."""
        held: defaultdict[str, int] = defaultdict(int)
        for body in self._bodies:
            held[body.address] += body.size
        most = max(held, key=held.__getitem__)
        return min((body for body in self._bodies if body.address == most), key=lambda body: body.speed(now))

    def _give_back(self, body: _Body) -> None:
        if body in self._bodies:
            del self._bodies[body]
            self._held -= body.size
