"""What an audit stores for the next one stays within the size that the next one reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventd.audit.assembly import final_hours
from eventd.audit.assembly.final_hours import HOURS, open_final
from eventd.audit.engine import state as state_module
from eventd.audit.engine.state import FOLDER, INDEX, KnownSegment, State, keep, open_state
from eventd.audit.report.report import Hour
from eventd.lake.storage import connect, make_lake
from eventd.lake.stored_files import Written
from eventd.runtime.chance import SYSTEM

LAKE = "0123456789abcdef"


def test_an_index_that_would_be_too_large_is_stored_without_some_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = connect(str(tmp_path / "out"))
    head = make_lake(connect(str(tmp_path / "lake")), 0, SYSTEM)
    state = State(lake=head.id)
    for at in range(8):
        file = f"{FOLDER}/cells-{at}.parquet"
        out.put(file, b"cells")
        state.cells[file] = Written(5, "")
        state.checked[f"other-{at}"] = "ranges"
        state.entries[f"segment-{at}"] = KnownSegment(sha256="", ranges="", rows=1, file=file, read_at=0)
    keep(out, state)
    most = (tmp_path / "out" / INDEX).stat().st_size - 1
    monkeypatch.setattr(state_module, "MOST_KEPT", most)
    keep(out, state)
    assert (tmp_path / "out" / INDEX).stat().st_size <= most
    found = open_state(out, head)
    assert list(found.entries) == [f"segment-{at}" for at in range(4)]
    assert (len(found.cells), len(found.checked)) == (4, 4)
    assert len(state.entries) == 8, "the audit that runs needs them all"
    assert len(list((tmp_path / "out" / FOLDER).glob("cells-*"))) == 8


def hour_of(number: int) -> Hour:
    time = f"2026-01-01T{number:02d}:00:00Z"
    return Hour(group="g", source="a", peer="b", type="t", hour=time, expected=1)


def test_final_hours_are_divided_among_files_and_an_index_that_is_too_large_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(final_hours, "FILE_ROWS", 2)
    out = connect(str(tmp_path))
    hours = [hour_of(at) for at in range(5)]
    assert open_final(out, LAKE).add(hours, 1) == 5
    assert len(out.list(HOURS)) == 3
    assert open_final(out, LAKE).add(hours, 2) == 0
    size = (tmp_path / final_hours.INDEX).stat().st_size
    more = [hour_of(at) for at in range(5, 24)]
    known = open_final(out, LAKE)
    with monkeypatch.context() as patch:
        patch.setattr(final_hours, "MOST_KEPT", size)
        assert known.add(more, 3) == 19
    assert (tmp_path / final_hours.INDEX).stat().st_size == size
    assert open_final(out, LAKE).add(more, 4) == 0
