"""Ends streams whose session has ended or whose browser has left: one task checks those of all, each session once.

A task and a timer for each stream would take more of the processor than all that 50 of them show.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

from aiohttp import web

from eventd.runtime.clock import Clock
from eventd.runtime.supervisor import SpawnTask

CHECK_SECONDS: Final = 0.5
"""How often the sessions are checked."""
GRACE_SECONDS: Final = 0.2
"""Seconds that a stream may last after the end of its session; then its connection is cut, even if it is blocked."""


class ViewerSession(NamedTuple):
    """The session of a stream. `key`: equal for the streams of the same session; `has_ended` checks it."""

    key: Hashable
    has_ended: Callable[[], Awaitable[bool]]


@dataclass(frozen=True, slots=True, eq=False)
class _WatchedStream:
    """A stream: `ended` is done when its session has ended, or with the error of the check, or its browser has left."""

    request: web.Request
    session: ViewerSession
    ended: asyncio.Future[None]


class SessionWatch:
    """The sessions of the open streams of a process."""

    def __init__(self, clock: Clock, spawn: SpawnTask) -> None:
        self._clock = clock
        self._spawn = spawn
        self._streams: dict[_WatchedStream, None] = {}  # in the order in which they began
        self._runs = False

    @contextmanager
    def watching(self, request: web.Request, session: ViewerSession) -> Iterator[asyncio.Future[None]]:
        """While the block runs, check a session.

        The future is done when it has ended or the browser has left, and has the error of a check that failed.
        """
        stream = _WatchedStream(request, session, asyncio.get_running_loop().create_future())
        self._streams[stream] = None
        if not self._runs:
            self._runs = True
            self._spawn(self._run(), "sessions of streams")
        try:
            yield stream.ended
        finally:
            del self._streams[stream]

    async def _run(self) -> None:
        try:
            while self._streams:
                sessions: dict[Hashable, list[_WatchedStream]] = {}
                for stream in self._streams:
                    if stream.ended.done():
                        continue
                    if is_open(stream.request):
                        sessions.setdefault(stream.session.key, []).append(stream)
                    else:
                        stream.ended.set_result(None)
                await asyncio.gather(*map(self._check, sessions.values()))
                await self._clock.sleep(CHECK_SECONDS)
        finally:
            self._runs = False

    async def _check(self, streams: list[_WatchedStream]) -> None:
        """End the streams of a session that has ended or cannot be checked, and soon cut those that do not end then."""
        failure: Exception | None = None
        try:
            if not await streams[0].session.has_ended():
                return
        except Exception as error:
            failure = error
        for stream in streams:
            if stream.ended.done():
                continue
            if failure is None:
                stream.ended.set_result(None)
            else:
                stream.ended.set_exception(failure)
                stream.ended.exception()  # a stream that is blocked does not see it
            self._spawn(self._cut(stream), "end of a stream")

    async def _cut(self, stream: _WatchedStream) -> None:
        await self._clock.sleep(GRACE_SECONDS)
        if stream in self._streams and stream.request.transport is not None:
            stream.request.transport.abort()


def is_open(request: web.Request) -> bool:
    """Return whether the browser is still there: without a change of the view, no write would show that it left."""
    return request.transport is not None and not request.transport.is_closing()
