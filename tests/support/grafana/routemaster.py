"""The row of the Routemaster surface."""

from __future__ import annotations

from tests.support.grafana.panels import Row, time_series
from tests.support.grafana.queries import Query, increase, rate, series


def routemaster_row() -> Row:
    """Return the row."""

    def latency(attempt: str) -> str:
        total = rate(f"routemaster_latency_batches_{attempt}_attempt_total", "instance, queue")
        return f"{total} / {rate('routemaster_latency_batches_count_total', 'instance, queue')}"

    def mean_time() -> str:
        total = rate("routemaster_delivery_time_total", "instance, queue", "status!=throttled")
        return f"{total} / {rate('routemaster_delivery_batches_total', 'instance, queue', 'status!=throttled')}"

    subscriber, queue = "{{instance}} {{subscriber}}", "{{instance}} {{queue}}"
    return Row(
        "Routemaster surface",
        [
            time_series(
                "Events that wait",
                "Events that wait for each subscriber.",
                "short",
                [Query(f"max by (instance, subscriber) ({series('routemaster_subscriber_queue_events')})", subscriber)],
            ),
            time_series(
                "Batches that wait",
                "Batches that these make.",
                "short",
                [
                    Query(
                        f"max by (instance, subscriber) ({series('routemaster_subscriber_queue_batches')})", subscriber
                    )
                ],
            ),
            time_series(
                "Batches of all subscribers",
                "Those that could be sent now (instant), and others (scheduled).",
                "short",
                [Query(f"sum by (status) ({series('routemaster_jobs_count', 'queue=main')})", "{{status}}")],
                stacked=True,
            ),
            time_series(
                "Published events",
                "Events a second that each topic has accepted, by publisher.",
                "eps",
                [
                    Query(
                        rate("routemaster_events_published_total", "topic, publisher", whole=True),
                        "{{topic}} {{publisher}}",
                    )
                ],
                stacked=True,
            ),
            time_series(
                "Published bytes",
                "Bytes a second of accepted events, by topic.",
                "Bps",
                [Query(rate("routemaster_events_bytes_total", "topic", whole=True), "{{topic}}")],
                stacked=True,
            ),
            time_series(
                "Lost events",
                "Events that retention removed before the subscriber got them, in the time that the"
                " board shows. Right is 0.",
                "short",
                [Query(increase("routemaster_events_autodropped_total", "instance, queue"), f"{queue} dropped")],
            ),
            time_series(
                "Selected and acknowledged events",
                "Events a second that were selected for subscribers, and those that they have acknowledged.",
                "eps",
                [
                    Query(rate("routemaster_events_added_total", "instance"), "{{instance}} selected"),
                    Query(rate("routemaster_events_removed_total", "instance"), "{{instance}} delivered"),
                ],
            ),
            time_series(
                "Events of requests",
                "Events a second of the requests to subscribers: success, failure, or throttled by a back-off.",
                "eps",
                [Query(rate("routemaster_delivery_events_total", "status"), "{{status}}")],
                stacked=True,
            ),
            time_series(
                "Time of a request",
                "Mean time of a request to each subscriber.",
                "ms",
                [Query(mean_time(), queue)],
            ),
            time_series(
                "Time to the first attempt",
                "Mean time from recording the first event of a batch to the start of the first attempt.",
                "ms",
                [Query(latency("first"), queue)],
            ),
            time_series(
                "Time to the last attempt",
                "Mean time from recording the first event of a batch to the start of the attempt that succeeded.",
                "ms",
                [Query(latency("last"), queue)],
            ),
            time_series(
                "Room",
                "Bytes of the events, and the mark at which new events are refused or old ones evicted.",
                "bytes",
                [
                    Query(f"max by (instance) ({series('routemaster_store_bytes_used')})", "{{instance}} used"),
                    Query(f"max by (instance) ({series('routemaster_store_high_mark')})", "{{instance}} limit"),
                ],
            ),
        ],
        collapsed=True,
    )
