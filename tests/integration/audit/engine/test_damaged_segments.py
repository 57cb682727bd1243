"""A segment that an earlier audit has read, and that is damaged when its rows are needed, is reported as corrupt."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from eventd.audit.engine.lake_reader import LakeReader
from eventd.audit.engine.request import AuditRequest
from eventd.audit.engine.state import INDEX, State
from eventd.audit.report.findings import Kind
from eventd.audit.report.report import Report
from eventd.audit.segments.damaged_segment import Damage, DamagedSegment, damage_in
from eventd.audit.verdicts import row_comparison
from eventd.errors import EventdError
from eventd.lake.schema import Ledger
from eventd.lake.segment_file import BadSegment
from eventd.lake.segment_reader import read_segment
from eventd.lake.storage import Storage, connect
from eventd.lake.writer import Segment
from eventd.runtime.clock import SECOND
from federation.event import micros
from tests.support.federations import FullSettings, generate
from tests.support.local_spark import run_audit
from tests.support.tampering import edit, erase, segments_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
LOSSY = FullSettings(nodes=2, events=600, span=2 * HOUR, segment_rows=100, lose=2)
SOUND = FullSettings(nodes=2, events=600, span=2 * HOUR, segment_rows=100)
A, B = "site-01", "site-02"


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lakes")
    generate(LOSSY, str(folder / "lossy"))
    generate(SOUND, str(folder / "sound"))
    return folder


def audit(lake: Storage, spark: SparkSession | None = None, **how: Any) -> Report:
    return run_audit(AuditRequest(lake.url, f"{lake.url}-out", **how), spark)


def damage(lake: Storage, node: str, book: Ledger) -> list[str]:
    """Change a bit in each segment of a ledger; return their names."""
    for segment in segments_of(lake, node, book):
        damage_segment(lake, segment)
    return [segment.place.name for segment in segments_of(lake, node, book)]


def damage_segment(lake: Storage, segment: Segment) -> None:
    data = bytearray(lake.read(segment.place.data))
    data[len(data) // 2] ^= 1
    lake.put(segment.place.data, bytes(data))


def corrupt(report: Report) -> list[str]:
    found = [one for one in report.findings if one.kind is Kind.CORRUPT]
    assert {one.detail for one in found} == {"its file was changed after it was written"}
    return sorted(name for one in found for name in one.ids)


def copy(lakes: Path, name: str, to: Path) -> Storage:
    shutil.copytree(lakes / name, to / name)
    return connect(str(to / name))


def lose_batch(lake: Storage) -> None:
    """Remove the row of one batch from the ledger of its receiver B: the receipt of A is looked for."""
    ledgers = (read_segment(lake, one).to_pylist() for one in segments_of(lake, B, Ledger.INBOUND))
    batches = max(ledgers, key=len)
    wanted = batches[len(batches) // 2]["batch_id"]  # its time is among those of the segment, also without it
    erase(lake, B, Ledger.INBOUND, lambda row: row["batch_id"] == wanted)


def lose_delivery(lake: Storage) -> None:
    """Remove one delivery from the ledger of A: the receipt counts more."""
    rows = _rows(lake, A, Ledger.DELIVERIES)
    wanted = rows[len(rows) // 2]["id"]
    erase(lake, A, Ledger.DELIVERIES, lambda row: row["id"] == wanted)


def _rows(lake: Storage, node: str, book: Ledger) -> list[dict[str, Any]]:
    return [row for one in segments_of(lake, node, book) for row in read_segment(lake, one).to_pylist()]


LOSSES: dict[str, tuple[str, Callable[[Storage], object]]] = {
    "event": ("lossy", lambda lake: None),
    "batch": ("sound", lose_batch),
    "delivery": ("sound", lose_delivery),
}
"""Lakes that lack something; `lossy` lacks events."""


@pytest.fixture(scope="module")
def audited(lakes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with these lakes, and the output of an audit of each."""
    folder = tmp_path_factory.mktemp("audited")
    for lost, (name, lose) in LOSSES.items():
        lake = Path(shutil.copytree(lakes / name, folder / lost))
        lose(connect(str(lake)))
        assert Kind.CORRUPT not in {one.kind for one in audit(connect(str(lake))).findings}
    return folder


READS: dict[str, tuple[str, str, Ledger]] = {
    "events that are compared": ("event", A, Ledger.EVENTS),
    "deliveries that are compared": ("event", A, Ledger.DELIVERIES),
    "receipts of a batch that the peer lacks": ("batch", A, Ledger.RECEIPTS),
    "events of the time of a batch": ("batch", B, Ledger.EVENTS),
    "batches of that time": ("batch", B, Ledger.INBOUND),
    "receipts that count more deliveries": ("delivery", A, Ledger.RECEIPTS),
}


