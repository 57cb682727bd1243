"""Multiproofs: the fewest hashes that, with some leaves of a tree, give its root. Pure.

The hashes are the roots of the largest subtrees without any of these leaves, from left to right. So no hash follows
from others, and their number follows from the indices and the size. A range proof is the multiproof of neighbouring
leaves: at most one subtree of each height lies to their left, and one to their right.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from federation.errors import MalformedHistory, ProofMismatch
from federation.history.merkle import HASH_SIZE, hash_node, require_size
from federation.history.proofs import Subtree, inclusion_subtrees, left_size


def multiproof_subtrees(indices: Sequence[int], size: int) -> list[Subtree]:
    """Return the subtrees whose roots are the multiproof of leaves, which must rise. Raises MalformedHistory.

    `indices` may be a `range` of any length: a subtree of which all leaves are given takes one step.
    """
    require_size(size)
    rising = isinstance(indices, range) or all(one < other for one, other in pairwise(indices))
    if not indices or not rising or indices[0] < 0 or indices[-1] >= size:
        raise MalformedHistory(
            f"a multiproof in a tree of size {size} is of leaves from 0 to {size - 1}, in rising order", reason="index"
        )
    return [*_outside(indices, 0, len(indices), Subtree(0, size))]


def _outside(indices: Sequence[int], low: int, high: int, within: Subtree) -> Iterator[Subtree]:
    """Yield the largest subtrees without any of the leaves; those within a subtree are `indices[low:high]`."""
    leaves = within.end - within.begin
    if low == high:
        yield within
    elif high - low < leaves:
        middle = within.begin + left_size(leaves)
        cut = bisect_left(indices, middle, low, high)
        yield from _outside(indices, low, cut, Subtree(within.begin, middle))
        yield from _outside(indices, cut, high, Subtree(middle, within.end))


def path_of_one(index: int, size: int, proof: Sequence[bytes]) -> tuple[bytes, ...]:
    """Return the inclusion path of a leaf from its multiproof: the same hashes, from the leaf upwards.

    Raises MalformedHistory for a proof of another length.
    """
    subtrees = multiproof_subtrees([index], size)
    if len(proof) != len(subtrees):
        raise MalformedHistory(
            f"the proof of leaf {index} of a tree of size {size} has {len(subtrees)} hashes, not {len(proof)}",
            reason="proof_length",
        )
    hashes = dict(zip(subtrees, proof, strict=True))
    return tuple(hashes[subtree] for subtree in inclusion_subtrees(index, size))


def root_from_leaves(leaves: Mapping[int, bytes], size: int, proof: Sequence[bytes]) -> bytes:
    """Return the root that follows from the hashes of leaves, by their indices, and their multiproof.

    Raises MalformedHistory for a proof with more or fewer hashes.
    """
    indices = sorted(leaves)
    count = len(multiproof_subtrees(indices, size))
    if len(proof) != count:
        raise MalformedHistory(
            f"the proof of {len(indices)} leaves of a tree of size {size} has {count} hashes, not {len(proof)}",
            reason="proof_length",
        )
    if any(len(one) != HASH_SIZE for one in (*proof, *leaves.values())):
        raise MalformedHistory(f"a hash of a proof of {len(indices)} leaves is not {HASH_SIZE} bytes", reason="hash")
    rest = iter(proof)

    def root(low: int, high: int, begin: int, end: int) -> bytes:
        if low == high:
            return next(rest)
        if end - begin == 1:
            return leaves[begin]
        middle = begin + left_size(end - begin)
        cut = bisect_left(indices, middle, low, high)
        left = root(low, cut, begin, middle)
        return hash_node(left, root(cut, high, middle, end))

    return root(0, len(indices), 0, size)


def verify_leaves(leaves: Mapping[int, bytes], size: int, proof: Sequence[bytes], root: bytes) -> None:
    """Raise ProofMismatch if leaves and their multiproof do not give the root, MalformedHistory if they cannot."""
    computed = root_from_leaves(leaves, size, proof)
    if computed != root:
        raise ProofMismatch(
            f"the proof of {len(leaves)} leaves, {min(leaves)} to {max(leaves)}, leads to root {computed.hex()}, but"
            f" the tree of size {size} has root {root.hex()}: another entry is at one of these indices, or the proof is"
            " of another tree",
            computed=computed,
            expected=root,
        )
