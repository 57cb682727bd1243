"""A segment whose manifest or rows name other numbers, times or slots than they have is corrupt: it hides no row."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from eventd.audit.arrays.counts import TooManyKeys
from eventd.audit.engine.request import AuditRequest
from eventd.audit.report.findings import Kind
from eventd.audit.report.report import Report
from eventd.audit.segments import segment_jobs
from eventd.lake.footer_statistics import decode_footer, time_bounds
from eventd.lake.footers import false_ranges
from eventd.lake.layout import ARCHIVE, LANDING, MINUTE
from eventd.lake.manifest import encode
from eventd.lake.reader import survey
from eventd.lake.schema import Ledger, segment_schema
from eventd.lake.segment_checks import manifest_fault, rows_fault
from eventd.lake.segment_reader import read_segment
from eventd.lake.storage import EndReader, Storage, connect
from eventd.lake.stored_files import FileInMemory
from eventd.lake.writer import Segment, write_segment
from eventd.runtime.clock import SECOND
from federation.event import format_time
from tests.support import known_cells
from tests.support.federations import FullSettings, copy_generated
from tests.support.local_spark import run_audit
from tests.support.tampering import change_state, edit, rewrite, segments_of

A, B = "site-01", "site-02"
HOUR = 3600 * SECOND
LEDGERS = FullSettings(nodes=2, events=400, span=4 * HOUR, segment_rows=100)
LARGE = (1 << 63) - 1


@pytest.fixture
def lake(tmp_path: Path) -> Storage:
    copy_generated(LEDGERS, str(tmp_path / "lake"))
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


def _rows(lake: Storage, segment: Segment) -> pa.Table:
    """Return the rows of a segment with the columns that its file has."""
    rows = read_segment(lake, segment)
    return rows.select(segment_schema(segment.place.book, leaves=False).names)


def moved(segment: Segment, minutes: int) -> tuple[int, int]:
    assert segment.manifest.slots is not None
    return segment.manifest.slots[0] + minutes, segment.manifest.slots[1] + minutes


def minutes(slots: tuple[int, int]) -> str:
    return " to ".join(format_time(slot * MINUTE) for slot in slots)


def write(lake: Storage, segment: Segment, rows: pa.Table, **how: Any) -> None:
    """Replace the file of a segment, without the checks of a writer, and let the manifest fit the file."""
    with lake.create(segment.place.data) as draft:
        pq.write_table(rows, draft, **how)
    size, digest = draft.written
    lake.put(segment.place.manifest, encode(replace(segment.manifest, rows=len(rows), bytes=size, sha256=digest)))


SLOTTED = (Ledger.DELIVERIES, Ledger.EVENTS)


@pytest.mark.parametrize("known", [False, True])
def test_other_slots_in_a_manifest_make_the_segment_corrupt(lake: Storage, known: bool) -> None:
    if known:
        assert audit(lake).verdict == "complete"
    faults = {}
    for segment in (segments_of(lake, A, book)[1] for book in SLOTTED):
        describe(lake, segment, slots=moved(segment, -300))
        slots = segment.manifest.slots
        assert slots is not None
        found, said = minutes(slots), minutes(moved(segment, -300))
        faults[segment.place.name] = f"its rows have the slots {found}, and its manifest says {said}"
    assert corrupt(audit(lake)) == faults


@pytest.mark.parametrize("known", [False, True])
def test_segments_are_not_hidden_from_the_requested_hours_by_their_manifests(lake: Storage, known: bool) -> None:
    since = LEDGERS.start + HOUR
    if known:
        assert audit(lake, since=since).verdict == "complete"
    segments = [segments_of(lake, A, book)[-2] for book in SLOTTED]
    for segment in segments:
        describe(lake, segment, slots=moved(segment, -600))
    report = audit(lake, since=since)
    assert {*corrupt(report)} == {segment.place.name for segment in segments}
    assert None in {pair.completeness for pair in report.pairs}


def test_ranges_of_skipped_segments_are_compared_once(lake: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    since = LEDGERS.start + 2 * HOUR
    assert audit(lake, since=since).verdict == "complete"

    def refuse(storage: EndReader, segments: Sequence[Segment]) -> dict[str, str]:
        return {one.place.name: "it was compared again" for one in segments}

    monkeypatch.setattr(segment_jobs, "false_ranges", refuse)
    assert corrupt(audit(lake, since=since)) == {}
    assert corrupt(audit(lake, since=since, full=True))


def test_a_skipped_segment_without_statistics_is_read(lake: Storage) -> None:
    segment = segments_of(lake, A, Ledger.EVENTS)[0]
    rows = _rows(lake, segment)
    write(lake, segment, rows, write_statistics=False)
    since = LEDGERS.start + 2 * HOUR
    assert audit(lake, since=since).verdict == "complete"
    describe(lake, segments_of(lake, A, Ledger.EVENTS)[0], slots=moved(segment, -300))
    assert [*corrupt(audit(lake, since=since))] == [segment.place.name]


@pytest.mark.parametrize("tree", [LANDING, ARCHIVE])
def test_a_skipped_segment_with_one_row_group_without_statistics_is_read(lake: Storage, tree: str) -> None:
    """The statistics of the others do not show that the segment has no row of the requested hours."""
    segment = segments_of(lake, A, Ledger.EVENTS)[0]
    rows = _rows(lake, segment)
    lake.delete([segment.place.manifest, segment.place.data])
    segment = segment._replace(place=segment.place._replace(tree=tree))
    with lake.create(segment.place.data) as draft, pq.ParquetWriter(draft, rows.schema) as writer:
        writer.write_table(rows)
        writer.write_table(rows.slice(0, 0))
    size, digest = draft.written
    lake.put(segment.place.manifest, encode(replace(segment.manifest, bytes=size, sha256=digest)))
    assert time_bounds(decode_footer(lake.read(segment.place.data)), "event_at") is None
    since = LEDGERS.start + 2 * HOUR
    assert audit(lake, since=since).verdict == "complete"
    describe(lake, segment, slots=moved(segment, -300))
    assert [*corrupt(audit(lake, since=since))] == [segment.place.name]


WITHOUT_RANGES: list[tuple[dict[str, Any], str]] = [
    ({"times": None}, "its manifest has no `times`"),
    ({"slots": None}, "its manifest has no `slots`"),
    ({"slots": (5, -300)}, "its manifest has `slots` that end before they begin: 5 to -300"),
    ({"times": (0, 1)}, "its rows have the times "),
]


def test_a_manifest_without_the_ranges_of_its_rows_is_corrupt(lake: Storage) -> None:
    segments = segments_of(lake, A, Ledger.EVENTS)[: len(WITHOUT_RANGES)]
    for segment, (fields, _) in zip(segments, WITHOUT_RANGES, strict=True):
        describe(lake, segment, **fields)
    found = corrupt(audit(lake))
    assert [*found] == [segment.place.name for segment in segments]
    assert all(text.startswith(fault) for text, (_, fault) in zip(found.values(), WITHOUT_RANGES, strict=True))


def test_a_manifest_with_a_number_that_no_node_counts_to_is_corrupt(lake: Storage) -> None:
    segments = [one for node in (A, B) for one in segments_of(lake, node, Ledger.EVENTS)]
    changes = [(field, value) for field in ("rows", "upto") for value in (1 << 62, 1 << 63, 1 << 70)]
    for segment, (field, value) in zip(segments, changes, strict=False):
        describe(lake, segment, **{field: value})
    found = corrupt(audit(lake))
    assert len(found) == len(changes) <= len(segments)
    assert all(fault.startswith("its manifest is not valid: ") for fault in found.values())


def test_a_segment_that_has_other_rows_than_its_numbers_is_corrupt(lake: Storage) -> None:
    """One has a position outside of the segment, one a row twice, one more rows than numbers; two swapped rows."""
    moved_to, doubled, full, *_ = segments_of(lake, A, Ledger.EVENTS)
    one, other, *_ = segments_of(lake, B, Ledger.EVENTS)

    at = read_segment(lake, moved_to, ["id", "number"])
    name, number = at["id"][5].as_py(), at["number"][5].as_py()
    edit(lake, A, Ledger.EVENTS, lambda row: row["id"] == name, position=1 << 41)

    rows = _rows(lake, doubled)
    write(lake, doubled, pa.concat_tables([rows.slice(0, 1), rows.slice(0, len(rows) - 1)]))
    twice = rows["number"][0].as_py()

    write(lake, full, pa.concat_tables([_rows(lake, full).slice(0, 1)] * 1000), compression="zstd")

    first, second = _rows(lake, one), _rows(lake, other)
    write(lake, one, pa.concat_tables([first.slice(0, len(first) - 1), second.slice(0, 1)]))
    write(lake, other, pa.concat_tables([first.slice(len(first) - 1), second.slice(1)]))

    found = corrupt(audit(lake))
    swapped = [found.pop(segment.place.name) for segment in (one, other)]
    assert all("outside of its range" in fault for fault in swapped)
    assert found == {
        moved_to.place.name: f"its row with the number {number} has the position {1 << 41}",
        doubled.place.name: f"its row 2 has the number {twice}, after {twice}",
        full.place.name: f"its manifest says 1,000 rows, and its range has {full.upto - full.after} numbers",
    }


def test_a_row_with_a_number_that_no_node_counts_to_makes_its_segment_corrupt(lake: Storage) -> None:
    events = segments_of(lake, A, Ledger.EVENTS)
    (deliveries, *_), (receipts, *_), (inbound, *_) = (
        segments_of(lake, A, book) for book in (Ledger.DELIVERIES, Ledger.RECEIPTS, Ledger.INBOUND)
    )
    changes = [
        (events[0], "seq", LARGE),
        (events[1], "seq", -LARGE),
        (deliveries, "position", LARGE),
        (receipts, "upto", LARGE),
        (inbound, "after", -LARGE),
    ]
    faults = {}
    for segment, name, value in changes:
        rows = _rows(lake, segment)
        first, *others = rows.to_pylist()
        rewrite(lake, segment, pa.Table.from_pylist([first | {name: value}, *others], rows.schema))
        fault = f"its rows have a number outside of -1 to 999,999,999,999,999, in the column {name}"
        faults[segment.place.name] = fault
    assert corrupt(audit(lake)) == faults


def test_a_state_with_a_number_that_no_node_counts_to_is_corrupt(tmp_path: Path) -> None:
    copy_generated(FullSettings(nodes=8, events=80, span=HOUR), str(tmp_path / "lake"))
    lake = connect(str(tmp_path / "lake"))
    states = iter(survey(lake).nodes)
    for value in (LARGE, 2 * LARGE, -LARGE):
        change_state(lake, next(states).node, head=value)
        change_state(lake, next(states).node, interval=value)
    for field in ("last_seq", "evicted_seq"):
        state = next(states)
        change_state(lake, state.node, groups=tuple(replace(group, **{field: LARGE}) for group in state.groups))
    found = corrupt(audit(lake)).values()
    assert sum("the state of the node is not valid" in text for text in found) == 8


def test_names_of_segments_have_no_number_that_no_node_counts_to(lake: Storage) -> None:
    """Such a file counts as one of another program."""
    segment = segments_of(lake, A, Ledger.EVENTS)[0]
    name = segment.place.manifest.replace(f"{segment.place.upto:020d}", "9" * 20)
    lake.put(name, lake.read(segment.place.manifest))
    assert survey(lake).strays == [name]
    assert corrupt(audit(lake)) == {}


def test_a_writer_makes_segments_that_pass(lake: Storage) -> None:
    for book in (Ledger.EVENTS, Ledger.DELIVERIES, Ledger.RECEIPTS, Ledger.INBOUND):
        segment = segments_of(lake, A, book)[0]
        rows = _rows(lake, segment)
        manifest = write_segment(lake, segment.place, rows, node=A, now=segment.manifest.written_at).manifest
        assert (manifest_fault(manifest), rows_fault(manifest, rows)) == (None, None)
        assert false_ranges(connect(lake.url), [Segment(segment.place, manifest)]) == {}


# --- the ends of files that are damaged -----------------------------------------------------------------------------


def damage_footer(lake: Storage, segment: Segment) -> Segment:
    """Overwrite the footer of a segment's file, with a digest that fits."""
    data = bytearray(lake.read(segment.place.data))
    length = int.from_bytes(data[-8:-4], "little")
    data[-8 - length : -8] = b"\xff" * length
    lake.put(segment.place.data, bytes(data))
    describe(lake, segment, sha256=hashlib.sha256(data).hexdigest())
    return segment


