"""What an audit stores for the next one: damaged, left by a killed task, or of segments that were compacted since."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eventd.audit.engine.request import AuditRequest
from eventd.audit.engine.state import INDEX, State
from eventd.audit.report.figures import moment
from eventd.audit.report.findings import Kind
from eventd.audit.report.pair_status import reused_segments
from eventd.audit.report.report import Report
from eventd.lake.compaction import compacting
from eventd.lake.ledger_files import DAY
from eventd.lake.reader import survey
from eventd.lake.schema import Ledger
from eventd.lake.segment_reader import read_segment
from eventd.lake.storage import connect
from eventd.lake.stored_files import Written
from eventd.lake.writer import write_segment
from eventd.runtime.clock import SECOND
from tests.support.federations import FullSettings, generate
from tests.support.local_spark import run_audit

BOOKS = FullSettings(nodes=2, events=1500, span=6 * 3600 * SECOND, segment_rows=1000, lose=2, duplicate=2)
"""Two segments of each node's events."""
SOUND = FullSettings(nodes=2, events=300, span=3600 * SECOND)


@pytest.fixture(scope="module")
def audits(tmp_path_factory: pytest.TempPathFactory) -> dict[FullSettings, tuple[Path, Report]]:
    """Lakes that were audited once, each with the report."""
    made = {}
    for settings in (BOOKS, SOUND):
        folder = tmp_path_factory.mktemp("audited")
        generate(settings, str(folder / "lake"))
        made[settings] = folder, audited(folder)
    return made


@pytest.fixture
def first(audits: dict[FullSettings, tuple[Path, Report]], tmp_path: Path) -> Report:
    """The report of the first audit of BOOKS, which are in the folder of the test."""
    return copied(audits, BOOKS, tmp_path)


@pytest.fixture
def sound(audits: dict[FullSettings, tuple[Path, Report]], tmp_path: Path) -> Report:
    """The same of SOUND."""
    return copied(audits, SOUND, tmp_path)


def copied(audits: dict[FullSettings, tuple[Path, Report]], settings: FullSettings, folder: Path) -> Report:
    made, report = audits[settings]
    shutil.copytree(made, folder, dirs_exist_ok=True)
    return report


def audited(folder: Path, **how: Any) -> Report:
    return run_audit(AuditRequest(lake=str(folder / "lake"), out=str(folder / "out"), **how))


def told(report: Report) -> tuple[object, ...]:
    """Return the findings of a report, without how they were computed."""
    return (report.verdict, report.headline, report.totals, report.findings, report.pairs, report.hours, report.nodes)


def test_what_is_kept_may_be_damaged_and_is_not_heaped_up(first: Report, tmp_path: Path) -> None:
    index, state = tmp_path / "out" / INDEX, tmp_path / "out" / "state"
    kept = len(list(state.iterdir()))
    index.write_bytes(index.read_bytes()[:100])  # cut short
    (state / ".cells-00.parquet.1.tmp").touch()  # of a task that was killed
    (state / "cells-00.parquet").touch()  # of a run that was
    again = audited(tmp_path)
    assert (again.work.segments_read, again.work.segments_known) == (first.lake.segments, 0)
    assert told(again) == told(first)
    assert len(list(state.iterdir())) == kept


def test_segments_that_were_compacted_are_read_again_and_count_once(first: Report, tmp_path: Path) -> None:
    nodes = [node.name for node in first.nodes]
    done = list(compacting(connect(str(tmp_path / "lake")), nodes, now=BOOKS.end + 2 * DAY, after=0))
    again = audited(tmp_path)
    made = sum(1 for one in done if one.compacted)
    assert again.lake.segments < first.lake.segments
    assert (again.work.segments_read, again.work.segments_known) == (made, again.lake.segments - made)
    assert told(again) == told(first)


def test_a_file_of_the_state_that_is_gone_is_made_anew(first: Report, tmp_path: Path) -> None:
    files = sorted((tmp_path / "out" / "state").glob("cells-*.parquet"))
    files[0].unlink()
    again = audited(tmp_path)
    assert told(again) == told(first)
    assert 0 < again.work.segments_read < first.work.segments_read
    assert again.work.segments_read + again.work.segments_known == first.lake.segments


