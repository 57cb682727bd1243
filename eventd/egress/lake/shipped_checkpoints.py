"""The last checkpoints of a node's trees that a lake has: they show whether the node's database is an older copy."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import Final

from eventd.lake.file_sizes import MOST_JSON
from eventd.lake.history_rows import HistoryKind
from eventd.lake.layout import ARCHIVE, LANDING, LedgerSlug, parse_path, slug
from eventd.lake.listed_files import read_listed
from eventd.lake.manifest import Manifest, Unreadable, decode
from eventd.lake.reader import read_segment
from eventd.lake.schema import Ledger
from eventd.lake.segment_file import BadSegment
from eventd.lake.storage import Storage
from eventd.lake.stored_files import StoredFile
from eventd.lake.writer import Segment

MOST_SEGMENTS: Final = 64
"""How many segments are read for trees that have not grown for long."""
MOST_NOTES: Final = 1024
"""Maximum number of checkpoints that are returned, those of the newest segments first."""


def read_shipped_checkpoints(storage: Storage, nodes: Iterable[str], epoch: str, trees: Collection[str]) -> list[str]:
    """Return the last checkpoint of each tree of these nodes, as they shipped them in an epoch of the log.

    Segments are read from the newest one on, until each of `trees`, their names in the ledger, was found. Damaged ones
    are left out. Raises LakeUnavailable.
    """
    found: dict[str, tuple[int, str]] = {}
    for node in nodes:
        for segment in _segments(storage, node, epoch):
            with suppress(BadSegment):
                for tree, size, note in _checkpoints(storage, segment):
                    if size > found.get(tree, (0, ""))[0]:
                        found[tree] = size, note
            if found.keys() >= {*trees}:
                break
    return [note for _, note in found.values()][:MOST_NOTES]


def _segments(storage: Storage, node: str, epoch: str) -> Iterator[Segment]:
    """Yield the segments of the ledger `history`, the newest first."""
    own = LedgerSlug(slug(node), epoch, Ledger.HISTORY)
    manifests: list[tuple[int, StoredFile]] = []
    for tree in (LANDING, ARCHIVE):
        for entry in storage.list(f"{tree}/{Ledger.HISTORY.value}"):
            place = parse_path(entry.path)
            if place is not None and place.ledger == own and entry.path == place.manifest:
                manifests.append((place.upto, entry))
    newest = sorted(manifests, key=lambda one: one[0], reverse=True)[:MOST_SEGMENTS]
    for _, entry in newest:
        place = parse_path(entry.path)
        for _, text in read_listed(storage, [entry], MOST_JSON):
            with suppress(Unreadable):
                if place is not None:
                    yield Segment(place, decode(text or b"", Manifest))


def _checkpoints(storage: Storage, segment: Segment) -> Iterator[tuple[str, int, str]]:
    for row in read_segment(storage, segment, ("kind", "tree", "size", "content")).to_pylist():
        if row["kind"] == HistoryKind.CHECKPOINT and row["size"] is not None and row["content"] is not None:
            yield row["tree"], row["size"], row["content"]
