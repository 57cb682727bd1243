"""Closed days are compacted, old ones removed: the rows stay the same, also for concurrent readers."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from eventd.errors import Invalid
from eventd.lake import page_sizes, segment_checks, writer
from eventd.lake.compaction import compacting
from eventd.lake.expiry import Expiry, Mark, write_expiry
from eventd.lake.layout import ARCHIVE, LANDING, archived, expiry_path, slug
from eventd.lake.ledger_files import DAY, Done
from eventd.lake.manifest import LostRows, encode
from eventd.lake.reader import survey
from eventd.lake.retention import retaining
from eventd.lake.schema import Ledger
from eventd.lake.segment_file import BadSegment
from eventd.lake.segment_reader import read_segment
from eventd.lake.storage import Storage
from eventd.lake.writer import Segment, TooLargeSegment, write_segment
from eventd.runtime.clock import SECOND
from tests.support.lakes import EPOCH, NOON, ship, ship_state

HOUR = 3600 * SECOND


def numbers(storage: Storage) -> list[int]:
    """Of all rows in the lake, which must have no trouble."""
    found = survey(storage)
    assert found.troubles == []
    return [number for segment in found.segments for number in read_segment(storage, segment)["number"].to_pylist()]


def trees(storage: Storage) -> list[str]:
    return [segment.place.tree for segment in survey(storage).segments]


def some_days(storage: Storage, days: int, *, each: int = 3) -> list[Segment]:
    """So many days before NOON's day and that day itself, each with some segments of ten rows."""
    segments = []
    for day in range(days, -1, -1):
        for _ in range(each):
            upto = segments[-1].upto if segments else 0
            segments.append(ship(storage, upto, upto + 10, at=NOON - day * DAY))
    ship_state(storage, segments[-1].upto)
    return segments


def compact(storage: Storage, now: int = NOON, **more: Any) -> list[Done]:
    return list(compacting(storage, ["site-a"], now=now, after=0, **more))


def retain(storage: Storage, now: int, keep: int) -> list[Done]:
    return list(retaining(storage, ["site-a"], now=now, keep=keep))


def test_closed_days_become_a_file_each(either_storage: Storage) -> None:
    before = some_days(either_storage, 2)
    assert [done.compacted for done in compact(either_storage)] == [3, 3]
    found = survey(either_storage)
    assert [(s.place.tree, s.after, s.upto) for s in found.segments] == [
        (ARCHIVE, 0, 30),
        (ARCHIVE, 30, 60),
        *[(LANDING, after, after + 10) for after in (60, 70, 80)],
    ]
    assert numbers(either_storage) == [*range(1, 91)]
    assert found.segments[0].manifest.replaces == tuple(segment.place.name for segment in before[:3])
    assert found.segments[0].manifest.slots == before[0].manifest.slots
    assert found.segments[0].manifest.times == before[0].manifest.times


def test_a_day_is_closed_some_time_after_its_end(storage: Storage) -> None:
    some_days(storage, 1)
    assert list(compacting(storage, ["site-a"], now=NOON, after=DAY)) == []
    assert len(list(compacting(storage, ["site-a"], now=NOON + DAY, after=DAY))) == 1


def test_readers_find_the_landing_for_a_day_longer(storage: Storage) -> None:
    some_days(storage, 1)
    reader = survey(storage).segments
    compact(storage)
    assert compact(storage, NOON + DAY - HOUR)[1:] == []  # the day of NOON, which is over at that time
    assert [read_segment(storage, segment).num_rows for segment in reader] == [10] * 6
    assert [done.removed for done in compact(storage, NOON + DAY + HOUR)] == [3]
    assert numbers(storage) == [*range(1, 61)]
    assert [entry.path for entry in storage.list(f"{LANDING}/events/dt=2026-11-19")] == []
    assert survey(storage).segments[0].manifest.replaces == ()


def test_a_second_run_finds_nothing_to_do(storage: Storage) -> None:
    some_days(storage, 2)
    compact(storage)
    assert compact(storage) == []
    assert compact(storage, NOON + HOUR) == []


