"""A tree proves which events at peers are those whose rows its node has lost."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eventd.audit.segments.tree_leaves import LeafClaims, TreeLeaves
from eventd.audit.verdicts.erased_leaves import find_held
from eventd.audit.verdicts.ledger_rows import LedgerRows
from eventd.audit.verdicts.tree_checks import TreeEvidence, check_tree
from eventd.lake.layout import landing
from eventd.lake.manifest import Manifest
from eventd.lake.schema import Ledger
from eventd.lake.writer import Segment
from federation.history.notes import LOG_KEY, NoteSigner
from tests.support.grown_trees import GrownTree, Row, evidence_of
from tests.support.ledger_rows import event_row, ledger_table

PLACE = landing(Ledger.EVENTS, "b", "b" * 16, 0, 600, at=0)
VALUES: dict[str, Any] = {"bytes": 1, "sha256": "0" * 64, "slots": (0, 0), "times": (0, 0), "written_at": 0}
PEER = Segment(PLACE, Manifest(book=Ledger.EVENTS, node="b", epoch="b" * 16, after=0, upto=600, rows=1, **VALUES))


def without(tree: GrownTree, leaf: int, *history: Row) -> TreeEvidence:
    rows = [row for row in tree.events if row["leaf"] != leaf]
    return evidence_of(tree, [*history, tree.signed(301) | {"node": tree.origin.node}], [rows])


def shadow_of(tree: GrownTree) -> GrownTree:
    """Return a tree of the node `m` that has the same id."""
    shadow = GrownTree(300, tree.origin.tree)
    shadow.origin = tree.origin._replace(node="m")
    shadow.signer = NoteSigner(str(shadow.origin), LOG_KEY, Ed25519PrivateKey.from_private_bytes(b"2" * 32))
    return shadow


@pytest.mark.parametrize("first", ["a", "m"])
def test_a_tree_of_another_node_with_the_same_id_hides_no_event(first: str) -> None:
    true = GrownTree(300)
    evidence = {"a": without(true, 5, true.opened()), "m": without(shadow_of(true), 5)}
    order = [first, *({*evidence} - {first})]
    holes = [(evidence[node], hole) for node in order for hole in check_tree(evidence[node]).holes]
    held = [
        event_row(row["leaf"], own=False, tree=row["tree"], leaf=row["leaf"], digest=row["digest"])
        for row in true.events
    ]

    def read(segment: Segment, columns: Any) -> pa.Table:
        return ledger_table(Ledger.EVENTS, held).select([*columns])

    claims = TreeLeaves(claims=[LeafClaims("g", true.origin.tree, 1, 300)])
    found = find_held(holes, [(PEER, claims)], LedgerRows([PEER], read))
    assert ("g", "a", true.origin.tree, 5, "b", "e5") in found


def test_a_segment_is_read_once_for_all_that_it_claims_of_a_tree() -> None:
    true, read = GrownTree(600), list[str]()
    evidence = without(true, 5, true.opened())
    holes = [(evidence, hole) for hole in check_tree(evidence).holes]

    def read_rows(segment: Segment, columns: Any) -> pa.Table:
        read.append(segment.place.name)
        return ledger_table(Ledger.EVENTS, []).select([*columns])

    claims = TreeLeaves(claims=[LeafClaims("g", true.origin.tree, first, 300) for first in (1, 2, 3, 250)])
    far = TreeLeaves(claims=[LeafClaims("g", true.origin.tree, 600, 700)])
    find_held(holes, [(PEER, claims), (PEER, far)], LedgerRows([PEER], read_rows))
    assert len(read) == 1
