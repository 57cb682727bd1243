"""The trees of the files that this node has written to its lake: what is offered of them, and what witnesses hold.

The shipping process signs them and computes proofs; the histories of the groups offer them. Here both meet. It is in
memory only: after a start, a witness shows what it holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from federation.errors import MalformedHistory, ProofMismatch
from federation.history.lake_checkpoints import LakeCheckpoint, read_lake_checkpoint
from federation.history.notes import NoteSignature, SignedNote, read_note
from federation.history.proofs import verify_consistency
from federation.history.witnessing import Offer

MOST_HELD: Final = 64
"""Maximum number of sizes of a tree for which proofs are computed at the same time."""


class FilesWitness(NamedTuple):
    """A peer as a witness of the files that this node has written under one of its names."""

    group: str
    node: str
    peer: str


class HeldNote(NamedTuple):
    """A checkpoint of files that a witness has shown, and the note that it is from."""

    stated: LakeCheckpoint
    note: str


class OfferedFiles(NamedTuple):
    """The last checkpoint of the files of a node, with the consistency proofs from sizes that witnesses hold."""

    note: SignedNote
    stated: LakeCheckpoint
    proofs: Mapping[int, tuple[bytes, ...]]


@dataclass
class OwnFiles:
    """What this node has signed of its files, and what its witnesses hold of that."""

    _signed: dict[str, OfferedFiles] = field(default_factory=dict)
    _held: dict[FilesWitness, HeldNote] = field(default_factory=dict)
    _cosigned: dict[str, SignedNote] = field(default_factory=dict)
    _done: dict[FilesWitness, str] = field(default_factory=dict)
    wake: dict[str, Callable[[], None]] = field(default_factory=dict)
    """By group, a function that is called when there is something to offer."""

    def note_signed(self, node: str, note: str, proofs: Mapping[int, tuple[bytes, ...]]) -> None:
        """Note the last checkpoint of a node's files. Of several with one size, the first is offered: so all witnesses
        cosign the same. Raises HistoryError."""
        before, signed = self._signed.get(node), read_note(note.encode())
        stated = read_lake_checkpoint(signed.text)
        if before is not None and before.stated[:3] == stated[:3]:
            signed, stated = before.note, before.stated
        self._signed[node] = OfferedFiles(signed, stated, dict(proofs))
        for wake in self.wake.values():
            wake()

    def held_sizes(self) -> dict[str, tuple[int, ...]]:
        """Return by node the sizes from which proofs are wanted."""
        found: dict[str, set[int]] = {}
        for witness, held in self._held.items():
            signed = self._signed.get(witness.node)
            if signed is not None and held.stated.origin == signed.stated.origin:
                found.setdefault(witness.node, set()).add(held.stated.size)
        return {node: tuple(sorted(sizes, reverse=True)[:MOST_HELD]) for node, sizes in found.items()}

    def cosigned(self) -> dict[str, str]:
        """Return by node the last checkpoint with cosignatures, for its next state."""
        return {node: note.encode().decode() for node, note in self._cosigned.items()}

    def find_due(self, witness: FilesWitness) -> Offer | None:
        """Return what is to be offered to a witness; None if nothing is, or its proof is not there yet.

        Raises ProofMismatch if the lines in the lake do not continue what the witness holds: then nothing is offered,
        because it would look like a fork of this node.
        """
        signed = self._signed.get(witness.node)
        if signed is None or self._done.get(witness) == signed.note.text:
            return None
        shown = self._held.get(witness)
        if shown is None or shown.stated.origin != signed.stated.origin:
            return Offer(signed.note, 0)
        held = shown.stated
        proof = () if held.size == signed.stated.size else signed.proofs.get(held.size)
        if proof is None or held.size > signed.stated.size:
            return None
        verify_consistency(held.size, held.root, signed.stated.size, signed.stated.root, proof)
        return Offer(signed.note, held.size, proof)

    def find_held(self, witness: FilesWitness) -> HeldNote | None:
        """Return what a witness holds; None as long as it has shown nothing."""
        return self._held.get(witness)

    def note_held(self, witness: FilesWitness, held: LakeCheckpoint, note: str) -> None:
        """Note what a witness has shown that it holds."""
        self._held[witness] = HeldNote(held, note)

    def has_all_of(self, witness: FilesWitness, held: LakeCheckpoint) -> bool:
        """Return False if the lines in the lake do not continue a checkpoint that a witness has shown.

        Without a proof from there nothing is known yet: `find_due` compares it with the next checkpoint.
        """
        signed = self._signed.get(witness.node)
        if signed is None or held.origin != signed.stated.origin:
            return True
        size = signed.stated.size
        proof = () if held.size == size else signed.proofs.get(held.size)
        if held.size > size or proof is None:
            return held.size <= size
        try:
            verify_consistency(held.size, held.root, size, signed.stated.root, proof)
        except ProofMismatch:
            return False
        return True

    def forget_held(self, witness: FilesWitness) -> bool:
        """Forget what a witness holds, because it has forgotten it; return whether anything was known of it."""
        return self._held.pop(witness, None) is not None

    def give_up(self, witness: FilesWitness) -> None:
        """Offer a witness nothing more until there is another checkpoint: it refuses this one."""
        signed = self._signed.get(witness.node)
        if signed is not None:
            self._done[witness] = signed.note.text

    def keep(self, witness: FilesWitness, offer: Offer, signature: NoteSignature) -> None:
        """Keep a verified cosignature of an offered checkpoint."""
        stated, before = read_lake_checkpoint(offer.note.text), self._cosigned.get(witness.node)
        self._held[witness] = HeldNote(stated, offer.note.encode().decode())
        self._done[witness] = offer.note.text
        if before is None or before.text != offer.note.text:
            before = offer.note
        try:
            self._cosigned[witness.node] = before.add(signature)
        except MalformedHistory:
            return  # it has as many as a note may have
