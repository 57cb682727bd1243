"""A small file whose content would take very much memory is refused before any of it does."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from eventd.lake import page_sizes
from eventd.lake.layout import landing
from eventd.lake.manifest import Manifest
from eventd.lake.schema import Ledger, arrow_schema
from eventd.lake.segment_file import BadSegment, SegmentFile
from eventd.lake.segment_reader import read_segment
from eventd.lake.storage import Storage, connect
from eventd.lake.thrift import StructDecoder
from eventd.lake.writer import Segment, TooLargeSegment, write_segment
from tests.support.lakes import EPOCH, NOON, numbered

ROWS = 1000
MANIFEST = Manifest(
    book=Ledger.EVENTS,
    node="site-a",
    epoch=EPOCH,
    after=0,
    upto=ROWS,
    rows=ROWS,
    bytes=1,
    sha256="",
    slots=(0, 0),
    times=(NOON, NOON),
    written_at=NOON,
    leaves=True,
)


def content(texts: Mapping[str, str], **how: Any) -> bytes:
    """Return a file of events with one text in all rows of some columns."""
    rows = numbered(Ledger.EVENTS, range(1, ROWS + 1))
    for name, text in texts.items():
        field = arrow_schema(Ledger.EVENTS).field(name)
        rows = rows.set_column(rows.column_names.index(name), field, pa.array([text] * ROWS).cast(field.type))
    draft = io.BytesIO()
    pq.write_table(rows, draft, compression="zstd", **how)
    return draft.getvalue()


@pytest.fixture(autouse=True)
def least(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_sizes, "LEAST_BOUND", 1 << 20)


LONG = "x" * 100_000
BOMBS: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "one text of a dictionary": ({"subject": LONG}, {"use_dictionary": ["subject"]}),
    "one word of a dictionary": ({"path": LONG}, {"use_dictionary": ["path"]}),
    "pages of one text": ({"subject": LONG}, {"use_dictionary": False}),
    "pages of one word": ({"path": LONG}, {"use_dictionary": False}),
    "pages of version 2": ({"payload": LONG}, {"use_dictionary": False, "data_page_version": "2.0"}),
    "texts that share a prefix": (
        {"subject": LONG},
        {"use_dictionary": False, "column_encoding": {"subject": "DELTA_BYTE_ARRAY"}},
    ),
}


def _reason(bomb: str) -> str:
    """Return the pattern of the message that refuses a file."""
    if bomb == "texts that share a prefix":
        return r"^its file has pages in an encoding that no node writes$"
    return r"^its file of [\d,]+ bytes would take more than \d+ MiB of memory$"


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_small_file_of_much_text_is_refused_before_it_takes_the_memory(bomb: str) -> None:
    texts, how = BOMBS[bomb]
    data = content(texts, **how)
    assert len(data) < 200_000
    file = SegmentFile(data, MANIFEST)
    with pytest.raises(BadSegment, match=_reason(bomb)):
        file.read(["number", *texts])
    with pytest.raises(BadSegment, match=_reason(bomb)):  # its row groups, too
        SegmentFile(data, MANIFEST).read_group(0, [*texts])


@pytest.mark.parametrize("how", [{"use_dictionary": True}, {"use_dictionary": False}, {"data_page_version": "2.0"}])
def test_texts_within_the_bound_are_read_as_they_are_in_any_encoding(how: dict[str, Any]) -> None:
    texts = {"subject": "a subject", "payload": '{"a":"b"}', "path": "a,b"}
    file = SegmentFile(content(texts, row_group_size=300, **how), MANIFEST)
    found = file.read(file.names)
    assert found.schema.equals(arrow_schema(Ledger.EVENTS))
    assert {name: set(found[name].to_pylist()) for name in texts} == {name: {text} for name, text in texts.items()}
    assert file.row_groups == 4
    assert file.read_group(3, ["subject", "id"])["subject"].to_pylist() == ["a subject"] * 100


def test_the_bound_grows_with_the_file() -> None:
    assert page_sizes.most_bytes(1_000) == 1 << 20
    assert page_sizes.most_bytes(1 << 20) == 100 << 20


def test_the_bound_ends_at_16_gib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert page_sizes.most_bytes(1 << 27) == 100 << 27
    assert page_sizes.most_bytes(8 << 30) == 16 << 30
    lake, rows = connect(str(tmp_path)), _mixed({"payload": ["x" * 2_000]})
    monkeypatch.setattr(page_sizes, "LEAST_BOUND", 1 << 30)
    written = _write(lake, rows)
    monkeypatch.setattr(page_sizes, "MOST_CONTENT", 500_000)
    with pytest.raises(TooLargeSegment, match=r"its file of [\d,]+ bytes would take more than 0 MiB of memory"):
        _write(lake, rows)
    with pytest.raises(BadSegment, match=r"its file of [\d,]+ bytes would take more than 0 MiB of memory"):
        read_segment(lake, written)


def test_a_file_with_more_rows_in_its_row_groups_than_it_says_is_refused() -> None:
    data = bytearray(content({}))
    begin = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    at = data.index(bytes([0x16, 0xD0, 0x0F]), begin)  # the field `num_rows` of the file: 1,000
    data[at : at + 3] = bytes([0x16, 0x88, 0x0E])  # 900
    with pytest.raises(BadSegment, match="row groups of 1,000 rows, and its manifest says 900"):
        SegmentFile(bytes(data), replace(MANIFEST, rows=900)).read(["number"])


@pytest.mark.parametrize("at", [0, 1, 5, 20])
def test_a_damaged_header_of_a_page_is_damage_of_the_segment(at: int) -> None:
    data = bytearray(content({}, use_dictionary=False))
    data[4 + at] ^= 0xFF
    with pytest.raises(BadSegment):
        SegmentFile(bytes(data), MANIFEST).read(["number", "node"])


@pytest.mark.parametrize(
    "struct",
    [
        bytes([0x15, 2, 0x05, 2, 4, 0]),  # the field 1 twice
        bytes([0x05, 0x82, 0x80, 0x08, 4, 0]),  # the field 65,537, which has the id 1 in 16 bits
        bytes([0x16, *[0xFF] * 9, 0x7F, 0]),  # a number of 70 bits
        bytes([0x1B, 0, 0]),  # a map
        bytes([0x1C] * 40),
    ],
)
def test_a_struct_that_two_programs_may_understand_differently_is_refused(struct: bytes) -> None:
    with pytest.raises(ValueError, match="it "):
        StructDecoder(struct).struct()


WORDS = [f"{number:01000}" for number in range(1500)]
MIXED: dict[str, dict[str, list[str]]] = {
    "texts": {"payload": ["x" * 2_000]},
    "words": {"path": ["x" * 1_000]},
    "words that no dictionary holds, beside texts": {"path": WORDS, "payload": ["x" * 1_000]},
}


@pytest.mark.parametrize("case", MIXED)
def test_a_segment_is_written_only_if_its_readers_take_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    lake, rows = connect(str(tmp_path)), _mixed(MIXED[case])
    monkeypatch.setattr(page_sizes, "MOST_TIMES", 0)
    monkeypatch.setattr(page_sizes, "LEAST_BOUND", 1 << 30)
    written = _write(lake, rows)
    pages = page_sizes.content_bytes(pq.read_metadata(io.BytesIO(lake.read(written.place.data))))
    most = max(pages, page_sizes.word_bytes(rows))
    monkeypatch.setattr(page_sizes, "LEAST_BOUND", most)
    assert read_segment(lake, _write(lake, rows)).num_rows == 4_000
    monkeypatch.setattr(page_sizes, "LEAST_BOUND", most - 1)
    with pytest.raises(TooLargeSegment, match="would take more than"):
        _write(lake, rows)
    monkeypatch.setattr(page_sizes, "LEAST_BOUND", most * 9 // 10)
    with pytest.raises(BadSegment, match="would take more than"):
        read_segment(lake, written)


def _mixed(texts: Mapping[str, list[str]]) -> pa.Table:
    """Return events with these texts over and over in some columns."""
    rows = numbered(Ledger.EVENTS, range(1, 4_001))
    for name, values in texts.items():
        field = arrow_schema(Ledger.EVENTS).field(name)
        column = pa.array([values[at % len(values)] for at in range(4_000)]).cast(field.type)
        rows = rows.set_column(rows.column_names.index(name), field, column)
    return rows


def _write(lake: Storage, rows: pa.Table) -> Segment:
    place = landing(Ledger.EVENTS, "site-a", EPOCH, 0, rows.num_rows, at=NOON)
    return write_segment(lake, place, rows, node="site-a", now=NOON)


@pytest.mark.parametrize("column", ["id", "subject", "type", "dedupe_key"])
def test_a_text_that_no_event_has_is_damage(tmp_path: Path, column: str) -> None:
    lake = connect(str(tmp_path))
    assert read_segment(lake, _with_text(lake, column, 512)).num_rows == 10
    with pytest.raises(BadSegment, match=f"a text of 2,052 bytes in the column {column}"):
        read_segment(lake, _with_text(lake, column, 513))


def _with_text(lake: Storage, column: str, characters: int) -> Segment:
    rows = numbered(Ledger.EVENTS, range(1, 11))
    field = arrow_schema(Ledger.EVENTS).field(column)
    rows = rows.set_column(rows.column_names.index(column), field, pa.array(["𝟙" * characters] * 10).cast(field.type))
    return _write(lake, rows)
