"""Summarizes the segments of small ledgers (receipts, inbound, gaps, refusals), to collect the summaries in one place.

A summary has progress and selections of links, bounds of the clocks, use of keys, refusals and gaps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
import numpy as np

from eventd.audit.arrays.columns import NEVER, Columns, Mask, Numbers, Words
from eventd.audit.arrays.row_hash import ODD
from eventd.audit.receipts.receipt_checks import ReceiptResults
from eventd.audit.segments.batch_cells import batch_cells
from eventd.audit.segments.cells import HOUR, Measure
from eventd.audit.segments.tree_rows import HISTORY_COLUMNS, TreeRows, read_tree_rows
from eventd.lake.layout import LARGEST, MINUTE
from eventd.lake.losses import parse_loss
from eventd.lake.manifest import Int64, Number, Time, Unreadable, decode_selection
from eventd.lake.receivers import is_callback
from eventd.lake.schema import Ledger
from eventd.lake.segment_file import BadSegment
from federation.digest import fingerprint
from federation.event import FIRST_TIME, LAST_TIME

if TYPE_CHECKING:
    import pyarrow as pa

RECEIPT_COLUMNS: Final = (
    *("number", "node", "group", "peer", "batch_id", "after", "upto", "repair", "selector_version", "selection"),
    *("attempts", "sent_at", "acked_at", "peer_recorded_at", "status", "protocol", "key_id", "receipt_alg"),
    *("receipt_digest", "sent", "accepted", "duplicates"),
)
INBOUND_COLUMNS: Final = (
    *("node", "group", "peer", "batch_id", "link_epoch", "after", "upto", "repair", "accepted", "duplicates"),
    *("key_id", "recorded_at", "receipt_digest"),
)
CALLBACK: Final = "callback"
"""The protocol of requests to callbacks, which also stands for a signature algorithm of the answers: there is none."""
MOST_TEXTS: Final = 4
"""Maximum number of texts of one version of a selection that are kept: two of them show that it was edited."""
GAP_COLUMNS: Final = ("group", "peer", "gap_epoch", "after", "upto", "reason", "recorded_at")
REFUSAL_COLUMNS: Final = ("group", "peer", "reason", "count", "first_at", "last_at")

Hour = Annotated[int, msgspec.Meta(ge=FIRST_TIME // HOUR, le=LAST_TIME // HOUR)]
"""An hour since 1970 that calendars have."""


class LinkProgress(msgspec.Struct, array_like=True):
    """The progress of a link, from receipts of batches that no repair sent: they cover positions in (after, upto].

    Both are -1 without such receipts. `versions`: (last position, selection version) of each run of batches;
    `selections`: by version, as JSON, at most `MOST_TEXTS` different ones: of a genuine version one, or none if it is
    not known. `first_used`: by version, when the first batch was acknowledged (microseconds). `repaired`: by version,
    the last position of repairs. `acknowledged`: (position, time in microseconds), one for each minute, in order: the
    peer had acknowledged all up to the position.
    """

    group: str
    peer: str
    after: Number
    upto: Number
    versions: list[tuple[Number, Number]]
    selections: dict[Number, tuple[str, ...]]
    first_used: dict[Number, Time]
    repaired: dict[Number, Number]
    acknowledged: list[tuple[Number, Time]]


class ClockBounds(msgspec.Struct, array_like=True):
    """How far a peer's clock was ahead of the node's: `low` to `high` microseconds, in one hour by the node's clock."""

    peer: str
    hour: Hour
    low: Int64
    high: Int64


class KeyRequests(msgspec.Struct, array_like=True):
    """How many requests `node` signed with a key, as a ledger shows, and the first and last time (microseconds)."""

    node: str
    group: str
    key_id: str
    protocol: str
    requests: Int64
    first: Time
    last: Time


class DeclaredGap(msgspec.Struct, array_like=True):
    """A row of the ledger `gaps`: the range is (after, upto], the time in microseconds."""

    group: str
    peer: str
    gap_epoch: str
    after: Number
    upto: Number
    reason: str
    recorded_at: Time


class RefusalCount(msgspec.Struct, array_like=True):
    """How many requests that named a peer the node refused for one reason, and when first and last (microseconds)."""

    group: str
    peer: str
    reason: str
    count: Int64
    first: Time
    last: Time


