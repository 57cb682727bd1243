"""The entries whose hashes are the leaves of a tree: the opening entry at index 0, then one for each admitted event."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from federation.errors import MalformedHistory, UnprovenNote
from federation.history.checkpoints import LogOrigin, read_origin
from federation.history.forms import quote, read_hash, read_number, write_base64
from federation.history.merkle import HASH_SIZE, MAX_SIZE
from federation.history.notes import (
    LOG_KEY,
    NoteKey,
    NoteSigner,
    SignedNote,
    read_note,
    read_vkey,
    require_signed,
    sign_text,
)
from federation.ranges import MAX_POSITION

OPENING_ENTRY: Final = b"\x00"
EVENT_ENTRY: Final = b"\x01"
MAX_MICROS: Final = 1 << 58
"""The largest time of an opening entry, in microseconds since 1970: it lies after the year 9999."""

_NONE: Final = "-"
_LINES: Final = 8


class OpeningReason(StrEnum):
    """Why a tree was opened."""

    FIRST = "first"
    EPOCH = "epoch"
    KEY = "key"
    DAMAGE = "damage"


class PreviousTree(NamedTuple):
    """The tree that a tree succeeds, with the last size and root that its node signed."""

    origin: LogOrigin
    size: int
    root: bytes


class Opening(NamedTuple):
    """What the opening entry of a tree states. `position` is the first position of the log that has a leaf in it.

    `time` is in microseconds since 1970. A tree that was not the first of its node in the group has a `previous` one.
    """

    origin: LogOrigin
    key: NoteKey
    reason: OpeningReason
    position: int
    time: int
    previous: PreviousTree | None = None

    def text(self) -> str:
        """Return the text that is signed."""
        before = self.previous
        last = (str(before.origin), str(before.size), write_base64(before.root)) if before else (_NONE,) * 3
        lines = (str(self.origin), self.key.text(), self.reason.value, str(self.position), str(self.time), *last)
        return "".join(f"{line}\n" for line in lines)


class OpeningEntry(NamedTuple):
    """The opening entry of a tree as it was read. `note` has the signature of the tree's own key: it is verified."""

    opening: Opening
    note: SignedNote

    def is_signed_by(self, previous: NoteKey) -> bool:
        """Return whether the key of the previous tree also signed the opening entry.

        Raises UnprovenNote if that signature is wrong. Without it, the old key was lost, as the node claims, or the
        tree was opened for another reason.
        """
        if not self.note.of(previous):
            return False
        require_signed(self.note, previous)
        return True


def event_entry(digest: bytes) -> bytes:
    """Return the entry of an event from the digest of its canonical form."""
    if len(digest) != HASH_SIZE:
        raise MalformedHistory(f"the digest of an event has {HASH_SIZE} bytes, not {len(digest)}", reason="digest")
    return EVENT_ENTRY + digest


def opening_entry(opening: Opening, *signers: NoteSigner) -> bytes:
    """Return the opening entry, signed by the key of the tree and, after a rotation, by that of the previous one."""
    text = opening.text()
    note = SignedNote(text, ())
    for signer in signers:
        note = note.add(sign_text(text, signer))
    return OPENING_ENTRY + note.encode()


def read_event_entry(entry: bytes) -> bytes:
    """Return the digest of the event that an entry stands for. Raises MalformedHistory."""
    if entry[:1] != EVENT_ENTRY:
        raise MalformedHistory(f"an entry of kind {_kind(entry)} is not that of an event, 0x01", reason="entry")
    if len(entry) != 1 + HASH_SIZE:
        raise MalformedHistory(f"the entry of an event has {1 + HASH_SIZE} bytes, not {len(entry)}", reason="entry")
    return entry[1:]


def read_opening_entry(entry: bytes) -> OpeningEntry:
    """Return what an opening entry states. Raises MalformedHistory, and UnprovenNote if its own key did not sign it."""
    if entry[:1] != OPENING_ENTRY:
        raise MalformedHistory(f"an entry of kind {_kind(entry)} is not the opening of a tree, 0x00", reason="entry")
    note = read_note(entry[1:])
    opening = _read_opening(note.text)
    require_signed(note, opening.key)
    return OpeningEntry(opening, note)


def _kind(entry: bytes) -> str:
    return f"0x{entry[0]:02x}" if entry else "nothing"


def _read_opening(text: str) -> Opening:
    lines = text.split("\n")
    if len(lines) != _LINES + 1 or lines[-1]:
        raise MalformedHistory(f"an opening entry has {_LINES} lines, not {len(lines) - 1}", reason="opening")
    origin = read_origin(lines[0])
    key = read_vkey(lines[1], LOG_KEY)
    if key.name != str(origin):
        raise UnprovenNote(f"the opening entry of {origin} has the key of {key.name}", reason="origin")
    reason = _read_reason(lines[2])
    position = read_number(lines[3], f"the first position of {origin}", MAX_POSITION)
    time = read_number(lines[4], f"the opening time of {origin}", MAX_MICROS)
    previous = _read_previous(origin, lines[5:8])
    if previous is None if reason is OpeningReason.KEY else previous and reason is OpeningReason.FIRST:
        raise MalformedHistory(
            f"{origin} was opened with reason {reason.value} and {'a' if previous else 'no'} previous tree: the first"
            " tree of a node in a group has none, one with a new key has one",
            reason="previous",
        )
    return Opening(origin, key, reason, position, time, previous)


def _read_reason(text: str) -> OpeningReason:
    try:
        return OpeningReason(text)
    except ValueError:
        raise MalformedHistory(
            f"{quote(text)} is not a reason to open a tree: it is one of {', '.join(OpeningReason)}", reason="opening"
        ) from None


def _read_previous(origin: LogOrigin, lines: list[str]) -> PreviousTree | None:
    if lines == [_NONE] * 3:
        return None
    before = read_origin(lines[0])
    size = read_number(lines[1], f"the last size of {before}", MAX_SIZE)
    # Another node's tree would make this one the successor of what it never signed.
    if before[:2] != origin[:2] or before == origin or size == 0:
        raise MalformedHistory(
            f"{origin} cannot succeed {before} at size {size}: the previous tree is another one of the same node and"
            " group, with at least its opening entry",
            reason="previous",
        )
    return PreviousTree(before, size, read_hash(lines[2], f"the last root of {before}"))
