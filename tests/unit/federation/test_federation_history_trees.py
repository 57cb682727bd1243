"""Trees, tiles and proofs against the recursive definition of RFC 6962, for any cut into batches."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from federation.errors import HistoryError, MalformedHistory, ProofMismatch
from federation.history.merkle import EMPTY_ROOT, MAX_SIZE, CompactRange, hash_leaf
from federation.history.proofs import consistency_subtrees, inclusion_subtrees, verify_consistency, verify_inclusion
from federation.history.tiles import (
    MAX_LEVEL,
    TileAddress,
    TileBuilder,
    consistency_proof,
    inclusion_proof,
    open_tiles,
    read_hashes,
    read_tile_path,
    root_of,
)
from tests.support import plain_history as plain

MOST = 600
ENTRIES = [b"%d" % index for index in range(MOST)]
LEAVES = [hash_leaf(entry) for entry in ENTRIES]
sizes = st.integers(0, MOST)


@cache
def root(size: int) -> bytes:
    return plain.root(ENTRIES[:size])


class Store:
    """Tiles as a log keeps them: of a tile that has grown only the last state, whatever width is asked for."""

    def __init__(self) -> None:
        self.tiles: dict[tuple[int, int], bytes] = {}

    def write(self, tiles: dict[TileAddress, bytes]) -> None:
        self.tiles |= {(tile.level, tile.number): hashes for tile, hashes in tiles.items()}

    def __call__(self, tile: TileAddress) -> bytes:
        return self.tiles[tile.level, tile.number]


def grown(*cuts: int) -> Store:
    """The store of a tree that grew to each of these sizes, each time by a builder that starts from what is stored."""
    store, size = Store(), 0
    for cut in sorted(cuts):
        builder = TileBuilder(size, store)
        store.write(builder.extend(LEAVES[size:cut]))
        size = cut
        assert (builder.size, builder.root()) == (cut, root(cut))
    return store


@given(st.lists(sizes, min_size=1, max_size=6))
@settings(deadline=None)
def test_tree_and_tiles_do_not_depend_on_the_cut_into_batches(cuts: list[int]) -> None:
    store, size = grown(*cuts), max(cuts)
    assert root_of(size, store) == root(size)
    assert store.tiles == grown(size).tiles


@given(sizes, st.data())
@settings(deadline=None)
def test_inclusion_proof_from_tiles_is_that_of_the_definition(size: int, data: st.DataObject) -> None:
    store = grown(data.draw(st.integers(max(size, 1), MOST)))
    size = max(size, 1)
    index = data.draw(st.integers(0, size - 1))
    hashes = inclusion_proof(index, size, store)
    assert hashes == plain.path(index, ENTRIES[:size])
    verify_inclusion(LEAVES[index], index, size, hashes, root(size))


@given(st.integers(1, MOST), st.data())
@settings(deadline=None)
def test_consistency_proof_from_tiles_is_that_of_the_definition(new: int, data: st.DataObject) -> None:
    store, old = grown(data.draw(st.integers(new, MOST))), data.draw(st.integers(1, new))
    hashes = consistency_proof(old, new, store)
    assert hashes == plain.proof(old, ENTRIES[:new])
    verify_consistency(old, root(old), new, root(new), hashes)


@given(st.integers(1, MOST), st.data())
@settings(deadline=None)
def test_inclusion_proof_holds_for_no_other_leaf_index_size_or_hash(size: int, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, size - 1))
    hashes = plain.path(index, ENTRIES[:size])
    other = data.draw(st.integers(0, MOST - 1).filter(lambda other: other != index))
    bad = damaged(hashes, data)
    wrong = [
        (LEAVES[other], index, size, hashes),
        (LEAVES[index], other, size, hashes),
        (LEAVES[index], index, size, bad),
    ]
    for leaf, at, of, path in wrong:
        with pytest.raises(HistoryError):
            verify_inclusion(leaf, at, of, path, root(size))


@given(st.integers(2, MOST), st.data())
@settings(deadline=None)
def test_consistency_proof_holds_for_no_other_root_or_hash(new: int, data: st.DataObject) -> None:
    old = data.draw(st.integers(1, new))
    hashes = plain.proof(old, ENTRIES[:new])
    other = plain.root([*ENTRIES[: old - 1], b"rewritten"])
    with pytest.raises(ProofMismatch):
        verify_consistency(old, other, new, root(new), hashes)
    with pytest.raises(ProofMismatch):
        verify_consistency(old, root(old), new, plain.root([*ENTRIES[: new - 1], b"rewritten"]), hashes)
    with pytest.raises(HistoryError):
        verify_consistency(old, root(old), new, root(new), damaged(hashes, data))


def damaged(hashes: list[bytes], data: st.DataObject) -> list[bytes]:
    """A proof with one bit flipped, one hash more, or one hash less."""
    how = data.draw(st.sampled_from(["more", "less", "bit"] if hashes else ["more"]))
    if how == "more":
        return [*hashes, bytes(32)]
    if how == "less":
        return hashes[:-1]
    at, bit = data.draw(st.integers(0, len(hashes) - 1)), data.draw(st.integers(0, 255))
    flipped = int.from_bytes(hashes[at], "big") ^ 1 << bit
    return [*hashes[:at], flipped.to_bytes(32, "big"), *hashes[at + 1 :]]


def test_a_mismatch_says_which_leaf_and_both_roots() -> None:
    with pytest.raises(ProofMismatch, match=r"leaf 3 .* the tree of size 5") as refused:
        verify_inclusion(LEAVES[4], 3, 5, plain.path(3, ENTRIES[:5]), root(5))
    error = refused.value
    assert error.expected == root(5)
    assert error.computed.hex() in str(error)
    assert error.expected.hex() in str(error)


def test_a_removed_leaf_is_named_with_both_sizes() -> None:
    rewritten = plain.root([b"0", b"2", b"3"])
    with pytest.raises(ProofMismatch, match="from size 3 to size 7 and the tree of size 3"):
        verify_consistency(3, rewritten, 7, root(7), plain.proof(3, ENTRIES[:7]))


@given(st.integers(1, MAX_SIZE), st.integers(1, MAX_SIZE))
def test_proofs_in_the_largest_trees_have_at_most_63_hashes(one: int, other: int) -> None:
    small, large = sorted((one, other))
    assert len(inclusion_subtrees(small - 1, large)) <= 48
    assert len(consistency_subtrees(small, large)) <= 49


@pytest.mark.parametrize("size", [-1, MAX_SIZE + 1, 1 << 63])
def test_a_size_that_no_tree_has_is_refused(size: int) -> None:
    for ask in (lambda: inclusion_subtrees(0, size), lambda: consistency_subtrees(1, size), lambda: CompactRange(size)):
        with pytest.raises(MalformedHistory):
            ask()


@pytest.mark.parametrize(("index", "size"), [(-1, 4), (4, 4), (0, 0)])
def test_a_leaf_that_the_tree_lacks_has_no_proof(index: int, size: int) -> None:
    with pytest.raises(MalformedHistory, match=f"size {size} has no leaf {index}"):
        inclusion_subtrees(index, size)


@pytest.mark.parametrize(("old", "new"), [(0, 4), (5, 4), (-1, 4)])
def test_sizes_in_the_wrong_order_have_no_consistency_proof(old: int, new: int) -> None:
    with pytest.raises(MalformedHistory, match=f"from size {old} to size {new}"):
        consistency_subtrees(old, new)


def test_two_roots_of_one_size_are_a_mismatch() -> None:
    verify_consistency(4, root(4), 4, root(4), [])
    with pytest.raises(ProofMismatch, match="two trees of size 4"):
        verify_consistency(4, root(4), 4, root(5), [])


def test_a_hash_of_another_length_is_refused() -> None:
    with pytest.raises(MalformedHistory, match="hash 2 has 31 bytes"):
        verify_inclusion(LEAVES[0], 0, 3, [LEAVES[1], bytes(31)], root(3))
    with pytest.raises(MalformedHistory, match="a hash of 31 bytes"):
        CompactRange().append(bytes(31))


def test_a_perfect_subtree_follows_only_leaves_that_it_can_stand_beside() -> None:
    tree = CompactRange(2, [plain.root(ENTRIES[:2])])
    assert tree.append(plain.root(ENTRIES[2:4]), 1)[-1] == tree.root() == root(4)
    with pytest.raises(MalformedHistory, match="height 3 cannot follow leaf 3"):
        tree.append(bytes(32), 3)


def test_the_hashes_of_a_compact_range_must_fit_its_size() -> None:
    tree = CompactRange(3, [plain.root(ENTRIES[:2]), LEAVES[2]])
    assert tree.root() == root(3)
    for hashes in ([LEAVES[0]], [LEAVES[0], bytes(31)]):
        with pytest.raises(MalformedHistory, match="a tree of size 3 is kept as 2 hashes"):
            CompactRange(3, hashes)


def test_a_tree_of_the_largest_size_does_not_grow() -> None:
    tree = CompactRange(MAX_SIZE, [bytes(32)] * MAX_SIZE.bit_count())
    with pytest.raises(MalformedHistory, match="is not the size of a tree"):
        tree.append(bytes(32))
    assert tree.size == MAX_SIZE


def test_the_empty_tree_has_the_root_of_nothing() -> None:
    assert root_of(0, Store()) == EMPTY_ROOT == TileBuilder().root() == plain.root([])
    assert TileBuilder().extend([]) == {}


def test_the_example_of_the_specification_has_these_partial_tiles() -> None:
    assert open_tiles(70_000) == [TileAddress(0, 273, 112), TileAddress(1, 1, 17), TileAddress(2, 0, 1)]
    assert open_tiles(256) == [TileAddress(1, 0, 1)]


def test_a_tree_that_has_leaves_does_not_grow_without_its_tiles() -> None:
    with pytest.raises(MalformedHistory, match=r"a tree of size 7 needs tile/0/000\.p/7"):
        TileBuilder(7)


@pytest.mark.parametrize("length", [0, 32, 95, 97, 257 * 32])
def test_a_tile_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(MalformedHistory, match=f"tile/0/000.p/3 has {length} bytes instead of 96"):
        read_hashes(bytes(length), TileAddress(0, 0, 3))


@pytest.mark.parametrize("bit", [0, 8 * 32 * 256 - 1])
def test_a_flipped_bit_of_a_tile_changes_the_root_and_breaks_proofs(bit: int) -> None:
    store = grown(257)
    tile = int.from_bytes(store.tiles[0, 0], "big") ^ 1 << bit
    store.tiles[0, 0] = tile.to_bytes(32 * 256, "big")
    hashes = inclusion_proof(256, 257, store)
    verify_inclusion(LEAVES[256], 256, 257, hashes, root(257))  # it needs only the root above the tile
    with pytest.raises(ProofMismatch):
        verify_inclusion(LEAVES[3], 3, 257, inclusion_proof(3, 257, store), root(257))
    with pytest.raises(ProofMismatch):
        verify_consistency(129, root(129), 257, root(257), consistency_proof(129, 257, store))


@given(st.integers(0, MAX_LEVEL), st.integers(1, 256), st.data())
def test_the_path_of_a_tile_is_read_back(level: int, width: int, data: st.DataObject) -> None:
    most = (MAX_SIZE >> level * 8) // 256 - 1
    tile = TileAddress(level, data.draw(st.integers(0, max(most, 0))), min(width, 255 if level == MAX_LEVEL else 256))
    assert read_tile_path(tile.path()) == tile


@given(st.text(max_size=30))
def test_any_text_is_the_path_of_a_tile_or_refused(text: str) -> None:
    with pytest.raises(MalformedHistory, match="is not the path of a tile"):
        read_tile_path(f"tile/{text}")
