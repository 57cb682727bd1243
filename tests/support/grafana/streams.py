"""Rows of streams over QUIC and of their cache."""

from __future__ import annotations

from tests.support.grafana.panels import WARN, Row, steps, time_series
from tests.support.grafana.queries import Query, quantile, quantiles, rate, series

_NODE = "{{instance}}"


def streams_row() -> Row:
    """Return the row."""

    def stream(metric: str) -> str:
        return f"routerd_eventd_stream_{metric}"

    def gauge(metric: str) -> str:
        return f"max by (instance) ({series(stream(metric))})"

    return Row(
        "Streams over QUIC",
        [
            time_series("Connections", "Open QUIC connections.", "short", [Query(gauge("connections"), _NODE)]),
            time_series(
                "Open streams",
                "By kind: requests and publishing of clients, and events of subscriptions.",
                "short",
                [Query(f"sum by (kind) ({series(stream('open_streams'))})", "{{kind}}")],
                stacked=True,
            ),
            time_series(
                "Authentication",
                "Attempts to authenticate a stream, by result.",
                "ops",
                [Query(rate(stream("auth_total"), "result"), "{{result}}")],
                stacked=True,
            ),
            time_series(
                "Published records",
                "Written (ok), refused with an answer, or dropped: not written and not answered.",
                "eps",
                [Query(rate(stream("published_total"), "result"), "{{result}}")],
                stacked=True,
            ),
            time_series(
                "Dropped records",
                "Records that were not written, of clients that ask for no acknowledgement, by reason.",
                "eps",
                [Query(rate(stream("dropped_total"), "instance, reason"), "{{instance}}: {{reason}}")],
            ),
            time_series(
                "Time of a publish",
                "From reading the frame of an acknowledged publish to writing its answer.",
                "s",
                quantiles(stream("publish_seconds")),
                log=True,
            ),
            time_series(
                "Delivered events",
                "Events a second that are written to event streams, each once for each subscription.",
                "eps",
                [Query(rate(stream("delivered_total"), "instance"), _NODE)],
            ),
            time_series(
                "Bytes",
                "Bytes a second of payloads: published, and delivered.",
                "Bps",
                [
                    Query(rate(stream("published_bytes_total"), "instance"), "{{instance}} published"),
                    Query(rate(stream("delivered_bytes_total"), "instance"), "{{instance}} delivered"),
                ],
            ),
            time_series(
                "Slowest subscription",
                "Records by which the slowest subscription is behind its stream.",
                "short",
                [Query(gauge("behind_records"), _NODE)],
                limits=steps((100_000, WARN)),
            ),
            time_series(
                "Subscriptions",
                "Subscriptions that are served.",
                "short",
                [Query(gauge("subscriptions"), _NODE)],
            ),
            time_series(
                "Gaps",
                "Gaps in subscriptions, by reason: retention was faster than the subscriber, or the"
                " stream was deleted.",
                "ops",
                [Query(rate(stream("gaps_total"), "instance, reason"), "{{instance}}: {{reason}}")],
            ),
            time_series(
                "Bytes not sent yet",
                "Bytes that are written to streams and not yet sent.",
                "bytes",
                [Query(gauge("unsent_bytes"), _NODE)],
            ),
            time_series(
                "Frames",
                "Frames a second from clients (in) and to them (out), by what their payload is.",
                "ops",
                [Query(rate(stream("frames_total"), "direction, form"), "{{direction}} {{form}}")],
                width=12,
            ),
            time_series(
                "Faults of the transport",
                "Frames that the node did not take, by reason, and failures in QUIC itself, each of"
                " which ended a connection.",
                "ops",
                [
                    Query(rate(stream("bad_frames_total"), "instance, reason"), "{{instance}}: {{reason}}"),
                    Query(rate(stream("transport_errors_total"), "instance"), "{{instance}}: QUIC failure"),
                ],
                width=12,
            ),
        ],
        collapsed=True,
    )


def cache_row() -> Row:
    """Return the row."""

    def cache(metric: str) -> str:
        return f"routerd_eventd_cache_{metric}"

    return Row(
        "Cache",
        [
            time_series(
                "Values",
                "Values in the caches, expired ones included until they are swept.",
                "short",
                [Query(f"max by (instance) ({series(cache('entries'))})", _NODE)],
            ),
            time_series(
                "Bytes",
                "Bytes that count against the limits of the caches.",
                "bytes",
                [Query(f"max by (instance) ({series(cache('bytes'))})", _NODE)],
            ),
            time_series(
                "Reads",
                "Reads a second that found a value, and those that did not.",
                "ops",
                [Query(rate(cache("gets_total"), "result"), "{{result}}")],
                stacked=True,
            ),
            time_series("Writes", "Writes a second.", "ops", [Query(rate(cache("puts_total"), "instance"), _NODE)]),
            time_series(
                "Removed values",
                "Values a second that were removed because they expired, or to make room (full).",
                "ops",
                [Query(rate(cache("evicted_total"), "reason"), "{{reason}}")],
            ),
            time_series(
                "Time of an operation, p99",
                "Without reading the frame and writing the answer.",
                "s",
                [Query(quantile(0.99, cache("seconds"), "op"), "{{op}}")],
                log=True,
            ),
        ],
        collapsed=True,
    )
