"""Inclusion and consistency proofs of RFC 6962: the subtrees whose hashes form a proof, and its verification.

An inclusion proof shows that a tree has a leaf at an index; a consistency proof shows that a tree begins with all
leaves of a smaller one. The number of hashes follows from the sizes, so a proof with more or fewer is refused before
it is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from federation.errors import MalformedHistory, ProofMismatch
from federation.history.merkle import HASH_SIZE, hash_node, require_size


class Subtree(NamedTuple):
    """The leaves from `begin` to before `end`."""

    begin: int
    end: int


def inclusion_subtrees(index: int, size: int) -> list[Subtree]:
    """Return the subtrees of the inclusion proof of a leaf, from its sibling upwards. Raises MalformedHistory."""
    require_size(size)
    if not 0 <= index < size:
        raise MalformedHistory(f"a tree of size {size} has no leaf {index}", reason="index")
    begin, end, found = 0, size, list[Subtree]()
    while end - begin > 1:
        middle = begin + left_size(end - begin)
        if index < middle:
            found.append(Subtree(middle, end))
            end = middle
        else:
            found.append(Subtree(begin, middle))
            begin = middle
    return found[::-1]


def consistency_subtrees(old: int, new: int) -> list[Subtree]:
    """Return the subtrees of the consistency proof between two sizes. Raises MalformedHistory.

    The proof of a size with itself is empty. There is no proof for the empty tree, because every tree begins with it.
    """
    require_size(new)
    if not 0 < old <= new:
        raise MalformedHistory(f"there is no consistency proof from size {old} to size {new}", reason="size")
    begin, end, found = 0, new, list[Subtree]()
    while end != old:
        middle = begin + left_size(end - begin)
        if old <= middle:
            found.append(Subtree(middle, end))
            end = middle
        else:
            found.append(Subtree(begin, middle))
            begin = middle
    # The verifier knows the root of the whole old tree, and of no other subtree that ends there.
    if begin > 0:
        found.append(Subtree(begin, end))
    return found[::-1]


def left_size(size: int) -> int:
    """Return the number of leaves in the left part of a tree with at least two leaves: the largest power of two below
    its size."""
    return 1 << (size - 1).bit_length() - 1


def root_from_inclusion(leaf: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes:
    """Return the root that follows from the hash of a leaf and its path.

    Raises MalformedHistory for a path of another length.
    """
    subtrees = inclusion_subtrees(index, size)
    _require_hashes(f"the inclusion proof of leaf {index} in a tree of size {size}", path, len(subtrees))
    root = leaf
    for subtree, sibling in zip(subtrees, path, strict=True):
        root = hash_node(sibling, root) if subtree.end <= index else hash_node(root, sibling)
    return root


def verify_inclusion(leaf: bytes, index: int, size: int, path: Sequence[bytes], root: bytes) -> None:
    """Raise ProofMismatch if the path does not lead from the leaf to the root, MalformedHistory if it cannot."""
    computed = root_from_inclusion(leaf, index, size, path)
    if computed != root:
        raise ProofMismatch(
            f"the inclusion proof of leaf {index} leads to root {computed.hex()}, but the tree of size {size} has root"
            f" {root.hex()}: another entry is at this index, or the proof is of another tree",
            computed=computed,
            expected=root,
        )


def verify_consistency(old: int, old_root: bytes, new: int, new_root: bytes, proof: Sequence[bytes]) -> None:
    """Raise ProofMismatch if the proof does not connect the two roots, MalformedHistory if it cannot."""
    subtrees = consistency_subtrees(old, new)
    _require_hashes(f"the consistency proof from size {old} to size {new}", proof, len(subtrees))
    if old == new:
        _require_root(f"two trees of size {old}", old_root, new_root)
        return
    # Subtrees that end within the old tree are part of both roots, those behind it only of the new one.
    pairs = list(zip(subtrees, proof, strict=True))
    first = old_root if subtrees[0].begin >= old else pairs.pop(0)[1]
    old_computed = new_computed = first
    for subtree, sibling in pairs:
        if subtree.end <= old:
            old_computed = hash_node(sibling, old_computed)
            new_computed = hash_node(sibling, new_computed)
        else:
            new_computed = hash_node(new_computed, sibling)
    between = f"the consistency proof from size {old} to size {new}"
    _require_root(f"{between} and the tree of size {old}", old_computed, old_root)
    _require_root(f"{between} and the tree of size {new}", new_computed, new_root)


def _require_root(what: str, computed: bytes, expected: bytes) -> None:
    if computed != expected:
        raise ProofMismatch(
            f"{what} have different roots, {computed.hex()} and {expected.hex()}: what was in the smaller tree was"
            " changed or removed, or one of the two is of another tree",
            computed=computed,
            expected=expected,
        )


def _require_hashes(what: str, hashes: Sequence[bytes], count: int) -> None:
    if len(hashes) != count:
        raise MalformedHistory(f"{what} has {count} hashes, not {len(hashes)}", reason="proof_length")
    for number, one in enumerate(hashes, 1):
        if len(one) != HASH_SIZE:
            raise MalformedHistory(f"{what}: hash {number} has {len(one)} bytes, not {HASH_SIZE}", reason="hash")
