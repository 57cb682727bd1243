"""A subscription as a sink: collects matching events until its window closes, and runs the plugin with them.

The window is read from the log and stored nowhere else: after a restart it is collected again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from eventd.egress.loop.collecting import Collector
from eventd.egress.loop.sink import Ack, OpenResult, OutboundBatch
from eventd.egress.subscriptions.runner import PluginRunner, SubscriptionDependencies
from eventd.egress.subscriptions.trigger import SubscriptionTrigger, TriggerEvent
from eventd.egress.subscriptions.window import MOST_BYTES, MOST_EVENTS, RunBatch, RunWindow
from eventd.log.core.eventlog import EventLog
from eventd.log.core.matching_page import MatchingPage
from eventd.log.cursors.cursors import Cursor
from eventd.resources.group_configuration import GroupConfig
from eventd.resources.plugin_configuration import PluginConfig, SubscriptionConfig
from federation.event import is_alive


@dataclass(frozen=True, slots=True)
class WindowBatch(OutboundBatch):
    """The first page of a batch; the sink reads the rest by itself.

    `full`: more records may exist beyond it. `gone` are the positions `(after, upto]` that retention evicted unread.
    """

    records: Sequence[TriggerEvent]
    full: bool = False
    gone: tuple[int, int] | None = None


class SubscriptionSink:
    """Runs one subscription's plugin, for its own cursor or for a backfill's."""

    window = 1
    own = False

    def __init__(
        self,
        config: SubscriptionConfig,
        plugin: PluginConfig | None,
        group: GroupConfig,
        cursor: Cursor,
        ledger_cursor: str,
        dependencies: SubscriptionDependencies,
    ) -> None:
        self._config = config
        self._topic_id = cursor.topic_id
        self._until = cursor.until
        self._log = dependencies.log
        self._changed = dependencies.changed
        self._trigger = asked = SubscriptionTrigger.of(config, group.node_name)
        self._asked: SubscriptionTrigger | None = None
        if cursor.selection:  # a backfill: the trigger may have become narrower since it began
            self._trigger, self._asked = SubscriptionTrigger.from_json(cursor.selection), asked
        # A retry runs alone: the results of later events must not be undone.
        self._most = 1 if self._trigger.positions else MOST_EVENTS
        self._tries = PluginRunner(config, plugin, group, cursor, ledger_cursor, dependencies)
        self._at = 0
        self._follows = False
        self._collector = Collector(dependencies.log, cursor.topic_id)

    # --- reading ----------------------------------------------------------------------------------------------

    def await_room(self, nudge: asyncio.Future[None]) -> None:
        """Do nothing: there is always room, so no consumer waits for it."""

    async def read(self, log: EventLog, cursor: Cursor, after: int) -> MatchingPage[TriggerEvent]:
        """Return a page of matching events beyond `after`, up to the end of a retried batch or of the backfill."""
        self._at = after
        return await self._find(after, self._most, MOST_BYTES)

    async def _find(self, after: int, limit: int, max_bytes: int) -> MatchingPage[TriggerEvent]:
        found = await self._log.matching(
            self._topic_id,
            after,
            self._trigger.at(self._log.clock.now()),
            limit=limit,
            max_bytes=max_bytes,
            until=self._end,
            at_tail=self._follows,
        )
        self._follows = not found.full
        if self._asked is None:
            return found
        return replace(found, items=[one for one in found.items if self._asked.take(one.record) is not None])

    @property
    def _end(self) -> int | None:
        """Return the last position of the batch that is tried again, or of the backfill; None without an end."""
        return self._until if self._tries.until is None else self._tries.until

    async def open(self, cursor: Cursor, page: MatchingPage[TriggerEvent], *, start: bool) -> OpenResult:
        """Let the runner `recall` earlier attempts at the next events; the result is always `reached`."""
        self._follows = False
        await self._tries.recall(cursor.position)
        return OpenResult(reached=True)

    def select(self, page: MatchingPage[TriggerEvent], after: int, attempts: int) -> WindowBatch | None:
        """Return the page as the first of a batch; None if it has neither events nor a gap."""
        gone = (page.gaps[0].after, page.gaps[-1].upto) if page.gaps else None
        if not page.items and gone is None:
            if self._is_complete(page.upto):
                self._tries.forget()  # all of it has expired meanwhile
            return None
        return WindowBatch(
            self._at, page.upto, page.head.epoch, page.head.incarnation, page.items, full=page.full, gone=gone
        )

    # --- delivering -------------------------------------------------------------------------------------------

    async def deliver(self, outbound: WindowBatch) -> Ack:
        """Collect events until the window closes, run the plugin, and return its result.

        If the node stops before the window closes, nothing is settled. Evicted events are reported first, and alone.
        """
        if outbound.gone is not None:  # reported first and alone: the following events are read again
            return self._tries.note_loss(*outbound.gone)
        batch = await self._gather(outbound)
        return Ack(0) if batch is None else await self._tries.run(batch)

    def settled(self, ack: Ack) -> None:
        """Note that the result is committed, and notify the followers of parts, which may have changed."""
        self._tries.settled(ack)
        self._changed()

    async def given_up(self) -> None:
        """Mark runs that were not settled as interrupted."""
        await self._tries.given_up()

    def wind_down(self) -> None:
        """Collect no further events; a running plugin may finish."""
        self._collector.wind_down()

    async def _gather(self, outbound: WindowBatch) -> RunBatch | None:
        """Return the batch once its window has closed; None when the node stops before that."""
        window = RunWindow(self._config.batch_window, self._config.debounce, self._most)
        window.add(outbound.records)

        async def find(after: int, shift: int) -> MatchingPage[TriggerEvent]:
            page = await self._find(after, max(1, window.room), max(1, window.room_bytes))
            window.add(page.items, shift=shift)
            return page

        upto = await self._collector.collect(window, outbound.upto, outbound.full, find, self._is_complete)
        if upto is None:
            return None
        seen, upto = _not_overtaken(window.seen, upto)
        return RunBatch.of(outbound.after, upto, _in_force(seen, self._log.clock.now()))

    def _is_complete(self, upto: int) -> bool:
        return self._end is not None and upto >= self._end


def _not_overtaken(seen: Sequence[TriggerEvent], upto: int) -> tuple[Sequence[TriggerEvent], int]:
    """Return the leading events, and the position up to which they reach.

    They end before an event that was already run by an earlier trigger, if an event of the same subject precedes it
    here. So the results of all events beyond that position are newer than the results of this batch.
    """
    names: set[str] = set()
    for index, one in enumerate(seen):
        if one.runs or one.ends:
            names.add(one.about)
        elif one.about in names:
            return seen[:index], one.position - 1
    return seen, upto


def _in_force(seen: Sequence[TriggerEvent], now: int) -> list[TriggerEvent]:
    """Return the events that have not expired.

    Expired events that revoke other events are kept too, but the plugin does not get them.
    """
    return [
        one if is_alive(one.record.expires_at, now) else one._replace(runs=False)
        for one in seen
        if one.ends or is_alive(one.record.expires_at, now)
    ]
