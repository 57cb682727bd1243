"""One stream of server-sent events: a view, whole, each time it changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Final

from aiohttp import web

from eventd.console.live.hub import Hub, LiveView, Render, make_event
from eventd.log.topics.errors import Throttled
from eventd.runtime.clock import Clock

HEARTBEAT_SECONDS: Final = 15.0
CHECK_SECONDS: Final = 1.0
"""How often a stream checks that its session has not ended."""
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

    Each event is the whole view, so that nothing is missed after a gap; `last` in the query names what the browser has.
    """
    if hub.viewers >= most:
        raise Throttled(f"{most} pages are kept up to date already: this one is not")
    view = hub.enter(key, render)
    try:
        response = web.StreamResponse(headers=_HEADERS)
        await response.prepare(request)
        await _send(request, response, hub, view, has_ended, clock)
    except ConnectionError:
        pass  # the browser left
    finally:
        hub.leave(view)
    return response


async def _send(
    request: web.Request,
    response: web.StreamResponse,
    hub: Hub,
    view: LiveView,
    has_ended: Callable[[], Awaitable[bool]],
    clock: Clock,
) -> None:
    last, quiet, problem = request.query.get("last", ""), 0.0, ""
    while not hub.closed and _is_open(request):
        changed = view.changed
        if view.problem and view.problem != problem:
            await response.write(make_event("trouble", view.problem.encode()))
        elif view.event is not None and view.id != last and not view.problem:
            last, quiet = view.id, 0.0
            await response.write(view.event)
        problem = view.problem
        timer = clock.timer(CHECK_SECONDS)
        try:
            await asyncio.wait({timer, changed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
        if await has_ended():
            await response.write(make_event("ended", b"the session has ended"))
            return
        quiet += CHECK_SECONDS
        if quiet >= HEARTBEAT_SECONDS:
            quiet = 0.0
            await response.write(b": still here\n\n")


def _is_open(request: web.Request) -> bool:
    """Return whether the browser is still there: without a change of the view, no write would show that it left."""
    return request.transport is not None and not request.transport.is_closing()
