"""What retention waits for: how many events are over the limits of a group, and still kept for a reader or a seal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from eventd.log.core.head import read_head
from eventd.log.core.scan import outlines
from eventd.log.core.topic_row import read_topic_by_id
from eventd.log.cursors.holding import read_held_position
from eventd.log.history.trees import find_open_tree
from eventd.log.retention.evict import EvictionLimits, last_over_limits, read_passed
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch

PEERS: Final = "peers"
CALLBACKS: Final = "callbacks"
SEALING: Final = "sealing"


class RetentionWait(NamedTuple):
    """How many events over the limits are kept until peers or callbacks have passed them, or until they are sealed.

    They are upper bounds: expired events, and those of other nodes between them, are not kept but counted.
    """

    peers: int = 0
    callbacks: int = 0
    sealing: int = 0

    def by_reason(self) -> Mapping[str, int]:
        """Return the numbers by what retention waits for."""
        return {PEERS: self.peers, CALLBACKS: self.callbacks, SEALING: self.sealing}


def read_retention_wait(conn: Connection, topic_id: int, limits: EvictionLimits, now: int) -> RetentionWait:
    """Return what the retention of a group's topic waits for. It reads no bodies."""
    over = _OverLimits(conn, topic_id, limits, now)
    if not over.any:
        return RetentionWait()
    peers = over.beyond(read_passed(conn, topic_id), own=True) if limits.keep_undelivered else 0
    return RetentionWait(peers, over.beyond(read_held_position(conn, topic_id, now)), over.unsealed())


def count_unsealed_over(conn: Connection, topic_id: int, limits: EvictionLimits, now: int) -> int:
    """Return how many events over the limits of a group's topic have a leaf, but no checkpoint yet, at most."""
    over = _OverLimits(conn, topic_id, limits, now)
    return over.unsealed() if over.any else 0


class _OverLimits:
    """The events of a topic that are over the limits, which end with a seq."""

    def __init__(self, conn: Connection, topic_id: int, limits: EvictionLimits, now: int) -> None:
        self._conn = conn
        self._topic_id = topic_id
        topic = read_topic_by_id(conn, topic_id)
        self._last = last_over_limits(conn, topic, limits, now)
        self.any = self._last > topic.evicted_seq

    def unsealed(self) -> int:
        """Return how many events there are from the first one on that has a leaf in the open tree, but no checkpoint.

        Whole blocks are sealed.
        """
        tree = find_open_tree(self._conn, self._topic_id)
        if tree is None:
            return 0
        first_sql = (
            "SELECT seq FROM blocks WHERE topic_id = ? AND position > ? AND seq <= ? AND own = 1 AND tree = ?"
            " ORDER BY position LIMIT 1"
        )
        found = fetch(self._conn, first_sql, (self._topic_id, tree.position, self._last, tree.id))
        return self._last - int(found[0][0]) + 1 if found else 0

    def beyond(self, position: int | None, *, own: bool = False) -> int:
        """Return how many events there are from the first one after a position on; 0 for None.

        With `own`, from the first one that entered the log here.
        """
        if position is None:
            return 0
        last = read_head(self._conn).last
        block = next(outlines(self._conn, self._topic_id, position, last, own=own, portion=2), None)
        if block is None:
            return 0
        return max(0, self._last - block.seq - max(0, position + 1 - block.position) + 1)
