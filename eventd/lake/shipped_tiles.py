"""The tiles of a tree in a lake, from what its node shipped, and which nodes of the lake have witnessed its trees."""

from __future__ import annotations

from contextlib import suppress
from typing import Final, NamedTuple

from eventd.errors import NotFound
from eventd.lake.history_rows import HistoryKind
from eventd.lake.reader import survey
from eventd.lake.schema import Ledger
from eventd.lake.segment_file import BadSegment
from eventd.lake.segment_reader import read_segment
from eventd.lake.shipped_trees import ShippedCheckpoint, TreeName, read_tree_rows
from eventd.lake.storage import Storage
from eventd.lake.tree_proofs import LeafReader
from federation.errors import HistoryError
from federation.event import micros
from federation.history.checkpoints import Checkpoint, LogOrigin, read_checkpoint
from federation.history.entries import OPENING_ENTRY
from federation.history.notes import read_note
from federation.history.tiles import TileAddress, TileReader

TILES_AT_ONCE: Final = 1024
"""How many tiles of level 0 are in memory at the same time: 262,144 leaves. All segments are read for each of them."""


class TreeInLake(NamedTuple):
    """A tree in a lake: its key, its checkpoints that this key signed, the largest first, and what reads its tiles.

    `read` raises MalformedHistory for a tile of which the lake lacks a hash.
    """

    origin: LogOrigin
    key: str
    checkpoints: list[ShippedCheckpoint]
    read: TileReader


def open_tree_of_lake(storage: Storage, origin: LogOrigin) -> TreeInLake:
    """Return a tree of a lake. Raises NotFound, and LakeUnavailable."""
    books = (Ledger.EVENTS, Ledger.HISTORY)
    own = [one for one in survey(storage).segments if one.manifest.node == origin.node and one.place.book in books]
    trees, name = read_tree_rows(storage, own), TreeName(origin.node, origin.tree)
    if name not in trees or not trees[name].openings:
        raise NotFound(f"the lake at {storage.url} has no tree {origin}")
    opening = trees[name].openings[0]
    entry = OPENING_ENTRY + opening.note.encode()
    read: dict[int, LeafReader] = {}

    def read_tile(address: TileAddress) -> bytes:
        part = 0 if address.level else address.number // TILES_AT_ONCE
        if not read or (part not in read and not address.level):
            tiles = range(part * TILES_AT_ONCE, (part + 1) * TILES_AT_ONCE)
            read.clear()
            read[part] = LeafReader(storage, own, entry, trees, name, tiles)
        return next(iter(read.values()))(address)

    return TreeInLake(origin, opening.opening.key.text(), [*trees[name].signed(opening)], read_tile)


class TreeCosignedInLake(NamedTuple):
    """The largest checkpoint of a tree that a node of the lake says it has cosigned. Times are in microseconds.

    Its signatures are not verified: the audit does that, with keys that its reader knows.
    """

    witness: str
    stated: Checkpoint
    witnessed_at: int


def read_witnessed_trees(storage: Storage, group: str = "") -> list[TreeCosignedInLake]:
    """Return the trees that nodes of a lake have witnessed, by group, node, tree and witness.

    Damaged segments are left out. Raises LakeUnavailable.
    """
    found: dict[tuple[str, str], TreeCosignedInLake] = {}
    for segment in (one for one in survey(storage).segments if one.place.book is Ledger.HISTORY):
        with suppress(BadSegment):  # the audit reports it
            for row in read_segment(storage, segment, ("kind", "content", "recorded_at")).to_pylist():
                if row["kind"] == HistoryKind.WITNESSED:
                    _add(found, segment.manifest.node, row["content"], micros(row["recorded_at"]))
    kept = (one for one in found.values() if group in ("", one.stated.origin.group))
    return sorted(kept, key=lambda one: (one.stated.origin, one.witness))


def _add(found: dict[tuple[str, str], TreeCosignedInLake], witness: str, note: str, at: int) -> None:
    with suppress(HistoryError):
        stated = read_checkpoint(read_note(note.encode()).text)
        key = witness, str(stated.origin)
        if key not in found or found[key].stated.size < stated.size:
            found[key] = TreeCosignedInLake(witness, stated, at)
