"""Proofs of many leaves against their definition: any tree, any of its leaves."""

from __future__ import annotations

from functools import cache

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.errors import HistoryError, MalformedHistory, ProofMismatch, UnprovenNote
from federation.history.bulk_answers import check_entries, check_range
from federation.history.exchange import (
    MOST_MULTIPROOF,
    MOST_RANGE_PROOF,
    ProveAnswer,
    ProveQuestion,
    RangeAnswer,
    RangeQuestion,
    write_hashes,
)
from federation.history.merkle import MAX_SIZE, hash_leaf
from federation.history.multiproofs import multiproof_subtrees, path_of_one, root_from_leaves, verify_leaves
from federation.history.proofs import Subtree
from federation.history.tiles import TileAddress, TileBuilder, multiproof
from tests.support import plain_history as plain
from tests.support.growing_tree import SECOND, GrowingTree

MOST = 400
ENTRIES = [b"%d" % index for index in range(MOST)]
LEAVES = [hash_leaf(entry) for entry in ENTRIES]


@cache
def tiles() -> dict[TileAddress, bytes]:
    """The tiles of the largest tree: of a smaller one they have more."""
    found = TileBuilder().extend(LEAVES)
    return {TileAddress(tile.level, tile.number): hashes for tile, hashes in found.items()}


def read(tile: TileAddress) -> bytes:
    return tiles()[TileAddress(tile.level, tile.number)]


def of(indices: list[int]) -> dict[int, bytes]:
    return {index: LEAVES[index] for index in indices}


@st.composite
def some_leaves(draw: st.DrawFn) -> tuple[int, list[int]]:
    """A size, and some leaves of a tree of this size in rising order: few, many, or neighbours."""
    size = draw(st.integers(1, MOST))
    few = st.sets(st.integers(0, size - 1), min_size=1, max_size=20)
    missing = st.sets(st.integers(0, size - 1), max_size=min(size - 1, 20))
    many = missing.map(lambda out: set(range(size)) - out)
    ends = st.tuples(st.integers(0, size - 1), st.integers(0, size - 1))
    neighbours = ends.map(lambda both: set(range(min(both), max(both) + 1)))
    return size, sorted(draw(st.one_of(few, many, neighbours)))


@given(some_leaves())
@settings(deadline=None)
def test_a_multiproof_is_that_of_the_definition_and_gives_the_root(chosen: tuple[int, list[int]]) -> None:
    size, indices = chosen
    proof = multiproof(indices, size, read)
    assert proof == plain.multiproof(set(indices), ENTRIES[:size])
    root = plain.root(ENTRIES[:size])
    verify_leaves(of(indices), size, proof, root)
    rest = [*proof]
    assert plain.root_by_multiproof(of(indices), 0, size, rest) == root
    assert rest == []


@given(some_leaves(), st.data())
@settings(deadline=None)
def test_a_multiproof_holds_for_no_other_leaf_size_or_hash(chosen: tuple[int, list[int]], data: st.DataObject) -> None:
    size, indices = chosen
    proof, root = multiproof(indices, size, read), plain.root(ENTRIES[:size])
    at = data.draw(st.sampled_from(indices))
    with pytest.raises(ProofMismatch):
        verify_leaves(of(indices) | {at: hash_leaf(b"rewritten")}, size, proof, root)
    with pytest.raises(MalformedHistory) as more:
        verify_leaves(of(indices), size, [*proof, bytes(32)], root)
    assert more.value.reason == "proof_length"
    if not proof:
        return
    with pytest.raises(MalformedHistory) as less:
        verify_leaves(of(indices), size, proof[:-1], root)
    assert less.value.reason == "proof_length"
    wrong = data.draw(st.integers(0, len(proof) - 1))
    with pytest.raises(ProofMismatch):
        verify_leaves(of(indices), size, [*proof[:wrong], bytes(32), *proof[wrong + 1 :]], root)


def test_all_leaves_need_no_hash_and_one_leaf_needs_its_path_from_left_to_right() -> None:
    assert multiproof(range(MOST), MOST, read) == []
    path = plain.path(3, ENTRIES[:6])
    assert multiproof([3], 6, read) == [path[1], path[0], path[2]]


@given(st.integers(1, MOST), st.data())
@settings(deadline=None)
def test_the_multiproof_of_one_leaf_is_its_inclusion_path_in_another_order(size: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, size - 1))
    proof = multiproof([index], size, read)
    assert list(path_of_one(index, size, proof)) == plain.path(index, ENTRIES[:size])
    with pytest.raises(MalformedHistory) as refused:
        path_of_one(index, size, [*proof, bytes(32)])
    assert refused.value.reason == "proof_length"


@given(st.integers(1, MAX_SIZE), st.data())
def test_a_range_of_the_largest_tree_has_a_bounded_proof_that_costs_its_height(size: int, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, size - 1))
    assert len(multiproof_subtrees(range(first, data.draw(st.integers(first, size - 1)) + 1), size)) <= MOST_RANGE_PROOF


def test_the_bound_of_a_multiproof_allows_1000_entries_of_500_million_leaves() -> None:
    apart = range(0, 500_000_000, 500_000)
    assert len(multiproof_subtrees([*apart], 500_000_000)) <= MOST_MULTIPROOF


