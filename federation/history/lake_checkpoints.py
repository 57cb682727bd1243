"""Checkpoints of the files that a node has written to a lake: a note with size, root, and the digest of its state.

They have the form of C2SP tlog-checkpoint with one extension line.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from federation.errors import MalformedHistory, UnprovenNote
from federation.history.checkpoints import TREE_ID
from federation.history.forms import quote, read_hash, read_number, write_base64
from federation.history.merkle import MAX_SIZE
from federation.history.notes import NoteKey, NoteSigner, SignedNote, require_signed, sign_text
from federation.peers import NODE_NAME

LAKE_PREFIX: Final = "eventd-lake"
_STATE: Final = "state "
_EPOCH: Final = re.compile(r"[A-Za-z0-9_]{1,64}")


class LakeOrigin(NamedTuple):
    """The tree of the files of a node and epoch. Its text is the first line of its checkpoints, and its key's name."""

    node: str
    epoch: str
    tree: str

    def __str__(self) -> str:
        return "/".join((LAKE_PREFIX, *self))


class LakeCheckpoint(NamedTuple):
    """The tree at one moment, and the digest of the state of the node in which the checkpoint is."""

    origin: LakeOrigin
    size: int
    root: bytes
    state: bytes

    def text(self) -> str:
        """Return the text that is signed."""
        return f"{self.origin}\n{self.size}\n{write_base64(self.root)}\n{_STATE}{write_base64(self.state)}\n"


def read_lake_origin(text: str) -> LakeOrigin:
    """Return the origin with this text. Raises MalformedHistory."""
    prefix, *names = text.split("/")
    if prefix == LAKE_PREFIX and len(names) == 3:
        forms = zip((NODE_NAME, _EPOCH, TREE_ID), names, strict=True)
        if all(form.fullmatch(name) for form, name in forms):
            return LakeOrigin(*names)
    raise MalformedHistory(
        f"{quote(text)} is not the origin of a tree of files: it has the form {LAKE_PREFIX}/NODE/EPOCH/TREE",
        reason="origin",
    )


def read_lake_checkpoint(text: str) -> LakeCheckpoint:
    """Return the checkpoint that the text of a note states. Raises MalformedHistory."""
    lines = text.split("\n")
    if len(lines) != 5 or lines[4] or not lines[3].startswith(_STATE):
        raise MalformedHistory(
            "a checkpoint of files has the four lines origin, size, root and state", reason="checkpoint"
        )
    origin = read_lake_origin(lines[0])
    size = read_number(lines[1], f"the size of {origin}", MAX_SIZE)
    root = read_hash(lines[2], f"the root of {origin} at size {size}")
    return LakeCheckpoint(origin, size, root, read_hash(lines[3].removeprefix(_STATE), f"the state of {origin}"))


def sign_lake_checkpoint(checkpoint: LakeCheckpoint, signer: NoteSigner) -> SignedNote:
    """Return the note of a checkpoint."""
    text = checkpoint.text()
    return SignedNote(text, (sign_text(text, signer),))


def open_lake_checkpoint(note: SignedNote, key: NoteKey) -> LakeCheckpoint:
    """Return the checkpoint of a note that the key of its tree signed. Raises MalformedHistory and UnprovenNote."""
    checkpoint = read_lake_checkpoint(note.text)
    if str(checkpoint.origin) != key.name:
        raise UnprovenNote(
            f"the checkpoint is of {checkpoint.origin}, but the key is that of {key.name}", reason="origin"
        )
    require_signed(note, key)
    return checkpoint
