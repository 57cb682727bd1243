"""The tables and the picture of `tests.bench.rivals`: medians, ratios, and who could not be measured."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from tests.bench.rivals.contest import make_bodies
from tests.bench.rivals.table import Row, markdown, picture, ratio


def figures(catch_up: float, p50: float) -> dict[str, float]:
    more = {
        "publish": catch_up / 2,
        "p99": p50 * 3,
        "cpu_a": 1.5,
        "cpu_b": 2.5,
        "client": 0.4,
        "fsync": 0.2,
        "load": 0.5,
    }
    return {"catch_up": catch_up, "p50": p50, **more}


OWN = Row("ours", "0.1", "flushed", "none", [figures(300_000, 1.0), figures(100_000, 9.0), figures(200_000, 2.0)])
FAST = Row("fast", "7", "in memory", "`a 1`", [figures(400_000, 0.5)])
SLOW = Row("slow", "3", "flushed", "", [figures(50_000, 8.0)])
GONE = Row("gone", missing="gone-server is not installed")


def lines(text: str, name: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(f"| {name} ")]


def test_figures_are_medians_of_the_rounds() -> None:
    told = lines(markdown([OWN, FAST], {}), "ours")
    assert told[0] == "| ours | 200,000 | 1.5 | 2.5 | 2.00 | 6.00 | 100,000 | 0.40 | 0.20 | 0.5 |"


def test_how_far_rounds_lie_apart_is_told() -> None:
    apart = "| ours | 100,000 – 300,000 | 1.00 – 9.00 | 3.00 – 27.00 | 50,000 – 150,000 |"
    assert apart in markdown([OWN, FAST], {})
    assert "lowest and the highest" not in markdown([FAST, SLOW], {})


@pytest.mark.parametrize(("row", "rate", "time"), [(FAST, 0.5, 0.25), (SLOW, 4.0, 4.0)])
def test_a_ratio_above_one_is_better_for_rates_and_for_times(row: Row, rate: float, time: float) -> None:
    assert ratio(OWN, row, "catch_up") == rate
    assert ratio(OWN, row, "p50") == time
    assert f"| {row.name} | {rate:.2f} | {rate:.2f} | {time:.2f} | {time:.2f} |" in markdown([OWN, row], {})


def test_who_was_not_measured_is_named_with_the_reason_and_nowhere_else() -> None:
    text = markdown([OWN, FAST, GONE], {"events": 10})
    assert text.startswith("Run: events 10.\n")
    assert text.endswith("Not measured:\n\n- gone: gone-server is not installed.\n")
    assert not lines(text, "gone")


def test_the_tables_tell_what_each_promises() -> None:
    assert "| fast | 7 | in memory | `a 1` |" in markdown([OWN, FAST], {})


def test_without_rivals_there_are_no_ratios() -> None:
    assert "How many times" not in markdown([OWN, GONE], {})


def test_the_picture_has_a_bar_for_each_ratio_also_beyond_the_scale() -> None:
    image = ElementTree.fromstring(picture([OWN, FAST, GONE, Row("far", rounds=[figures(1, 1e6)])]))
    bars = image.findall(".//{*}rect[{*}title]")
    assert [bar.findtext("{*}title") for bar in bars[:4]] == ["0.50", "0.50", "0.25", "0.25"]
    assert len(bars) == 8
    assert all(
        float(bar.attrib["x"]) >= 0 and float(bar.attrib["x"]) + float(bar.attrib["width"]) <= 800 for bar in bars
    )


def test_bodies_have_the_wanted_size_and_differ() -> None:
    bodies = make_bodies(300, 348)
    assert {len(body) for body in bodies} == {348}
    assert len(set(bodies)) == 300
