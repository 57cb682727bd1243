"""Row marks are joined by event, and those of events that are plainly in order are left out."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from eventd.audit.segments.row_marks import PairKey, mark_deliveries, mark_events
from eventd.audit.verdicts.pair_figures import read_waiting
from eventd.audit.verdicts.row_comparison import trails
from eventd.lake.schema import Ledger
from tests.support.ledger_rows import TO_B, Row, columns_of, delivery_row, event_row, received_row

PAIR = PairKey("g", "a", "b")
SLOTS = {PAIR: np.array([0])}


@pytest.mark.parametrize(("expires_at", "doubtful"), [(40, 0), (None, 1)])
def test_an_event_that_is_said_to_have_expired_is_judged_if_it_has_no_expiry(
    expires_at: int | None, doubtful: int
) -> None:
    events = columns_of(Ledger.EVENTS, [event_row(1, expires_at=expires_at)])
    expired = columns_of(Ledger.DELIVERIES, [delivery_row(1, outcome="expired", done_at=40)])
    marks = [*mark_events(events, [TO_B], SLOTS), *mark_deliveries(expired)]
    assert trails(pa.concat_tables(marks), {"a", "b"}).num_rows == doubtful


@pytest.mark.parametrize("times", [2, 127, 128, 129, 256])
@pytest.mark.parametrize("nodes_with_ledgers", [{"a"}, {"a", "b"}])
def test_any_number_of_repetitions_is_counted(times: int, nodes_with_ledgers: set[str]) -> None:
    sent = columns_of(Ledger.DELIVERIES, [delivery_row(1, id="e1")] * times)
    events = columns_of(Ledger.EVENTS, [event_row(1)])
    marks = [*mark_events(events, [TO_B], SLOTS), *mark_deliveries(sent)]
    if "b" in nodes_with_ledgers:
        marks += mark_events(columns_of(Ledger.EVENTS, [received_row(1)]), [], SLOTS)
    (row,) = trails(pa.concat_tables(marks), nodes_with_ledgers).to_pylist()
    assert (row["sent"], row["repeated"], row["expired"]) == (times, times - 1, 0)


def test_of_a_delivery_by_a_link_the_version_of_its_selection_is_known_and_a_repair_has_none() -> None:
    def version_of(*rows: Row) -> tuple[str, str, int]:
        events = columns_of(Ledger.EVENTS, [event_row(1, epoch="e")])
        sent = columns_of(Ledger.DELIVERIES, [delivery_row(1, epoch="e") | row for row in rows])
        (row,) = trails(pa.concat_tables([*mark_events(events, [], SLOTS), *mark_deliveries(sent)]), {"a"}).to_pylist()
        return row["link_node"], row["link_epoch"], row["link_version"]

    by_repair = {"repair": True, "selector_version": 1, "attempt_at": 10}
    by_link = {"selector_version": 3, "attempt_at": 20}
    assert version_of(by_repair, by_link, by_link | {"selector_version": 4, "attempt_at": 30}) == ("a", "e", 3)
    assert version_of(by_repair) == ("", "", 0)


def test_the_first_recorded_pending_event_and_the_earliest_slot_may_be_in_different_parts() -> None:
    pair = PAIR._asdict()
    parts = [{**pair, "low": 10, "time": 7}, {**pair, "low": 20, "time": 3}]
    assert read_waiting(parts) == read_waiting(reversed(parts)) == {PAIR: (10, 3)}
