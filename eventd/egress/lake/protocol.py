"""The messages between a node and its shipping process: JSON, each after its length in four bytes."""

from __future__ import annotations

from typing import Final

import msgspec

from eventd.lake.manifest import LostRows
from eventd.lake.schema import Ledger

LENGTH: Final = 4
"""Bytes of the length before each frame, big endian."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What to ship, and where; the first frame.

    `lake` is its folder or URL; a segment is complete with about `rows` rows. Days are compacted `compact_after` past
    their end; segments of days older than `retention` expire, and are deleted a day later; 0 for never. `interval` is
    the time between the end of a round and the begin of the next, which may also begin earlier. These times are in
    microseconds. `claim` names the claim of the node on its database. `nice`: how far the process lowers its priority,
    from 0 to 19. `keys`: the folder with the key file of histories, which also signs the states.
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
    keys: str = ""

    def __repr__(self) -> str:
        """Return the name of the class alone: the addresses of database and lake may hold secrets."""
        return "Terms(…)"


class ShipRequest(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Requests the next step of the current round, or the first of a new round: ship one segment, or end the round.

    By node: `held`, the sizes of the tree of its files from which witnesses need proofs, and `cosigned`, the last
    checkpoint of this tree with cosignatures.
    """

    now: int
    held: dict[str, tuple[int, ...]] = {}
    cosigned: dict[str, str] = {}


class TidyRequest(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Requests one step of tidying: expire or delete old segments, or compact segments of a closed day."""

    now: int


class CursorsMissing(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Cursors are missing, or belong to another lake: the node must create them, at position 0, for each ledger.

    `nodes` are the node names whose ledgers are shipped; `lake` is the id of the lake, empty until it was reached.
    """

    nodes: tuple[str, ...]
    lake: str


class ShippedCheckpoints(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The last checkpoints of the node's trees that the lake has, as notes; once, before anything is shipped."""

    notes: tuple[str, ...]


class Shipment(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A ledger is in the lake up to the row number `upto`: its cursor moves there from `position`.

    `rows` and `bytes` are those of the segment, 0 without one: the range has no row of the ledger, or its segment was
    written before the cursor could follow (`adopted`). `lost`: rows of the range that were deleted before they were
    read.
    """

    node: str
    book: Ledger
    position: int
    upto: int
    rows: int = 0
    bytes: int = 0
    adopted: bool = False
    lost: tuple[LostRows, ...] = ()


class SignedFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The tree of the files of a node in an epoch: its id, and how many lines of it the node has signed."""

    node: str
    epoch: str
    tree: str
    size: int


class FilesOffer(msgspec.Struct, frozen=True, kw_only=True):
    """The checkpoint of a node's files in its state, and consistency proofs (hex) from the sizes in the request."""

    node: str
    note: str
    proofs: dict[int, tuple[str, ...]] = {}


class RoundEnd(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The round has ended: every row recorded before `complete_until` (microseconds) is in the lake, or lost.

    `files`: what the states of the nodes are signed with. The node keeps it, to notice a lake that was put back.
    """

    complete_until: int
    files: tuple[SignedFiles, ...] = ()
    offered: tuple[FilesOffer, ...] = ()


class TidyResult(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """How many segments a step copied to the archive, and how many it deleted. `more`: another step may find work."""

    compacted: int = 0
    removed: int = 0
    more: bool = False


class Failure(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The request failed.

    `kind`: `unavailable`, a retry may succeed; `blocked`, an operator has to act; `fault`, a defect.
    """

    kind: str
    reason: str
    message: str


Request = ShipRequest | TidyRequest
Answer = CursorsMissing | ShippedCheckpoints | Shipment | RoundEnd | TidyResult | Failure

ANSWERS: Final[msgspec.json.Decoder[Answer]] = msgspec.json.Decoder(Answer)
REQUESTS: Final[msgspec.json.Decoder[Request]] = msgspec.json.Decoder(Request)


def frame(value: msgspec.Struct) -> bytes:
    """Return a message as bytes for the pipe: its length in four bytes, then its JSON."""
    body = msgspec.json.encode(value)
    return len(body).to_bytes(LENGTH) + body


def cursor_name(node: str, book: Ledger) -> str:
    """Return the name of the cursor for one ledger of the node with this name."""
    return f"{SEGMENTS}/{node}/{book}"


SEGMENTS: Final = "segments"
"""The kind of the cursors that `cursor_name` names."""
