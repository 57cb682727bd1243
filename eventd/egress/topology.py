"""The graph that routers make of topics: which cycle a new one would close, where records meet, what becomes of one. Pure.

Routers that keep identities (`fan_in`) may meet in one topic and may close cycles: the topic drops what it has. Any
other copy is a new record, so a cycle with such a copy in it has no end but the hop cap, and needs `allow_cycle`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from eventd.egress.router import Router

GROUP = "group:"
"""What the names of the groups' topics begin with."""
MOST_COPIES = 10_000
"""Copies of one record that are foretold; two routers side by side, ten times in a row, already make a thousand."""


class Foretold(NamedTuple):
    """What one record written to a topic comes to in another: copies, and how many of them are the same record again.

    `endless`: there were more than anybody counted.
    """

    copies: int
    duplicates: int
    endless: bool = False


class Graph:
    """Routers as edges between topics, by name."""

    def __init__(self, routers: Iterable[Router]) -> None:
        self.routers = {router.name: router for router in routers}
        self._out: defaultdict[str, list[Router]] = defaultdict(list)
        self._into: defaultdict[str, list[Router]] = defaultdict(list)
        for router in sorted(self.routers.values()):
            self._out[router.source].append(router)
            self._into[router.dest].append(router)
        self._cyclic: frozenset[str] | None = None

    def out(self, topic: str) -> Sequence[Router]:
        """The routers that read a topic, by name."""
        return self._out.get(topic, ())

    def into(self, topic: str) -> Sequence[Router]:
        """The routers that write to a topic, by name."""
        return self._into.get(topic, ())
