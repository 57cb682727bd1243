"""Renders each open view at most once a second, however many visitors look at it, and no view without visitors."""

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
SHARE: Final = 0.1
"""Maximum part of the time that is spent on rendering one view: a view that takes long is rendered less often."""
Render = Callable[[], Awaitable[bytes]]
Spawn = Callable[[Coroutine[Any, Any, None], str], object]


class LiveView:
    """A view that is looked at. `content`: as it was rendered last, `id` names it; None before the first time.

    `problem`: why it cannot be rendered now; empty if it can.
    """

    def __init__(self) -> None:
        self.viewers = 0
        self.content: bytes | None = None
        self.id = ""
        self.problem = ""
        self._changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def put(self, content: bytes) -> None:
        """Take what was rendered, and wake the viewers if it is new."""
        digest = hashlib.sha256(content).hexdigest()[:16]
        if digest != self.id or self.problem:
            self.content, self.id, self.problem = content, digest, ""
            self.wake()

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
                begun = self._clock.monotonic()
                try:
                    view.put(await render())
                except EventdError as error:
                    view.fail(str(error))
                except Exception:
                    logger.exception("view failed")
                    view.fail("this page cannot be shown now: the log of the node says why")
                took = self._clock.monotonic() - begun
                await self._clock.sleep(max(INTERVAL_SECONDS, took * (1 / SHARE - 1)))
        finally:
            if self._views.get(key) is view:
                del self._views[key]
            view.wake()
