"""The lake shows the last checkpoint of a tree that its node has signed, whatever others have written beside it."""

from __future__ import annotations

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eventd.egress.lake.shipped_checkpoints import read_shipped_checkpoints
from eventd.lake.layout import landing
from eventd.lake.schema import Ledger
from eventd.lake.storage import Storage, connect
from eventd.lake.writer import write_segment
from federation.history.notes import LOG_KEY, NoteSigner
from tests.support.grown_trees import GrownTree, Row
from tests.support.lakes import NOON
from tests.support.ledger_rows import ledger_table

EPOCH = "e" * 16


def write(storage: Storage, after: int, *rows: Row) -> None:
    numbered = [row | {"number": number, "epoch": EPOCH} for number, row in enumerate(rows, after + 1)]
    place = landing(Ledger.HISTORY, "a", EPOCH, after, after + len(rows), at=NOON)
    write_segment(storage, place, ledger_table(Ledger.HISTORY, numbered), node="a", now=NOON)


def test_a_larger_checkpoint_that_the_key_did_not_sign_hides_none(tmp_path: Path) -> None:
    storage, tree, other = connect(str(tmp_path / "lake")), GrownTree(9), GrownTree(9)
    other.signer = NoteSigner(str(other.origin), LOG_KEY, Ed25519PrivateKey.from_private_bytes(b"2" * 32))
    true, later = tree.signed(5), tree.signed(9)
    forged = other.signed(1_000_000, b"r" * 32)

    def shown(key: bytes | None) -> list[str]:
        return read_shipped_checkpoints(storage, ["a"], EPOCH, [tree.origin.tree], key)

    write(storage, 0, tree.opened(), tree.signed(3), true)
    write(storage, 3, forged)
    assert shown(tree.signer.key.public) == [true["content"]], "of an older segment"
    write(storage, 4, later, forged)
    assert shown(tree.signer.key.public) == [later["content"]], "of the same segment"
    assert shown(None) == [forged["content"]], "a node without a key cannot tell"
