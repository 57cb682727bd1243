"""The figures of topics: gathered when they are asked for, told as text for Prometheus or as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import accumulate
from typing import Any, NamedTuple

from eventd.api.framework.auth import ApiKey
from eventd.api.topics.routes import V0
from eventd.api.topics.sessions import Sessions
from eventd.log.core.writer_stats import BOUNDS, WriterStats
from eventd.log.topics.state import TopicFigures, TopicState, list_states, read_figures
from eventd.runtime.clock import Moment

TEXT = "text/plain; version=0.0.4; charset=utf-8"
CLASSES = ("ephemeral", "memory", "disk", "fsync")
MAX_TOPICS = 1000
"""Topics that have figures of their own; of more than these, the first by name."""


class Gathered(NamedTuple):
    """All figures at one time, as far as a key may see them."""

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


async def gather(v0: V0, key: ApiKey) -> Gathered:
    """Read the books. Whoever is held to some names gets the sums of these alone."""
    at = Moment.of(v0.clock)
    topics, truncated = await v0.database.read(
        list_states, prefixes=key.prefixes, prefix="", after="", limit=MAX_TOPICS, at=at
    )
    topics = [state for state in topics if not state.line.of_group]
    figures = _sum(topics) if key.prefixes else await v0.database.read(read_figures)
    return Gathered(
        figures,
        topics,
        truncated,
        0 if key.prefixes else v0.occupancy.streams.taken,
        0 if key.prefixes else len(v0.part(Sessions)),
        all(told == "ok" for told in (await v0.siblings.readiness()).values()),
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


def as_json(told: Gathered) -> dict[str, Any]:
    """As one object."""
    figures = told.figures
    return {
        "topics": sum(figures.by_class.values()),
        **{f"topics_{name}": figures.by_class.get(name, 0) for name in CLASSES},
        "routers": figures.routers,
        "records_live": figures.records,
        "bytes_live": figures.bytes,
        "queue_topics": figures.queues,
        "queue_leases_in_flight": figures.leases,
        "sse_connections": told.streams,
        "watch_sessions": told.sessions,
        "ready": told.ready,
        "replay_progress": 1.0,
        "uptime_ms": told.uptime_ms,
        "wal": {
            "fsyncs": told.work.flushes,
            "frames": told.work.records,
            "batches": told.work.transactions,
            "bytes_written": told.work.bytes,
            "rotations": told.restarts,
            "queue_depth": told.waiting,
            "queue_depth_peak": told.work.waiting_peak,
            "submit_full_total": 0,
            "read_only": told.work.failing,
            "fsync_count": told.work.flushes,
            "fsync_micros_total": told.work.flush_micros,
        },
    }


def as_text(told: Gathered) -> bytes:
    """In Prometheus' text format."""
    return "".join([*_totals(told), *_flushes(told.work), *_of_topics(told)]).encode()


def _totals(told: Gathered) -> Iterator[str]:
    figures = told.figures
    yield _family("topics", "gauge", "Topics that hold records.", {"": sum(figures.by_class.values())})
    by_class = {f'{{class="{name}"}}': figures.by_class.get(name, 0) for name in CLASSES}
    yield _family("topics_by_class", "gauge", "Topics by durability.", by_class)
    single = (
        ("routers", "gauge", "Routers.", figures.routers),
        ("records_live", "gauge", "Records stored.", figures.records),
        ("bytes_live", "gauge", "Bytes of data and meta stored.", figures.bytes),
        ("queue_topics", "gauge", "Topics that are queues.", figures.queues),
        ("queue_leases_in_flight", "gauge", "Jobs that are claimed.", figures.leases),
        ("sse_connections", "gauge", "Streams that are open.", told.streams),
        ("watch_sessions", "gauge", "Sessions of watchers.", told.sessions),
        ("ready", "gauge", "1 when the node is ready.", int(told.ready)),
        ("recovery_progress", "gauge", "1: a node listens only when its log is open.", 1),
        ("uptime_ms", "gauge", "Milliseconds since the node began to serve.", told.uptime_ms),
        ("wal_batches_total", "counter", "Writing transactions.", told.work.transactions),
        ("wal_frames_total", "counter", "Records written, those of groups among them.", told.work.records),
        ("wal_bytes_written_total", "counter", "Bytes of them.", told.work.bytes),
        ("wal_fsyncs_total", "counter", "Transactions that waited for the disk.", told.work.flushes),
        ("wal_rotations_total", "counter", "Times SQLite's write-ahead log began anew.", told.restarts),
        ("wal_queue_depth", "gauge", "What waits to be written.", told.waiting),
        ("wal_queue_depth_peak", "gauge", "The most that ever waited.", told.work.waiting_peak),
        ("wal_submit_full_total", "counter", "Always 0: nothing is refused because much waits.", 0),
        ("wal_read_only", "gauge", "1 when the last transaction failed as a whole.", int(told.work.failing)),
        ("topic_metrics_truncated", "gauge", "1 when some topics have no figures below.", int(told.truncated)),
    )
    for name, kind, text, value in single:
        yield _family(name, kind, text, {"": value})


def _flushes(work: WriterStats) -> Iterator[str]:
    """How long flushes took."""
    name = "wal_fsync_latency_us"
    within = zip((*map(str, BOUNDS), "+Inf"), accumulate(work.flushes_within), strict=True)
    values = {f'_bucket{{le="{bound}"}}': count for bound, count in within}
    values |= {"_sum": work.flush_micros, "_count": work.flushes}
    yield _family(name, "histogram", "Microseconds that commits took which waited for the disk.", values)


def _of_topics(told: Gathered) -> Iterator[str]:
    labels = [(f"{{topic={json.dumps(state.line.name)}}}", state) for state in told.topics]
    yield _family("topic_head_seq", "gauge", "The last seq given.", {at: s.line.head_seq for at, s in labels})
    earliest = {at: state.standing.earliest_seq for at, state in labels}
    yield _family("topic_earliest_seq", "gauge", "The first live seq.", earliest)
    yield _family("topic_records_live", "gauge", "Records stored.", {at: s.standing.count for at, s in labels})
    yield _family("topic_bytes_live", "gauge", "Bytes stored.", {at: s.standing.bytes for at, s in labels})
    jobs = [(at, state.jobs) for at, state in labels if state.jobs is not None]
    yield _family("topic_queue_ready", "gauge", "Jobs to be claimed.", {at: each.ready for at, each in jobs})
    yield _family("topic_queue_in_flight", "gauge", "Jobs claimed.", {at: each.in_flight for at, each in jobs})


def _family(name: str, kind: str, text: str, values: dict[str, int]) -> str:
    lines = [f"# HELP topics_{name} {text}", f"# TYPE topics_{name} {kind}"]
    return "\n".join([*lines, *(f"topics_{name}{at} {value}" for at, value in values.items()), ""])
