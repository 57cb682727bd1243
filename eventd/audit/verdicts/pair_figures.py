"""The results of stages 2 and 3 as plain values: figures by pair, and how the verdicts change them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from eventd.audit.arrays.alterations import LedgerRow
from eventd.audit.arrays.bins import latency, quantile
from eventd.audit.coverage.coverage import Coverage
from eventd.audit.report.findings import MOST_NAMED, Discrepancy, DiscrepancyKey, Evidence, Kind
from eventd.audit.report.report import Attempts, Latency
from eventd.audit.segments.cells import SLOTS_PER_HOUR, Measure
from eventd.audit.segments.row_marks import PairKey
from eventd.audit.verdicts.event_verdicts import judge_records
from eventd.audit.verdicts.trail import Trail
from eventd.audit.verdicts.verdicts import DeliveryOutcome, Verdict, is_after_end, is_verified
from eventd.lake.layout import MINUTE

if TYPE_CHECKING:
    import pyarrow as pa

COUNTED = ("expected", "delivered", "missing", "disputed", "expired", "in_path", "dead_lettered", "pending", "unproven")
"""The counts of a report that are numbers of deliveries (an event at a peer): all expected ones, and each outcome but
FOREIGN.
"""


HIDDEN = "hidden"
"""The name of a count in addition to those of a report: events that are known only by their delivery, see
`Verdict`."""
UNSEEN = "unseen"
"""The name of a count in addition to those of a report: delivered events that only the sender's ledger shows, although
the peer's ledger had not ended yet."""
CLAIMED_LATER = "claimed_later"
"""The name of a count in addition to those of a report: delivered events that only the sender's ledger shows, after
the end of the peer's ledger."""
VERIFIED_LATER = "verified_later"
"""The name of another such count: delivered events that a verified receipt shows, after the end of the peer's
ledger."""


class HourKey(NamedTuple):
    """One pair, one type of event, one hour since 1970."""

    pair: PairKey
    type: str
    hour: int


