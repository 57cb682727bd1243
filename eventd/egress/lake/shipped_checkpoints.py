"""The last checkpoints of a node's trees that a lake has: they show whether the node's database is an older copy."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from typing import Final

from eventd.lake.file_sizes import MOST_JSON
from eventd.lake.layout import ARCHIVE, LANDING, LedgerSlug, parse_path, slug
from eventd.lake.listed_files import read_listed
from eventd.lake.manifest import Manifest, Unreadable, decode
from eventd.lake.schema import Ledger
from eventd.lake.shipped_trees import ShippedCheckpoint, read_tree_rows
from eventd.lake.storage import Storage
from eventd.lake.stored_files import StoredFile
from eventd.lake.writer import Segment
from federation.history.notes import LOG_KEY, NoteKey

MOST_SEGMENTS: Final = 64
"""How many segments are read for trees that have not grown for long."""
MOST_NOTES: Final = 1024
"""Maximum number of checkpoints that are returned, those of the newest segments first."""


def read_shipped_checkpoints(
    storage: Storage, nodes: Iterable[str], epoch: str, trees: Collection[str], key: bytes | None
) -> list[str]:
    """Return the last checkpoint of each tree of these nodes, as they shipped them in an epoch of the log.

    Only those count that the nodes' public `key` has signed: others may have written one of any size to the lake. If
    the key is None, all count. Segments are read from the newest one on, until each of `trees`, their names in the
    ledger, was found. Damaged ones are left out. Raises LakeUnavailable.
    """
    found: dict[str, tuple[int, str]] = {}
    for node in nodes:
        for segment in _segments(storage, node, epoch):
            for name, rows in read_tree_rows(storage, [segment]).items():
                last = _last_of(rows.checkpoints, key)
                if last is not None and last.stated.size > found.get(name.tree, (0, ""))[0]:
                    found[name.tree] = last.stated.size, last.note.encode().decode()
            if found.keys() >= {*trees}:
                break
    return [note for _, note in found.values()][:MOST_NOTES]


def _last_of(checkpoints: Iterable[ShippedCheckpoint], key: bytes | None) -> ShippedCheckpoint | None:
    """Return the largest checkpoint that the key has signed."""
    for one in sorted(checkpoints, key=lambda one: -one.stated.size):
        if key is None or one.is_signed_by(NoteKey(str(one.stated.origin), LOG_KEY, key)):
            return one
    return None


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
