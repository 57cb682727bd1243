"""The Prometheus metrics of a node. Label names are a closed list, so that the number of series is bounded.

Counters that alerts watch begin at 0 before anything is counted: Prometheus sees no increase in a series that appears
with its first count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest

from eventd.lake.metrics import LakeFigures
from eventd.observe.callback_figures import CallbackFigures
from eventd.observe.consumer_figures import LAGS, LINK_STATES
from eventd.observe.routemaster_figures import RoutemasterFigures
from eventd.observe.stream_figures import StreamMetrics
from eventd.observe.subscription_figures import SubscriptionFigures
from eventd.observe.trace_figures import TraceFigures, exemplar
from eventd.observe.traffic import Traffic

METRICS_CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
TASK_FAILURES = ("ended", "restarted", "fatal")
"""The values of `Failure`: what happens after a task has failed."""
LABELS = (
    *("group", "peer", "subscription", "callback", "event_type", "status", "reason", "state", "book"),
    *("owner", "owner_key", "source", "key"),
    *("subscriber", "topic", "publisher", "queue", "type"),  # of the Routemaster surface: handles and names of topics
    *("kind", "result", "direction", "form", "op"),  # of streams over QUIC and of the cache: fixed words
)
"""All allowed label names. Event ids, subjects or error texts as labels would create series without limit."""

_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_COUNTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


_LabelsT = TypeVar("_LabelsT", bound=tuple[str, ...])
_Shown = dict[str, set[tuple[str, ...]]]
"""Which gauges of a family there are for each group, by the values of their other labels."""


class Metrics:
    """The metrics of one process of a node. Each instance has its own registry."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series beside every counter
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._receiving()
        self._sending()
        self.subscriptions = SubscriptionFigures(self.registry)
        self._storing()
        self._retaining()
        self.lake = LakeFigures(self.registry)
        self.callbacks = CallbackFigures(self.registry)
        self.routemaster = RoutemasterFigures(self.registry)
        self.streams = StreamMetrics(self.registry)
        TraceFigures(self.registry)
        self.traffic = Traffic()

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"routerd_eventd_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"routerd_eventd_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(f"routerd_eventd_{name}", text, labels, buckets=buckets, registry=self.registry)

    def _receiving(self) -> None:
        self._accepted = self._counter(
            "receiver_accepted_total", "Events from peers: new, or refreshes over v2.", "group"
        )
        self._duplicate = self._counter("receiver_duplicate_total", "Events answered as duplicates to peers.", "group")
        self._reject = self._counter(
            "receiver_reject_total", "Requests and events from peers that were refused.", "group", "reason"
        )
        self._conflicts = self._gauge(
            "id_conflicts",
            "Events not stored because another event has their id; counts go `batch_retention` after the last one.",
            *("group", "owner", "owner_key", "source", "key"),
        )
        self._conflicting: _Shown = {}
        self._batches = self._counter(
            "receiver_batches_total", "Batches, and events over v1, answered with 200.", "group"
        )
        self._v1 = self._counter("receiver_v1_requests_total", "Requests over v1 with a valid, signed event.", "group")
        self._v2 = self._counter("receiver_v2_requests_total", "Requests over v2 with verified head and body.", "group")
        self._connections = self._gauge("listener_connections", "Open connections of a listener or the API.", "group")
        self._turned_away = self._counter(
            "listener_turned_away_total",
            "Connections that this node refused or aborted: displaced by others, full (peers and clients with a key"
            " held all), slow_head, vanished (the other end acknowledged nothing for 60 s), tls… (TLS failed, or only"
            " one side speaks it); over the local socket, local_full, local_slow_head, and local_other_user for a user"
            " who may not use it.",
            "group",
            "reason",
        )
        self._actions = self._counter(
            "actions_total",
            "Requests for actions by result: ok, failed, refused (no valid key, or one without the scope or for other"
            " names), repeated (answered with the first answer).",
            "result",
        )
        self._jobs = self._gauge("jobs", "Bulk jobs by state; finished ones are deleted after a week.", "state")
        self._job_steps = self._counter(
            "job_steps_total", "Steps of bulk jobs: done, or failed and tried again.", "result"
        )
        self._publishing = self._gauge("publish_connections", "Open connections over which programs publish to groups.")
        self._published = self._counter(
            "published_events_total",
            "Events that programs published over such connections: new, refreshed, duplicate, conflict, or refused with"
            " their message.",
            "result",
        )
        self._local = self._gauge("local_socket_connections", "Open connections over the local socket.")

    def _sending(self) -> None:
        self._delivery = self._counter(
            "outbox_delivery_total",
            "Events that a peer has acknowledged or refused; lost: at most this many events were evicted before the"
            " link reached them.",
            "group",
            "peer",
            "status",
        )
        self._sent = self._counter(
            "outbox_delivered_bytes_total", "Bytes of the batches that a peer has acknowledged.", "group", "peer"
        )
        self._attempts = self._counter(
            "outbox_delivery_attempts_total", "Attempts to deliver a batch.", "group", "peer"
        )
        self._failures = self._counter(
            "outbox_failures_total", "Failed attempts to open a link or to deliver a batch.", "group", "peer", "reason"
        )
        self._lag = self._histogram(
            "outbox_delivery_lag_seconds",
            "Seconds from recording a batch's oldest event at this node to the peer's acknowledgement, once per batch.",
            LAGS,
            "group",
            "peer",
        )
        self._state = self._gauge("link_state", "1 for the state a link is in.", "group", "peer", "state")
        self._lag_events = self._gauge("link_lag_events", "Records that wait for a peer.", "group", "peer")
        self._lag_seconds = self._gauge(
            "link_lag_seconds",
            "Seconds for which the oldest record that waits for a peer has waited.",
            "group",
            "peer",
        )
        self._held = self._gauge("outbox_held_bytes", "Bytes of outbound batches in memory.")
        self._waiting = self._gauge("outbox_waiting_links", "Links that wait for memory for a batch.")
        self._status = self._counter(
            "status_queries_total",
            "Questions to peers for their links, by how they ended.",
            "group",
            "result",
        )
        self._slo = self._gauge(
            "slo_lag_seconds",
            "The objectives of a group's FederationSLO, or the defaults: seconds after which a delivery is late"
            " (`warn`), or too late (`fail`).",
            "group",
            "kind",
        )
        self._skew = self._gauge("peer_clock_skew_seconds", "The peer's clock minus this node's.", "group", "peer")

    def _retaining(self) -> None:
        self._retention_waiting = self._gauge(
            "retention_waiting_events",
            "Events over the limits of a group that retention keeps until peers or callbacks have passed them, or until"
            " they are in a checkpoint (sealing); upper bounds.",
            "group",
            "reason",
        )
        self._retained_for: _Shown = {}

    def _storing(self) -> None:
        self._head = self._gauge("log_head_position", "The last assigned position.")
        self._records = self._gauge("topic_records", "Records stored.", "group")
        self._bytes = self._gauge("topic_bytes", "Bytes of the events stored.", "group")
        self._pruned = self._counter("pruner_pruned_total", "Records removed by retention.", "group")
        self._commit = self._histogram("commit_duration_seconds", "Seconds of one transaction of the writer.", _SECONDS)
        self._grouped = self._histogram("commit_records", "Records of one transaction of the writer.", _COUNTS)
        self._in_loop = self._counter(
            "commits_in_loop_total", "Transactions of the writer that ran in the thread of the event loop."
        )
        self._history_size = self._gauge("history_size", "Leaves of a group's tree that are in a checkpoint.", "group")
        self._history_lag = self._gauge(
            "history_seal_lag_seconds", "How long the first record of the last checkpoint had waited for it.", "group"
        )
        self._history_tiles = self._gauge("history_tile_bytes", "Bytes of the hashes of a group's trees.", "group")
        self._history_cosignatures = self._counter(
            "history_cosignatures_total",
            "Answers of peers to offered checkpoints: cosigned, or why not.",
            *("group", "peer", "result"),
        )
        self._history_pulls = self._counter(
            "history_tile_pulls_total",
            "Answers of peers with tiles of trees that this node relays: stored, or refused.",
            *("group", "peer", "result"),
        )
        self._history_verified = self._counter(
            "history_verified_total",
            "Events of other nodes that were compared with the trees of those nodes: verified, refuted, or unproven.",
            *("group", "result"),
        )
        self._history_waiting = self._gauge(
            "history_waiting_events", "Events of other nodes that wait for their check; 10,000: at least.", "group"
        )
        self._history_ages = self._gauge(
            "history_witnessed_age_seconds",
            "How long a peer has not cosigned what was signed; 0: it has cosigned the last checkpoint.",
            *("group", "peer"),
        )
        self._history_aged: _Shown = {}
        self._history_findings = self._counter(
            "history_findings_total", "New findings about histories: fork, rolled_back, …", "group", "kind"
        )
        self._standby = self._gauge("standby", "1 while another process serves the database, and this one waits.")
        self._certificates = self._gauge(
            "certificate_expiry_timestamp_seconds",
            "Unix time at which a certificate of this node expires: the API's (no labels), a listener's (group), or the"
            " one shown to a peer.",
            *("group", "peer"),
        )
        self._task_failures = self._counter(
            "task_failures_total", "Tasks that failed, by what happened then.", "status"
        )
        for status in TASK_FAILURES:
            self._task_failures.labels(status)
        self._wal = self._gauge("sqlite_wal_bytes", "Size of SQLite's write-ahead log.")

    def accepted(self, group: str, node: str, new: int, duplicates: int) -> None:
        """Count a batch of the peer `node`, or an event over v1: its new events, and those answered as duplicates."""
        self.traffic.received(group, node, new)
        self._batches.labels(group).inc()
        self._accepted.labels(group).inc(new)
        self._duplicate.labels(group).inc(duplicates)

    def refused(self, group: str, reason: str, count: int = 1) -> None:
        """Count a refused request, or `count` refused events of a batch."""
        self._reject.labels(group, reason).inc(count)

    def verified(self, group: str, protocol: str) -> None:
        """Count a verified request: over `protocol` v1, its signature and event; over v2, its head and body."""
        (self._v1 if protocol == "v1" else self._v2).labels(group).inc()

    def id_conflicts(self, group: str, times: Mapping[tuple[str, str, str, str], int]) -> None:
        """Set the numbers of id conflicts of a group, by owner, owner's key, source and key.

        The gauges of the group for all other combinations are removed.
        """
        _set_only(self._conflicts, self._conflicting, group, times)

    def connections(self, group: str, count: int | None) -> None:
        """Set a listener's number of open connections, the API's for an empty `group`; None removes the gauge."""
        if count is None:
            self._connections.remove(group)
        else:
            self._connections.labels(group).set(count)
            self._turned_away.labels(group, "full")

    def open_connections(self) -> dict[str, int]:
        """Return the numbers of open connections by kind. Those of `publish` are among those of `api` and `local`."""
        found = {"api": 0, "peers": 0}
        for sample in [sample for metric in self._connections.collect() for sample in metric.samples]:
            group = sample.labels["group"]
            kind = "peers" if group and not group.startswith("(") else group.strip("()") or "api"
            found[kind] = found.get(kind, 0) + int(sample.value)
        others = {"local": "local_socket", "publish": "publish", "quic": "stream"}
        for kind, name in others.items():
            found[kind] = int(self.registry.get_sample_value(f"routerd_eventd_{name}_connections") or 0)
        return found

    def publish_connections(self, count: int) -> None:
        """Set the number of open connections over which programs publish."""
        self._publishing.set(count)

    def published(self, results: Mapping[str, int]) -> None:
        """Count events that were published over such a connection, by result: a short fixed word."""
        for result, count in results.items():
            if count:
                self._published.labels(result).inc(count)

    def local_connections(self, count: int) -> None:
        """Set the number of open connections over the local socket."""
        self._local.set(count)

    def turned_away(self, group: str, reason: str) -> None:
        """Count a connection that this node refused or aborted; `reason` is a short fixed word."""
        self._turned_away.labels(group, reason).inc()

    def action(self, result: str) -> None:
        """Count a request for an action; `result` is a short fixed word."""
        self._actions.labels(result).inc()

    def jobs(self, states: Mapping[str, int]) -> None:
        """Set the number of bulk jobs in each state."""
        for state, count in states.items():
            self._jobs.labels(state).set(count)

    def job_step(self, result: str) -> None:
        """Count a step of a bulk job; `result` is a short fixed word."""
        self._job_steps.labels(result).inc()

    def certificate(self, group: str, peer: str, expires: float | None) -> None:
        """Set when a certificate expires, in seconds since 1970; None removes the gauge."""
        if expires is None:
            self._certificates.remove(group, peer)
        else:
            self._certificates.labels(group, peer).set(expires)

    def alive(self, group: str, node: str) -> None:
        """Do nothing; `NodeMetrics` learns here that a peer is up, because it sent a new request, not a replay."""

    def started(self, group: str, node: str) -> None:
        """Do nothing; `NodeMetrics` learns here that a peer asked for its mark, perhaps after a restart."""

    def delivered(self, group: str, peer: str, count: int, size: int, lag: float) -> None:
        """Count an attempt in which a peer acknowledged `count` events in batches of `size` bytes.

        `lag`: the seconds since the oldest event of the batch was recorded at this node.
        """
        self._attempts.labels(group, peer).inc()
        self._delivery.labels(group, peer, "delivered").inc(count)
        self._sent.labels(group, peer).inc(size)
        self.traffic.delivered(group, peer, count, size)
        self._lag.labels(group, peer).observe(lag, exemplar())

    def outbox(self, held: Callable[[], int], waiting: Callable[[], int]) -> None:
        """Set the functions that return the bytes of outbound batches in memory, and how many links wait for memory."""
        self._held.set_function(held)
        self._waiting.set_function(waiting)

    def rejected(self, group: str, peer: str, count: int) -> None:
        """Count events that a peer refused permanently."""
        self._delivery.labels(group, peer, "refused").inc(count)

    def lost(self, group: str, peer: str, most: int) -> None:
        """Count events that retention evicted before a link reached them, of which there are `most` or fewer."""
        self._delivery.labels(group, peer, "lost").inc(most)

    def failed(self, group: str, peer: str, reason: str) -> None:
        """Count a failed attempt to deliver; `reason` is a short fixed word."""
        self._attempts.labels(group, peer).inc()
        self._failures.labels(group, peer, reason).inc()

    def not_opened(self, group: str, peer: str, reason: str) -> None:
        """Count a failed attempt to open a link, before any delivery; `reason` is a short fixed word."""
        self._failures.labels(group, peer, reason).inc()

    def status_asked(self, group: str, result: str) -> None:
        """Count a question to a peer for its links; `result` is a short fixed word."""
        self._status.labels(group, result).inc()

    def skewed(self, group: str, peer: str, seconds: float) -> None:
        """Set by how many seconds a peer's clock is ahead of this node's."""
        self._skew.labels(group, peer).set(seconds)

    def link(self, group: str, peer: str, *, state: str, lag_events: int, lag_seconds: float) -> None:
        """Set the state of the link to a peer, how many events wait for it, and for how many seconds the oldest has."""
        self._delivery.labels(group, peer, "refused")
        self._delivery.labels(group, peer, "lost")
        for known in LINK_STATES:
            self._state.labels(group, peer, known).set(known == state)
        self._lag_events.labels(group, peer).set(lag_events)
        self._lag_seconds.labels(group, peer).set(lag_seconds)
        self.traffic.lag(group, peer, lag_seconds)

    def objectives(self, group: str, *, warn: int, fail: int) -> None:
        """Set the lag in seconds from which a delivery of a group counts as a warning, and as a failure."""
        self._slo.labels(group, "warn").set(warn)
        self._slo.labels(group, "fail").set(fail)

    def forget_link(self, group: str, peer: str) -> None:
        """Remove the gauges of a peer that is no longer declared, so that an alert on its last state ends."""
        for known in LINK_STATES:
            self._state.remove(group, peer, known)
        for gauge in (self._lag_events, self._lag_seconds, self._skew):
            gauge.remove(group, peer)
        self.traffic.lag(group, peer, None)

    def head(self, position: int) -> None:
        """Set the last position of the log."""
        self._head.set(position)

    def topic(self, group: str, *, records: int, size: int) -> None:
        """Set the stored records and bytes of a group."""
        self._reject.labels(group, "full")
        self._records.labels(group).set(records)
        self._bytes.labels(group).set(size)

    def forget_topic(self, group: str) -> None:
        """Remove the gauges of a group that is no longer declared."""
        self._records.remove(group)
        self._bytes.remove(group)
        self.retention_waiting(group, {})
        for kind in ("warn", "fail"):
            self._slo.remove(group, kind)
        self.forget_history(group)
        self.history_tiles(group, 0)
        self.history_waiting(group, None)
        self.id_conflicts(group, {})

    def pruned(self, group: str, records: int) -> None:
        """Count records that retention evicted."""
        self._pruned.labels(group).inc(records)

    def retention_waiting(self, group: str, events: Mapping[str, int]) -> None:
        """Set how many events over the limits of a group retention keeps, by what it waits for, and nothing else."""
        counts = {(reason,): count for reason, count in events.items()}
        _set_only(self._retention_waiting, self._retained_for, group, counts)

    def history(self, group: str, *, size: int, lag: float) -> None:
        """Set the size of a group's tree, and how long its last checkpoint took to come (seconds)."""
        self._history_size.labels(group).set(size)
        self._history_lag.labels(group).set(lag)

    def forget_history(self, group: str) -> None:
        """Remove the gauges of a group's open tree and of its witnesses: its history is not kept any more."""
        self._history_size.remove(group)
        self._history_lag.remove(group)
        self.history_witnessed(group, {})

    def history_tiles(self, group: str, size: int) -> None:
        """Set the bytes of the hashes of a group's trees; a group that has none has no gauge."""
        if size:
            self._history_tiles.labels(group).set(size)
        else:
            self._history_tiles.remove(group)

    def history_cosigned(self, group: str, peer: str, result: str) -> None:
        """Count the answer of a peer to an offered checkpoint."""
        self._history_cosignatures.labels(group, peer, result).inc()

    def history_pulled(self, group: str, peer: str, result: str) -> None:
        """Count the answer of a peer that was asked for tiles."""
        self._history_pulls.labels(group, peer, result).inc()

    def history_verified(self, group: str, result: str, events: int) -> None:
        """Count events that were compared with the trees of their nodes."""
        self._history_verified.labels(group, result).inc(events)

    def history_waiting(self, group: str, events: int | None) -> None:
        """Set how many events of other nodes wait for their check; None: they are not checked."""
        if events is None:
            self._history_waiting.remove(group)
        else:
            self._history_waiting.labels(group).set(events)

    def history_witnessed(self, group: str, ages: Mapping[str, float]) -> None:
        """Set for how many seconds each peer has not cosigned what was signed; others have no gauge."""
        _set_only(self._history_ages, self._history_aged, group, {(peer,): age for peer, age in ages.items()})

    def history_found(self, group: str, kind: str) -> None:
        """Count a new finding about a history."""
        self._history_findings.labels(group, kind).inc()

    def committed(self, seconds: float, records: int, in_loop: bool = False) -> None:
        """Count a transaction of the node's writer, its seconds and records, and whether it ran in the loop."""
        self._commit.observe(seconds, exemplar())
        self._grouped.observe(records)
        if in_loop:
            self._in_loop.inc()

    def standing_by(self) -> None:
        """Set the gauge `standby`: another process serves the database and this one waits."""
        self._standby.set(1)

    def task_failed(self, status: str) -> None:
        """Count a failed task; `status` is a value of `Failure`: what happened after the failure."""
        self._task_failures.labels(status).inc()

    def wal(self, size: int) -> None:
        """Set the size of SQLite's write-ahead log in bytes."""
        self._wal.set(size)

    def render(self) -> bytes:
        """Return all metrics in the Prometheus text format, `METRICS_CONTENT_TYPE`."""
        return generate_latest(self.registry)


def _set_only(family: Gauge, shown: _Shown, group: str, values: Mapping[_LabelsT, float]) -> None:
    """Set the gauges of a group by the values of their other labels, and remove those that are left out."""
    for gone in sorted(shown.pop(group, set()) - values.keys()):
        family.remove(group, *gone)
    for labels, value in values.items():
        family.labels(group, *labels).set(value)
    shown[group] = set(values)
