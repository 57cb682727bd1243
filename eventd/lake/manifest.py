"""The JSON files beside the data: the manifest that makes a file a segment, the state in which a node reports on its
ledgers, and the head that makes a folder a lake.

Times are microseconds since 1970, UTC.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Self, TypeVar, cast

import msgspec

from eventd.lake.layout import LARGEST, MINUTE
from eventd.lake.schema import LATER, SCHEMA_VERSION, Ledger
from federation.event import FIRST_TIME, LAST_TIME
from federation.selector import Selector

OUTSIDE: Final = "a time outside of the years 1 to 9999"
NESTED: Final = "is nested too deeply"

Number = Annotated[int, msgspec.Meta(ge=-1, le=LARGEST)]
"""A row number, position, seq, count or duration (microseconds) in a file of the lake; -1: not known."""

Time = Annotated[int, msgspec.Meta(ge=FIRST_TIME, le=LAST_TIME)]
"""A time in microseconds that exists in the calendar (years 1 to 9999). `decode` gives times outside of it a message
of their own."""

Int64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
"""A hash, or a sum or difference of other numbers."""


class Unreadable(Exception):
    """A JSON file of the lake cannot be decoded.

    The text is the reason, such as "is not JSON", and follows the file's name in messages.
    """


class OtherSchema(Unreadable):
    """The file was written with another version of the schema."""


class LostRows(msgspec.Struct, frozen=True, array_like=True):
    """A range of a group with rows that were deleted before they were shipped; the fields of `extract.EvictedRows`."""

    group: str
    peer: str
    epoch: str
    after: Number
    upto: Number
    count: Number
    reason: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """One segment: the rows of ledger `book` with numbers in (after, upto], recorded by `node` in `epoch`.

    `bytes` and `sha256` (hex) are of the Parquet file. `slots` are the first and last slot (minute) of the events' own
    times, None for ledgers other than `SLOTTED`; `times` are the earliest and latest `OWN_TIME` of the rows.
    `replaces` names the segments whose rows this one contains; it is emptied when those are deleted. `payloads`: rows
    of `events` may have them; `leaves`: they have the columns `LEAVES`. `lost`: the losses that the node found when it
    read the rows. It declares them in `gaps` after the segment is written, even if it is killed in between; until then,
    readers find them here.
    """

    schema: int = SCHEMA_VERSION
    book: Ledger
    node: str
    epoch: str
    after: Number
    upto: Number
    rows: Number
    bytes: Number
    sha256: str
    slots: tuple[int, int] | None
    times: tuple[int, int] | None
    written_at: int
    payloads: bool = False
    leaves: bool = False
    replaces: tuple[str, ...] = ()
    lost: tuple[LostRows, ...] = ()


class SelectionConditions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The conditions of a selection, as states and `receipts` have them: those of `Selector`, and `relay`.

    With `relay`, a receiver gets the events of other nodes, too. Other keys of a stored selection, such as `without`,
    are dropped: rows of the lake do not show which events these keys select.
    """

    types: tuple[str, ...] = ()
    subject_prefixes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    payload: dict[str, str] = {}
    relay: bool = False

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Self:
        """Return the conditions of a selection as a node shows it."""
        return msgspec.convert(stored, cls)

    @property
    def selector(self) -> Selector:
        """Return the selector with these conditions."""
        return Selector.of(
            types=self.types, subject_prefixes=self.subject_prefixes, sources=self.sources, payload=self.payload
        )

    @property
    def text(self) -> str:
        """Return the conditions as JSON; equal conditions give the same text."""
        return msgspec.json.encode(self, order="sorted").decode()


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """A peer's selection since `declared_at`; ledger rows refer to it by `version`."""

    version: Number
    declared_at: int
    selection: SelectionConditions


class PeerState(msgspec.Struct, frozen=True, kw_only=True):
    """A link as its sender sees it: all positions up to `cursor` are settled, except in the ranges of `repairs`.

    It has been in `state` since `since`. `repairs` are the ranges (after, upto] that repairs still have to send. `peer`
    may also be a callback, see `eventd.lake.receivers`: it gets the events after the position `begins` (0 for a peer).
    """

    peer: str
    selections: tuple[Selection, ...] = ()
    relay: bool = False
    paused: bool = False
    state: str = "running"
    reason: str = ""
    since: int = 0
    cursor: Number = 0
    created_at: int = 0
    repairs: tuple[tuple[Number, Number], ...] = ()
    begins: Number = 0


class GroupState(msgspec.Struct, frozen=True, kw_only=True):
    """One group of a node, with its link to each peer and callback.

    `last_seq` is the last seq that the node has assigned in the group: `events` has its row. Retention of the node has
    evicted the events up to `evicted_seq`, possibly before they were shipped. Both are -1 if unknown. `tree` is the id
    of the tree in which new events of the node get leaves; empty: they get none.
    """

    group: str
    peers: tuple[PeerState, ...] = ()
    last_seq: Number = -1
    evicted_seq: Number = -1
    tree: str = ""


class SegmentRange(msgspec.Struct, frozen=True, kw_only=True):
    """The row numbers (after, upto] that a ledger's segments must cover, by its state; earlier ones have expired."""

    after: Number
    upto: Number


