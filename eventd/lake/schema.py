"""The columns of every ledger: Arrow schemas and the tables of `docs/reference/lake.md` are derived from them."""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from eventd.lake.extra import pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA_VERSION: Final = 1
"""The version of all files of a lake. Readers refuse any other number."""


class Ledger(StrEnum):
    """The names of the ledgers: the append-only tables of what a node recorded.

    Fields, options, parameters and paths with the name `book` or `books` are about ledgers.
    """

    EVENTS = "events"
    DELIVERIES = "deliveries"
    RECEIPTS = "receipts"
    INBOUND = "inbound"
    GAPS = "gaps"
    REFUSALS = "refusals"
    HISTORY = "history"


class ColumnType(StrEnum):
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
    type: ColumnType
    text: str
    null: bool = False


_KEPT_BY = (
    Column(
        "number",
        ColumnType.INT64,
        "number in the ledger, rising in commit order; the deliveries of one batch share a number",
    ),
    Column("node", ColumnType.WORD, "node that keeps the ledger, by its nodeName in the group"),
    Column("epoch", ColumnType.WORD, "epoch of that node's log, in which the number is valid"),
)

_EVENTS = (
    Column("group", ColumnType.WORD, "the EventGroup"),
    Column("position", ColumnType.INT64, "position in this node's log, the same as `number`"),
    Column("seq", ColumnType.INT64, "sequence number in the group at this node, without gaps"),
    Column("id", ColumnType.STRING, "id of the event"),
    Column("source", ColumnType.WORD, "the node that emitted it"),
    Column("type", ColumnType.WORD, "type of the event"),
    Column("subject", ColumnType.STRING, "subject of the event"),
    Column("own", ColumnType.BOOL, "whether the event entered the federation at this node"),
    Column("path", ColumnType.WORD, "nodes that the event came through, as on the wire; empty for own events"),
    Column("event_at", ColumnType.TIME, "time the event was observed, as its source reports it"),
    Column("expires_at", ColumnType.TIME, "expiry time; null: never", null=True),
    Column("recorded_at", ColumnType.TIME, "time this node recorded it"),
    Column("bytes", ColumnType.INT32, "size in bytes of the canonical event"),
    Column("fingerprint", ColumnType.INT64, "the first 8 bytes of `digest`, big endian, signed"),
    Column("digest", ColumnType.DIGEST, "SHA-256 of the canonical event"),
    Column(
        "payload",
        ColumnType.STRING,
        "payload of the event as JSON; null unless the node runs with EVENTD_LAKE_PAYLOADS on",
        null=True,
    ),
    Column(
        "dedupe_key",
        ColumnType.STRING,
        "dedupe key of the event, with the payload; null: the same as `id`, or no payload; empty: not recorded",
        null=True,
    ),
    Column(
        "tree",
        ColumnType.WORD,
        "tree in which the event has a leaf, by its id; of an event of others as its sender states",
        null=True,
    ),
    Column("leaf", ColumnType.INT64, "index of that leaf", null=True),
)

_DELIVERIES = (
    Column("group", ColumnType.WORD, "the EventGroup"),
    Column("peer", ColumnType.WORD, "receiving peer, by its nodeName; `NODE/callback:NAME`: a [callback](#callbacks)"),
    Column("position", ColumnType.INT64, "position of the event in this node's log"),
    Column("seq", ColumnType.INT64, "sequence number of the event at this node"),
    Column("id", ColumnType.STRING, "id of the event"),
    Column("source", ColumnType.WORD, "source node of the event"),
    Column("type", ColumnType.WORD, "type of the event"),
    Column("attempts", ColumnType.INT32, "number of attempts"),
    Column("outcome", ColumnType.WORD, "`delivered`, `expired`, `in_path` or `refused`"),
    Column("status", ColumnType.INT16, "HTTP status of the last answer; 0: the event was not sent"),
    Column("error", ColumnType.WORD, "reason of the refusal; empty for another outcome"),
    Column("protocol", ColumnType.WORD, "`v1`, `v2` or `callback`"),
    Column(
        "key_id",
        ColumnType.WORD,
        "id of the key with which this node signed the batch; a callback may have several",
    ),
    Column("batch_id", ColumnType.WORD, "id of the batch that carried it or left it out"),
    Column("repair", ColumnType.BOOL, "whether a repair, or a callback's resend, sent the batch"),
    Column("bytes", ColumnType.INT32, "size in bytes of the canonical event"),
    Column("event_at", ColumnType.TIME, "time the event was observed, as its source reports it"),
    Column("recorded_at", ColumnType.TIME, "time this node recorded it"),
    Column("attempt_at", ColumnType.TIME, "time the last attempt to send the batch began"),
    Column("done_at", ColumnType.TIME, "time the answer was committed at this node"),
    Column(
        "peer_recorded_at",
        ColumnType.TIME,
        "time the peer recorded the batch, by the peer's clock, from the receipt",
        null=True,
    ),
    Column("receipt_digest", ColumnType.WORD, "digest of the receipt, as in `receipts`; empty: none"),
    Column("fingerprint", ColumnType.INT64, "fingerprint of the event, as in `events`"),
    Column("selector_version", ColumnType.INT32, "version of the selection that the batch was made with"),
)

