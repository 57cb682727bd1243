"""The files of a report: those beside a report.json are of the same run, and only what the audit wrote is signed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from eventd.audit.assembly.output_files import write_output
from eventd.audit.assembly.tables import make_tables
from eventd.audit.report.findings import Finding, Kind
from eventd.audit.review.verification import FileState, verify_report
from eventd.errors import LakeUnavailable
from eventd.lake.storage import Storage, connect
from eventd.lake.stored_files import FileDraft
from eventd.streams.key_pairs import make_key, pem_of
from federation.ed25519 import pin
from federation.keys import Key
from federation.peers import ANY
from tests.support.audit_cases import MADE

PRIVATE = make_key(bytes(32))
AUDITOR = Key.ed25519(pin(PRIVATE.public_key()), private=pem_of(PRIVATE), owner=ANY)
PAIRS = "tables/pairs/part-0.parquet"


def write(out: Storage, key: Key | None = AUDITOR) -> None:
    report = MADE["three missing"]()
    write_output(out, report, report.findings, report.hours, {"nodes/a/b.json": "0" * 64}, key=key)


def test_files_that_a_killed_audit_left_half_written_are_deleted(tmp_path: Path) -> None:
    out = connect(str(tmp_path))
    write(out)
    left = [".report.html.41.tmp", ".lake.sha256.41.tmp", "tables/pairs/.part-0.parquet.42.tmp"]
    others = [".notes.txt.41.tmp", "tables/pairs/.mine.parquet.42.tmp", "report.html.41.tmp"]
    for name in [*left, *others]:
        (tmp_path / name).write_bytes(b"half")
    write(out)
    assert [name for name in left if (tmp_path / name).exists()] == []
    assert [name for name in others if (tmp_path / name).exists()] == others


class Intruded:
    """A folder in which another program replaces a file as soon as it was written."""

    def __init__(self, folder: Path, path: str) -> None:
        self._storage = connect(str(folder))
        self._replaced = path
        self._file = folder / path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    @contextlib.contextmanager
    def create(self, path: str) -> Iterator[FileDraft]:
        with self._storage.create(path) as draft:
            yield draft
        if path == self._replaced:
            self._file.write_bytes(b"PAR1")


class Failing:
    """A folder that can no longer be written when a file of this path is due."""

    def __init__(self, folder: Path, path: str) -> None:
        self._storage = connect(str(folder))
        self._path = path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._storage, name)

    def put(self, path: str, data: bytes) -> None:
        if path == self._path:
            raise LakeUnavailable("the disk is full")
        self._storage.put(path, data)


def states(folder: Path) -> dict[str, FileState]:
    return {file.path: file.state for file in verify_report(str(folder), [AUDITOR]).files}


def test_a_table_that_was_replaced_before_the_signature_is_not_signed_as_if_the_audit_had_written_it(
    tmp_path: Path,
) -> None:
    write(Intruded(tmp_path, PAIRS))
    found = states(tmp_path)
    assert {path for path, state in found.items() if state is not FileState.UNCHANGED} == {PAIRS}
    assert found[PAIRS] is FileState.CHANGED


def test_parquet_files_of_others_are_deleted_from_the_tables_and_other_files_are_not_signed(tmp_path: Path) -> None:
    added = tmp_path / "tables" / "pairs" / "part-1.parquet"
    former = tmp_path / "tables" / "former" / "part-0.parquet"
    notes = tmp_path / "tables" / "notes.txt"
    for file in (added, former, notes):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"PAR1")
    write(connect(str(tmp_path)))
    assert (added.exists(), former.parent.exists(), notes.exists()) == (False, False, True)
    assert pq.read_table(tmp_path / "tables" / "pairs").num_rows == len(MADE["three missing"]().pairs)
    assert {path for path, state in states(tmp_path).items() if state is FileState.NOT_SIGNED} == {"tables/notes.txt"}


@pytest.mark.parametrize("path", ["lake.sha256", "report.html", "report.sig"])
def test_no_report_lies_beside_files_of_another_run(tmp_path: Path, path: str) -> None:
    write(connect(str(tmp_path)))
    with pytest.raises(LakeUnavailable):
        write(Failing(tmp_path, path))
    assert not (tmp_path / "report.json").exists()
    assert not (tmp_path / "report.sig").exists()
    write(connect(str(tmp_path)))
    assert set(states(tmp_path).values()) == {FileState.UNCHANGED}


def test_the_table_marks_only_the_ids_that_are_new_or_acknowledged() -> None:
    hole = Finding(Kind.ERASED, "edge", "a", "", 20, 69, ("e20", "e21"), count=50, new=48, acknowledged=2)
    hole = replace(hole, acknowledged_ids=hole.ids)
    lost = Finding(Kind.MISSING, "edge", "a", "b", 4, 5, ("e4", "e5"), new=2, acknowledged=1, acknowledged_ids=("e5",))
    rows = make_tables(MADE["clean"](), [hole, lost], ())["findings"].to_pylist()
    assert [(row["id"], row["new"], row["acknowledged"]) for row in rows] == [
        ("e20", False, True),
        ("e21", False, True),
        ("e4", True, False),
        ("e5", True, True),
    ]
