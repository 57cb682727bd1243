"""An operator closes a node that is out of service for good."""

from __future__ import annotations

import pytest

from eventd.errors import Conflict, NotFound
from eventd.lake.close import close_node
from eventd.lake.reader import survey
from eventd.lake.storage import Storage
from eventd.runtime.clock import SECOND
from tests.support.lakes import NOON, ship_state

HOUR = 3600 * SECOND


def test_its_latest_state_says_when(any_storage: Storage) -> None:
    ship_state(any_storage, 4)
    ship_state(any_storage, 4, epoch="b" * 16, began_at=NOON + HOUR, as_of=NOON + HOUR)
    closed = close_node(any_storage, "site-a", now=NOON + 2 * HOUR)
    assert (closed.epoch, closed.closed_at, closed.complete_until) == ("b" * 16, NOON + 2 * HOUR, NOON + HOUR)
    assert [state.closed_at for state in survey(any_storage).nodes] == [0, NOON + 2 * HOUR]


@pytest.mark.parametrize("ahead", [60 * SECOND, -60 * SECOND])
def test_a_node_that_is_at_work_is_not_closed(storage: Storage, ahead: int) -> None:
    ship_state(storage, 4, as_of=NOON + ahead)
    with pytest.raises(Conflict, match="site-a reported less than 5m0s ago: it may be running"):
        close_node(storage, "site-a", now=NOON)


def test_a_node_that_ships_rarely_may_be_at_work_for_longer(storage: Storage) -> None:
    ship_state(storage, 4, as_of=NOON, interval=HOUR)
    with pytest.raises(Conflict, match="site-a reported less than 3h0m0s ago"):
        close_node(storage, "site-a", now=NOON + 2 * HOUR)
    assert close_node(storage, "site-a", now=NOON + 3 * HOUR).closed_at == NOON + 3 * HOUR


def test_a_node_that_never_reported_is_told(storage: Storage) -> None:
    ship_state(storage, 4)
    with pytest.raises(NotFound, match="no node site-b reports to the lake"):
        close_node(storage, "site-b", now=NOON + HOUR)
