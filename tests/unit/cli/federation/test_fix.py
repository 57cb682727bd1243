"""The ranges that a repair requests again: exactly what is missing, in few ranges."""

from __future__ import annotations

import contextlib
import io
from typing import Any

from eventd.cli.federation.fix import IDS_AT_ONCE, LONG, REPAIRS_AT_ONCE, plan
from eventd.cli.terminal.bar import Bar


def gap(first: int, events: int, *, told: int | None = None) -> dict[str, Any]:
    ids = [f"e{first + number}" for number in range(events if told is None else told)]
    return {"fromSeq": first, "toSeq": first + events - 1, "events": events, "ids": ids}


def test_short_gaps_are_sent_together_by_their_ids() -> None:
    assert plan([gap(1, 2), gap(9, 1)]) == [{"ids": ["e1", "e2", "e9"]}]


def test_long_gaps_are_sent_as_ranges_and_the_rest_by_ids() -> None:
    assert plan([gap(1, 2), gap(10, LONG)]) == [{"from_seq": 10, "to_seq": 9 + LONG}, {"ids": ["e1", "e2"]}]


def test_a_gap_whose_ids_are_not_all_told_is_sent_as_a_range() -> None:
    assert plan([gap(1, 3, told=1)]) == [{"from_seq": 1, "to_seq": 3}]


def test_no_more_is_asked_at_once_than_can_be_worked_on() -> None:
    asked = plan([gap(10_000 * number + 1, 2 * LONG) for number in range(100)])
    assert len(asked) == REPAIRS_AT_ONCE
    assert max(len(each.get("ids", [])) for each in asked) == IDS_AT_ONCE


def test_nothing_missing_is_nothing_to_ask_for() -> None:
    assert plan([]) == []


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_is_for_terminals_alone() -> None:
    terminal, file = _Terminal(), io.StringIO()
    for stream in (terminal, file):
        with contextlib.suppress(KeyboardInterrupt), Bar(stream) as bar:
            bar.show("adding up", 1, 2)
            bar.show("asking", 0, 0)
            raise KeyboardInterrupt
    assert file.getvalue() == ""
    shown = terminal.getvalue().split("\r\x1b[2K")
    assert shown == ["", "adding up [###############...............]  50%", "asking", ""]
