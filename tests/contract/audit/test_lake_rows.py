"""Rows of a lake as Spark requests them, without Spark: planned, read, streamed, and unreadable ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from eventd.audit.source import EventdSource
from eventd.audit.source.options import read_options
from eventd.audit.source.origin import RowsGone
from eventd.audit.source.readers import LedgerReader, LedgerStream
from eventd.audit.source.spark_columns import spark_schema
from eventd.errors import Invalid, NotFound
from eventd.lake.layout import archived
from eventd.lake.reader import survey
from eventd.lake.schema import Ledger
from eventd.lake.storage import Storage, connect
from eventd.lake.writer import Segment, write_segment
from tests.support.lakes import EPOCH, NOON, numbered, ship, ship_state

DAY = "2026-11-20"
LINE = f"site-a/{EPOCH}/events"


@pytest.fixture
def lake(tmp_path: Path) -> Storage:
    return connect(str(tmp_path / "lake"))


def options(lake: Storage, **more: str) -> dict[str, str]:
    return {"lake": lake.url, **more}


def reader(lake: Storage, columns: tuple[str, ...] = (), **more: str) -> LedgerReader:
    asked = read_options(options(lake, **more))
    schema = spark_schema(asked.book)
    return LedgerReader(asked, type(schema)([schema[name] for name in columns]) if columns else schema)


def stream(lake: Storage, **more: str) -> LedgerStream:
    asked = read_options(options(lake, **more))
    return LedgerStream(asked, spark_schema(asked.book))


def rows(reader: LedgerReader | LedgerStream, pieces: Iterable[Any], column: str = "number") -> list[Any]:
    return [value for piece in pieces for batch in reader.read(piece) for value in batch.column(column).to_pylist()]


def follow(stream: LedgerStream, start: Mapping[str, int]) -> tuple[dict[str, int], list[int]]:
    """One batch: where it ends, and its rows."""
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    return end, rows(stream, stream.partitions(start, end))


def compact(lake: Storage, *parts: Segment) -> Segment:
    """What the archive does: one segment in the place of several, which then go."""
    after, upto = parts[0].place.after, parts[-1].place.upto
    place = archived(Ledger.EVENTS, "site-a", EPOCH, after, upto, day=DAY)
    table = numbered(Ledger.EVENTS, range(after + 1, upto + 1))
    made = write_segment(lake, place, table, node="site-a", now=NOON, replaces=tuple(one.place.name for one in parts))
    lake.delete([path for one in parts for path in (one.place.manifest, one.place.data)])
    return made


def spoil(lake: Storage, segment: Segment) -> None:
    """Change one byte of its file."""
    data = bytearray(lake.read(segment.place.data))
    data[len(data) // 2] ^= 1
    lake.put(segment.place.data, bytes(data))


# --- at once --------------------------------------------------------------------------------------------------------


def test_every_row_is_read_once_in_pieces_of_about_the_size_asked_for(lake: Storage) -> None:
    for after in range(0, 50, 10):
        ship(lake, after, after + 10)
    ship(lake, 0, 5, node="site-b")
    ship(lake, 0, 5, book=Ledger.GAPS)
    read = reader(lake, rowsPerPartition="20")
    pieces = read.partitions()
    assert [(piece.ledger.node, piece.after, piece.upto) for piece in pieces] == [
        *(("site-a", 0, 20), ("site-a", 20, 40), ("site-a", 40, 50)),
        ("site-b", 0, 5),
    ]
    assert rows(read, pieces) == [*range(1, 51), *range(1, 6)]


def test_only_what_is_asked_for_is_read(lake: Storage) -> None:
    ship(lake, 0, 5)
    ship(lake, 0, 7, node="site-b")
    ship(lake, 0, 9, node="site-b", epoch="b" * 16)
    read = reader(lake, ("id", "event_at"), node="site-b, site-c", epoch="b" * 16)
    (piece,) = read.partitions()
    (batch,) = read.read(piece)
    assert batch.schema.names == ["id", "event_at"]
    assert batch.num_rows == 9


def test_a_segment_that_was_compacted_away_since_it_was_planned_is_found_in_the_archive(lake: Storage) -> None:
    parts = [ship(lake, after, after + 10) for after in (0, 10, 20)]
    read = reader(lake, rowsPerPartition="10")
    pieces = read.partitions()
    compact(lake, *parts)
    assert rows(read, pieces) == list(range(1, 31))


def test_a_lake_without_the_book_has_no_rows(lake: Storage) -> None:
    ship(lake, 0, 5)
    assert reader(lake, book="refusals").partitions() == []


def test_where_no_lake_is_it_is_said_where_one_was_looked_for(lake: Storage) -> None:
    with pytest.raises(NotFound, match="there is no lake at"):
        reader(lake).partitions()


def test_a_node_in_two_lakes_is_refused_rather_than_read_twice(lake: Storage, tmp_path: Path) -> None:
    other = connect(str(tmp_path / "other"))
    ship(lake, 0, 5)
    ship(other, 0, 5)
    read = reader(lake)
    with pytest.raises(Invalid, match="site-a is in two lakes"):
        LedgerReader(read_options({"lake": f"{lake.url},{other.url}"}), read._schema).partitions()


def test_a_spoilt_segment_is_an_error_that_names_it_or_is_left_out(lake: Storage) -> None:
    ship(lake, 0, 10)
    bad = ship(lake, 10, 20)
    spoil(lake, bad)
    strict, lenient = reader(lake), reader(lake, onGap="skip")
    with pytest.raises(
        RowsGone, match=rf"numbers 11 to 20 in the events ledger of site-a .*{bad.place.name}"
    ) as refused:
        rows(strict, strict.partitions())
    assert "onGap=skip" in str(refused.value)
    assert rows(lenient, lenient.partitions()) == list(range(1, 11))


def test_a_hole_is_an_error_or_is_left_out(lake: Storage) -> None:
    ship(lake, 0, 10)
    ship(lake, 20, 30)
    ship_state(lake, 30)
    lenient = reader(lake, onGap="skip")
    with pytest.raises(RowsGone, match="numbers 11 to 20 in the events ledger of site-a"):
        reader(lake).partitions()
    assert rows(lenient, lenient.partitions()) == [*range(1, 11), *range(21, 31)]


def test_a_schema_that_is_not_the_books_is_refused(lake: Storage) -> None:
    events = spark_schema(Ledger.EVENTS)
    with pytest.raises(Invalid, match="the ledger deliveries has no column subject"):
        EventdSource(options(lake, book="deliveries")).reader(events)


# --- followed -------------------------------------------------------------------------------------------------------


def test_a_stream_takes_what_has_come_and_no_row_twice(lake: Storage) -> None:
    ship(lake, 0, 10)
    followed = stream(lake)
    first, got = follow(followed, followed.initialOffset())
    assert (first, got) == ({LINE: 10}, list(range(1, 11)))
    assert follow(followed, first) == (first, [])
    ship(lake, 10, 15)
    ship(lake, 0, 3, node="site-b")
    second, got = follow(followed, first)
    assert second == {LINE: 15, f"site-b/{EPOCH}/events": 3}
    assert got == [*range(11, 16), 1, 2, 3]


def test_a_batch_is_no_larger_than_asked_for_but_never_empty(lake: Storage) -> None:
    for after in range(0, 40, 10):
        ship(lake, after, after + 10)
    followed, offset, taken = stream(lake, maxRowsPerBatch="25"), {}, []
    for _ in range(2):
        offset, got = follow(followed, offset)
        taken.append(len(got))
    assert taken == [20, 20]
    assert follow(stream(lake, maxRowsPerBatch="1"), {})[1] == list(range(1, 11))


def test_the_same_batch_is_the_same_rows_after_a_restart_and_a_compaction(lake: Storage) -> None:
    parts = [ship(lake, after, after + 10) for after in (0, 10, 20)]
    followed = stream(lake, maxRowsPerBatch="10")
    first, _ = follow(followed, {})
    second, got = follow(followed, first)
    compact(lake, *parts)
    again = stream(lake)
    assert rows(again, again.partitions(first, second)) == got == list(range(11, 21))
    assert follow(again, second) == ({LINE: 30}, list(range(21, 31)))


def test_what_comes_after_a_query_for_what_is_available_began_is_not_of_it(lake: Storage) -> None:
    ship(lake, 0, 10)
    followed = stream(lake)
    followed.prepareForTriggerAvailableNow()
    ship(lake, 10, 20)
    ship(lake, 0, 5, node="site-b")
    offset, got = follow(followed, {})
    assert (offset, got) == ({LINE: 10}, list(range(1, 11)))
    assert follow(followed, offset) == (offset, [])


def test_a_spark_that_asks_without_arguments_gets_all_there_is(lake: Storage) -> None:
    ship(lake, 0, 10)
    followed = stream(lake, maxRowsPerBatch="5")
    start = followed.initialOffset()
    assert followed.latestOffset() == {LINE: 10}
    assert rows(followed, followed.partitions(start, {LINE: 10})) == list(range(1, 11))


def test_a_stream_may_begin_with_what_comes_next(lake: Storage) -> None:
    ship(lake, 0, 10)
    followed = stream(lake, startingOffsets="latest")
    start = followed.initialOffset()
    ship(lake, 10, 12)
    assert follow(followed, start)[1] == [11, 12]


def test_what_retention_took_before_it_was_read_is_an_error_or_is_left_out(lake: Storage) -> None:
    ship(lake, 20, 30)
    with pytest.raises(
        RowsGone, match=r"numbers 11 to 20 in the events ledger of site-a .* retention has evicted them"
    ):
        follow(stream(lake), {LINE: 10})
    assert follow(stream(lake, onGap="skip"), {LINE: 10}) == ({LINE: 30}, list(range(21, 31)))
    assert follow(stream(lake), {})[1] == list(range(21, 31))  # who never read any of it has lost nothing


def test_a_new_history_goes_on_beside_the_old_one(lake: Storage) -> None:
    ship(lake, 0, 10)
    followed = stream(lake)
    offset, _ = follow(followed, {})
    ship(lake, 10, 12)
    ship(lake, 0, 4, epoch="b" * 16)
    offset, got = follow(followed, offset)
    assert offset == {LINE: 12, f"site-a/{'b' * 16}/events": 4}
    assert got == [11, 12, 1, 2, 3, 4]


def test_an_old_history_that_is_nowhere_any_more_is_an_error_once(lake: Storage) -> None:
    ship(lake, 0, 4, epoch="b" * 16)
    with pytest.raises(RowsGone, match=f"numbers after 10 in the events ledger of site-a .* epoch, {'b' * 16}"):
        follow(stream(lake), {LINE: 10})
    offset, got = follow(stream(lake, onGap="skip"), {LINE: 10})
    assert got == [1, 2, 3, 4]
    assert follow(stream(lake), offset) == (offset, [])


def test_a_quiet_lake_is_not_surveyed_again(lake: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    ship(lake, 0, 10)
    surveys = []

    def counted(storage: Storage) -> Any:
        surveys.append(storage)
        return survey(storage)

    monkeypatch.setattr("eventd.audit.source.lakes.survey", counted)
    followed = stream(lake)
    offset, _ = follow(followed, {})
    for _ in range(3):
        offset, _ = follow(followed, offset)
    assert len(surveys) == 1
    ship(lake, 10, 20)
    follow(followed, offset)
    assert len(surveys) == 2