class LinkReach(msgspec.Struct, array_like=True):
    """Up to which positions of a sender's log batches had reached a node, from rows of `inbound` that no repair sent.

    `marks`: (position, time in microseconds), one for each minute: the highest position of the sender's log in this
    epoch that a batch covered, and when the node recorded the last batch of that minute, by its clock.
    """

    sender: str
    epoch: str
    marks: list[tuple[Number, Time]]


class StoredBatches(msgspec.Struct, array_like=True):
    """Batches of one minute with events that the node recorded: the first and last time (microseconds), how many."""

    first: Time
    last: Time
    events: Int64


class LedgerSummary(msgspec.Struct):
    """The summary of one segment of a small ledger.

    `algorithms`: answers by signature algorithm ('': none); those of endpoints of callbacks, which sign none, under
    `CALLBACK`.
    """

    progress: list[LinkProgress] = msgspec.field(default_factory=list, name="passed")
    clocks: list[ClockBounds] = []
    keys: list[KeyRequests] = []
    algorithms: dict[str, Number] = {}
    gaps: list[DeclaredGap] = []
    refused: list[RefusalCount] = []
    receipts: ReceiptResults = msgspec.field(default_factory=ReceiptResults)
    reached: list[LinkReach] = []
    stored: list[StoredBatches] = []
    trees: TreeRows | None = None


def summarize(book: Ledger, table: Columns, *, limit: int) -> LedgerSummary:
    """Return the summary of a segment. Rows of `receipts` with a number above `limit` are no progress of links.

    Raises BadSegment for a selection that cannot be read.
    """
    return _READERS[book](table, limit)


def columns_of(book: Ledger) -> tuple[str, ...]:
    """Return the names of a small ledger's columns that the audit reads."""
    return _COLUMNS[book]


def hash_of(text: str) -> int:
    """Return a signed 64-bit hash of a text."""
    return fingerprint(text)


def sum_batches(segment: str, book: Ledger, table: Columns) -> pa.Table:
    """Return a cell for each batch with a receipt, from `receipts` of its sender or `inbound` of its receiver.

    It counts the events that the receiver recorded or had already, and has the epoch of the node that keeps the row.
    """
    of_sender = book is Ledger.RECEIPTS
    rows = np.flatnonzero(table.words("receipt_digest").where(bool))
    new = table.numbers("accepted")[rows]
    return batch_cells(
        segment,
        Measure.RECEIPT if of_sender else Measure.INBOUND,
        table,
        rows,
        ids=batch_hashes(table)[rows],
        events=new + table.numbers("duplicates")[rows],
        times=("sent_at", "acked_at") if of_sender else ("recorded_at", "recorded_at"),
        digests=receipt_hashes(table)[rows],
        content=new,
    )


def batch_hashes(table: Columns) -> Numbers:
    """Return a hash of the id of each row's batch."""
    return table.computed("batch hashes", b"", lambda: _hashes_of(table.words("batch_id"), hash_of))


def receipt_hashes(table: Columns) -> Numbers:
    """Return a hash of the receipt and the range of each batch in rows of `receipts` or `inbound`.

    Both nodes record both, but the receiver records no range of a repair.
    """
    ranges = table.numbers("after") * ODD + table.numbers("upto") * ODD * ODD
    return digest_hashes(table) ^ np.where(table.booleans("repair"), 0, ranges)


def digest_hashes(table: Columns) -> Numbers:
    """Return a hash of the digest of each row's receipt."""
    return table.computed("digest hashes", b"", lambda: _hashes_of(table.words("receipt_digest"), _first_bits))


def _hashes_of(words: Words, hashed: Callable[[str], int]) -> Numbers:
    found: Numbers = np.array([hashed(value) for value in words.values], np.int64)[words.codes]
    return found


def _first_bits(digest: str) -> int:
    """Return the first 64 bits of a digest in hex, as a signed number; a hash of a text that is not hex."""
    try:
        return int.from_bytes(bytes.fromhex(digest[:16]), "big", signed=True)
    except ValueError:
        return hash_of(digest)


def _receipts(table: Columns, limit: int) -> LedgerSummary:
    sent = table.numbers("status") != 0
    endpoint = table.words("peer").where(is_callback)
    counted = _counted(table.words("receipt_alg").at(sent & ~endpoint)) | {CALLBACK: int((sent & endpoint).sum())}
    return LedgerSummary(
        progress=list(_progress(table, limit)),
        clocks=list(_clocks(table)),
        keys=list(_keys(table, sent)),
        algorithms={word: n for word, n in counted.items() if n},
    )


