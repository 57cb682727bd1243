"""What audits have seen of a lake is remembered: across versions, compaction, damage, failures and kills."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from pydoc import locate
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from msgspec.structs import replace

from eventd.audit.engine import state as states
from eventd.audit.engine.history import AuditHistory, keep_history
from eventd.audit.engine.request import AuditRequest
from eventd.audit.engine.state import INDEX, prepare_output
from eventd.audit.report.file_names import HISTORY
from eventd.audit.report.findings import Kind
from eventd.audit.report.report import Report
from eventd.audit.segments.row_sums import SUMS
from eventd.errors import Conflict
from eventd.lake.compaction import compacting
from eventd.lake.layout import ARCHIVE
from eventd.lake.ledger_files import DAY
from eventd.lake.reader import survey
from eventd.lake.retention import retaining
from eventd.lake.schema import Ledger
from eventd.lake.segment_reader import read_segment
from eventd.lake.storage import Storage, connect, open_lake
from eventd.lake.writer import Segment, write_segment
from eventd.runtime.clock import SECOND, SystemClock
from eventd.testing import ManualClock
from tests.support.federations import FullSettings, copy_generated
from tests.support.local_spark import run_audit
from tests.support.tampering import change_state, cut_ledger, rewrite, segments_of, withdraw

HOUR = 3600 * SECOND
LEDGERS = FullSettings(nodes=2, events=600, span=2 * HOUR, segment_rows=100)
A, B = "site-01", "site-02"
COLUMN = {
    Ledger.EVENTS: "recorded_at",
    Ledger.DELIVERIES: "recorded_at",
    Ledger.RECEIPTS: "exceptions",
    Ledger.INBOUND: "recorded_at",
}
"""A column of each ledger that nothing else is compared with."""


@pytest.fixture(scope="module")
def audited_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the lake of two nodes, and the output of an audit that has seen it."""
    folder = tmp_path_factory.mktemp("once")
    copy_generated(LEDGERS, str(folder / "lake"))
    assert audit(folder).verdict == "complete"
    return folder


@pytest.fixture
def folder(audited_once: Path, tmp_path: Path) -> Path:
    shutil.copytree(audited_once, tmp_path / "audited")
    return tmp_path / "audited"