@dataclass
class PairFigures:
    """The cells of one pair: by measure, counts, histograms, and the longest duration or most attempts.

    `bytes` are those of its acknowledged deliveries. A pair without a peer has what concerns the source alone.
    """

    counts: Counter[Measure] = field(default_factory=Counter)
    bytes: int = 0
    bins: dict[Measure, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    longest: dict[Measure, int] = field(default_factory=dict)

    def add(self, what: Measure, bin: int, n: int, total: int, high: int | None) -> None:
        """Add a cell of the pair."""
        if what < Measure.ATTEMPTS:
            self.counts[what] += n
            self.bytes += total if what is Measure.DELIVERED else 0
            return
        self.bins[what][bin] = self.bins[what].get(bin, 0) + n
        if high is not None:
            self.longest[what] = max(high, self.longest.get(what, high))

    def leg(self, what: Measure) -> Latency:
        """Return the latencies (seconds) of one measure; empty if none was measured."""
        return latency(self.bins.get(what, {}), self.longest.get(what))

    @property
    def attempts(self) -> Attempts:
        """Return the median, 95th percentile and maximum of attempts per acknowledged delivery, counted up to 64."""
        bins = self.bins.get(Measure.ATTEMPTS, {})
        return Attempts(p50=quantile(bins, 0.5), p95=quantile(bins, 0.95), max=self.longest.get(Measure.ATTEMPTS))

    def late(self, bound: float) -> int:
        """Return about how many deliveries took longer than `bound` seconds to be acknowledged; never 0 if one did."""
        latency = self.leg(Measure.ACKNOWLEDGED)
        if latency.max is None or latency.max <= bound:
            return 0
        return max(1, sum(one.count for one in latency.bins if one.low >= bound))


class LocatedDiscrepancy(NamedTuple):
    """A discrepancy, the slot and type of its event, and how the event counts.

    An ERASED event may lie in the hole that begins with the seq `hole`; 0: none.
    """

    discrepancy: Discrepancy
    slot: int
    hole: int = 0
    type: str = ""
    outcome: str = ""


class SlotKey(NamedTuple):
    """Identifies discrepancies in one slot that are only counted, not named."""

    key: DiscrepancyKey
    slot: int


class OldestPending(NamedTuple):
    """When the first pending event of a pair was recorded (microseconds), and the earliest slot of a pending event.

    The two may be of different events.
    """

    recorded_at: int
    slot: int


@dataclass
class RowComparison:
    """The comparison of the rows of uneven slots: discrepancies, and the changes to the counts of the cells.

    `compared` is the number of records that were judged, each at one peer; `waiting` has, by pair, the oldest of the
    pending events that the cells do not count as such; `redelivered`, by pair, how many events were delivered again by
    repairs, which operators request. `unnamed`: by slot, how many discrepancies are counted only, see `MOST_NAMED`;
    ERASED ones are all named, because they are looked for in the holes of ledgers.
    """

    located: list[LocatedDiscrepancy] = field(default_factory=list)
    changes: dict[HourKey, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    compared: int = 0
    waiting: dict[PairKey, OldestPending] = field(default_factory=dict)
    redelivered: Counter[PairKey] = field(default_factory=Counter)
    unnamed: Counter[SlotKey] = field(default_factory=Counter)
    _named: Counter[DiscrepancyKey] = field(default_factory=Counter)

    def add(self, records: Sequence[Trail], coverage: Coverage) -> None:
        """Judge the records of an event at one peer, and add their discrepancies and their changes to the counts."""
        for trail, verdict in zip(records, judge_records(records, coverage), strict=True):
            self.compared += 1
            for discrepancy in verdict.discrepancies:
                self._locate(
                    LocatedDiscrepancy(discrepancy, trail.slot, verdict.hole, trail.type, verdict.outcome.value)
                )
            pair = PairKey(trail.group, trail.source, trail.peer)
            for type, slot, change in _changes(trail, verdict):
                _add(self.changes[HourKey(pair, type, slot // SLOTS_PER_HOUR)], change)
            if verdict.outcome is DeliveryOutcome.DELIVERED and (name := _beside_ledger(trail, coverage)):
                self.changes[HourKey(pair, trail.type, trail.slot // SLOTS_PER_HOUR)][name] += 1
            if verdict.outcome is DeliveryOutcome.PENDING and trail.restored:
                _keep_oldest(self.waiting, pair, OldestPending(trail.restored_at, trail.slot))
            if trail.asked and trail.sent > 1:
                self.redelivered[pair] += 1

    def _locate(self, one: LocatedDiscrepancy) -> None:
        key = DiscrepancyKey.of(one.discrepancy)
        if key.kind is not Kind.ERASED and self._named[key] >= MOST_NAMED:
            self.unnamed[SlotKey(key, one.slot)] += 1
            return
        self._named[key] += 1
        self.located.append(one)

    @property
    def unnamed_counts(self) -> Counter[DiscrepancyKey]:
        """Return how many discrepancies are counted only, over all slots."""
        found: Counter[DiscrepancyKey] = Counter()
        for (key, _), n in self.unnamed.items():
            found[key] += n
        return found

    def slots(self, *kinds: Kind) -> dict[tuple[Kind, PairKey], Counter[int]]:
        """Return how many discrepancies of these kinds each slot has, by kind and pair."""
        found: dict[tuple[Kind, PairKey], Counter[int]] = defaultdict(Counter)
        counted = ((DiscrepancyKey.of(one.discrepancy), one.slot, 1) for one in self.located)
        for key, slot, n in chain(counted, ((*at, n) for at, n in self.unnamed.items())):
            if key.kind in kinds:
                found[key.kind, PairKey(key.group, key.source, key.peer)][slot] += n
        return found

    def to_tables(self) -> dict[str, pa.Table]:
        """Return the comparison as Arrow tables, by name, to be sent to the driver."""
        import pyarrow as pa

        rows = [
            {
                **each.discrepancy._asdict(),
                **each.discrepancy.evidence._asdict(),
                **each._asdict(),
                "kind": each.discrepancy.kind.value,
            }
            for each in self.located
        ]
        changes = [
            {**key.pair._asdict(), "type": key.type, "hour": key.hour, "name": name, "n": n}
            for key, change in self.changes.items()
            for name, n in change.items()
            if n
        ]
        waiting = [{**key._asdict(), "low": one.recorded_at, "time": one.slot} for key, one in self.waiting.items()]
        unnamed = [
            {**key._asdict(), "kind": key.kind.value, "slot": slot, "n": n} for (key, slot), n in self.unnamed.items()
        ]
        again = [{**pair._asdict(), "n": n} for pair, n in self.redelivered.items()]
        text, number = pa.string(), pa.int64()
        pair = [("group", text), ("source", text), ("peer", text)]
        columns = [("kind", text), *pair, *((name, text) for name in ("id", "detail", "type", "outcome"))]
        columns += [(name, text) for name in ("sender", "batch", "receipt_digest", "key_id")]
        columns += [(name, number) for name in ("seq", "slot", "hole", "at")]
        columns += [(name, pa.list_(text)) for name in _LISTS]
        counted = [("kind", text), *pair, ("detail", text), ("slot", number), ("n", number)]
        changed = [*pair, ("type", text), ("hour", number), ("name", text), ("n", number)]
        return {
            "discrepancies": pa.Table.from_pylist(rows, pa.schema(columns)),
            "changes": pa.Table.from_pylist(changes, pa.schema(changed)),
            "waiting": pa.Table.from_pylist(waiting, pa.schema([*pair, ("low", number), ("time", number)])),
            "compared": pa.table({"n": pa.array([self.compared], number)}),
            "unnamed": pa.Table.from_pylist(unnamed, pa.schema(counted)),
            "redelivered": pa.Table.from_pylist(again, pa.schema([*pair, ("n", number)])),
        }

    @classmethod
    def from_tables(cls, parts: Mapping[str, Sequence[pa.Table]]) -> RowComparison:
        """Return the sum of the comparisons that `to_tables` converted."""
        comparison = cls()
        for row in (row for table in parts.get("discrepancies", ()) for row in table.to_pylist()):
            comparison.located.append(_located(row))
        for row in (row for table in parts.get("changes", ()) for row in table.to_pylist()):
            key = HourKey(PairKey(row["group"], row["source"], row["peer"]), row["type"], row["hour"])
            comparison.changes[key][row["name"]] += row["n"]
        comparison.waiting = read_waiting(row for table in parts.get("waiting", ()) for row in table.to_pylist())
        comparison.compared = sum(row["n"] for table in parts.get("compared", ()) for row in table.to_pylist())
        for row in (row for table in parts.get("unnamed", ()) for row in table.to_pylist()):
            slot, n, kind = row.pop("slot"), row.pop("n"), Kind(row.pop("kind"))
            comparison.unnamed[SlotKey(DiscrepancyKey(kind, **row), slot)] += n
        for row in (row for table in parts.get("redelivered", ()) for row in table.to_pylist()):
            comparison.redelivered[PairKey(row["group"], row["source"], row["peer"])] += row["n"]
        return comparison


_LISTS: Final = ("fingerprints", "values")
"""The fields of `Evidence` that are lists."""


def _located(row: dict[str, Any]) -> LocatedDiscrepancy:
    """Return a discrepancy from its row of `RowComparison.to_tables`."""
    place = {name: row.pop(name) for name in ("slot", "hole", "type", "outcome")}
    kind = Kind(row.pop("kind"))
    known = {name: row.pop(name) for name in Evidence._fields}
    known |= {name: tuple(known[name]) for name in _LISTS}
    return LocatedDiscrepancy(Discrepancy(kind, **row, evidence=Evidence(**known)), **place)


def _add(counter: Counter[str], change: Mapping[str, int]) -> None:
    """Add a change to a counter, with its negative counts, which the sum of two Counters would drop."""
    for name, n in change.items():
        counter[name] += n


def _changes(trail: Trail, verdict: Verdict) -> Iterator[tuple[str, int, dict[str, int]]]:
    """Yield the changes to the cells' counts, by name of the count, after which the event counts once, as its outcome.

    Each is with the type and the slot of the row that the cells counted, which differ if a row was altered. A FOREIGN
    event is subtracted and counts under no outcome. Repeated deliveries count as duplicates in any case.
    """
    due = {"expected": -trail.due - trail.ahead, "pending": -trail.ahead}
    delivered = {
        "delivered": -trail.sent,
        "expired": -trail.expired,
        "in_path": -trail.in_path,
        "dead_lettered": -trail.refused,
        "duplicates": trail.repeated,
    }
    right = {HIDDEN: int(verdict.hidden)}
    if verdict.outcome is not DeliveryOutcome.FOREIGN:
        right |= {"expected": 1, verdict.outcome.value: 1}
    yield *_place(trail, trail.due_row), due
    yield *_place(trail, trail.delivery_row), delivered
    yield *_place(trail, trail.due_row or trail.delivery_row), right


def _beside_ledger(trail: Trail, coverage: Coverage) -> str:
    """Return the count of a delivered event that the ledger of the peer does not show; empty if it does."""
    if trail.held or trail.source == trail.peer or not coverage.has_ledgers(trail.peer):
        return ""
    if not trail.sent:  # the delivery is that of another record of the event
        return UNSEEN
    is_later, verified = is_after_end(trail, coverage), is_verified(trail, coverage)
    if is_later:
        return VERIFIED_LATER if verified else CLAIMED_LATER
    return "" if verified else UNSEEN  # the peer's ledger begins later, for example


def _place(trail: Trail, row: LedgerRow | None) -> tuple[str, int]:
    return (row.type, row.event_at // MINUTE) if row else (trail.type, trail.slot)


def read_figures(rows: Iterable[Mapping[str, Any]]) -> dict[PairKey, PairFigures]:
    """Return the figures of each pair, from rows of `add_pairs`."""
    found: dict[PairKey, PairFigures] = defaultdict(PairFigures)
    for row in rows:
        pair = PairKey(row["group"], row["source"], row["peer"])
        found[pair].add(Measure(row["what"]), row["bin"], row["n"], row["total"] or 0, row["high"])
    return dict(found)


def read_waiting(rows: Iterable[Mapping[str, Any]]) -> dict[PairKey, OldestPending]:
    """Return the earliest record time and slot of the pending events of each pair, over the tables of all tasks."""
    found: dict[PairKey, OldestPending] = {}
    for row in rows:
        pair = PairKey(row["group"], row["source"], row["peer"])
        _keep_oldest(found, pair, OldestPending(row["low"], row["time"]))
    return found


def _keep_oldest(found: dict[PairKey, OldestPending], pair: PairKey, one: OldestPending) -> None:
    other = found.get(pair, one)
    found[pair] = OldestPending(min(one.recorded_at, other.recorded_at), min(one.slot, other.slot))


def read_senders(rows: Iterable[Mapping[str, Any]]) -> dict[PairKey, tuple[str, ...]]:
    """Return the senders of each pair, sorted; the source first if it is one."""
    found: dict[PairKey, set[str]] = defaultdict(set)
    for row in rows:
        found[PairKey(row["group"], row["source"], row["peer"])].add(row["node"])
    return {pair: tuple(sorted(nodes, key=lambda node: (node != pair.source, node))) for pair, nodes in found.items()}


def counts_of(figures: PairFigures) -> Counter[str]:
    """Return the counts of a pair as its cells have them, by the names of a report; verdicts change them later."""
    counts = figures.counts
    return Counter(
        {
            "expected": counts[Measure.EXPECTED] + counts[Measure.PENDING],
            "pending": counts[Measure.PENDING],
            "delivered": counts[Measure.DELIVERED],
            "expired": counts[Measure.EXPIRED],
            "in_path": counts[Measure.IN_PATH],
            "dead_lettered": counts[Measure.REFUSED],
        }
    )


def changes_by_pair(changes: Mapping[HourKey, Counter[str]]) -> dict[PairKey, Counter[str]]:
    """Return the changes of `RowComparison` by pair, summed over its types and hours."""
    found: dict[PairKey, Counter[str]] = defaultdict(Counter)
    for key, change in changes.items():
        _add(found[key.pair], change)
    return dict(found)


def runs(slots: Mapping[int, int], apart: int = 5) -> Iterator[tuple[int, int, int]]:
    """Yield runs of slots, given with their counts: the first, the last, and the sum of the counts.

    A slot that is more than `apart` after the one before it begins a new run.
    """
    first = last = None
    count = 0
    for slot, n in sorted(slots.items()):
        if last is not None and slot - last > apart:
            yield first or 0, last, count
            first, count = None, 0
        first = slot if first is None else first
        last, count = slot, count + n
    if last is not None:
        yield first or 0, last, count
