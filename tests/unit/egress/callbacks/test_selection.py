"""Which records of its topic a subscriber gets: those in its intervals, and no others."""

from __future__ import annotations

import pytest

from eventd.egress.callbacks.selection import CallbackSelection
from eventd.log.core.records import write_body
from eventd.store.rows.routemaster import Interval
from federation.selector import Selector

INTERVALS = (Interval("a", 2, 5), Interval("a", 8), Interval("b", 5, 6))


def body(tag: str) -> str:
    return write_body("shop--1", tag, "{}", None)


@pytest.mark.parametrize(("topic", "taken"), [("a", [3, 4, 5, 9, 10]), ("b", [6]), ("c", []), ("a_b", []), ("", [])])
def test_intervals_are_open_below_and_closed_above(topic: str, taken: list[int]) -> None:
    selection = CallbackSelection(Selector(), INTERVALS)
    found = [position for position in range(11) if selection.takes_record(position, body(f"{topic}.create"))]
    assert found == taken


def test_without_intervals_nothing_and_with_none_everything_is_taken() -> None:
    assert not CallbackSelection(Selector(), ()).takes_record(1, body("a.create"))
    assert CallbackSelection(Selector()).takes_record(1, body("a.create"))


def test_positions_choose_for_a_resend_within_the_intervals() -> None:
    selection = CallbackSelection(Selector(), INTERVALS, frozenset({4, 6, 9}))
    assert [at for at in range(11) if selection.takes_record(at, body("a.noop"))] == [4, 9]


def test_the_stored_form_reads_back() -> None:
    selection = CallbackSelection(Selector.of(types=["a.*"]), INTERVALS, frozenset({4, 6}))
    assert CallbackSelection.from_json(selection.to_json()) == selection
