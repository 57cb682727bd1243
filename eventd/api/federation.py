"""The listener of a group: what peers may ask, as HTTP. Turns what `ingress` says into v1 text and v2 answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

from eventd.api.doors import Door
from eventd.errors import EventdError
from eventd.ingress.peers import PeerIngress
from federation.errors import TooLarge, V1Refused
from federation.peers import (
    EVENTS_PATH,
    JSON_TYPE,
    LINK_PATH,
    PROTOCOL_V1,
    PROTOCOL_V2,
    V1_EVENTS_PATH,
    V1_MAX_BODY,
    V1_SIGNATURE_HEADER,
    V1_STATUS_PATH,
    V1_TIMESTAMP_HEADER,
    VERIFY_PATH,
)
from federation.signing import Head
from federation.wire import ErrorAnswer, encode_json

BODY_SECONDS = 30.0
"""A body has to arrive within this time, so that slow senders cannot pile up."""
KEEPALIVE_SECONDS = 30.0
"""How long the runner of the application should keep an idle connection: longer than senders do. It bounds as well how
long the head of a next request may take."""
READING_BYTES = 96 << 20
"""Memory for the bodies of v2 that are still arriving, over all senders of a group: their heads are proven."""
READING_BYTES_V1 = 32 << 20
"""The same for v1, whose senders have proven nothing yet: they cannot take it from the others."""
_TEXT = {"Content-Type": "text/plain; charset=utf-8"}


class NoRoom(Exception):
    """Too much is arriving at once."""


class Arriving:
    """Counts the bytes of bodies that are still arriving."""

    def __init__(self, most: int) -> None:
        self._left = most

    def take(self, size: int) -> None:
        """Raises `NoRoom`; what was taken is to be given back all the same."""
        self._left -= size
        if self._left < 0:
            raise NoRoom

    def give_back(self, size: int) -> None:
        self._left += size


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def build_listener(ingress: Callable[[], PeerIngress], door: Door) -> web.Application:
    """The application of one group. `ingress` gives the receiving side of the moment: it changes with the group."""
    routes: dict[str, tuple[str, Handler]] = {
        V1_EVENTS_PATH: (PROTOCOL_V1, lambda request: _events_v1(request, ingress(), strangers)),
        V1_STATUS_PATH: (PROTOCOL_V1, lambda request: _status_v1(ingress())),
        EVENTS_PATH: (PROTOCOL_V2, lambda request: _v2(request, ingress(), arriving)),
        LINK_PATH: (PROTOCOL_V2, lambda request: _v2(request, ingress(), arriving)),
        VERIFY_PATH: (PROTOCOL_V2, lambda request: _v2(request, ingress(), arriving)),
    }
    arriving, strangers = Arriving(READING_BYTES), Arriving(READING_BYTES_V1)

    async def dispatch(request: web.Request) -> web.StreamResponse:
        door.heard(request.transport)
        protocol, handler = routes.get(request.path, ("", _not_found))
        if protocol and protocol not in ingress().config.protocols:
            handler = _not_found
        try:
            async with asyncio.timeout(BODY_SECONDS + 30):
                answer = await handler(request)
                if answer.status == 200 and request.path in (V1_EVENTS_PATH, EVENTS_PATH):
                    door.trust(request.transport)
                return answer
        except NoRoom:
            ingress().reject("too_much_at_once")
            busy = ErrorAnswer(code="unavailable", message="too much is arriving at once")
            return _closing(503, encode_json(busy), {"Content-Type": JSON_TYPE, "Retry-After": "1"})
        except TimeoutError:
            return web.Response(status=408, body=b"", headers={"Connection": "close"})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", dispatch)
    return app


async def _not_found(_request: web.Request) -> web.Response:
    return web.Response(status=404, body=b"404 page not found\n", headers=_TEXT)


async def _events_v1(request: web.Request, ingress: PeerIngress, arriving: Arriving) -> web.Response:
    if request.method != "POST":
        return web.Response(status=405)
    try:
        body = await _body(request, V1_MAX_BODY, arriving)
        headers = request.headers
        answer = await ingress.push_v1(headers.get(V1_TIMESTAMP_HEADER), headers.get(V1_SIGNATURE_HEADER), body)
    except TooLarge as error:
        ingress.reject("too_large")
        return _closing(error.status, f"{error.message}\n".encode(), _TEXT)
    except V1Refused as error:
        return web.Response(status=error.status, body=error.body, headers=_TEXT)
    return web.Response(body=answer, headers={"Content-Type": JSON_TYPE})


async def _status_v1(ingress: PeerIngress) -> web.Response:
    try:
        return web.Response(body=await ingress.status_v1(), headers={"Content-Type": JSON_TYPE})
    except EventdError:
        refusal = V1Refused("store_error")
        return web.Response(status=refusal.status, body=refusal.body, headers=_TEXT)


async def _v2(request: web.Request, ingress: PeerIngress, arriving: Arriving) -> web.Response:
    head = Head(request.method, request.raw_path, request.headers.items())
    limit = ingress.most_bytes(request.path)
    answer = await ingress.push_v2(head, request.content_length, lambda: _body(request, limit, arriving))
    headers = answer.headers | ({"Retry-After": "1"} if answer.status in (429, 503) else {})
    if not request.content.is_eof():
        return _closing(answer.status, answer.body, headers)
    return web.Response(status=answer.status, body=answer.body, headers=headers)


def _closing(status: int, body: bytes, headers: dict[str, str]) -> web.Response:
    """An answer given before the body was read: what is left of it must not be taken for the next request."""
    response = web.Response(status=status, body=body, headers=headers)
    response.force_close()
    return response


async def _body(request: web.Request, limit: int, arriving: Arriving) -> bytes:
    """The raw body. Raises `TooLarge` before anything of it is looked at, and `NoRoom`."""
    error = TooLarge(f"a body has at most {limit} bytes", limit=limit, unit="bytes")
    if request.content_length is not None and request.content_length > limit:
        raise error
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.content.iter_any():
                size += len(chunk)
                arriving.take(len(chunk))
                if size > limit:
                    raise error
                chunks.append(chunk)
    except (TimeoutError, ConnectionError, web.HTTPException, ValueError):
        raise V1Refused("read_body") from None
    finally:
        arriving.give_back(size)
    return b"".join(chunks)
