"""Applies a group's retention."""

from __future__ import annotations

from eventd.groups.lookup import find_group, read_group_topic
from eventd.log.core.head import lock_head
from eventd.log.retention.evict import Eviction, EvictionLimits, evict
from eventd.runtime.clock import Clock
from eventd.store.engine.database import Connection, Database


async def apply_retention(database: Database, clock: Clock, group: str) -> Eviction:
    """Apply the group's retention now; return the sum of all steps. Raises NotFound."""
    records = 0
    while True:
        step = await database.write(_evict_some, group, clock.now())
        records += step.records
        if not step.more:
            return Eviction(records, step.upto_seq, more=False)


def _evict_some(conn: Connection, name: str, now: int) -> Eviction:
    """Apply the group's retention to a few of its records, in the open transaction. Raises NotFound.

    Group, topic and retention are read in this transaction, because the group may have been applied again.
    """
    lock_head(conn)
    keep, topic = find_group(conn, name).retention, read_group_topic(conn, name)
    if not topic.id:
        return Eviction(0, 0, more=False)
    return evict(conn, topic.id, EvictionLimits(keep.max_events, keep.max_age, keep.keep_undelivered), now=now)
