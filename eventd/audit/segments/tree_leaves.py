"""The leaves of trees in the rows of `events`: what a task computes of them, and all that is kept of it.

A full tile of leaves, which is 256 neighbours, is kept as the root above it. So a later audit, and the check of
each checkpoint, need no row again. Where a tile continues in another segment, the hashes of its leaves are kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Annotated, Final, NamedTuple

import msgspec
import numpy as np

from eventd.audit.arrays.columns import NEVER, Columns, Mask, Numbers
from eventd.audit.segments.leaf_comparison import LEAVES
from eventd.lake.manifest import Number, Time
from federation.history.merkle import HASH_SIZE, hash_perfect
from federation.history.tiles import TILE_WIDTH, perfect_roots

LEAF_COLUMNS: Final = ("group", "own", "tree", "leaf", "digest", "position", "seq", "recorded_at")
"""The columns of `events` that show the leaves."""
MOST_CLAIMED: Final = 1_000
"""Maximum number of claims of a segment: senders state trees and leaves, perhaps another one for each row."""
_SHARES: Final = 1 << 32
Hashes = Annotated[bytes, msgspec.Meta(max_length=1 << 28)]
"""Hashes, one after the other."""


class TreeMove(msgspec.Struct, frozen=True, array_like=True):
    """Leaves of `tree` from index `end` on are leaves of the tree `to`, which took them over, from index 1 on.

    No checkpoint of `tree` covers them: the node opened `to` before it signed one.
    """

    tree: str
    end: Number
    to: str


class TreeCut(msgspec.Struct, frozen=True, array_like=True):
    """A size of a tree with a checkpoint: that of a leaf in a run, or of the end of the run.

    `roots`: those of the perfect subtrees above the leaves of the last tile before it, if they are all in the run;
    otherwise they follow from the run's `head` or `tail`. `at`: when the event of the next leaf was recorded
    (microseconds); 0 if it is not in the run.
    """

    size: Number
    roots: Hashes
    at: Time


class LeafRun(msgspec.Struct, frozen=True, array_like=True):
    """Neighbouring leaves of a tree, from `first` to before `end`, in the rows of a segment.

    `head` are the hashes of the leaves up to the first full tile, or of all leaves without one; `tiles` the roots of
    the full tiles, of which those that were not chosen are zeros; `tail` the hashes of the other leaves. Seqs,
    positions and times (microseconds) are those of the first and the last leaf.
    """

    group: str
    tree: str
    first: Number
    end: Number
    head: Hashes
    tiles: Hashes
    tail: Hashes
    cuts: list[TreeCut]
    seqs: tuple[Number, Number]
    positions: tuple[Number, Number]
    times: tuple[Time, Time]


class LeaflessRun(msgspec.Struct, frozen=True, array_like=True):
    """Neighbouring own events of a group that have no leaf: their number, and the first and last position and seq.

    `at`: when the first one was recorded (microseconds).
    """

    group: str
    events: Number
    positions: tuple[Number, Number]
    seqs: tuple[Number, Number]
    at: Time


class LeafClaims(msgspec.Struct, frozen=True, array_like=True):
    """Leaves of a tree that rows of other nodes' events have, as their senders stated: the first and the last one.

    Both are in one range of `LEAVES`, so that a false leaf far away does not put a segment into tasks in between.
    """

    group: str
    tree: str
    first: Number
    last: Number


class TreeLeaves(msgspec.Struct):
    """The leaves in a segment of `events`, and its own events without one. `cuts`: the places that were looked for.

    `claims`: the leaves of events of other nodes.
    """

    runs: list[LeafRun] = []
    leafless: list[LeaflessRun] = []
    cuts: list[tuple[str, Number]] = []
    claims: list[LeafClaims] = []


class LeafTerms(NamedTuple):
    """How the leaves of a segment are computed: `cuts` are sizes of trees with a checkpoint.

    Of the full tiles, `percent` are computed, chosen by the `key`, which writers to the lake do not know.
    """

    moves: Sequence[TreeMove]
    cuts: Sequence[tuple[str, int]]
    percent: float
    key: bytes


class _Leaves(NamedTuple):
    """Leaves of one group and tree, in the order of their indexes, and the rows of their events."""

    group: str
    tree: str
    leaf: Numbers
    rows: Numbers


def find_leaves(table: Columns, terms: LeafTerms) -> TreeLeaves:
    """Return the leaves of a segment's rows."""
    if not table.rows:
        return TreeLeaves(cuts=[*terms.cuts])
    own, leaf = table.booleans("own"), table.numbers("leaf")
    runs = [
        run for leaves in _by_tree(table, own & (leaf != NEVER), terms.moves) for run in _runs(table, leaves, terms)
    ]
    claims = _claims(table, ~own & (leaf != NEVER))
    return TreeLeaves(runs, [*_leafless(table, own, leaf)], [*terms.cuts], claims)


def is_chosen(tree: str, tile: int, terms: LeafTerms) -> bool:
    """Return whether the tile with this number is computed."""
    if terms.percent >= 100:
        return True
    drawn = sha256(b"%s %s %d" % (terms.key, tree.encode(), tile)).digest()
    return int.from_bytes(drawn[:4]) < terms.percent / 100 * _SHARES


