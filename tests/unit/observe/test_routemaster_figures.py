"""The metrics of the Routemaster surface: their names, their bound, and which of them go away."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from eventd.observe.routemaster_figures import (
    MOST,
    RoutemasterFigures,
    StoreFigure,
    SubscriberFigure,
    SurfaceFigures,
    TopicFigure,
    publisher_label,
)

EMPTY = StoreFigure(0, None, None)


def subscriber(handle: str, *, waiting: int = 0, removed: int = 0) -> SubscriberFigure:
    return SubscriberFigure(handle, waiting, waiting, waiting, added=removed + waiting, removed=removed)


class Shown:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.figures = RoutemasterFigures(self.registry)

    def show(self, *subscribers: SubscriberFigure, topics: tuple[TopicFigure, ...] = ()) -> None:
        self.figures.show(SurfaceFigures(subscribers, topics, EMPTY))

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"routemaster_{name}", labels)

    def series(self, name: str) -> int:
        text = generate_latest(self.registry).decode()
        return sum(line.startswith(f"routemaster_{name}{{") for line in text.splitlines())


def test_without_a_surface_no_metric_has_a_series() -> None:
    lines = generate_latest(Shown().registry).decode().splitlines()
    assert [line for line in lines if not line.startswith("#")] == []


@pytest.mark.parametrize(
    ("handle", "label"),
    [("shop--0123456789ab", "shop"), ("a--b--0123456789ab", "a"), ("", "null"), ("--x--0123456789ab", "malformed")],
)
def test_a_publisher_is_what_stands_before_the_first_two_dashes(handle: str, label: str) -> None:
    assert publisher_label(handle) == label


def test_requests_are_counted_with_their_times_and_the_squares_of_these() -> None:
    shown = Shown()
    shown.figures.attempted("app--1", 3_000, 2, delivered=True)
    shown.figures.attempted("app--1", 4_000, 1, delivered=True)
    shown.figures.attempted("app--1", 10_000, 5, delivered=False)
    shown.figures.postponed("app--1", 5)
    found = {
        (name, status): shown.value(f"delivery_{name}_total", queue="app--1", status=status)
        for name in ("events", "batches", "time", "time2")
        for status in ("success", "failure", "throttled")
    }
    assert found == {
        ("events", "success"): 3,
        ("events", "failure"): 5,
        ("events", "throttled"): 5,
        ("batches", "success"): 2,
        ("batches", "failure"): 1,
        ("batches", "throttled"): 1,
        ("time", "success"): 7,
        ("time", "failure"): 10,
        ("time", "throttled"): 0,
        ("time2", "success"): 25,
        ("time2", "failure"): 100,
        ("time2", "throttled"): 0,
    }


def test_a_batch_has_one_first_and_one_last_attempt() -> None:
    shown = Shown()
    shown.figures.waited("app--1", 100_000, first=True, delivered=False)
    shown.figures.waited("app--1", 350_000, first=False, delivered=True)
    found = [shown.value(f"latency_batches_{name}_total", queue="app--1") for name in ("first_attempt", "last_attempt")]
    assert found == [100, 350]
    assert shown.value("latency_batches_count_total", queue="app--1") == 1


def test_each_metric_has_at_most_a_thousand_series() -> None:
    shown = Shown()
    for number in range(MOST + 5):
        shown.figures.attempted(f"app--{number}", 1, 1, delivered=True)
        shown.figures.published(f"topic_{number}", "shop--1", 10)
    shown.show(*(subscriber(f"app--{number}") for number in range(MOST + 5)))
    for name in ("subscriber_queue_events", "delivery_events_total", "events_bytes_total", "events_added_total"):
        assert shown.series(name) == MOST, name
    shown.figures.attempted("app--0", 1, 1, delivered=True)  # a known one still counts
    assert shown.value("delivery_events_total", queue="app--0", status="success") == 2


def test_series_of_deleted_subscribers_and_topics_go_away_and_make_room() -> None:
    shown = Shown()
    orders = TopicFigure("orders", "shop--1", 3)
    shown.figures.attempted("app--1", 1, 1, delivered=True)
    shown.figures.published("orders", "shop--1", 10)
    shown.show(subscriber("app--1"), topics=(orders,))
    assert shown.value("events_published_total", topic="orders", publisher="shop") == 3
    shown.show()
    assert shown.series("subscriber_queue_events") == shown.series("events_published_total") == 0
    assert shown.series("delivery_events_total") == shown.series("events_bytes_total") == 1  # perhaps new, not gone
    shown.show()
    assert shown.series("delivery_events_total") == shown.series("events_bytes_total") == 0


def test_what_was_added_rises_until_the_subscriber_subscribes_anew() -> None:
    shown = Shown()
    shown.show(subscriber("app--1", waiting=10, removed=5))
    shown.show(subscriber("app--1", waiting=0, removed=5))  # an operator moved the cursor
    assert shown.value("events_added_total", queue="app--1") == 15
    shown.show(subscriber("app--1", waiting=1, removed=0))
    assert shown.value("events_added_total", queue="app--1") == 1


def test_lost_events_were_added_and_without_a_limit_the_marks_are_infinite() -> None:
    shown = Shown()
    shown.figures.lost("app--1", 7)
    shown.show(subscriber("app--1", removed=5))
    assert shown.value("events_added_total", queue="app--1") == 12
    assert shown.value("events_autodropped_total", queue="app--1") == 7
    assert shown.value("store_high_mark") == float("inf")
    shown.figures.show(SurfaceFigures((), (), StoreFigure(10, 100, 90)))
    assert [shown.value(f"store_{name}") for name in ("bytes_used", "max_mem", "low_mark", "high_mark")] == [
        *(10, 100, 90, 90)
    ]


def test_what_never_happens_here_is_shown_as_0_once_the_surface_is_open() -> None:
    shown = Shown()
    shown.figures.started()
    assert shown.value("process_total", status="start", type="web") == 1
    assert shown.value("jobs_scrubbed_total", queue="main") == shown.value("workers_scrubbed_total") == 0
