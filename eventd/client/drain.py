"""For subscribers of a Routemaster bus: receives batches of events, and hands on those that are not outdated.

`Drain` needs no web framework and does no I/O: it checks a request and calls the program's handler. `application`
serves one with aiohttp.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from hashlib import blake2b, sha256
from hmac import compare_digest
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from eventd.client.documents import Document, DocumentCache
from eventd.errors import Invalid
from eventd.runtime.clock import Clock, SystemClock
from federation.errors import Forbidden, Malformed, MessageError, TooLarge, Unauthorized, UnsupportedMedia
from federation.routemaster import TOPIC_NAME, Action
from federation.webhooks import read_key
from federation.webhooks import verify as verify_with

if TYPE_CHECKING:
    from aiohttp import web

__all__ = [
    "Document",
    "DocumentCache",
    "Drain",
    "DrainEvent",
    "HandlerFailed",
    "LatestTimes",
    "application",
    "read_batch",
    "receiver",
]

REMEMBERED: Final = 100_000
"""Number of urls for which a drain remembers the time of the latest event; they take about 20 MB."""
MAX_BODY: Final = 16 << 20
"""Maximum bytes of a batch."""
MAX_REQUESTS: Final = 16
"""Maximum number of requests that are received at the same time; each may hold one body in memory."""
BODY_SECONDS: Final = 20.0
"""Seconds that the body of a request may take to arrive: a sender gives up after that time."""
_ONLY_TYPE = "application/json"
_DIGEST_BYTES = 16


class DrainEvent(NamedTuple):
    """An event of the bus about the document at `url`: it was created, updated or deleted, or (`noop`) it exists.

    `t` is the publisher's time, usually in milliseconds since 1970; only times of one url are compared.
    `data` is None if the event has none.
    """

    topic: str
    type: str
    url: str
    t: int | float
    data: Mapping[str, Any] | None = None


class _SentEvent(Struct, forbid_unknown_fields=True):
    topic: Annotated[str, Meta(pattern=rf"\A{TOPIC_NAME}\Z")]
    type: Action
    url: Annotated[str, Meta(min_length=1, max_length=8192)]
    t: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | float
    data: dict[str, Any] | UnsetType = UNSET


_DECODER = msgspec.json.Decoder(list[_SentEvent])


def read_batch(body: bytes) -> list[DrainEvent]:
    """Return the events of a batch. Raises `Malformed`, which names the event and the field that are wrong.

    A batch is a JSON array of at least one object with `topic`, `type`, `url`, `t` and perhaps `data`, and no others.
    """
    try:
        sent = _DECODER.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise Malformed(f"the body is not a batch of events: {error}", reason="bad_batch") from None
    if not sent:
        raise Malformed("the batch has no events", reason="bad_batch")
    return [
        DrainEvent(one.topic, one.type, one.url, one.t, None if one.data is UNSET else one.data)  # {} is data
        for one in sent
    ]


class LatestTimes:
    """The time of the latest event of each url, for the `capacity` urls whose events arrived last.

    An event is outdated if an event of the same url with a larger `t` has been noted, or comes before it in its batch.
    Events with equal times are all handed on, in their order: a create and an update within one millisecond are two
    events, and so may be two that look the same, because a publisher may count in seconds. If only the first one was
    handed on, as other drains do, the update would be lost. The price is that a batch that is sent again is handed on
    again, as far as it is not outdated, so a handler must be able to handle an event twice.

    An event of a forgotten url counts as new. A `t` in the future makes all events before that time outdated.
    """

    def __init__(self, capacity: int = REMEMBERED) -> None:
        if capacity < 1:
            raise Invalid(f"a drain cannot remember {capacity} urls", hint="pass 1 or more")
        self._capacity = capacity
        # By digest, so that memory has a bound: a url may have 8192 characters.
        self._times: OrderedDict[bytes, int | float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._times)

    def select(self, events: Iterable[DrainEvent]) -> list[DrainEvent]:
        """Return the events that are not outdated, in their order. Changes nothing: see `note`."""
        within: dict[bytes, int | float] = {}
        selected = []
        for event in events:
            key = _digest(event.url)
            latest = within.get(key, self._times.get(key))
            if latest is None or event.t >= latest:
                within[key] = event.t
                selected.append(event)
        return selected

    def note(self, events: Iterable[DrainEvent]) -> None:
        """Remember the times of events that have been handled, or were outdated."""
        for event in events:
            key = _digest(event.url)
            self._times[key] = max(self._times.get(key, event.t), event.t)
            self._times.move_to_end(key)
            if len(self._times) > self._capacity:
                self._times.popitem(last=False)


def _digest(url: str) -> bytes:
    return blake2b(url.encode(), digest_size=_DIGEST_BYTES).digest()


class HandlerFailed(Exception):
    """The program's handler raised an exception, which is the cause: the bus has to send the batch again."""


