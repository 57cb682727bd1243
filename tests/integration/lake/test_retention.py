"""Retention marks segments as expired and deletes them at least a day later, whatever happens in between."""

from __future__ import annotations

import pytest

from eventd.lake.expiry import read_expiry
from eventd.lake.layout import LANDING, NODES, landing, slug
from eventd.lake.ledger_files import DAY, Done
from eventd.lake.manifest import NodeState, SegmentRange
from eventd.lake.reader import survey
from eventd.lake.retention import plan_retention, retaining
from eventd.lake.schema import Ledger
from eventd.lake.storage import Storage
from eventd.lake.writer import write_state
from eventd.runtime.clock import SECOND
from tests.support.lakes import EPOCH, NOON, ship, ship_state

HOUR = 3600 * SECOND
LATER = NOON + 100 * DAY
"""When all that the tests ship is long out of date."""


def old_segments(storage: Storage) -> NodeState:
    """Three segments of NOON's day, all promised."""
    for number in range(3):
        ship(storage, 10 * number, 10 * number + 10)
    return ship_state(storage, 30)


def retain(storage: Storage, now: int, keep: int = DAY) -> Done:
    done = list(retaining(storage, ["site-a"], now=now, keep=keep))
    return Done(*map(sum, zip(*done, strict=True))) if done else Done()


def files(storage: Storage) -> int:
    return sum(entry.path.endswith(".parquet") for entry in storage.list(LANDING))


def test_the_first_run_deletes_nothing(either_storage: Storage) -> None:
    old_segments(either_storage)
    assert retain(either_storage, LATER) == Done(expired=3)
    assert files(either_storage) == 3
    assert survey(either_storage).nodes[0].segments[Ledger.EVENTS] == SegmentRange(after=30, upto=30)
    assert retain(either_storage, LATER + DAY - 1) == Done()
    assert files(either_storage) == 3
    assert retain(either_storage, LATER + DAY) == Done(removed=3)
    assert files(either_storage) == 0
    assert survey(either_storage).troubles == []


def test_the_time_of_the_mark_is_stored_beside_the_state_and_removed_with_the_last_segment(storage: Storage) -> None:
    old_segments(storage)
    retain(storage, LATER)
    (mark,) = read_expiry(storage, slug("site-a"), EPOCH).marks[Ledger.EVENTS]
    assert (mark.upto, mark.at) == (30, LATER)
    assert survey(storage).troubles == []  # and it is no state
    retain(storage, LATER + DAY)
    assert len(storage.list(NODES)) == 1


def test_what_is_promised_again_counts_anew(storage: Storage) -> None:
    """A node wrote its state at the same moment, so that readers rely on the segments again."""
    state = old_segments(storage)
    retain(storage, LATER)
    write_state(storage, state)
    assert retain(storage, LATER + DAY) == Done(expired=3)
    assert files(storage) == 3
    assert retain(storage, LATER + 2 * DAY) == Done(removed=3)


def test_each_day_has_a_time_of_its_own(storage: Storage) -> None:
    ship(storage, 0, 10)
    ship(storage, 10, 20, at=NOON + DAY)
    ship_state(storage, 20)
    keep = 10 * DAY
    assert retain(storage, NOON + 11 * DAY, keep) == Done(expired=1)
    assert retain(storage, NOON + 12 * DAY, keep) == Done(expired=1, removed=1)
    assert retain(storage, NOON + 13 * DAY - 1, keep) == Done()
    assert retain(storage, NOON + 13 * DAY, keep) == Done(removed=1)


def test_what_is_to_be_kept_longer_after_all_stays(storage: Storage) -> None:
    old_segments(storage)
    retain(storage, NOON + 5 * DAY, DAY)
    assert retain(storage, NOON + 50 * DAY, 400 * DAY) == Done()
    assert files(storage) == 3


def test_a_damaged_mark_is_made_anew_and_deletes_nothing(storage: Storage) -> None:
    old_segments(storage)
    retain(storage, LATER)
    (path,) = [entry.path for entry in storage.list(NODES) if "expired" in entry.path]
    storage.put(path, b"{")
    assert retain(storage, LATER + 2 * DAY) == Done(expired=3)
    assert files(storage) == 3
    assert retain(storage, LATER + 3 * DAY) == Done(removed=3)


def test_a_file_whose_manifest_is_just_being_written_stays(storage: Storage) -> None:
    """A node that ships what is a hundred days old has written the file, and not yet what makes it a segment."""
    old_segments(storage)
    segment = ship(storage, 30, 40)
    storage.delete([segment.place.manifest])
    retain(storage, LATER)
    assert files(storage) == 4
    retain(storage, LATER + DAY)
    assert [entry.path for entry in storage.list(LANDING)] == [segment.place.data]


def test_what_is_left_without_a_manifest_goes_with_what_was_around_it(storage: Storage) -> None:
    old_segments(storage)
    place = landing(Ledger.EVENTS, "site-a", EPOCH, 12, 18, at=NOON)
    storage.put(place.data, b"of a node that was killed")
    retain(storage, LATER)
    retain(storage, LATER + DAY)
    assert files(storage) == 0


def test_a_node_without_a_state_is_no_exception(storage: Storage) -> None:
    for number in range(3):
        ship(storage, 10 * number, 10 * number + 10)
    assert retain(storage, LATER) == Done(expired=3)
    assert files(storage) == 3
    assert retain(storage, LATER + DAY) == Done(removed=3)


def test_a_plan_changes_nothing(storage: Storage) -> None:
    old_segments(storage)
    before = storage.list("")
    (plan,) = plan_retention(storage, ["site-a"], now=LATER, keep=DAY)
    assert (plan.node, plan.book, len(plan.expired), len(plan.removed)) == ("site-a", Ledger.EVENTS, 3, 0)
    assert storage.list("") == before
    retain(storage, LATER)
    (plan,) = plan_retention(storage, ["site-a"], now=LATER + DAY, keep=DAY)
    assert (len(plan.expired), len(plan.removed)) == (0, 3)


@pytest.mark.parametrize("keep", [0, DAY])
def test_a_second_run_at_once_finds_nothing_to_do(storage: Storage, keep: int) -> None:
    old_segments(storage)
    retain(storage, LATER, keep)
    assert list(retaining(storage, ["site-a"], now=LATER, keep=keep)) == []
