"""The columns of every ledger: Arrow schemas and the tables of `docs/reference/lake.md` are derived from them."""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from eventd.lake.extra import pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_VERSION: Final = 1
"""The version of files, manifests and states. Readers refuse any other number."""


class Book(StrEnum):
    """An append-only table of what one node recorded."""

    EVENTS = "events"
    DELIVERIES = "deliveries"
    RECEIPTS = "receipts"
    INBOUND = "inbound"
    GAPS = "gaps"
    REFUSALS = "refusals"


class Kind(StrEnum):
    """The type of a column, as the interface for auditors names it."""

    INT64 = "int64"
    INT32 = "int32"
    INT16 = "int16"
    BOOL = "bool"
    STRING = "string"
    WORD = "word"  # a string with few distinct values: dictionary<int32, string>
    TIME = "time"  # timestamp of microseconds, UTC
    DIGEST = "digest"  # 32 bytes


class Column(NamedTuple):
    """One column. `null`: the value may be missing."""

    name: str
    kind: Kind
    says: str
    null: bool = False


_KEPT_BY = (
    Column("number", Kind.INT64, "place in the book; rises in the order of commits"),
    Column("node", Kind.WORD, "who keeps the book, by its name in the group"),
    Column("epoch", Kind.WORD, "of that node's log: the history in which the number means something"),
)

_EVENTS = (
    Column("group", Kind.WORD, "the EventGroup"),
    Column("position", Kind.INT64, "place in this node's log, the same as `number`"),
    Column("seq", Kind.INT64, "place in the group, dense at this node"),
    Column("id", Kind.STRING, "of the event"),
    Column("source", Kind.WORD, "the node that emitted it"),
    Column("type", Kind.WORD, "of the event"),
    Column("subject", Kind.STRING, "of the event"),
    Column("own", Kind.BOOL, "whether it entered the federation here"),
    Column("path", Kind.WORD, "the nodes it came through, as on the wire; empty: own"),
    Column("event_at", Kind.TIME, "when it was observed, as its source says"),
    Column("expires_at", Kind.TIME, "until when it is of use; none: for ever", null=True),
    Column("recorded_at", Kind.TIME, "when this node recorded it"),
    Column("bytes", Kind.INT32, "of the canonical event"),
    Column("fingerprint", Kind.INT64, "the first 8 bytes of `digest`, big endian, signed"),
    Column("digest", Kind.DIGEST, "SHA-256 of the canonical event"),
    Column("payload", Kind.STRING, "as JSON; only where EVENTD_LAKE_PAYLOADS asks for it", null=True),
)

_DELIVERIES = (
    Column("group", Kind.WORD, "the EventGroup"),
    Column("peer", Kind.WORD, "to whom, by the peer's nodeName"),
    Column("position", Kind.INT64, "of the event in this node's log"),
    Column("seq", Kind.INT64, "of the event at this node"),
    Column("id", Kind.STRING, "of the event"),
    Column("source", Kind.WORD, "of the event"),
    Column("type", Kind.WORD, "of the event"),
    Column("attempts", Kind.INT32, "how often it was sent"),
    Column("outcome", Kind.WORD, "`delivered`, `expired`, `in_path` or `refused`"),
    Column("status", Kind.INT16, "of the last answer, as HTTP has it; 0: nothing was sent"),
    Column("error", Kind.WORD, "class of what went wrong: the reason of a refusal; empty: nothing"),
    Column("protocol", Kind.WORD, "`v1` or `v2`"),
    Column("key_id", Kind.WORD, "of the key that signed the request"),
    Column("batch_id", Kind.WORD, "of the batch it went in"),
    Column("repair", Kind.BOOL, "whether it was sent beside the ordinary course"),
    Column("bytes", Kind.INT32, "of the canonical event"),
    Column("event_at", Kind.TIME, "when it was observed, as its source says"),
    Column("recorded_at", Kind.TIME, "when this node recorded it"),
    Column("attempt_at", Kind.TIME, "when the batch was sent for the first time"),
    Column("done_at", Kind.TIME, "when the answer was settled here"),
    Column("peer_recorded_at", Kind.TIME, "when the peer recorded it, by the peer's clock and receipt", null=True),
    Column("receipt_digest", Kind.WORD, "of the receipt, as in `receipts`; empty: the peer signs none"),
    Column("fingerprint", Kind.INT64, "of the event, as in `events`"),
    Column("selector_version", Kind.INT32, "of the selection it was made by"),
)

