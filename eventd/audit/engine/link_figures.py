"""What stages 2 and 3 give, as plain values: figures by line, and what the verdicts change in them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from eventd.audit.engine.bins import latency, middle
from eventd.audit.engine.cells import HOUR, What
from eventd.audit.engine.coverage import Sight
from eventd.audit.engine.rows import Line
from eventd.audit.engine.verdicts import Outcome, Trail, judge
from eventd.audit.report.findings import Fact, Kind
from eventd.audit.report.report import Attempts, Latency

if TYPE_CHECKING:
    import pyarrow as pa

COUNTED = ("expected", "delivered", "missing", "disputed", "expired", "in_path", "dead_lettered", "pending", "unproven")
"""The counts of a report that are of events; each of an event's outcomes has one."""


class HourKey(NamedTuple):
    """One line, one type of event, one hour since 1970."""

    line: Line
    type: str
    hour: int


@dataclass
class LineFigures:
    """The cells of one line: counts by what they count, and histograms by bin."""

    counts: Counter[What] = field(default_factory=Counter)
    bytes: int = 0
    bins: dict[What, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    longest: dict[What, int] = field(default_factory=dict)

    def add(self, what: What, bin: int, n: int, total: int, high: int | None) -> None:
        """Another cell."""
        if what < What.ATTEMPTS:
            self.counts[what] += n
            self.bytes += total if what is What.DELIVERED else 0
            return
        self.bins[what][bin] = self.bins[what].get(bin, 0) + n
        if high is not None:
            self.longest[what] = max(high, self.longest.get(what, high))

    def leg(self, what: What) -> Latency:
        """One histogram of times."""
        return latency(self.bins.get(what, {}), self.longest.get(what))

    @property
    def attempts(self) -> Attempts:
        """How often it had to be tried."""
        bins = self.bins.get(What.ATTEMPTS, {})
        return Attempts(p50=middle(bins, 0.5), p95=middle(bins, 0.95), max=self.longest.get(What.ATTEMPTS))

    def late(self, bound: float) -> int:
        """About how many deliveries took longer than `bound` seconds; 0 and 1 are never mixed up."""
        told = self.leg(What.ACKNOWLEDGED)
        if told.max is None or told.max <= bound:
            return 0
        return max(1, sum(one.count for one in told.bins if one.low >= bound))


class Seen(NamedTuple):
    """A fact, and the slot of its event."""

    fact: Fact
    slot: int


@dataclass
class Judged:
    """What the rows of uneven slots came to: facts, and by how much they change what the cells say."""

    seen: list[Seen] = field(default_factory=list)
    changes: dict[HourKey, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    compared: int = 0

    def add(self, trail: Trail, sight: Sight) -> None:
        """Judge another event."""
        verdict = judge(trail, sight)
        self.compared += 1
        self.seen += [Seen(fact, trail.slot) for fact in verdict.facts]
        line = Line(trail.group, trail.source, trail.peer)
        _add(self.changes[HourKey(line, trail.type, trail.slot // HOUR)], _change(trail, verdict.outcome))

    @property
    def facts(self) -> Iterator[Fact]:
        """Everything that is wrong."""
        return (one.fact for one in self.seen)

    def slots(self, *kinds: Kind) -> dict[tuple[Kind, Line], list[int]]:
        """Where what is wrong lies, by kind and line."""
        found: dict[tuple[Kind, Line], list[int]] = defaultdict(list)
        for fact, slot in self.seen:
            if fact.kind in kinds:
                found[fact.kind, Line(*fact[1:4])].append(slot)
        return found

    def to_tables(self) -> dict[str, pa.Table]:
        """For the way from where it was judged: `facts`, `changes` and `compared`."""
        import pyarrow as pa

        facts = [{**one.fact._asdict(), "kind": one.fact.kind.value, "slot": one.slot} for one in self.seen]
        changes = [
            {**key.line._asdict(), "type": key.type, "hour": key.hour, "name": name, "n": n}
            for key, change in self.changes.items()
            for name, n in change.items()
            if n
        ]
        text, number = pa.string(), pa.int64()
        line = [("group", text), ("source", text), ("peer", text)]
        told = [("kind", text), *line, ("seq", number), ("id", text), ("detail", text), ("slot", number)]
        changed = [*line, ("type", text), ("hour", number), ("name", text), ("n", number)]
        return {
            "facts": pa.Table.from_pylist(facts, pa.schema(told)),
            "changes": pa.Table.from_pylist(changes, pa.schema(changed)),
            "compared": pa.table({"n": pa.array([self.compared], number)}),
        }

    @classmethod
    def from_tables(cls, parts: Mapping[str, Sequence[pa.Table]]) -> Judged:
        """All parts together."""
        judged = cls()
        for row in (row for table in parts.get("facts", ()) for row in table.to_pylist()):
            slot = row.pop("slot")
            judged.seen.append(Seen(Fact(**{**row, "kind": Kind(row["kind"])}), slot))
        for row in (row for table in parts.get("changes", ()) for row in table.to_pylist()):
            key = HourKey(Line(row["group"], row["source"], row["peer"]), row["type"], row["hour"])
            judged.changes[key][row["name"]] += row["n"]
        judged.compared = sum(row["n"] for table in parts.get("compared", ()) for row in table.to_pylist())
        return judged


def _add(counter: Counter[str], change: Mapping[str, int]) -> None:
    """Add also what is negative, which a Counter's own sum drops."""
    for name, n in change.items():
        counter[name] += n


def _change(trail: Trail, outcome: Outcome) -> dict[str, int]:
    """What the report has to count instead of what the cells counted for this event."""
    counted = {
        "expected": trail.due + trail.ahead,
        "pending": trail.ahead,
        "delivered": trail.sent,
        "expired": trail.expired,
        "in_path": trail.in_path,
        "dead_lettered": trail.refused,
    }
    right = Counter() if outcome is Outcome.FOREIGN else Counter({"expected": 1, outcome.value: 1})
    changed = {name: right[name] - counted.get(name, 0) for name in {*counted, *right}}
    return {**changed, "duplicates": trail.repeated}


def read_lines(rows: Iterable[Mapping[str, Any]]) -> dict[Line, LineFigures]:
    """The figures of `balance.by_line`, by line."""
    found: dict[Line, LineFigures] = defaultdict(LineFigures)
    for row in rows:
        line = Line(row["group"], row["source"], row["peer"])
        found[line].add(What(row["what"]), row["bin"], row["n"], row["total"] or 0, row["high"])
    return dict(found)


def read_waiting(rows: Iterable[Mapping[str, Any]]) -> dict[Line, tuple[int, int]]:
    """For each line that has something to come: when the first of it was recorded, and its slot."""
    found: dict[Line, tuple[int, int]] = {}
    for row in rows:
        line, first = Line(row["group"], row["source"], row["peer"]), (row["low"], row["time"])
        found[line] = min(first, found.get(line, first))
    return found


def read_senders(rows: Iterable[Mapping[str, Any]]) -> dict[Line, tuple[str, ...]]:
    """Who was to send along each line; the source itself first."""
    found: dict[Line, set[str]] = defaultdict(set)
    for row in rows:
        found[Line(row["group"], row["source"], row["peer"])].add(row["node"])
    return {line: tuple(sorted(nodes, key=lambda node: (node != line.source, node))) for line, nodes in found.items()}


def counts_of(figures: LineFigures) -> Counter[str]:
    """What the cells of a line count, by the names of a report."""
    counts = figures.counts
    return Counter(
        {
            "expected": counts[What.EXPECTED] + counts[What.PENDING],
            "pending": counts[What.PENDING],
            "delivered": counts[What.DELIVERED],
            "expired": counts[What.EXPIRED],
            "in_path": counts[What.IN_PATH],
            "dead_lettered": counts[What.REFUSED],
        }
    )


def changes_by_line(changes: Mapping[HourKey, Counter[str]]) -> dict[Line, Counter[str]]:
    """What the verdicts change, by line."""
    found: dict[Line, Counter[str]] = defaultdict(Counter)
    for key, change in changes.items():
        _add(found[key.line], change)
    return dict(found)


def runs(slots: Iterable[int], apart: int = 5) -> Iterator[tuple[int, int, int]]:
    """Slots that lie no more than `apart` from each other: the first, the last, and how many there are."""
    first = last = None
    count = 0
    for slot in sorted(slots):
        if last is not None and slot - last > apart:
            yield first or 0, last, count
            first, count = None, 0
        first = slot if first is None else first
        last, count = slot, count + 1
    if last is not None:
        yield first or 0, last, count
