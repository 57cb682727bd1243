"""Which events a link has to deliver: those that its selections took, from its beginning up to its cursor."""

from __future__ import annotations

from eventd.audit.segments.link_rows import ENDLESS, LinkRow, RowSelector, SelectionVersion
from eventd.lake.schema import Ledger
from tests.support.ledger_rows import TO_B, columns_of, event_row


def test_an_event_beyond_the_cursor_of_a_link_is_ahead_and_not_due() -> None:
    rows = columns_of(Ledger.EVENTS, [event_row(n) for n in (1, 2, 3)])
    selected = RowSelector(rows).select(TO_B._replace(settled=2))
    assert (selected.due.tolist(), selected.ahead.tolist()) == ([True, True, False], [False, False, True])


def test_each_version_of_a_selection_applies_to_the_positions_that_were_acknowledged_under_it() -> None:
    narrow, wide = '{"types": ["x"]}', "{}"
    events = [event_row(1), event_row(2, type="x"), event_row(3), event_row(4)]
    link = LinkRow("g", "b", (SelectionVersion(narrow, 0, 3), SelectionVersion(wide, 50, reached=1)), settled=4)
    selected = RowSelector(columns_of(Ledger.EVENTS, events)).select(link)
    # Only the wider version takes 1 and 3: a repair has sent 1, and has yet to send 3. The first version took 2, and
    # the second was in force for 4.
    assert (selected.due.tolist(), selected.ahead.tolist()) == (
        [True, True, False, True],
        [False, False, True, False],
    )
    expired = columns_of(Ledger.EVENTS, [event_row(1, expires_at=40)])
    assert not RowSelector(expired).select(link).due.any()


def test_an_event_recorded_before_a_link_was_created_is_not_due_up_to_its_first_receipt() -> None:
    events = [event_row(1, recorded_at=10), event_row(2, recorded_at=30), event_row(3, recorded_at=40)]
    selected = RowSelector(columns_of(Ledger.EVENTS, events)).select(TO_B._replace(begins=2, created_at=20))
    assert selected.due.tolist() == [False, True, True]


def test_no_event_after_the_last_receipt_of_a_link_that_is_no_longer_declared_is_due() -> None:
    rows = columns_of(Ledger.EVENTS, [event_row(n) for n in (1, 2, 3)])
    selected = RowSelector(rows).select(TO_B._replace(versions=(SelectionVersion("{}", upto=2),), settled=2))
    assert (selected.due.tolist(), selected.ahead.tolist()) == ([True, True, False], [False, False, False])


def test_a_link_that_does_not_look_back_has_due_what_each_version_selected_after_its_beginning() -> None:
    narrow, wide = '{"relay": true, "types": ["x"], "sources": ["a", "c"]}', '{"relay": true}'
    events = [
        event_row(1, type="x"),
        event_row(2),
        event_row(3, type="x"),
        event_row(4, type="x", source="b"),
        event_row(5),
        event_row(6, source="b", own=False),
    ]
    rows = columns_of(Ledger.EVENTS, events)
    versions = (SelectionVersion(narrow, 0, 4), SelectionVersion(wide, 50))
    link = LinkRow("g", "a/callback:hook", versions, 5, begins=1, created_at=ENDLESS, looks_back=False)
    selected = RowSelector(rows).select(link)
    assert selected.due.tolist() == [False, False, True, False, True, False]
    assert selected.ahead.tolist() == [False] * 5 + [True]
    for after in range(6):  # a link restricted to the positions of a segment selects the same rows
        part = RowSelector(rows).select(link.within(after, after + 1))
        assert (part.due[after], part.ahead[after]) == (selected.due[after], selected.ahead[after])
