"""Segments are written so that what names a file comes after it."""

from __future__ import annotations

from pathlib import Path

from eventd.lake.layout import landing
from eventd.lake.schema import Ledger
from eventd.lake.storage import connect
from eventd.lake.writer import write_segment
from tests.support.lakes import EPOCH, NOON, numbered


def test_a_manifest_is_written_when_the_data_is_in_the_lake(tmp_path: Path) -> None:
    lake, rows = connect(str(tmp_path)), numbered(Ledger.EVENTS, range(1, 4))
    place = landing(Ledger.EVENTS, "site-a", EPOCH, 0, rows.num_rows, at=NOON)
    there: list[str] = []

    def announce(_manifest: bytes) -> None:
        there.extend(file.path for file in lake.list(""))

    write_segment(lake, place, rows, node="site-a", now=NOON, announce=announce)
    assert there == [place.data]