class FileTreeState(msgspec.Struct, frozen=True, kw_only=True):
    """The tree of the files of a node, see `file_tree`: the signed `note` with its size and root, and the verifier key.

    `hashes` (hex) are the roots of the perfect subtrees, from which the node continues the tree. `cosigned`: the last
    checkpoint of the tree that witnesses have cosigned, that of an earlier state; empty: none has.
    """

    key: str
    note: str
    hashes: tuple[str, ...]
    cosigned: str = ""


class NodeState(msgspec.Struct, frozen=True, kw_only=True):
    """How far the ledgers of one node and epoch are shipped.

    Every row that the node recorded before `complete_until`, by its own clock, was shipped, or noted as lost.
    `instance` is random for each database; a copy keeps it. `head` is the log's last position. `books` is the row
    number that each ledger's cursor has reached; `segments` is what its segments cover, which may end earlier, because
    numbers without rows have no segments, or later, until the cursor follows. `began_at` is when the first state of the
    epoch was written, `as_of` when this one was. `interval` is how often the node looks for rows to ship, in
    microseconds. `closed_at` is when an operator closed the ledgers; 0: in service. In the file, `later_books` and
    `later_segments` have the ledgers `LATER`; a state that was decoded has all in `books` and `segments`. `tree` is
    signed if the node has a key; None without one, and in states of earlier versions.
    """

    schema: int = SCHEMA_VERSION
    node: str
    epoch: str
    instance: str
    began_at: int
    as_of: int
    head: Number
    complete_until: int
    books: dict[Ledger, Number] = {}
    segments: dict[Ledger, SegmentRange] = {}
    groups: tuple[GroupState, ...] = ()
    payloads: bool = False
    interval: Number = 0
    closed_at: int = 0
    later_books: dict[Ledger, Number] = {}
    later_segments: dict[Ledger, SegmentRange] = {}
    tree: FileTreeState | None = None


class LakeHead(msgspec.Struct, frozen=True, kw_only=True):
    """The file that makes a folder a lake. `id` is random; cursors and audits of a lake are valid only for its `id`."""

    schema: int = SCHEMA_VERSION
    id: str
    made_at: int


class _Version(msgspec.Struct):
    schema: int


StructT = TypeVar("StructT", bound=msgspec.Struct)


def encode(value: msgspec.Struct) -> bytes:
    """Return the JSON text of a manifest or another JSON file of a lake."""
    if isinstance(value, NodeState):
        value = _divided(value)
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def decode(text: bytes, kind: type[StructT]) -> StructT:
    """Parse the JSON text of a file of this kind.

    Raises Unreadable, also for a time that no calendar has, and OtherSchema for another schema version.
    """
    try:
        version = msgspec.json.decode(text, type=_Version).schema
    except RecursionError:
        raise Unreadable(f"is not valid: it {NESTED}") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Unreadable("is not JSON, or has no field `schema`") from None
    if version != SCHEMA_VERSION:
        raise OtherSchema(f"is of schema version {version}, and this program knows {SCHEMA_VERSION}")
    try:
        value = msgspec.json.decode(text, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Unreadable(f"is not valid: {error}") from None
    except RecursionError:
        raise Unreadable(f"is not valid: it {NESTED}") from None
    if any(not FIRST_TIME <= time <= LAST_TIME for time in _times_of(value)):
        raise Unreadable(f"has {OUTSIDE}")
    return cast(StructT, _joined(value)) if isinstance(value, NodeState) else value


def _divided(state: NodeState) -> NodeState:
    """Return a state as its file has it."""
    return msgspec.structs.replace(
        state,
        books={book: upto for book, upto in state.books.items() if book not in LATER},
        segments={book: reach for book, reach in state.segments.items() if book not in LATER},
        later_books={book: upto for book, upto in state.books.items() if book in LATER and upto},
        later_segments={book: reach for book, reach in state.segments.items() if book in LATER},
    )


def _joined(state: NodeState) -> NodeState:
    """Return a state of a file with all ledgers in `books` and `segments`."""
    return msgspec.structs.replace(
        state,
        books=state.books | state.later_books,
        segments=state.segments | state.later_segments,
        later_books={},
        later_segments={},
    )


def decode_selection(text: str) -> SelectionConditions:
    """Parse the selection of a row of `receipts`. An empty text gives one that selects all. Raises Unreadable."""
    try:
        return msgspec.json.decode(text or "{}", type=SelectionConditions)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise Unreadable(f"is not valid: {error}") from None
    except RecursionError:
        raise Unreadable(f"is not valid: it {NESTED}") from None


def _times_of(value: msgspec.Struct) -> Iterator[int]:
    match value:
        case Manifest():
            yield from (value.written_at, *(value.times or ()), *(slot * MINUTE for slot in value.slots or ()))
        case NodeState():
            yield from (value.began_at, value.as_of, value.complete_until, value.closed_at)
            for peer in (peer for group in value.groups for peer in group.peers):
                yield from (peer.since, peer.created_at, *(one.declared_at for one in peer.selections))
        case LakeHead():
            yield value.made_at