def test_what_comes_late_is_put_beside(storage: Storage) -> None:
    some_days(storage, 0)
    compact(storage, NOON + DAY)
    ship(storage, 30, 40, at=NOON)
    ship_state(storage, 40)
    assert [done.compacted for done in compact(storage, NOON + DAY + HOUR)] == [1]
    assert trees(storage) == [ARCHIVE, ARCHIVE]
    assert numbers(storage) == [*range(1, 41)]


def test_a_file_of_the_archive_has_so_many_rows_at_most(storage: Storage) -> None:
    some_days(storage, 1, each=5)
    compact(storage, most=20)
    assert [segment.manifest.rows for segment in survey(storage).segments][:3] == [20, 20, 10]
    assert numbers(storage) == [*range(1, 101)]


def test_what_cannot_be_trusted_stays_where_it_is(storage: Storage) -> None:
    segments = some_days(storage, 1, each=5)
    bad = segments[2].place
    data = bytearray(storage.read(bad.data))
    data[len(data) // 2] ^= 1
    storage.put(bad.data, bytes(data))
    compact(storage)
    found = survey(storage)
    assert found.troubles == []
    assert [(s.place.tree, s.after, s.upto) for s in found.segments][:4] == [
        (ARCHIVE, 0, 20),
        (LANDING, 20, 30),
        (ARCHIVE, 30, 50),
        (LANDING, 50, 60),
    ]
    assert storage.read(bad.data) == bytes(data)


def test_a_hole_is_not_closed_over(storage: Storage) -> None:
    segments = some_days(storage, 1, each=4)
    lost = segments[1].place
    storage.delete([lost.manifest, lost.data])
    compact(storage)
    found = survey(storage)
    assert [(trouble.after, trouble.upto) for trouble in found.troubles] == [(10, 20)]
    assert [(s.after, s.upto) for s in found.segments][:2] == [(0, 10), (20, 40)]


class Killed(Exception):
    pass


@pytest.mark.parametrize("where", range(12))
def test_whenever_it_is_killed_the_rows_are_there_once(
    storage: Storage, where: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    some_days(storage, 2)
    compact(storage, NOON - DAY)
    kinds = "put", "create", "delete"
    left = [where]
    for kind in kinds:
        monkeypatch.setattr(type(storage), kind, _dying(getattr(type(storage), kind), left))
    with suppress(Killed):
        compact(storage, NOON + 2 * DAY)
    monkeypatch.undo()
    assert numbers(storage) == [*range(1, 91)]
    compact(storage, NOON + 2 * DAY)
    compact(storage, NOON + 4 * DAY)
    assert numbers(storage) == [*range(1, 91)]
    assert set(trees(storage)) == {ARCHIVE}
    assert storage.list(LANDING) == []
    data = [entry.path for entry in storage.list(ARCHIVE) if entry.path.endswith(".parquet")]
    assert len(data) == len(survey(storage).segments) == 3


def _dying(method: Any, left: list[int]) -> Any:
    """It works so many times, over all such methods together, and then the program is gone in the middle of it."""

    def call(self: Any, *given: Any) -> Any:
        if left[0] == 0:
            raise Killed
        left[0] -= 1
        return method(self, *given)

    return call


def test_an_archive_that_went_bad_is_made_again_while_it_can(storage: Storage) -> None:
    some_days(storage, 1)
    compact(storage)
    whole = survey(storage).segments[0].place
    data = bytearray(storage.read(whole.data))
    data[len(data) // 2] ^= 1
    storage.put(whole.data, bytes(data))
    compact(storage, NOON + DAY + HOUR)
    compact(storage, NOON + DAY + HOUR)
    compact(storage, NOON + 3 * DAY)
    assert numbers(storage) == [*range(1, 61)]
    assert set(trees(storage)) == {ARCHIVE}


def test_each_book_epoch_and_node_keeps_to_itself(storage: Storage) -> None:
    for node in ("site-a", "site-b"):
        for epoch in (EPOCH, "b" * 16):
            for book in (Ledger.EVENTS, Ledger.GAPS):
                ship(storage, 0, 4, node=node, epoch=epoch, book=book, at=NOON - DAY)
                ship(storage, 4, 9, node=node, epoch=epoch, book=book, at=NOON - DAY)
    assert [done.compacted for done in compact(storage)] == [2] * 4
    archived = {(s.manifest.node, s.manifest.epoch, s.place.book) for s in survey(storage).segments if s.after == 0}
    assert len(archived) == 8
    assert {s.manifest.node for s in survey(storage).segments if s.place.tree == ARCHIVE} == {"site-a"}


def test_old_days_are_promised_no_longer_and_then_go(either_storage: Storage) -> None:
    some_days(either_storage, 4)
    compact(either_storage)
    retain(either_storage, NOON, 2 * DAY)
    found = survey(either_storage)
    assert found.nodes[0].segments[Ledger.EVENTS].after == 60
    assert numbers(either_storage)[0] == 1  # all files stay for another day, for readers that have them open
    retain(either_storage, NOON + DAY, 2 * DAY)
    assert numbers(either_storage)[0] == 61
    assert survey(either_storage).nodes[0].segments[Ledger.EVENTS].after == 90
    assert retain(either_storage, NOON + DAY, 2 * DAY) == []


@pytest.mark.parametrize("where", range(8))
def test_retention_may_be_killed_at_any_point(storage: Storage, where: int, monkeypatch: pytest.MonkeyPatch) -> None:
    some_days(storage, 4)
    left = [where]
    for kind in ("put", "create", "delete"):
        monkeypatch.setattr(type(storage), kind, _dying(getattr(type(storage), kind), left))
    with suppress(Killed):
        retain(storage, NOON + DAY, 2 * DAY)
        retain(storage, NOON + 2 * DAY, 2 * DAY)
    monkeypatch.undo()
    assert survey(storage).troubles == []
    retain(storage, NOON + 2 * DAY, 3 * DAY)
    retain(storage, NOON + 3 * DAY, 4 * DAY)
    assert numbers(storage) == [*range(91, 151)]
    assert len([entry for entry in storage.list(LANDING) if entry.path.endswith(".parquet")]) == 6


def test_retention_hides_no_hole_that_is_still_promised(storage: Storage) -> None:
    segments = some_days(storage, 3)
    storage.delete([segments[7].place.manifest, segments[7].place.data])
    retain(storage, NOON, 2 * DAY)
    assert [(trouble.after, trouble.upto) for trouble in survey(storage).troubles] == [(70, 80)]


def test_an_epoch_that_is_all_gone_is_forgotten_but_not_the_last(storage: Storage) -> None:
    for number, epoch in enumerate((EPOCH, "b" * 16)):
        at = NOON + number * DAY
        ship(storage, 0, 4, epoch=epoch, at=at)
        ship_state(storage, 4, epoch=epoch, began_at=at, as_of=at + HOUR)
    for day in (20, 21):
        retain(storage, NOON + day * DAY, DAY)
    found = survey(storage)
    assert [state.epoch for state in found.nodes] == ["b" * 16]
    assert (found.segments, found.troubles) == ([], [])


def test_a_file_that_has_grown_is_not_read(storage: Storage) -> None:
    segment = ship(storage, 0, 10, at=NOON)
    os.truncate(storage.locate(segment.place.data), 1 << 40)
    with pytest.raises(BadSegment, match=f"its file has more than the {segment.manifest.bytes} bytes"):
        read_segment(storage, segment)
    larger = segment._replace(manifest=msgspec.structs.replace(segment.manifest, bytes=1 << 40))
    with pytest.raises(BadSegment, match="its manifest says 1,099,511,627,776 bytes, and a segment has at most 8 GiB"):
        read_segment(storage, larger)


def test_a_larger_file_than_readers_take_is_not_written(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MOST_BYTES", ship(storage, 0, 10, at=NOON).manifest.bytes - 1)
    with pytest.raises(TooLargeSegment, match=r"its file would have [\d,]+ bytes"):
        ship(storage, 0, 10, at=NOON)


@pytest.mark.parametrize("size", [(16 << 20) + 1, (256 << 20) + 1])
def test_a_manifest_or_marks_of_any_size_stop_no_other_segment(storage: Storage, size: int) -> None:
    segments = some_days(storage, 3)
    os.truncate(storage.locate(segments[4].place.manifest), size)
    write_expiry(storage, slug("site-a"), EPOCH, Expiry(marks={Ledger.EVENTS: (Mark(upto=1, at=NOON),)}))
    os.truncate(storage.locate(expiry_path(slug("site-a"), EPOCH)), size)
    assert [done.compacted for done in compact(storage)] == [3, 1, 1, 3]
    assert [done.expired for done in retain(storage, NOON, 2 * DAY)] == [1]


def test_an_archive_with_the_manifest_of_no_segment_is_kept_for_its_operator(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a segment of an earlier release would otherwise be deleted, and its rows not be archived again."""
    some_days(storage, 1)
    compact(storage)
    before = storage.list(ARCHIVE)
    monkeypatch.setattr(segment_checks, "MOST_ROWS", 10)
    assert compact(storage, NOON + 3 * DAY, grace=0, most=10)[:1] != [Done(removed=1)]
    assert [one for one in storage.list(ARCHIVE) if one in before] == before


def test_more_rows_than_a_reader_takes_are_not_written(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MOST_ROWS", 9)
    with pytest.raises(Invalid, match="cannot hold 10 rows: a segment has at most 9"):
        ship(storage, 0, 10, at=NOON)
    assert storage.list(LANDING) == []


@pytest.mark.parametrize("is_lossy", [False, True])
def test_an_archive_whose_manifest_readers_would_refuse_is_divided(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, is_lossy: bool
) -> None:
    some_days(storage, 1)
    segments = survey(storage).segments
    if is_lossy:
        lost = (LostRows(group="g", peer="b", epoch=EPOCH, after=0, upto=1, count=1, reason="events_lost"),) * 5
        for one in segments:
            storage.put(one.place.manifest, encode(msgspec.structs.replace(one.manifest, lost=lost)))
    most = len(storage.read(segments[0].place.manifest)) + len(segments[0].place.name) + 50
    monkeypatch.setattr(writer, "MOST_JSON", most)
    assert sum(done.compacted for done in compact(storage)) == 3
    found = survey(storage)
    assert (found.troubles, numbers(storage)) == ([], [*range(1, 61)])
    sizes = [len(storage.read(one.place.manifest)) for one in found.segments]
    assert max(sizes) <= most
    assert len(sizes) > 1


def test_no_rows_are_read_for_an_archive_whose_manifest_is_too_large(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unread() -> Iterator[Any]:
        pytest.fail("the rows are read")
        yield

    segment = ship(storage, 0, 10, at=NOON)
    monkeypatch.setattr(writer, "MOST_JSON", 2 * len(encode(segment.manifest)))
    place = archived(Ledger.EVENTS, "site-a", EPOCH, 0, 10, day=segment.place.day)
    with pytest.raises(TooLargeSegment, match="its manifest would have"):
        write_segment(storage, place, unread(), node="site-a", now=NOON, replaces=(segment.place.name,) * 20)
    assert storage.list(ARCHIVE) == []


def test_an_archive_that_readers_would_refuse_for_its_memory_is_divided(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    some_days(storage, 1)
    monkeypatch.setattr(page_sizes, "MOST_TIMES", 0)
    one = io.BytesIO(storage.read(survey(storage).segments[0].place.data))
    monkeypatch.setattr(page_sizes, "LEAST_BOUND", 2 * page_sizes.content_bytes(pq.read_metadata(one)))
    assert [done.compacted for done in compact(storage)] == [1, 2]
    assert numbers(storage) == [*range(1, 61)]
