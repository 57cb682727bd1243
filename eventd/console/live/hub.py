"""Renders each open view at most once a second, however many viewers it has, and does not render views without
viewers.

All views together get a small part of the processor time: if there are many slow views, each is rendered less often. A
new viewer waits less: its page was rendered a moment ago, and cost as much.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from typing import Final

from eventd.console.live.session_watch import SessionWatch
from eventd.console.live.stream_event import StreamEvent
from eventd.errors import EventdError
from eventd.runtime.clock import Clock
from eventd.runtime.supervisor import SpawnTask

logger = logging.getLogger("eventd.console")
INTERVAL_SECONDS: Final = 1.0
SHARE: Final = 0.025
"""Maximum part of the time that is spent on rendering and sending all views together; each gets the same."""
VIEW_SHARE: Final = 0.015
"""Maximum part of the time for a single view."""
ENTRY_SHARE: Final = 0.25
"""Maximum part of the time, as `SHARE`, while new viewers enter constantly."""
REMEMBERED: Final = 5
"""The cost of a view is the time of the fastest of this many renderings: slower ones only waited for other work of the
node."""
MEASURED: Final = 3
"""Renderings after which the cost of a view is known. Until then a view is rendered as for viewers who enter: one slow
rendering, while the node does other work, would delay the next for many seconds."""
SENDING: Final = 5e-9
"""Approximate seconds that it takes to send one byte to one viewer."""
WAKING: Final = 5e-5
"""Approximate seconds that it takes to wake one viewer and to send it anything."""
FAILED: Final = "this page cannot be shown now: the log of the node says why"
_INSTANT: Final = 1e-6
Render = Callable[[], Awaitable[bytes]]


class LiveView:
    """A view that has viewers.

    `event`: the last rendering as an event of a stream; None before the first. `id`: identifies the content of that
    rendering. `problem`: why the view cannot be rendered now; empty if it can. `renderings`: how many renderings have
    ended, also with a problem. `newcomers`: how many viewers entered since the last rendering ended. `is_due`: data
    that the last rendering lacked has arrived since it began.
    """

    def __init__(self) -> None:
        self.viewers = 0
        self._plain_viewers = 0
        self.newcomers = 0
        self.is_due = False
        self.renderings = 0
        self.event: StreamEvent | None = None
        self.id = ""
        self.problem = ""
        self._changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._hurried: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def put(self, content: bytes) -> float:
        """Store a rendering, and wake the viewers if its content is new.

        Return approximately how many seconds it takes to send it to all of them.
        """
        digest = hashlib.sha256(content).hexdigest()[:16]
        newcomers = self._count()
        if self.event is not None and digest == self.id and not self.problem:
            if newcomers:
                self.wake()
            return self._sending(self.event, newcomers)
        self.event, self.id, self.problem = StreamEvent("view", content, digest), digest, ""
        self.wake()
        return self._sending(self.event, self.viewers)

    def _sending(self, event: StreamEvent, viewers: int) -> float:
        size = len(event.plain if self._plain_viewers else event.packed) if viewers else 0
        return viewers * (WAKING + size * SENDING)

    def fail(self, problem: str) -> None:
        """Note that the view cannot be rendered."""
        if self._count() or problem != self.problem:
            self.problem = problem
            self.wake()

    def _count(self) -> int:
        """Count a rendering that has ended; return for how many viewers it is the first one."""
        self.renderings += 1
        newcomers, self.newcomers = self.newcomers, 0
        return newcomers

    def enter(self, *, packed: bool) -> None:
        """Add a viewer, which gets events `packed` or plain."""
        self.viewers += 1
        self._plain_viewers += not packed
        self.newcomers += 1
        self._hurry()

    def renew(self) -> None:
        """Render the view again soon, because data that it lacks has arrived."""
        self.is_due = True
        self._hurry()

    def _hurry(self) -> None:
        hurried, self._hurried = self._hurried, asyncio.get_running_loop().create_future()
        hurried.set_result(None)

    def leave(self, *, packed: bool) -> None:
        """Count one viewer less."""
        self.viewers -= 1
        self._plain_viewers -= not packed
        if not self.viewers:
            self.newcomers = 0

    def wake(self) -> None:
        """Wake all viewers."""
        changed, self._changed = self._changed, asyncio.get_running_loop().create_future()
        changed.set_result(None)

    @property
    def changed(self) -> asyncio.Future[None]:
        """Return a future that is done with the next change."""
        return self._changed

    @property
    def hurried(self) -> asyncio.Future[None]:
        """Return a future that is done when the next viewer enters, or when `renew` is called."""
        return self._hurried


class Hub:
    """The views of one process. A viewer that is slow misses all but the newest content."""

    def __init__(self, clock: Clock, spawn: SpawnTask) -> None:
        self._clock = clock
        self.spawn = spawn
        self.sessions = SessionWatch(clock, spawn)
        self._views: dict[Hashable, LiveView] = {}
        self.viewers = 0
        self.closed = False

    def close(self) -> None:
        """End all streams: the node stops."""
        self.closed = True
        for view in self._views.values():
            view.wake()

    def enter(self, key: Hashable, render: Render, *, packed: bool = True) -> LiveView:
        """Add a viewer to the view with this key, which is rendered from now on, and return the view.

        `packed`: the viewer takes compressed events.

        `leave` must follow. The viewer's page may be newer than the last rendering, so send it only renderings that
        end after this call, which shows in the growth of `renderings`. The next rendering begins soon.
        """
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = LiveView()
            self.spawn(self._keep(key, view, render), "console view")
        view.enter(packed=packed)
        self.viewers += 1
        return view

    def renew(self, key: Hashable) -> None:
        """Render the view with this key again soon, if it has viewers, because data that it lacks has arrived."""
        if (view := self._views.get(key)) is not None:
            view.renew()

    def leave(self, view: LiveView, *, packed: bool = True) -> None:
        """Count one viewer less, of this view and in all."""
        view.leave(packed=packed)
        self.viewers -= 1

    async def _keep(self, key: Hashable, view: LiveView, render: Render) -> None:
        times: deque[float] = deque(maxlen=REMEMBERED)
        try:
            while view.viewers and not self.closed:
                begun, sending, view.is_due = self._clock.monotonic(), 0.0, False
                try:
                    sending = view.put(await render())
                except EventdError as error:
                    view.fail(str(error))
                except Exception:
                    logger.exception("view failed")
                    view.fail(FAILED)
                times.append(self._clock.monotonic() - begun)
                cost = min(times) + sending
                soonest = begun + max(INTERVAL_SECONDS, cost * self._watched / ENTRY_SHARE)
                await self._clock.sleep(max(0.0, soonest - self._clock.monotonic()))
                if len(times) >= MEASURED:
                    await self._rest(view, begun, times[-1], cost)
        finally:
            if self._views.get(key) is view:
                del self._views[key]
            view.wake()

    @property
    def _watched(self) -> int:
        """Return the number of views that have viewers; views without viewers cost nothing."""
        return max(1, sum(view.viewers > 0 for view in self._views.values()))

    async def _rest(self, view: LiveView, begun: float, took: float, cost: float) -> None:
        """Wait until the view may be rendered again, has newcomers or data that it lacked, or has no viewers any more.

        The length of the wait depends on the number of views, which may change during the wait.
        """
        while view.viewers and not view.newcomers and not view.is_due and not self.closed:
            due = begun + max(INTERVAL_SECONDS + took, cost / VIEW_SHARE, cost * self._watched / SHARE)
            left = due - self._clock.monotonic()
            if left <= _INSTANT:
                return
            timer = self._clock.timer(min(left, INTERVAL_SECONDS))
            try:
                await asyncio.wait({timer, view.hurried}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                timer.cancel()
