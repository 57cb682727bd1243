"""The HTTP listener of a group for its peers. Turns the results of `ingress` into responses of v1 and v2."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiohttp import web

from eventd.api.bodies.bodies import BODY_SECONDS
from eventd.api.errors.codes import API_FORM
from eventd.api.listener.arriving import ArrivingBodies, NoRoom
from eventd.api.listener.connection_limiter import ConnectionLimiter
from eventd.errors import EventdError
from eventd.ingress.claimed_sender import Sender
from eventd.ingress.mismatch import Mismatch, any_node
from eventd.ingress.peers import PeerIngress
from eventd.ingress.traced import UNTRACED
from eventd.resources.group_configuration import GroupConfig
from eventd.tls.transport import client_certificate
from eventd.tracing import tracing
from eventd.tracing.contexts import read_batch_trace
from federation.errors import TooLarge, V1Refused
from federation.history.leaf_hints import LEAVES
from federation.peers import (
    EVENTS_PATH,
    HISTORY_PATH,
    JSON_TYPE,
    LINK_PATH,
    PROTOCOL_V1,
    PROTOCOL_V2,
    STATUS_PATH,
    V1_EVENTS_PATH,
    V1_MAX_BODY,
    V1_SIGNATURE_HEADER,
    V1_STATUS_PATH,
    V1_TIMESTAMP_HEADER,
    VERIFY_PATH,
)
from federation.signing import Head
from federation.wire import ErrorAnswer, encode_json

KEEPALIVE_SECONDS = 30.0
"""How long the application's runner should keep an idle connection: longer than senders do. The head of each later
request must arrive within this time, too."""
READING_BYTES = 96 << 20
"""Maximum bytes of v2 bodies that are still arriving, of all senders of a group together. The signatures of their heads
were verified."""
READING_BYTES_V1 = 32 << 20
"""Maximum bytes of v1 bodies that are still arriving. They are counted separately, because senders of v1 are verified
only after the body has arrived, and must not use up the memory for v2."""
_TEXT = {"Content-Type": "text/plain; charset=utf-8"}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def build_listener(ingress: Callable[[], PeerIngress], limiter: ConnectionLimiter) -> web.Application:
    """Return the application of one group.

    `ingress` returns the receiving side of the group by its present declaration.
    """
    routes: dict[str, tuple[str, Handler]] = {
        V1_EVENTS_PATH: (PROTOCOL_V1, lambda request: _events_v1(request, ingress(), unproven, limiter)),
        V1_STATUS_PATH: (PROTOCOL_V1, lambda request: _status_v1(ingress())),
        EVENTS_PATH: (PROTOCOL_V2, lambda request: _v2(request, ingress(), proven, limiter)),
        LINK_PATH: (PROTOCOL_V2, lambda request: _v2(request, ingress(), proven, limiter)),
        VERIFY_PATH: (PROTOCOL_V2, lambda request: _v2(request, ingress(), proven, limiter)),
        STATUS_PATH: (PROTOCOL_V2, lambda request: _v2(request, ingress(), proven, limiter)),
        HISTORY_PATH: (PROTOCOL_V2, lambda request: _v2(request, ingress(), proven, limiter)),
    }
    proven, unproven = ArrivingBodies(READING_BYTES), ArrivingBodies(READING_BYTES_V1)

    async def dispatch(request: web.Request) -> web.StreamResponse:
        limiter.heard(request.transport)
        protocol, handler = routes.get(request.path, ("", _not_found))
        if protocol and protocol not in ingress().config.protocols:
            handler = _not_found
        try:
            async with asyncio.timeout(BODY_SECONDS + 30):
                return await handler(request)
        except NoRoom:
            ingress().counter.count_refused_request("too_much_at_once", sender=lambda: Sender(request.remote or ""))
            busy = ErrorAnswer(code="unavailable", message="too much is arriving at once")
            return _answer(request, 503, encode_json(busy), {"Content-Type": JSON_TYPE, "Retry-After": "1"})
        except TimeoutError:
            return web.Response(status=408, body=b"", headers={"Connection": "close"})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", dispatch)
    return app


def refused_by_library(error: EventdError) -> web.Response:
    """Return the response, in plain text, to a request that does not reach the application, such as invalid HTTP."""
    return web.Response(status=API_FORM.status(error), body=f"{error}\n".encode(), headers=_TEXT)


async def _not_found(_request: web.Request) -> web.Response:
    return web.Response(status=404, body=b"404 page not found\n", headers=_TEXT)


async def _events_v1(
    request: web.Request, ingress: PeerIngress, arriving: ArrivingBodies, limiter: ConnectionLimiter
) -> web.Response:
    if request.method != "POST":
        return web.Response(status=405)
    headers = request.headers
    try:
        try:
            body = await arriving.read(request, V1_MAX_BODY)
        except TooLarge:
            body = None
        timestamp, signature = headers.get(V1_TIMESTAMP_HEADER), headers.get(V1_SIGNATURE_HEADER)
        mismatch = mismatch_of(request.transport, ingress.config)
        taken = await ingress.v1.push(timestamp, signature, body, request.remote or "", mismatch)
    except V1Refused as error:
        return _answer(request, error.status, error.body, _TEXT)
    if taken.new:
        limiter.trust(request.transport, taken.key_id)
    return web.Response(body=taken.answer, headers={"Content-Type": JSON_TYPE})


async def _status_v1(ingress: PeerIngress) -> web.Response:
    try:
        return web.Response(body=await ingress.v1.status(), headers={"Content-Type": JSON_TYPE})
    except EventdError:
        refusal = V1Refused("store_error")
        return web.Response(status=refusal.status, body=refusal.body, headers=_TEXT)


async def _v2(
    request: web.Request, ingress: PeerIngress, arriving: ArrivingBodies, limiter: ConnectionLimiter
) -> web.Response:
    head = Head(request.method, request.raw_path, request.headers.items())
    limit = ingress.most_bytes(request.path)
    answer = await ingress.push(
        head,
        request.content_length,
        lambda: arriving.read(request, limit),
        request.remote or "",
        mismatch_of(request.transport, ingress.config),
        read_batch_trace(request.headers) if tracing.on and tracing.trusts_hints else UNTRACED,
        request.headers.get(LEAVES, "") if ingress.config.keeps_history else "",
    )
    if answer.key_id:
        limiter.trust(request.transport, answer.key_id)
    headers = answer.headers | ({"Retry-After": "1"} if answer.status in (429, 503) else {})
    return _answer(request, answer.status, answer.body, headers)


def mismatch_of(transport: asyncio.BaseTransport | None, config: GroupConfig) -> Mismatch:
    """Return a function that compares a connection's certificate with a node, if the group demands certificates."""
    if config.listen is None or config.listen.tls is None or not config.listen.tls.client_ca_file:
        return any_node
    certificate = client_certificate(transport)
    if certificate is None:
        return lambda _node: "none"
    return lambda node: "" if certificate.speaks_for(node) else certificate.show_names()


def _answer(request: web.Request, status: int, body: bytes, headers: dict[str, str]) -> web.Response:
    """Return a response, which closes the connection if the request's body was not read to its end.

    The rest of the body must not be parsed as the next request.
    """
    response = web.Response(status=status, body=body, headers=headers)
    if not request.content.is_eof():
        response.force_close()
    return response