@pytest.mark.parametrize("since", [0, 2 * HOUR], ids=["read", "skipped"])
def test_a_damaged_footer_makes_its_segment_corrupt_and_ends_no_audit(lake: Storage, since: int) -> None:
    segment = damage_footer(lake, segments_of(lake, A, Ledger.EVENTS)[0])
    found = corrupt(audit(lake, since=LEDGERS.start + since))
    assert [*found] == [segment.place.name]
    assert found[segment.place.name].startswith("its file cannot be read: ")


def test_a_flipped_bit_in_the_footer_of_a_skipped_segment_ends_no_audit(lake: Storage, chance: random.Random) -> None:
    segment = segments_of(lake, A, Ledger.EVENTS)[0]
    data = bytearray(lake.read(segment.place.data))
    faults = set()
    end = len(data) - 8
    begin = end - int.from_bytes(data[end : end + 4], "little")
    # A third of the bytes, and the end of the file; other ones in each run.
    for at in (*range(begin + chance.randrange(3), end, 3), *range(end, len(data))):
        bit = chance.choice((1, 16, 128))
        data[at] ^= bit
        faults |= {*false_ranges(FileInMemory(segment.place.data, bytes(data)), [segment]).values()}
        data[at] ^= bit
    for words in ("its file cannot be read: ", "its footer is damaged: ", "its rows have the times "):
        assert [one for one in faults if one.startswith(words)]


