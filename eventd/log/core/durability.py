"""Which topics want their records on the disk before they are acknowledged, as far as this process remembers.

A transaction has to know before it begins. A topic nobody remembers is taken for one that does; one that is remembered
wrongly costs a second flush, which the books ask for.
"""

from __future__ import annotations

from collections import OrderedDict

REMEMBERED = 10_000
"""Topics whose class is remembered, those that were written last."""


class DurabilityCache:
    """By the names of topics. For one loop alone, but that the writer may learn."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, bool] = OrderedDict()

    def wanted(self, topic: str) -> bool:
        """Whether a write to the topic has to wait for the disk."""
        return self._known.get(topic, True)

    def learn(self, topic: str, durability: str) -> None:
        """Of what class a topic is."""
        self._known[topic] = durability == "fsync"
        self._known.move_to_end(topic)
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
