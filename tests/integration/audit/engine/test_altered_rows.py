"""Rows of a lake that somebody rewrote, together with their manifests: each is one finding, with both contents."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from eventd.audit.engine.request import AuditRequest
from eventd.audit.report.findings import Kind
from eventd.audit.report.report import Report
from eventd.lake.reader import survey
from eventd.lake.schema import Ledger
from eventd.lake.segment_reader import read_segment
from eventd.lake.storage import connect
from eventd.lake.writer import write_segment
from eventd.runtime.clock import SECOND
from tests.support.federations import FullSettings, generate
from tests.support.local_spark import run_audit

Row = dict[str, Any]
SETTINGS = FullSettings(nodes=3, events=60, span=3600 * SECOND)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of three nodes, of which each delivers to both others, without faults."""
    lake = tmp_path_factory.mktemp("altered") / "lake"
    generate(SETTINGS, str(lake))
    return lake


@pytest.fixture
def lake(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "lake"))


def rewrite(lake: Path, book: Ledger, change: Callable[[Row], Mapping[str, Any]]) -> Row:
    """Change the rows of a ledger by what `change` returns for each, with their manifests; return the last one."""
    storage, changed = connect(str(lake)), {}
    for segment in survey(storage).segments:
        if segment.place.book is not book:
            continue
        table = read_segment(storage, segment)
        rows = table.to_pylist()
        made = [row | change(row) for row in rows]
        for before, after in zip(rows, made, strict=True):
            changed = before if before != after else changed
        if made != rows:
            columns = [
                pa.array([row[field.name] for row in made], _plain(field.type)).cast(field.type)
                for field in table.schema
            ]
            rebuilt = pa.Table.from_arrays(columns, schema=table.schema)
            write_segment(storage, segment.place, rebuilt, node=segment.manifest.node, now=segment.manifest.written_at)
    return changed


def _plain(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_dictionary(kind) else kind


def an_event(lake: Path, at: str) -> Row:
    """Return a row of an event of the first node at the node `at`, from the middle of the ledger."""
    first = survey(connect(str(lake))).nodes[0].node
    rows = [row for row in read(lake, Ledger.EVENTS) if (row["node"], row["source"]) == (at, first)]
    return rows[len(rows) // 2]


def read(lake: Path, book: Ledger) -> list[Row]:
    storage = connect(str(lake))
    found = (read_segment(storage, one) for one in survey(storage).segments if one.place.book is book)
    return [row for table in found for row in table.to_pylist()]


def audited(lake: Path) -> Report:
    return run_audit(AuditRequest(lake=str(lake), out=str(lake.parent / "out")))


def nodes(lake: Path) -> list[str]:
    return sorted(state.node for state in survey(connect(str(lake))).nodes)


def changing(wanted: Row, **values: Any) -> Callable[[Row], Mapping[str, Any]]:
    """Return a change of the row of an event at one node."""
    return lambda row: values if (row["node"], row["id"]) == (wanted["node"], wanted["id"]) else {}


CHANGES: dict[str, Row] = {
    "subject": {"subject": "elsewhere"},
    "type": {"type": "other"},
    "fingerprint": {"fingerprint": 7},
    "bytes": {"bytes": 1},
    "fingerprint, digest": {"fingerprint": 7, "digest": b"\0" * 7 + b"\7" + b"\0" * 24},
    "id": {"id": "another"},
    "source": {"source": "site-03"},
}


@pytest.mark.parametrize("columns", CHANGES)
def test_a_row_that_was_rewritten_at_a_peer_is_one_altered_event(lake: Path, columns: str) -> None:
    source, peer, *_ = nodes(lake)
    before = an_event(lake, peer)
    rewrite(lake, Ledger.EVENTS, changing(before, **CHANGES[columns]))
    report = audited(lake)
    (finding,) = report.findings
    assert (finding.kind, finding.source, finding.peer, finding.ids) == (Kind.ALTERED, source, peer, (before["id"],))
    assert finding.detail == f"the rows of source and peer differ in {columns}"
    (evidence,) = finding.evidence
    assert evidence.sender == source
    assert evidence.batch
    assert [value.partition(":")[0] for value in evidence.values] == columns.split(", ")
    assert (report.verdict, report.totals.disputed, report.totals.missing) == ("incomplete", 1, 0)
    (pair,) = (one for one in report.pairs if (one.source, one.peer) == (source, peer))
    assert pair.expected == pair.delivered + pair.disputed
    assert (report.totals.expected, report.totals.delivered) == (120, 119)


@pytest.mark.parametrize("columns", ["subject", "type", "fingerprint", "id"])
def test_a_row_that_was_rewritten_at_its_source_is_one_altered_event_for_each_peer(lake: Path, columns: str) -> None:
    source, *peers = nodes(lake)
    before = an_event(lake, source)
    rewrite(lake, Ledger.EVENTS, changing(before, **CHANGES[columns]))
    report = audited(lake)
    assert [(one.kind, one.source, one.peer) for one in report.findings] == [
        (Kind.ALTERED, source, peer) for peer in peers
    ]
    assert {one.detail for one in report.findings} == {f"the rows of source and peer differ in {columns}"}
    assert report.totals.by_kind == {"altered": 2}
    assert (report.totals.expected, report.totals.delivered, report.totals.disputed) == (120, 118, 2)


def test_events_whose_times_were_rewritten_are_found_in_both_minutes(lake: Path) -> None:
    source, peer, *_ = nodes(lake)
    before = an_event(lake, peer)
    moved = before["event_at"].replace(year=before["event_at"].year - 1)
    rewrite(lake, Ledger.EVENTS, changing(before, event_at=moved))
    (finding,) = audited(lake).findings
    assert (finding.kind, finding.source, finding.peer) == (Kind.ALTERED, source, peer)
    assert finding.detail == "the rows of source and peer differ in event_at"
    assert moved.isoformat().replace("+00:00", "Z") in finding.evidence[0].values[0]


@pytest.mark.parametrize("columns", ["type", "fingerprint", "bytes", "id"])
def test_a_row_of_a_delivery_that_was_rewritten_is_one_altered_event(lake: Path, columns: str) -> None:
    source, peer, *_ = nodes(lake)
    event = an_event(lake, source)
    wanted = {"node": source, "id": event["id"], "peer": peer}

    def change(row: Row) -> Mapping[str, Any]:
        return CHANGES[columns] if all(row[name] == value for name, value in wanted.items()) else {}

    rewrite(lake, Ledger.DELIVERIES, change)
    report = audited(lake)
    (finding,) = report.findings
    assert (finding.kind, finding.source, finding.peer, finding.ids) == (Kind.ALTERED, source, peer, (event["id"],))
    assert finding.detail == f"the sender's row of the delivery differs from its event in {columns}"
    assert (report.totals.expected, report.totals.delivered) == (120, 120), "source and peer agree"


def test_an_untouched_lake_has_no_altered_event(lake: Path) -> None:
    report = audited(lake)
    assert (report.verdict, report.findings) == ("complete", ())
