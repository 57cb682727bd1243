"""The board of topics, queues, callbacks, streams and the Routemaster surface."""

from __future__ import annotations

from tests.support.grafana.panels import (
    BAD,
    WARN,
    Column,
    Json,
    Row,
    board,
    stat,
    state_timeline,
    steps,
    table,
    time_series,
    variable,
)
from tests.support.grafana.queries import Query, quantile, quantiles, rate, series, state_code
from tests.support.grafana.routemaster import routemaster_row
from tests.support.grafana.streams import cache_row, streams_row

_NODE = "{{instance}}"
_CALLBACK = "instance, callback"
_HOOK = "{{instance}} {{callback}}"
_TOPIC = "{{instance}} {{topic}}"
_LATE = steps((60, WARN), (300, BAD))


def build() -> Json:
    """Return the board."""
    variables = [
        variable("instance", "Node", "routerd_eventd_log_head_position"),
        variable("callback", "Callback", 'routerd_eventd_callback_state{instance=~"$instance"}'),
        variable("topic", "Topic", 'topics_topic_records_live{instance=~"$instance"}'),
    ]
    about = "Topics, queues, callbacks, streams over QUIC, and the Routemaster surface of routerd-eventd."
    rows = [_glance(), _callbacks(), _topics(), _queues(), _writer(), streams_row(), cache_row(), routemaster_row()]
    return board("routerd-eventd-topics", "routerd-eventd: topics and callbacks", about, variables, rows)


def _glance() -> Row:
    disabled = f"sum({series('routerd_eventd_callback_disabled')}) or vector(0)"
    blocked = f"sum({series('routerd_eventd_callback_state', 'state=~blocked|failed')}) or vector(0)"
    return Row(
        "At a glance",
        [
            stat(
                "Callbacks blocked",
                "Callbacks whose endpoint refuses what the node sends, or that the node cannot send to.",
                "short",
                blocked,
                limits=steps((1, BAD)),
            ),
            stat(
                "Callbacks switched off",
                "Callbacks that the node itself has paused: they failed for disableAfter, or their"
                " endpoint answered 410.",
                "short",
                disabled,
                limits=steps((1, BAD)),
            ),
            stat(
                "Oldest event for a callback",
                "How long the oldest event waits that an endpoint has not accepted.",
                "s",
                f"max({series('routerd_eventd_callback_waiting_seconds')}) or vector(0)",
                limits=_LATE,
            ),
            stat(
                "Dead letters of callbacks",
                "Dead letters that an operator has neither retried nor dropped.",
                "short",
                f"sum({series('routerd_eventd_callback_dead_letters')}) or vector(0)",
                limits=steps((1, WARN)),
            ),
            stat(
                "Ready jobs",
                "Jobs of all queues that a worker could claim now.",
                "short",
                f"sum({series('topics_topic_queue_ready')}) or vector(0)",
            ),
            stat(
                "Writes fail",
                "Nodes whose last transaction failed: they store nothing. Right is 0.",
                "short",
                f"sum({series('topics_wal_read_only')}) or vector(0)",
                limits=steps((1, BAD)),
            ),
        ],
    )


def _callbacks() -> Row:
    def of(metric: str) -> str:
        return f"max by ({_CALLBACK}) ({series(f'routerd_eventd_callback_{metric}')})"

    deliveries = "routerd_eventd_callback_deliveries_total"
    return Row(
        "Callbacks",
        [
            state_timeline(
                "State of each callback",
                "Running, paused (by an operator or by the node), backing off, blocked by the"
                " endpoint, or failed here.",
                Query(state_code("routerd_eventd_callback_state", _CALLBACK), _HOOK),
            ),
            table(
                "Callbacks",
                "Each callback now.",
                ("instance", "callback"),
                [
                    Column("Oldest waits", of("waiting_seconds"), "s", _LATE),
                    Column("State", state_code("routerd_eventd_callback_state", _CALLBACK), "none", state=True),
                    Column("Waiting", of("waiting_events"), "short"),
                    Column("Delivered", rate(deliveries, _CALLBACK, "status=delivered"), "eps"),
                    Column("Dead letters", of("dead_letters"), "short", steps((1, WARN))),
                    Column("Switched off", of("disabled"), "short", steps((1, BAD))),
                ],
            ),
            time_series(
                "Accepted events",
                "Events a second that each endpoint has accepted.",
                "eps",
                [Query(rate(deliveries, _CALLBACK, "status=delivered"), _HOOK)],
                stacked=True,
            ),
            time_series(
                "New dead letters",
                "Events a second that became dead letters.",
                "eps",
                [Query(rate(deliveries, _CALLBACK, "status=refused"), f"{_HOOK} refused")],
            ),
            time_series(
                "Backlog",
                "Events that wait for each endpoint, counted up to 1,000.",
                "short",
                [Query(of("waiting_events"), _HOOK)],
            ),
            time_series(
                "Requests",
                "Requests a second to each endpoint.",
                "reqps",
                [Query(rate("routerd_eventd_callback_attempts_total", _CALLBACK), _HOOK)],
            ),
            time_series(
                "Requests that were not accepted",
                "By reason: the status of the answer, or why there was none.",
                "reqps",
                [
                    Query(
                        rate("routerd_eventd_callback_failures_total", f"{_CALLBACK}, reason"),
                        f"{_HOOK}: {{{{reason}}}}",
                    )
                ],
            ),
            time_series(
                "Time of a request",
                "How long endpoints take to answer.",
                "s",
                quantiles("routerd_eventd_callback_seconds"),
                log=True,
            ),
            time_series(
                "Time to acceptance, p95",
                "From recording an event to its acceptance, for each callback.",
                "s",
                [Query(quantile(0.95, "routerd_eventd_callback_lag_seconds", _CALLBACK), _HOOK)],
                width=24,
                log=True,
            ),
        ],
    )