def test_a_file_of_the_state_with_other_bytes_is_made_anew(first: Report, tmp_path: Path) -> None:
    for file in (tmp_path / "out" / "state").glob("cells-*.parquet"):
        flip(file)
    again = audited(tmp_path)
    assert told(again) == told(first)
    assert audited(tmp_path).work.segments_read == 0


def test_files_of_the_state_without_end_are_made_anew(first: Report, tmp_path: Path) -> None:
    for file in (tmp_path / "out" / "state").glob("cells-*.parquet"):
        os.truncate(file, 1 << 40)
    again = audited(tmp_path)
    assert told(again) == told(first)
    os.truncate(tmp_path / "out" / INDEX, 1 << 40)
    assert told(audited(tmp_path)) == told(first)
    assert audited(tmp_path).work.segments_read == 0


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"text", id="no Parquet"),
        pytest.param(b"", id="nothing"),
        pytest.param(None, id="Parquet with other columns"),
    ],
)
def test_a_file_of_the_state_that_holds_no_cells_is_made_anew_although_its_digest_fits(
    first: Report, tmp_path: Path, content: bytes | None
) -> None:
    index = tmp_path / "out" / INDEX
    state = msgspec.msgpack.decode(index.read_bytes(), type=State)
    for path in state.cells:
        file = tmp_path / "out" / path
        if content is None:
            pq.write_table(pa.table({"segment": ["a"]}), file)
        else:
            file.write_bytes(content)
        data = file.read_bytes()
        state.cells[path] = Written(len(data), hashlib.sha256(data).hexdigest())
    index.write_bytes(msgspec.msgpack.encode(state))
    again = audited(tmp_path)
    assert told(again) == told(first)
    assert audited(tmp_path).work.segments_read == 0


def flip(file: Path) -> None:
    """Change one bit in the middle; the size stays."""
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize("how", [{"full": True}, {"recheck": 100.0}])
def test_evidence_that_changed_after_it_was_audited_is_found(
    sound: Report, tmp_path: Path, how: dict[str, Any]
) -> None:
    assert sound.verdict == "complete"
    (changed, *_) = sorted((tmp_path / "lake" / "landing" / "events").glob("*/*/*.parquet"))
    flip(changed)
    unread = audited(tmp_path, recheck=0)
    assert (unread.verdict, unread.work.segments_rechecked) == ("complete", 0)
    assert unread.work.segments_known == unread.lake.segments
    assert unread.work.oldest_read is not None
    assert unread.work.oldest_read < sound.made_at
    assert reused_segments(unread.work) == (
        f"; {unread.lake.segments} segments not read again, "
        f"each last read or checked at {moment(unread.work.oldest_read)} or later"
    )

    report = audited(tmp_path, **how)
    assert (report.verdict, report.totals.completeness) == ("incomplete", None)
    (finding,) = report.findings
    assert (finding.kind, finding.ids) == (Kind.CORRUPT, (str(changed.relative_to(tmp_path / "lake").with_suffix("")),))
    assert finding.detail == "its file was changed after it was written"
    later = audited(tmp_path, recheck=0)
    assert later.findings == report.findings, "it is read in each run, until it is what it was"


@pytest.mark.usefixtures("sound")
def test_a_segment_that_was_rewritten_with_its_manifest_is_told(tmp_path: Path) -> None:
    storage = connect(str(tmp_path / "lake"))
    segment = next(one for one in survey(storage).segments if one.place.book is Ledger.EVENTS)
    rows = read_segment(storage, segment)
    write_segment(storage, segment.place, [rows.slice(0, 5), rows.slice(6)], node=segment.manifest.node, now=BOOKS.end)
    for _ in range(2):
        report = audited(tmp_path)
        assert [(one.kind, one.where) for one in report.troubles] == [("rewritten", segment.place.name)]
        assert report.totals.completeness is None
    accepted = audited(tmp_path, full=True)
    assert [one.kind for one in accepted.troubles] == ["history"]
    assert audited(tmp_path).troubles == ()
