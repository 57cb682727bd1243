"""Caches: many requests share a few streams, and each answer names its request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from math import ceil, isfinite
from typing import Final, TypeVar

from eventd.client.refusals.answers import another
from eventd.client.streams.lane import Lane, LaneTiming, RequestAnswer
from eventd.client.streams.request_stream import Abilities
from eventd.errors import EventdError, Invalid, TooLarge
from eventd.streams.base64_text import read_bytes, write_bytes
from eventd.streams.frames import encode_frame
from eventd.streams.limits import MAX_VALUE
from eventd.streams.messages import CacheGetRequest, CacheOk, CachePutRequest, CacheValue, write_message
from eventd.streams.names import CacheName

T = TypeVar("T", CacheOk, CacheValue)

MOST_TTL: Final = 100 * 365 * 86_400.0
"""Maximum seconds of a time to live."""


class CacheRequest:
    """A put or get request to a cache, which a lane sends and settles."""

    is_repeatable = True  # a value that is stored or read twice is the same
    failures = 0

    def __init__(
        self,
        number: int,
        deadline: float,
        message: CachePutRequest | CacheGetRequest,
        answer: asyncio.Future[RequestAnswer],
    ) -> None:
        self.id = number
        self.deadline = deadline
        self._message = message
        self._answer = answer

    def encode(self, abilities: Abilities) -> bytes:
        return encode_frame(0, write_message(self._message))

    def settle(self, answer: RequestAnswer | EventdError) -> None:
        if self._answer.done():
            return
        if isinstance(answer, EventdError):
            self._answer.set_exception(answer)
        else:
            self._answer.set_result(answer)


class CacheRequests:
    """Sends the requests of all caches of a client, each on the lane with the fewest requests under way."""

    def __init__(self, lanes: Sequence[Lane], timing: LaneTiming) -> None:
        self._lanes = lanes
        self._timing = timing
        self._number = 0
        self._is_closed = False

    async def ask(self, make: Callable[[int], CachePutRequest | CacheGetRequest], kind: type[T]) -> T:
        """Send the request that `make` returns for an id, and return its answer, of this kind. Raises its refusal."""
        if self._is_closed:
            raise Invalid("the client of streams is not open", hint="async with StreamClient(…) as streams: …")
        self._number += 1
        answer: asyncio.Future[RequestAnswer] = asyncio.get_running_loop().create_future()
        request = CacheRequest(self._number, self._timing.deadline(), make(self._number), answer)
        min(self._lanes, key=len).ask(request)
        found = await answer
        if not isinstance(found, kind):
            raise EventdError("the answer is not that of a cache")
        return found

    def close(self, error: EventdError) -> None:
        """Fail the requests that are under way with an error."""
        self._is_closed = True
        for lane in self._lanes:
            lane.close(another(error, error.message))


class Cache:
    """A cache of the node. A value is None after its time to live, after its eviction, and after a restart."""

    def __init__(self, name: CacheName, requests: CacheRequests) -> None:
        self._name = name
        self._requests = requests

    async def put(self, key: str, value: bytes, ttl: float | None = None) -> None:
        """Store a value for `ttl` seconds; None: until it is evicted.

        Raises `TooLarge` for more than 1 MiB, `NotFound` if the cache is not declared, `Forbidden`, `Unavailable`.
        """
        if len(value) > MAX_VALUE:
            raise TooLarge(f"the value has {len(value)} bytes, more than {MAX_VALUE}", hint="store smaller values")
        if ttl is not None and not (isfinite(ttl) and 0 <= ttl <= MOST_TTL):
            raise Invalid(f"{ttl} is not a valid time to live", hint="give seconds from 0 on, or None")
        text = write_bytes(value)
        ttl_ms = None if ttl is None else ceil(ttl * 1000)
        await self._requests.ask(
            lambda number: CachePutRequest(
                tenant_id=self._name.tenant,
                namespace=self._name.namespace,
                cache=self._name.cache,
                key=key,
                value=text,
                request_id=number,
                ttl_ms=ttl_ms,
            ),
            CacheOk,
        )

    async def get(self, key: str) -> bytes | None:
        """Return the value of a key; None if there is none. Raises `NotFound`, `Forbidden` and `Unavailable`."""
        answer = await self._requests.ask(
            lambda number: CacheGetRequest(
                tenant_id=self._name.tenant,
                namespace=self._name.namespace,
                cache=self._name.cache,
                key=key,
                request_id=number,
            ),
            CacheValue,
        )
        try:
            return None if answer.value is None else read_bytes(answer.value)
        except ValueError as error:
            raise EventdError(f"the value of {key[:80]!r} cannot be read: {error}") from None
