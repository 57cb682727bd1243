"""Determines how far nodes' ledgers are in a lake, from states and file names.

Deletes the files that interrupted writes left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass

from eventd.lake.file_sizes import MOST_JSON
from eventd.lake.layout import (
    ARCHIVE,
    DATA,
    LANDING,
    MANIFEST,
    NODES,
    LedgerKey,
    SegmentName,
    parse_path,
    slug,
    state_path,
)
from eventd.lake.listed_files import read_listed, read_small
from eventd.lake.manifest import LostRows, Manifest, NodeState, SegmentRange, Unreadable, decode
from eventd.lake.state_files import decode_state
from eventd.lake.storage import Storage


@dataclass
class LakeCoverage:
    """How far the ledgers of some nodes in one epoch are in a lake, and the last states of these nodes."""

    epoch: str
    reaches: dict[LedgerKey, SegmentRange]
    states: dict[str, NodeState]

    def note(self, kept: LedgerKey, after: int, upto: int) -> None:
        """Extend the range of a ledger by a segment, which covers `(after, upto]`."""
        before = self.reaches.get(kept)
        self.reaches[kept] = SegmentRange(after=after if before is None else min(before.after, after), upto=upto)


def read_coverage(storage: Storage, nodes: Collection[str], epoch: str) -> LakeCoverage:
    """Return how far the ledgers of these nodes in this epoch are in the lake. Raises LakeUnavailable.

    A range that a node's state lists counts even if a segment of it is gone: shipping its rows again must not hide the
    gap. Deletes the unfinished files of these nodes, and their data files without a manifest beyond the coverage.
    """
    states = read_states(storage, nodes, epoch)
    coverage = LakeCoverage(epoch, {}, states)
    for state in states.values():
        for book, reach in state.segments.items():
            coverage.reaches[LedgerKey(state.node, epoch, book)] = reach
    by_slug = {slug(node): node for node in nodes}
    endings: defaultdict[SegmentName, set[str]] = defaultdict(set)
    for entry in storage.list(LANDING):
        place = parse_path(entry.path)
        if place is not None and place.slug in by_slug and place.epoch == epoch:
            endings[place].add(entry.path.removeprefix(place.name))
    for place, there in sorted(endings.items(), key=lambda item: item[0].after):
        if MANIFEST in there:
            kept = LedgerKey(by_slug[place.slug], epoch, place.book)
            known = coverage.reaches.get(kept)
            if known is None or place.upto > known.upto:
                coverage.note(kept, place.after, place.upto)
    for place, there in endings.items():
        known = coverage.reaches.get(LedgerKey(by_slug[place.slug], epoch, place.book))
        if there == {DATA} and (known is None or place.after >= known.upto):
            storage.delete([place.data])
    mine = [folder for name in by_slug for folder in (f"/node={name}/", f"{NODES}/{name}/")]
    left = [path for tree in (LANDING, ARCHIVE, NODES) for path in storage.unfinished(tree)]
    storage.delete(path for path in left if any(folder in path for folder in mine))
    return coverage


def read_lost(storage: Storage, ledger: LedgerKey, after: int) -> tuple[LostRows, ...]:
    """Return the losses that are named in the manifests of a ledger's segments after a row number.

    Raises LakeUnavailable.
    """
    folders = (f"{tree}/{ledger.book.value}" for tree in (LANDING, ARCHIVE))
    own = slug(ledger.node), ledger.epoch, ledger.book
    manifests = []
    for entry in (entry for folder in folders for entry in storage.list(folder)):
        place = parse_path(entry.path)
        if place is not None and place.ledger == own and place.upto > after and entry.path == place.manifest:
            manifests.append(entry)
    lost: list[LostRows] = []
    for _, text in read_listed(storage, manifests, MOST_JSON):
        with suppress(Unreadable):  # an audit reports the segment, with all of its rows
            lost += decode(text or b"", Manifest).lost
    return tuple(dict.fromkeys(lost))  # a segment and the file of the archive that replaces it name the same ones


def read_states(storage: Storage, nodes: Collection[str], epoch: str) -> dict[str, NodeState]:
    """Return the readable states of these nodes in this epoch, by the node's name. Raises LakeUnavailable."""
    paths = {state_path(node, epoch): node for node in nodes}
    states = {}
    for path, text in read_small(storage, paths).items():
        try:
            states[paths[path]] = decode_state(text, slug(paths[path]), epoch)
        except Unreadable:
            continue  # it is written again; the ranges that it listed are unknown
    return states
