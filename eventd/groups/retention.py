"""Applies the declared retention of one group to its topic; for topics of records see `eventd.log.topics.limits`."""

from __future__ import annotations

from eventd.errors import NotFound
from eventd.groups.lookup import find_group, read_group_topic
from eventd.log.core.head import lock_head
from eventd.log.retention.evict import Eviction, EvictionLimits, evict
from eventd.runtime.clock import Clock
from eventd.store.engine.database import Connection, Database


async def apply_retention(database: Database, clock: Clock, group: str) -> Eviction:
    """Evict the events that exceed the group's retention, in small transactions; return how many, and the floor.

    Events that retention keeps for a peer stay. Raises NotFound, unless the group was deleted after the first eviction.
    """
    records = upto_seq = 0
    while True:
        try:
            step = await database.write(_evict_some, group, clock.now())
        except NotFound:
            if not records:
                raise
            return Eviction(records, upto_seq, more=False)  # the group was deleted meanwhile
        records, upto_seq = records + step.records, step.upto_seq
        if not step.more:
            return Eviction(records, step.upto_seq, more=False)


def _evict_some(conn: Connection, name: str, now: int) -> Eviction:
    """Evict the next few events that exceed the group's retention, in the open transaction. Raises NotFound.

    Group, topic and retention are read in this transaction, because the group may have been applied again.
    """
    lock_head(conn)
    keep, topic = find_group(conn, name).retention, read_group_topic(conn, name)
    if not topic.id:
        return Eviction(0, 0, more=False)
    return evict(conn, topic.id, EvictionLimits(keep.max_events, keep.max_age, keep.keep_undelivered), now=now)
