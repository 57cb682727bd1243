"""Metrics of topics, gathered on request, as text for Prometheus or as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any, NamedTuple

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from eventd.api.errors.problems import success
from eventd.api.framework.models import NoQuery
from eventd.api.keys.api_key import ApiKey
from eventd.api.topics.calls import V0, Call
from eventd.api.topics.sessions import Sessions
from eventd.log.core.writer_stats import BOUNDS, WriterStats
from eventd.log.topics.state import TopicFigures, TopicState, list_states, read_figures
from eventd.observe.metrics import METRICS_CONTENT_TYPE
from eventd.runtime.clock import Moment

CLASSES = ("ephemeral", "memory", "disk", "fsync")
MAX_TOPICS = 1000
"""Maximum number of topics with metrics of their own: the first in order of name."""


class TopicMetrics(NamedTuple):
    """The values of all metrics, as far as a key may read them; of streams, sessions and writes, this process's."""

    figures: TopicFigures
    topics: list[TopicState]
    truncated: bool
    streams: int
    sessions: int
    ready: bool
    uptime_ms: int
    work: WriterStats
    waiting: int
    restarts: int


async def show_metrics(call: Call[NoQuery, None]) -> web.Response:
    """Return the metrics of topics: as JSON if the client accepts it, else as text for Prometheus."""
    figures = await gather(call.v0, call.key)
    if "application/json" in call.request.headers.get("Accept", ""):
        return success(as_json(figures))
    return web.Response(body=as_text(figures), headers={"Content-Type": METRICS_CONTENT_TYPE})


async def gather(v0: V0, key: ApiKey) -> TopicMetrics:
    """Read the values of all metrics; those of single topics for at most `MAX_TOPICS` that the key may access.

    A key that is limited to some names gets sums over just these topics, and 0 for routers, streams and sessions.
    """
    at = Moment.of(v0.clock)
    topics, truncated = await v0.database.read(
        list_states, prefixes=key.prefixes, prefix="", after="", limit=MAX_TOPICS, at=at
    )
    topics = [state for state in topics if not state.line.of_group]
    figures = _sum(topics) if key.prefixes else await v0.database.read(read_figures)
    return TopicMetrics(
        figures,
        topics,
        truncated,
        0 if key.prefixes else v0.serving.concurrency.streams.taken,
        0 if key.prefixes else len(v0.part(Sessions)),
        all(state == "ok" for state in (await v0.serving.workers.readiness()).values()),
        v0.uptime_ms,
        v0.log.work,
        v0.log.waiting,
        v0.database.restarts,
    )


def _sum(topics: list[TopicState]) -> TopicFigures:
    by_class = {name: sum(state.line.durability == name for state in topics) for name in CLASSES}
    jobs = [state.jobs for state in topics if state.jobs is not None]
    return TopicFigures(
        by_class,
        sum(state.standing.count for state in topics),
        sum(state.standing.bytes for state in topics),
        0,
        len(jobs),
        sum(each.in_flight for each in jobs),
    )


def as_json(gathered: TopicMetrics) -> dict[str, Any]:
    """Return the values as one JSON object, without those of single topics."""
    figures = gathered.figures
    return {
        "topics": sum(figures.by_class.values()),
        **{f"topics_{name}": figures.by_class.get(name, 0) for name in CLASSES},
        "routers": figures.routers,
        "records_live": figures.records,
        "bytes_live": figures.bytes,
        "queue_topics": figures.queues,
        "queue_leases_in_flight": figures.leases,
        "sse_connections": gathered.streams,
        "watch_sessions": gathered.sessions,
        "ready": gathered.ready,
        "replay_progress": 1.0,
        "uptime_ms": gathered.uptime_ms,
        "wal": {
            "fsyncs": gathered.work.flushes,
            "frames": gathered.work.records,
            "batches": gathered.work.transactions,
            "bytes_written": gathered.work.bytes,
            "rotations": gathered.restarts,
            "queue_depth": gathered.waiting,
            "queue_depth_peak": gathered.work.waiting_peak,
            "submit_full_total": 0,
            "read_only": gathered.work.failing,
            "fsync_count": gathered.work.flushes,
            "fsync_micros_total": gathered.work.flush_micros,
        },
    }


