"""One row or state with a time that no calendar has does not keep an audit from reporting all others."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from msgspec.structs import replace

from eventd.audit.engine.request import AuditRequest
from eventd.audit.report.findings import Kind
from eventd.audit.report.report import Report
from eventd.lake.manifest import Manifest, encode
from eventd.lake.schema import COLUMNS, ColumnType, Ledger
from eventd.lake.segment_reader import read_segment
from eventd.lake.storage import Storage, connect
from eventd.runtime.clock import SECOND
from tests.support.federations import FullSettings, copy_generated
from tests.support.local_spark import run_audit
from tests.support.tampering import change_state, edit, rewrite, segments_of

A = "site-01"
BEYOND = 260_000_000_000 * SECOND
"""In the year 10209."""
FIRST, LAST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


@pytest.fixture
def lake(tmp_path: Path) -> Storage:
    copy_generated(FullSettings(nodes=3, events=60, span=3600 * SECOND), str(tmp_path / "lake"))
    return connect(str(tmp_path / "lake"))


def audit(lake: Storage, zone: str = "UTC") -> Report:
    return run_audit(AuditRequest(lake.url, f"{lake.url}-out", time_zone=zone))


def corrupt(report: Report) -> list[tuple[str, str]]:
    return [(one.ids[0], one.detail) for one in report.findings if one.kind is Kind.CORRUPT]


TIMES = [
    (ledger, column.name)
    for ledger in (Ledger.EVENTS, Ledger.DELIVERIES, Ledger.RECEIPTS, Ledger.INBOUND)
    for column in COLUMNS[ledger]
    if column.type is ColumnType.TIME
]


@pytest.mark.parametrize(("ledger", "name"), TIMES)
def test_a_segment_with_a_time_that_no_calendar_has_is_corrupt(lake: Storage, ledger: Ledger, name: str) -> None:
    segment = segments_of(lake, A, ledger)[0]
    table = read_segment(lake, segment)
    column = table.schema.get_field_index(name)
    times = [-BEYOND, *table[name].cast(pa.int64()).to_pylist()[1:]]
    table = table.set_column(column, table.schema.field(column), pa.array(times, table.schema.field(column).type))
    rewrite(lake, segment, table)
    written = msgspec.json.decode(lake.read(segment.place.manifest), type=Manifest)
    fitting = replace(written, times=segment.manifest.times, slots=segment.manifest.slots)
    lake.put(segment.place.manifest, encode(fitting))
    detail = f"its rows have a time outside of the years 1 to 9999, in the column {name}"
    assert (segment.place.name, detail) in corrupt(audit(lake))


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "America/New_York"])
@pytest.mark.parametrize("time", [FIRST, LAST])
def test_an_event_of_the_first_or_the_last_second_of_the_calendar_is_audited(
    lake: Storage, time: datetime, zone: str
) -> None:
    name = read_segment(lake, segments_of(lake, A, Ledger.EVENTS)[0], ["id"])["id"].to_pylist()[0]
    edit(lake, A, Ledger.EVENTS, lambda row: row["id"] == name, event_at=time)
    report = audit(lake, zone)
    assert [(one.kind, one.ids) for one in report.findings] == [(Kind.ALTERED, (name,))] * len(report.findings)
    assert report.findings


@pytest.mark.parametrize("field", ["as_of", "began_at", "complete_until", "closed_at"])
def test_a_state_with_a_time_that_no_calendar_has_is_corrupt(lake: Storage, field: str) -> None:
    change_state(lake, A, **{field: BEYOND})
    detail = "the state of the node has a time outside of the years 1 to 9999: it is unknown how far its ledgers reach"
    assert detail in [text for _, text in corrupt(audit(lake))]


def test_a_manifest_with_a_time_that_no_calendar_has_is_corrupt(lake: Storage) -> None:
    segment = segments_of(lake, A, Ledger.EVENTS)[0]
    manifest = replace(segment.manifest, slots=(0, BEYOND // (60 * SECOND)))
    lake.put(segment.place.manifest, encode(manifest))
    detail = "its manifest has a time outside of the years 1 to 9999"
    assert (segment.place.name, detail) in corrupt(audit(lake))
