"""The lines of a node's files are compared with all that was signed, cosigned and seen of them, and hashed once."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eventd.audit.coverage.file_tree_findings import SeenFileTree
from eventd.audit.coverage.file_trees import judge_files
from eventd.lake.file_tree import FileTree, LineKind, TreeLine, checkpoint_of
from eventd.lake.manifest import NodeState
from eventd.lake.reader import survey
from eventd.lake.storage import connect, make_lake
from eventd.lake.writer import write_state
from eventd.runtime.chance import SYSTEM
from federation.history.lake_checkpoints import LakeOrigin
from federation.history.merkle import hash_leaf
from tests.support.lakes import NOON

KEY = Ed25519PrivateKey.from_private_bytes(b"1" * 32)
ORIGIN = LakeOrigin("a", "e", "0123456789abcdef")
STATE = NodeState(node="a", epoch="e", instance="i", began_at=NOON, as_of=NOON, head=0, complete_until=NOON)


def grow(tree: FileTree, lines: int) -> None:
    tree.add(TreeLine(LineKind.DROP, "events", (str(number),)) for number in range(lines))


@pytest.mark.parametrize("fault", ["", "cosigned", "seen"])
def test_each_line_is_hashed_once_for_all_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    storage = connect(str(tmp_path))
    make_lake(storage, NOON, SYSTEM)
    tree, other = FileTree.begin(storage, ORIGIN, {}), FileTree.begin(connect(str(tmp_path / "other")), ORIGIN, {})
    states = {}
    for size in (100, 200):
        for one in (tree, other):
            grow(one, size if one is tree else size + 1)
            states[one, size] = one.sign(STATE, KEY).tree
    seen, cosigned = (
        states[other if fault == name else tree, size] for name, size in (("seen", 100), ("cosigned", 200))
    )
    assert seen is not None
    assert cosigned is not None
    grow(tree, 300)
    signed = tree.sign(STATE, KEY, cosigned.note)
    write_state(storage, signed)
    known = checkpoint_of(seen)
    hashed = list[bytes]()

    def count(entry: bytes) -> bytes:
        hashed.append(entry)
        return hash_leaf(entry)

    for module in ("tree_lines", "cosigned_files"):
        monkeypatch.setattr(f"eventd.audit.coverage.{module}.hash_leaf", count, raising=False)
    found = judge_files(
        storage, survey(storage), seen=[SeenFileTree(*ORIGIN, known.size, known.root.hex(), NOON)]
    ).findings
    assert signed.tree is not None
    assert len(hashed) == checkpoint_of(signed.tree).size
    words = {"": [], "cosigned": ["witnesses have cosigned"], "seen": ["an earlier audit saw"]}[fault]
    assert [word in one.detail for one, word in zip(found, words, strict=True)] == [True] * len(words)
