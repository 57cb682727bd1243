"""The comparison of what was sent with what is read back: each kind of difference is found and named."""

from __future__ import annotations

from eventd.bench.ledger import Ledger, differing, ordinal


def sent() -> Ledger:
    """0 to 3 and 8, 9 over line 0, and 4 to 7 over line 1."""
    ledger = Ledger()
    for line, count in ((0, 4), (1, 4), (0, 2)):
        ledger.take(line, count)
    return ledger


def test_all_once_in_order_is_what_was_sent() -> None:
    assert sent().problems(range(10)) == []


def test_lines_may_overtake_each_other() -> None:
    assert sent().problems([4, 5, 6, 7, 0, 1, 2, 3, 8, 9]) == []
    assert sent().problems([0, 1, 2, 3, 8, 9, 4, 5, 6, 7]) == []


def test_what_is_missing_is_named() -> None:
    assert sent().problems([0, 1, 2, 3, 4, 6, 7, 8, 9]) == ["1 of 10 is missing: number 5"]
    assert sent().problems([]) == ["10 of 10 are missing: number 0, 1, 2, …"]


def test_what_came_twice_is_named() -> None:
    assert sent().problems([*range(10), 9]) == ["1 of 10 is duplicated: number 9"]


def test_what_overtook_its_own_line_is_named() -> None:
    assert sent().problems([1, 0, *range(2, 10)]) == ["1 of 10 is out of order: number 0"]
    assert sent().problems([8, 9, *range(8)]) == ["1 of 10 is out of order: number 0"]


def test_what_nobody_sent_is_named() -> None:
    found = sent().problems([*range(10), 10, "seq 11"])
    assert found == ["2 of 10 are never sent: number 10, seq 11"]


def test_everything_at_once_is_told_one_by_one() -> None:
    found = sent().problems([1, 0, 2, 2, "x", *range(4, 10)])
    assert [words.split(":")[0] for words in found] == [
        "1 of 10 is missing",
        "1 of 10 is duplicated",
        "1 of 10 is out of order",
        "1 of 10 is never sent",
    ]


def test_two_readings_differ_from_somewhere_on() -> None:
    names = ("B", "A")
    assert differing([1, 2], [1, 2], names) == []
    assert differing([1, 3], [1, 2], names) == ["B differs from A from the 2nd event on: 3 instead of 2"]
    assert differing([1], [1, 2], names) == ["B differs from A from the 2nd event on: the end instead of 2"]
    assert differing([1, 2], [], names) == ["B differs from A from the 1st event on: 1 instead of the end"]


def test_ordinals() -> None:
    assert [ordinal(n) for n in (1, 2, 3, 4, 11, 12, 13, 21, 1112, 1002)] == [
        *("1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "1,112th", "1,002nd")
    ]
