"""Tiles, in which a tree is stored and served: the profile of C2SP tlog-tiles.

A tile holds up to 256 hashes. Those of level 0 are hashes of leaves, those of a higher level are the roots of full
tiles of the level below. Everything between two levels is computed from a tile.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from federation.errors import MalformedHistory
from federation.history.forms import quote
from federation.history.merkle import EMPTY_ROOT, HASH_SIZE, MAX_SIZE, CompactRange, hash_perfect, join_hashes
from federation.history.multiproofs import multiproof_subtrees
from federation.history.proofs import Subtree, consistency_subtrees, inclusion_subtrees

TILE_HEIGHT: Final = 8
TILE_WIDTH: Final = 1 << TILE_HEIGHT
MAX_LEVEL: Final = (MAX_SIZE.bit_length() - 1) // TILE_HEIGHT
"""The highest level with a hash in a tree of the largest size."""

_PATH: Final = re.compile(
    r"tile/(?P<level>0|[1-9][0-9]?)/(?P<index>(?:x[0-9]{3}/)*[0-9]{3})(?:\.p/(?P<width>[1-9][0-9]{0,2}))?", re.ASCII
)
_MOST_PATH: Final = 64


class TileAddress(NamedTuple):
    """A tile by its level and its number there. With fewer than 256 hashes it is a partial one, at a tree's end."""

    level: int
    number: int
    width: int = TILE_WIDTH

    def path(self) -> str:
        """Return its path below the prefix of a log: `tile/0/x001/234.p/17`."""
        thousands, last = divmod(self.number, 1000)
        above = list[str]()
        while thousands:
            thousands, part = divmod(thousands, 1000)
            above.append(f"x{part:03}/")
        partial = f".p/{self.width}" if self.width < TILE_WIDTH else ""
        return f"tile/{self.level}/{''.join(reversed(above))}{last:03}{partial}"


TileReader = Callable[[TileAddress], bytes]
"""A function that returns the hashes of a tile. It may return more than requested: a tile that has grown since still
proves an older tree."""


def read_tile_path(path: str) -> TileAddress:
    """Return the tile with this path. Raises MalformedHistory for another spelling and for tiles that no tree has."""
    found = _PATH.fullmatch(path) if len(path) <= _MOST_PATH else None
    if found is not None:
        width = int(found["width"] or TILE_WIDTH)
        address = TileAddress(int(found["level"]), int(found["index"].replace("x", "").replace("/", "")), width)
        if address.path() == path and _last_leaf(address) <= MAX_SIZE:
            return address
    raise MalformedHistory(
        f"{quote(path)} is not the path of a tile, such as tile/0/x001/234 or tile/1/000.p/17", reason="tile_path"
    )


def _last_leaf(address: TileAddress) -> int:
    """Return the smallest size of a tree that has this tile."""
    return (address.number * TILE_WIDTH + address.width) << address.level * TILE_HEIGHT


def read_hashes(tile: bytes, address: TileAddress) -> list[bytes]:
    """Return the hashes of a tile up to the width of its address. Raises MalformedHistory if it is shorter."""
    if len(tile) % HASH_SIZE or not address.width * HASH_SIZE <= len(tile) <= TILE_WIDTH * HASH_SIZE:
        raise MalformedHistory(
            f"{address.path()} has {len(tile)} bytes instead of {address.width * HASH_SIZE}", reason="tile_length"
        )
    return [tile[at : at + HASH_SIZE] for at in range(0, address.width * HASH_SIZE, HASH_SIZE)]