_RECEIPTS = (
    Column("group", Kind.WORD, "the EventGroup"),
    Column("peer", Kind.WORD, "who signed, by its nodeName"),
    Column("batch_id", Kind.STRING, "of the batch"),
    Column("link_epoch", Kind.WORD, "the epoch its range is of"),
    Column("incarnation", Kind.INT64, "of the log that its range is of"),
    Column("after", Kind.INT64, "the batch covers the positions behind this one"),
    Column("upto", Kind.INT64, "up to this one"),
    Column("repair", Kind.BOOL, "whether it was sent beside the ordinary course, without a claim on the range"),
    Column("sent", Kind.INT32, "events in the batch"),
    Column("accepted", Kind.INT32, "of them the peer recorded", null=True),
    Column("duplicates", Kind.INT32, "of them the peer had", null=True),
    Column("refused", Kind.INT32, "of them the peer will not take", null=True),
    Column("peer_upto", Kind.INT64, "the peer's mark of the link after the batch", null=True),
    Column("selector_version", Kind.INT32, "of the selection it was made by"),
    Column("selection", Kind.WORD, "that selection, as JSON"),
    Column("attempts", Kind.INT32, "how often it was sent"),
    Column("sent_at", Kind.TIME, "when it was sent for the first time"),
    Column("acked_at", Kind.TIME, "when the answer was settled here"),
    Column("peer_recorded_at", Kind.TIME, "when the peer recorded it, as it signed", null=True),
    Column("status", Kind.INT16, "of the answer, as HTTP has it; 0: nothing was sent"),
    Column("protocol", Kind.WORD, "`v1` or `v2`"),
    Column("key_id", Kind.WORD, "of the key that signed the request"),
    Column("receipt_key_id", Kind.WORD, "of the key that signed the receipt", null=True),
    Column("receipt_alg", Kind.WORD, "how it was signed: `hmac-sha256` or `ed25519`", null=True),
    Column(
        "receipt_digest",
        Kind.WORD,
        "SHA-256 of what the peer answered and signed, in hex, the same at both ends; empty: it signs none",
    ),
    Column(
        "receipt",
        Kind.STRING,
        "as JSON its `body`, and the `headers` with its signature, enough to check it again; empty: there is none",
    ),
    Column("exceptions", Kind.STRING, "what the range passed over, as JSON: `[[position, reason], …]`"),
)

_INBOUND = (
    Column("group", Kind.WORD, "the EventGroup"),
    Column("peer", Kind.WORD, "who sent it"),
    Column("batch_id", Kind.STRING, "of the batch"),
    Column("link_epoch", Kind.WORD, "the sender's epoch its range is of"),
    Column("incarnation", Kind.INT64, "of the sender's log"),
    Column("after", Kind.INT64, "the batch covers the sender's positions behind this one"),
    Column("upto", Kind.INT64, "up to this one"),
    Column("repair", Kind.BOOL, "whether it was sent beside the ordinary course"),
    Column("accepted", Kind.INT32, "of its events were recorded here"),
    Column("duplicates", Kind.INT32, "of them were here"),
    Column("refused", Kind.INT32, "of them were not taken"),
    Column("key_id", Kind.WORD, "of the key that signed the request"),
    Column("body_digest", Kind.WORD, "Content-Digest of the batch, as it was sent"),
    Column("recorded_at", Kind.TIME, "when it was recorded"),
    Column("receipt", Kind.STRING, "what this node answered and signed, the body"),
    Column("receipt_digest", Kind.WORD, "SHA-256 of `receipt`, in hex"),
)

_GAPS = (
    Column("group", Kind.WORD, "the EventGroup"),
    Column("peer", Kind.WORD, "who told of it; empty: this node's own retention"),
    Column("gap_epoch", Kind.WORD, "the epoch its bounds are of"),
    Column("after", Kind.INT64, "lost are positions behind this one"),
    Column("upto", Kind.INT64, "up to this one"),
    Column("reason", Kind.WORD, "why they are lost"),
    Column("recorded_at", Kind.TIME, "when it was recorded"),
)

_REFUSALS = (
    Column("group", Kind.WORD, "the EventGroup"),
    Column("peer", Kind.WORD, "who it claimed to be; empty: it did not say, `?`: none of the peers"),
    Column("key_id", Kind.WORD, "of the key it claimed, if that is known; empty otherwise"),
    Column("reason", Kind.WORD, "why the request was refused"),
    Column("count", Kind.INT64, "how many requests since the row before it of the same kind"),
    Column("first_at", Kind.TIME, "the first of them"),
    Column("last_at", Kind.TIME, "the last of them"),
)

COLUMNS: Final[dict[Book, tuple[Column, ...]]] = {
    Book.EVENTS: (*_KEPT_BY, *_EVENTS),
    Book.DELIVERIES: (*_KEPT_BY, *_DELIVERIES),
    Book.RECEIPTS: (*_KEPT_BY, *_RECEIPTS),
    Book.INBOUND: (*_KEPT_BY, *_INBOUND),
    Book.GAPS: (*_KEPT_BY, *_GAPS),
    Book.REFUSALS: (*_KEPT_BY, *_REFUSALS),
}
"""The columns of each ledger, in order."""

OWN_TIME: Final[dict[Book, str]] = {
    Book.EVENTS: "recorded_at",
    Book.DELIVERIES: "done_at",
    Book.RECEIPTS: "acked_at",
    Book.INBOUND: "recorded_at",
    Book.GAPS: "recorded_at",
    Book.REFUSALS: "last_at",
}
"""The column with the time a row was created; it decides under which day a segment is filed."""

SLOTTED: Final = frozenset({Book.EVENTS, Book.DELIVERIES})
"""Ledgers whose manifests list the slots of their events."""


@cache
def arrow_schema(book: Book) -> pa.Schema:
    """Return the Arrow schema of a ledger. Raises MissingExtra."""
    arrow = pyarrow()
    types = {
        Kind.INT64: arrow.int64(),
        Kind.INT32: arrow.int32(),
        Kind.INT16: arrow.int16(),
        Kind.BOOL: arrow.bool_(),
        Kind.STRING: arrow.string(),
        Kind.WORD: arrow.dictionary(arrow.int32(), arrow.string()),
        Kind.TIME: arrow.timestamp("us", tz="UTC"),
        Kind.DIGEST: arrow.binary(32),
    }
    return arrow.schema([arrow.field(column.name, types[column.kind], column.null) for column in COLUMNS[book]])
