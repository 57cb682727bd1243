"""An event that a restored node has in two epochs counts once in the figures of its pair."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from eventd.audit.assembly.assemble import StageResults, make_pairs
from eventd.audit.coverage.coverage import Coverage
from eventd.audit.report.objectives import ANY, Objective
from eventd.audit.report.report import Pair
from eventd.audit.segments.delivery_cells import sum_deliveries
from eventd.audit.segments.event_cells import sum_events
from eventd.audit.segments.link_rows import ENDLESS
from eventd.audit.segments.plan import LakePlan
from eventd.audit.segments.row_marks import mark_deliveries, mark_events
from eventd.audit.verdicts import reconcile
from eventd.audit.verdicts.pair_figures import RowComparison, read_figures, read_senders, read_waiting
from eventd.audit.verdicts.row_comparison import compare, group_uneven
from eventd.lake.manifest import LakeHead
from eventd.lake.reader import Survey
from eventd.lake.schema import Ledger
from eventd.runtime.clock import SECOND
from tests.support.ledger_rows import TO_B, Row, columns_of, delivery_row, event_row, received_row

COMPLETE = {"a": 10**9, "b": 10**9}


def restored_pair(sent: Sequence[Row] = (), received: Sequence[Row] = ()) -> Pair:
    """Return the figures of a -> b.

    The first epoch of `a` recorded an event at 10 s. The second began from a copy at 50 s; its link has not passed the
    event.
    """
    event = event_row(1, recorded_at=10 * SECOND)
    first, second = (columns_of(Ledger.EVENTS, [event | {"epoch": name}]) for name in ("e1", "e2"))
    ledgers = [
        (first, [TO_B._replace(settled=ENDLESS)], -ENDLESS),
        (second, [TO_B._replace(settled=0)], 50 * SECOND),
        (columns_of(Ledger.EVENTS, received), [], -ENDLESS),
    ]
    deliveries = columns_of(Ledger.DELIVERIES, sent)
    cells = [sum_events(str(at), *ledger) for at, ledger in enumerate(ledgers)] + [sum_deliveries("4", deliveries, {})]
    parts = reconcile.reconcile(pa.concat_tables(cells).unify_dictionaries(), COMPLETE)
    slots = group_uneven([parts["uneven"]])
    marks = [mark for rows, links, since in ledgers for mark in mark_events(rows, links, slots, since)]
    marks += mark_deliveries(deliveries) if slots else []
    coverage = Coverage(LakePlan(), until=dict(COMPLETE))
    compared = compare(pa.concat_tables(marks), coverage) if marks else {}
    results = StageResults(
        survey=Survey(LakeHead(id="l", made_at=0), [], [], []),
        plan=coverage.plan,
        coverage=coverage,
        summaries={},
        figures=read_figures(parts["pairs"].to_pylist()),
        hours=[],
        waiting=read_waiting(parts["waiting"].to_pylist()),
        senders=read_senders(parts["senders"].to_pylist()),
        comparison=RowComparison.from_tables({name: [one] for name, one in compared.items()}),
    )
    (pair,) = make_pairs(results, {ANY: Objective()})
    return pair


def test_an_event_that_a_restored_node_has_yet_to_send_is_expected_once_and_pending() -> None:
    pair = restored_pair()
    assert (pair.expected, pair.pending, pair.delivered, pair.missing, pair.unproven) == (1, 1, 0, 0, 0)
    assert pair.oldest_open_gap is not None
    assert (pair.lag, pair.oldest_open_gap.seconds) == (990.0, 1000.0)


@pytest.mark.parametrize(
    "received", [[], [received_row(1, recorded_at=12 * SECOND)]], ids=["not at the peer", "at the peer"]
)
def test_an_event_that_a_node_sent_before_it_was_restored_counts_once(received: list[Row]) -> None:
    sent = delivery_row(1, id="e1", attempt_at=11 * SECOND, done_at=13 * SECOND)
    pair = restored_pair([sent], received)
    assert (pair.expected, pair.delivered, pair.disputed) == (1, len(received), 1 - len(received))
    assert (pair.pending, pair.lag, pair.oldest_open_gap is None) == (0, 0.0, bool(received))
