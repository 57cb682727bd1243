"""Rows are grouped by words and times, however many combinations of both are possible."""

from __future__ import annotations

import numpy as np

from eventd.audit.arrays.columns import Words
from eventd.audit.arrays.counts import count, index
from eventd.audit.arrays.grid import Grid

FIRST, LAST = -1_035_593_280, 4_223_371_679
"""The first and the last minute of the years 1 to 9999."""


def test_times_far_apart_are_indexed_without_those_in_between() -> None:
    times = np.array([LAST, 7, FIRST, 7])
    values, places = index(times)
    assert values.tolist() == [FIRST, 7, LAST]
    assert values[places].tolist() == times.tolist()


def test_a_grid_returns_the_words_and_times_of_its_keys() -> None:
    words = {"node": Words(np.array([0, 1, 0], np.int32), ("a", "b"))}
    for time in ([FIRST, LAST, FIRST], [5, 3, 5]):
        grid = Grid.of(words, np.array(time))
        keys, n = count(grid.key.beside(np.array([1, 0, 1]), 2))
        found, times, rest = grid.split(keys, 2)
        names = [found["node"].values[code] for code in found["node"].codes]
        assert sorted(zip(names, times.tolist(), rest.tolist(), n.tolist(), strict=True)) == [
            ("a", time[0], 1, 2),
            ("b", time[1], 0, 1),
        ]


def test_keys_beside_another_column_fit_into_a_number_however_many_words_there_are() -> None:
    """Any member of a group can emit events of very many types, each at a time of its own."""
    many = tuple(f"t{at}" for at in range(1 << 20))
    words = {name: Words(np.array([5, (1 << 20) - 1, 5], np.int32), many) for name in ("type", "peer")}
    grid = Grid.of(words, np.array([1 << 21, 0, 1 << 21]))
    keys, n = count(grid.key.beside(np.array([4095, 0, 4095]), 4096))
    found, times, rest = grid.split(keys, 4096)
    assert (times.tolist(), rest.tolist(), n.tolist()) == ([1 << 21, 0], [4095, 0], [2, 1])
    assert [found["peer"].values[code] for code in found["peer"].codes] == ["t5", "t1048575"]