def _counted(words: Words) -> dict[str, int]:
    return dict(zip(words.values, np.bincount(words.codes, minlength=words.size).tolist(), strict=True))


def _by(table: Columns, *names: str) -> Iterator[tuple[tuple[str, ...], Numbers]]:
    """Yield each combination of words that occurs in these columns, with the indexes of its rows."""
    words = [table.words(name) for name in names]
    code = np.zeros(table.rows, np.int64)
    for column in words:
        code = code * column.size + column.codes
    for one in np.unique(code):
        rows = np.flatnonzero(code == one)
        yield tuple(column.values[column.codes[rows[0]]] for column in words), rows


def _progress(table: Columns, limit: int) -> Iterator[LinkProgress]:
    number, after, upto = (table.numbers(name) for name in ("number", "after", "upto"))
    version, repair = table.numbers("selector_version"), table.booleans("repair")
    selection, acked = table.words("selection"), table.numbers("acked_at")
    for (group, peer), found in _by(table, "group", "peer"):
        rows = found[number[found] <= limit]
        ordinary = rows[~repair[rows]]
        ordinary = ordinary[np.argsort(upto[ordinary], kind="stable")]
        again = rows[repair[rows]]
        by_version = {int(one): ordinary[version[ordinary] == one] for one in np.unique(version[ordinary])}
        yield LinkProgress(
            group,
            peer,
            int(after[ordinary].min()) if len(ordinary) else -1,
            int(upto[ordinary].max()) if len(ordinary) else -1,
            _changes(version[ordinary], upto[ordinary]),
            {one: _texts(selection.at(mine)) for one, mine in by_version.items()},
            {one: int(acked[mine].min()) for one, mine in by_version.items()},
            {int(one): int(upto[again][version[again] == one].max()) for one in np.unique(version[again])},
            _acknowledged(upto[ordinary], acked[ordinary]),
        )


def _texts(selections: Words) -> tuple[str, ...]:
    """Return some of the different texts, sorted; an empty one stands for an unknown selection.

    Raises BadSegment if one cannot be read.
    """
    found = sorted({selections.values[code] for code in np.unique(selections.codes)} - {""})
    try:
        for text in found:
            decode_selection(text)
    except Unreadable as error:
        raise BadSegment(f"its rows have a selection that {error}") from None
    return tuple(found[:MOST_TEXTS])


def _changes(version: Numbers, upto: Numbers) -> list[tuple[int, int]]:
    """Return (last position, version) of each run of batches with one version, in order."""
    if not len(version):
        return []
    ends = np.append(np.flatnonzero(version[1:] != version[:-1]), len(version) - 1)
    return [(int(upto[end]), int(version[end])) for end in ends]


def _acknowledged(upto: Numbers, acked: Numbers) -> list[tuple[int, int]]:
    """Return, for each minute in order, the last acknowledged position and the time of the last acknowledgement."""
    if not len(upto):
        return []
    minute = acked // MINUTE
    starts = np.concatenate(([0], np.flatnonzero(minute[1:] != minute[:-1]) + 1))
    ends = np.append(starts[1:], len(upto)) - 1
    return list(zip(upto[ends].tolist(), np.maximum.reduceat(acked, starts).tolist(), strict=True))


def _clocks(table: Columns) -> Iterator[ClockBounds]:
    """Yield hourly bounds of each peer's clock: a peer records a batch between its sending and the answer."""
    recorded = table.numbers("peer_recorded_at")
    low, high = recorded - table.numbers("acked_at"), recorded - table.numbers("sent_at")
    hour = table.numbers("acked_at") // HOUR
    for (peer,), found in _by(table, "peer"):
        known = found[recorded[found] != NEVER]
        for one in np.unique(hour[known]):
            rows = known[hour[known] == one]
            yield ClockBounds(peer, int(one), int(low[rows].max()), int(high[rows].min()))


def _keys(table: Columns, sent: Mask) -> Iterator[KeyRequests]:
    attempts, first, last = (table.numbers(name) for name in ("attempts", "sent_at", "acked_at"))
    for (node, group, key_id, protocol), found in _by(table, "node", "group", "key_id", "protocol"):
        rows = found[sent[found]]
        if len(rows) and (key_id or protocol != CALLBACK):  # a callback need not sign its requests
            used = int(np.maximum(attempts[rows], 1).sum())
            yield KeyRequests(node, group, key_id, protocol, used, int(first[rows].min()), int(last[rows].max()))


