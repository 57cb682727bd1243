"""Cosignatures: what a witness adds to a checkpoint. C2SP tlog-cosignature, Ed25519.

With a cosignature a witness states that, at this time, this is the largest size of the tree that it has seen, and that
everything it saw of the tree before is part of it. It does not state that the witness has the events.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from federation.errors import MalformedHistory
from federation.history.notes import SIGNATURE_SIZE, NoteKey, NoteSignature, NoteSigner, SignedNote

MAX_TIME: Final = (1 << 63) - 1
_TIME_SIZE: Final = 8


def cosign(text: str, signer: NoteSigner, time: int) -> NoteSignature:
    """Return the cosignature of a witness over the text of a checkpoint, at a time in seconds since 1970."""
    if not 0 < time <= MAX_TIME:
        raise MalformedHistory(f"{time} is not the time of a cosignature, in seconds since 1970", reason="time")
    signature = signer.private.sign(_message(text, time))
    return signer.line(time.to_bytes(_TIME_SIZE, "big") + signature)


def cosignature_times(note: SignedNote, keys: Iterable[NoteKey]) -> dict[NoteKey, int]:
    """Return for each known witness that cosigned the note its earliest time, in seconds since 1970.

    Other signatures are ignored, and a key counts once under however many names. Raises UnprovenNote if a signature
    under the name and the id of a known witness is wrong.
    """
    earliest: dict[bytes, tuple[NoteKey, int]] = {}
    for key in dict.fromkeys(keys):  # one that is listed a thousand times is verified once
        for time in [_verified_time(note, key, one) for one in note.of(key)]:
            earliest[key.public] = min(earliest.get(key.public, (key, time)), (key, time), key=lambda pair: pair[1])
    return dict(earliest.values())


def _verified_time(note: SignedNote, key: NoteKey, signature: bytes) -> int:
    time = int.from_bytes(signature[:_TIME_SIZE], "big")
    if (
        len(signature) != _TIME_SIZE + SIGNATURE_SIZE
        or not 0 < time <= MAX_TIME
        or not key.verifies(signature[_TIME_SIZE:], _message(note.text, time))
    ):
        raise key.fails()
    return time


def _message(text: str, time: int) -> bytes:
    return f"cosignature/v1\ntime {time}\n{text}".encode()
