"""The metrics of streams count what they say, and words from outside make no series without limit."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from eventd.observe.stream_figures import MOST_SERIES, OTHER, StreamMetrics


class Read:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = StreamMetrics(self.registry)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"routerd_eventd_{name}", labels)


@pytest.fixture
def read() -> Read:
    return Read()


def test_what_is_open_falls_again(read: Read) -> None:
    read.metrics.connected()
    read.metrics.connected()
    read.metrics.disconnected()
    read.metrics.stream_opened("request")
    read.metrics.stream_opened("events")
    read.metrics.stream_closed("events")
    read.metrics.subscribed(3)
    read.metrics.subscribed(-2)
    assert read.value("stream_connections") == 1
    assert read.value("stream_open_streams", kind="request") == 1
    assert read.value("stream_open_streams", kind="events") == 0
    assert read.value("stream_subscriptions") == 1


def test_only_written_records_count_as_written_bytes(read: Read) -> None:
    read.metrics.published("ok", 64, 16_384, 0.0004)
    read.metrics.published("refused", 3, 30, 0.0002)
    read.metrics.published("ok", 2, 10)
    read.metrics.dropped("not_found", 5)
    assert read.value("stream_published_total", result="ok") == 66
    assert read.value("stream_published_total", result="refused") == 3
    assert read.value("stream_published_total", result="dropped") == 5
    assert read.value("stream_dropped_total", reason="not_found") == 5
    assert read.value("stream_published_bytes_total") == 16_394
    assert read.value("stream_publish_seconds_count") == 2, "one without an acknowledgement has no answer"


def test_what_is_delivered_is_counted_with_its_bytes(read: Read) -> None:
    read.metrics.delivered(64, 4096)
    read.metrics.delivered(1, 0)
    read.metrics.gap("ttl")
    read.metrics.transport_error()
    assert read.value("stream_delivered_total") == 65
    assert read.value("stream_delivered_bytes_total") == 4096
    assert read.value("stream_gaps_total", reason="ttl") == 1
    assert read.value("stream_transport_errors_total") == 1


def test_gauges_of_suppliers_are_read_when_they_are_shown(read: Read) -> None:
    sizes = [5, 700]
    read.metrics.behind(lambda: sizes[0])
    read.metrics.unsent(lambda: sizes[1])
    read.metrics.cache_sizes(lambda: sizes[0], lambda: sizes[1])
    sizes[:] = [6, 800]
    assert read.value("stream_behind_records") == read.value("cache_entries") == 6
    assert read.value("stream_unsent_bytes") == read.value("cache_bytes") == 800


def test_operations_of_the_cache_are_timed_apart(read: Read) -> None:
    read.metrics.got("hit", 0.00002)
    read.metrics.got("miss", 0.00002)
    read.metrics.put(0.00004)
    read.metrics.evicted("expired", 7)
    read.metrics.evicted("full", 1)
    assert read.value("cache_gets_total", result="hit") == read.value("cache_gets_total", result="miss") == 1
    assert read.value("cache_puts_total") == 1
    assert read.value("cache_seconds_count", op="get") == 2
    assert read.value("cache_seconds_count", op="put") == 1
    assert read.value("cache_evicted_total", reason="expired") == 7


def test_words_from_outside_make_no_series_without_limit(read: Read) -> None:
    assert MOST_SERIES == 32, "as the reference of metrics says"
    for number in range(10 * MOST_SERIES):
        read.metrics.bad_frame(f"unsupported_version_{number}")
        read.metrics.frame("in", f"flags_{number}")
    text = generate_latest(read.registry).decode()
    for name in ("stream_bad_frames_total", "stream_frames_total"):
        lines = [line for line in text.splitlines() if line.startswith(f"routerd_eventd_{name}{{")]
        assert len(lines) == MOST_SERIES
    assert read.value("stream_bad_frames_total", reason=OTHER) == 9 * MOST_SERIES + 1
