"""Checkpoints: the size and the root of a tree, as a note that its node signs.

They are those of C2SP tlog-checkpoint, without extension lines.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from federation.errors import MalformedHistory, UnprovenNote
from federation.history.forms import quote, read_hash, read_number, write_base64
from federation.history.merkle import MAX_SIZE
from federation.history.notes import NoteKey, NoteSigner, SignedNote, require_signed, sign_text
from federation.peers import GROUP_NAME, NODE_NAME

TREE_ID: Final = re.compile(r"[a-z0-9]{16}")
_PREFIX: Final = "eventd"


class LogOrigin(NamedTuple):
    """The tree of a node in a group. Its text is the first line of its checkpoints, and the name of its key."""

    group: str
    node: str
    tree: str

    def __str__(self) -> str:
        return "/".join((_PREFIX, *self))


def read_origin(text: str) -> LogOrigin:
    """Return the origin with this text. Raises MalformedHistory."""
    prefix, *names = text.split("/")
    if prefix == _PREFIX and len(names) == 3:
        origin = LogOrigin(*names)
        forms = zip((GROUP_NAME, NODE_NAME, TREE_ID), origin, strict=True)
        if all(form.fullmatch(name) for form, name in forms):
            return origin
    raise MalformedHistory(
        f"{quote(text)} is not the origin of a tree: it has the form eventd/GROUP/NODE/TREE", reason="origin"
    )


class Checkpoint(NamedTuple):
    """A tree at one moment. No tree is empty: leaf 0 is its opening entry."""

    origin: LogOrigin
    size: int
    root: bytes

    def text(self) -> str:
        """Return the text that is signed."""
        return f"{self.origin}\n{self.size}\n{write_base64(self.root)}\n"


def read_checkpoint(text: str) -> Checkpoint:
    """Return the checkpoint that the text of a note states. Raises MalformedHistory."""
    lines = text.split("\n")
    if len(lines) != 4 or lines[3]:
        raise MalformedHistory(
            f"a checkpoint has the three lines origin, size and root: this one has {len(lines) - 1}",
            reason="checkpoint",
        )
    origin = read_origin(lines[0])
    size = read_number(lines[1], f"the size of {origin}", MAX_SIZE)
    if size == 0:
        raise MalformedHistory(f"{origin} has size 0: each tree begins with its opening entry", reason="size")
    return Checkpoint(origin, size, read_hash(lines[2], f"the root of {origin} at size {size}"))


def sign_checkpoint(checkpoint: Checkpoint, signer: NoteSigner) -> SignedNote:
    """Return the note of a checkpoint. The same checkpoint and key give the same bytes."""
    text = checkpoint.text()
    return SignedNote(text, (sign_text(text, signer),))


def open_checkpoint(note: SignedNote, key: NoteKey) -> Checkpoint:
    """Return the checkpoint of a note that the key of its tree signed. Raises MalformedHistory and UnprovenNote."""
    checkpoint = read_checkpoint(note.text)
    if str(checkpoint.origin) != key.name:
        raise UnprovenNote(
            f"the checkpoint is of the tree {checkpoint.origin}, but the key is that of {key.name}", reason="origin"
        )
    require_signed(note, key)
    return checkpoint
