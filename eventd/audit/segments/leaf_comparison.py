"""Compares the rows of events at other nodes with the leaves of the tree that they are said to be in, byte by byte.

A task has the leaves of one tree in a range, and reads the segments of its node and of all others that have some of
them. So rows need not be moved between tasks, and none is hashed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from eventd.audit.arrays.columns import NEVER, Columns, Mask, Numbers
from eventd.audit.segments.damaged_segment import name_damage
from eventd.lake.manifest import Manifest, Number, Time
from eventd.lake.segment_reader import read_segment
from eventd.lake.storage import FileReader
from eventd.lake.writer import Segment
from federation.history.merkle import HASH_SIZE
from federation.history.tiles import TILE_WIDTH

LEAVES: Final = 262_144
"""Leaves of a range: their digests take 8 MiB."""
MOST_LEAVES: Final = 8 * LEAVES
"""Maximum number of leaves of a task, which has several ranges if they are in the same segments: each is read once."""
MOST_OTHERS: Final = 1_000
"""Maximum number of rows that a task returns of each range: the segments of each one's minute are searched for it."""
_COLUMNS: Final = ("own", "group", "tree", "leaf", "digest")
_NAMED: Final = ("id", "source", "event_at", "recorded_at")


class ComparedSegment(msgspec.Struct, frozen=True, array_like=True):
    """A segment of `events` by its name, and its manifest."""

    name: str
    manifest: Manifest

    @property
    def segment(self) -> Segment:
        """Return the segment. Raises Invalid for a name that is not a segment's."""
        return Segment.named(self.name, self.manifest)


class LeafTask(NamedTuple):
    """Leaves of a tree from index `first` to before `end`, at most `MOST_LEAVES`.

    `origin` are the segments of the node that may have them, `others` those of other nodes. Leaves of the tiles
    `skipped` are not compared: the node's own rows of them were not compared with the tree.
    """

    group: str
    node: str
    tree: str
    first: int
    end: int
    origin: Sequence[ComparedSegment]
    others: Sequence[ComparedSegment]
    skipped: Sequence[int] = ()


class OtherRow(msgspec.Struct, frozen=True, array_like=True):
    """A row of an event of `source` at the node `peer` that does not have the digest of the leaf in the origin's tree.

    `event_at` is the time at which the event was observed, as its publisher stated, `recorded_at` the time at which the
    peer recorded it (microseconds).
    """

    group: str
    node: str
    tree: str
    leaf: Number
    peer: str
    source: str
    id: str
    digest: bytes
    event_at: Time
    recorded_at: Time


class CutRange(msgspec.Struct, frozen=True, array_like=True, order=True):
    """A range of the leaves of a tree, by its first one, of which more rows differ than are returned."""

    group: str
    node: str
    tree: str
    first: Number


class LeafComparison(msgspec.Struct, array_like=True):
    """The rows that differ, at most `MOST_OTHERS` of each range of `LEAVES`, and the ranges that have more of them."""

    rows: list[OtherRow]
    cut: list[CutRange]


_DECODER: Final = msgspec.msgpack.Decoder(LeafComparison)


def decode_comparison(data: bytes) -> LeafComparison:
    """Return what a task has found."""
    return _DECODER.decode(data)


def compare_leaves(task: LeafTask, lake: FileReader) -> bytes:
    """Return, encoded, the rows of other nodes with a leaf in the task's range and another digest than the origin's.

    They are a `LeafComparison`. Leaves of which the origin has no row, or only an unchecked one, are left out: nothing
    is known of them. Raises DamagedSegment and LakeUnavailable.
    """
    known = np.zeros((task.end - task.first, HASH_SIZE), np.uint8)
    present = np.zeros(task.end - task.first, bool)
    for one in task.origin:
        _, leaf, digests = _read(task, one, lake, own=True)
        known[leaf - task.first] = digests
        present[leaf - task.first] = True
    for tile in task.skipped:
        present[max(tile * TILE_WIDTH - task.first, 0) : (tile + 1) * TILE_WIDTH - task.first] = False
    found, number = list[OtherRow](), np.zeros(-(-task.end // LEAVES), np.int64)
    for one in task.others:
        rows, leaf, digests = _read(task, one, lake, own=False)
        at = leaf - task.first
        differing = np.flatnonzero(present[at] & (known[at] != digests).any(axis=1))
        few = _within_quota(leaf[differing] // LEAVES, number)
        if few.any():
            places = differing[few]
            found += _named(task, one, lake, rows[places], leaf[places], digests[places])
    cut = np.flatnonzero(number > MOST_OTHERS) * LEAVES
    cuts = [CutRange(task.group, task.node, task.tree, max(first, task.first)) for first in cut.tolist()]
    return msgspec.msgpack.encode(LeafComparison(found, cuts))


def _within_quota(ranges: Numbers, number: Numbers) -> Mask:
    """Return which rows are among the first `MOST_OTHERS` of their ranges, and count them all in `number`."""
    few: Mask = np.zeros(len(ranges), bool)
    for at in np.unique(ranges).tolist():
        places = np.flatnonzero(ranges == at)
        few[places[: max(0, MOST_OTHERS - int(number[at]))]] = True
        number[at] += len(places)
    return few


Digests = npt.NDArray[np.uint8]


def _read(task: LeafTask, one: ComparedSegment, lake: FileReader, *, own: bool) -> tuple[Numbers, Numbers, Digests]:
    """Return the rows of a segment with leaves of the task: their places, the leaves and the digests."""
    with name_damage(one.name):
        table = Columns(read_segment(lake, one.segment, [*_COLUMNS]))
        if not table.rows:
            return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, HASH_SIZE), np.uint8)
        leaf = table.numbers("leaf")
        wanted: Mask = (table.booleans("own") == own) & (leaf != NEVER) & (leaf >= task.first) & (leaf < task.end)
        wanted &= table.words("tree").where(lambda name: name == task.tree)
        wanted &= table.words("group").where(lambda name: name == task.group)
        rows = np.flatnonzero(wanted)
        digests = table.taken("digest", rows)
    buffer, begin = digests.buffers()[1], digests.offset * HASH_SIZE
    values = np.frombuffer(buffer, np.uint8)[begin : begin + len(rows) * HASH_SIZE]
    return rows, leaf[rows], values.reshape(-1, HASH_SIZE)


def _named(
    task: LeafTask, one: ComparedSegment, lake: FileReader, rows: Numbers, leaf: Numbers, digests: Digests
) -> Iterator[OtherRow]:
    with name_damage(one.name):
        table = read_segment(lake, one.segment, [*_NAMED]).take(rows)
    peer = one.manifest.node
    observed, recorded = (Columns(table).numbers(name) for name in ("event_at", "recorded_at"))
    for at, row in enumerate(table.select(["id", "source"]).to_pylist()):
        yield OtherRow(
            task.group,
            task.node,
            task.tree,
            int(leaf[at]),
            peer,
            row["source"],
            row["id"],
            digests[at].tobytes(),
            int(observed[at]),
            int(recorded[at]),
        )
