"""Finds versions of selections that were edited: the state of the sender and its receipts have different texts of one,
or its receipts one that its later state does not know.

A node gives each text a new number, so in one epoch a number never has two. Which text is the right one is not known:
what any of them selects is expected of the link.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from eventd.audit.report.findings import TWO_SELECTIONS, UNDECLARED_SELECTION, Discrepancy, Evidence, Kind
from eventd.audit.segments.plan import LakePlan

_SHOWN: Final = 500
"""Characters of a text that are shown."""


def selection_discrepancies(plan: LakePlan) -> Iterator[Discrepancy]:
    """Yield a discrepancy for each version of a link's selection that was edited; see `LakePlan.selections`."""
    for (owner, group, peer), versions in sorted(plan.selections.items()):
        for version, texts in sorted(versions.items()):
            if len(texts) > 1:
                is_undeclared = (owner, group, peer, version) in plan.undeclared
                detail = UNDECLARED_SELECTION if is_undeclared else TWO_SELECTIONS
                evidence = Evidence(owner.node, values=(f"selection: {', '.join(text[:_SHOWN] for text in texts)}",))
                name = f"{owner.epoch}/selection/{version}"
                yield Discrepancy(Kind.ALTERED, group, owner.node, peer, 0, name, detail, evidence)
