"""The model of report.json. docs/reference/audit-report.md explains every field.

Times are RFC 3339 in UTC with microseconds, None if there is none. Spans are in seconds unless a name says `_ms`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from eventd.audit.report.findings import Finding
from eventd.text.invisible import spelled_out

SCHEMA = 1
MOST_HOURS = 20_000
"""Maximum number of rows of `hours` in report.json; the table `hours` has all of them."""

Verdict = Literal["met", "missed", "unproven"]


class Figures(msgspec.Struct, kw_only=True):
    """The deliveries of one source to one peer. Counts of events.

    expected = delivered + expired + in_path + dead_lettered + pending + missing + disputed + unproven. `delivered`
    counts an event once however often it was sent; `disputed` events are delivered by the ledger of one side only.
    `completeness` is the proven share, in percent, of due deliveries (expected without expired, in_path, dead_lettered,
    pending), rounded down to four decimals, 100 if none is due; None if the ledgers do not reach far enough.
    """

    expected: int = 0
    delivered: int = 0
    duplicates: int = 0
    missing: int = 0
    disputed: int = 0
    expired: int = 0
    in_path: int = 0
    dead_lettered: int = 0
    pending: int = 0
    unproven: int = 0
    completeness: float | None = None
    bytes: int = 0


class Totals(Figures, kw_only=True):
    """The whole lake. `events` counts those that entered a log at their source.

    `deliveries` counts the rows of the ledgers of deliveries, `findings` findings, and `by_kind` the discrepancies in
    them.
    """

    events: int = 0
    deliveries: int = 0
    findings: int = 0
    by_kind: dict[str, int] = msgspec.field(default_factory=dict)


class Bin(msgspec.Struct, array_like=True, frozen=True):
    """The number of values in [low, high) seconds."""

    low: float
    high: float
    count: int


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """A distribution of durations in seconds: percentiles from a histogram, whose bins are at most 12.5 % wide.

    `max` is exact. Empty if nothing was measured. `bins` has the non-empty bins, in order.
    """

    count: int = 0
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None
    bins: tuple[Bin, ...] = ()


class Latencies(msgspec.Struct, frozen=True, kw_only=True):
    """The four legs of a delivery. Those that end at the peer are corrected by the skew of its clock."""

    recorded: Latency = Latency()
    """From the event to its record at its source; the same for all peers."""
    delivered: Latency = Latency()
    """From that record to the peer's acknowledgement."""
    peer_recorded: Latency = Latency()
    """From the first attempt to the peer's record."""
    whole: Latency = Latency()
    """From the event to the peer's record."""


class Attempts(msgspec.Struct, frozen=True, kw_only=True):
    """Attempts per delivery: the median, the 95th percentile and the maximum; None without deliveries."""

    p50: int | None = None
    p95: int | None = None
    max: int | None = None


class Skew(msgspec.Struct, frozen=True, kw_only=True):
    """The offset of one clock to another (negative: behind), in milliseconds: `ms` ± `error_ms`.

    For a pair, the peer's clock against the sender's. `moved_ms` is the difference between the two most different
    hours.
    """

    ms: float
    error_ms: float
    moved_ms: float = 0.0


