"""What a node and its shipping process say to each other: JSON, with four bytes of length before each."""

from __future__ import annotations

from typing import Final

import msgspec

from eventd.lake.schema import Book

LENGTH: Final = 4
"""Bytes of the length that comes before each frame, big endian."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What is shipped where; the first frame. Ages are in microseconds, 0 for never.

    `interval`: how often a round begins, in microseconds. `claim` names the claim of the node on its database. `nice`:
    by how much the process gives way to others, from 0 to 19.
    """

    database: str
    claim: str = ""
    lake: str
    rows: int
    payloads: bool
    compact_after: int
    retention: int
    nice: int
    interval: int = 0


class Step(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Do the next thing there is to do."""

    now: int


class Tidy(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Compact a closed day, or remove something that is not needed any more."""

    now: int


class Enrol(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Cursors are missing, or are of another lake: make them, from the beginning, for each book of these nodes.

    `lake` is the id of the lake, empty as long as it was not reached.
    """

    nodes: tuple[str, ...]
    lake: str


class Loss(msgspec.Struct, frozen=True, array_like=True):
    """Facts that retention took before they were shipped; the fields are those of `eventd.lake.extract.Lost`."""

    group: str
    peer: str
    epoch: str
    after: int
    upto: int
    count: int
    reason: str


class Moved(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A book is in the lake up to `upto`: move its cursor there from `position`.

    `rows` and `bytes` are what was written for it, 0 where nothing was: nothing of the book lies there, or it had been
    written before (`adopted`).
    """

    node: str
    book: Book
    position: int
    upto: int
    rows: int = 0
    bytes: int = 0
    adopted: bool = False
    lost: tuple[Loss, ...] = ()


class Rest(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """All that there was is in the lake. Every fact recorded before `complete_until` (microseconds) is."""

    complete_until: int


class Tidied(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What was tidied up: segments put into the archive, and files removed. `more`: something is left to do."""

    compacted: int = 0
    removed: int = 0
    more: bool = False


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """It did not work. `kind`: `unavailable`, it may work later; `blocked`, until somebody does something; `fault`."""

    kind: str
    reason: str
    message: str


Request = Step | Tidy
Answer = Enrol | Moved | Rest | Tidied | Failed

ANSWERS: Final[msgspec.json.Decoder[Answer]] = msgspec.json.Decoder(Answer)
REQUESTS: Final[msgspec.json.Decoder[Request]] = msgspec.json.Decoder(Request)


def frame(value: msgspec.Struct) -> bytes:
    """A value as it goes over the pipe."""
    body = msgspec.json.encode(value)
    return len(body).to_bytes(LENGTH) + body


def cursor_name(node: str, book: Book) -> str:
    """The name of the cursor of a book that a node of this name keeps."""
    return f"{SEGMENTS}/{node}/{book}"


SEGMENTS: Final = "segments"
"""The kind of these cursors."""
