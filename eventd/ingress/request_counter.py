"""Counts what one group receives and refuses: for its v1 status, the metrics, the refusal ledger and the log."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from eventd.ingress.claimed_sender import NO_SENDER, ClaimedSender, Sender
from eventd.ingress.metrics import IngressMetrics
from eventd.ingress.refusal_counter import RefusalCounter
from eventd.resources.group_configuration import GroupConfig
from eventd.runtime.clock import Clock
from eventd.runtime.log_pause import LogPause

logger = logging.getLogger("eventd.ingress")


@dataclass(frozen=True, slots=True)
class Counts:
    """New events, duplicates, and requests refused as a whole, of one group since this process began to serve it.

    A refresh counts as new over v2 and as a duplicate over v1, where an id conflict counts as a duplicate, too.
    """

    received: int = 0
    duplicate: int = 0
    rejected: int = 0


class RequestCounter:
    """Counts the events and refused requests of one group; `counts` has the sums."""

    def __init__(self, config: GroupConfig, metrics: IngressMetrics, refusals: RefusalCounter, clock: Clock) -> None:
        self.counts = Counts()
        self._node = config.node_name
        self._group = config.name
        self._metrics = metrics
        self._refusals = refusals
        self._pause = LogPause(clock.monotonic)

    def accept(self, node: str, new: int, duplicates: int) -> None:
        """Count events of a sender that were stored, and those that were known."""
        counts = self.counts
        self.counts = Counts(counts.received + new, counts.duplicate + duplicates, counts.rejected)
        self._metrics.accepted(self._group, node, new, duplicates)

    def count_refused_request(
        self, reason: str, claimed: ClaimedSender = NO_SENDER, sender: Callable[[], Sender] = Sender, *, code: str = ""
    ) -> None:
        """Count a request that was refused as a whole, and log the exact reason, which the answer may not show.

        At most one line a minute is logged for each reason, with the address, and the node and key id that the request
        claims. `code` is the code of the answer, which the sender's link shows; v1 has none.
        """
        if self._pause.is_over(reason):
            ours = {"node": self._node, "group": self._group}
            about = {**ours, "reason": reason, **({"code": code} if code else {})}
            logger.warning("peer request refused", extra=about | sender().show())
        counts = self.counts
        self.counts = Counts(counts.received, counts.duplicate, counts.rejected + 1)
        self.count_refusal(reason, claimed)

    def count_refusal(self, reason: str, claimed: ClaimedSender) -> None:
        """Count a refusal, of one event or of a whole request, in the metrics and the refusal ledger."""
        self._metrics.refused(self._group, reason)
        self._refusals.note(self._group, reason, claimed)
