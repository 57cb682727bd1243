"""The model of report.json. docs/reference/audit-report.md explains every field.

Times are RFC 3339 in UTC with microseconds, None if there is none. Spans are in seconds unless a name says `_ms`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from eventd.audit.report.findings import Finding
from eventd.audit.report.marks import AcknowledgementUse, Baseline
from eventd.text.invisible import spelled_out

SCHEMA = 1
MOST_HOURS = 20_000
"""Maximum number of rows of `hours` in report.json; the table `hours` has all of them."""

Verdict = Literal["met", "missed", "unproven"]


class Figures(msgspec.Struct, kw_only=True):
    """Counts of deliveries (one event to one peer): of a pair, of an hour of a pair, or summed over all pairs.

    expected = delivered + expired + in_path + dead_lettered + pending + missing + disputed + unproven. `delivered`
    counts an event once however often it was sent; `disputed` events are delivered by the ledger of one side only.
    `completeness` is the delivered share, in percent, of due deliveries (expected without expired, in_path,
    dead_lettered, pending), rounded down to four decimals, 100 if none is due; None if the ledgers do not reach far
    enough. It includes deliveries by the sender's claim alone.
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
    """The figures summed over all pairs, and counts over all ledgers, of the requested hours.

    `completeness` is None also if no delivery is expected at all: then nothing is proven.
    `events` counts those that entered a log at their source, `deliveries` the rows of all `deliveries` ledgers,
    `findings` findings, `by_kind` the discrepancies in them, and `acknowledged` those that operators have acknowledged.
    """

    events: int = 0
    deliveries: int = 0
    claimed: int = 0
    """The sum of `claimed` over all pairs."""
    findings: int = 0
    by_kind: dict[str, int] = msgspec.field(default_factory=dict)
    acknowledged: int = 0


class Bin(msgspec.Struct, array_like=True, frozen=True):
    """The number of values in [low, high) seconds; the highest possible bin has all longer ones, too."""

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
    """The latencies of the four legs of a delivery; those to the peer's record are corrected by the skew, if known."""

    recorded: Latency = Latency()
    """From the event to its record at its source; the same for all peers."""
    delivered: Latency = Latency()
    """From the event's record at its source to the peer's acknowledgement."""
    peer_recorded: Latency = Latency()
    """From the first attempt to the peer's record."""
    whole: Latency = Latency()
    """From the event to the peer's record."""


class Attempts(msgspec.Struct, frozen=True, kw_only=True):
    """Attempts per acknowledged delivery, counted up to 64: median, 95th percentile, maximum; None without any."""

    p50: int | None = None
    p95: int | None = None
    max: int | None = None


class Skew(msgspec.Struct, frozen=True, kw_only=True):
    """How far one clock is ahead of another (negative: behind), in milliseconds: `ms` ± `error_ms`, in the latest
    hour.

    For a pair, the peer's clock against the sender's; `moved_ms` is the difference between the two most different
    hours.
    """

    ms: float
    error_ms: float
    moved_ms: float = 0.0


