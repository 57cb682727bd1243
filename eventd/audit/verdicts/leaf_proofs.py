"""Proves with the largest checkpoint of a tree which hashes are those of its leaves."""

from __future__ import annotations

from collections.abc import Mapping

from eventd.audit.verdicts.tree_checks import LeafIndex, TreeEvidence, is_signed
from federation.history.merkle import hash_node, hash_perfect, join_hashes
from federation.history.tiles import TILE_WIDTH, perfect_roots


class LeafProofs:
    """Tells which hashes are those of leaves of a tree: the largest checkpoint follows from them and all else.

    The hashes of the tree are computed once. A tile then costs its own hashes, and those of a path to the root.
    """

    def __init__(self, tree: TreeEvidence) -> None:
        last = max(tree.shipped, key=lambda one: one.size, default=None)
        self._last = last if last is not None and is_signed(tree, last) else None
        self._rows = LeafIndex(tree)
        self._levels: list[list[bytes | None]] = []
        """By height above the tiles, the roots of the perfect subtrees; None for one that is not known."""
        shipped, tiles = tree.levels.get(1, {}), self._rows.tiles
        whole = 0 if self._last is None else self._last.size // TILE_WIDTH
        if sum(tile < whole for tile in {*shipped, *tiles}) < whole - 1:  # a key may sign any size
            self._last = None
        if self._last is not None:
            self._levels.append([tiles.get(tile, shipped.get(tile)) for tile in range(whole)])
            while len(self._levels[-1]) > 1:
                row = self._levels[-1]
                self._levels.append([_hash_pair(*row[at : at + 2]) for at in range(0, len(row) - 1, 2)])

    def prove(self, tile: int, leaves: Mapping[int, bytes]) -> bool:
        """Return whether these leaves of a tile have these hashes. False if others of the tile are unknown."""
        if self._last is None or any(leaf >= self._last.size for leaf in leaves):
            return False
        first, end = tile * TILE_WIDTH, min((tile + 1) * TILE_WIDTH, self._last.size)
        hashes = [leaves.get(leaf, self._rows.leaves.get(leaf)) for leaf in range(first, end)]
        known = [one for one in hashes if one is not None]
        if len(known) < len(hashes):
            return False
        is_last = end - first < TILE_WIDTH
        peaks = self._peaks() if is_last else self._peaks(tile, hash_perfect(known))
        part = perfect_roots(known) if is_last else self._rows.part(self._last.size)
        return peaks is not None and part is not None and join_hashes([*peaks, *part]) == self._last.root

    def _peaks(self, tile: int = -1, root: bytes = b"") -> list[bytes] | None:
        """Return the roots of the largest perfect subtrees above all full tiles, with another root of one of these."""
        found: list[bytes | None] = []
        whole = len(self._levels[0])
        for height in range(whole.bit_length() - 1, -1, -1):
            if whole >> height & 1:
                at = (whole >> height) - 1
                found.append(self._climb(tile, root, height) if tile >> height == at else self._levels[height][at])
        known = [one for one in found if one is not None]
        return known if len(known) == len(found) else None

    def _climb(self, tile: int, root: bytes, height: int) -> bytes | None:
        found: bytes | None = root
        for level in range(height):
            at = tile >> level
            pair = [found, self._levels[level][at ^ 1]]
            found = _hash_pair(*(pair[::-1] if at & 1 else pair))
        return found


def _hash_pair(left: bytes | None, right: bytes | None) -> bytes | None:
    return None if left is None or right is None else hash_node(left, right)
