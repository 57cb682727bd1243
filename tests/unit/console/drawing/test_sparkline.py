"""A chart of one series."""

from __future__ import annotations

from eventd.console.drawing.sparkline import HEIGHT, WIDTH, by_minute, draw_sparkline


def test_a_gap_interrupts_the_curve() -> None:
    drawn = draw_sparkline([None, 1.0, 2.0, None, 4.0], 5)
    assert len(drawn.curves) == len(drawn.areas) == 2
    assert (drawn.now, drawn.top) == (4.0, 4.0)


def test_a_series_of_zeros_lies_at_the_lower_edge() -> None:
    drawn = draw_sparkline([0.0, 0.0], 5)
    assert drawn.top == 0
    assert f",{HEIGHT - 3}.0" in drawn.curves[0]


def test_a_short_series_is_at_the_end_of_the_window_and_a_whole_one_fills_it() -> None:
    begin, _, end = draw_sparkline([1.0] * 90, 5).curves[0].removeprefix("M").partition(" ")
    assert abs(float(begin.partition(",")[0]) - WIDTH / 2) < 3
    assert end.split(" ")[-1].startswith(f"{WIDTH - 3:.1f},")
    assert draw_sparkline([1.0] * 180, 5).curves[0].startswith("M3.0,")
    assert draw_sparkline([1.0], 5).curves[0].endswith(f" {WIDTH - 3:.1f},3.0")


def test_a_series_without_values_is_empty() -> None:
    assert draw_sparkline([], 5).curves == ()
    assert draw_sparkline([None, None], 5).now is None


def test_figures_are_joined_by_the_minute_newest_first() -> None:
    assert by_minute([1.0, 2.0, None, 5.0, 3.0], 2, max) == [5.0, 2.0, 1.0]
    assert by_minute([None, None], 2, max) == [None]