class Slo(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a pair met its objective, the reason in words, and about how many deliveries exceeded its `fail`."""

    verdict: Verdict
    reason: str
    late: int = 0


class OpenGap(msgspec.Struct, frozen=True, kw_only=True):
    """The oldest pending, missing or disputed event: when it was observed, and its age at the end of the ledger.

    `since` is rounded down to the minute, `seconds` is from then to the end of the sender's ledger.
    """

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
    """What proves deliveries: `books`, which stands for the peer's ledger, its `receipts`, or the sender's `claims`."""
    proven_until: str | None = None
    """If the peer's ledger is the proof: the time up to which the ledgers of source, senders and peer are complete."""
    receipts_after: int = 0
    """The number of deliveries after the end of the peer's ledger that this ledger does not show, but the peer's
    verified receipts prove."""
    claims_after: int = 0
    """The number of other deliveries after the end of the peer's ledger that this ledger does not show: only the
    sender claims them."""
    claimed: int = 0
    """The maximum number of the `delivered` events that only the sender claims: no ledger of the peer holds them, and
    no proven receipt counts them, or their receipts are no longer kept."""
    notes: tuple[str, ...] = ()
    """Reasons why deliveries are unproven."""
    receiver: Literal["node", "callback"] = "node"
    """What `peer` is: a node, or a callback, whose endpoint keeps no ledger and gives no receipts."""


class Hour(Figures, kw_only=True):
    """The figures of one pair, one type of event, and one hour by the events' own times, which starts at `hour`."""

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
    """One node as the lake shows it. `rows` counts rows per ledger; `states` is by link (`group/peer`)."""

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
    signed_at: str | None = None
    """The time of its last report, if it signed what it wrote to the lake, and all of it is as it was."""
    skew: Skew | None = None
    """The offset of its clock to the reference clock, by which `proven_until` is given; None if unknown."""


class TreeReport(msgspec.Struct, frozen=True, kw_only=True):
    """A tree of a node, and how far the rows in the lake are proven to be what the node signed."""

    group: str
    node: str
    tree: str
    size: int
    """The size of its largest checkpoint in the lake."""
    proven: int
    """The size of the largest checkpoint whose root follows from the rows; 0: none."""
    checkpoints: int
    signed_at: str
    """The time of the largest checkpoint."""
    root: str
    key: Literal["pinned", "other", "unverified"]
    """`pinned`: the policy has the key of the tree; `other`: it has another one; `unverified`: it has none."""


class LostSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A span of time in which events were or may have been lost.

    `kind` is `missing` (events that a peer should hold), or `declared` (a loss declared by a node, with its `reason`;
    `since` and `until` are when it was recorded, and `events` is the length of the lost range of positions, or of row
    numbers if the reason ends with `_forgotten`).
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
    """The number of requests of one group that a node signed with one key, and when it did so first and last."""

    node: str
    group: str
    key_id: str
    protocol: str
    requests: int
    first: str
    last: str


class RefusedByReason(msgspec.Struct, frozen=True, kw_only=True):
    """The number of requests that a node refused for one reason, and when. `peer` is the sender that they named."""

    node: str
    group: str
    peer: str
    reason: str
    count: int
    first: str
    last: str


class Receipts(msgspec.Struct, frozen=True, kw_only=True):
    """The receipts with one signature algorithm; empty stands for protocol v1, which signs no receipts.

    Each of the `checked` is `verified` by its signature, `invalid`, or `unverifiable`: its key was not given.
    """

    algorithm: str
    count: int
    checked: int = 0
    verified: int = 0
    invalid: int = 0
    unverifiable: int = 0
    proves_to_others: bool
    """Whether every one of the receipts is verified, with a key that anyone may have."""
    note: str


class ReceiptCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The check of all receipts: for `checked`, `verified`, `invalid` and `unverifiable` see `Receipts`.

    `percent` of the receipts were to be checked; `keys` (GROUP/ID) were given. `copies` are what peers keep of the
    receipts that they gave: unsigned, so that only their texts, digests and rows are compared.
    """

    percent: float = 0.0
    keys: tuple[str, ...] = ()
    count: int = 0
    checked: int = 0
    verified: int = 0
    shared: int = 0
    """Those of the verified ones whose secret the sender has, too: either end could have written them."""
    invalid: int = 0
    unverifiable: int = 0
    copies: int = 0
    copies_checked: int = 0
    copies_invalid: int = 0
    statement: str = ""
    """The result in one sentence, as in the headline; empty without receipts."""


class Limitation(msgspec.Struct, frozen=True, kw_only=True):
    """Something that limits the verdict without being a finding: its kind, the node or segment, the reason, and the
    next step."""

    kind: str
    where: str
    message: str
    hint: str = ""


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is not a fault: events that an operator had sent again, a link that an operator seems to have
    deleted, or nodes whose silence is noticed late or never."""

    kind: str
    group: str
    source: str
    peer: str
    events: int
    message: str


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The requested audit. `slo` has the objectives in seconds per group; '' is the default of all other groups.

    A node that does not report for `patience` seconds, or 3 shipping intervals if longer, counts as silent. `recheck`
    is the percentage, by bytes, of known segments whose digests were to be checked again. `receipts` is the percentage
    of the receipts that were to be checked, `keys` (GROUP/ID) those to verify them with.
    """

    slo: dict[str, dict[str, int]]
    fail_on: tuple[str, ...] = ()
    since: str | None = None
    until: str | None = None
    master: str = ""
    incremental: bool = True
    patience: float = 0.0
    recheck: float = 0.0
    receipts: float = 0.0
    digests: float = 0.0
    keys: tuple[str, ...] = ()
    out: str = ""
    memory: str = ""
    access: str = ""
    baseline: str = ""
    """The folder of the earlier report that the findings are compared with."""
    count_acknowledged: bool = False
    """Whether acknowledged findings count for the conditions on which the audit fails."""
    signing_key: str = ""
    """The pin of the key that the report is signed with; empty if it is not signed."""
    table_format: str = "parquet"
    time_zone: str = "UTC"
    """The time zone of the times on the page and in the summary; those of report.json are in UTC."""
    without_ledgers: tuple[str, ...] = ()
    """The nodes that the operator declares to ship no ledgers."""
    history: float = 0.0
    """The percentage of the full tiles of trees that were to be computed from rows."""
    policy: tuple[str, ...] = ()
    """The names of the keys of trees that the auditor's policy has."""


class Lake(msgspec.Struct, frozen=True, kw_only=True):
    """The lake that was read: its address, and all its segments, with their rows and bytes, of any period."""

    url: str
    segments: int
    rows: int
    bytes: int
    schema: int
    id: str = ""
    """The random id of the lake, from its head."""
    state: str = ""
    """The SHA-256 of the inventory: all states and manifests that the audit read, with their digests."""
    signatures: Literal["none"] = "none"
    """The signatures of manifests and states: `none`, so write access to the lake suffices to write any ledger."""


class Period(msgspec.Struct, frozen=True, kw_only=True):
    """The period of the lake's events, by their own times, to the minute, within the requested hours; None if empty."""

    first: str | None = None
    last: str | None = None


class Work(msgspec.Struct, kw_only=True):
    """What an audit did: segments it read, those it reused from earlier runs, and its seconds, in all and per stage.

    `segments_rechecked` segments of earlier runs had their digests checked again; `oldest_read` is the earliest time at
    which a segment was last read or checked, None if this run read or checked all. `digests_checked` events had their
    contents compared with their digests, now or by earlier runs.
    """

    segments_read: int = 0
    segments_known: int = 0
    segments_rechecked: int = 0
    oldest_read: str | None = None
    rows_read: int = 0
    rows_compared: int = 0
    digests_checked: int = 0
    seconds: float = 0.0
    stages: dict[str, float] = msgspec.field(default_factory=dict)
    spark: str = ""
    version: str = ""


class Report(msgspec.Struct, kw_only=True):
    """The report of an audit: its verdict, totals, pairs, findings and hours."""

    schema: int = SCHEMA
    made_at: str
    verdict: Literal["complete", "incomplete", "unproven"]
    """complete: each due event is delivered, by the ledgers of both ends or, for `totals.claimed` of them, by the
    sender's claim alone, and there are no findings; incomplete: there are findings; unproven: there are no findings,
    but the ledgers do not reach far enough to judge each event."""
    headline: tuple[str, ...]
    """The verdict in a few sentences."""
    failed: tuple[str, ...] = ()
    """The conditions of `settings.fail_on` that are met."""
    lake: Lake
    proven_until: str | None = None
    """Up to when the ledgers of all nodes are complete, by the reference clock; None if unknown."""
    period: Period
    settings: Settings
    totals: Totals
    findings: tuple[Finding, ...]
    pairs: tuple[Pair, ...]
    hours: tuple[Hour, ...]
    hours_left_out: int = 0
    """The number of rows of the table `hours` that do not fit in `hours`."""
    nodes: tuple[NodeReport, ...]
    trees: tuple[TreeReport, ...] = ()
    gaps: tuple[LostSpan, ...] = ()
    keys: tuple[KeyUse, ...] = ()
    refusals: tuple[RefusedByReason, ...] = ()
    receipts: tuple[Receipts, ...] = ()
    receipt_check: ReceiptCheck = ReceiptCheck()
    notices: tuple[Notice, ...] = ()
    baseline: Baseline | None = None
    """The comparison with an earlier report, if one was given."""
    acknowledgements: tuple[AcknowledgementUse, ...] = ()
    """The acknowledgements of the lake that are in force."""
    troubles: tuple[Limitation, ...] = ()
    work: Work = msgspec.field(default_factory=Work)


def to_json(report: Report) -> bytes:
    """Return the content of report.json, indented by two, with invisible characters as escapes."""
    text = msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"
    return spelled_out(text.decode()).encode()
