"""Stored benchmark results: read again, compared only with results of the same kind, and drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from eventd.bench.kept import compare, keep, read_kept
from eventd.bench.plot import plot
from eventd.errors import Invalid, NotFound

MACHINE = {"system": "Linux", "processor": "one", "cores": 2, "python": "3.11.7"}


def result(rate: float = 1000.0, **others: Any) -> dict[str, Any]:
    found = {"bench": "ingest", "settings": {"events": 10}, "verified": True, "time": "2026-05-30T12:00:00Z"}
    found["machine"] = {**MACHINE, "load": rate / 1000, "fsync_ms": 0.1}
    return found | {"events_per_second": rate, "p50_ms": 2.0, "p95_ms": 3.0, "p99_ms": 4.0} | others


def test_what_is_kept_is_read_again_the_oldest_first(tmp_path: Path) -> None:
    file = tmp_path / "kept"
    keep(file, result(1.0))
    keep(file, result(2.0))
    assert read_kept(file) == [result(1.0), result(2.0)]


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no such file"):
        read_kept(tmp_path / "missing")


@pytest.mark.parametrize("line", ["no json", "[]", "{}", '{"bench": 1}', "[" * 5000, "null", '"ingest"'])
def test_a_line_that_is_no_result_is_told_with_its_number(tmp_path: Path, line: str) -> None:
    file = tmp_path / "kept"
    keep(file, result())
    with file.open("a") as lines:
        lines.write(f"{line}\n")
    with pytest.raises(Invalid, match=r"kept:2: is not a result"):
        read_kept(file)


def test_a_file_that_is_no_text_is_told(tmp_path: Path) -> None:
    file = tmp_path / "kept"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(Invalid, match="is not text"):
        read_kept(file)


def test_it_is_compared_with_the_median_of_the_last_of_its_like() -> None:
    kept = [result(1.0), *[result(rate) for rate in (500.0, 1000.0, 2000.0, 900.0, 1100.0)]]
    assert compare(kept, result(1500.0, p99_ms=2.0)) == {
        "runs": 5,
        "events_per_second": 1.5,
        "p50_ms": 1.0,
        "p95_ms": 1.0,
        "p99_ms": 0.5,
    }


@pytest.mark.parametrize(
    "other",
    [
        {"bench": "watch"},
        {"settings": {"events": 11}},
        {"verified": False},
        {"machine": MACHINE | {"cores": 4}},
        {"machine": MACHINE | {"processor": "another"}},
        {"machine": {"system": "Linux", "cores": 2}},
    ],
)
def test_it_is_compared_with_nothing_else(other: dict[str, Any]) -> None:
    assert compare([result(**other)], result()) is None


def test_a_time_of_nothing_has_no_ratio() -> None:
    assert "p50_ms" not in (compare([result(p50_ms=0.0)], result()) or {})


def test_the_picture_has_a_point_for_each_run_and_every_figure() -> None:
    runs = [result(rate, settings={"to": "<group>"}) for rate in (1.0, 0.0, 123_456.0)]
    image = ElementTree.fromstring(plot(runs))
    names = [element.tag.rpartition("}")[2] for element in image.iter()]
    assert names.count("polyline") == 3
    assert names.count("circle") == 9
    for dot in image.iter("{http://www.w3.org/2000/svg}circle"):
        assert 0 <= float(dot.attrib["cx"]) <= 760
        assert 0 <= float(dot.attrib["cy"]) <= 440
