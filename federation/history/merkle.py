"""The hashes of a Merkle tree as RFC 6962 defines them, with SHA-256, and the compact range of a growing tree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Final

from federation.errors import MalformedHistory

HASH_SIZE: Final = 32
MAX_SIZE: Final = (1 << 48) - 1
"""The largest size of a tree. It bounds the hashes of a proof and the levels of tiles."""
EMPTY_ROOT: Final = sha256(b"").digest()


def hash_leaf(entry: bytes) -> bytes:
    """Return the hash of a leaf with this entry."""
    return sha256(b"\x00" + entry).digest()


def hash_node(left: bytes, right: bytes) -> bytes:
    """Return the hash of a node with these two children."""
    return sha256(b"\x01" + left + right).digest()


def hash_perfect(hashes: Sequence[bytes]) -> bytes:
    """Return the root of the perfect subtree above these hashes, whose number is a power of two."""
    row = hashes
    while len(row) > 1:
        row = [sha256(b"\x01" + row[at] + row[at + 1]).digest() for at in range(0, len(row), 2)]
    return row[0]


def join_hashes(hashes: Sequence[bytes]) -> bytes:
    """Return the root above perfect subtrees that follow each other, each one smaller than the one before it."""
    root = hashes[-1]
    for left in reversed(hashes[:-1]):
        root = hash_node(left, root)
    return root


def require_size(size: int) -> None:
    """Raise MalformedHistory for a size that no tree has."""
    if not 0 <= size <= MAX_SIZE:
        raise MalformedHistory(f"{size} is not the size of a tree: it is from 0 to {MAX_SIZE}", reason="size")


class CompactRange:
    """A tree as the roots of its perfect subtrees, the largest first: one for each bit that is set in its size.

    That is all that must be kept of a tree to append to it and to know its root.
    """

    __slots__ = ("hashes", "size")

    def __init__(self, size: int = 0, hashes: Iterable[bytes] = ()) -> None:
        require_size(size)
        self.size = size
        self.hashes = list(hashes)
        if len(self.hashes) != size.bit_count() or any(len(one) != HASH_SIZE for one in self.hashes):
            raise MalformedHistory(
                f"a tree of size {size} is kept as {size.bit_count()} hashes of {HASH_SIZE} bytes, not as"
                f" {len(self.hashes)} of {sorted({len(one) for one in self.hashes})}",
                reason="compact_range",
            )

    def append(self, node: bytes, height: int = 0) -> list[bytes]:
        """Append the hash of a leaf, or the root of a perfect subtree with 2**height leaves.

        Return the roots of the perfect subtrees that are complete now, each twice as high: `node` itself, then upwards.
        """
        require_size(self.size + (1 << height))
        rest = self.size >> height
        if len(node) != HASH_SIZE or rest << height != self.size:
            raise MalformedHistory(
                f"a hash of {len(node)} bytes and height {height} cannot follow leaf {self.size - 1} of a tree",
                reason="append",
            )
        completed = [node]
        while rest & 1:
            node = sha256(b"\x01" + self.hashes.pop() + node).digest()
            completed.append(node)
            rest >>= 1
        self.hashes.append(node)
        self.size += 1 << height
        return completed

    def root(self) -> bytes:
        """Return the root of the tree."""
        return join_hashes(self.hashes) if self.hashes else EMPTY_ROOT
