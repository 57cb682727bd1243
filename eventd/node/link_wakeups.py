"""Wakes the links to a peer when requests of that peer arrive: it is up again."""

from __future__ import annotations

from collections.abc import Mapping

from eventd.node.membership import Membership
from eventd.observe.metrics import Metrics


class NodeMetrics(Metrics):
    """`Metrics` that also wake the links to a peer that sent a request, and reopen them after its mark query."""

    def __init__(self, groups: Mapping[str, Membership]) -> None:
        super().__init__()
        self._groups = groups

    def alive(self, group: str, node: str) -> None:
        if group in self._groups:
            self._groups[group].wake(node)

    def started(self, group: str, node: str) -> None:
        if group in self._groups:
            self._groups[group].reopen(node)
