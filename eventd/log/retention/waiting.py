"""What retention waits for: how many events are over the limits of a group, and still kept for a reader or a seal.

However long the log is, and however many of its events are over the limits, each answer reads a few rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from eventd.log.core.head import read_head
from eventd.log.core.scan import outlines
from eventd.log.core.topic_row import TopicRow, read_topic_by_id
from eventd.log.cursors.holding import read_held_position
from eventd.log.history.trees import find_open_tree
from eventd.log.retention.evict import EvictionLimits, last_by_count, read_passed
from eventd.runtime.clock import SECOND
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch, indexed_by

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

    def waiting(self) -> dict[str, int]:
        """Return the numbers that are not 0, by what retention waits for."""
        return {reason: events for reason, events in self.by_reason().items() if events}


class RetentionWaits:
    """What the retention of groups waits for, shared by all of a process that ask for it.

    An answer is given again for a second, until the topic is evicted from or has other limits.
    """

    def __init__(self) -> None:
        self._since = 0
        self._answers: dict[tuple[int, int, EvictionLimits], RetentionWait] = {}

    def read(self, conn: Connection, topic: TopicRow, limits: EvictionLimits, now: int) -> RetentionWait:
        """Return what the retention of a group's topic waits for; see `read_retention_wait`."""
        if not self._since <= now < self._since + SECOND:
            self._since, self._answers = now, {}
        question = topic.id, topic.evicted_seq, limits
        answer = self._answers.get(question)
        if answer is None:
            answer = self._answers[question] = read_retention_wait(conn, topic, limits, now)
        return answer


def read_retention_wait(conn: Connection, topic: TopicRow, limits: EvictionLimits, now: int) -> RetentionWait:
    """Return what the retention of a group's topic waits for. It reads no bodies."""
    last = _last_over_limits(conn, topic, limits, now)
    if last <= topic.evicted_seq:
        return RetentionWait()
    peers = _count_beyond(conn, topic, last, read_passed(conn, topic.id), own=True) if limits.keep_undelivered else 0
    callbacks = _count_beyond(conn, topic, last, read_held_position(conn, topic.id, now))
    unsealed = _find_unsealed(conn, topic.id)
    sealing = 0 if unsealed is None else max(0, last - unsealed.seq + 1)
    return RetentionWait(peers, callbacks, sealing)


def is_sealing_awaited(conn: Connection, topic_id: int, limits: EvictionLimits, now: int) -> bool:
    """Return whether events of a group's topic over the limits have a leaf, but no checkpoint yet."""
    unsealed = _find_unsealed(conn, topic_id)
    if unsealed is None:
        return False
    too_old = limits.max_age is not None and unsealed.recorded_at < now - limits.max_age
    return too_old or unsealed.seq <= last_by_count(read_topic_by_id(conn, topic_id), limits)


_BLOCK_AFTER: Final = (
    "SELECT seq, recorded_at FROM blocks WHERE topic_id = ? AND seq > ? AND seq <= ? ORDER BY seq LIMIT 1"
)
"""The first block of a topic that begins between two seqs."""


def _last_over_limits(conn: Connection, topic: TopicRow, limits: EvictionLimits, now: int) -> int:
    """Return the last seq of a topic that is over the limits; that of the last evicted record or less if none is."""
    expired = 0 if limits.max_age is None else _last_before(conn, topic, now - limits.max_age)
    return min(topic.head_seq, max(last_by_count(topic, limits), expired))


def _last_before(conn: Connection, topic: TopicRow, time: int) -> int:
    """Return the last seq of a topic's oldest records that were recorded before a time; the floor if none was.

    By bisection: records are recorded in the order of their seqs, unless the clock was set back meanwhile.
    """
    low, high, kept = topic.evicted_seq, topic.head_seq, topic.head_seq + 1
    middle = low  # in most cases the oldest record is recent enough
    while low < high:
        found = fetch(conn, _BLOCK_AFTER, (topic.id, middle, high))
        if found and found[0][1] < time:
            low = int(found[0][0])
        else:
            kept, high = int(found[0][0]) if found else kept, middle
        middle = (low + high) // 2
    return kept - 1


class _Unsealed(NamedTuple):
    """The first record of a topic that has a leaf in its open tree, but no checkpoint yet."""

    seq: int
    recorded_at: int


_FIRST_UNSEALED: Final = (
    "SELECT seq, recorded_at FROM blocks{} WHERE topic_id = ? AND position > ? AND own = 1 AND tree = ?"
    " ORDER BY position LIMIT 1"
)
"""The first block of the open tree after its last checkpoint; whole blocks are sealed. Before it there are only the few
own blocks that a new tree did not take over, because they lack records."""


def _find_unsealed(conn: Connection, topic_id: int) -> _Unsealed | None:
    tree = find_open_tree(conn, topic_id)
    if tree is None:
        return None
    found = fetch(conn, _FIRST_UNSEALED.format(indexed_by(conn, "blocks_own")), (topic_id, tree.position, tree.id))
    return _Unsealed(*found[0]) if found else None


def _count_beyond(conn: Connection, topic: TopicRow, last: int, position: int | None, *, own: bool = False) -> int:
    """Return how many events there are from the first event after a position to the event with the seq `last`.

    0 without a position. With `own`, they begin at the first event that entered the log at this node.
    """
    if position is None:
        return 0
    block = next(outlines(conn, topic.id, position, read_head(conn).last, own=own, portion=2), None)
    if block is None:
        return 0
    return max(0, last - block.seq - max(0, position + 1 - block.position) + 1)
