"""Final hours of a streamed audit on disk: each row once, a crash between a file and the index, and foreign files."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eventd.audit.assembly.final_hours import FinalHours, open_final
from eventd.audit.engine.output_lock import hold_output
from eventd.audit.report.report import Hour
from eventd.errors import Conflict, LakeUnavailable
from eventd.lake import page_sizes
from eventd.lake.storage import connect
from tests.support.lakes import NOON

LAKE = "0123456789abcdef"


def hour(at: int, **figures: Any) -> Hour:
    told = {"expected": 9, "delivered": 9, "completeness": 100.0, "whole_p50": 0.125, "attempts_p50": 1, **figures}
    return Hour(group="edge", source="a", peer="b", type="t", hour=f"2026-11-20T{at:02}:00:00.000000Z", **told)


def opened(folder: Path, lake: str = LAKE) -> FinalHours:
    return open_final(connect(str(folder)), lake)


def rows(folder: Path) -> list[tuple[int, int, int]]:
    """Hour of the day, revision and missing of every row there is."""
    found = []
    for path in sorted((folder / "final" / "hours").iterdir()):
        found += pq.read_table(path).to_pylist()
    return [(row["hour"].hour, row["revision"], row["missing"]) for row in found]


def test_a_row_is_put_down_once_and_again_when_it_changes(tmp_path: Path) -> None:
    final = opened(tmp_path)
    assert final.add([hour(1), hour(2)], NOON) == 2
    assert final.add([hour(1), hour(2)], NOON) == 0
    assert opened(tmp_path).add([hour(2), hour(3, missing=1)], NOON) == 1
    assert opened(tmp_path).add([hour(1), hour(3)], NOON) == 1
    assert rows(tmp_path) == [(1, 1, 0), (2, 1, 0), (3, 1, 1), (3, 2, 0)]
    assert sorted(path.name for path in (tmp_path / "final" / "hours").iterdir()) == [
        f"part-{number:012d}.parquet" for number in (1, 2, 3)
    ]
    told = pq.read_table(tmp_path / "final" / "hours").to_pylist()[0]
    assert int(told["settled_at"].timestamp()) * 1_000_000 == NOON


@pytest.mark.parametrize("left", ["nothing", "the one before", "half of it"])
def test_a_crash_between_a_file_and_the_index_doubles_nothing(tmp_path: Path, left: str) -> None:
    index = tmp_path / "final" / "index.msgpack"
    opened(tmp_path).add([hour(1), hour(2)], NOON)
    before = index.read_bytes()
    opened(tmp_path).add([hour(2, missing=1), hour(3)], NOON)
    there = rows(tmp_path)
    match left:
        case "nothing":
            index.unlink()
        case "the one before":
            index.write_bytes(before)
        case _:
            index.write_bytes(index.read_bytes()[:-7])
    assert opened(tmp_path).add([hour(1), hour(2, missing=1), hour(3)], NOON) == 0
    assert rows(tmp_path) == there
    assert opened(tmp_path).add([hour(2)], NOON) == 1
    assert rows(tmp_path) == [*there, (2, 3, 0)]


def test_what_killed_writers_left_half_written_is_removed(tmp_path: Path) -> None:
    opened(tmp_path).add([hour(1)], NOON)
    there = sorted(tmp_path.rglob("*"))
    for folder in ("final", "final/hours"):
        (tmp_path / folder / ".name.4711.tmp").touch()
    opened(tmp_path).clean()
    assert sorted(tmp_path.rglob("*")) == there


def test_what_the_lake_has_let_go_of_is_forgotten_a_week_later(tmp_path: Path) -> None:
    final = opened(tmp_path)
    final.add([hour(1)], NOON)
    noon = NOON // 3_600_000_000
    final.forget(noon)
    assert final.add([hour(1)], NOON) == 0
    final.forget(noon + 8 * 24)
    assert final.add([hour(1)], NOON) == 1


@pytest.mark.parametrize("index", [True, False], ids=["with its index", "without"])
def test_final_hours_of_another_lake_are_refused(tmp_path: Path, index: bool) -> None:
    opened(tmp_path).add([hour(1)], NOON)
    if not index:
        (tmp_path / "final" / "index.msgpack").unlink()
    with pytest.raises(Conflict, match="holds final hours of another lake"):
        opened(tmp_path, "f" * 16)


def test_a_file_that_is_not_theirs_is_named(tmp_path: Path) -> None:
    opened(tmp_path).add([hour(1)], NOON)
    (tmp_path / "final" / "hours" / "part-000000000002.parquet").write_text("no")
    with pytest.raises(Conflict, match=r"final/hours/part-000000000002.parquet in .* cannot be read"):
        opened(tmp_path)


def test_a_file_without_end_is_named_and_such_an_index_rebuilt(tmp_path: Path) -> None:
    opened(tmp_path).add([hour(1)], NOON)
    os.truncate(tmp_path / "final" / "index.msgpack", 1 << 40)
    assert opened(tmp_path).add([hour(1)], NOON) == 0
    (tmp_path / "final" / "index.msgpack").unlink()
    os.truncate(tmp_path / "final" / "hours" / "part-000000000001.parquet", 1 << 40)
    with pytest.raises(Conflict, match=r"final/hours/part-000000000001.parquet in .* cannot be read"):
        opened(tmp_path)


@pytest.mark.parametrize("place", ["final/index.msgpack", "final/hours/part-000000000002.parquet"])
def test_a_pipe_in_the_place_of_a_file_is_not_read(tmp_path: Path, place: str) -> None:
    opened(tmp_path).add([hour(1)], NOON)
    (tmp_path / place).unlink(missing_ok=True)
    os.mkfifo(tmp_path / place)
    if place.endswith("parquet"):
        assert opened(tmp_path).add([hour(1)], NOON) == 0, "it is not among the files"
        return
    with pytest.raises(LakeUnavailable, match=r"cannot read final/index.msgpack .*: it is not a regular file"):
        opened(tmp_path)


@pytest.mark.parametrize("how", [{"use_dictionary": True}, {"use_dictionary": False}])
def test_a_small_file_of_much_text_is_named_before_it_takes_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: dict[str, Any]
) -> None:
    monkeypatch.setattr(page_sizes, "LEAST_BOUND", 1 << 20)
    opened(tmp_path).add([hour(1)], NOON)
    assert opened(tmp_path).add([hour(1)], NOON) == 0
    part = tmp_path / "final" / "hours" / "part-000000000001.parquet"
    table = pq.read_table(part)
    rows = pa.Table.from_pylist(table.to_pylist() * 1000, schema=table.schema)
    long = pa.array(["x" * 10_000] * rows.num_rows)
    index = rows.column_names.index("type")
    pq.write_table(rows.set_column(index, rows.schema.field("type"), long), part, compression="zstd", **how)
    assert part.stat().st_size < 100_000
    (tmp_path / "final" / "index.msgpack").unlink()
    with pytest.raises(Conflict, match=r"part-000000000001.parquet in .* cannot be read"):
        opened(tmp_path)


def test_a_lock_that_cannot_be_written_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".lock").symlink_to("/dev/full")
    with (
        pytest.raises(LakeUnavailable, match="cannot write in") as refused,
        hold_output(connect(str(tmp_path / "out"))),
    ):
        pass
    assert refused.value.hint == "choose another --out"


_HOLD_ON_A_FULL_DISK = """
import resource, sys
from eventd.audit.engine.output_lock import hold_output
from eventd.errors import LakeUnavailable
from eventd.lake.storage import connect
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
try:
    with hold_output(connect(sys.argv[1])):
        print("held")
except LakeUnavailable as error:
    print(error)
"""


def test_a_lock_whose_file_takes_no_bytes_is_an_error_of_one_line(tmp_path: Path) -> None:
    """The file can be made and locked, and only the number of the process cannot be written to it."""
    out = tmp_path / "out"
    command = [sys.executable, "-c", _HOLD_ON_A_FULL_DISK, str(out)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ended.stdout == f"cannot write in the output folder at {out}: File too large (choose another --out)\n"
    assert (ended.stderr, (out / ".lock").read_bytes()) == ("", b"")


def test_one_audit_at_a_time_writes_to_a_folder(tmp_path: Path) -> None:
    out = connect(str(tmp_path / "out"))
    with (
        hold_output(out),
        pytest.raises(Conflict, match=r"process \d+ writes an audit to") as refused,
        hold_output(out),
    ):
        pass
    assert "choose another --out" in refused.value.hint
    with hold_output(out), hold_output(connect("memory://out")):
        pass
    (tmp_path / "file").touch()
    with pytest.raises(LakeUnavailable, match="cannot write in"), hold_output(connect(str(tmp_path / "file" / "out"))):
        pass
