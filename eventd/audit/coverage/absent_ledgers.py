"""Finds the nodes that have no ledgers in the lake although other nodes have events or batches from them.

Nothing shows which other events such a node should have sent: its ledgers may have been removed from the lake.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from eventd.audit.coverage.coverage import Coverage
from eventd.audit.segments.cells import Measure
from eventd.audit.segments.row_marks import PairKey


def pairs_without_ledgers(
    rows: Iterable[Mapping[str, Any]], received: Iterable[Mapping[str, Any]], coverage: Coverage
) -> frozenset[PairKey]:
    """Return the pairs of a node without ledgers and a node that holds events of it, or recorded batches from it.

    `rows` are those of `reconcile.latest`; `received`: the pairs with batches of the requested hours.
    """
    found = {PairKey(row["group"], row["source"], row["peer"]) for row in rows if row["what"] == Measure.HELD}
    found |= {PairKey(row["group"], row["source"], row["peer"]) for row in received}
    return frozenset(one for one in found if not coverage.has_ledgers(one.source))