@pytest.mark.parametrize("indices", [[], [2, 1], [1, 1], [-1], [4], range(2, 2), range(3, 5)])
def test_leaves_that_the_tree_lacks_or_that_do_not_rise_have_no_proof(indices: list[int]) -> None:
    with pytest.raises(MalformedHistory, match="from 0 to 3, in rising order") as refused:
        multiproof_subtrees(indices, 4)
    assert refused.value.reason == "index"


@pytest.mark.parametrize("size", [-1, MAX_SIZE + 1])
def test_a_size_that_no_tree_has_is_refused(size: int) -> None:
    with pytest.raises(MalformedHistory):
        multiproof_subtrees([0], size)


def test_a_hash_of_another_length_is_refused() -> None:
    for leaves, proof in (({0: bytes(31)}, [bytes(32)]), ({0: bytes(32)}, [bytes(31)])):
        with pytest.raises(MalformedHistory) as refused:
            root_from_leaves(leaves, 2, proof)
        assert refused.value.reason == "hash"


def test_the_proof_of_a_subtree_stands_for_all_leaves_in_it() -> None:
    assert multiproof_subtrees([5], 9) == [Subtree(0, 4), Subtree(4, 5), Subtree(6, 8), Subtree(8, 9)]


# --- answers --------------------------------------------------------------------------------------------------------

TREE = GrowingTree().grow(*"abcdefgh")
HASHES = [hash_leaf(entry) for entry in TREE.entries]
KEY = TREE.signer.key
NOTE = TREE.note().encode().decode()
RANGE = RangeQuestion(tree=str(TREE.origin), first=2, last=5)


def ranged(first: int = 2, last: int = 5, note: str = NOTE) -> RangeAnswer:
    proof = plain.multiproof({*range(first, last + 1)}, TREE.entries)
    return RangeAnswer(proof=write_hashes(tuple(proof)), note=note)


def test_a_range_is_proven_by_the_hashes_of_its_leaves() -> None:
    assert check_range(RANGE, ranged(), HASHES[2:6], KEY).size == 9


@pytest.mark.parametrize(
    ("answer", "leaves", "reason"),
    [
        (ranged(), [*HASHES[2:5], HASHES[6]], "root"),
        (ranged(), [HASHES[3], HASHES[2], *HASHES[4:6]], "root"),
        (ranged(), HASHES[2:5], "index"),
        (ranged(last=6), HASHES[2:6], "root"),
        (ranged(note=NOTE.replace("— ", "- ")), HASHES[2:6], "note"),
        (ranged(note=GrowingTree(key=SECOND).grow(*"abcdefgh").note().encode().decode()), HASHES[2:6], "unsigned"),
        (ranged(note=TREE.note(8).encode().decode()), HASHES[2:6], "proof_length"),
        (msgspec.structs.replace(ranged(), proof=("AAA",)), HASHES[2:6], "base64"),
    ],
    ids=["forged", "reordered", "dropped", "other-range", "no-note", "other-key", "other-size", "not-base64"],
)
def test_an_answer_to_another_range_proves_nothing(answer: RangeAnswer, leaves: list[bytes], reason: str) -> None:
    with pytest.raises(HistoryError) as refused:
        check_range(RANGE, answer, leaves, KEY)
    assert refused.value.reason == reason


def test_the_checkpoint_of_another_size_is_refused_where_one_was_asked_for() -> None:
    with pytest.raises(MalformedHistory, match="of size 8 is asked for, and the answer has that of size 9"):
        check_range(msgspec.structs.replace(RANGE, size=8), ranged(), HASHES[2:6], KEY)


ASKED = ProveQuestion(tree=str(TREE.origin), ids=("x", "y"), digests=("z",), indices=(7,))
FOUR = [HASHES[3], HASHES[1], HASHES[3], HASHES[7]]


def proven(*indices: int) -> ProveAnswer:
    proof = plain.multiproof({*indices} - {0}, TREE.entries) if any(indices) else []
    return ProveAnswer(indices=indices, proof=write_hashes(tuple(proof)), note=NOTE)


def test_entries_are_proven_with_one_proof_also_if_one_is_asked_for_twice_or_is_unknown() -> None:
    assert check_entries(ASKED, proven(3, 1, 3, 7), FOUR, KEY)[1] == {0: 3, 1: 1, 2: 3, 3: 7}
    assert check_entries(ASKED, proven(0, 1, 0, 7), FOUR, KEY)[1] == {1: 1, 3: 7}
    checkpoint, found = check_entries(ASKED, proven(0, 0, 0, 0), FOUR, KEY)
    assert (checkpoint.size, found) == (9, {})


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (proven(3, 1, 3), "index"),
        (proven(3, 1, 3, 6), "index"),
        (proven(3, 3, 3, 7), "index"),
        (proven(2, 1, 2, 7), "root"),
        (proven(10, 1, 10, 7), "index"),
        (msgspec.structs.replace(proven(3, 1, 3, 7), proof=proven(3, 1, 0, 0).proof), "proof_length"),
        (msgspec.structs.replace(proven(3, 1, 3, 7), note=NOTE.replace("\n9\n", "\n8\n")), "signature"),
    ],
    ids=["too-few", "other-index", "two-at-one", "wrong-index", "beyond", "other-proof", "changed-note"],
)
def test_an_answer_about_other_entries_proves_nothing(answer: ProveAnswer, reason: str) -> None:
    with pytest.raises((HistoryError, UnprovenNote)) as refused:
        check_entries(ASKED, answer, FOUR, KEY)
    assert refused.value.reason == reason
