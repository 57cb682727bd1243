"""Compares the receipts that senders keep with the ledgers of the peers that gave them, and judges those that differ.

A peer gives one receipt for a batch, as often as the batch is sent, and its sender stores it once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from eventd.audit.arrays.columns import Columns, Mask, grouped
from eventd.audit.coverage.coverage import Coverage
from eventd.audit.receipts.receipt_checks import RECEIPT_TEXTS, verified_algorithms
from eventd.audit.receipts.receipt_terms import ReceiptTerms
from eventd.audit.report.findings import (
    NO_BATCH,
    NO_INBOUND,
    OTHER_RECEIPT,
    REPEATED_RECEIPT,
    SHARED_KEY,
    TWO_RECEIPTS,
    UNKEPT_BATCH,
    Discrepancy,
    Evidence,
    Kind,
)
from eventd.audit.segments.batch_cells import batch_times
from eventd.audit.segments.batch_hashes import hash_of, receipt_hashes
from eventd.audit.segments.cells import Measure
from eventd.audit.segments.row_marks import PAIR
from eventd.audit.verdicts.ledger_rows import LedgerRows
from eventd.lake.schema import OWN_TIME, Ledger
from eventd.lake.writer import Segment
from eventd.runtime.clock import SECOND
from federation.keys import Algorithm

if TYPE_CHECKING:
    import pyarrow as pa

BATCH: Final = (*PAIR, "batch")
RECEIPT: Final = (*BATCH, "receipt")
_FLAGS: Final = ("lacking", "other", "several", "repeated")
_COLUMNS: Final = (*RECEIPT, "first", "since", "last", "n", "new", "requested", *_FLAGS)


def questioned_receipts(cells: pa.Table, hours: tuple[int, int]) -> pa.Table:
    """Return the receipts of senders that the ledger of the peer does not confirm, or that are not the only ones.

    `cells` are those of RECEIPT and INBOUND. A row for each batch and receipt: `batch` is a hash of the batch's id,
    `receipt` one of its digest and range, `source` its sender, which first sent it at `first` and recorded its
    acknowledgement between `since` and `last` (microseconds). `n`: how many events the peer has recorded or had, by the
    receipt; `new`: how many of these were new to it.

    `requested`: whether the sender recorded it within `hours` [first, last). The time of the peer's row does not
    matter: it is by another clock and, if the first answer was lost, long before.

    The flags: the peer's ledger lacks the batch (`lacking`), or has another receipt of it (`other`); the sender has
    `several` receipts of it that differ, or this one more than once in one epoch (`repeated`; after a restore the same
    batch is in the ledgers of both epochs).
    """
    import pyarrow as pa

    table = Columns(cells)
    ours: Mask = table.numbers("what") == Measure.RECEIPT
    time = table.numbers("time")
    requested = (hours[0] <= time) & (time < hours[1])
    named = cells.rename_columns({"total": "batch", "high": "receipt", "low": "first", "content": "new"})
    last = batch_times(table)
    for name, values in (("since", last - SECOND), ("last", last), ("requested", requested.astype(np.int64))):
        named = named.append_column(name, pa.array(values))
    suspects = named.join(_suspects(named, ours), keys=[*BATCH], join_type="left semi")
    of_sender: Mask = Columns(suspects).numbers("what") == Measure.RECEIPT
    given = _with(grouped(suspects.filter(~of_sender), RECEIPT, []), "given")
    known = _with(grouped(given, BATCH, []), "known")
    kept = _with(suspects.filter(of_sender), "rows")
    bounds = [("first", "min"), ("since", "min"), ("last", "max"), ("n", "max"), ("new", "max"), ("requested", "max")]
    by_epoch = grouped(kept, (*RECEIPT, "type"), [*bounds, ("rows", "sum")])
    each = _with(grouped(by_epoch, RECEIPT, [*bounds, ("rows", "max")]), "receipts")
    each = each.join(given, keys=[*RECEIPT], join_type="left outer").join(known, keys=[*BATCH], join_type="left outer")
    for name in ("given", "known"):
        each = each.set_column(each.schema.get_field_index(name), name, each[name].fill_null(0))
    counts = grouped(each, BATCH, [("receipts", "sum"), ("given", "sum")])
    counts = counts.rename_columns([*BATCH, "of_batch", "confirmed"])
    return _flagged(each.join(counts, keys=[*BATCH], join_type="inner"))


def _with(table: pa.Table, name: str) -> pa.Table:
    """Return the table with a column of ones, to be counted."""
    import pyarrow as pa

    return table.append_column(name, pa.array(np.ones(table.num_rows, np.int64)))


def _suspects(named: pa.Table, ours: Mask) -> pa.Table:
    """Return the batches whose receipts in `receipts` and `inbound` do not match one to one.

    This is a first selection, made in one pass: it has few batches of a healthy lake.
    """
    import pyarrow as pa

    receipt = Columns(named).numbers("receipt")
    for name, rows in (("ours", ours), ("theirs", ~ours)):
        for bound in ("low", "high"):
            named = named.append_column(f"{name}_{bound}", pa.array(receipt, mask=~rows))
    named = named.append_column("rows", pa.array(ours.astype(np.int64)))
    bounds = [(f"{name}_{bound}", function) for name in ("ours", "theirs") for bound, function in _BOUNDS]
    found = grouped(named, BATCH, [*bounds, ("rows", "sum")])
    table = Columns(found)
    low, high, other_low, other_high = (table.numbers(name) for name, _ in bounds)
    number = table.numbers("rows")
    even = (low == high) & (other_low == other_high) & (low == other_low) & (number == 1)
    return found.filter((number > 0) & ~even).select([*BATCH])


_BOUNDS: Final = (("low", "min"), ("high", "max"))


def _flagged(each: pa.Table) -> pa.Table:
    import pyarrow as pa

    table = Columns(each)
    given, known = table.numbers("given") > 0, table.numbers("known") > 0
    number, confirmed = table.numbers("of_batch"), table.numbers("confirmed")
    flags = {
        "lacking": ~known,
        "other": known & ~given,
        # Of receipts that differ, those that the peer does not have are in question; all, if it has all or none.
        "several": (number > 1) & (~given | (confirmed == number)),
        "repeated": table.numbers("rows") > 1,
    }
    for name, mask in flags.items():
        each = each.append_column(name, pa.array(mask))
    return each.filter(np.logical_or.reduce(list(flags.values()))).select([*_COLUMNS])


class _ReceiptKey(NamedTuple):
    """A receipt in the ledger of its sender: `batch` and `receipt` are hashes, as in `questioned_receipts`."""

    group: str
    peer: str
    batch: int
    receipt: int


class _JudgedReceipt(NamedTuple):
    """The discrepancy of a receipt, and when the peer recorded the batch, by the receipt (microseconds, its clock).

    `algorithm`: that of its signature if it is verified, or empty.
    """

    discrepancy: Discrepancy
    recorded: int
    algorithm: str


def receipt_discrepancies(
    questioned: Iterable[Mapping[str, Any]], coverage: Coverage, rows: LedgerRows, terms: ReceiptTerms
) -> Iterator[Discrepancy]:
    """Yield a discrepancy for each of these receipts, which are rows of `questioned_receipts`.

    A batch that the peer's ledger may lack by its coverage is left out. If the peer's ledger lacks the batch, it is
    ERASED if the receipt has a verified ed25519 signature, or if the peer still holds events of the batch. The kind is
    DISAGREEMENT if the receipt is verified by a shared key, which the sender has, too, or if the peer's ledger has
    another receipt of the batch. Otherwise the receipt is FORGED.
    """
    judge = _ReceiptJudge(coverage, rows, terms)
    judged = [*judge.judged(questioned)]
    erased = _erased_batches(judged, rows)
    for one, recorded, algorithm in judged:
        if one.detail == NO_BATCH and algorithm == Algorithm.ED25519:
            yield one._replace(kind=Kind.ERASED, detail=UNKEPT_BATCH)
        elif one.detail == NO_BATCH and (one.peer, one.group, recorded) in erased:
            yield one._replace(kind=Kind.ERASED, detail=NO_INBOUND)
        elif one.detail == NO_BATCH and algorithm:  # sender and peer could both have signed it
            yield one._replace(kind=Kind.DISAGREEMENT, detail=SHARED_KEY)
        else:
            yield one


@dataclass(frozen=True)
class _ReceiptJudge:
    coverage: Coverage
    rows: LedgerRows
    terms: ReceiptTerms

    def judged(self, questioned: Iterable[Mapping[str, Any]]) -> Iterator[_JudgedReceipt]:
        sought: dict[str, dict[_ReceiptKey, Sequence[str]]] = {}
        times: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        for row in questioned:
            if details := self._details(row):
                key = _ReceiptKey(row["group"], row["peer"], row["batch"], row["receipt"])
                sought.setdefault(row["source"], {})[key] = details
                times[row["source"]].append((row["since"], row["last"]))
        for node, wanted in sought.items():
            near, others = self._segments(node, times[node])
            left = {*wanted}
            for segment in near:
                yield from self._named(segment, wanted, left)
            while left and others:  # a manifest may name other times than those of its rows
                yield from self._named(others.pop(), wanted, left)

    def _segments(self, node: str, times: Sequence[tuple[int, int]]) -> tuple[list[Segment], list[Segment]]:
        """Return the segments of a node's receipts, by whether their times (microseconds) overlap some of these."""
        since, last = np.array(times, np.int64).T
        found: tuple[list[Segment], list[Segment]] = ([], [])
        for segment in self.rows.of(Ledger.RECEIPTS, node):
            span = segment.manifest.times
            is_near = span is None or bool(((since <= span[1]) & (last >= span[0])).any())
            found[not is_near].append(segment)
        return found

    def _details(self, row: Mapping[str, Any]) -> list[str]:
        """Return the faults of a receipt, worst first.

        NO_BATCH is a fault only if the peer's ledger covers the batch: `_named` decides that by both times of the
        batch, of which only the first is known here.
        """
        first, _ = self.coverage.peer_times(row["source"], row["peer"], (row["first"], row["first"]))
        details = {"several": TWO_RECEIPTS, "other": OTHER_RECEIPT, "repeated": REPEATED_RECEIPT}
        found = [detail for flag, detail in details.items() if row[flag]]
        if row["lacking"] and self.coverage.covers(row["peer"], Ledger.INBOUND, 0, (first, first)):
            return [NO_BATCH, *found]
        return found

    def _named(
        self, segment: Segment, wanted: Mapping[_ReceiptKey, Sequence[str]], left: set[_ReceiptKey]
    ) -> Iterator[_JudgedReceipt]:
        """Yield the wanted receipts of a segment, each with the first of its details that the coverage admits.

        The receipts that the segment has are removed from those that are `left`.
        """
        texts = RECEIPT_TEXTS if self.terms.keys else ()
        table = self.rows.read(segment, [*dict.fromkeys((*_READ, *texts))])
        hashes = receipt_hashes(Columns(table)).tolist()
        names = table.select(["group", "peer", "batch_id"]).to_pylist()
        named = (
            _ReceiptKey(name["group"], name["peer"], hash_of(name["batch_id"]), hashed)
            for name, hashed in zip(names, hashes, strict=True)
        )
        rows = {at: key for at, key in enumerate(named) if key in wanted}
        if not rows:
            return
        left.difference_update(rows.values())
        table = table.take([*rows])
        found = Columns(table)
        algorithms = verified_algorithms(found, self.terms) if self.terms.keys else {}
        sent, acked, recorded = (found.numbers(name).tolist() for name in ("sent_at", "acked_at", "peer_recorded_at"))
        keys = table.select(["group", "peer", "batch_id", "receipt_digest", "receipt_key_id"]).to_pylist()
        for at, (row, key) in enumerate(zip(keys, rows.values(), strict=True)):
            times = self.coverage.peer_times(segment.manifest.node, row["peer"], (sent[at], acked[at]))
            covered = self.coverage.covers(row["peer"], Ledger.INBOUND, 0, times)
            detail = next((one for one in wanted[key] if covered or one != NO_BATCH), "")
            if not detail:
                continue
            algorithm = algorithms.get((row["group"], row["peer"], row["batch_id"], row["receipt_digest"]), "")
            one = _discrepancy(segment.manifest.node, row, acked[at], detail, algorithm)
            yield _JudgedReceipt(one, recorded[at], algorithm)