class Slo(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a pair met its objective, the reason in words, and the number of deliveries slower than its `fail`."""

    verdict: Verdict
    reason: str
    late: int = 0


class OpenGap(msgspec.Struct, frozen=True, kw_only=True):
    """The oldest pending, missing or disputed event: the minute in which it was observed, and its age in seconds."""

    since: str
    seconds: float


class Pair(Figures, kw_only=True):
    """One source and one peer of a group: `source` emitted the events, `peer` should hold them."""

    group: str
    source: str
    peer: str
    senders: tuple[str, ...] = ()
    """The nodes that send the events of `source` to the peer: itself, or nodes that relay."""
    lag: float | None = None
    """Age in seconds of the oldest pending event, at the end of the sender's ledger; 0 for none."""
    oldest_open_gap: OpenGap | None = None
    attempts: Attempts = Attempts()
    latencies: Latencies = Latencies()
    skew: Skew | None = None
    slo: Slo = Slo(verdict="unproven", reason="")
    state: str = ""
    """The state of the link in its sender's last report: running, paused, backing-off, blocked, failed."""
    proof: str = ""
    """The evidence of deliveries: the ledger of the peer (`books`), its `receipts`, or the sender's `claims` alone."""
    notes: tuple[str, ...] = ()
    """Reasons why deliveries are unproven."""


class Hour(Figures, kw_only=True):
    """One pair, one type of event, one hour of the events' own time."""

    group: str
    source: str
    peer: str
    type: str
    hour: str
    attempts_p50: int | None = None
    attempts_p95: int | None = None
    recorded_p50: float | None = None
    recorded_p95: float | None = None
    recorded_p99: float | None = None
    delivered_p50: float | None = None
    delivered_p95: float | None = None
    delivered_p99: float | None = None
    peer_recorded_p50: float | None = None
    peer_recorded_p95: float | None = None
    peer_recorded_p99: float | None = None
    whole_p50: float | None = None
    whole_p95: float | None = None
    whole_p99: float | None = None


class NodeReport(msgspec.Struct, kw_only=True):
    """One node as its ledgers show it. `rows` counts rows per ledger; `states` maps a link (`group/peer`) to
    its state."""

    name: str
    epochs: tuple[str, ...]
    as_of: str | None = None
    complete_until: str | None = None
    head: int | None = None
    rows: dict[str, int] = msgspec.field(default_factory=dict)
    states: dict[str, str] = msgspec.field(default_factory=dict)
    silent_since: str | None = None
    """The time of its last report, if that is too old; None if the node reports, or was closed."""
    silent_for: float | None = None
    """How long it has been silent, in seconds."""
    closed_at: str | None = None
    """The time at which an operator declared it out of service."""
    skew: Skew | None = None
    """The offset of its clock to the mean of its own clock and its peers' clocks."""


class LostSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A span of time in which events were or may have been lost.

    `kind` is `missing` (events that a peer should hold), or `declared` (a loss declared by a node, with its `reason`;
    `since` and `until` are when it was recorded, and `events` is the length of the lost range of positions).
    """

    kind: Literal["missing", "declared"]
    group: str
    source: str
    peer: str
    since: str
    until: str
    events: int
    reason: str = ""


class KeyUse(msgspec.Struct, frozen=True, kw_only=True):
    """The requests that a node signed with one key."""

    node: str
    group: str
    key_id: str
    protocol: str
    requests: int
    first: str
    last: str


class RefusedByReason(msgspec.Struct, frozen=True, kw_only=True):
    """Requests that a node refused, by reason. `peer` is the sender that the requests named."""

    node: str
    group: str
    peer: str
    reason: str
    count: int
    first: str
    last: str


class Receipts(msgspec.Struct, frozen=True, kw_only=True):
    """Receipts by the algorithm of their signature; empty for those of the older protocol, which are not signed."""

    algorithm: str
    count: int
    proves_to_others: bool
    note: str


class Limitation(msgspec.Struct, frozen=True, kw_only=True):
    """A limitation of the verdict, caused by something in the lake: place, reason, and the next step."""

    kind: str
    where: str
    message: str
    hint: str = ""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The requested audit. `slo` has the objectives in seconds per group; '' is the default of all other groups.

    After `patience` seconds, a node that does not report counts as silent.
    """

    slo: dict[str, dict[str, int]]
    fail_on: tuple[str, ...] = ()
    since: str | None = None
    until: str | None = None
    master: str = ""
    incremental: bool = True
    patience: float = 0.0


class Lake(msgspec.Struct, frozen=True, kw_only=True):
    """The lake that was read."""

    url: str
    segments: int
    rows: int
    bytes: int
    schema: int


class Period(msgspec.Struct, frozen=True, kw_only=True):
    """The period of the events' own times, from the minute of the first event to the end of the last one's."""

    first: str | None = None
    last: str | None = None


class Work(msgspec.Struct, kw_only=True):
    """The work of an audit: segments read now and reused from earlier runs, seconds in all and per stage.

    `segments_rechecked` of the reused ones had their digests checked again; `oldest_read` is the earliest time at which
    a segment was last read or checked, None if all were read now.
    """

    segments_read: int = 0
    segments_known: int = 0
    segments_rechecked: int = 0
    oldest_read: str | None = None
    rows_read: int = 0
    rows_compared: int = 0
    seconds: float = 0.0
    stages: dict[str, float] = msgspec.field(default_factory=dict)
    spark: str = ""
    version: str = ""


class Report(msgspec.Struct, kw_only=True):
    """The report of an audit: its verdict, totals, pairs, findings and hours."""

    schema: int = SCHEMA
    made_at: str
    verdict: Literal["complete", "incomplete", "unproven"]
    """complete: all due deliveries are proven, without findings; incomplete: there are findings; unproven: there are no
    findings, but the ledgers do not reach far enough to prove completeness."""
    headline: tuple[str, ...]
    """The verdict in a few sentences."""
    failed: tuple[str, ...] = ()
    """The conditions of `settings.fail_on` that are met."""
    lake: Lake
    period: Period
    settings: Settings
    totals: Totals
    findings: tuple[Finding, ...]
    pairs: tuple[Pair, ...]
    hours: tuple[Hour, ...]
    hours_left_out: int = 0
    """The number of rows of the table `hours` that do not fit in `hours`."""
    nodes: tuple[NodeReport, ...]
    gaps: tuple[LostSpan, ...] = ()
    keys: tuple[KeyUse, ...] = ()
    refusals: tuple[RefusedByReason, ...] = ()
    receipts: tuple[Receipts, ...] = ()
    troubles: tuple[Limitation, ...] = ()
    work: Work = msgspec.field(default_factory=Work)


def to_json(report: Report) -> bytes:
    """Return the content of report.json, indented by two, with invisible characters as escapes."""
    text = msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"
    return spelled_out(text.decode()).encode()
