"""A digest of an event is looked for only in the segments that may have it, among the own events."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventd.audit.segments.own_digests import DatedDigest, find_digests, plan_searches, split_digests
from eventd.lake.layout import MINUTE, landing
from eventd.lake.schema import Ledger
from eventd.lake.storage import Storage, connect
from eventd.lake.writer import Segment, write_segment
from tests.support.lakes import NOON
from tests.support.ledger_rows import event_row, ledger_table


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return connect(str(tmp_path / "lake"))


def digest_of(minute: int, row: int) -> bytes:
    return b"%16d%16d" % (minute, row)


def written(storage: Storage, minute: int) -> Segment:
    """Write a segment of three events of one minute, the last of which is not an own one."""
    place, at = landing(Ledger.EVENTS, "a", "e", minute * 3, minute * 3 + 3, at=NOON), NOON + minute * MINUTE
    rows = [
        event_row(minute * 3 + row, epoch="e", own=row < 3, digest=digest_of(minute, row), event_at=at, recorded_at=at)
        for row in range(1, 4)
    ]
    return write_segment(storage, place, ledger_table(Ledger.EVENTS, rows), node="a", now=at)


def test_only_segments_of_the_minute_of_an_event_are_searched(storage: Storage) -> None:
    segments = [written(storage, minute) for minute in range(20)]
    wanted = [DatedDigest(NOON + 7 * MINUTE + 5, digest_of(7, 2)), DatedDigest(NOON + 9 * MINUTE, b"x" * 32)]
    searches = [*plan_searches(segments, wanted)]
    assert [(one.segment.name, one.digests) for one in searches] == [
        (segments[7].place.name, digest_of(7, 2)),
        (segments[9].place.name, b"x" * 32),
    ]
    assert [find_digests(one, storage) for one in searches] == [digest_of(7, 2), b""]


def test_an_event_of_another_node_does_not_stand_for_an_own_one(storage: Storage) -> None:
    wanted = [DatedDigest(NOON, digest_of(0, row)) for row in (3, 2, 1, 1)]
    (search,) = plan_searches([written(storage, 0)], wanted)
    assert split_digests(find_digests(search, storage)) == [digest_of(0, 1), digest_of(0, 2)]
