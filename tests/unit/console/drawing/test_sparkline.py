"""A chart of one series."""

from __future__ import annotations

from eventd.console.drawing.sparkline import HEIGHT, by_minute, draw_sparkline


def test_a_gap_interrupts_the_curve() -> None:
    drawn = draw_sparkline([None, 1.0, 2.0, None, 4.0])
    assert len(drawn.curves) == len(drawn.areas) == 2
    assert (drawn.now, drawn.top) == (4.0, 4.0)


def test_a_series_of_zeros_lies_at_the_lower_edge() -> None:
    drawn = draw_sparkline([0.0, 0.0])
    assert drawn.top == 0
    assert f",{HEIGHT - 3}.0" in drawn.curves[0]


def test_a_series_without_values_is_empty() -> None:
    assert draw_sparkline([]).curves == ()
    assert draw_sparkline([None, None]).now is None


def test_figures_are_joined_by_the_minute_newest_first() -> None:
    assert by_minute([1.0, 2.0, None, 5.0, 3.0], 2, max) == [5.0, 2.0, 1.0]
    assert by_minute([None, None], 2, max) == [None]
