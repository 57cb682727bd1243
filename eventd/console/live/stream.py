"""One stream of server-sent events: sends a view, completely, each time it changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable
from contextlib import suppress
from typing import Final

from aiohttp import hdrs, web

from eventd.console.live.hub import FAILED, Hub, LiveView, Render
from eventd.console.live.session_watch import ViewerSession, is_open
from eventd.console.live.stream_event import PACKED_HEAD, StreamEvent, takes_packed
from eventd.errors import EventdError
from eventd.log.topics.errors import Throttled
from eventd.runtime.clock import Clock

logger = logging.getLogger("eventd.console")
HEARTBEAT_SECONDS: Final = 15.0
"""Maximum number of seconds for which a stream sends nothing: a page that gets nothing for longer concludes that its
node is down."""
READ_SECONDS: Final = 30.0
"""Maximum number of seconds for which a browser may read nothing from the stream."""
_ALIVE: Final = StreamEvent("alive", b"")
"""The event that confirms that the page shows the present view. A comment would not be sufficient, because browsers do
not report comments to pages."""
_HEADERS: Final = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class EventWriter:
    """Writes events to a browser, compressed if it takes that: those of a view in the same bytes for all browsers."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self.is_packed = takes_packed(request)
        self.response = web.StreamResponse(headers=_HEADERS)
        self._head = b""
        if self.is_packed:
            self.response.headers[hdrs.CONTENT_ENCODING] = "gzip"
            self._head = PACKED_HEAD

    async def begin(self) -> None:
        """Send the head of the response."""
        await self.response.prepare(self._request)

    async def write(self, event: StreamEvent) -> None:
        """Send an event. Raises `ConnectionError` if the browser does not read it in time."""
        head, self._head = self._head, b""
        try:
            async with asyncio.timeout(READ_SECONDS):
                await self.response.write(head + event.packed if self.is_packed else event.plain)
        except TimeoutError:
            raise ConnectionResetError("the browser does not read what is sent to it") from None


async def follow_view(
    request: web.Request, hub: Hub, key: Hashable, render: Render, most: int, session: ViewerSession, clock: Clock
) -> web.StreamResponse:
    """Stream a view until the browser leaves, the session ends or the node stops. Raises `Throttled`.

    Each event is the whole view, so that nothing is missed after a gap; `last` in the query is the id of the content
    that the browser has.
    """
    if hub.viewers >= most:
        raise Throttled(f"{most} pages are kept up to date already: this one is not")
    writer = EventWriter(request)
    view = hub.enter(key, render, packed=writer.is_packed)
    seen = view.renderings
    try:
        await writer.begin()
        with hub.sessions.watching(request, session) as ended:
            await _send(request, writer, hub, view, seen, ended, clock)
    except ConnectionError:  # the browser left, or does not read
        if request.transport is not None:
            request.transport.abort()
    except Exception as error:
        if not writer.response.prepared:
            raise
        # an error page cannot follow; the browser opens another stream
        if not isinstance(error, EventdError):
            logger.exception("view failed")
        problem = str(error) if isinstance(error, EventdError) else FAILED
        with suppress(ConnectionError):
            await writer.write(StreamEvent("trouble", problem.encode()))
    finally:
        hub.leave(view, packed=writer.is_packed)
    return writer.response


async def _send(
    request: web.Request,
    writer: EventWriter,
    hub: Hub,
    view: LiveView,
    seen: int,
    ended: asyncio.Future[None],
    clock: Clock,
) -> None:
    """Send renderings, except the first `seen` ones, which may be older than the page of the browser."""
    last, problem, silent_until = request.query.get("last", ""), "", clock.monotonic() + HEARTBEAT_SECONDS
    while not hub.closed and is_open(request):
        changed = view.changed
        event: StreamEvent | None = None
        if view.renderings > seen:
            if view.problem:
                event = StreamEvent("trouble", view.problem.encode()) if view.problem != problem else None
            elif view.event is not None and view.id != last:
                event, last = view.event, view.id
            elif problem:
                event = _ALIVE
            problem = view.problem
        if event is None and clock.monotonic() >= silent_until:
            event = StreamEvent("trouble", problem.encode()) if problem else _ALIVE
        if event is not None:
            await writer.write(event)
            silent_until = clock.monotonic() + HEARTBEAT_SECONDS
        timer = clock.timer(max(0.0, silent_until - clock.monotonic()))
        try:
            await asyncio.wait({timer, changed, ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
        if ended.done() and is_open(request):
            ended.result()
            await writer.write(StreamEvent("ended", b"the session has ended"))
            return
