"""The trees that nodes have shipped to a lake, each with its last checkpoint: what is left of a node that is gone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from eventd.lake.history_rows import HistoryKind
from eventd.lake.reader import read_segment, survey
from eventd.lake.schema import Ledger
from eventd.lake.segment_file import BadSegment
from eventd.lake.storage import Storage
from eventd.lake.writer import Segment
from federation.errors import HistoryError
from federation.event import micros
from federation.history.checkpoints import Checkpoint, LogOrigin, open_checkpoint
from federation.history.entries import OPENING_ENTRY, OpeningEntry, read_opening_entry
from federation.history.notes import SignedNote, read_note

_COLUMNS = ("kind", "tree", "content", "recorded_at")


class ShippedTree(NamedTuple):
    """A tree, and its largest checkpoint with a valid signature of the key that its opening names.

    Times are in microseconds. That this is the key of the node, its reader has to know.
    """

    origin: LogOrigin
    key: str
    opened_at: int
    checkpoint: Checkpoint
    note: SignedNote
    signed_at: int


class _RowsOfTree(NamedTuple):
    """The rows of a tree: its openings, and its checkpoints by time."""

    openings: list[str]
    checkpoints: list[tuple[int, str]]


def read_shipped_trees(storage: Storage, group: str = "") -> list[ShippedTree]:
    """Return the trees of one group, or of all, those of each group and node in the order in which they were opened.

    Damaged segments and trees without a valid checkpoint are left out. Raises LakeUnavailable.
    """
    found: dict[tuple[str, str], _RowsOfTree] = {}
    for segment in (one for one in survey(storage).segments if one.place.book is Ledger.HISTORY):
        for kind, tree, content, at in _read(storage, segment):
            rows = found.setdefault((segment.manifest.node, tree), _RowsOfTree([], []))
            if kind == HistoryKind.OPENING:
                rows.openings.append(content)
            elif kind == HistoryKind.CHECKPOINT:
                rows.checkpoints.append((at, content))
    made = (_make(node, rows) for (node, _), rows in found.items())
    kept = (one for one in made if one is not None and group in ("", one.origin.group))
    return sorted(kept, key=lambda one: (one.origin.group, one.origin.node, one.opened_at))


def _read(storage: Storage, segment: Segment) -> Iterator[tuple[str, str, str, int]]:
    try:
        rows = read_segment(storage, segment, _COLUMNS).to_pylist()
    except BadSegment:
        return
    for row in rows:
        yield row["kind"], row["tree"], row["content"], micros(row["recorded_at"])


def _make(node: str, rows: _RowsOfTree) -> ShippedTree | None:
    entries = [entry for entry in map(_open, rows.openings) if entry is not None and entry.opening.origin.node == node]
    if not entries:
        return None
    opening = entries[0].opening
    best: ShippedTree | None = None
    for at, content in rows.checkpoints:
        try:
            note = read_note(content.encode())
            signed = open_checkpoint(note, opening.key)
        except HistoryError:
            continue  # the audit reports it
        if best is None or signed.size > best.checkpoint.size:
            best = ShippedTree(opening.origin, opening.key.text(), opening.time, signed, note, at)
    return best


def _open(content: str) -> OpeningEntry | None:
    try:
        return read_opening_entry(OPENING_ENTRY + content.encode())
    except HistoryError:
        return None
