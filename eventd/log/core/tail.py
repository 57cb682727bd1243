"""The end of the log as this process wrote it, in memory: who has caught up need not ask the database for one record.

It holds a few small blocks, and only an unbroken run of positions up to this process's last commit. Where another
process appended in between, or a block is large, it begins anew; a reader who is behind it reads from the database.
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
"""Bytes of bodies that are held: taken apart on the loop, they take it no longer than a few hundred microseconds."""


class RecentBlocks(NamedTuple):
    """The blocks of a topic beyond a position, and the head they end at."""

    blocks: Sequence[Block]
    head: Head


class Tail:
    """The newest blocks. For one loop alone."""

    def __init__(self) -> None:
        self._blocks: deque[Block] = deque()
        self._bytes = 0
        self._after = 0
        self._head: Head | None = None

    def add(self, head: Head, blocks: Sequence[Block]) -> None:
        """What a transaction that found the log at `head` has appended, in order; at least one block."""
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
        """Forget all of it: the log goes on under another name."""
        self._blocks.clear()
        self._bytes = 0
        self._head = None

    def nothing_beyond(self, after: int, known: int) -> RecentBlocks | None:
        """That there is nothing beyond `after`, where no position beyond it is `known`; None where there may be.

        Whoever has just read all would otherwise ask the database only to hear that. What another process has appended
        meanwhile, it is woken for.
        """
        head = self._head
        return RecentBlocks((), head) if head is not None and after == head.last == known else None

    def beyond(self, topic_id: int, after: int, *, own: bool) -> RecentBlocks | None:
        """What the topic has beyond `after`; None when that cannot be said from here, or there is nothing new."""
        if self._head is None or not self._after <= after < self._head.last:
            return None
        beyond = [*takewhile(lambda block: block.last > after, reversed(self._blocks))]
        parts = (block.within(after, block.last) for block in reversed(beyond) if block.topic_id == topic_id)
        return RecentBlocks([part for part in parts if part is not None and (part.own or not own)], self._head)
