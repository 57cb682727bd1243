"""Applies the declared retention of groups to their topics; for topics of records see `eventd.log.topics.limits`."""

from __future__ import annotations

from functools import partial
from math import inf
from typing import Final

from eventd.errors import NotFound
from eventd.groups.lookup import find_group, read_group_topic
from eventd.log.core.blocks import BLOCK_RECORDS
from eventd.log.core.eventlog import EventLog
from eventd.log.core.head import lock_head
from eventd.log.core.pace import Pace
from eventd.log.retention.evict import CHUNK, Eviction, EvictionLimits, evict
from eventd.resources.group_configuration import RetentionConfig
from eventd.store.engine.database import Connection

KEEPS_UP: Final = 1.25
"""Retention may rest only while it has removed so many times the records that the whole log has got meanwhile: it must
reach the limits also while clients write as much as the node can take."""
STEPS: Final = 16
"""Steps after which a round turns to the next group: one whose clients write all the time must not hold up others."""


def eviction_pace(log: EventLog) -> Pace:
    """Return the pace at which events are evicted.

    Steps below a block would cut it, and write the rest again. The largest step is larger than a transaction of
    usual clients, after each of which it may have one turn only.
    """
    return Pace(log, size=CHUNK, least=BLOCK_RECORDS, most=8 * CHUNK)


class EvictionRound:
    """One round of retention over any number of groups, which keeps up with what is written to all of them together.

    While one group is evicted from, the others grow. So what the round has removed is compared with the growth of the
    whole log since it began: a round that keeps up ends with fewer events over the limits than it began with. It does
    not rest at all after `patience` seconds.
    """

    def __init__(self, log: EventLog, pace: Pace, *, patience: float = inf) -> None:
        self._log = log
        self._pace = pace
        self._hurries_from = log.clock.monotonic() + patience
        self._begun = log.wakeups.head
        self._removed = 0

    @property
    def is_behind(self) -> bool:
        """Return whether the next step must not rest."""
        grown = self._log.wakeups.head - self._begun
        return self._removed < KEEPS_UP * grown or self._log.clock.monotonic() >= self._hurries_from

    async def visit(self, group: str, *, steps: float = inf) -> Eviction:
        """Evict events that exceed the group's retention, in at most so many small transactions.

        Return how many, the floor, and whether another visit can evict more. Events that retention keeps for a peer
        stay. Raises NotFound, unless the group was deleted after the first eviction.
        """
        records = upto_seq = taken = 0
        while taken < steps:
            taken += 1
            try:
                step = await self._pace.write_step(
                    partial(_evict_some, name=group, now=self._log.clock.now()),
                    amount=_work_of,
                    is_behind=self.is_behind,
                )
            except NotFound:
                if not records:
                    raise
                return Eviction(records, upto_seq, more=False)  # the group was deleted meanwhile
            self._removed += step.records
            records, upto_seq = records + step.records, step.upto_seq
            if not step.more:
                return Eviction(records, upto_seq, more=False)
        return Eviction(records, upto_seq, more=True)


async def apply_retention(log: EventLog, group: str, pace: Pace, *, patience: float = inf) -> Eviction:
    """Apply the retention of one group, as a round of its own; see `EvictionRound.visit`."""
    return await EvictionRound(log, pace, patience=patience).visit(group)


def _work_of(eviction: Eviction) -> int:
    return eviction.work


def _evict_some(conn: Connection, chunk: int, *, name: str, now: int) -> Eviction:
    """Evict the next few events that exceed the group's retention, in the open transaction. Raises NotFound.

    Group, topic and retention are read in this transaction, because the group may have been applied again.
    """
    lock_head(conn)
    keep, topic = find_group(conn, name).retention, read_group_topic(conn, name)
    if not topic.id:
        return Eviction(0, 0, more=False)
    return evict(conn, topic.id, limits_of(keep), now=now, chunk=chunk)


def limits_of(keep: RetentionConfig) -> EvictionLimits:
    """Return the limits of a declared retention."""
    return EvictionLimits(keep.max_events, keep.max_age, keep.keep_undelivered)