_RECEIPTS = (
    Column("group", ColumnType.WORD, "the EventGroup"),
    Column("peer", ColumnType.WORD, "answering peer, by its nodeName; `NODE/callback:NAME`: a [callback](#callbacks)"),
    Column("batch_id", ColumnType.STRING, "id of the batch"),
    Column("link_epoch", ColumnType.WORD, "epoch of this node's log in which `after` and `upto` are positions"),
    Column("incarnation", ColumnType.INT64, "incarnation of that log"),
    Column("after", ColumnType.INT64, "position before the first that the batch covers"),
    Column("upto", ColumnType.INT64, "last position that the batch covers"),
    Column(
        "repair",
        ColumnType.BOOL,
        "whether a repair, or a callback's resend, sent the batch, which then proves nothing about other events of the"
        " range",
    ),
    Column("sent", ColumnType.INT32, "events sent; without a receipt, only the delivered ones"),
    Column("accepted", ColumnType.INT32, "events that the peer recorded", null=True),
    Column("duplicates", ColumnType.INT32, "events that the peer had already", null=True),
    Column("refused", ColumnType.INT32, "events that the peer refused", null=True),
    Column("peer_upto", ColumnType.INT64, "the peer's mark of the link after the batch", null=True),
    Column("selector_version", ColumnType.INT32, "version of the selection that the batch was made with"),
    Column("selection", ColumnType.WORD, "that selection, as JSON"),
    Column("attempts", ColumnType.INT32, "number of attempts"),
    Column("sent_at", ColumnType.TIME, "time the last attempt to send it began"),
    Column("acked_at", ColumnType.TIME, "time the answer was committed at this node"),
    Column(
        "peer_recorded_at",
        ColumnType.TIME,
        "time the peer recorded the batch, by the peer's clock, from the receipt",
        null=True,
    ),
    Column("status", ColumnType.INT16, "HTTP status of the answer; 0: nothing was sent"),
    Column("protocol", ColumnType.WORD, "`v1`, `v2` or `callback`; `gap`: the row stands for evicted events"),
    Column(
        "key_id",
        ColumnType.WORD,
        "id of the key with which this node signed the batch; a callback may have several",
    ),
    Column("receipt_key_id", ColumnType.WORD, "id of the key that signed the receipt", null=True),
    Column("receipt_alg", ColumnType.WORD, "signature algorithm: `hmac-sha256` or `ed25519`", null=True),
    Column(
        "receipt_digest",
        ColumnType.WORD,
        "SHA-256 of the signed answer in hex, the same at both ends; empty: no signed answer",
    ),
    Column(
        "receipt",
        ColumnType.STRING,
        "`body` of the signed answer and `headers` with its signature, as JSON, enough to verify it again; of a"
        " callback its [answer](#callbacks); empty: none",
    ),
    Column(
        "exceptions",
        ColumnType.STRING,
        "records of the range that were not delivered, as JSON: `[[position, reason], …]`",
    ),
)

_INBOUND = (
    Column("group", ColumnType.WORD, "the EventGroup"),
    Column("peer", ColumnType.WORD, "sending node"),
    Column("batch_id", ColumnType.STRING, "id of the batch"),
    Column("link_epoch", ColumnType.WORD, "epoch of the sender's log in which `after` and `upto` are positions"),
    Column("incarnation", ColumnType.INT64, "incarnation of the sender's log"),
    Column("after", ColumnType.INT64, "sender's position before the first that the batch covers; 0 for a repair"),
    Column("upto", ColumnType.INT64, "sender's last position that the batch covers; 0 for a repair"),
    Column("repair", ColumnType.BOOL, "whether a repair sent the batch"),
    Column("accepted", ColumnType.INT32, "events that this node recorded"),
    Column("duplicates", ColumnType.INT32, "events that this node had already"),
    Column("refused", ColumnType.INT32, "events that this node refused"),
    Column("key_id", ColumnType.WORD, "id of the key with which the sender signed the batch"),
    Column("body_digest", ColumnType.WORD, "Content-Digest of the batch, as it was sent"),
    Column("recorded_at", ColumnType.TIME, "time this node recorded the batch"),
    Column("receipt", ColumnType.STRING, "body of the answer that this node signed"),
    Column("receipt_digest", ColumnType.WORD, "SHA-256 of `receipt`, in hex"),
)

_GAPS = (
    Column("group", ColumnType.WORD, "the EventGroup"),
    Column(
        "peer",
        ColumnType.WORD,
        "sender that reported the gap; for `deliveries_lost` the receiving peer or callback; empty: none",
    ),
    Column("gap_epoch", ColumnType.WORD, "epoch in which `after` and `upto` are valid"),
    Column(
        "after",
        ColumnType.INT64,
        "position before the range of the loss; a row number if `reason` ends with `_forgotten`",
    ),
    Column("upto", ColumnType.INT64, "last position or row number of that range, not all of which need be lost"),
    Column("reason", ColumnType.WORD, "reason of the loss"),
    Column("recorded_at", ColumnType.TIME, "time this node recorded the gap"),
)

