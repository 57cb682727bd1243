"""Computes a tree from the rows of its node, and compares it with each checkpoint that the lake has of it.

A root stands for all leaves before it. So if the largest checkpoint has the computed root, each row is what the node
signed; where it has not, the hashes that the node shipped show which leaves differ.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import NamedTuple

from eventd.audit.segments.tree_leaves import LeafRun
from eventd.audit.segments.tree_rows import TreeCheckpoint, TreeOpening
from federation.errors import HistoryError
from federation.history.checkpoints import Checkpoint, LogOrigin, open_checkpoint
from federation.history.entries import OPENING_ENTRY, OpeningEntry, read_opening_entry
from federation.history.merkle import HASH_SIZE, CompactRange, hash_perfect, join_hashes
from federation.history.notes import NoteKey, read_note
from federation.history.tiles import TILE_HEIGHT, TILE_WIDTH, perfect_roots

_NOT_CHOSEN = bytes(HASH_SIZE)
Levels = Mapping[int, Mapping[int, bytes]]
"""The hashes that a node shipped of a tree: by level and index."""


class LeafSpan(NamedTuple):
    """Leaves from `first` to `last`, both included, of which something is wrong, and what."""

    first: int
    last: int
    words: str


class LeafHole(NamedTuple):
    """Leaves without a row: the first and the last one, and where the rows beside them are, see `LeafRun`."""

    first: int
    last: int
    positions: tuple[int, int]
    times: tuple[int, int]


@dataclass
class TreeEvidence:
    """What the lake has of a tree: its opening, checkpoints, hashes, and its leaves in rows of its node.

    `known`: the keys that may have signed a checkpoint in the ledger of another node: what one node ships may accuse
    another one only if that one has signed it. `dropped`: see `drop_unsigned`.
    """

    origin: LogOrigin
    opening: TreeOpening | None = None
    checkpoints: list[TreeCheckpoint] = field(default_factory=list)
    levels: dict[int, dict[int, bytes]] = field(default_factory=lambda: defaultdict(dict))
    runs: list[LeafRun] = field(default_factory=list)
    known: Sequence[NoteKey] = ()
    dropped: list[TreeCheckpoint] = field(default_factory=list)

    @property
    def shipped(self) -> list[TreeCheckpoint]:
        """Return the checkpoints that the node ships itself."""
        return [one for one in self.checkpoints if not one.witness]

    @property
    def was_shipped(self) -> bool:
        """Return whether the node ships checkpoints, of which its key may have signed none."""
        return any(not one.witness for one in (*self.checkpoints, *self.dropped))

    @property
    def size(self) -> int:
        """Return the size of the largest checkpoint that the node ships; 0 without one."""
        return max((one.size for one in self.shipped), default=0)

    @property
    def last_signed(self) -> int:
        """Return the size of the largest checkpoint, also of those that only witnesses ship; 0 without one."""
        return max((one.size for one in self.checkpoints), default=0)

    def drop_unsigned(self) -> None:
        """Move the largest checkpoints, as long as no key of the tree has signed them, to `dropped`.

        A size that nothing in the tree can contradict is believed for its signature alone.
        """
        unsigned: list[TreeCheckpoint] = []
        ordered = sorted(self.checkpoints, key=lambda one: -one.size)
        for _, each in groupby(ordered, key=lambda one: one.size):
            largest = [*each]
            wrong = [one for one in largest if not is_signed(self, one)]
            unsigned += wrong
            if len(wrong) < len(largest):
                break
        if unsigned:
            self.dropped += unsigned
            gone = {*unsigned}
            self.checkpoints = [one for one in self.checkpoints if one not in gone]

    @cached_property
    def entry(self) -> OpeningEntry | None:
        """Return the opening entry; None if the lake does not have it."""
        return None if self.opening is None else read_opening_entry(OPENING_ENTRY + self.opening.note.encode())

    @property
    def key(self) -> NoteKey | None:
        """Return the key that the opening names."""
        return None if self.entry is None else self.entry.opening.key


@dataclass
class TreeResult:
    """What a tree was found to be. `proven`: the size of the largest checkpoint with the computed root; 0: none.

    `rewritten`, `forks` and `holes` are what is wrong. `claims`: checkpoints in ledgers of other nodes that no known
    key of the tree has signed: they show nothing. `unknown`: why the largest checkpoint could not be compared; empty:
    it was.
    """

    proven: int = 0
    rewritten: list[LeafSpan] = field(default_factory=list)
    forks: list[LeafSpan] = field(default_factory=list)
    holes: list[LeafHole] = field(default_factory=list)
    claims: list[TreeCheckpoint] = field(default_factory=list)
    unknown: str = ""

    def refuse(self, one: TreeCheckpoint) -> None:
        """Add a checkpoint that the tree's key has not signed: its row was changed. Of another node it is a claim."""
        if one.witness:
            self.claims.append(one)
        else:
            self.rewritten.append(_unsigned(one))


