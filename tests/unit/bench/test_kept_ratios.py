"""The guard of the hot paths: which changes it reports as worse, and how."""

from __future__ import annotations

import pytest

from tests.bench.kept_ratios import Measure, Row, table, to_keep, words_of, worse

RATE = Measure("ingest", "events/s", "decode + insert", is_rate=True)
TIME = Measure("start", "s", "imports", digits=3)


def test_a_ratio_is_that_of_each_round_so_that_a_round_of_a_busy_machine_does_not_count_double() -> None:
    row = Row.of(RATE, [100.0, 10.0, 110.0], [200.0, 20.0, 200.0])
    assert (row.figure, row.bare, row.ratio) == (100.0, 200.0, 0.5)


@pytest.mark.parametrize(
    ("measure", "ratio", "change"),
    [(RATE, 0.5, 0.0), (RATE, 0.4, 0.25), (RATE, 1.0, -0.5), (TIME, 0.5, 0.0), (TIME, 0.6, 0.2), (TIME, 0.25, -0.5)],
)
def test_a_change_is_that_of_the_time_it_takes(measure: Measure, ratio: float, change: float) -> None:
    assert Row(measure, ratio, 1.0, ratio).change(0.5) == pytest.approx(change)


def test_what_got_worse_by_more_than_a_fifth_is_told_and_nothing_else() -> None:
    rows = [Row(RATE, 40_000.0, 100_000.0, 0.4), Row(TIME, 0.61, 0.5, 1.22)]
    assert [*worse(rows, {"ingest": 0.47, "start": 1.1})] == []
    assert [*worse(rows, {})] == [], "what was never kept cannot get worse"
    (line,) = worse(rows, {"ingest": 0.5, "start": 1.1})
    assert line == (
        "worse: ingest takes 25% more time than when it was kept, beside decode + insert: ratio 0.400, kept 0.500"
    )


def test_the_table_has_the_figure_its_yardstick_the_ratios_and_the_change() -> None:
    rows = [Row(RATE, 40_000.0, 100_000.0, 0.4), Row(TIME, 0.61, 0.5, 1.22)]
    assert [*table(rows, {"ingest": 0.5})] == [
        "FIGURE                       BARE                   RATIO   KEPT  CHANGE",
        "ingest  40,000  events/s  100,000  decode + insert  0.400  0.500  25% worse",
        "start    0.610  s           0.500  imports          1.220      -  -",
    ]
    assert [words_of(change) for change in (0.004, -0.25, None)] == ["same", "25% better", "-"]


def test_what_is_kept_can_be_compared_with() -> None:
    row = Row(TIME, 0.61, 0.5, 1.22)
    kept = to_keep([row], {"date": "2026-11-22", "cores": 2})
    assert kept == {"date": "2026-11-22", "cores": 2, "ratios": {"start": 1.22}, "figures": {"start": [0.61, 0.5]}}
    assert row.change(kept["ratios"]["start"]) == 0.0
