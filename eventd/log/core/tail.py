"""The end of the log as written by this process, in memory: readers that have caught up need no database read.

The tail holds a few small blocks, of consecutive positions up to this process's last append. If another process
appends in between, or a block is large, it starts over; a reader whose position is before the tail reads the database.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile
from typing import NamedTuple

from eventd.log.core.blocks import Block
from eventd.log.core.values import Head

TAIL_BYTES = 64 << 10
"""Maximum bytes of bodies that are held: the event loop decodes them in a few hundred microseconds."""


class RecentBlocks(NamedTuple):
    """The blocks of a topic after a position, in order, and the head up to which the log was searched for them."""

    blocks: Sequence[Block]
    head: Head


class Tail:
    """The newest blocks that this process appended. Only the event loop uses it."""

    def __init__(self) -> None:
        self._blocks: deque[Block] = deque()
        self._bytes = 0
        self._after = 0
        self._head: Head | None = None

    def add(self, head: Head, blocks: Sequence[Block]) -> None:
        """Add the blocks that a transaction has appended, in order, at least one; `head` is the head before them.

        Removes the earlier blocks if these do not follow them directly, and the oldest blocks beyond `TAIL_BYTES`.
        """
        if self._head is None or (self._head.epoch, self._head.next_position) != (head.epoch, head.next_position):
            self.clear()
            self._after = head.last
        for block in blocks:
            self._blocks.append(block)
            self._bytes += block.bytes
        self._head = replace(head, next_position=blocks[-1].last + 1)
        while self._bytes > TAIL_BYTES:
            oldest = self._blocks.popleft()
            self._bytes -= oldest.bytes
            self._after = oldest.last

    def clear(self) -> None:
        """Remove all blocks, as after the beginning of a new epoch."""
        self._blocks.clear()
        self._bytes = 0
        self._head = None

    def nothing_beyond(self, after: int, known: int) -> RecentBlocks | None:
        """Return no blocks, and the head, if `after` is the end of the tail and the last `known` position; else None.

        This spares a reader that has just caught up a database read without result. A record that another process has
        appended meanwhile wakes it.
        """
        head = self._head
        return RecentBlocks((), head) if head is not None and after == head.last == known else None

    def beyond(self, topic_id: int, after: int, *, own: bool) -> RecentBlocks | None:
        """Return the blocks of the topic after the position `after`; with `own`, only those that entered at this node.

        None if the tail begins after that position, or has nothing after it.
        """
        if self._head is None or not self._after <= after < self._head.last:
            return None
        beyond = [*takewhile(lambda block: block.last > after, reversed(self._blocks))]
        parts = (block.within(after, block.last) for block in reversed(beyond) if block.topic_id == topic_id)
        return RecentBlocks([part for part in parts if part is not None and (part.own or not own)], self._head)