_READ: Final = (
    *("group", "peer", "batch_id", "after", "upto", "repair", "receipt_digest", "receipt_key_id"),
    *("sent_at", "acked_at", "peer_recorded_at"),
)


def _discrepancy(node: str, row: Mapping[str, Any], acked: int, detail: str, algorithm: str) -> Discrepancy:
    # Two verified receipts are both the peer's, unless the sender shares the key.
    is_peers = detail == OTHER_RECEIPT or (detail == TWO_RECEIPTS and algorithm == Algorithm.ED25519)
    kind = Kind.DISAGREEMENT if is_peers else Kind.FORGED
    batch = row["batch_id"]
    evidence = Evidence(node, acked, batch, row["receipt_digest"], row["receipt_key_id"] or "")
    return Discrepancy(kind, row["group"], node, row["peer"], 0, batch, detail, evidence)


def _erased_batches(judged: Sequence[_JudgedReceipt], rows: LedgerRows) -> set[tuple[str, str, int]]:
    """Return the batches (peer, group and time in microseconds) of receipts with NO_BATCH that their peer has erased.

    An event has exactly the time of the batch that brought it, and so have all batches that were stored together. So
    if a peer holds more events of other nodes from that time than its batches brought, the row of a batch was erased
    from its ledger.
    """
    sought: dict[str, set[tuple[str, int]]] = {}
    for one, recorded, _ in judged:
        if one.detail == NO_BATCH:
            sought.setdefault(one.peer, set()).add((one.group, recorded))
    erased = set()
    for peer, places in sought.items():
        times = np.array(sorted({at for _, at in places}), np.int64)
        unexplained: Counter[tuple[str, int]] = Counter()
        for table in rows.at(Ledger.EVENTS, peer, times, ["own"]):
            unexplained.update(_places(table, ~table.booleans("own"), Ledger.EVENTS))
        for table in rows.at(Ledger.INBOUND, peer, times, ["accepted"]):
            accepted = table.numbers("accepted").tolist()
            for place, n in zip(_places(table, np.ones(table.rows, bool), Ledger.INBOUND), accepted, strict=True):
                unexplained[place] -= n
        erased |= {(peer, *place) for place in places if unexplained[place] > 0}
    return erased


def _places(table: Columns, rows: Mask, book: Ledger) -> Iterator[tuple[str, int]]:
    """Yield group and time (microseconds) of each of these rows of a ledger."""
    group = table.words("group").at(rows)
    times = table.numbers(OWN_TIME[book])[rows].tolist()
    return ((group.values[code], at) for code, at in zip(group.codes.tolist(), times, strict=True))