class LeafIndex:
    """The hashes that follow from rows: of leaves, of full tiles, and of the parts of tiles before checkpoints."""

    def __init__(self, tree: TreeEvidence) -> None:
        self.leaves: dict[int, bytes] = dict(tree.levels.get(0, {}))
        self.tiles: dict[int, bytes] = {}
        self.differing: set[int] = set()
        """Tiles of which two rows give different hashes."""
        self._parts: dict[int, list[bytes]] = {}
        if tree.opening is not None:
            self.leaves[0] = tree.opening.leaf
        for run in tree.runs:
            self._add(run)
        for tile in {leaf // TILE_WIDTH for leaf in self.leaves} - {*self.tiles}:
            whole = [self.leaves.get(leaf) for leaf in range(tile * TILE_WIDTH, (tile + 1) * TILE_WIDTH)]
            if None not in whole:
                self.tiles[tile] = hash_perfect([one for one in whole if one is not None])

    def _add(self, run: LeafRun) -> None:
        for leaf, one in enumerate(_split(run.head), run.first):
            self._note(self.leaves, leaf, one, leaf // TILE_WIDTH)
        for leaf, one in enumerate(_split(run.tail), run.end - len(run.tail) // HASH_SIZE):
            self._note(self.leaves, leaf, one, leaf // TILE_WIDTH)
        for tile, one in enumerate(_split(run.tiles), -(-run.first // TILE_WIDTH)):
            if one != _NOT_CHOSEN:
                self._note(self.tiles, tile, one, tile)
        for cut in run.cuts:
            if cut.roots:
                self._parts.setdefault(cut.size, _split(cut.roots))

    def _note(self, known: dict[int, bytes], at: int, found: bytes, tile: int) -> None:
        if known.setdefault(at, found) != found:
            self.differing.add(tile)

    def part(self, size: int) -> list[bytes] | None:
        """Return the roots of the perfect subtrees above the leaves of the last tile before a size; None if unknown."""
        begin = size - size % TILE_WIDTH
        if size in self._parts:
            return self._parts[size]
        some = [self.leaves.get(leaf) for leaf in range(begin, size)]
        return None if None in some else perfect_roots([one for one in some if one is not None])


def _split(hashes: bytes) -> list[bytes]:
    return [hashes[at : at + HASH_SIZE] for at in range(0, len(hashes), HASH_SIZE)]


class _Walk:
    """Computes the roots of ascending sizes; `tile` returns the root of a tile, None if it is not known."""

    def __init__(self, rows: LeafIndex, tile: Callable[[int], bytes | None]) -> None:
        self._rows, self._tile = rows, tile
        self._range: CompactRange | None = CompactRange()
        self.missing = 0
        """The first tile that is not known."""

    def root(self, size: int) -> bytes | None:
        """Return the root at a size; None if it cannot be computed."""
        if self._range is None:
            return None
        while self._range.size + TILE_WIDTH <= size:
            self.missing = self._range.size // TILE_WIDTH
            found = self._tile(self.missing)
            if found is None:
                self._range = None
                return None
            self._range.append(found, TILE_HEIGHT)
        part = self._rows.part(size)
        return None if part is None else join_hashes([*self._range.hashes, *part])


def check_tree(tree: TreeEvidence) -> TreeResult:
    """Compare a tree with its checkpoints."""
    result, rows, shipped = TreeResult(), LeafIndex(tree), tree.levels.get(1, {})
    tree.drop_unsigned()
    for one in tree.dropped:
        result.refuse(one)
    signed = [*_signed(tree, result)]
    walks = [_Walk(rows, lambda tile: shipped.get(tile, rows.tiles.get(tile)))]
    other = {tile for tile, one in rows.tiles.items() if shipped.get(tile, one) != one}
    if other:
        walks.append(_Walk(rows, lambda tile: rows.tiles.get(tile, shipped.get(tile))))
    proven, wrong = [0] * len(walks), list[TreeCheckpoint]()
    for one in signed:
        roots = [walk.root(one.size) for walk in walks]
        for at, root in enumerate(roots):
            if root == one.root:
                proven[at] = one.size
        if one.root not in roots and any(root is not None for root in roots):
            wrong.append(one)
    result.proven = max(proven)
    for span in _tiles_apart(sorted(other | rows.differing), proven):
        result.rewritten.append(span)
    for one in (one for one in wrong if not is_signed(tree, one)):
        result.refuse(one)
    _judge(result, [one for one in wrong if is_signed(tree, one)], signed)
    result.holes = [*_holes(tree, rows)]
    if result.proven < tree.size and not (result.rewritten or result.forks):
        begin = walks[0].missing * TILE_WIDTH
        result.unknown = f"neither rows nor hashes of all its leaves from {begin:,} on are in the lake"
    return result


def _signed(tree: TreeEvidence, result: TreeResult) -> Iterator[TreeCheckpoint]:
    """Yield the checkpoints, one for each size, in order. Others are noted as forks, or as changed rows."""
    by_size: defaultdict[int, dict[bytes, TreeCheckpoint]] = defaultdict(dict)
    for one in tree.checkpoints:
        by_size[one.size].setdefault(one.root, one)
    for size, roots in sorted(by_size.items()):
        several = [*roots.values()]
        if len(several) > 1:
            valid = [one for one in several if is_signed(tree, one)]
            for one in several:
                if one not in valid:
                    result.refuse(one)
            several = valid
        if len(several) > 1:
            words = ", ".join(one.root.hex() for one in several)
            result.forks.append(LeafSpan(0, size - 1, f"its node signed several roots of size {size:,}: {words}"))
        yield from several[:1]


def _unsigned(one: TreeCheckpoint) -> LeafSpan:
    words = f"the checkpoint of size {one.size:,} with the root {one.root.hex()} is not signed with the tree's key"
    return LeafSpan(0, one.size - 1, words)


def is_signed(tree: TreeEvidence, one: TreeCheckpoint) -> bool:
    """Return whether a checkpoint has a valid signature: of the key that the tree's opening names, or a known one.

    Without the opening, no key is known: then one that the node itself ships counts as signed, and the tree as
    unproven.
    """
    if one.witness:
        return any(_is_signed_with(key, tree, one) for key in tree.known)
    return tree.key is None or _is_signed_with(tree.key, tree, one)


def _is_signed_with(key: NoteKey, tree: TreeEvidence, one: TreeCheckpoint) -> bool:
    text = Checkpoint(tree.origin, one.size, one.root).text()
    try:
        open_checkpoint(read_note(f"{text}\n{one.signatures}".encode()), key)
    except HistoryError:
        return False
    return True


def _tiles_apart(tiles: Sequence[int], proven: Sequence[int]) -> Iterator[LeafSpan]:
    """Yield the tiles whose rows and shipped hashes differ, as far as a checkpoint shows which of the two are right.

    `proven`: the largest size that follows from the shipped hashes, and that from the rows.
    """
    for tile in tiles:
        first, end = tile * TILE_WIDTH, (tile + 1) * TILE_WIDTH
        if proven[0] >= end or proven[-1] < end:
            yield LeafSpan(first, end - 1, "the rows of some of these leaves are not those that the node signed")
        else:
            words = "the hash above these leaves in the ledger history is not the one that the node signed"
            yield LeafSpan(first, end - 1, words)


def _judge(result: TreeResult, wrong: Sequence[TreeCheckpoint], signed: Sequence[TreeCheckpoint]) -> None:
    """Add what checkpoints without the computed root show: a fork, or leaves that were changed since."""
    for one in wrong:
        if one.size < result.proven:
            words = (
                f"its node signed the root {one.root.hex()} of size {one.size:,}, and a later checkpoint of size"
                f" {result.proven:,} that does not continue it"
            )
            result.forks.append(LeafSpan(0, one.size - 1, words))
            return
    later = [one for one in wrong if one.size > result.proven]
    if later and not any(span.last < later[0].size and span.last >= result.proven for span in result.rewritten):
        before = max((one.size for one in signed if one.size <= result.proven), default=0)
        words = f"the rows of some of these leaves do not have the root {later[0].root.hex()} that the node signed"
        result.rewritten.append(LeafSpan(before, later[0].size - 1, words))


def _holes(tree: TreeEvidence, rows: LeafIndex) -> Iterator[LeafHole]:
    """Yield the sealed leaves that no row has, except those whose hashes the node shipped: it declared their loss."""
    reach, size = 1, tree.size
    positions, times = (0, 0), (0, 0)
    if tree.entry is not None:
        opening = tree.entry.opening
        positions, times = (opening.position - 1, 0), (opening.time, 0)
    for run in sorted(tree.runs, key=lambda one: (one.first, -one.end)):
        yield from _within(rows, reach, min(run.first, size), positions[0], run.positions[0], times[0], run.times[0])
        if run.end > reach:
            reach, positions, times = run.end, (run.positions[1], 0), (run.times[1], 0)
    last = max(tree.shipped, key=lambda one: one.size, default=None)
    if last is not None:
        yield from _within(rows, reach, size, positions[0], last.position + 1, times[0], last.at)


def _within(
    rows: LeafIndex, first: int, end: int, after: int, before: int, since: int, until: int
) -> Iterator[LeafHole]:
    while first < end:
        if first in rows.leaves:
            first += 1
            continue
        last = first
        while last + 1 < end and last + 1 not in rows.leaves:
            last += 1
        yield LeafHole(first, last, (after, before), (since, until))
        first = last + 1