Handler = Callable[[Sequence[DrainEvent]], Awaitable[None]]


class Drain:
    """Receives the batches of one or more buses, and calls `handler` with those of their events that are not outdated.

    A bus names itself with one of `uuids` as the user of HTTP Basic; with `secrets`, it must also sign its requests, in
    the format of Standard Webhooks. The drain remembers the latest times of `remembered` urls: see `LatestTimes`. It
    drops from `documents` what the events change, before the handler gets them.

    The handler gets one batch at a time, in the order of arrival. If it raises an exception, or the process ends, the
    batch counts as not received: the bus sends it again, and the handler gets those of its events again that are still
    not outdated. A handler that never returns blocks the drain: set a time limit in it.
    """

    def __init__(
        self,
        handler: Handler,
        uuids: str | Iterable[str],
        *,
        secrets: str | Iterable[str] = (),
        remembered: int = REMEMBERED,
        documents: DocumentCache | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`secrets` are `whsec_…`, `whpk_…` or PEM texts: during a rotation, the old and the new one.

        Raises `Invalid` for a uuid that no bus can send, and `BadKey` for an unusable secret.
        """
        accepted = _texts(uuids)
        if not accepted or any(not uuid or ":" in uuid for uuid in accepted):
            raise Invalid(
                "a uuid of the drain is missing, empty or contains a colon",
                hint="pass the uuid of the subscription; a bus sends only the part before a colon",
            )
        self._users = [sha256(uuid.encode()).digest() for uuid in accepted]
        self._keys = [read_key(str(number), text) for number, text in enumerate(_texts(secrets), 1)]
        self._clock = clock or SystemClock()
        self._handler = handler
        self._latest = LatestTimes(remembered)
        self._turn = asyncio.Lock()
        self.documents = documents

    def admit(self, headers: Mapping[str, str]) -> None:
        """Check the headers of a request before its body is read. Names of `headers` in upper or lower case.

        Raises `Unauthorized` without credentials, `Forbidden` for credentials other than an accepted uuid, and
        `UnsupportedMedia` for a content type other than `application/json`, without parameters.
        """
        found = {name.lower(): value for name, value in headers.items()}
        if "authorization" not in found:
            raise Unauthorized("the request has no Authorization header with the uuid of the subscription as user")
        if not self._accepts(found["authorization"]):
            raise Forbidden("the user of the request is not a uuid that this drain accepts")
        if found.get("content-type") != _ONLY_TYPE:
            shown = found.get("content-type", "")[:60]
            raise UnsupportedMedia(f"the content type is {shown!r}; send {_ONLY_TYPE}, without parameters")
        if found.get("content-encoding", "identity") != "identity":
            raise UnsupportedMedia("the body is compressed; send it as it is")

    def read(self, headers: Mapping[str, str], body: bytes) -> list[DrainEvent]:
        """Return the events of a request. Raises `Unauthorized` for a wrong or missing signature, and `Malformed`."""
        if self._keys:
            try:
                verify_with(self._keys, headers, body, now=self._clock.now())
            except Malformed as error:  # not 400: a bus would take the events for those that cannot be handled
                raise Unauthorized(error.message, reason=error.reason) from None
        return read_batch(body)

    async def hand_on(self, events: Sequence[DrainEvent]) -> int:
        """Call the handler with the events that are not outdated, if any; return their number.

        Raises `HandlerFailed`.
        """
        async with self._turn:
            selected = self._latest.select(events)
            if selected:
                await self._handle(selected)
            # Not before: events of a batch that failed must not make the same batch outdated.
            self._latest.note(events)
        return len(selected)

    async def _handle(self, selected: list[DrainEvent]) -> None:
        if self.documents is not None:
            for event in selected:
                if event.type != "noop":
                    self.documents.invalidate(event.url)
        try:
            await self._handler(selected)
        except Exception as error:
            raise HandlerFailed(f"the handler failed with {len(selected)} events; the bus sends them again") from error

    def _accepts(self, authorization: str) -> bool:
        scheme, _, coded = authorization.partition(" ")
        try:
            user, colon, _ = b64decode(coded, validate=True).partition(b":")
        except ValueError:
            return False
        sent = sha256(user).digest()
        known = [compare_digest(sent, accepted) for accepted in self._users]  # compares all, whichever is the right one
        return scheme == "Basic" and bool(colon) and any(known)


def _texts(given: str | Iterable[str]) -> list[str]:
    return [given] if isinstance(given, str) else [*given]


def receiver(
    drain: Drain,
    *,
    max_body: int = MAX_BODY,
    max_requests: int = MAX_REQUESTS,
    body_seconds: float = BODY_SECONDS,
) -> Callable[[web.Request], Awaitable[web.Response]]:
    """Return the request handler of a drain, for an aiohttp application of your own.

    It answers 204 once the handler has returned; 400, 401, 403, 413 and 415 as the errors of `Drain`; 408 if the body
    takes longer than `body_seconds`, and 503 while `max_requests` others are received or handled. An exception of the
    handler is logged by aiohttp and answered with 500.
    """
    from aiohttp import web

    under_way = 0

    async def receive(request: web.Request) -> web.Response:
        nonlocal under_way
        try:
            drain.admit(request.headers)
            if under_way >= max_requests:
                return web.Response(status=503, text="too many requests at a time", headers={"Retry-After": "1"})
            under_way += 1
            try:
                body = await _read_body(request, max_body, body_seconds)
                await drain.hand_on(drain.read(request.headers, body))
            finally:
                under_way -= 1
        except TimeoutError:
            return web.Response(status=408, text=f"the body did not arrive within {body_seconds:g} s")
        except MessageError as error:
            headers = {"WWW-Authenticate": 'Basic realm="drain"'} if error.status == 401 else None
            return web.Response(status=error.status, text=error.message, headers=headers)
        return web.Response(status=204)

    return receive


async def _read_body(request: web.Request, most: int, seconds: float) -> bytes:
    parts: list[bytes] = []
    size = 0
    async with asyncio.timeout(seconds):
        async for chunk in request.content.iter_any():
            size += len(chunk)
            if size > most:
                raise TooLarge(f"the body has more than {most} bytes", limit=most, unit="bytes")
            parts.append(chunk)
    return b"".join(parts)


def application(
    drain: Drain,
    *,
    path: str = "/",
    max_body: int = MAX_BODY,
    max_requests: int = MAX_REQUESTS,
    body_seconds: float = BODY_SECONDS,
) -> web.Application:
    """Return an aiohttp application that receives batches at `path`; the limits are those of `receiver`.

    Other paths are answered with 404, other methods with 405. The drain's `documents` are closed with the application.
    """
    from aiohttp import web

    receive = receiver(drain, max_body=max_body, max_requests=max_requests, body_seconds=body_seconds)
    served = web.Application()
    served.router.add_post(path, receive)

    async def close(_: web.Application) -> None:
        if drain.documents is not None:
            await drain.documents.close()

    served.on_cleanup.append(close)
    return served
