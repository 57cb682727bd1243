"""The end of the log as written by this process, in memory: readers that have caught up need no database read.

It holds a few small blocks, and only consecutive positions up to this process's last commit. If another process appends
in between, or a block is large, it starts over; a reader whose position is before its first reads the database.
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
"""Bytes of bodies that are held: decoding them on the event loop takes a few hundred microseconds at most."""


class RecentBlocks(NamedTuple):
    """The blocks of a topic after a position, and the head of the log after the last of them."""

    blocks: Sequence[Block]
    head: Head


class Tail:
    """The newest blocks. Only the event loop uses it."""

    def __init__(self) -> None:
        self._blocks: deque[Block] = deque()
        self._bytes = 0
        self._after = 0
        self._head: Head | None = None

    def add(self, head: Head, blocks: Sequence[Block]) -> None:
        """Add the blocks that a transaction has appended to the log at `head`, in order; at least one."""
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
        """Forget all blocks: the log has begun a new epoch."""
        self._blocks.clear()
        self._bytes = 0
        self._head = None

    def nothing_beyond(self, after: int, known: int) -> RecentBlocks | None:
        """Return an empty page if no position after `after` is `known`; None if there may be one.

        Otherwise a reader that has just caught up would read the database only to find nothing. A record that another
        process has appended meanwhile wakes it.
        """
        head = self._head
        return RecentBlocks((), head) if head is not None and after == head.last == known else None

    def beyond(self, topic_id: int, after: int, *, own: bool) -> RecentBlocks | None:
        """Return the blocks of the topic after the position `after`; None if the tail begins later, or the log has
        nothing after it."""
        if self._head is None or not self._after <= after < self._head.last:
            return None
        beyond = [*takewhile(lambda block: block.last > after, reversed(self._blocks))]
        parts = (block.within(after, block.last) for block in reversed(beyond) if block.topic_id == topic_id)
        return RecentBlocks([part for part in parts if part is not None and (part.own or not own)], self._head)
