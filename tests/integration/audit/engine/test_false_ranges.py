"""A segment whose manifest or rows name other numbers, times or slots than they have is corrupt: it hides no row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from eventd.audit.engine.request import AuditRequest
from eventd.audit.report.findings import Kind
from eventd.audit.report.report import Report
from eventd.audit.segments import segment_jobs
from eventd.lake.manifest import Manifest, encode
from eventd.lake.reader import BadSegment, read_segment, survey
from eventd.lake.schema import Ledger
from eventd.lake.storage import FileReader, Storage, connect
from eventd.lake.writer import Segment, write_segment
from eventd.runtime.clock import SECOND
from tests.support.federations import FullSettings, generate
from tests.support.local_spark import run_audit
from tests.support.tampering import change_state, edit, segments_of

A = "site-01"
HOUR = 3600 * SECOND
LEDGERS = FullSettings(nodes=2, events=400, span=4 * HOUR, segment_rows=100)
LARGE = (1 << 63) - 1


@pytest.fixture
def lake(tmp_path: Path) -> Storage:
    generate(LEDGERS, str(tmp_path / "lake"))
    return connect(str(tmp_path / "lake"))


def audit(lake: Storage, **how: Any) -> Report:
    return run_audit(AuditRequest(lake.url, f"{lake.url}-out", **how))


def corrupt(report: Report) -> dict[str, str]:
    assert {one.kind for one in report.findings} <= {Kind.CORRUPT}
    return {one.ids[0]: one.detail for one in report.findings}


def describe(lake: Storage, segment: Segment, **fields: Any) -> None:
    """Change fields of a manifest."""
    facts = msgspec.json.decode(lake.read(segment.place.manifest)) | fields
    lake.put(segment.place.manifest, msgspec.json.encode(facts))


def moved(segment: Segment, minutes: int) -> tuple[int, int]:
    assert segment.manifest.slots is not None
    return segment.manifest.slots[0] + minutes, segment.manifest.slots[1] + minutes


def write(lake: Storage, segment: Segment, rows: pa.Table, **how: Any) -> None:
    """Replace the file of a segment, without the checks of a writer, and let the manifest fit the file."""
    with lake.create(segment.place.data) as draft:
        pq.write_table(rows, draft, **how)
    size, digest = draft.written
    lake.put(segment.place.manifest, encode(replace(segment.manifest, rows=len(rows), bytes=size, sha256=digest)))


@pytest.mark.parametrize("book", [Ledger.EVENTS, Ledger.DELIVERIES])
@pytest.mark.parametrize("known", [False, True])
def test_other_slots_in_a_manifest_make_the_segment_corrupt(lake: Storage, book: Ledger, known: bool) -> None:
    if known:
        assert audit(lake).verdict == "complete"
    segment = segments_of(lake, A, book)[1]
    describe(lake, segment, slots=moved(segment, -300))
    slots = segment.manifest.slots
    assert slots is not None
    fault = f"its rows have the slots {slots[0]} to {slots[1]}, and its manifest has others"
    assert corrupt(audit(lake)) == {segment.place.name: fault}


@pytest.mark.parametrize("book", [Ledger.EVENTS, Ledger.DELIVERIES])
@pytest.mark.parametrize("known", [False, True])
def test_a_segment_is_not_hidden_from_the_requested_hours_by_its_manifest(
    lake: Storage, book: Ledger, known: bool
) -> None:
    since = LEDGERS.start + HOUR
    if known:
        assert audit(lake, since=since).verdict == "complete"
    segment = segments_of(lake, A, book)[-2]
    describe(lake, segment, slots=moved(segment, -600))
    report = audit(lake, since=since)
    assert [*corrupt(report)] == [segment.place.name]
    assert None in {pair.completeness for pair in report.pairs}


def test_ranges_of_skipped_segments_are_compared_once(lake: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    since = LEDGERS.start + 2 * HOUR
    assert audit(lake, since=since).verdict == "complete"

    def refuse(storage: FileReader, segment: Segment) -> None:
        raise BadSegment(f"{segment.place.name} was compared again")

    monkeypatch.setattr(segment_jobs, "check_ranges", refuse)
    assert corrupt(audit(lake, since=since)) == {}
    assert corrupt(audit(lake, since=since, full=True))


def test_a_skipped_segment_without_statistics_is_read(lake: Storage) -> None:
    segment = segments_of(lake, A, Ledger.EVENTS)[0]
    rows = read_segment(lake, segment)
    write(lake, segment, rows, write_statistics=False)
    since = LEDGERS.start + 2 * HOUR
    assert audit(lake, since=since).verdict == "complete"
    describe(lake, segments_of(lake, A, Ledger.EVENTS)[0], slots=moved(segment, -300))
    assert [*corrupt(audit(lake, since=since))] == [segment.place.name]


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"times": None}, "its manifest has no `times`"),
        ({"slots": None}, "its manifest has no `slots`"),
        ({"slots": (5, -300)}, "its manifest has `slots` that end before they begin: 5 to -300"),
        ({"times": (0, 1)}, "its rows have other times than its manifest"),
    ],
)
def test_a_manifest_without_the_ranges_of_its_rows_is_corrupt(
    lake: Storage, fields: dict[str, Any], fault: str
) -> None:
    segments = segments_of(lake, A, Ledger.EVENTS)
    for segment in segments:
        describe(lake, segment, **fields)
    assert corrupt(audit(lake)) == {segment.place.name: fault for segment in segments}


@pytest.mark.parametrize("upto", [1 << 63, 1 << 70])
def test_a_manifest_with_a_number_that_no_node_counts_to_is_corrupt(lake: Storage, upto: int) -> None:
    segment = segments_of(lake, A, Ledger.EVENTS)[0]
    describe(lake, segment, rows=upto)
    assert [*corrupt(audit(lake))] == [segment.place.name]


def test_a_position_outside_of_the_segment_hides_no_event(lake: Storage) -> None:
    segment = segments_of(lake, A, Ledger.EVENTS)[1]
    name = read_segment(lake, segment, ["id"])["id"][5].as_py()
    edit(lake, A, Ledger.EVENTS, lambda row: row["id"] == name, position=1 << 41)
    assert corrupt(audit(lake)) == {segment.place.name: "its rows have other positions than numbers"}


def test_rows_that_were_swapped_between_segments_make_both_corrupt(lake: Storage) -> None:
    one, other = segments_of(lake, A, Ledger.EVENTS)[:2]
    first, second = read_segment(lake, one), read_segment(lake, other)
    write(lake, one, pa.concat_tables([first.slice(0, len(first) - 1), second.slice(0, 1)]))
    write(lake, other, pa.concat_tables([first.slice(len(first) - 1), second.slice(1)]))
    found = corrupt(audit(lake))
    assert [*found] == [one.place.name, other.place.name]
    assert all("outside of its range" in fault for fault in found.values())


def test_a_row_that_was_added_twice_makes_its_segment_corrupt(lake: Storage) -> None:
    segment = segments_of(lake, A, Ledger.EVENTS)[0]
    rows = read_segment(lake, segment)
    write(lake, segment, pa.concat_tables([rows.slice(0, 1), rows.slice(0, len(rows) - 1)]))
    fault = "its rows are not in the order of their numbers, or share one"
    assert corrupt(audit(lake)) == {segment.place.name: fault}


def test_more_rows_than_numbers_are_not_read(lake: Storage) -> None:
    segment = segments_of(lake, A, Ledger.EVENTS)[0]
    rows = read_segment(lake, segment).slice(0, 1)
    many = pa.concat_tables([rows] * 1000)
    write(lake, segment, many, compression="zstd")
    fault = f"its manifest says 1,000 rows, and its range has {segment.upto - segment.after} numbers"
    assert corrupt(audit(lake)) == {segment.place.name: fault}


@pytest.mark.parametrize(
    ("book", "name", "value"),
    [
        (Ledger.EVENTS, "seq", LARGE),
        (Ledger.EVENTS, "seq", -LARGE),
        (Ledger.DELIVERIES, "position", LARGE),
        (Ledger.RECEIPTS, "upto", LARGE),
        (Ledger.INBOUND, "after", -LARGE),
    ],
)
def test_a_row_with_a_number_that_no_node_counts_to_makes_its_segment_corrupt(
    lake: Storage, book: Ledger, name: str, value: int
) -> None:
    segment = segments_of(lake, A, book)[0]
    number = read_segment(lake, segment, ["number"])["number"][0].as_py()
    edit(lake, A, book, lambda row: row["number"] == number, **{name: value})
    fault = f"its rows have a number outside of -1 to 999,999,999,999,999, in the column {name}"
    assert corrupt(audit(lake)) == {segment.place.name: fault}


@pytest.mark.parametrize("field", ["head", "interval"])
@pytest.mark.parametrize("value", [LARGE, 2 * LARGE, -LARGE])
def test_a_state_with_a_number_that_no_node_counts_to_is_corrupt(lake: Storage, field: str, value: int) -> None:
    change_state(lake, A, **{field: value})
    assert [text for text in corrupt(audit(lake)).values() if "the state of the node is not valid" in text]


@pytest.mark.parametrize("field", ["last_seq", "evicted_seq"])
def test_a_group_with_a_seq_that_no_node_counts_to_makes_the_state_corrupt(lake: Storage, field: str) -> None:
    (state,) = [one for one in survey(lake).nodes if one.node == A]
    change_state(lake, A, groups=tuple(replace(group, **{field: LARGE}) for group in state.groups))
    assert [text for text in corrupt(audit(lake)).values() if "the state of the node is not valid" in text]


def test_names_of_segments_have_no_number_that_no_node_counts_to(lake: Storage) -> None:
    """Such a file counts as one of another program."""
    segment = segments_of(lake, A, Ledger.EVENTS)[0]
    name = segment.place.manifest.replace(f"{segment.place.upto:020d}", "9" * 20)
    lake.put(name, lake.read(segment.place.manifest))
    assert survey(lake).strays == [name]
    assert corrupt(audit(lake)) == {}


def test_a_writer_makes_manifests_that_pass(lake: Storage) -> None:
    segment = segments_of(lake, A, Ledger.EVENTS)[0]
    rows = read_segment(lake, segment)
    manifest: Manifest = write_segment(lake, segment.place, rows, node=A, now=segment.manifest.written_at).manifest
    assert manifest == segment.manifest
