"""One stream of server-sent events: sends a view, completely, each time it changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from contextlib import suppress
from typing import Final

from aiohttp import web

from eventd.console.live.hub import FAILED, Hub, LiveView, Render, make_event
from eventd.errors import EventdError
from eventd.log.topics.errors import Throttled
from eventd.runtime.clock import Clock

logger = logging.getLogger("eventd.console")
HEARTBEAT_SECONDS: Final = 15.0
"""Maximum number of seconds for which a stream sends nothing: a page that gets nothing for longer concludes that its
node is down."""
CHECK_SECONDS: Final = 0.5
"""How often a stream checks that its session has not ended."""
GRACE_SECONDS: Final = 0.2
"""Seconds that a stream may last after the end of its session; then its connection is cut, even if it is blocked."""
READ_SECONDS: Final = 30.0
"""Maximum number of seconds for which a browser may read nothing from the stream."""
_ALIVE: Final = make_event("alive", b"")
"""The event that confirms that the page shows the present view. A comment would not be sufficient, because browsers do
not report comments to pages."""
_HEADERS: Final = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}


async def follow_view(
    request: web.Request,
    hub: Hub,
    key: Hashable,
    render: Render,
    most: int,
    has_ended: Callable[[], Awaitable[bool]],
    clock: Clock,
) -> web.StreamResponse:
    """Stream a view until the browser leaves, the session ends or the node stops. Raises `Throttled`.

    Each event is the whole view, so that nothing is missed after a gap; `last` in the query is the id of the content
    that the browser has.
    """
    if hub.viewers >= most:
        raise Throttled(f"{most} pages are kept up to date already: this one is not")
    view = hub.enter(key, render)
    seen = view.renderings
    response = web.StreamResponse(headers=_HEADERS)
    try:
        await response.prepare(request)
        ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        watching = hub.spawn(_watch(request, ended, has_ended, clock), "session of a stream")
        try:
            await _send(request, response, hub, view, seen, ended, clock)
        finally:
            watching.cancel()
    except ConnectionError:  # the browser left, or does not read
        if request.transport is not None:
            request.transport.abort()
    except Exception as error:
        if not response.prepared:
            raise
        # an error page cannot follow; the browser opens another stream
        if not isinstance(error, EventdError):
            logger.exception("view failed")
        problem = str(error) if isinstance(error, EventdError) else FAILED
        with suppress(ConnectionError):
            await response.write(make_event("trouble", problem.encode()))
    finally:
        hub.leave(view)
    return response


async def _send(
    request: web.Request,
    response: web.StreamResponse,
    hub: Hub,
    view: LiveView,
    seen: int,
    ended: asyncio.Future[None],
    clock: Clock,
) -> None:
    """Send renderings, except the first `seen` ones, which may be older than the page of the browser."""
    last, problem, silent_until = request.query.get("last", ""), "", clock.monotonic() + HEARTBEAT_SECONDS
    while not hub.closed and _is_open(request):
        changed, event = view.changed, b""
        if view.renderings > seen:
            if view.problem:
                event = make_event("trouble", view.problem.encode()) if view.problem != problem else b""
            elif view.event is not None and view.id != last:
                event, last = view.event, view.id
            elif problem:
                event = _ALIVE
            problem = view.problem
        if not event and clock.monotonic() >= silent_until:
            event = make_event("trouble", problem.encode()) if problem else _ALIVE
        if event:
            await _write(response, event)
            silent_until = clock.monotonic() + HEARTBEAT_SECONDS
        timer = clock.timer(CHECK_SECONDS)
        try:
            await asyncio.wait({timer, changed, ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
        if ended.done():
            ended.result()
            await _write(response, make_event("ended", b"the session has ended"))
            return


async def _watch(
    request: web.Request, ended: asyncio.Future[None], has_ended: Callable[[], Awaitable[bool]], clock: Clock
) -> None:
    """Complete the future `ended` when the session has ended or cannot be checked, and cut the connection if it does
    not end then."""
    try:
        while not await has_ended():
            await clock.sleep(CHECK_SECONDS)
    except Exception as error:
        ended.set_exception(error)
        ended.exception()  # a stream that is blocked does not see it
    else:
        ended.set_result(None)
    await clock.sleep(GRACE_SECONDS)
    if request.transport is not None:
        request.transport.abort()


async def _write(response: web.StreamResponse, event: bytes) -> None:
    """Send an event. Raises `ConnectionError` if the browser does not read it in time."""
    try:
        async with asyncio.timeout(READ_SECONDS):
            await response.write(event)
    except TimeoutError:
        raise ConnectionResetError("the browser does not read what is sent to it") from None


def _is_open(request: web.Request) -> bool:
    """Return whether the browser is still there: without a change of the view, no write would show that it left."""
    return request.transport is not None and not request.transport.is_closing()