@pytest.fixture(scope="module")
def compacted_once(audited_once: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, with all days compacted after the audit."""
    folder = tmp_path_factory.mktemp("compacted") / "audited"
    shutil.copytree(audited_once, folder)
    compact(folder)
    return folder


@pytest.fixture
def compacted(compacted_once: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(compacted_once, tmp_path / "compacted"))


def audit(folder: Path, later: int = 0, **how: Any) -> Report:
    """Audit the lake, by a clock that is `later` microseconds ahead."""
    clock = ManualClock(SystemClock().now() + later)
    return run_audit(AuditRequest(lake=str(folder / "lake"), out=str(folder / "out"), **how), clock=clock)


def lake_of(folder: Path) -> Storage:
    return connect(str(folder / "lake"))


def history_of(folder: Path) -> AuditHistory:
    _, _, text = (folder / "out" / HISTORY).read_bytes().partition(b"\n")
    return msgspec.json.decode(text, type=AuditHistory)


def troubles(report: Report, kind: str) -> list[str]:
    return [one.where for one in report.troubles if one.kind == kind]


def cut(folder: Path) -> None:
    """Remove the last segment of refusals of a node that has one, with a state that fits."""
    storage = lake_of(folder)
    node = next(node for node in (A, B) if segments_of(storage, node, Ledger.REFUSALS))
    cut_ledger(storage, node, Ledger.REFUSALS)


def alter(folder: Path, book: Ledger) -> Segment:
    """Change a row of a segment of A in a column that is not compared; the manifest fits. Return the segment."""
    storage = lake_of(folder)
    segment = segments_of(storage, A, book)[0]
    rows = read_segment(storage, segment)
    name = COLUMN[book]
    values = rows[name].to_pylist()
    first = values[0]
    values[0] = first + (
        timedelta(microseconds=1) if isinstance(first, datetime) else " " if name == "exceptions" else 1
    )
    field = rows.schema.field(name)
    rewrite(storage, segment, rows.set_column(rows.schema.get_field_index(name), field, pa.array(values, field.type)))
    return segment


def compact(folder: Path) -> None:
    """Compact all days, and delete the segments that the archive replaces."""
    storage = lake_of(folder)
    for now in (LEDGERS.end + 2 * DAY, LEDGERS.end + 4 * DAY):
        list(compacting(storage, [A, B], now=now, after=0))


def archive_of(folder: Path, segment: Segment) -> str:
    """Return the name of the archive segment that has the rows of a segment."""
    (name,) = {
        one.place.name
        for one in survey(lake_of(folder)).segments
        if one.place.ledger == segment.place.ledger and one.after <= segment.after < one.upto
    }
    assert name.startswith(ARCHIVE)
    return name


# --- versions, and another --full -----------------------------------------------------------------------------------


def test_a_rollback_is_found_after_an_upgrade_that_discards_the_state(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut(folder)
    monkeypatch.setattr(states, "VERSION", states.VERSION + 1)
    report = audit(folder)
    assert report.work.segments_known == 0, "the state is of another version"
    assert [one.kind for one in report.findings] == [Kind.ROLLED_BACK]
    assert troubles(report, "history") == []


def test_a_rewritten_segment_is_found_after_an_upgrade_that_discards_the_state(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = alter(folder, Ledger.DELIVERIES)
    monkeypatch.setattr(states, "VERSION", states.VERSION + 1)
    report = audit(folder)
    assert (report.verdict, troubles(report, "rewritten")) == ("unproven", [segment.place.name])


def test_a_state_with_sums_of_another_version_is_discarded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sums would be taken for those of the present version."""
    monkeypatch.setattr(states, "SUMS", SUMS + 1)
    assert audit(folder).work.segments_known == 0


def test_sums_of_another_version_are_not_compared_but_numbers_of_rows_are(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = alter(folder, Ledger.DELIVERIES)
    storage = lake_of(folder)
    (shorter,) = segments_of(storage, B, Ledger.INBOUND)[:1]
    rewrite(storage, shorter, read_segment(storage, shorter).slice(1))
    compact(folder)
    keep_history(connect(str(folder / "out")), replace(history_of(folder), sums=0))
    report = audit(folder)
    assert troubles(report, "rewritten") == [archive_of(folder, shorter)]
    assert archive_of(folder, segment) not in troubles(report, "rewritten")


def test_a_full_audit_of_some_hours_discards_nothing(folder: Path) -> None:
    cut(folder)
    segment = alter(folder, Ledger.DELIVERIES)
    for _ in range(2):
        report = audit(folder, full=True, since=LEDGERS.start + HOUR)
        assert [one.kind for one in report.findings] == [Kind.ROLLED_BACK]
        assert troubles(report, "rewritten") == [segment.place.name]
        assert troubles(report, "history") == []


def test_a_full_audit_of_all_hours_accepts_the_lake_and_says_so(folder: Path) -> None:
    cut(folder)
    alter(folder, Ledger.DELIVERIES)
    report = audit(folder, full=True)
    assert (report.verdict, report.findings) == ("complete", ())
    (told,) = report.troubles
    assert (told.kind, told.where) == ("history", HISTORY)
    assert "--full discarded what earlier audits had seen" in told.message
    later = audit(folder)
    assert (later.verdict, later.troubles) == ("complete", ())


def test_a_first_audit_discards_nothing_by_full(folder: Path) -> None:
    shutil.rmtree(folder / "out")
    assert audit(folder, full=True).troubles == ()


@pytest.mark.parametrize("missing", [INDEX, HISTORY])
def test_an_output_of_another_lake_is_refused_also_by_a_full_audit_of_some_hours(
    folder: Path, tmp_path: Path, missing: str
) -> None:
    copy_generated(FullSettings(nodes=2, events=50, span=HOUR, seed=5), str(tmp_path / "another"))
    shutil.rmtree(folder / "lake")
    shutil.move(tmp_path / "another", folder / "lake")
    (folder / "out" / missing).unlink()
    with pytest.raises(Conflict, match="holds an audit of another lake") as refused:
        audit(folder, full=True, since=LEDGERS.start)
    assert refused.value.hint == "choose another --out, or start over with --full, and without --from and --to"
    assert audit(folder, full=True).verdict == "complete"


def test_an_output_of_another_lake_is_refused_before_spark_starts_unless_it_is_discarded(
    folder: Path, tmp_path: Path
) -> None:
    copy_generated(FullSettings(nodes=2, events=50, span=HOUR, seed=5), str(tmp_path / "another"))
    out, head = connect(str(folder / "out")), open_lake(connect(str(tmp_path / "another")))
    with pytest.raises(Conflict, match="holds an audit of another lake"):
        prepare_output(out, head, discards=False)
    prepare_output(out, head, discards=True)


# --- segments that are damaged, compacted, gone ---------------------------------------------------------------------


def test_a_rewritten_segment_stays_known_when_it_is_compacted(folder: Path) -> None:
    name = alter(folder, Ledger.DELIVERIES).place.name
    assert troubles(audit(folder), "rewritten") == [name]
    compact(folder)
    report = audit(folder)
    assert (report.verdict, troubles(report, "rewritten")) == ("unproven", [name])


def test_a_damaged_segment_that_was_rewritten_afterwards_is_found(folder: Path) -> None:
    storage = lake_of(folder)
    segment = segments_of(storage, A, Ledger.DELIVERIES)[0]
    whole = storage.read(segment.place.data)
    storage.put(segment.place.data, bytes(len(whole)))
    assert [one.ids for one in audit(folder, recheck=100).findings] == [(segment.place.name,)]
    storage.put(segment.place.data, whole)
    alter(folder, Ledger.DELIVERIES)
    report = audit(folder)
    assert (report.findings, troubles(report, "rewritten")) == ((), [segment.place.name])


def test_archives_have_the_rows_of_the_segments_that_they_replace(folder: Path) -> None:
    segments = [alter(folder, book) for book in COLUMN]
    compact(folder)
    archives = sorted(archive_of(folder, segment) for segment in segments)
    assert len(archives) == len(COLUMN)
    for _ in range(2):
        report = audit(folder)
        assert troubles(report, "rewritten") == archives
        assert report.totals.completeness is None


def test_compaction_alone_rewrites_nothing_and_leaves_nothing_to_compare(compacted: Path) -> None:
    report = audit(compacted)
    assert (report.verdict, report.troubles) == ("complete", ())
    assert report.work.segments_read == report.lake.segments
    history = history_of(compacted)
    assert history.ranges == []
    assert set(history.segments) == {one.place.name for one in survey(lake_of(compacted)).segments}


@pytest.mark.parametrize("is_altered", [False, True], ids=["as they were", "altered"])
def test_segments_that_replace_their_archive_again_are_compared_with_it(
    audited_once: Path, compacted: Path, is_altered: bool
) -> None:
    folder = compacted
    assert audit(folder).verdict == "complete"
    shutil.rmtree(folder / "lake")
    shutil.copytree(audited_once / "lake", folder / "lake")
    names = [alter(folder, Ledger.DELIVERIES).place.name] if is_altered else []
    report = audit(folder)
    assert set(names) <= set(troubles(report, "rewritten"))
    assert report.verdict == ("unproven" if is_altered else "complete")


def test_an_archive_that_is_not_read_at_first_is_compared_when_it_is(folder: Path) -> None:
    segment = alter(folder, Ledger.EVENTS)
    compact(folder)
    assert troubles(audit(folder, since=LEDGERS.end + DAY), "rewritten") == []
    waiting = [one for one in history_of(folder).ranges if one.ledger == segment.place.ledger]
    assert len(waiting) == 1, "the ranges of one archive segment are joined"
    assert troubles(audit(folder), "rewritten") == [archive_of(folder, segment)]
    assert history_of(folder).ranges == []


def test_what_retention_removes_is_forgotten(folder: Path) -> None:
    storage = lake_of(folder)
    for now in (LEDGERS.end + 3 * DAY, LEDGERS.end + 5 * DAY):
        list(retaining(storage, [A, B], now=now, keep=DAY // 24))
    report = audit(folder, later=DAY)
    assert [one.kind for one in report.findings] == []
    assert troubles(report, "deleted") == []
    history = history_of(folder)
    assert (history.segments, history.ranges, history.deleted) == ({}, [], [])


def test_a_lake_that_is_emptied_like_by_retention_but_within_a_day_is_unproven(folder: Path) -> None:
    gone = {
        withdraw(lake_of(folder), node, book, 1_000)[0]
        for node in (A, B)
        for book in Ledger
        if segments_of(lake_of(folder), node, book)
    }
    for later in (0, 9 * DAY):
        report = audit(folder, later)
        assert (report.verdict, report.totals.expected) == ("unproven", 0)
        assert set(troubles(report, "deleted")) == gone
        words = f"Not proven: rows of {len(gone)} ledgers were deleted before retention may delete them."
        assert words in report.headline


def test_rows_that_are_deleted_within_a_day_of_their_promise_stay_known_until_a_full_audit(folder: Path) -> None:
    deleted = dict(withdraw(lake_of(folder), A, book, 2) for book in (Ledger.EVENTS, Ledger.DELIVERIES))
    first = audit(folder, 22 * HOUR)
    later = audit(folder, 9 * DAY)
    for report in (first, later):
        assert (report.verdict, report.totals.completeness) == ("unproven", None)
        told = {one.where: one.message.partition(" were")[0] for one in report.troubles if one.kind == "deleted"}
        assert told == {key: f"rows 1 to {upto:,}" for key, upto in deleted.items()}
    assert first.troubles == later.troubles, "the time of discovery is kept"
    assert [one.kind for one in audit(folder, full=True).troubles] == ["history"]
    assert troubles(audit(folder), "deleted") == []


def test_rows_that_no_state_promised_within_the_last_day_may_be_deleted(folder: Path) -> None:
    storage = lake_of(folder)
    (state,) = (one for one in survey(storage).nodes if one.node == A)
    upto = segments_of(storage, A, Ledger.DELIVERIES)[0].place.upto
    marked = replace(state.segments[Ledger.DELIVERIES], after=upto)
    change_state(storage, A, segments={**state.segments, Ledger.DELIVERIES: marked})
    assert troubles(audit(folder, later=HOUR), "deleted") == []
    withdraw(lake_of(folder), A, Ledger.DELIVERIES, 1)
    assert troubles(audit(folder, later=25 * HOUR), "deleted") == []


@pytest.mark.parametrize("later", [HOUR, 30 * HOUR])
def test_rows_are_not_deleted_by_keeping_the_last_one_of_their_segment(folder: Path, later: int) -> None:
    """Retention removes whole segments, so that it has not removed a part of one, whenever it was promised."""
    storage = lake_of(folder)
    segment = segments_of(storage, A, Ledger.DELIVERIES)[0]
    last = read_segment(storage, segment)
    last = last.slice(len(last) - 1)
    storage.delete([segment.place.manifest, segment.place.data])
    place = segment.place._replace(after=segment.upto - 1)
    write_segment(storage, place, last, node=A, now=segment.manifest.written_at)
    (state,) = (one for one in survey(storage).nodes if one.node == A)
    left = replace(state.segments[Ledger.DELIVERIES], after=segment.upto - 1)
    change_state(storage, A, segments={**state.segments, Ledger.DELIVERIES: left})
    report = audit(folder, later)
    assert report.verdict == "unproven"
    (told,) = (one.message for one in report.troubles if one.kind == "deleted")
    assert told.startswith(f"rows 1 to {segment.upto - 1:,} were")


def test_a_promise_that_a_clock_noted_ahead_of_its_time_is_not_one_of_the_last_day(folder: Path) -> None:
    shutil.rmtree(folder / "out")
    assert audit(folder, later=30 * DAY, patience=60 * DAY).verdict == "complete"
    (state,) = (one for one in survey(lake_of(folder)).nodes if one.node == A)
    upto = segments_of(lake_of(folder), A, Ledger.DELIVERIES)[0].place.upto
    marked = replace(state.segments[Ledger.DELIVERIES], after=upto)
    change_state(lake_of(folder), A, segments={**state.segments, Ledger.DELIVERIES: marked})
    withdraw(lake_of(folder), A, Ledger.DELIVERIES, 1)
    assert troubles(audit(folder), "deleted") == []


# --- a history that is lost -----------------------------------------------------------------------------------------


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


LOSSES: dict[str, Callable[[Path], object]] = {
    "is missing": lambda out: (out / HISTORY).unlink(),
    "is missing, as all of the state": lambda out: shutil.rmtree(out / "state"),
    "is damaged": lambda out: flip(out / HISTORY),
    "is damaged, cut short": lambda out: (out / HISTORY).write_bytes((out / HISTORY).read_bytes()[:-1]),
    "is damaged, empty": lambda out: (out / HISTORY).write_bytes(b""),
    "is damaged, without end": lambda out: os.truncate(out / HISTORY, 1 << 40),
}


def require_lost(report: Report, words: str) -> None:
    """Check that a report says that the history is lost, and why."""
    assert (report.verdict, report.totals.completeness) == ("unproven", None)
    (told,) = report.troubles
    assert (told.kind, told.where) == ("history", HISTORY)
    assert words in told.message
    assert "lake.sha256 of an earlier report" in told.hint
    assert any("what earlier audits had seen of the lake is lost" in words for words in report.headline)


@pytest.mark.parametrize("loss", [loss for loss in LOSSES if loss != "is damaged"])
def test_a_lost_history_is_reported(folder: Path, loss: str) -> None:
    LOSSES[loss](folder / "out")
    require_lost(audit(folder), loss.partition(",")[0])


def test_a_lost_history_is_reported_until_a_full_audit_accepts_the_lake(folder: Path) -> None:
    LOSSES["is damaged"](folder / "out")
    first = audit(folder)
    later = audit(folder)
    for report in (first, later):
        require_lost(report, "is damaged")
    assert first.troubles == later.troubles, "the time of discovery is kept"
    assert [one.kind for one in audit(folder, full=True).troubles] == ["history"]
    report = audit(folder)
    assert (report.verdict, report.troubles) == ("complete", ())


def test_segments_that_the_state_knows_are_compared_without_the_history(folder: Path) -> None:
    (folder / "out" / HISTORY).unlink()
    segment = alter(folder, Ledger.DELIVERIES)
    assert troubles(audit(folder), "rewritten") == [segment.place.name]


# --- audits that are killed -----------------------------------------------------------------------------------------

STEPS = {
    "before anything is read": "eventd.audit.engine.lake_reader.LakeReader.recheck",
    "after the recheck": "eventd.audit.engine.lake_reader.LakeReader.summarize_small",
    "while the state is stored": "eventd.audit.engine.state.State.files",
    "after the cells": "eventd.audit.engine.lake_reader.LakeReader.reconcile",
    "before the history is stored": "eventd.audit.engine.run.keep_history",
    "while a file is replaced": "eventd.lake.folder.sync_folder",
    "before the report is written": "eventd.audit.engine.run.write_output",
}


def kill(folder: Path, step: str) -> None:
    """Run an audit in a fork of this process, which is killed when it reaches a step."""
    owner, _, name = STEPS[step].rpartition(".")
    child = os.fork()
    if child == 0:
        try:
            setattr(locate(owner), name, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
            audit(folder)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL


@pytest.fixture(scope="module")
def changed_once(audited_once: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The folder, with a ledger cut, and rows altered before they were compacted; the names of their archives."""
    folder = tmp_path_factory.mktemp("changed") / "audited"
    shutil.copytree(audited_once, folder)
    cut(folder)
    altered = [alter(folder, Ledger.DELIVERIES), alter(folder, Ledger.EVENTS)]
    compact(folder)
    return folder, sorted(archive_of(folder, one) for one in altered)


@pytest.mark.parametrize("step", STEPS)
def test_an_audit_after_a_killed_one_finds_the_same(
    changed_once: tuple[Path, list[str]], tmp_path: Path, step: str
) -> None:
    before, names = changed_once
    folder = Path(shutil.copytree(before, tmp_path / "audited"))
    kill(folder, step)
    report = audit(folder)
    assert [one.kind for one in report.findings] == [Kind.ROLLED_BACK]
    assert (troubles(report, "rewritten"), troubles(report, "history")) == (names, [])
    assert not list((folder / "out" / "state").glob(".*")), "unfinished files are removed"


@pytest.mark.parametrize("step", STEPS)
def test_a_first_audit_that_was_killed_has_lost_no_history(folder: Path, step: str) -> None:
    shutil.rmtree(folder / "out")
    kill(folder, step)
    report = audit(folder)
    assert (report.verdict, report.troubles) == ("complete", ())


def test_segments_that_a_killed_audit_has_read_are_remembered(folder: Path) -> None:
    shutil.rmtree(folder / "out")
    kill(folder, "after the cells")
    assert history_of(folder).segments == {}
    segment = alter(folder, Ledger.DELIVERIES)
    report = audit(folder)
    assert report.work.segments_known > 0
    assert troubles(report, "rewritten") == [segment.place.name]


def test_a_history_of_a_later_version_is_read(folder: Path) -> None:
    """Fields may be added; the others are read as before."""
    text = msgspec.json.encode(msgspec.to_builtins(history_of(folder)) | {"later": 1})
    digest = hashlib.sha256(text).hexdigest()
    (folder / "out" / HISTORY).write_bytes(b"sha256 " + digest.encode() + b"\n" + text)
    assert audit(folder).troubles == ()
