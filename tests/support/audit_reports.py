"""Builders of audit reports for tests: every field that is not given has the value of a report without findings."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from typing import Any

from msgspec.structs import asdict, replace

from eventd.audit.report.json_schema import report_schema
from eventd.audit.report.report import (
    Attempts,
    Bin,
    Figures,
    Hour,
    KeyUse,
    Lake,
    Latencies,
    Latency,
    NodeReport,
    Pair,
    Period,
    Receipts,
    Report,
    Settings,
    Skew,
    Slo,
    Totals,
    Work,
)
from tests.support.schemas import Schemas

START = datetime(2026, 11, 20, 6, 0, tzinfo=UTC)
WITNESSED = Receipts(
    algorithm="ed25519",
    count=41_022,
    proves_to_others=True,
    note="only the peer can have signed it: proves it to third parties",
)


def at(hours: float = 0.0) -> str:
    """Return the time a number of hours after the start, in the format of reports."""
    return (START + timedelta(hours=hours)).isoformat(timespec="microseconds").replace("+00:00", "Z")


def event_id(number: int) -> str:
    """Return an event id in the format of the node."""
    return f"01a1f985-{number % 65536:04x}-7cd0-a46f-{number:012x}"


@cache
def latency(median: float, spread: float, count: int) -> Latency:
    """Return a histogram of log-normal latencies in bins an eighth wide; two in a hundred are eight times as long."""

    def below(value: float) -> float:
        usual, slow = (0.5 + 0.5 * math.erf(math.log(value / m) / spread / math.sqrt(2)) for m in (median, 8 * median))
        return count * (0.98 * usual + 0.02 * slow)

    ends = [median * 1.125**place for place in range(-30, 56)]
    counts = [round(below(high) - below(low)) for low, high in pairwise(ends)]
    bins = tuple(Bin(low, high, n) for (low, high), n in zip(pairwise(ends), counts, strict=True) if n)
    figures = {name: _percentile(bins, share) for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))}
    return Latency(count=count, max=bins[-1].high, bins=bins, **figures)


def _percentile(bins: Sequence[Bin], share: float) -> float:
    left = share * sum(one.count for one in bins)
    for one in bins:
        left -= one.count
        if left <= 0:
            return one.high
    return bins[-1].high


def pair(
    chance: random.Random, source: str, peer: str, expected: int, *, group: str = "edge", far: float = 1.0
) -> Pair:
    """Return a pair without findings; `far` multiplies its latencies."""
    return Pair(
        group=group,
        source=source,
        peer=peer,
        senders=(source,),
        expected=expected,
        delivered=expected,
        completeness=100.0,
        bytes=expected * 350,
        lag=0.0,
        attempts=Attempts(p50=1, p95=1, max=2),
        latencies=Latencies(
            recorded=latency(0.0009, 0.35, expected),
            delivered=latency(0.011 * far, 0.5, expected),
            peer_recorded=latency(0.004 * far, 0.4, expected),
            whole=latency(0.014 * far, 0.5, expected),
        ),
        skew=Skew(ms=round(chance.uniform(-30, 30), 1), error_ms=0.4),
        slo=Slo(verdict="met", reason="no delivery took longer than 3m0s"),
        state="running",
        proof="books",
    )


def node(name: str, rows: int) -> NodeReport:
    """Return a node whose ledger reaches the end of the period."""
    return NodeReport(
        name=name,
        epochs=("4f1d0c7a92be",),
        as_of=at(6.02),
        complete_until=at(6.01),
        head=rows,
        rows={"events": rows, "deliveries": rows, "receipts": rows // 250, "inbound": rows // 250},
        states={},
        skew=Skew(ms=2.5, error_ms=0.4),
    )


def hours_of(pairs: Iterable[Pair], *, hours: int = 6) -> tuple[Hour, ...]:
    """Spread the pairs' figures over a number of hours; missing and pending deliveries lie in the last hour but one."""
    made = []
    for one in pairs:
        for number in range(hours):
            share = one.expected * (4 + number % 4) // (5 * hours)
            worst = number == hours - 2
            made.append(
                Hour(
                    group=one.group,
                    source=one.source,
                    peer=one.peer,
                    type="client.seen",
                    hour=at(number),
                    expected=share,
                    delivered=share - (one.missing if worst else 0),
                    missing=one.missing if worst else 0,
                    pending=one.pending if number == hours - 1 else 0,
                    unproven=one.unproven // hours,
                    completeness=one.completeness,
                )
            )
    return tuple(made)


def report(names: Sequence[str], pairs: Sequence[Pair], **fields: object) -> Report:
    """Return a report over these nodes and pairs; `fields` overrides the values of a report without findings."""
    totals = Totals(
        events=sum(p.expected for p in pairs) // max(len(names) - 1, 1), deliveries=sum(p.delivered for p in pairs)
    )
    for one in pairs:
        for key, value in asdict(one).items():
            if key in (*Figures.__struct_fields__, "claimed") and key != "completeness":
                setattr(totals, key, getattr(totals, key) + value)
    due = totals.delivered + totals.missing + totals.disputed + totals.unproven
    totals.completeness = 100.0 * totals.delivered / due if due and not totals.unproven else None
    base = Report(
        made_at=at(6.2),
        verdict="complete",
        headline=(f"{totals.delivered:,} of {due:,} delivered; nothing is missing.",),
        lake=Lake(url="s3://audit/lake", segments=1_204, rows=totals.deliveries * 2, bytes=1_288_490_188, schema=1),
        period=Period(first=at(), last=at(5.99)),
        settings=Settings(slo={"": {"warn": 60, "fail": 180}}, master="local[*]"),
        totals=totals,
        findings=(),
        pairs=tuple(pairs),
        hours=hours_of(pairs),
        nodes=tuple(node(name, 100_000) for name in names),
        keys=tuple(
            KeyUse(
                node=n, group="edge", key_id=f"{n}.2026-11", protocol="v2", requests=4_000, first=at(), last=at(5.99)
            )
            for n in names
        ),
        receipts=(WITNESSED,),
        work=Work(
            segments_read=1_204,
            rows_read=totals.deliveries * 2,
            seconds=71.4,
            stages={"cells": 52.0, "reconcile": 11.2},
        ),
    )
    return replace(base, **fields)


def flaws_of(document: Any) -> list[str]:
    """Return the differences between the content of a report.json and its schema."""
    schemas, root = _report_schemas()
    return [*schemas.flaws({"$ref": root}, document)]


@cache
def _report_schemas() -> tuple[Schemas, str]:
    """Return the schemas of report.json, made once, and the reference to that of the whole."""
    schema = report_schema()
    return Schemas(schema), schema["$ref"]


def mesh(names: Sequence[str], each: int, seed: int = 7) -> list[Pair]:
    """Return the pairs of a full mesh."""
    chance = random.Random(seed)
    return [
        pair(chance, one, other, each, far=1 + 4 * abs(i - j))
        for i, one in enumerate(names)
        for j, other in enumerate(names)
        if i != j
    ]
