"""Each process of pytest-xdist begins with slow tests, and with whole files of them."""

from __future__ import annotations

import pytest

from tests.support.shares import in_shares

SLOW = [(file, test) for file in "abcdef" for test in range(5)]
OTHERS = [("z", test) for test in range(73)]


@pytest.mark.parametrize("processes", [1, 2, 3, 4, 7])
def test_each_process_begins_with_whole_files_of_slow_tests(processes: int) -> None:
    order = in_shares(SLOW, OTHERS, processes, file=lambda test: test[0])
    assert sorted(order) == sorted(SLOW + OTHERS)
    began = 0
    for number in range(processes):
        part = order[began : began + (len(order) - began) // (processes - number)]
        began += len(part)
        slow = [test for test in part if test in SLOW]
        assert part[: len(slow)] == slow
        assert all(slow.count((file, 0)) == slow.count((file, 4)) for file in "abcdef")


def test_more_slow_tests_than_a_part_holds_are_all_run() -> None:
    slow = [("a", test) for test in range(9)]
    assert sorted(in_shares(slow, OTHERS[:2], 3, file=lambda test: test[0])) == sorted(slow + OTHERS[:2])
