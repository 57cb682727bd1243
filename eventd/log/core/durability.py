"""Which topics want their records on the disk before they are acknowledged, as this process remembers it.

A transaction has to know before it begins. An unknown topic counts as one that does; where the row of the topic says
otherwise, the transaction flushes a second time.
"""

from __future__ import annotations

from collections import OrderedDict

REMEMBERED = 10_000
"""Topics that are remembered, those that were written last."""


class DurabilityCache:
    """By the names of topics. Only the loop reads it; the writer thread adds to it."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, bool] = OrderedDict()

    def wanted(self, topic: str) -> bool:
        """Whether a write to the topic has to wait for the disk."""
        return self._known.get(topic, True)

    def learn(self, topic: str, durability: str) -> None:
        """Remember the durability of a topic."""
        self._known[topic] = durability == "fsync"
        self._known.move_to_end(topic)
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