_REFUSALS = (
    Column("group", ColumnType.WORD, "the EventGroup"),
    Column("peer", ColumnType.WORD, "node that the request named; empty: none, `?`: not a declared peer"),
    Column("key_id", ColumnType.WORD, "id of the key that the request named, if that key is known"),
    Column("reason", ColumnType.WORD, "reason of the refusal"),
    Column(
        "count",
        ColumnType.INT64,
        "number of requests, or of events in batches, since the previous row of the same kind",
    ),
    Column("first_at", ColumnType.TIME, "time of the first of these"),
    Column("last_at", ColumnType.TIME, "time of the last of these"),
)

_HISTORY = (
    Column("group", ColumnType.WORD, "the EventGroup"),
    Column("kind", ColumnType.WORD, "`opening`, `hashes`, `checkpoint`, or `witnessed` of a tree of another node"),
    Column("tree", ColumnType.WORD, "id of the tree"),
    Column("level", ColumnType.INT16, "of `hashes`: their level in the tree, as that of tiles", null=True),
    Column("first", ColumnType.INT64, "of `hashes`: index of the first one at its level", null=True),
    Column("size", ColumnType.INT64, "of a `checkpoint`, or a `witnessed` one: its size", null=True),
    Column(
        "position",
        ColumnType.INT64,
        "of a `checkpoint`: position of the last record that it covers; of an `opening`: of the first one with a leaf",
        null=True,
    ),
    Column(
        "content",
        ColumnType.STRING,
        "the `hashes`, one after the other, in base64; of other kinds the signed note",
    ),
    Column(
        "recorded_at",
        ColumnType.TIME,
        "time the tree was opened, or the checkpoint signed; of a `witnessed` one, the time this node cosigned it",
    ),
)

COLUMNS: Final[dict[Ledger, tuple[Column, ...]]] = {
    Ledger.EVENTS: (*_KEPT_BY, *_EVENTS),
    Ledger.DELIVERIES: (*_KEPT_BY, *_DELIVERIES),
    Ledger.RECEIPTS: (*_KEPT_BY, *_RECEIPTS),
    Ledger.INBOUND: (*_KEPT_BY, *_INBOUND),
    Ledger.GAPS: (*_KEPT_BY, *_GAPS),
    Ledger.REFUSALS: (*_KEPT_BY, *_REFUSALS),
    Ledger.HISTORY: (*_KEPT_BY, *_HISTORY),
}
"""The columns of each ledger, in order."""

OWN_TIME: Final[dict[Ledger, str]] = {
    Ledger.EVENTS: "recorded_at",
    Ledger.DELIVERIES: "done_at",
    Ledger.RECEIPTS: "acked_at",
    Ledger.INBOUND: "recorded_at",
    Ledger.GAPS: "recorded_at",
    Ledger.REFUSALS: "last_at",
    Ledger.HISTORY: "recorded_at",
}
"""The column that gives a row of each ledger its time: when it was recorded or acknowledged, or the time of the last
refused request that it counts. A segment is filed under the day of its first row.
"""

SLOTTED: Final = frozenset({Ledger.EVENTS, Ledger.DELIVERIES})
"""Ledgers whose manifests give the first and last slot of their events."""


DEDUPE_KEY: Final = "dedupe_key"
"""A column of `events` that segments of an earlier version lack: readers fill it with empty texts."""
LEAVES: Final = ("tree", "leaf")
"""The last columns of `events`, which only segments with leaves have: so others are what they were before there were
trees, and earlier versions read them."""
LATER: Final = frozenset({Ledger.HISTORY})
"""Ledgers that earlier versions do not know. Their numbers are in fields of their own in the states of nodes, because
earlier versions would not read a state with them."""


@cache
def arrow_types() -> dict[ColumnType, pa.DataType]:
    """Return the Arrow types of columns. Raises MissingExtra."""
    arrow = pyarrow()
    return {
        ColumnType.INT64: arrow.int64(),
        ColumnType.INT32: arrow.int32(),
        ColumnType.INT16: arrow.int16(),
        ColumnType.BOOL: arrow.bool_(),
        ColumnType.STRING: arrow.string(),
        ColumnType.WORD: arrow.dictionary(arrow.int32(), arrow.string()),
        ColumnType.TIME: arrow.timestamp("us", tz="UTC"),
        ColumnType.DIGEST: arrow.binary(32),
    }


@cache
def arrow_schema(book: Ledger) -> pa.Schema:
    """Return the Arrow schema of a ledger. Raises MissingExtra."""
    arrow, types = pyarrow(), arrow_types()
    return arrow.schema([arrow.field(column.name, types[column.type], column.null) for column in COLUMNS[book]])


@cache
def segment_schema(book: Ledger, *, leaves: bool) -> pa.Schema:
    """Return the Arrow schema of a segment's file; `leaves`: whether rows of `events` have any. Raises MissingExtra."""
    schema = arrow_schema(book)
    if book is Ledger.EVENTS and not leaves:
        return pyarrow().schema([field for field in schema if field.name not in LEAVES])
    return schema
