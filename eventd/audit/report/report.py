"""The report of an audit, as report.json holds it. docs/reference/audit-report.md explains every field.

Times are RFC 3339 in UTC with microseconds, None where there is none. Spans are in seconds unless a name says `_ms`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from eventd.audit.report.findings import Finding
from eventd.text.invisible import spelled_out

SCHEMA = 1
MOST_HOURS = 20_000
"""Rows of `hours` in report.json; the table `hours` has all of them."""

Verdict = Literal["met", "missed", "unproven"]


class Figures(msgspec.Struct, kw_only=True):
    """What the books say about the events of one source that were meant for one peer. Counts of events.

    expected = delivered + expired + in_path + dead_lettered + pending + missing + disputed + unproven. `delivered`
    counts an event once however often it was sent; `disputed` are those that one side's books call delivered and the
    other's deny. `completeness` is the share, in percent, of what should be there by now (expected without expired,
    in_path, dead_lettered, pending) that is, rounded down; None where the books do not reach far enough to tell.
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
    """The whole lake. `events` counts what entered a log as a node's own, `deliveries` rows of the books."""

    events: int = 0
    deliveries: int = 0
    findings: int = 0
    by_kind: dict[str, int] = msgspec.field(default_factory=dict)


class Bin(msgspec.Struct, array_like=True, frozen=True):
    """So many values in [low, high) seconds."""

    low: float
    high: float
    count: int


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """How long something took, in seconds: percentiles from a histogram, whose bins are at most 12.5 % wide.

    `max` is exact. Empty where nothing was measured. `bins` has those that are not empty, in order.
    """

    count: int = 0
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None
    bins: tuple[Bin, ...] = ()


class Latencies(msgspec.Struct, frozen=True, kw_only=True):
    """The four legs. Those that end at the peer are corrected by the skew of its clock."""

    recorded: Latency = Latency()
    """From the event to its record at its source; the same for all peers."""
    delivered: Latency = Latency()
    """From that record to the peer's acknowledgement."""
    peer_recorded: Latency = Latency()
    """From the first attempt to the peer's record."""
    whole: Latency = Latency()
    """From the event to the peer's record."""


class Attempts(msgspec.Struct, frozen=True, kw_only=True):
    """Attempts per delivery."""

    p50: int | None = None
    p95: int | None = None
    max: int | None = None


class Skew(msgspec.Struct, frozen=True, kw_only=True):
    """How far a clock is ahead of another (negative: behind), in milliseconds: `ms`, give or take `error_ms`.

    For a pair the peer's clock against the sender's. `moved_ms` is the difference between the hours that differ most.
    """

    ms: float
    error_ms: float
    moved_ms: float = 0.0