def _topics() -> Row:
    def of(metric: str) -> str:
        return f"max by (instance, topic) ({series(f'topics_topic_{metric}')})"

    grows = f"max by (instance, topic) (deriv({series('topics_topic_head_seq')}[$__rate_interval]))"
    kept = f"max by (instance, topic) ({series('topics_topic_head_seq')} - {series('topics_topic_earliest_seq')} + 1)"
    return Row(
        "Topics",
        [
            time_series(
                "Written records",
                "Records a second of the ten topics that get most.",
                "eps",
                [Query(f"topk(10, {grows})", _TOPIC)],
            ),
            time_series(
                "Records",
                "Records of the ten topics that hold most.",
                "short",
                [Query(f"topk(10, {of('records_live')})", _TOPIC)],
            ),
            time_series(
                "Bytes",
                "Bytes of the ten topics that hold most.",
                "bytes",
                [Query(f"topk(10, {of('bytes_live')})", _TOPIC)],
            ),
            time_series(
                "Span of positions",
                "From the oldest stored record to the newest. More than the records: some between"
                " were removed or compacted.",
                "short",
                [Query(f"topk(10, {kept})", _TOPIC)],
            ),
            time_series(
                "Topics by durability",
                "Topics, without those of groups.",
                "short",
                [Query(f"sum by (class) ({series('topics_topics_by_class')})", "{{class}}")],
                stacked=True,
            ),
            time_series(
                "Clients",
                "Open streams (SSE), watch sessions, and routers.",
                "short",
                [
                    Query(f"sum by (instance) ({series('topics_sse_connections')})", "{{instance}} streams"),
                    Query(f"sum by (instance) ({series('topics_watch_sessions')})", "{{instance}} sessions"),
                    Query(f"sum by (instance) ({series('topics_routers')})", "{{instance}} routers"),
                ],
            ),
        ],
    )


def _queues() -> Row:
    def of(metric: str) -> str:
        return f"max by (instance, topic) ({series(f'topics_topic_queue_{metric}')})"

    return Row(
        "Queues",
        [
            time_series(
                "Ready jobs",
                "Jobs that a worker could claim now. A number that only rises means too few workers.",
                "short",
                [Query(of("ready"), _TOPIC)],
                width=12,
            ),
            time_series(
                "Claimed jobs",
                "Jobs that workers have claimed and not acknowledged yet.",
                "short",
                [Query(of("in_flight"), _TOPIC)],
                width=12,
            ),
        ],
    )


def _writer() -> Row:
    def rate_of(metric: str) -> str:
        return rate(f"topics_wal_{metric}_total", "instance")

    return Row(
        "Writer",
        [
            time_series(
                "Transactions and records",
                "Transactions a second, those of them that waited for the disk, and records,"
                " including events of groups.",
                "ops",
                [
                    Query(rate_of("batches"), "{{instance}} transactions"),
                    Query(rate_of("fsyncs"), "{{instance}} flushes"),
                    Query(rate_of("frames"), "{{instance}} records"),
                ],
            ),
            time_series(
                "Written bytes",
                "Bytes a second of the records written.",
                "Bps",
                [Query(rate_of("bytes_written"), _NODE)],
            ),
            time_series(
                "Time of a flush",
                "Duration of commits that waited for the disk.",
                "µs",
                quantiles("topics_wal_fsync_latency_us"),
                log=True,
            ),
            time_series(
                "Writes that wait",
                "Writes that wait for their transaction.",
                "short",
                [Query(f"max by (instance) ({series('topics_wal_queue_depth')})", _NODE)],
                width=24,
                height=6,
            ),
        ],
        collapsed=True,
    )
