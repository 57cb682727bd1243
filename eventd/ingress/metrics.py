"""What the receiving side reports to the metrics of a node."""

from __future__ import annotations

from typing import Protocol


class IngressMetrics(Protocol):
    """Interface of the metrics of received requests. It also learns which peers are up, or asked for their mark."""

    def accepted(self, group: str, node: str, new: int, duplicates: int) -> None: ...

    def refused(self, group: str, reason: str, count: int = 1) -> None: ...

    def verified(self, group: str, protocol: str) -> None: ...

    def alive(self, group: str, node: str) -> None: ...

    def started(self, group: str, node: str) -> None: ...

    def history_verified(self, group: str, result: str, events: int) -> None: ...