class Slo(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a pair kept to its objective, and the reason in words. `late` deliveries took longer than it allows."""

    verdict: Verdict
    reason: str
    late: int = 0


class OpenGap(msgspec.Struct, frozen=True, kw_only=True):
    """The oldest event that is still to come or missing: when it was observed, and how long ago that was (seconds)."""

    since: str
    seconds: float


class Pair(Figures, kw_only=True):
    """One source and one peer of a group: `source` recorded the events, `peer` should have them."""

    group: str
    source: str
    peer: str
    senders: tuple[str, ...] = ()
    """Who sends the peer what `source` recorded: itself, or nodes that relay."""
    lag: float | None = None
    """Age in seconds of the oldest event that is still to come, at the time of the sender's books; 0 for none."""
    oldest_open_gap: OpenGap | None = None
    attempts: Attempts = Attempts()
    latencies: Latencies = Latencies()
    skew: Skew | None = None
    slo: Slo = Slo(verdict="unproven", reason="")
    state: str = ""
    """The link as its sender last saw it: running, paused, backing-off, blocked, failed."""
    proof: str = ""
    """What a delivery rests on: `books` of the peer, its `receipts`, or the sender's word alone (`claims`)."""
    notes: tuple[str, ...] = ()
    """What could not be judged, in words."""


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


class Node(msgspec.Struct, kw_only=True):
    """One node as its books show it. `rows` counts per book; `states` are its links, `group/peer` to state."""

    name: str
    epochs: tuple[str, ...]
    as_of: str | None = None
    complete_until: str | None = None
    head: int | None = None
    rows: dict[str, int] = msgspec.field(default_factory=dict)
    states: dict[str, str] = msgspec.field(default_factory=dict)
    silent_since: str | None = None
    """When it reported last, where that is too long ago; None: it reports, or was closed."""
    silent_for: float | None = None
    """For how many seconds."""
    closed_at: str | None = None
    """When an operator declared it out of service."""
    skew: Skew | None = None
    """How far its clock is ahead of the middle of all clocks in the lake."""


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """A span of time in which something was or may have been lost.

    `kind` is `missing` (events a peer should have), or `declared` (a node told of a loss itself; `reason` says which).
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
    """Which key a node signed its requests with."""

    node: str
    group: str
    key_id: str
    protocol: str
    requests: int
    first: str
    last: str


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """Requests a node turned away, by reason. `peer` is who the request said it came from."""

    node: str
    group: str
    peer: str
    reason: str
    count: int
    first: str
    last: str


class Receipts(msgspec.Struct, frozen=True, kw_only=True):
    """Receipts by the algorithm of their signature; '' for those of the older protocol, which are not signed."""

    algorithm: str
    count: int
    proves_to_others: bool
    note: str


class Limitation(msgspec.Struct, frozen=True, kw_only=True):
    """Something about the lake that limits what can be said, where, and what to do about it."""

    kind: str
    where: str
    message: str
    hint: str = ""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for. `slo` is per group, the objectives in seconds; '' is the default of all other groups."""

    slo: dict[str, dict[str, int]]
    fail_on: tuple[str, ...] = ()
    since: str | None = None
    until: str | None = None
    master: str = ""
    incremental: bool = True
    patience: float = 0.0


class Lake(msgspec.Struct, frozen=True, kw_only=True):
    """What was read."""

    url: str
    segments: int
    rows: int
    bytes: int
    schema: int


class Period(msgspec.Struct, frozen=True, kw_only=True):
    """The events' own times: from the first event on, up to the last one."""

    first: str | None = None
    last: str | None = None


class Work(msgspec.Struct, kw_only=True):
    """How the figures came about: segments read now and known from earlier runs, seconds in all and per stage.

    Of those known, `segments_rechecked` had their digests checked again; `oldest_read` is when the one was last read or
    checked that has not been for longest, None where all were now.
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
    """An audit from its verdict down to its hours."""

    schema: int = SCHEMA
    made_at: str
    verdict: Literal["complete", "incomplete", "unproven"]
    """complete: all that should be there is, and nothing was found; incomplete: something was found; unproven: nothing
    was found, but the books do not reach far enough to say that nothing is wrong."""
    headline: tuple[str, ...]
    """The verdict in a few sentences."""
    failed: tuple[str, ...] = ()
    """Those of `settings.fail_on` that are met."""
    lake: Lake
    period: Period
    settings: Settings
    totals: Totals
    findings: tuple[Finding, ...]
    pairs: tuple[Pair, ...]
    hours: tuple[Hour, ...]
    hours_left_out: int = 0
    """Rows of the table `hours` that are not in `hours`: there were too many."""
    nodes: tuple[Node, ...]
    gaps: tuple[Gap, ...] = ()
    keys: tuple[KeyUse, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    receipts: tuple[Receipts, ...] = ()
    troubles: tuple[Limitation, ...] = ()
    work: Work = msgspec.field(default_factory=Work)


def to_json(report: Report) -> bytes:
    """The text of report.json, indented by two."""
    text = msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"
    return spelled_out(text.decode()).encode()


def from_json(text: bytes) -> Report:
    """The report `to_json` wrote. Raises msgspec.ValidationError for anything else."""
    return msgspec.json.decode(text, type=Report)
