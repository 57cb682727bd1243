"""Applies the declared retention of one group to its topic; for topics of records see `eventd.log.topics.limits`."""

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
from eventd.store.engine.database import Connection

KEEPS_UP: Final = 1.25
"""Retention may rest only while it has removed so many times the events that the topic has got meanwhile: it must reach
the limits also while clients write as much as the node can take."""


def eviction_pace(log: EventLog) -> Pace:
    """Return the pace at which events are evicted. Steps below a block would cut it, and write the rest again."""
    return Pace(log, size=CHUNK, least=BLOCK_RECORDS, most=2 * CHUNK)


async def apply_retention(log: EventLog, group: str, pace: Pace, *, patience: float = inf) -> Eviction:
    """Evict the events that exceed the group's retention, in small transactions; return how many, and the floor.

    Events that retention keeps for a peer stay. It rests for what others write, but no more after `patience` seconds.
    Raises NotFound, unless the group was deleted after the first eviction.
    """
    records = upto_seq = grown = 0
    hurries_from = log.clock.monotonic() + patience
    begun: int | None = None
    while True:
        try:
            step = await pace.write_step(
                partial(_evict_some, name=group, now=log.clock.now()),
                is_behind=records < KEEPS_UP * grown or log.clock.monotonic() >= hurries_from,
                least=CHUNK,
            )
        except NotFound:
            if not records:
                raise
            return Eviction(records, upto_seq, more=False)  # the group was deleted meanwhile
        begun = step.head_seq if begun is None else begun
        records, upto_seq, grown = records + step.records, step.upto_seq, step.head_seq - begun
        if not step.more:
            return Eviction(records, step.upto_seq, more=False)


def _evict_some(conn: Connection, chunk: int, *, name: str, now: int) -> Eviction:
    """Evict the next few events that exceed the group's retention, in the open transaction. Raises NotFound.

    Group, topic and retention are read in this transaction, because the group may have been applied again.
    """
    lock_head(conn)
    keep, topic = find_group(conn, name).retention, read_group_topic(conn, name)
    if not topic.id:
        return Eviction(0, 0, more=False)
    limits = EvictionLimits(keep.max_events, keep.max_age, keep.keep_undelivered)
    return evict(conn, topic.id, limits, now=now, chunk=chunk)
