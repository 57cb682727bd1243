"""The one place where tasks begin: so every one has an owner, and none outlives the node."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Supervisor:
    """Creates every task of the node. When one that must never end fails, `failed` says so."""

    def __init__(self) -> None:
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, T], name: str) -> asyncio.Task[T]:
        """A task whose outcome its owner looks at."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._forget)
        return task

    def guard(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """A task without which the node must not go on."""
        task = self.spawn(work, name)
        task.add_done_callback(self._check)
        return task

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # its owner sees it too; this keeps asyncio from reporting it as unseen

    def _check(self, task: asyncio.Task[None]) -> None:
        if task.cancelled() or self.failed.done():
            return
        self.failed.set_exception(task.exception() or RuntimeError(f"the task {task.get_name()!r} ended"))

    async def stop(self) -> None:
        """End every task and wait for it."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.failed.done() and not self.failed.cancelled():
            self.failed.exception()
