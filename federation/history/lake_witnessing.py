"""What a witness checks before it cosigns a checkpoint of the files that a node has written to a lake. Pure.

The tree has no opening entry: its key is that of the node's other trees, which the witness knows.
"""

from __future__ import annotations

from typing import NamedTuple

from federation.errors import MalformedHistory, OtherCheckpoint, ProofMismatch, TreeForked
from federation.history.lake_checkpoints import (
    LAKE_PREFIX,
    LakeCheckpoint,
    LakeOrigin,
    open_lake_checkpoint,
    read_lake_checkpoint,
)
from federation.history.notes import LOG_KEY, NoteKey, SignedNote
from federation.history.proofs import verify_consistency
from federation.history.witnessing import Offer


class HeldFiles(NamedTuple):
    """The last checkpoint of files that a witness holds, with the note in which it got it."""

    size: int
    root: bytes
    note: str


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


def check_files_offer(offer: Offer, public: bytes, held: HeldFiles | None) -> LakeCheckpoint:
    """Return the checkpoint of an offer if the witness may cosign it. `public` is the known key of the node.

    Raises like `check_offer`.
    """
    stated = open_files(offer.note, public)
    if held is None:
        if offer.old:
            raise OtherCheckpoint(f"nothing is held of {stated.origin}: offer it from the size 0")
        return stated
    if stated.size == held.size and stated.root != held.root:
        raise TreeForked(
            f"{stated.origin} has two roots at size {held.size}: {stated.root.hex()} is offered, {held.root.hex()} was"
            " signed before: keep both notes, and ask the node's operator",
            note=held.note,
        )
    if offer.old != held.size or stated.size < held.size:
        raise OtherCheckpoint(f"{held.size} lines of {stated.origin} are held, not {offer.old}", note=held.note)
    try:
        verify_consistency(held.size, held.root, stated.size, stated.root, offer.proof)
    except ProofMismatch as error:
        raise TreeForked(f"{stated.origin} at size {stated.size}: {error.message}", note=held.note) from None
    return stated
