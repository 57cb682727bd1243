"""A segment whose rows or ranges cannot be what its manifest says is no segment."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from eventd.lake.layout import LARGEST
from eventd.lake.manifest import LostRows, Manifest
from eventd.lake.schema import Ledger, arrow_schema
from eventd.lake.segment_checks import MOST_ROWS, manifest_fault, rows_fault

MINUTE = 60_000_000
EVENTS = Manifest(
    book=Ledger.EVENTS,
    node="a",
    epoch="e",
    after=0,
    upto=10,
    rows=3,
    bytes=1,
    sha256="",
    slots=(1, 3),
    times=(MINUTE, 3 * MINUTE),
    written_at=0,
)
DELIVERIES = replace(EVENTS, book=Ledger.DELIVERIES)
GAPS = replace(EVENTS, book=Ledger.GAPS, slots=None)


def table(book: Ledger, **columns: list[Any]) -> pa.Table:
    schema = arrow_schema(book)
    return pa.table({name: pa.array(values, schema.field(name).type) for name, values in columns.items()})


@pytest.mark.parametrize(
    ("manifest", "fault"),
    [
        (EVENTS, None),
        (replace(DELIVERIES, rows=1000), None),
        (GAPS, None),
        (replace(EVENTS, rows=11), "its manifest says 11 rows, and its range has 10 numbers"),
        (replace(EVENTS, rows=0), "its manifest says 0 rows, and a segment has 1 to 4,000,000"),
        (
            replace(DELIVERIES, rows=MOST_ROWS + 1),
            "its manifest says 4,000,001 rows, and a segment has 1 to 4,000,000",
        ),
        (replace(EVENTS, times=None), "its manifest has no `times`"),
        (replace(EVENTS, slots=None), "its manifest has no `slots`"),
        (replace(EVENTS, slots=(3, 1)), "its manifest has `slots` that end before they begin: 3 to 1"),
        (replace(GAPS, slots=(1, 3)), "its manifest must not have `slots`"),
        (replace(EVENTS, lost=(LostRows("g", "", "e", 0, 9, 0, "events_forgotten"),)), None),
        (
            replace(EVENTS, lost=(LostRows("g", "", "e", 0, 9, 0, "events_x"),)),
            "its manifest declares a loss with the reason 'events_x', which no node has",
        ),
    ],
)
def test_a_manifest_has_the_ranges_of_its_ledger(manifest: Manifest, fault: str | None) -> None:
    assert manifest_fault(manifest) == fault


@pytest.mark.parametrize(
    ("manifest", "numbers", "fault"),
    [
        (EVENTS, [1, 5, 10], None),
        (EVENTS, [1, 5, 11], "its rows have the numbers 1 to 11, outside of its range"),
        (EVENTS, [0, 5, 10], "its rows have the numbers 0 to 10, outside of its range"),
        (EVENTS, [5, 1, 10], "its row 2 has the number 1, after 5"),
        (EVENTS, [1, 5, 5], "its row 3 has the number 5, after 5"),
        (DELIVERIES, [1, 1, 10], None),
        (DELIVERIES, [5, 1, 10], "its row 2 has the number 1, after 5"),
    ],
)
def test_rows_have_ascending_numbers_of_the_range(manifest: Manifest, numbers: list[int], fault: str | None) -> None:
    assert rows_fault(manifest, table(manifest.book, number=numbers)) == fault


def test_numbers_are_compared_from_one_row_group_to_the_next() -> None:
    first, second = (table(Ledger.EVENTS, number=numbers) for numbers in ([1, 5], [5]))
    assert rows_fault(EVENTS, pa.concat_tables([first, second])) is not None


def test_an_event_has_the_position_of_its_number() -> None:
    rows = table(Ledger.EVENTS, number=[1, 2, 3], position=[1, 2, 1 << 40])
    assert rows_fault(EVENTS, rows) == f"its row with the number 3 has the position {1 << 40}"


@pytest.mark.parametrize("name", ["bytes", "seq"])
def test_a_count_below_that_of_an_unknown_one_is_a_fault(name: str) -> None:
    fault = f"its rows have a number outside of -1 to {LARGEST:,}, in the column {name}"
    assert rows_fault(EVENTS, table(Ledger.EVENTS, **{name: [1, 2, -5]})) == fault
    assert rows_fault(EVENTS, table(Ledger.EVENTS, **{name: [1, 2, -1]})) is None


@pytest.mark.parametrize("seq", [-2, LARGEST + 1, (1 << 63) - 1, -(1 << 63)])
def test_a_number_that_no_node_counts_to_is_a_fault(seq: int) -> None:
    fault = f"its rows have a number outside of -1 to {LARGEST:,}, in the column seq"
    assert rows_fault(EVENTS, table(Ledger.EVENTS, seq=[1, 2, seq])) == fault


def test_fingerprints_may_be_any_number() -> None:
    assert rows_fault(EVENTS, table(Ledger.EVENTS, fingerprint=[-(1 << 63), 0, (1 << 63) - 1])) is None


@pytest.mark.parametrize("name", ["event_at", "expires_at"])
def test_a_time_that_no_calendar_has_is_a_fault(name: str) -> None:
    fault = f"its rows have a time outside of the years 1 to 9999, in the column {name}"
    for time in (-(1 << 63), (1 << 63) - 1):
        assert rows_fault(EVENTS, table(Ledger.EVENTS, **{name: [MINUTE, 2 * MINUTE, time]})) == fault


def test_rows_have_the_times_and_slots_of_the_manifest() -> None:
    times = [MINUTE, 2 * MINUTE, 3 * MINUTE]
    assert rows_fault(EVENTS, table(Ledger.EVENTS, recorded_at=times, event_at=times)) is None
    later = replace(EVENTS, times=(MINUTE, 4 * MINUTE))
    found, said = "1970-01-01T00:01:00Z to 1970-01-01T00:03:00Z", "1970-01-01T00:01:00Z to 1970-01-01T00:04:00Z"
    fault = f"its rows have the times {found}, and its manifest says {said}"
    assert rows_fault(later, table(Ledger.EVENTS, recorded_at=times)) == fault
    earlier = replace(EVENTS, slots=(-300, -298))
    said = "1969-12-31T19:00:00Z to 1969-12-31T19:02:00Z"
    fault = f"its rows have the slots {found}, and its manifest says {said}"
    assert rows_fault(earlier, table(Ledger.EVENTS, event_at=times)) == fault
