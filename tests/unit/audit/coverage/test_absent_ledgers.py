"""Nodes without ledgers of which others hold events, or from which they recorded batches."""

from __future__ import annotations

from eventd.audit.coverage.absent_ledgers import pairs_without_ledgers
from eventd.audit.coverage.coverage import Coverage
from eventd.audit.segments.batch_cells import sum_batches
from eventd.audit.segments.cells import HOUR, Measure
from eventd.audit.segments.plan import LakePlan
from eventd.audit.segments.row_marks import PairKey
from eventd.audit.verdicts.reconcile import reconcile
from eventd.lake.schema import Ledger
from tests.support.batch_tables import inbound
from tests.support.ledger_rows import Row, columns_of

COVERAGE = Coverage(LakePlan(), until={"a": HOUR, "b": HOUR})


def batch(source: str, hour: int) -> Row:
    return inbound(1, peer=source, recorded_at=hour * HOUR)


def received(hours: tuple[int, int], *batches: Row) -> list[dict[str, object]]:
    """Return the pairs with batches of these hours, which `b` recorded in one segment."""
    cells = sum_batches("s", Ledger.INBOUND, columns_of(Ledger.INBOUND, batches))
    return list(reconcile(cells.drop_columns(["segment"]), reach={}, hours=hours)["received"].to_pylist())


def test_a_node_that_others_hold_events_of_is_found_if_it_has_no_ledgers() -> None:
    rows = [{"group": "g", "source": source, "peer": "b", "what": Measure.HELD} for source in ("a", "old")]
    assert pairs_without_ledgers(rows, [], COVERAGE) == {PairKey("g", "old", "b")}


def test_a_node_that_only_relays_is_found_by_its_batches_of_the_requested_hours() -> None:
    """The ledger may have been archived: one segment has the batches of a day."""
    batches = (batch("hub", 1), batch("hub", 23), batch("a", 10))
    for hours in ((1, 2), (0, 30), (23, 24)):
        assert pairs_without_ledgers([], received(hours, *batches), COVERAGE) == {PairKey("g", "hub", "b")}
    assert pairs_without_ledgers([], received((10, 11), *batches), COVERAGE) == set()


def test_a_peer_that_only_receives_lacks_no_ledger_that_would_show_more() -> None:
    rows = [{"group": "g", "source": "a", "peer": "old", "what": Measure.SENT}]
    assert pairs_without_ledgers(rows, received((0, 2), batch("b", 1)), COVERAGE) == set()
