"""Slots in which the sums of two ledgers differ are uneven, and so are those in which sums cannot show a difference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from eventd.audit.segments.delivery_cells import sum_deliveries
from eventd.audit.segments.event_cells import sum_events
from eventd.audit.verdicts import reconcile
from eventd.lake.schema import Ledger
from tests.support.ledger_rows import TO_B, Row, columns_of, delivery_row, event_row, received_row

EVENTS, SENT, RECEIVED = ([make(n) for n in (1, 2, 3)] for make in (event_row, delivery_row, received_row))


def uneven(events: Sequence[Row], sent: Sequence[Row], received: Sequence[Row]) -> int:
    """Return the number of uneven slots of the ledgers: the events of `a`, its deliveries to `b`, the events of `b`."""
    made = [
        sum_events("1", columns_of(Ledger.EVENTS, events), [TO_B]),
        sum_deliveries("2", columns_of(Ledger.DELIVERIES, sent), {}),
        sum_events("3", columns_of(Ledger.EVENTS, received), []),
    ]
    cells = pa.concat_tables([one for one in made if one.num_rows]).unify_dictionaries().drop_columns(["segment"])
    late = 10**15
    return int(reconcile.reconcile(cells, {"a": late, "b": late})["uneven"].num_rows)


def test_ledgers_that_agree_are_even_and_a_loss_a_repetition_or_an_exchange_makes_them_uneven() -> None:
    assert uneven(EVENTS, SENT, RECEIVED) == 0
    assert uneven(EVENTS, SENT[:2], RECEIVED[:2]) == 1
    assert uneven(EVENTS, SENT, RECEIVED[:2]) == 1
    assert uneven(EVENTS, [*SENT, SENT[0]], RECEIVED) == 1
    assert uneven(EVENTS, [*SENT[:2], SENT[0]], [*RECEIVED[:2], RECEIVED[0]]) == 1
    assert uneven(EVENTS, SENT, [*RECEIVED[:2], received_row(5)]) == 1


def test_a_slot_of_expired_events_is_even_without_an_event_at_the_peer() -> None:
    mortal = [event_row(n, expires_at=n) for n in (1, 2, 3)]
    assert uneven(mortal, [delivery_row(n, outcome="expired", done_at=4) for n in (1, 2, 3)], []) == 0


def test_a_slot_of_which_only_some_events_were_sent_is_uneven_because_sums_do_not_show_their_contents() -> None:
    assert uneven(EVENTS, [*SENT[:2], delivery_row(3, outcome="expired")], RECEIVED[:2]) == 1


@pytest.mark.parametrize(
    "change", [{"subject": "x"}, {"expires_at": 9}, {"type": "x"}, {"bytes": 9}, {"digest": b"x" * 32}, {"id": "x"}]
)
def test_ledgers_whose_rows_differ_in_any_column_are_uneven(change: dict[str, Any]) -> None:
    assert uneven([*EVENTS[:2], event_row(3, **change)], SENT, RECEIVED) == 1
    assert uneven(EVENTS, SENT, [*RECEIVED[:2], received_row(3, **change)]) == 1
    if not change.keys() & {"subject", "expires_at", "digest"}:
        assert uneven(EVENTS, [*SENT[:2], delivery_row(3, **change)], RECEIVED) == 1


def test_values_that_two_rows_exchange_make_a_slot_uneven() -> None:
    received = [received_row(1, subject="y"), received_row(2, subject="x")]
    assert uneven([event_row(1, subject="x"), event_row(2, subject="y")], SENT[:2], received) == 1