def _claims(table: Columns, wanted: Mask) -> list[LeafClaims]:
    """Return the claims of these rows. Of more than `MOST_CLAIMED`, those with the most rows: few are false at once."""
    group, tree, rows = table.words("group"), table.words("tree"), np.flatnonzero(wanted)
    if not len(rows):
        return []
    keys, leaf = group.codes[rows].astype(np.int64) * tree.size + tree.codes[rows], table.numbers("leaf")[rows]
    order = np.lexsort((leaf, keys))
    keys, leaf = keys[order], leaf[order]
    begins = np.append(0, np.flatnonzero((np.diff(keys) != 0) | (np.diff(leaf // LEAVES) != 0)) + 1)
    sizes = np.diff(np.append(begins, len(keys)))
    found = []
    for at in np.sort(np.argsort(-sizes, kind="stable")[:MOST_CLAIMED]).tolist():
        first, (of_group, of_tree) = int(begins[at]), divmod(int(keys[begins[at]]), tree.size)
        last = int(leaf[first + int(sizes[at]) - 1])
        found.append(LeafClaims(group.values[of_group], tree.values[of_tree], int(leaf[first]), last))
    return found


def _by_tree(table: Columns, wanted: Mask, moves: Sequence[TreeMove]) -> Iterator[_Leaves]:
    group, tree, leaf = table.words("group"), table.words("tree"), table.numbers("leaf")
    rows = np.flatnonzero(wanted)
    keys = group.codes[rows].astype(np.int64) * tree.size + tree.codes[rows]
    for key in np.unique(keys).tolist():
        of_group, of_tree = divmod(key, tree.size)
        some = rows[keys == key]
        name, index = tree.values[of_tree], leaf[some]
        for move in (move for move in moves if move.tree == name):
            moved = index >= move.end
            if moved.any():
                taken = some[moved]
                yield _sorted(group.values[of_group], move.to, index[moved] - max(move.end, 1) + 1, taken)
                some, index = some[~moved], index[~moved]
        if len(some):
            yield _sorted(group.values[of_group], name, index, some)


def _sorted(group: str, tree: str, leaf: Numbers, rows: Numbers) -> _Leaves:
    order = np.argsort(leaf, kind="stable")
    return _Leaves(group, tree, leaf[order], rows[order])


def _runs(table: Columns, leaves: _Leaves, terms: LeafTerms) -> Iterator[LeafRun]:
    """Yield the runs of leaves; of several rows with one leaf, each but the first is in a run of its own."""
    breaks = np.flatnonzero(np.diff(leaves.leaf) != 1) + 1
    for begin, end in zip([0, *breaks.tolist()], [*breaks.tolist(), len(leaves.leaf)], strict=True):
        yield _run(table, leaves._replace(leaf=leaves.leaf[begin:end], rows=leaves.rows[begin:end]), terms)


def _run(table: Columns, leaves: _Leaves, terms: LeafTerms) -> LeafRun:
    first, end = int(leaves.leaf[0]), int(leaves.leaf[-1]) + 1
    digests = _digests(table, leaves.rows)
    low, high = -(-first // TILE_WIDTH), end // TILE_WIDTH
    cuts = sorted({size for tree, size in terms.cuts if tree == leaves.tree and first < size <= end})
    if low >= high:
        low = high = 0
        head, tail = b"".join(_hashes(digests, 0, end - first)), b""
    else:
        head = b"".join(_hashes(digests, 0, low * TILE_WIDTH - first))
        tail = b"".join(_hashes(digests, high * TILE_WIDTH - first, end - first))
    tiles = bytearray()
    for tile in range(low, high):
        begin = tile * TILE_WIDTH - first
        computed = is_chosen(leaves.tree, tile, terms)
        tiles += hash_perfect(_hashes(digests, begin, begin + TILE_WIDTH)) if computed else bytes(HASH_SIZE)
    ends = leaves.rows[[0, -1]]
    at = table.numbers("recorded_at")
    return LeafRun(
        leaves.group,
        leaves.tree,
        first,
        end,
        head,
        bytes(tiles),
        tail,
        [_cut(size, digests, range(low, high), leaves, at) for size in cuts],
        _two(table.numbers("seq")[ends]),
        _two(table.numbers("position")[ends]),
        _two(at[ends]),
    )


def _two(values: Numbers) -> tuple[int, int]:
    return int(values[0]), int(values[1])


def _cut(size: int, digests: bytes, tiles: range, leaves: _Leaves, at: Numbers) -> TreeCut:
    first, roots = int(leaves.leaf[0]), b""
    tile, rest = divmod(size, TILE_WIDTH)
    if rest and tile in tiles:
        begin = tile * TILE_WIDTH - first
        roots = b"".join(perfect_roots(_hashes(digests, begin, begin + rest)))
    following = size - first
    return TreeCut(size, roots, int(at[leaves.rows[following]]) if following < len(leaves.rows) else 0)


def _digests(table: Columns, rows: Numbers) -> bytes:
    """Return the digests in these rows, one after the other: an object for each would take longer than its hash."""
    found = table.taken("digest", rows)
    begin = found.offset * HASH_SIZE
    return bytes(found.buffers()[1])[begin : begin + len(found) * HASH_SIZE]


def _hashes(digests: bytes, begin: int, end: int) -> list[bytes]:
    """Return the hashes of the leaves of the events from `begin` to before `end`."""
    places = range(begin * HASH_SIZE, end * HASH_SIZE, HASH_SIZE)
    return [sha256(b"\0\1" + digests[at : at + HASH_SIZE]).digest() for at in places]


def _leafless(table: Columns, own: Mask, leaf: Numbers) -> Iterator[LeaflessRun]:
    group = table.words("group")
    position, seq, at = (table.numbers(name) for name in ("position", "seq", "recorded_at"))
    for code in np.unique(group.codes).tolist():
        rows = np.flatnonzero(own & (group.codes == code))
        without = leaf[rows] == NEVER
        breaks = np.flatnonzero(np.diff(without)) + 1
        for some in np.split(rows, breaks):
            if len(some) and leaf[some[0]] == NEVER:
                ends = some[[0, -1]]
                times = int(at[some[0]])
                yield LeaflessRun(group.values[code], len(some), _two(position[ends]), _two(seq[ends]), times)
