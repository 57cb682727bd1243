"""Checkpoints of files that witnesses have cosigned: the lines of the lake must continue them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from eventd.lake.file_tree import key_of
from eventd.lake.manifest import FileTreeState
from federation.errors import HistoryError
from federation.history.lake_checkpoints import LakeCheckpoint, open_lake_checkpoint
from federation.history.merkle import CompactRange, hash_leaf
from federation.history.notes import read_note


def fault_of_cosigned(tree: FileTreeState, signed: LakeCheckpoint, lines: Sequence[str]) -> str:
    """Return why the signed lines of a tree are not those that witnesses have cosigned; empty if they are.

    The checkpoint is beside the signature of the state. One that the key of the tree did not sign proves nothing: also
    an honest one, after a rotation.
    """
    try:
        found = open_lake_checkpoint(read_note(tree.cosigned.encode()), key_of(tree))
    except HistoryError:
        return ""
    if found.origin != signed.origin:
        return ""
    if found.size > signed.size:
        return f"the state has {signed.size:,} lines of {found.origin}, and witnesses have cosigned {found.size:,}"
    hashes = CompactRange()
    for line in islice(lines, found.size):
        hashes.append(hash_leaf(line.encode()))
    if hashes.root() != found.root:
        return (
            f"the lines of {found.origin} have the root {hashes.root().hex()} at size {found.size:,}, and witnesses"
            f" have cosigned {found.root.hex()}"
        )
    return ""
