"""What a witness checks before it cosigns a checkpoint of the files that a node has written to a lake. Pure.

The tree has no opening entry: its key is that of the node's other trees, which the witness knows.
"""

from __future__ import annotations

from federation.errors import MalformedHistory, OtherCheckpoint
from federation.history.lake_checkpoints import (
    LAKE_PREFIX,
    LakeCheckpoint,
    LakeOrigin,
    open_lake_checkpoint,
    read_lake_checkpoint,
)
from federation.history.notes import LOG_KEY, NoteKey, SignedNote
from federation.history.witnessing import HeldRoot, Offer, require_continued


def is_of_files(text: str) -> bool:
    """Return whether a note or its text says that it is a checkpoint of files."""
    return text.startswith(f"{LAKE_PREFIX}/")


def key_of_files(origin: LakeOrigin, public: bytes) -> NoteKey:
    """Return a node's public key as that of a tree of its files."""
    return NoteKey(str(origin), LOG_KEY, public)


def open_files(note: SignedNote, public: bytes) -> LakeCheckpoint:
    """Return the checkpoint of files in a note that this key signed. Raises MalformedHistory and UnprovenNote."""
    stated = read_lake_checkpoint(note.text)
    if not stated.size:
        raise MalformedHistory(f"{stated.origin} has size 0: each tree of files begins with its ledgers", reason="size")
    return open_lake_checkpoint(note, key_of_files(stated.origin, public))


def check_files_offer(offer: Offer, public: bytes, held: HeldRoot | None) -> LakeCheckpoint:
    """Return the checkpoint of an offer if the witness may cosign it. `public` is the known key of the node.

    Raises like `check_offer`.
    """
    stated = open_files(offer.note, public)
    if held is None:
        if offer.old:
            raise OtherCheckpoint(f"nothing is held of {stated.origin}: offer it from the size 0")
        return stated
    require_continued(offer, stated, held, "lines")
    return stated
