"""A tree of another node, written by the definition: any state of it can be signed, also a dishonest one."""

from __future__ import annotations

from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eventd.testing import NOW
from federation.history.checkpoints import Checkpoint, LogOrigin, sign_checkpoint
from federation.history.entries import Opening, OpeningReason, PreviousTree, opening_entry
from federation.history.notes import LOG_KEY, NoteSigner, SignedNote
from federation.history.proof_file import LeafProof, ProofFile
from federation.history.witnessing import Offer
from tests.support import plain_history as plain

FIRST, SECOND = (Ed25519PrivateKey.from_private_bytes(letter * 32) for letter in (b"1", b"2"))


@dataclass
class GrowingTree:
    """A tree of node `a`, by the definition: any state of it can be signed, also one that an honest node would not."""

    name: str = "t"
    key: Ed25519PrivateKey = FIRST
    reason: OpeningReason = OpeningReason.FIRST
    previous: PreviousTree | None = None
    retired: NoteSigner | None = None
    node: str = "a"
    group: str = "g"
    time: int = NOW
    entries: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.origin = LogOrigin(self.group, self.node, self.name * 16)
        self.signer = NoteSigner(str(self.origin), LOG_KEY, self.key)
        opening = Opening(self.origin, self.signer.key, self.reason, 1, self.time, self.previous)
        signers = [self.signer, self.retired] if self.retired else [self.signer]
        self.entries.insert(0, opening_entry(opening, *signers))

    def grow(self, *texts: str) -> GrowingTree:
        self.entries += [b"\x01" + plain.digest(text.encode()) for text in texts]
        return self

    def checkpoint(self, size: int = 0) -> Checkpoint:
        size = size or len(self.entries)
        return Checkpoint(self.origin, size, plain.root(self.entries[:size]))

    def note(self, size: int = 0) -> SignedNote:
        return sign_checkpoint(self.checkpoint(size), self.signer)

    def offer(self, old: int = 0, size: int = 0) -> Offer:
        """An offer of a size to a witness that holds `old` leaves."""
        known = self.entries[: size or len(self.entries)]
        if old:
            return Offer(self.note(size), old, tuple(plain.proof(old, known)))
        return Offer(self.note(size), 0, (), known[0], tuple(plain.path(0, known)))

    def prove(self, body: str) -> ProofFile:
        """Admit an event, and return the proof file of it."""
        self.grow(body)
        return self.prove_leaf(body, len(self.entries) - 1)

    def prove_leaf(self, body: str, index: int) -> ProofFile:
        """Return the proof file of the event at an index, in a checkpoint of the present size."""
        path, opening = (tuple(plain.path(one, self.entries)) for one in (index, 0))
        leaf = LeafProof(index, path, self.note())
        return ProofFile(plain.digest(body.encode()), body, leaf, self.entries[0], opening)

    def previous_at(self, size: int = 0) -> PreviousTree:
        return PreviousTree(*self.checkpoint(size))
