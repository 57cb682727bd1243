"""What a witness checks before it cosigns a checkpoint, and which keys of other nodes it believes. Pure.

The order of the checks is part of the protocol: the first that fails decides the answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from federation.errors import KeyChanged, MalformedHistory, OtherCheckpoint, ProofMismatch, TreeForked, UnprovenNote
from federation.history.checkpoints import Checkpoint, LogOrigin, open_checkpoint
from federation.history.entries import OpeningEntry, OpeningReason, read_opening_entry
from federation.history.lake_checkpoints import LakeCheckpoint
from federation.history.merkle import hash_leaf
from federation.history.notes import LOG_KEY, NoteKey, SignedNote, key_part
from federation.history.proofs import verify_consistency, verify_inclusion


@dataclass(frozen=True)
class Offer:
    """A checkpoint that a node offers to a witness.

    `old`: the size that the witness holds, as the node believes, and `proof` the consistency proof from there; 0 for a
    tree that the witness does not know: then `opening` is its opening entry, with its inclusion path, and `rotations`
    are the opening entries with which its node replaced its keys before, and those of trees that lead to this
    one, oldest first.
    """

    note: SignedNote
    old: int
    proof: tuple[bytes, ...] = ()
    opening: bytes = b""
    opening_path: tuple[bytes, ...] = ()
    rotations: tuple[bytes, ...] = ()


class HeldCheckpoint(NamedTuple):
    """The last checkpoint that a witness holds of a tree, with the note in which it got it."""

    checkpoint: Checkpoint
    note: str


class HeldRoot(NamedTuple):
    """Size and root of the last checkpoint that a witness holds of a tree, with the note in which it got it."""

    size: int
    root: bytes
    note: str


def witness_name(group: str, node: str) -> str:
    """Return the name of the key with which a node cosigns in a group."""
    return f"eventd/{group}/{node}/witness"


def check_offer(offer: Offer, key: NoteKey, held: HeldCheckpoint | None) -> Checkpoint:
    """Return the checkpoint of an offer if the witness may cosign it. `key` is the known one of the tree.

    Raises MalformedHistory and UnprovenNote for what proves nothing, OtherCheckpoint if the witness holds another size
    than the node believes, and TreeForked if the note contradicts what the witness holds.
    """
    stated = open_checkpoint(offer.note, key)
    if held is None:
        if offer.old:
            raise OtherCheckpoint(f"nothing is held of {stated.origin}: offer it with its opening entry")
        require_opening(offer, stated, key)
        return stated
    require_continued(offer, stated, HeldRoot(held.checkpoint.size, held.checkpoint.root, held.note), "leaves")
    return stated


def require_continued(offer: Offer, stated: Checkpoint | LakeCheckpoint, held: HeldRoot, entries: str) -> None:
    """Raise OtherCheckpoint or TreeForked unless the checkpoint of an offer continues the held one of its tree.

    `entries`: what the tree is made of, for messages.
    """
    if stated.size == held.size and stated.root != held.root:
        raise TreeForked(
            f"{stated.origin} has two roots at size {held.size}: {stated.root.hex()} is offered, {held.root.hex()} was"
            " signed before: keep both notes, and ask the node's operator",
            note=held.note,
        )
    if offer.old != held.size or stated.size < held.size:
        raise OtherCheckpoint(f"{held.size} {entries} of {stated.origin} are held, not {offer.old}", note=held.note)
    try:
        verify_consistency(held.size, held.root, stated.size, stated.root, offer.proof)
    except ProofMismatch as error:
        raise TreeForked(f"{stated.origin} at size {stated.size}: {error.message}", note=held.note) from None


def require_opening(offer: Offer, stated: Checkpoint, key: NoteKey) -> OpeningEntry:
    """Return the opening entry of an offered tree. Raises a HistoryError unless it is leaf 0 and names the key."""
    entry = read_opening_entry(offer.opening)
    if entry.opening.key != key:
        raise UnprovenNote(
            f"leaf 0 of {stated.origin} opens a tree with another key, {entry.opening.key.text()}", reason="opening_key"
        )
    verify_inclusion(hash_leaf(offer.opening), 0, stated.size, offer.opening_path, stated.root)
    return entry


class KeySource(StrEnum):
    """How a key of another node is known, the strongest first."""

    PINNED = "pinned"
    """Declared by the operator."""
    OWNED = "owned"
    """From the node itself, in a message signed with a link key that the node alone has."""
    SHARED = "shared"
    """From a message signed with a secret that several nodes have: each of them could have sent it."""


_STRONGEST: Final = tuple(KeySource)


class KnownKey(NamedTuple):
    """The public half of a node's log or witness key, and how it is known."""

    public: bytes
    source: KeySource