def as_text(gathered: TopicMetrics) -> bytes:
    """Return the values in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(_Figures(gathered))
    return generate_latest(registry)


class _Figures(Collector):
    """The values as metrics of a Prometheus registry."""

    def __init__(self, gathered: TopicMetrics) -> None:
        self._gathered = gathered

    def describe(self) -> Iterator[Metric]:
        return iter(())  # the names are constant: no check for each response

    def collect(self) -> Iterator[Metric]:
        yield from _totals(self._gathered)
        yield _flushes(self._gathered.work)
        yield from _by_topic(self._gathered)


def _gauge(name: str, text: str, values: Iterable[tuple[str, float]], label: str = "") -> Metric:
    family = GaugeMetricFamily(f"topics_{name}", text, labels=[label] if label else [])
    for labelled, value in values:
        family.add_metric([labelled] if label else [], value)
    return family


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(f"topics_{name}", text, value=value)


def _totals(gathered: TopicMetrics) -> Iterator[Metric]:
    figures, work = gathered.figures, gathered.work
    by_class = [(name, figures.by_class.get(name, 0)) for name in CLASSES]
    yield _gauge("topics", "Topics, without those of groups.", [("", sum(figures.by_class.values()))])
    yield _gauge("topics_by_class", "Topics by durability.", by_class, "class")
    for name, text, value in (
        ("routers", "Routers.", figures.routers),
        ("records_live", "Records stored.", figures.records),
        ("bytes_live", "Bytes of data and meta stored.", figures.bytes),
        ("queue_topics", "Topics that are queues.", figures.queues),
        ("queue_leases_in_flight", "Jobs that are claimed.", figures.leases),
        ("sse_connections", "Streams that are open.", gathered.streams),
        ("watch_sessions", "Watch sessions.", gathered.sessions),
        ("ready", "1 when the node is ready.", gathered.ready),
        ("recovery_progress", "1: a node listens only when its log is open.", 1),
        ("uptime_ms", "Milliseconds since the node began to serve.", gathered.uptime_ms),
    ):
        yield _gauge(name, text, [("", value)])
    for name, text, value in (
        ("wal_batches", "Writing transactions.", work.transactions),
        ("wal_frames", "Records written, including the events of groups.", work.records),
        ("wal_bytes_written", "Bytes of the records written.", work.bytes),
        ("wal_fsyncs", "Transactions that waited for the disk.", work.flushes),
        ("wal_rotations", "Restarts of SQLite's write-ahead log.", gathered.restarts),
    ):
        yield _counter(name, text, value)
    yield _gauge("wal_queue_depth", "Writes that wait for their transaction.", [("", gathered.waiting)])
    yield _gauge(
        "wal_queue_depth_peak", "The largest number of writes that have waited at one time.", [("", work.waiting_peak)]
    )
    yield _counter("wal_submit_full", "Always 0: a write is never refused for the number of waiting writes.", 0)
    yield _gauge(
        "wal_read_only",
        "1 when the last writing transaction failed with all its writes; 0 after one that succeeded.",
        [("", work.failing)],
    )
    truncated = [("", gathered.truncated)]
    yield _gauge("topic_metrics_truncated", "1 when only some topics have metrics of their own.", truncated)


def _flushes(work: WriterStats) -> Metric:
    """Return the histogram of the durations of flushed commits."""
    text = "Duration of flushed commits in microseconds."
    family = HistogramMetricFamily("topics_wal_fsync_latency_us", text)
    within = zip((*map(str, BOUNDS), "+Inf"), accumulate(work.flushes_within), strict=True)
    family.add_metric([], [*within], sum_value=work.flush_micros)
    return family


def _by_topic(gathered: TopicMetrics) -> Iterator[Metric]:
    states = [(state.line.name, state) for state in gathered.topics]
    queues = [(name, state.jobs) for name, state in states if state.jobs is not None]
    for metric, text, values in (
        ("head_seq", "The last assigned seq.", [(name, s.line.head_seq) for name, s in states]),
        (
            "earliest_seq",
            "The seq of the oldest stored record.",
            [(name, s.standing.earliest_seq) for name, s in states],
        ),
        ("records_live", "Records stored.", [(name, s.standing.count) for name, s in states]),
        ("bytes_live", "Bytes stored.", [(name, s.standing.bytes) for name, s in states]),
        ("queue_ready", "Claimable jobs.", [(name, jobs.ready) for name, jobs in queues]),
        ("queue_in_flight", "Claimed jobs.", [(name, jobs.in_flight) for name, jobs in queues]),
    ):
        yield _gauge(f"topic_{metric}", text, values, "topic")
