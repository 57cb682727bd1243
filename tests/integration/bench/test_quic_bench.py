"""Streams and caches are measured over QUIC, small; what did not arrive, or is wrong, makes the figures invalid."""

from __future__ import annotations

import json

import pytest

from eventd.bench.cache_bench import CacheMeasurement
from eventd.bench.stream_load import StreamLoad, StreamReader
from eventd.cli.program.exits import ExitCode
from eventd.client import Event
from tests.integration.bench.conftest import Bench, told

ONE = ("stream", "--events", "20", "--durability", "memory", "--json")


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("qh3")
    monkeypatch.setattr("eventd.bench.stream_bench.WARM_UP", 5)
    monkeypatch.setattr("eventd.bench.cache_bench.WARM_UP", 5)


@pytest.mark.parametrize(
    ("arguments", "events"),
    [
        (("--events", "20", "--fanout", "3"), 60),
        (("--events", "2000", "--batch", "64", "--in-flight", "2", "--streams", "2", "--window", "4"), 2000),
        (("--events", "2000", "--batch", "64", "--window", "8", "--ack", "none", "--fanout", "2"), 4000),
        (("--duration", "300ms", "--batch", "10", "--in-flight", "2"), None),
    ],
    ids=["one at a time", "acknowledged", "unacknowledged", "by time"],
)
def test_streams_are_measured(bench: Bench, arguments: tuple[str, ...], events: int | None) -> None:
    result = told(bench("stream", "--durability", "memory", *arguments, "--json"))
    assert (result["bench"], result["settings"]["nodes"]) == ("stream", "own")
    assert events is None or result["events"] == events
    figures = result["figures"]
    assert figures["p999_ms"] >= result["p99_ms"]
    assert figures["node_cpu_us_per_event"] > 0
    assert ("answer_p50_ms" in figures) is ("none" not in arguments)
    assert ("last_p50_ms" in figures) is (arguments == ("--events", "20", "--fanout", "3"))


@pytest.mark.parametrize("operation", ["put", "hit", "miss"])
def test_caches_are_measured(bench: Bench, operation: str) -> None:
    shape = ("--keys", "50", "--window", "4", "--in-flight", "2", "--streams", "2", "--events", "200")
    result = told(bench("cache", "--operation", operation, *shape, "--json"))
    assert (result["bench"], result["events"]) == ("cache", 200)
    assert result["settings"] | {"operation": operation, "keys": 50, "window": 4, "streams": 2} == result["settings"]


def test_a_cache_is_measured_for_a_time(bench: Bench) -> None:
    assert told(bench("cache", "--keys", "10", "--duration", "200ms", "--json"))["events"] > 1


def test_a_record_that_did_not_arrive_is_found(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    take = StreamReader._take

    def lose(self: StreamReader, event: Event, arrived: float) -> float:
        found = take(self, event, arrived)
        if event.offset == 7:
            self.numbers.remove(7)
        return found

    monkeypatch.setattr(StreamReader, "_take", lose)
    ended = bench(*ONE)
    assert ended.code == ExitCode.CHECK_FAILED
    problems = json.loads(ended.out)["problems"]
    assert "1 of 25 is missing: number 7" in problems
    assert "the offset 8 arrived instead of 7" in problems


def test_a_payload_that_changed_is_found(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    read = StreamLoad.read
    monkeypatch.setattr(StreamLoad, "read", lambda self, payload: read(self, payload[:-1] + b"x"))
    ended = bench(*ONE)
    assert ended.code == ExitCode.CHECK_FAILED
    assert "25 of 25 are never sent: number another payload" in json.loads(ended.out)["problems"][1]


def test_a_wrong_value_is_found(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    check = CacheMeasurement._check
    changed: list[bytes] = []

    def change(self: CacheMeasurement, key: int, found: bytes | None, wanted: bytes | None) -> None:
        if found is not None and not changed:
            changed.append(found)
            found = b"another"
        check(self, key, found, wanted)

    monkeypatch.setattr(CacheMeasurement, "_check", change)
    ended = bench("cache", "--keys", "10", "--events", "50", "--json")
    assert ended.code == ExitCode.CHECK_FAILED
    assert json.loads(ended.out)["problems"] == ["wrong values in 1 answer: key 0 has another value"]


def test_the_extra_is_named_if_it_is_missing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eventd.quic.library.find_spec", lambda _: None)
    for what in ("stream", "cache"):
        ended = bench(what)
        assert ended.code == ExitCode.ERROR
        assert "a measurement of streams or caches needs the extra quic (pip install" in ended.err


def test_a_shape_that_cannot_be_measured_is_refused(bench: Bench) -> None:
    assert "--keys must be as many" in bench("cache", "--keys", "10", "--window", "11").err
    assert bench("stream", "--batch", "0").code == ExitCode.USAGE
    assert bench("stream", "--durability", "stone").code == ExitCode.USAGE
