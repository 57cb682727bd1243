"""A tree is computed from rows in any segments, and what differs from its checkpoints is named, to the tile."""

from __future__ import annotations

import random
from itertools import pairwise

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eventd.audit.segments.tree_leaves import LeafTerms, TreeMove, find_leaves, is_chosen
from eventd.audit.verdicts.tree_checks import check_tree
from eventd.lake.schema import Ledger
from eventd.lake.segment_file import BadSegment
from federation.history.notes import LOG_KEY, NoteSigner
from tests.support import plain_history as plain
from tests.support.grown_trees import GrownTree, Row, evidence_of, rows_of, runs_of
from tests.support.ledger_rows import columns_of

TREE = GrownTree(900)
SIZES = (1, 2, 100, 256, 257, 300, 512, 700, 901)
HISTORY = [TREE.opened(), *map(TREE.signed, SIZES), TREE.hashed(0, 3)]


def cut(rows: list[Row], *places: int) -> list[list[Row]]:
    ends = [0, *places, len(rows)]
    return [rows[begin:end] for begin, end in pairwise(ends) if begin < end]


def spans(found: list) -> list[tuple[int, int]]:  # type: ignore[type-arg]
    return [(one.first, one.last) for one in found]


@pytest.mark.parametrize("seed", range(8))
def test_every_checkpoint_follows_from_rows_in_any_segments(seed: int) -> None:
    chance = random.Random(seed)
    places = sorted(chance.sample(range(1, 900), chance.choice((0, 1, 5, 40))))
    segments = cut(TREE.events, *places)
    chance.shuffle(segments)
    for history in (HISTORY, [row for row in HISTORY if row["kind"] != "hashes"]):
        result = check_tree(evidence_of(TREE, history, segments))
        assert (result.proven, result.rewritten, result.forks, result.holes, result.unknown) == (901, [], [], [], "")


def test_a_changed_row_is_found_in_its_tile() -> None:
    rows = [row | {"digest": b"x" * 32} if row["leaf"] == 400 else row for row in TREE.events]
    result = check_tree(evidence_of(TREE, HISTORY, cut(rows, 500)))
    assert spans(result.rewritten) == [(256, 511)]
    assert (result.forks, result.holes) == ([], [])


def test_a_changed_row_of_the_last_leaves_is_found_between_two_checkpoints() -> None:
    rows = [row | {"digest": b"x" * 32} if row["leaf"] == 800 else row for row in TREE.events]
    result = check_tree(evidence_of(TREE, HISTORY, [rows]))
    assert (spans(result.rewritten), result.proven) == ([(700, 900)], 700)


def test_two_rows_that_were_exchanged_are_found() -> None:
    rows = [*TREE.events]
    rows[299], rows[300] = rows[300] | {"leaf": 300}, rows[299] | {"leaf": 301}
    assert spans(check_tree(evidence_of(TREE, HISTORY, [rows])).rewritten) == [(256, 511)]


def test_a_changed_hash_of_the_ledger_is_told_from_a_changed_row() -> None:
    other = GrownTree(900)
    other.entries[300] = b"\1" + bytes(32)
    history = [row if row["kind"] != "hashes" else other.hashed(0, 3) for row in HISTORY]
    result = check_tree(evidence_of(TREE, history, [TREE.events]))
    assert spans(result.rewritten) == [(256, 511)]
    assert "hash above these leaves" in result.rewritten[0].words
    assert result.proven == 901


def test_leaves_without_a_row_are_named_unless_their_hashes_were_shipped() -> None:
    rows = [row for row in TREE.events if row["leaf"] not in (1, 400, 401, 900)]
    result = check_tree(evidence_of(TREE, HISTORY, [rows]))
    assert spans(result.holes) == [(1, 1), (400, 401), (900, 900)]
    assert (result.holes[1].positions, result.holes[1].times) == ((399, 402), (399_000_000, 402_000_000))
    assert (result.rewritten, result.forks) == ([], [])
    leaves = b"".join(plain.root([TREE.entries[leaf]]) for leaf in (400, 401))
    lost = TREE.row("hashes", plain.b64(leaves), level=0, first=400)
    assert spans(check_tree(evidence_of(TREE, [*HISTORY, lost], [rows])).holes) == [(1, 1), (900, 900)]


def test_two_roots_of_one_size_are_a_fork() -> None:
    result = check_tree(evidence_of(TREE, [*HISTORY, TREE.signed(300, b"r" * 32)], [TREE.events]))
    assert (spans(result.forks), result.proven) == ([(0, 299)], 901)


def test_a_root_that_a_later_checkpoint_does_not_continue_is_a_fork() -> None:
    result = check_tree(evidence_of(TREE, [*HISTORY, TREE.signed(600, b"r" * 32)], [TREE.events]))
    assert (spans(result.forks), result.proven, result.rewritten) == ([(0, 599)], 901, [])