def take_key(node: str, known: KnownKey | None, offered: KnownKey, kind: int = LOG_KEY) -> KnownKey:
    """Return what is known of a key after a node has shown one. Raises KeyChanged for another than the known one."""
    if known is None:
        return offered
    if known.public == offered.public:
        return KnownKey(known.public, min(known.source, offered.source, key=_STRONGEST.index))
    raise KeyChanged(
        f"{node} shows the key {key_part(kind, offered.public)}, but {key_part(kind, known.public)} is known"
        f" ({known.source}) and has not signed the change: ask the node's operator, and pin the new key if it is right"
    )


def take_successor(entry: OpeningEntry, known: KnownKey | None, source: KeySource) -> KnownKey:
    """Return what is known of a node's log key after it has opened a tree. Raises KeyChanged, and UnprovenNote.

    A new key is taken over if the known one also signed the opening entry.
    """
    opening = entry.opening
    offered = KnownKey(opening.key.public, source)
    before = opening.previous
    if known is None or known.public == offered.public or opening.reason is not OpeningReason.KEY or before is None:
        return take_key(opening.origin.node, known, offered)
    if entry.is_signed_by(NoteKey(str(before.origin), LOG_KEY, known.public)):
        return KnownKey(offered.public, known.source)
    return take_key(opening.origin.node, known, offered)


def read_rotations(offer: Offer, stated: LogOrigin) -> list[OpeningEntry]:
    """Return the earlier rotations of an offer, oldest first. Raises a HistoryError for those of another node."""
    found = [read_opening_entry(entry) for entry in offer.rotations]
    for entry in found:
        if entry.opening.origin[:2] != stated[:2]:
            raise MalformedHistory(f"{entry.opening.origin} is not of the node of {stated}", reason="origin")
    return found


def follow_rotations(rotations: Iterable[OpeningEntry], known: KnownKey | None) -> KnownKey | None:
    """Return what is known of a log key after the rotations that a witness has not seen: each that the known key signed
    makes the new one known. Others change nothing. Raises UnprovenNote for a wrong signature."""
    for entry in rotations:
        before = entry.opening.previous
        if known is None or before is None or entry.opening.reason is not OpeningReason.KEY:
            continue
        if entry.is_signed_by(NoteKey(str(before.origin), LOG_KEY, known.public)):
            known = KnownKey(entry.opening.key.public, known.source)
    return known


def find_vouched(entry: OpeningEntry, rotations: Iterable[OpeningEntry], known: KnownKey | None) -> list[OpeningEntry]:
    """Return the rotations, oldest first, of which a signature shows that they are of the node of an offered tree.

    Such a one has the key of the tree or the known one, has signed the opening entry of the tree, or is signed by the
    known key or one that follows it. A rotation is no leaf of the offered tree: without this, each program that passes
    the offer on could add one.
    Raises UnprovenNote for a wrong signature.
    """
    reached = {entry.opening.key.public} | ({known.public} if known else set())
    found = list[OpeningEntry]()
    for one in rotations:
        public = one.opening.key.public
        if public in reached or _is_rotated_from(entry, public) or any(_is_rotated_from(one, key) for key in reached):
            # What an entry is signed by, further back, says nothing: who passes it on can add signatures.
            reached.add(public)
            found.append(one)
    return found


def _is_rotated_from(entry: OpeningEntry, public: bytes) -> bool:
    before = entry.opening.previous
    if before is None or entry.opening.reason is not OpeningReason.KEY:
        return False
    return entry.is_signed_by(NoteKey(str(before.origin), LOG_KEY, public))


class Succession(StrEnum):
    """How a new tree fits to the last one that a witness holds of the same node."""

    CONTINUES = "continues"
    """It names what the witness holds, or more."""
    ROLLED_BACK = "rolled_back"
    """It names less: the leaves in between are abandoned."""
    FORKED = "forked"
    """It names another root at the size that the witness holds."""
    UNKNOWN = "unknown"
    """It names a tree that the witness does not hold: nothing follows from what the witness holds."""


def judge_succession(entry: OpeningEntry, last: Checkpoint) -> tuple[Succession, int]:
    """Return how a new tree fits to the last one held, and how many leaves of that are abandoned."""
    before = entry.opening.previous
    if before is None:
        return Succession.ROLLED_BACK, last.size
    if before.origin != last.origin:
        return Succession.UNKNOWN, 0
    if before.size < last.size:
        return Succession.ROLLED_BACK, last.size - before.size
    if before.size == last.size and before.root != last.root:
        return Succession.FORKED, 0
    return Succession.CONTINUES, 0


def require_same_tree(first: Checkpoint, second: Checkpoint) -> None:
    """Raise MalformedHistory unless both checkpoints are of one tree."""
    if first.origin != second.origin:
        raise MalformedHistory(f"{first.origin} and {second.origin} are two trees", reason="origin")
