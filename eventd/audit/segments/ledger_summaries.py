"""Summarizes the segments of small ledgers (receipts, inbound, gaps, refusals), to collect the summaries in one place.

A summary has progress and selections of links, bounds of the clocks, use of keys, refusals and gaps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Final

import msgspec
import numpy as np

from eventd.audit.arrays.columns import NEVER, Columns, Mask, Numbers, Words
from eventd.audit.receipts.receipt_checks import ReceiptResults
from eventd.audit.segments.cells import HOUR
from eventd.audit.segments.link_progress import LinkProgress, link_progress
from eventd.audit.segments.tree_rows import HISTORY_COLUMNS, TreeRows, read_tree_rows
from eventd.lake.layout import LARGEST, MINUTE
from eventd.lake.losses import parse_loss
from eventd.lake.manifest import Int64, Number, Time
from eventd.lake.receivers import is_callback
from eventd.lake.schema import Ledger
from eventd.lake.segment_file import BadSegment
from federation.event import FIRST_TIME, LAST_TIME

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
GAP_COLUMNS: Final = ("group", "peer", "gap_epoch", "after", "upto", "reason", "recorded_at")
REFUSAL_COLUMNS: Final = ("group", "peer", "reason", "count", "first_at", "last_at")

Hour = Annotated[int, msgspec.Meta(ge=FIRST_TIME // HOUR, le=LAST_TIME // HOUR)]
"""An hour since 1970 that calendars have."""


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


def _receipts(table: Columns, limit: int) -> LedgerSummary:
    sent = table.numbers("status") != 0
    endpoint = table.words("peer").where(is_callback)
    counted = _counted(table.words("receipt_alg").at(sent & ~endpoint)) | {CALLBACK: int((sent & endpoint).sum())}
    return LedgerSummary(
        progress=list(link_progress(table, limit)),
        clocks=list(_clocks(table)),
        keys=list(_keys(table, sent)),
        algorithms={word: n for word, n in counted.items() if n},
    )


def _counted(words: Words) -> dict[str, int]:
    return dict(zip(words.values, np.bincount(words.codes, minlength=words.size).tolist(), strict=True))


def _clocks(table: Columns) -> Iterator[ClockBounds]:
    """Yield hourly bounds of each peer's clock: a peer records a batch between its sending and the answer."""
    recorded = table.numbers("peer_recorded_at")
    low, high = recorded - table.numbers("acked_at"), recorded - table.numbers("sent_at")
    hour = table.numbers("acked_at") // HOUR
    for (peer,), found in table.by("peer"):
        known = found[recorded[found] != NEVER]
        for one in np.unique(hour[known]):
            rows = known[hour[known] == one]
            yield ClockBounds(peer, int(one), int(low[rows].max()), int(high[rows].min()))


def _keys(table: Columns, sent: Mask) -> Iterator[KeyRequests]:
    attempts, first, last = (table.numbers(name) for name in ("attempts", "sent_at", "acked_at"))
    for (node, group, key_id, protocol), found in table.by("node", "group", "key_id", "protocol"):
        rows = found[sent[found]]
        if len(rows) and (key_id or protocol != CALLBACK):  # a callback need not sign its requests
            used = int(np.maximum(attempts[rows], 1).sum())
            yield KeyRequests(node, group, key_id, protocol, used, int(first[rows].min()), int(last[rows].max()))


def _inbound(table: Columns, limit: int) -> LedgerSummary:
    time = table.numbers("recorded_at")
    return LedgerSummary(
        keys=[
            KeyRequests(peer, group, key_id, "v2", len(rows), int(time[rows].min()), int(time[rows].max()))
            for (peer, group, key_id), rows in table.by("peer", "group", "key_id")
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
    for (sender, epoch), found in table.by("peer", "link_epoch"):
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
            for (group, peer, reason), rows in table.by("group", "peer", "reason")
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
