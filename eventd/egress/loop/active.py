"""The consumers of a group's links, or of all subscriptions, each with the purpose that it was started for.

When a purpose changes, only its consumer ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from eventd.egress.loop.consumer import Consumer
from eventd.log.cursors.cursors import Cursor
from eventd.runtime.supervisor import KeepTask

PurposeT = TypeVar("PurposeT")
logger = logging.getLogger("eventd.egress")


@dataclass(slots=True)
class _ActiveConsumer(Generic[PurposeT]):
    consumer: Consumer[Any]
    task: asyncio.Task[None]
    purpose: PurposeT
    version: int
    paused: bool


class Consumers(Generic[PurposeT]):
    """Consumers by cursor name. `start` creates one for a cursor and its purpose.

    A purpose is any value that can be compared with `==`.
    """

    def __init__(self, keep: KeepTask, start: Callable[[Cursor, PurposeT], Consumer[Any]]) -> None:
        self._keep = keep
        self._start = start
        self._running: dict[str, _ActiveConsumer[PurposeT]] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[tuple[str, Consumer[Any]]]:
        return iter([(name, one.consumer) for name, one in self._running.items()])

    def __len__(self) -> int:
        return len(self._running)

    @property
    def names(self) -> list[str]:
        """Return the cursor names of the consumers, also of ones that have finished."""
        return list(self._running)

    @property
    def unsettled(self) -> int:
        """Return how many consumers are to end and still settle the work under way."""
        return sum(not task.done() for task in self._ending)

    async def retire(self, purpose_of: Callable[[str], PurposeT | None]) -> list[str]:
        """Cancel the consumers whose purpose has changed or ended, and return the names of their cursors.

        `purpose_of` returns the present purpose for a cursor's name, or None. These consumers must end before their
        cursors are adjusted: a record that one of them delivered by its old selection could be counted as delivered by
        the new one.
        """
        stale = [name for name, one in self._running.items() if one.purpose != purpose_of(name)]
        await self.end(stale, 0.0)
        return stale

    async def adjust(self, wanted: Mapping[str, Cursor], purpose_of: Callable[[str], PurposeT | None]) -> None:
        """Run a consumer for each of these cursors (by name) that has a purpose; end those of other cursors.

        A consumer that has ended, or has an outdated selection, is replaced; the others read their cursor again if it
        was paused, resumed, or is to be tried at once. `retire` notices changed purposes.
        """
        done = [
            name
            for name, one in self._running.items()
            # A selection that was changed and changed back has a new version, although the purpose looks unchanged.
            if one.task.done() or name not in wanted or one.version != wanted[name].selector_version
        ]
        await self.end(done, 0.0)
        for name, cursor in wanted.items():
            running, purpose = self._running.get(name), purpose_of(name)
            if running is None and purpose is not None:
                self._run(cursor, purpose)
            elif running is not None and running.paused != (cursor.paused_at is not None):
                running.paused = cursor.paused_at is not None
                running.consumer.reread()
            elif running is not None and cursor.retry_at is None:
                running.consumer.look_again()  # it may be waiting for a time that an operator has changed

    def _run(self, cursor: Cursor, purpose: PurposeT) -> None:
        consumer = self._start(cursor, purpose)
        task = self._keep(consumer.run, cursor.name)  # runs it again if it fails
        paused = cursor.paused_at is not None
        self._running[cursor.name] = _ActiveConsumer(consumer, task, purpose, cursor.selector_version, paused)

    async def end(self, names: Iterable[str], seconds: float) -> None:
        """Remove consumers by cursor name.

        Wait up to `seconds` for all of them to settle the work under way, then cancel the rest.
        """
        ending = [self._running.pop(name) for name in names]
        if not ending:
            return
        for running in ending:
            running.consumer.finish()
        tasks = [running.task for running in ending]
        self._ending.update(tasks)
        try:
            if seconds > 0:
                await asyncio.wait(tasks, timeout=seconds)
                if late := [each.consumer.name for each in ending if not each.task.done()]:
                    logger.warning("drain timed out", extra={"seconds": seconds, "cursors": late})
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            self._ending.difference_update(tasks)
