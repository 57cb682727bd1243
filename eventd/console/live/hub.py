"""Renders each open view at most once a second, however many visitors look at it, and no view without visitors.

All views together get a small part of the time: many that take long are rendered less often.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Hashable
from typing import Any, Final

from eventd.errors import EventdError
from eventd.runtime.clock import Clock

logger = logging.getLogger("eventd.console")
INTERVAL_SECONDS: Final = 1.0
SHARE: Final = 0.05
"""Maximum part of the time that is spent on rendering and sending all views together; each gets the same."""
SENDING: Final = 5e-9
"""Approximate seconds that it takes to send one byte to one viewer."""
Render = Callable[[], Awaitable[bytes]]
Spawn = Callable[[Coroutine[Any, Any, None], str], object]


class LiveView:
    """A view that is looked at. `event`: as it was rendered last, for a stream; None before the first time.

    `id`: names what was rendered. `problem`: why it cannot be rendered now; empty if it can.
    """

    def __init__(self) -> None:
        self.viewers = 0
        self.event: bytes | None = None
        self.id = ""
        self.problem = ""
        self._changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def put(self, content: bytes) -> int:
        """Take what was rendered, and wake the viewers if it is new; return how many bytes are sent to all of them."""
        digest = hashlib.sha256(content).hexdigest()[:16]
        if digest == self.id and not self.problem:
            return 0
        self.event, self.id, self.problem = make_event("view", content, digest), digest, ""
        self.wake()
        return len(self.event) * self.viewers

    def fail(self, problem: str) -> None:
        """Note that the view cannot be rendered."""
        if problem != self.problem:
            self.problem = problem
            self.wake()

    def wake(self) -> None:
        """Wake all viewers."""
        changed, self._changed = self._changed, asyncio.get_running_loop().create_future()
        changed.set_result(None)

    @property
    def changed(self) -> asyncio.Future[None]:
        """Return a future that is done with the next change."""
        return self._changed


def make_event(name: str, data: bytes, number: str = "") -> bytes:
    """Return one server-sent event; each line of the data becomes a line of its own."""
    lines = b"".join(b"data: " + line + b"\n" for line in data.split(b"\n"))
    return f"event: {name}\n".encode() + (f"id: {number}\n".encode() if number else b"") + lines + b"\n"


class Hub:
    """The views of one process. A viewer that is slow misses all but the newest content."""

    def __init__(self, clock: Clock, spawn: Spawn) -> None:
        self._clock = clock
        self._spawn = spawn
        self._views: dict[Hashable, LiveView] = {}
        self.viewers = 0
        self.closed = False

    def close(self) -> None:
        """End all streams: the node stops."""
        self.closed = True
        for view in self._views.values():
            view.wake()

    def enter(self, key: Hashable, render: Render) -> LiveView:
        """Return the view of a key for one more viewer; it is rendered from now on. `leave` must follow."""
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = LiveView()
            self._spawn(self._keep(key, view, render), "console view")
        view.viewers += 1
        self.viewers += 1
        return view

    def leave(self, view: LiveView) -> None:
        """Take one viewer off."""
        view.viewers -= 1
        self.viewers -= 1

    async def _keep(self, key: Hashable, view: LiveView, render: Render) -> None:
        try:
            while view.viewers and not self.closed:
                begun, sent = self._clock.monotonic(), 0
                try:
                    sent = view.put(await render())
                except EventdError as error:
                    view.fail(str(error))
                except Exception:
                    logger.exception("view failed")
                    view.fail("this page cannot be shown now: the log of the node says why")
                took = self._clock.monotonic() - begun + sent * SENDING
                await self._clock.sleep(max(INTERVAL_SECONDS, took * (len(self._views) / SHARE - 1)))
        finally:
            if self._views.get(key) is view:
                del self._views[key]
            view.wake()