def open_tiles(size: int) -> list[TileAddress]:
    """Return the partial tiles of a tree, the lowest level first. Their hashes alone determine its root."""
    widths = ((level, size >> level * TILE_HEIGHT) for level in range(MAX_LEVEL + 1))
    return [
        TileAddress(level, above // TILE_WIDTH, above % TILE_WIDTH) for level, above in widths if above % TILE_WIDTH
    ]


class TileBuilder:
    """Grows a tree and collects the tiles that have changed: all that a log writes.

    `read` returns the partial tiles of the tree from which it starts.
    """

    def __init__(self, size: int = 0, read: TileReader | None = None) -> None:
        self._open: dict[int, list[bytes]] = {}
        for address in open_tiles(size):
            if read is None:
                raise MalformedHistory(f"a tree of size {size} needs {address.path()} to grow", reason="tile_missing")
            self._open[address.level] = read_hashes(read(address), address)
        self._range = CompactRange(size, _range_hashes(self._open))

    @property
    def size(self) -> int:
        """The size of the tree."""
        return self._range.size

    def root(self) -> bytes:
        """Return the root of the tree."""
        return self._range.root()

    def extend(self, leaves: Sequence[bytes]) -> dict[TileAddress, bytes]:
        """Append the hashes of leaves. Return the tiles that were filled, and the partial ones that have changed."""
        before, at = self.size, 0
        changed = dict[TileAddress, bytes]()
        while at < len(leaves):
            whole = leaves[at : at + TILE_WIDTH]
            if self.size % TILE_WIDTH == 0 and len(whole) == TILE_WIDTH:
                # At once, at half the cost: a node that lags behind catches up this way.
                changed[TileAddress(0, self.size // TILE_WIDTH)] = b"".join(whole)
                self._append(hash_perfect(whole), 1, changed)
                at += TILE_WIDTH
            else:
                self._append(leaves[at], 0, changed)
                at += 1
        for address in open_tiles(self.size):
            if self.size >> address.level * TILE_HEIGHT != before >> address.level * TILE_HEIGHT:
                changed[address] = b"".join(self._open[address.level])
        return changed

    def _append(self, node: bytes, lowest: int, changed: dict[TileAddress, bytes]) -> None:
        completed = self._range.append(node, lowest * TILE_HEIGHT)
        for level, one in enumerate(completed[::TILE_HEIGHT], lowest):
            row = self._open.setdefault(level, [])
            row.append(one)
            if len(row) == TILE_WIDTH:
                number = (self.size >> level * TILE_HEIGHT) // TILE_WIDTH - 1
                changed[TileAddress(level, number)] = b"".join(row)
                row.clear()


def _range_hashes(open_rows: dict[int, list[bytes]]) -> list[bytes]:
    """Return the roots of the perfect subtrees of a tree from its partial tiles, the largest first."""
    return [one for level in sorted(open_rows, reverse=True) for one in perfect_roots(open_rows[level])]


def perfect_roots(row: Sequence[bytes]) -> list[bytes]:
    """Return the roots of the perfect subtrees above a row of hashes, the largest first."""
    begin, found = 0, list[bytes]()
    for height in range(len(row).bit_length() - 1, -1, -1):
        if len(row) >> height & 1:
            found.append(hash_perfect(row[begin : begin + (1 << height)]))
            begin += 1 << height
    return found


def root_of(size: int, read: TileReader) -> bytes:
    """Return the root of a tree from its partial tiles."""
    rows = {address.level: read_hashes(read(address), address) for address in open_tiles(size)}
    return join_hashes(_range_hashes(rows)) if rows else EMPTY_ROOT


def inclusion_proof(index: int, size: int, read: TileReader) -> list[bytes]:
    """Return the inclusion proof of a leaf in the tree of this size, which may be smaller than the stored one."""
    return _hashes_of(inclusion_subtrees(index, size), size, read)


def multiproof(indices: Sequence[int], size: int, read: TileReader) -> list[bytes]:
    """Return the multiproof of leaves in the tree of this size, which may be smaller than the stored one."""
    return _hashes_of(multiproof_subtrees(indices, size), size, read)


def consistency_proof(old: int, new: int, read: TileReader) -> list[bytes]:
    """Return the consistency proof between two sizes, the greater of which may be smaller than the stored tree."""
    return _hashes_of(consistency_subtrees(old, new), new, read)


def _hashes_of(subtrees: Iterable[Subtree], size: int, read: TileReader) -> list[bytes]:
    rows: dict[TileAddress, list[bytes]] = {}

    def perfect(begin: int, height: int) -> bytes:
        """Return the root of a perfect subtree, computed within the tile that holds it or its descendants."""
        level = height // TILE_HEIGHT
        first = begin >> level * TILE_HEIGHT
        index, offset = divmod(first, TILE_WIDTH)
        width = min((size >> level * TILE_HEIGHT) - index * TILE_WIDTH, TILE_WIDTH)
        address = TileAddress(level, index, width)
        if address not in rows:
            rows[address] = read_hashes(read(address), address)
        return hash_perfect(rows[address][offset : offset + (1 << height % TILE_HEIGHT)])

    return [_hash_of(subtree, perfect) for subtree in subtrees]


def _hash_of(subtree: Subtree, perfect: Callable[[int, int], bytes]) -> bytes:
    """Return the root of a subtree from those of its perfect subtrees."""
    begin, found = subtree.begin, list[bytes]()
    while begin < subtree.end:
        height = (subtree.end - begin).bit_length() - 1
        found.append(perfect(begin, height))
        begin += 1 << height
    return join_hashes(found)
