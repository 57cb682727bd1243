"""Remembers in this process which topics require a flush before records are acknowledged.

A transaction must know this before it begins. An unknown topic counts as one that requires a flush. If a topic turns
out to require a flush although this process remembers otherwise, the transaction is followed by a separate flush.
"""

from __future__ import annotations

from collections import OrderedDict

REMEMBERED = 10_000
"""Maximum number of topics that are remembered: those written most recently."""


class DurabilityCache:
    """Durability by topic name. Only the event loop reads it; the writer thread adds to it."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, bool] = OrderedDict()

    def wanted(self, topic: str) -> bool:
        """Return whether a write to the topic must wait for the flush; True for a topic that is not remembered."""
        return self._known.get(topic, True)

    def learn(self, topic: str, durability: str) -> None:
        """Remember the durability of a topic."""
        self._known[topic] = durability == "fsync"
        self._known.move_to_end(topic)
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
