"""The files of a ledger in a lake, and what compaction and retention do with them, step by step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from eventd.lake.layout import ARCHIVE, DATA, LANDING, MANIFEST, LedgerSlug, SegmentName, parse_path
from eventd.lake.storage import Storage
from eventd.runtime.clock import SECOND

DAY: Final = 86_400 * SECOND
GRACE: Final = DAY
"""How long replaced and expired segments are kept for readers (microseconds)."""


class Done(NamedTuple):
    """The result of one step: the number of segments copied to the archive, deleted, and marked as expired.

    A deleted state of an old epoch counts as `removed` too.
    """

    compacted: int = 0
    removed: int = 0
    expired: int = 0


class LedgerFiles(NamedTuple):
    """The segments of one ledger in the landing and in the archive; `unfinished` are data files without a manifest."""

    landing: list[SegmentName]
    archive: list[SegmentName]
    unfinished: list[SegmentName]

    @property
    def both(self) -> list[SegmentName]:
        """Return the segments of landing and archive."""
        return [*self.landing, *self.archive]


def list_files(storage: Storage, names: Collection[str]) -> dict[LedgerSlug, LedgerFiles]:
    """Return the files of each ledger of the nodes with these slugs. Raises LakeUnavailable."""
    endings: defaultdict[SegmentName, set[str]] = defaultdict(set)
    for entry in [*storage.list(LANDING), *storage.list(ARCHIVE)]:
        place = parse_path(entry.path)
        if place is not None and place.slug in names:
            endings[place].add(entry.path.removeprefix(place.name))
    ledgers: defaultdict[LedgerSlug, LedgerFiles] = defaultdict(lambda: LedgerFiles([], [], []))
    for place, there in sorted(endings.items(), key=lambda item: (item[0].after, item[0].upto)):
        files = ledgers[place.ledger]
        if there == {DATA, MANIFEST}:
            (files.archive if place.tree == ARCHIVE else files.landing).append(place)
        elif there == {DATA}:
            files.unfinished.append(place)
    return ledgers


def remove_segments(storage: Storage, places: Sequence[SegmentName]) -> None:
    """Delete segments. Raises LakeUnavailable."""
    storage.delete(place.manifest for place in places)  # manifests first: a file without one does not count
    storage.delete(place.data for place in places)
