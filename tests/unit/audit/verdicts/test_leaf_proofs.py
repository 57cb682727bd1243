"""Hashes of leaves are proven with a path to the root that the node signed, for any size of the tree."""

from __future__ import annotations

import pytest

from eventd.audit.verdicts.leaf_proofs import LeafProofs
from eventd.audit.verdicts.tree_checks import TreeEvidence
from federation.history.merkle import hash_leaf, hash_node
from tests.support.grown_trees import GrownTree, Row, evidence_of

GROWN = GrownTree(2300)


def evidence(size: int, *erased: int, hashed: bool = True) -> TreeEvidence:
    """Return what the lake has of a tree of this size, without the rows of some leaves."""
    history: list[Row] = [GROWN.opened(), GROWN.signed(size)]
    if hashed and size >= 256:
        history.append(GROWN.hashed(0, size // 256))
    return evidence_of(GROWN, history, [[row for row in GROWN.events[: size - 1] if row["leaf"] not in erased]])


def leaf(number: int) -> dict[int, bytes]:
    return {number: hash_leaf(GROWN.entries[number])}


@pytest.mark.parametrize("size", [200, 256, 257, 512, 700, 768, 1025, 1791, 1792, 2048, 2300])
def test_each_erased_leaf_is_proven_and_no_other_hash(size: int) -> None:
    in_each_tile = [tile * 256 + 7 for tile in range(size // 256)]
    for lost in (in_each_tile, [size - 1]):
        proofs = LeafProofs(evidence(size, *lost))
        for number in lost:
            assert proofs.prove(number // 256, leaf(number))
            assert not proofs.prove(number // 256, {number: b"x" * 32})
        assert not proofs.prove(size // 256, {size: b"x" * 32}), "the tree has no such leaf"


def test_a_tile_with_another_unknown_leaf_is_not_proven() -> None:
    assert not LeafProofs(evidence(1025, 5, 6)).prove(0, leaf(5))
    assert LeafProofs(evidence(1025, 5, 6)).prove(0, leaf(5) | leaf(6))


def test_without_the_hash_of_another_tile_none_is_proven() -> None:
    assert LeafProofs(evidence(1025, 5, hashed=False)).prove(0, leaf(5))
    proofs = LeafProofs(evidence(1025, 5, 300, hashed=False))
    assert not proofs.prove(0, leaf(5))


def test_a_size_that_is_far_from_what_the_lake_has_takes_no_memory() -> None:
    tree = evidence(1025, 5)
    tree.checkpoints = evidence_of(GROWN, [GROWN.signed(1 << 47, b"r" * 32)], []).checkpoints
    assert not LeafProofs(tree).prove(0, leaf(5))


def test_a_tile_costs_a_path_and_not_the_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    proofs, hashed = LeafProofs(evidence(2300, 5)), list[bytes]()

    def counted(left: bytes, right: bytes) -> bytes:
        hashed.append(left)
        return hash_node(left, right)

    monkeypatch.setattr("eventd.audit.verdicts.leaf_proofs.hash_node", counted)
    assert proofs.prove(0, leaf(5))
    assert len(hashed) == 3, "above the tile are 8 full ones"
