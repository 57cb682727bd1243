"""The trees that nodes have shipped to a lake: the rows of each, and its last checkpoint: what is left of a node that
is gone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from eventd.lake.history_rows import HistoryKind, read_hash_row
from eventd.lake.reader import survey
from eventd.lake.schema import Ledger
from eventd.lake.segment_file import BadSegment
from eventd.lake.segment_reader import read_segment
from eventd.lake.storage import Storage
from eventd.lake.writer import Segment
from federation.errors import HistoryError
from federation.event import micros
from federation.history.checkpoints import Checkpoint, LogOrigin, open_checkpoint, read_checkpoint
from federation.history.entries import OPENING_ENTRY, OpeningEntry, read_opening_entry
from federation.history.notes import NoteKey, SignedNote, read_note

_COLUMNS = ("kind", "tree", "level", "first", "content", "recorded_at")


class TreeName(NamedTuple):
    """A tree in the ledgers of its node."""

    node: str
    tree: str


class ShippedCheckpoint(NamedTuple):
    """A checkpoint as a row has it; its signatures are not verified. `at`: its time, in microseconds."""

    stated: Checkpoint
    note: SignedNote
    at: int

    def is_signed_by(self, key: NoteKey) -> bool:
        """Return whether it has a valid signature of the key of its tree, and no wrong one."""
        try:
            return open_checkpoint(self.note, key) == self.stated
        except HistoryError:
            return False


@dataclass(slots=True)
class TreeRows:
    """The rows of a tree, without its leaves: openings, which their own keys signed, checkpoints in the order of the
    rows, and `hashes` by level and index. What cannot be read is left out: it proves nothing, and others may."""

    openings: list[OpeningEntry] = field(default_factory=list)
    checkpoints: list[ShippedCheckpoint] = field(default_factory=list)
    hashes: defaultdict[int, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))

    def signed(self, opening: OpeningEntry) -> Iterator[ShippedCheckpoint]:
        """Yield the checkpoints with a valid signature of the key that an opening names, the largest first."""
        for one in sorted(self.checkpoints, key=lambda one: one.stated.size, reverse=True):
            if one.is_signed_by(opening.opening.key):
                yield one

    def last_size(self) -> int:
        """Return the size of the largest checkpoint that the key of an opening signed; 0 without one."""
        last = (next(self.signed(one), None) for one in self.openings)
        return max((one.stated.size for one in last if one is not None), default=0)


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


def read_shipped_trees(storage: Storage, group: str = "") -> list[ShippedTree]:
    """Return the trees of one group, or of all, those of each group and node in the order in which they were opened.

    Damaged segments and trees without a valid checkpoint are left out. Raises LakeUnavailable.
    """
    made = (_last_of(rows) for rows in read_tree_rows(storage, survey(storage).segments).values())
    kept = (one for one in made if one is not None and group in ("", one.origin.group))
    return sorted(kept, key=lambda one: (one.origin.group, one.origin.node, one.opened_at))


def read_tree_rows(storage: Storage, segments: Iterable[Segment]) -> dict[TreeName, TreeRows]:
    """Return the rows of the trees in these segments, of which only those of the ledger `history` are read.

    Damaged segments are left out. Raises LakeUnavailable.
    """
    found: defaultdict[TreeName, TreeRows] = defaultdict(TreeRows)
    for segment in (one for one in segments if one.place.book is Ledger.HISTORY):
        for row in _read(storage, segment):
            name = TreeName(segment.manifest.node, row["tree"])
            with suppress(HistoryError):
                _add(found[name], name, row)
    return dict(found)


def _read(storage: Storage, segment: Segment) -> Iterator[dict[str, Any]]:
    try:
        yield from read_segment(storage, segment, _COLUMNS).to_pylist()
    except BadSegment:  # the audit reports it
        return


def _add(rows: TreeRows, name: TreeName, row: Mapping[str, Any]) -> None:
    """Add a row to those of its tree. Raises HistoryError."""
    content = row["content"]
    match row["kind"]:
        case HistoryKind.OPENING:
            entry = read_opening_entry(OPENING_ENTRY + content.encode())
            if TreeName(*entry.opening.origin[1:]) == name and entry not in rows.openings:
                rows.openings.append(entry)
        case HistoryKind.HASHES if row["first"] is not None:
            rows.hashes[row["level"]].update(enumerate(read_hash_row(content), row["first"]))
        case HistoryKind.CHECKPOINT:
            note = read_note(content.encode())
            stated = read_checkpoint(note.text)
            if TreeName(*stated.origin[1:]) == name:
                rows.checkpoints.append(ShippedCheckpoint(stated, note, micros(row["recorded_at"])))


def _last_of(rows: TreeRows) -> ShippedTree | None:
    if not rows.openings:
        return None
    opening = rows.openings[0].opening
    last = next(rows.signed(rows.openings[0]), None)
    if last is None:
        return None
    return ShippedTree(opening.origin, opening.key.text(), opening.time, last.stated, last.note, last.at)
