"""The periodic chores of a node (retention, checkpoints, gauges, counts of refusals), and the work that must be done
before it serves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from eventd.ingress.refusal_counter import RefusalCounter
from eventd.log.core.eventlog import EventLog
from eventd.log.core.head import lock_head
from eventd.log.core.id_merges import merge_ids
from eventd.log.cursors.dead_letters import recount_dead_letters
from eventd.log.retention.waiting import RetentionWaits
from eventd.log.topics.limits import clear_ephemeral
from eventd.log.topics.write import shorten_windows
from eventd.node.attempts import Attempts
from eventd.node.gauges import Gauges
from eventd.node.retention import Retention
from eventd.observe.metrics import Metrics
from eventd.resources.group_configuration import GroupConfig
from eventd.runtime.supervisor import Chore
from eventd.runtime.worker_share import ALL, Share
from eventd.settings.model import Settings
from eventd.store.engine.database import Connection
from eventd.store.rows.actions import shorten_keys
from eventd.store.rows.leases import release_leases

MERGE_SECONDS = 0.1
"""Seconds between two rounds of merges of ids: meanwhile a busy node writes some runs more."""
RETRY_SECONDS = 1.0
"""Seconds after which a failed round of merges is tried again."""
CHECKPOINT_SECONDS = 0.5
"""Seconds between two checkpoints of SQLite's write-ahead log."""


class Housekeeping:
    """The chores of one process of a node. A failed chore is logged and tried again; it never ends the node."""

    def __init__(self, log: EventLog, settings: Settings, metrics: Metrics, share: Share = ALL) -> None:
        self._share = share
        self._log = log
        self._attempts = Attempts(log.clock.monotonic)
        self._settings = settings
        self._retention = Retention(log, settings, metrics)
        self.retention_waits = RetentionWaits()
        self._gauges = Gauges(log, metrics, settings, self.retention_waits)
        self.refusals = RefusalCounter(log.clock)

    async def begin(self) -> None:
        """Do the work that must precede serving: count the dead letters of all cursors, remove all ephemeral records,
        end all leases and delays of jobs, and windows of idempotency keys that would stand too long.

        Queues with durable leases keep theirs. A node for one group only counts, because other nodes may use the same
        database. A process other than the node's first, or one that replaces a process that ended, does nothing of
        this. In every process, commits no longer checkpoint SQLite's write-ahead log: checkpoints become a chore of the
        first process.
        """
        await self._log.database.take_over_checkpoints()
        if self._share.resumed or not self._share.is_first:
            return
        await self._log.database.write(_recount)
        if self._settings.group is not None:
            return
        await self._log.database.write(_begin_steady_time, self._log.clock.steady())
        after: int | None = 0
        while after is not None:
            after = await self._log.database.write(clear_ephemeral, after, self._log.clock.now())

    async def end(self) -> None:
        """Write the counts of refused requests that are not written yet, after everything else has ended."""
        await self.refusals.write(self._log, ends=True)

    def chores(self, groups: Callable[[], Iterable[GroupConfig]]) -> dict[str, Chore]:
        """Return the chores of this process by name: `refusals`, `ids`, and in the node's first process the node's."""
        everywhere: dict[str, Chore] = {
            "refusals": partial(self.refusals.write_for_ever, self._log),
            "ids": self.merge_ids_for_ever,
        }
        if not self._share.is_first:
            return everywhere
        return {
            **everywhere,
            "retention": partial(self._retention.apply_for_ever, groups),
            "old rows": self._retention.delete_rows_for_ever,
            "deleted topics": self._retention.remove_deleted_for_ever,
            "sweep": self._retention.sweep_for_ever,
            "checkpoint": self.checkpoint_for_ever,
            "measure": partial(self._gauges.run_for_ever, groups),
        }

    async def merge_ids_for_ever(self) -> None:
        """Merge the runs of ids that this process finds at its start, or writes, until cancelled."""
        while True:
            await self._log.unmerged.wait()
            merged = await self._attempts.make("ids", merge_ids(self._log))
            await self._log.clock.sleep(MERGE_SECONDS if merged else RETRY_SECONDS)

    async def checkpoint_for_ever(self) -> None:
        """Checkpoint SQLite's write-ahead log regularly, outside of the appends, until cancelled."""
        while True:
            await self._log.clock.sleep(CHECKPOINT_SECONDS)
            await self._attempts.make("checkpoint", self._log.database.checkpoint())


def _recount(conn: Connection) -> None:
    lock_head(conn)
    recount_dead_letters(conn)


def _begin_steady_time(conn: Connection, steady: int) -> None:
    lock_head(conn)
    release_leases(conn, steady)
    shorten_windows(conn, steady)
    shorten_keys(conn, steady)