@pytest.mark.parametrize("read", READS)
def test_a_known_segment_that_is_damaged_is_corrupt_and_named(audited: Path, tmp_path: Path, read: str) -> None:
    lost, node, book = READS[read]
    shutil.copytree(audited / f"{lost}-out", tmp_path / f"{lost}-out")
    lake = copy(audited, lost, tmp_path)
    names = damage(lake, node, book)
    report = audit(lake, recheck=0)
    assert corrupt(report) == names
    assert report.verdict == "incomplete"
    if read == "events that are compared":
        assert corrupt(audit(lake, recheck=0)) == names, "a later run needs no second try"


def test_spark_names_the_segment_too(spark: SparkSession, lakes: Path, tmp_path: Path) -> None:
    lake = copy(lakes, "lossy", tmp_path)
    audit(lake)
    names = damage(lake, A, Ledger.EVENTS)
    assert corrupt(audit(lake, spark, recheck=0)) == names


def test_a_damaged_segment_of_other_hours_is_corrupt_too(lakes: Path, tmp_path: Path) -> None:
    """Rows of the time of a batch are looked for in all segments, also in those that are not read otherwise."""
    lake = copy(lakes, "sound", tmp_path)
    segment = next(one for one in segments_of(lake, B, Ledger.EVENTS) if _in_first_hour(one))
    batch = next(row for row in _rows(lake, B, Ledger.INBOUND) if _has_time_of(segment, row))
    erase(lake, B, Ledger.INBOUND, lambda row: row["batch_id"] == batch["batch_id"])
    late = SOUND.start + HOUR + MINUTE  # the first answer of B was lost, and A sent the batch again in the next hour
    edit(lake, A, Ledger.RECEIPTS, lambda row: row["batch_id"] == batch["batch_id"], acked_at=late)
    assert Kind.ERASED in {one.kind for one in audit(lake, since=SOUND.start + HOUR).findings}
    audit(lake)
    damage_segment(lake, segment)
    report = audit(lake, since=SOUND.start + HOUR, recheck=0)
    assert corrupt(report) == [segment.place.name]


def _in_first_hour(segment: Segment) -> bool:
    """Return whether all times of the events of a segment are in the first hour of the lake."""
    return segment.manifest.slots is not None and segment.manifest.slots[1] < (SOUND.start + HOUR) // MINUTE


def _has_time_of(segment: Segment, batch: dict[str, Any]) -> bool:
    """Return whether the times of a segment's rows include that of a batch."""
    assert segment.manifest.times is not None
    return segment.manifest.times[0] < micros(batch["recorded_at"]) < segment.manifest.times[1]


def test_one_that_cannot_be_read_again_and_again_ends_the_audit_with_its_name(
    lakes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise BadSegment("its file is missing")

    lake = copy(lakes, "lossy", tmp_path)
    monkeypatch.setattr(row_comparison, "open_segment", refuse)
    with pytest.raises(EventdError, match=r"segment landing/\S+ of the lake cannot be read: its file is missing"):
        audit(lake)


def test_segments_that_were_checked_count_as_checked_when_the_audit_fails_later(
    lakes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = copy(lakes, "sound", tmp_path)
    audit(lake)
    before = read_at(lake)

    def fail(*_: object, **__: object) -> None:
        raise EventdError("it failed")

    with monkeypatch.context() as patched:
        patched.setattr(LakeReader, "summarize_small", fail)
        with pytest.raises(EventdError, match="it failed"):
            audit(lake, recheck=50)
    after = read_at(lake)
    checked = {name for name in after if after[name] > before[name]}
    assert 0 < len(checked) < len(after)
    audit(lake, recheck=1)
    assert all(time == after[name] for name, time in read_at(lake).items() if name in checked), "others are next"


def read_at(lake: Storage) -> dict[str, int]:
    """Return when each known segment was last read or checked."""
    state = msgspec.msgpack.decode(Path(f"{lake.url}-out", INDEX).read_bytes(), type=State)
    return {name: entry.read_at for name, entry in state.entries.items()}


def test_the_segment_is_found_in_the_text_of_spark() -> None:
    name = "landing/events/dt=2026-01-05/node=a-1/a-1-e-0-1"
    error = DamagedSegment(name, "its file is missing")
    text = f"Traceback …\n  File …\neventd.audit.segments.damaged_segment.{type(error).__name__}: {error}\n\n\tat org…"
    assert damage_in(RuntimeError(text)) == damage_in(error) == Damage(name, "its file is missing")
    assert damage_in(RuntimeError("another failure")) is None
