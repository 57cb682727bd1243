"""The keys and trees of nodes follow from what their ledgers have of the trees, and from the auditor's policy."""

from __future__ import annotations

import random
from collections.abc import Sequence

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eventd.audit.segments.ledger_summaries import LedgerSummary
from eventd.audit.segments.plan import NodeEpoch
from eventd.audit.segments.tree_rows import TreeCheckpoint, TreeOpening, TreeRows
from eventd.audit.verdicts.node_trees import Trees
from federation.history.checkpoints import Checkpoint, LogOrigin, sign_checkpoint
from federation.history.entries import Opening, OpeningReason, PreviousTree, opening_entry
from federation.history.merkle import hash_leaf
from federation.history.notes import LOG_KEY, NoteSigner

A, B, THIEF = (Ed25519PrivateKey.from_private_bytes(bytes([one]) * 32) for one in (1, 2, 3))
EPOCH = NodeEpoch("n", "e" * 16)


def signer_of(origin: LogOrigin, key: Ed25519PrivateKey) -> NoteSigner:
    return NoteSigner(str(origin), LOG_KEY, key)


def public(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()


def grown(changes: Sequence[tuple[int, int, Ed25519PrivateKey, Ed25519PrivateKey]], group: str = "g") -> TreeRows:
    """Return the rows of trees, each with one checkpoint: numbers of a tree and of the one before it, and their keys.

    The tree with a number was opened at this time.
    """
    rows = TreeRows()
    for number, before, key, old in changes:
        origin, last = (LogOrigin(group, "n", f"{group}{each:015d}") for each in (number, before))
        previous = PreviousTree(last, 1, b"r" * 32) if before else None
        reason = OpeningReason.KEY if before else OpeningReason.FIRST
        opening = Opening(origin, signer_of(origin, key).key, reason, number, number, previous)
        both = signer_of(origin, key), signer_of(last, old)
        entry = opening_entry(opening, *(both if before else both[:1]))
        rows.groups[origin.tree] = group
        rows.openings.append(TreeOpening(origin.tree, hash_leaf(entry), number, entry[1:].decode()))
        note = sign_checkpoint(Checkpoint(origin, 1, hash_leaf(entry)), signer_of(origin, key))
        lines = "".join(one.line() for one in note.signatures)
        rows.checkpoints.append(TreeCheckpoint(origin.tree, 1, hash_leaf(entry), number, number, lines, "n"))
    return rows


def trees_of(*rows: TreeRows, policy: Ed25519PrivateKey = A) -> Trees:
    known = (signer_of(LogOrigin("g", "n", "any"), policy).key,)
    return Trees.of({EPOCH: [LedgerSummary(trees=one) for one in rows]}, known)


def test_a_key_that_its_successor_names_again_is_good() -> None:
    one = grown([(1, 0, A, A), (2, 1, B, A), (3, 2, A, B)])
    other = grown([(1, 0, A, A), (12, 1, B, A)], "h")
    for groups in ((one,), (one, grown([(1, 0, A, A), (4, 1, B, A), (5, 4, A, B)], "h"))):
        assert {*trees_of(*groups).file_keys().replaced["n"]} == {public(B)}
    assert trees_of(other).file_keys().replaced["n"] == {public(A): 12}
    assert trees_of(one, other).file_keys().replaced["n"] == {public(A): 12}, "replaced again, by the same key"


def test_a_replaced_key_does_not_name_itself_again_through_a_successor_of_its_own() -> None:
    rows = grown([(1, 0, A, A), (2, 1, B, A), (3, 1, THIEF, A), (4, 3, A, THIEF)])
    assert public(A) in trees_of(rows).file_keys().replaced["n"]
    rows = grown([(1, 0, A, A), (2, 1, B, A), (5, 0, THIEF, THIEF), (6, 5, A, THIEF)])
    assert public(A) in trees_of(rows).file_keys().replaced["n"]


def test_only_the_epochs_in_which_a_node_signed_trees_need_a_signed_state() -> None:
    rows, earlier = grown([(1, 0, A, A)]), NodeEpoch("n", "d" * 16)
    summaries = {earlier: [LedgerSummary(trees=TreeRows())], EPOCH: [LedgerSummary(trees=rows)]}
    assert Trees.of(summaries).file_keys().keepers == {EPOCH}


def test_unsigned_checkpoints_are_dropped_from_the_largest_one_on_and_the_order_of_the_others_stays() -> None:
    trees = trees_of(grown([(1, 0, A, A)]))
    (tree,) = trees.evidence.values()
    (true,) = tree.checkpoints
    claims = [TreeCheckpoint(true.tree, size, b"r" * 32, 0, 1, "", "n", "w") for size in range(2, 20_000)]
    tree.checkpoints = random.Random(1).sample([true, *claims], len(claims) + 1)
    tree.drop_unsigned()
    assert tree.checkpoints == [true]
    assert [one.size for one in tree.dropped] == [*range(19_999, 1, -1)]
