"""Two sources that both signed an event with one id: whichever reaches a node first keeps the other one out there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

import numpy as np

from eventd.audit.arrays.columns import NEVER, Columns
from eventd.audit.report.figures import nearest_time
from eventd.audit.report.findings import Finding, Kind
from eventd.audit.report.report import TreeReport
from eventd.audit.segments.taken_ids import TakenId
from eventd.audit.verdicts.ledger_rows import LedgerRows
from eventd.lake.extra import pyarrow
from eventd.lake.schema import Ledger

MOST_SOUGHT: Final = 1_000
"""Maximum number of ids whose sources are looked for: that reads the ids of all events with a leaf."""
_COLUMNS: Final = ("group", "id", "own", "tree", "leaf", "recorded_at")
_HINT: Final = (
    "find out why both use this id: where one took it on purpose, revoke its key; emit the refused event again under"
    " another id"
)


class _SignedEvent(NamedTuple):
    """An event with a leaf that a checkpoint covers, by the time at which its source recorded it (microseconds)."""

    at: int
    source: str
    tree: str
    leaf: int

    def __str__(self) -> str:
        return f"{self.source} at {nearest_time(self.at)}, as leaf {self.leaf:,} of the tree {self.tree}"


def find_squatted(taken: Iterable[TakenId], rows: LedgerRows, trees: Sequence[TreeReport]) -> Iterator[Finding]:
    """Yield a finding for each of these events whose source and another node both signed an event with its id.

    `trees`: what is proven of each. A tree that is signed with another key than that of the policy proves nothing.
    """
    proven = {(one.node, one.group, one.tree): one.proven for one in trees if one.key != "other"}
    peers: defaultdict[tuple[str, str], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for one in taken:
        if any((one.source, one.group) == key[:2] for key in proven):
            peers[one.group, one.id][one.source].add(one.peer)
    sought = dict(islice(sorted(peers.items()), MOST_SOUGHT))
    signed = _signed_events(sought, rows, proven) if sought else {}
    for (group, event), refused in sought.items():
        found = sorted(signed.get((group, event), ()))
        for source in sorted(refused):
            own = next((one for one in found if one.source == source), None)
            others = [one for one in found if one.source != source]
            if own is not None and others:
                yield _finding(group, event, own, others, refused[source])


def _signed_events(
    sought: Collection[tuple[str, str]], rows: LedgerRows, proven: Mapping[tuple[str, str, str], int]
) -> Mapping[tuple[str, str], set[_SignedEvent]]:
    """Return by group and id the proven events of all sources that have one of these."""
    from pyarrow import compute

    ids, nodes = pyarrow().array(sorted({event for _, event in sought})), {node for node, _, _ in proven}
    found: defaultdict[tuple[str, str], set[_SignedEvent]] = defaultdict(set)
    for segment in rows.segments:
        node = segment.manifest.node
        if segment.place.book is not Ledger.EVENTS or not segment.manifest.leaves or node not in nodes:
            continue
        table = rows.read(segment, _COLUMNS)
        near = Columns(table.filter(compute.is_in(table["id"].cast("string"), ids)))
        leaf, at = near.numbers("leaf"), near.numbers("recorded_at")
        own = near.booleans("own") & (leaf != NEVER)
        texts = (near.some(name, own) for name in ("group", "id", "tree"))
        places = np.flatnonzero(own)
        for group, event, tree, index, time in zip(*texts, leaf[places].tolist(), at[places].tolist(), strict=True):
            if (group, event) in sought and index < proven.get((node, group, tree), 0):
                found[group, event].add(_SignedEvent(time, node, tree, index))
    return found


def _finding(
    group: str, event: str, own: _SignedEvent, others: Sequence[_SignedEvent], refused_by: Collection[str]
) -> Finding:
    detail = (
        f"{', '.join(sorted(refused_by))} refused the event of {own}, because it holds another one with the same id;"
        f" the id was also used by {'; '.join(map(str, others))}; {_HINT}"
    )
    return Finding(Kind.SQUATTED, group, own.source, "", own.leaf, own.leaf, (event,), detail)
