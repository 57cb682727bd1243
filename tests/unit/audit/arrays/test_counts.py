"""Rows are summed by keys of several columns."""

from __future__ import annotations

import numpy as np

from eventd.audit.arrays.counts import add_up, count, key_of, parts


def test_sums_wrap_around_and_do_not_depend_on_the_order() -> None:
    key = key_of((np.array([1, 1, 0, 1]), 2), (np.array([3, 3, 2, 3]), 4))
    sums = add_up(key, np.array([2**62, 2**62, 5, 2**62]), np.array([9, 8, 7, 6]))
    assert [sums.rows.tolist(), sums.total.tolist(), sums.low.tolist(), sums.high.tolist()] == [
        [1, 3],
        [5, 3 * 2**62 - 2**64],
        [7, 6],
        [7, 9],
    ]
    assert [part.tolist() for part in parts(sums.keys, key.sizes)] == [[0, 1], [2, 3]]
    assert count(key)[1].tolist() == [1, 3]
