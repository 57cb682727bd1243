"""Finds the nodes that other nodes have events or batches from, and that have no ledgers in the lake.

Nothing shows what else such a node should have sent: its ledgers may have been removed from the lake.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from eventd.audit.coverage.coverage import Coverage
from eventd.audit.segments.cells import HOUR, Measure
from eventd.audit.segments.ledger_summaries import LedgerSummary
from eventd.audit.segments.plan import NodeEpoch
from eventd.audit.segments.row_marks import PairKey


def pairs_without_ledgers(
    rows: Iterable[Mapping[str, Any]],
    summaries: Mapping[NodeEpoch, Sequence[LedgerSummary]],
    coverage: Coverage,
    hours: tuple[int, int],
) -> frozenset[PairKey]:
    """Return the pairs of a node without ledgers and a node that holds events of it, or recorded batches from it.

    `rows` are those of `reconcile.latest`. Batches count if the node recorded some in `hours` [first, last).
    """
    found = {PairKey(row["group"], row["source"], row["peer"]) for row in rows if row["what"] == Measure.HELD}
    for owner, each in summaries.items():
        for used in (used for summary in each for used in summary.keys):
            # The requests of other nodes are those of the batches in `inbound`.
            if used.node != owner.node and used.first < hours[1] * HOUR and used.last >= hours[0] * HOUR:
                found.add(PairKey(used.group, used.node, owner.node))
    return frozenset(one for one in found if not coverage.has_ledgers(one.source))