def test_a_checkpoint_that_the_key_did_not_sign_was_written_by_somebody_else() -> None:
    forged = TREE.signed(901)
    forged["content"] = forged["content"].replace(plain.b64(plain.root(TREE.entries)), plain.b64(b"r" * 32))
    history = [*(row for row in HISTORY if row["size" if "size" in row else "kind"] != 901), forged]
    result = check_tree(evidence_of(TREE, history, [TREE.events]))
    assert spans(result.rewritten) == [(0, 900)]
    assert "not signed" in result.rewritten[0].words
    assert result.proven == 700


def test_hashes_of_the_ledger_stand_in_for_rows_that_have_expired() -> None:
    result = check_tree(evidence_of(TREE, HISTORY, [TREE.events[600:]]))
    assert (result.proven, result.rewritten, spans(result.holes)) == (901, [], [(1, 600)])
    bare = [row for row in HISTORY if row["kind"] != "hashes"]
    assert "leaves from 0 on" in check_tree(evidence_of(TREE, bare, [TREE.events[600:]])).unknown


def test_a_sample_computes_some_tiles_and_believes_the_hashes_of_the_others() -> None:
    terms = LeafTerms((), (), 50.0, b"key")
    chosen = [tile for tile in range(1, 3) if is_chosen(TREE.origin.tree, tile, terms)]
    left_out = next(tile for tile in range(1, 3) if tile not in chosen)
    rows = [row | {"digest": b"x" * 32} if row["leaf"] == left_out * 256 + 5 else row for row in TREE.events]
    assert check_tree(evidence_of(TREE, HISTORY, [rows], 50.0)).rewritten == []
    assert spans(check_tree(evidence_of(TREE, HISTORY, [rows])).rewritten) == [(left_out * 256, left_out * 256 + 255)]
    assert 0 < len([at for at in range(1000) if is_chosen("t", at, terms)]) < 1000


def test_leaves_that_a_later_tree_took_over_are_its_leaves() -> None:
    moved, run = runs_of(TREE.events, moves=[TreeMove(TREE.origin.tree, 300, "b" * 16)])
    assert (run.tree, run.first, run.end) == (TREE.origin.tree, 1, 300)
    assert (moved.tree, moved.first, moved.end, moved.positions) == ("b" * 16, 1, 602, (300, 900))


def test_own_events_without_a_leaf_are_counted_where_they_are() -> None:
    rows = [row | {"tree": None, "leaf": None} if 10 <= row["leaf"] < 15 else row for row in TREE.events[:20]]
    rows[12] |= {"own": False}
    found = find_leaves(columns_of(Ledger.EVENTS, rows), LeafTerms((), (), 100.0, b""))
    assert [(one.events, one.positions, one.seqs, one.at) for one in found.leafless] == [
        (4, (10, 14), (10, 14), 10_000_000)
    ]


def test_rows_of_another_tree_or_node_are_refused() -> None:
    for change in ({"tree": "b" * 16}, {"node": "b"}, {"group": "h"}, {"kind": "other"}, {"content": "x"}):
        with pytest.raises(BadSegment, match="its row 1 is not one of a history"):
            rows_of(TREE.signed(5) | change)


def test_what_a_witness_ships_of_a_tree_is_compared_too() -> None:
    note = {"node": "w", "kind": "witnessed", "position": None}
    signed = TREE.signed(300), TREE.signed(600, b"r" * 32), TREE.signed(950, b"s" * 32)
    seen = [row | note for row in signed]
    tree = evidence_of(TREE, [*HISTORY, *seen], [TREE.events])
    result = check_tree(tree)
    assert (tree.size, tree.last_signed, result.proven, spans(result.holes)) == (901, 950, 901, [])
    assert spans(result.forks) == [(0, 599)]
    lie = msgspec.structs.replace(rows_of(*seen).witnessed[0], size=1200, root=b"x" * 32)
    tree = evidence_of(TREE, HISTORY, [TREE.events])
    tree.checkpoints.append(lie)
    assert [(one.witness, one.size) for one in check_tree(tree).claims] == [("w", 1200)]
    assert tree.last_signed == 901, "what the key did not sign says nothing of the tree"


@pytest.mark.parametrize("size", [100, 600, 901, 950])
def test_a_checkpoint_that_only_a_witness_claims_accuses_nobody(size: int) -> None:
    note = {"node": "w", "kind": "witnessed", "position": None}
    other = GrownTree(900)
    other.signer = NoteSigner(str(other.origin), LOG_KEY, Ed25519PrivateKey.from_private_bytes(b"2" * 32))
    seen = other.signed(size, b"r" * 32) | note
    for history in (HISTORY, [row for row in HISTORY if row["kind"] != "opening"]):
        result = check_tree(evidence_of(TREE, [*history, seen], [TREE.events]))
        assert (result.forks, result.rewritten, result.proven) == ([], [], 901 if history is HISTORY else result.proven)
        assert [(one.witness, one.size) for one in result.claims] == [("w", size)]