def _inbound(table: Columns, limit: int) -> LedgerSummary:
    time = table.numbers("recorded_at")
    return LedgerSummary(
        keys=[
            KeyRequests(peer, group, key_id, "v2", len(rows), int(time[rows].min()), int(time[rows].max()))
            for (peer, group, key_id), rows in _by(table, "peer", "group", "key_id")
        ],
        reached=list(_reached(table)),
        stored=_stored(table),
    )


def _stored(table: Columns) -> list[StoredBatches]:
    time, events = table.numbers("recorded_at"), table.numbers("accepted")
    rows = np.flatnonzero(events > 0)
    rows = rows[np.argsort(time[rows], kind="stable")]
    if not len(rows):
        return []
    time, starts = time[rows], _minutes(time[rows])
    firsts, lasts = time[starts], np.maximum.reduceat(time, starts)
    counts = np.add.reduceat(events[rows], starts)
    return [StoredBatches(*one) for one in zip(firsts.tolist(), lasts.tolist(), counts.tolist(), strict=True)]


def _minutes(times: Numbers) -> Numbers:
    """Return the index of the first of these ascending times in each minute."""
    minute = times // MINUTE
    return np.flatnonzero(np.diff(minute, prepend=minute[0] - 1))


def _reached(table: Columns) -> Iterator[LinkReach]:
    upto, time, repair = table.numbers("upto"), table.numbers("recorded_at"), table.booleans("repair")
    for (sender, epoch), found in _by(table, "peer", "link_epoch"):
        rows = found[~repair[found]]
        rows = rows[np.argsort(time[rows], kind="stable")]
        if len(rows):
            starts = _minutes(time[rows])
            highest, last = (np.maximum.reduceat(values[rows], starts).tolist() for values in (upto, time))
            yield LinkReach(sender, epoch, list(zip(highest, last, strict=True)))


def _gaps(table: Columns, limit: int) -> LedgerSummary:
    group, peer, epoch, reason = (table.words(name) for name in ("group", "peer", "gap_epoch", "reason"))
    own = reason.at(peer.where("".__eq__))  # a sender reports gaps for reasons of its own
    unknown = next((one for one, rows in _counted(own).items() if rows and parse_loss(one) is None), None)
    if unknown is not None:
        raise BadSegment(f"its rows declare a loss with the reason {unknown!r}, which no node has")
    after, upto, at = (table.numbers(name) for name in ("after", "upto", "recorded_at"))
    return LedgerSummary(
        gaps=[
            DeclaredGap(
                group.values[group.codes[row]],
                peer.values[peer.codes[row]],
                epoch.values[epoch.codes[row]],
                int(after[row]),
                int(upto[row]),
                reason.values[reason.codes[row]],
                int(at[row]),
            )
            for row in range(table.rows)
        ]
    )


def _refusals(table: Columns, limit: int) -> LedgerSummary:
    count, first, last = (table.numbers(name) for name in ("count", "first_at", "last_at"))
    return LedgerSummary(
        refused=[
            RefusalCount(group, peer, reason, _sum(count[rows]), int(first[rows].min()), int(last[rows].max()))
            for (group, peer, reason), rows in _by(table, "group", "peer", "reason")
        ]
    )


def _sum(counts: Numbers) -> int:
    """Return the sum of counts, at most the largest number of a lake: their sum may need more than 64 bits."""
    return min(int(counts.astype(object).sum()), LARGEST)


_READERS: Final[dict[Ledger, Callable[[Columns, int], LedgerSummary]]] = {
    Ledger.RECEIPTS: _receipts,
    Ledger.INBOUND: _inbound,
    Ledger.GAPS: _gaps,
    Ledger.REFUSALS: _refusals,
    Ledger.HISTORY: lambda table, limit: LedgerSummary(trees=read_tree_rows(table)),
}
_COLUMNS: Final = {
    Ledger.RECEIPTS: RECEIPT_COLUMNS,
    Ledger.INBOUND: INBOUND_COLUMNS,
    Ledger.GAPS: GAP_COLUMNS,
    Ledger.REFUSALS: REFUSAL_COLUMNS,
    Ledger.HISTORY: HISTORY_COLUMNS,
}
