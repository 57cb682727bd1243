"""The latest times at which the ledgers of other nodes show that a node was at work, and everything that they prove
about the node beyond its own ledgers.

Deliveries that were acknowledged after the end of the peer's ledgers are not in these ledgers. For recent deliveries
this is normal, because nodes ship at different times. A node whose ledgers end long before its peers last heard from
it has stopped shipping, even if it was closed, or its last state says otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from eventd.audit.coverage.coverage import Coverage
from eventd.audit.coverage.silence import Act, Mention
from eventd.audit.segments.cells import HOUR, Measure
from eventd.audit.segments.ledger_summaries import LedgerSummary
from eventd.audit.segments.plan import NodeEpoch
from eventd.audit.segments.row_marks import PairKey
from eventd.runtime.clock import SECOND

_UNKNOWN: Final = 15 * 60 * SECOND
"""The largest difference of two clocks that is allowed for if none of the two nodes' receipts shows it."""


@dataclass
class Mentions:
    """The mentions of the nodes of a lake. `latest`: by node, the latest mention in other nodes' ledgers.

    `beyond`: by pair and sender, at most how many deliveries were acknowledged after the end of the peer's ledgers; 0
    if the peer has none.
    """

    latest: dict[str, Mention] = field(default_factory=dict)
    beyond: Counter[tuple[PairKey, str]] = field(default_factory=Counter)

    def add(self, node: str, mention: Mention) -> None:
        """Keep a mention of the node if it is the latest."""
        self.latest[node] = max(mention, self.latest.get(node, mention))


def find_mentions(
    rows: Iterable[Mapping[str, Any]], summaries: Mapping[NodeEpoch, Sequence[LedgerSummary]], coverage: Coverage
) -> Mentions:
    """Return the mentions in the cells of the requested hours: `rows` are those of `reconcile.latest`.

    That a node holds an event does not show when its source sent it: another node may have relayed it. So the `inbound`
    ledgers have to show a batch of the source, too.
    """
    found = Mentions()
    held: dict[tuple[str, str], int] = {}
    for row in rows:
        if row["what"] == Measure.HELD:
            ends = (row["source"], row["peer"])
            held[ends] = max(row["high"], held.get(ends, 0))
        else:
            found.beyond[PairKey(row["group"], row["source"], row["peer"]), row["node"]] += row["n"]
            found.add(row["peer"], _mention(coverage, row["node"], row["peer"], row["high"], "acknowledged"))
    for (sender, node), at in _last_batches(summaries).items():
        if (sender, node) in held:
            found.add(sender, _mention(coverage, node, sender, min(at, held[sender, node]), "sent"))
    return found


def _mention(coverage: Coverage, by: str, node: str, at: int, act: Act) -> Mention:
    """Return a mention of `node`.

    `at` is by the clock of `by`; the mention has the earliest time that it may be by the node's clock.
    """
    offset = coverage.plan.skew_between(by, node, at // HOUR)
    earliest = min(offset.low, offset.high) if coverage.plan.clocks.get((by, node)) else -_UNKNOWN
    return Mention(at + earliest, by, act)


def _last_batches(summaries: Mapping[NodeEpoch, Sequence[LedgerSummary]]) -> dict[tuple[str, str], int]:
    """Return when each node last recorded a batch of a sender (microseconds), by sender and node."""
    last: dict[tuple[str, str], int] = {}
    for owner, each in summaries.items():
        for used in (used for summary in each for used in summary.keys):
            if used.node != owner.node:
                ends = (used.node, owner.node)
                last[ends] = max(used.last, last.get(ends, 0))
    return last
