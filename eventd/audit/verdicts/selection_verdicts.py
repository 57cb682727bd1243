"""Finds versions of selections that were edited: the state of the sender and its receipts have different texts of one.

A node gives each text a new number, so in one epoch a number never has two. Which text is the right one is not known:
what any of them selects is expected of the link.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from eventd.audit.report.findings import TWO_SELECTIONS, Discrepancy, Evidence, Kind
from eventd.audit.segments.plan import NodeEpoch

_SHOWN: Final = 500
"""Characters of a text that are shown."""


def selection_discrepancies(
    selections: Mapping[tuple[NodeEpoch, str, str], Mapping[int, Sequence[str]]],
) -> Iterator[Discrepancy]:
    """Yield a discrepancy for each version of a link's selection with several texts; see `LakePlan.selections`."""
    for (owner, group, peer), versions in sorted(selections.items()):
        for version, texts in sorted(versions.items()):
            if len(texts) > 1:
                evidence = Evidence(owner.node, values=(f"selection: {', '.join(text[:_SHOWN] for text in texts)}",))
                name = f"{owner.epoch}/selection/{version}"
                yield Discrepancy(Kind.ALTERED, group, owner.node, peer, 0, name, TWO_SELECTIONS, evidence)