@pytest.mark.parametrize("since", [0, 3 * HOUR], ids=["read", "skipped"])
def test_a_file_with_other_columns_makes_its_segment_corrupt(lake: Storage, since: int) -> None:
    """One lacks a column, another has it as text."""
    segments = segments_of(lake, A, Ledger.EVENTS)[:2]
    lacking, text = (_rows(lake, segment) for segment in segments)
    at = text.schema.get_field_index("event_at")
    write(lake, segments[0], lacking.remove_column(at))
    write(lake, segments[1], text.set_column(at, "event_at", text["event_at"].cast(pa.string())))
    fault = "its file has other columns than the ledger"
    assert corrupt(audit(lake, since=LEDGERS.start + since)) == {one.place.name: fault for one in segments}


def test_a_damaged_footer_long_ago_adds_no_events_to_the_requested_hours(lake: Storage) -> None:
    since = LEDGERS.start + 3 * HOUR
    expected = audit(lake, since=since, full=True).totals.expected
    damage_footer(lake, segments_of(lake, A, Ledger.EVENTS)[0])
    report = audit(lake, since=since, full=True)
    assert report.totals.expected == expected
    assert None in {pair.completeness for pair in report.pairs}


def test_a_footer_that_is_longer_than_usual_is_read_whole(lake: Storage) -> None:
    segment = segments_of(lake, A, Ledger.EVENTS)[0]
    rows = _rows(lake, segment)
    write(lake, segment, rows, row_group_size=1)
    segment = segments_of(lake, A, Ledger.EVENTS)[0]
    assert int.from_bytes(lake.read(segment.place.data)[-8:-4], "little") > 1 << 16
    storage = connect(lake.url)
    assert false_ranges(storage, [segment]) == {}
    moved_slots = Segment(segment.place, replace(segment.manifest, slots=moved(segment, -300)))
    assert [*false_ranges(storage, [moved_slots])] == [segment.place.name]
    lake.delete([segment.place.data])
    assert false_ranges(storage, [segment]) == {segment.place.name: "its file is missing"}


def test_a_segment_with_too_many_combinations_of_values_is_corrupt(
    lake: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_many(*_: object) -> Any:
        raise TooManyKeys("its rows have too many different values")

    monkeypatch.setattr(segment_jobs, "sum_events", too_many)
    monkeypatch.setattr(known_cells, "known", {})
    names = [one.place.name for node in (A, B) for one in segments_of(lake, node, Ledger.EVENTS)]
    assert {*corrupt(audit(lake))} == {*names}
