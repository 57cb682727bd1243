"""Which segments of earlier runs are checked again, and what happens if one has changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from msgspec.structs import replace

from eventd.audit.engine.lake_reader import LakeReader
from eventd.audit.engine.state import KnownSegment, State, ranges_of
from eventd.audit.spark.locations import Location
from eventd.lake.layout import MINUTE
from eventd.lake.reader import survey
from eventd.lake.storage import connect
from tests.support.lakes import NOON, ship, ship_state
from tests.support.local_spark import LocalSpark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOUR = 60 * MINUTE
ALL = (-(1 << 40), 1 << 40)


@pytest.fixture
def lake(tmp_path: Path) -> str:
    """Four segments, each of another hour; what Spark's tasks would do is done here."""

    storage = connect(str(tmp_path / "lake"))
    for number in range(4):
        ship(storage, 10 * number, 10 * number + 10, at=NOON + number * HOUR)
    ship_state(storage, 40)
    return str(tmp_path / "lake")


def reader(lake: str, *read_at: int, hours: tuple[int, int] = ALL) -> LakeReader:
    """One that knows the segments, each since then."""
    found = survey(connect(lake))
    entries = {
        segment.place.name: KnownSegment(
            sha256=segment.manifest.sha256, ranges=ranges_of(segment.manifest), rows=10, file="f", read_at=time
        )
        for segment, time in zip(found.segments, read_at, strict=True)
    }
    spark = cast("SparkSession", LocalSpark())
    return LakeReader(spark, Location(lake), Location("out"), found, State(lake="l", entries=entries), hours, now=100)


def times(of: LakeReader) -> list[int]:
    return [
        of.state.entries[one.place.name].read_at for one in of.survey.segments if one.place.name in of.state.entries
    ]


@pytest.mark.parametrize(
    ("percent", "after"),
    [(0, [7, 3, 9, 5]), (1, [7, 100, 9, 5]), (50, [7, 100, 9, 100]), (100, [100] * 4)],
)
def test_the_longest_unread_are_checked_first_and_at_least_one(lake: str, percent: float, after: list[int]) -> None:
    one = reader(lake, 7, 3, 9, 5)
    one.recheck(percent)
    assert times(one) == after
    assert one.rechecked == after.count(100)
    assert one.oldest == min((time for time in after if time < 100), default=None)


def test_all_are_checked_in_turn(lake: str) -> None:
    one = reader(lake, 1, 2, 3, 4)
    for now in range(100, 104):
        one.now = now
        one.recheck(1)
    assert times(one) == [100, 101, 102, 103]


def test_one_that_is_not_what_it_was_is_forgotten_so_that_it_is_read(lake: str) -> None:
    one = reader(lake, 1, 2, 3, 4)
    file = Path(lake, one.survey.segments[1].place.data)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    one.recheck(100)
    assert times(one) == [100, 100, 100]
    assert one.survey.segments[1].place.name not in one.state.entries


def test_what_is_not_looked_at_is_not_checked(lake: str) -> None:
    hour = NOON // HOUR
    one = reader(lake, 1, 2, 3, 4, hours=(hour + 2, hour + 4))
    one.recheck(100)
    assert times(one) == [1, 2, 100, 100]


def test_one_whose_manifest_has_another_digest_is_read_and_not_checked(lake: str) -> None:
    one = reader(lake, 1, 2, 3, 4)
    name = one.survey.segments[2].place.name
    one.state.entries[name] = replace(one.state.entries[name], sha256="of another content")
    one.recheck(100)
    assert times(one) == [100, 100, 3, 100]
