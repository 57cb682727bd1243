"""Checkpoints of files that witnesses have cosigned: the lines of the lake must continue them."""

from __future__ import annotations

from eventd.lake.file_tree import key_of
from eventd.lake.manifest import FileTreeState
from federation.errors import HistoryError
from federation.history.lake_checkpoints import LakeCheckpoint, open_lake_checkpoint
from federation.history.notes import read_note


def read_cosigned(tree: FileTreeState, signed: LakeCheckpoint) -> LakeCheckpoint | None:
    """Return the checkpoint beside the signature of a state that witnesses have cosigned; None without one.

    One that the key of the tree did not sign proves nothing: also an honest one, after a rotation.
    """
    try:
        found = open_lake_checkpoint(read_note(tree.cosigned.encode()), key_of(tree))
    except HistoryError:
        return None
    return found if found.origin == signed.origin else None


def fault_of_cosigned(cosigned: LakeCheckpoint, signed: LakeCheckpoint, root: bytes | None) -> str:
    """Return why the signed lines of a tree are not those that witnesses have cosigned; empty if they are.

    `root` is that of as many lines as the cosigned checkpoint has.
    """
    if cosigned.size > signed.size:
        return f"the state has {signed.size:,} lines of {signed.origin}, and witnesses have cosigned {cosigned.size:,}"
    if root != cosigned.root:
        return (
            f"the lines of {signed.origin} have the root {'' if root is None else root.hex()} at size"
            f" {cosigned.size:,}, and witnesses have cosigned {cosigned.root.hex()}"
        )
    return ""
