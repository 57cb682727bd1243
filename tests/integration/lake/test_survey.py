"""A lake with every kind of problem: each is reported once, and nothing else is."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from eventd.errors import Invalid, LakeUnusable, NotFound
from eventd.lake.layout import HEAD, archived, landing, slug, state_path
from eventd.lake.manifest import GroupState
from eventd.lake.reader import Survey, Trouble, TroubleKind, survey
from eventd.lake.schema import Ledger, arrow_schema
from eventd.lake.segment_file import BadSegment
from eventd.lake.segment_reader import read_segment
from eventd.lake.storage import Storage, connect, make_lake
from eventd.lake.writer import Segment, write_segment, write_state
from eventd.runtime.chance import SYSTEM
from eventd.runtime.clock import SECOND
from tests.support.lakes import EPOCH, NOON, numbered, ship, ship_state

HOUR = 3600 * SECOND


def ranges(found: Survey) -> list[tuple[int, int]]:
    return [(segment.after, segment.upto) for segment in found.segments]


def only_trouble(found: Survey) -> Trouble:
    assert len(found.troubles) == 1, found.troubles
    return found.troubles[0]


def change_manifest(storage: Storage, segment: Segment, **changes: Any) -> None:
    text = json.loads(storage.read(segment.place.manifest)) | changes
    storage.put(segment.place.manifest, json.dumps(text).encode())


def test_a_whole_lake_has_no_trouble(either_storage: Storage) -> None:
    for book in Ledger:
        ship(either_storage, 0, 4, book=book)
        ship(either_storage, 4, 9, book=book)
    state = ship_state(either_storage, 9)
    found = survey(either_storage)
    assert found.troubles == []
    assert found.nodes == [state]
    assert len(found.segments) == 2 * len(Ledger)
    for segment in found.segments:
        assert read_segment(either_storage, segment)["number"].to_pylist() == [
            *range(segment.after + 1, segment.upto + 1)
        ]


def test_the_manifest_tells_what_the_rows_are(storage: Storage) -> None:
    ship(storage, 0, 3, at=NOON + 90 * SECOND)
    ship_state(storage, 3)
    manifest = survey(storage).segments[0].manifest
    assert (manifest.node, manifest.epoch, manifest.rows) == ("site-a", EPOCH, 3)
    assert manifest.times == (NOON + 90 * SECOND,) * 2
    assert manifest.slots == (NOON // 60_000_000 + 1,) * 2
    ship(storage, 0, 3, book=Ledger.GAPS)
    assert next(s for s in survey(storage).segments if s.place.book is Ledger.GAPS).manifest.slots is None


@pytest.mark.parametrize("of", ["state", "manifest"])
def test_a_state_or_manifest_without_end_is_corrupt(tmp_path: Path, of: str) -> None:
    lake = connect(str(tmp_path))
    segment = ship(lake, 0, 4)
    ship_state(lake, 4)
    path = segment.place.manifest if of == "manifest" else state_path("site-a", EPOCH)
    os.truncate(tmp_path / path, 1 << 40)
    found = survey(lake)
    trouble = only_trouble(found)
    assert trouble.kind is TroubleKind.CORRUPT
    assert "has more than 16 MiB" in trouble.message
    assert path not in found.digests


def test_manifests_are_read_a_few_at_a_time(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    before = [ship(storage, after, after + 4) for after in range(0, 40, 4)]
    ship_state(storage, 40)
    size, together = len(storage.read(before[0].place.manifest)), list[int]()
    read_many = type(storage).read_many

    def noted(self: Storage, paths: Iterable[str]) -> dict[str, bytes]:
        read = read_many(self, paths)
        together.append(sum(map(len, read.values())))
        return read

    monkeypatch.setattr(type(storage), "read_many", noted)
    monkeypatch.setattr("eventd.lake.listed_files._AT_ONCE", 3 * size)
    found = survey(storage)
    assert 2 * size < max(together) <= 3 * size
    assert found.segments == before
    assert found.troubles == []


def test_some_columns_of_a_segment_can_be_read(storage: Storage) -> None:
    segment = ship(storage, 0, 3)
    assert read_segment(storage, segment, ["number", "id"]).column_names == ["number", "id"]


def test_no_lake_is_told(storage: Storage) -> None:
    with pytest.raises(NotFound):
        survey(storage)


def test_a_lake_of_another_schema_is_no_lake_for_us(storage: Storage) -> None:
    ship(storage, 0, 4)
    storage.put(HEAD, b'{"schema": 7, "id": "x", "made_at": 0}')
    with pytest.raises(LakeUnusable, match="schema version 7"):
        survey(storage)


def test_a_missing_manifest(storage: Storage) -> None:
    first, second, third = ship(storage, 0, 4), ship(storage, 4, 9), ship(storage, 9, 12)
    ship_state(storage, 12)
    storage.delete([second.place.manifest])
    found = survey(storage)
    assert found.segments == [first, third]
    assert only_trouble(found) == (
        *(TroubleKind.CORRUPT, "site-a", EPOCH, Ledger.EVENTS, second.place.name),
        *(4, 9, "its manifest is missing"),
    )


def test_what_is_being_shipped_is_no_trouble(storage: Storage) -> None:
    ship(storage, 0, 4)
    ship_state(storage, 4)
    storage.delete([ship(storage, 4, 9).place.manifest])
    found = survey(storage)
    assert (ranges(found), found.troubles) == ([(0, 4)], [])


@pytest.mark.parametrize("lost", [0, 1, 2], ids=["first", "middle", "last"])
def test_a_hole(storage: Storage, lost: int) -> None:
    segments = [ship(storage, 0, 4), ship(storage, 4, 9), ship(storage, 9, 12)]
    ship_state(storage, 12)
    gone = segments[lost]
    storage.delete([gone.place.manifest, gone.place.data])
    trouble = only_trouble(survey(storage))
    assert (trouble.kind, trouble.book, trouble.after, trouble.upto) == (
        "corrupt",
        Ledger.EVENTS,
        gone.after,
        gone.upto,
    )
    assert trouble.name == gone.place.name.rpartition("/")[2]
    assert trouble.message == "no segment contains these numbers"


def test_all_segments_lost(storage: Storage) -> None:
    gone = ship(storage, 0, 4)
    ship_state(storage, 4)
    storage.delete([gone.place.manifest, gone.place.data])
    assert only_trouble(survey(storage)).upto == 4


def test_what_has_outlived_its_retention_is_no_hole(storage: Storage) -> None:
    ship(storage, 4, 9)
    ship_state(storage, 9, after=4)
    assert survey(storage).troubles == []


def test_a_file_that_is_gone(storage: Storage) -> None:
    segment = ship(storage, 0, 4)
    ship_state(storage, 4)
    storage.delete([segment.place.data])
    found = survey(storage)
    assert (ranges(found), only_trouble(found).message) == ([], "its file is missing")


def test_a_half_written_file_under_its_final_name(storage: Storage) -> None:
    segment = ship(storage, 0, 4)
    ship_state(storage, 4)
    storage.put(segment.place.data, storage.read(segment.place.data)[:100])
    found = survey(storage)
    assert ranges(found) == []
    assert only_trouble(found).message.startswith("its file has 100 bytes, and had ")


@pytest.mark.parametrize("text", [b"", b"{", b"\x00\xff", b"[]", b'{"schema": 1}', b'{"schema": 1, "book": "songs"}'])
def test_an_unreadable_manifest(storage: Storage, text: bytes) -> None:
    segment = ship(storage, 0, 4)
    ship_state(storage, 4)
    storage.put(segment.place.manifest, text)
    found = survey(storage)
    assert ranges(found) == []
    assert only_trouble(found).message.startswith("its manifest is no")


def test_a_manifest_of_another_schema(storage: Storage) -> None:
    segment = ship(storage, 0, 4)
    ship_state(storage, 4)
    change_manifest(storage, segment, schema=2)
    assert only_trouble(survey(storage)).message == "its manifest is of schema version 2, and this program knows 1"


@pytest.mark.parametrize("changes", [{"upto": 5}, {"after": 1}, {"node": "b"}, {"epoch": "e"}, {"book": "gaps"}])
def test_a_manifest_of_another_segment(storage: Storage, changes: dict[str, Any]) -> None:
    segment = ship(storage, 0, 4)
    ship_state(storage, 4)
    change_manifest(storage, segment, **changes)
    assert only_trouble(survey(storage)).message == "its manifest describes another segment"


def test_a_file_of_the_same_length_with_another_content(storage: Storage) -> None:
    segment = ship(storage, 0, 4)
    data = bytearray(storage.read(segment.place.data))
    data[len(data) // 2] ^= 1
    storage.put(segment.place.data, bytes(data))
    with pytest.raises(BadSegment, match="was changed after"):
        read_segment(storage, segment)


def test_a_manifest_that_lies_about_rows(storage: Storage) -> None:
    segment = ship(storage, 0, 4)
    ship_state(storage, 4)
    change_manifest(storage, segment, rows=3)
    with pytest.raises(BadSegment, match="its file has 4 rows, and its manifest says 3"):
        read_segment(storage, survey(storage).segments[0])


def test_a_file_that_was_truncated_or_lost_since_the_survey(storage: Storage) -> None:
    segment = ship(storage, 0, 4)
    storage.put(segment.place.data, b"PAR1")
    with pytest.raises(BadSegment, match="its file has 4 bytes"):
        read_segment(storage, segment)
    storage.delete([segment.place.data])
    with pytest.raises(BadSegment, match="its file is missing"):
        read_segment(storage, segment)


def test_a_segment_that_was_shipped_twice_counts_once(storage: Storage) -> None:
    ship(storage, 0, 4)
    ship(storage, 0, 3)
    ship(storage, 4, 9)
    ship_state(storage, 9)
    found = survey(storage)
    assert (ranges(found), found.troubles) == ([(0, 4), (4, 9)], [])


def archive(storage: Storage, *parts: Segment) -> Segment:
    after, upto = parts[0].after, parts[-1].upto
    place = archived(Ledger.EVENTS, "site-a", EPOCH, after, upto, day="2026-11-20")
    rows = numbered(Ledger.EVENTS, range(after + 1, upto + 1))
    names = tuple(part.place.name for part in parts)
    return write_segment(storage, place, rows, node="site-a", now=NOON, replaces=names)


def test_the_archive_takes_the_place_of_what_it_holds(storage: Storage) -> None:
    parts = ship(storage, 0, 4), ship(storage, 4, 9)
    last = ship(storage, 9, 12)
    ship_state(storage, 12)
    whole = archive(storage, *parts)
    assert survey(storage).segments == [whole, last]
    storage.delete([parts[0].place.manifest])  # as it is removed: the manifest first
    assert survey(storage)[2:4] == ([whole, last], [])
    storage.delete([parts[0].place.data, parts[1].place.manifest, parts[1].place.data])
    assert survey(storage)[2:4] == ([whole, last], [])


def test_while_the_archive_is_written_the_landing_counts(storage: Storage) -> None:
    parts = ship(storage, 0, 4), ship(storage, 4, 9)
    ship_state(storage, 9)
    storage.delete([archive(storage, *parts).place.manifest])
    assert survey(storage)[2:4] == ([*parts], [])


def test_a_broken_archive_is_no_loss_while_the_landing_is_there(storage: Storage) -> None:
    parts = ship(storage, 0, 4), ship(storage, 4, 9)
    ship_state(storage, 9)
    whole = archive(storage, *parts)
    storage.put(whole.place.data, b"PAR1")
    assert survey(storage)[2:4] == ([*parts], [])
    storage.delete([path for part in parts for path in (part.place.manifest, part.place.data)])
    trouble = only_trouble(survey(storage))
    assert (trouble.name, trouble.after, trouble.upto) == (whole.place.name, 0, 9)


def test_a_node_without_a_state(storage: Storage) -> None:
    ship(storage, 0, 4)
    trouble = only_trouble(survey(storage))
    assert (trouble.kind, trouble.name) == ("corrupt", state_path("site-a", EPOCH))
    assert "is missing" in trouble.message


def test_a_state_that_cannot_be_read(storage: Storage) -> None:
    make_lake(storage, NOON, SYSTEM)
    storage.put(state_path("site-a", EPOCH), b"{")
    found = survey(storage)
    assert found.nodes == []
    assert "is not JSON" in only_trouble(found).message


def test_a_new_epoch(storage: Storage) -> None:
    ship_state(storage, 0, began_at=NOON, as_of=NOON + HOUR)
    ship_state(storage, 0, epoch="b" * 16, began_at=NOON + 2 * HOUR, as_of=NOON + 3 * HOUR)
    trouble = only_trouble(survey(storage))
    assert (trouble.kind, trouble.node, trouble.epoch) == (TroubleKind.EPOCHS, "site-a", "b" * 16)
    assert trouble.message == (
        f"a new epoch: epoch {EPOCH} from 2026-11-20T12:00:00Z to 2026-11-20T13:00:00Z, "
        f"and epoch {'b' * 16} since 2026-11-20T14:00:00Z"
    )


def test_two_nodes_with_one_name(storage: Storage) -> None:
    ship_state(storage, 0, began_at=NOON, as_of=NOON + 3 * HOUR)
    ship_state(storage, 0, epoch="b" * 16, began_at=NOON + 2 * HOUR, as_of=NOON + 3 * HOUR)
    trouble = only_trouble(survey(storage))
    assert trouble.kind is TroubleKind.TWO_NODES
    assert trouble.message.startswith("two nodes under one name: ")


def with_group(storage: Storage, node: str, group: str, **known: Any) -> None:
    """Ship the state of a node that is in one group."""
    write_state(storage, replace(ship_state(storage, 0, node=node, **known), groups=(GroupState(group=group),)))


@pytest.mark.parametrize("known", [{"epoch": "b" * 16}, {"instance": "j"}], ids=["another epoch", "another instance"])
def test_one_database_under_two_names(storage: Storage, known: dict[str, Any]) -> None:
    with_group(storage, "site-a", "g")
    with_group(storage, "site-b", "g", began_at=NOON + HOUR, **known)
    trouble = only_trouble(survey(storage))
    assert (trouble.kind, trouble.node) == (TroubleKind.TWO_NAMES, "site-b")
    assert trouble.message.startswith("one database under two names: site-a and site-b ship the same group with the ")


def test_a_node_with_another_name_in_each_group_is_fine(storage: Storage) -> None:
    with_group(storage, "site-a", "g")
    with_group(storage, "site-b", "h")
    assert survey(storage).troubles == []


def test_a_state_that_was_copied_to_another_node_is_one_trouble(storage: Storage) -> None:
    ship(storage, 0, 4)
    ship_state(storage, 4)
    storage.put(state_path("site-b", EPOCH), storage.read(state_path("site-a", EPOCH)))
    assert "belongs to another node" in only_trouble(survey(storage)).message


def test_a_state_that_cannot_be_read_is_one_trouble_although_its_node_has_segments(storage: Storage) -> None:
    ship(storage, 0, 4)
    storage.put(state_path("site-a", EPOCH), b"{")
    assert "is not JSON" in only_trouble(survey(storage)).message


def test_files_of_a_copied_folder_are_strays(storage: Storage) -> None:
    segment = ship(storage, 0, 4)
    ship_state(storage, 4)
    copied = [path.replace("node=", "node=copy-") for path in (segment.place.manifest, segment.place.data)]
    for path in copied:
        storage.put(path, b"")
    found = survey(storage)
    assert (ranges(found), found.troubles, found.strays) == ([(0, 4)], [], copied)


def test_two_nodes_with_their_own_names_are_fine(storage: Storage) -> None:
    ship(storage, 0, 4), ship(storage, 0, 4, node="site-b")
    ship_state(storage, 4), ship_state(storage, 4, node="site-b")
    found = survey(storage)
    assert [segment.place.slug for segment in found.segments] == [slug("site-a"), slug("site-b")]
    assert found.troubles == []


def test_rows_that_do_not_belong_into_a_segment_are_refused(storage: Storage) -> None:
    place = landing(Ledger.EVENTS, "site-a", EPOCH, 4, 9, at=NOON)
    for numbers in [[4, 5], [9, 10], [5, 5, 10]]:
        with pytest.raises(Invalid, match=r"out of \(4, 9\]"):
            write_segment(storage, place, numbered(Ledger.EVENTS, numbers), node="site-a", now=NOON)
    with pytest.raises(Invalid, match="would hold no row"):
        write_segment(storage, place, numbered(Ledger.EVENTS, []), node="site-a", now=NOON)
    assert storage.list("") == []


def test_many_tables_make_one_segment(storage: Storage) -> None:
    tables = (numbered(Ledger.EVENTS, [number]) for number in range(1, 50))
    make_lake(storage, NOON, SYSTEM)
    place = landing(Ledger.EVENTS, "site-a", EPOCH, 0, 60, at=NOON)
    segment = write_segment(storage, place, tables, node="site-a", now=NOON)
    assert segment.manifest.rows == 49
    assert read_segment(storage, segment)["number"].to_pylist() == [*range(1, 50)]


def test_a_segment_of_events_of_an_earlier_version_lacks_the_dedupe_key(storage: Storage) -> None:
    segment = ship(storage, 0, 3)
    older = read_segment(storage, segment).drop_columns(["dedupe_key", "tree", "leaf"])
    buffer = pa.BufferOutputStream()
    pq.write_table(older, buffer)
    data = buffer.getvalue().to_pybytes()
    storage.put(segment.place.data, data)
    change_manifest(storage, segment, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    (found,) = survey(storage).segments
    assert read_segment(storage, found)["dedupe_key"].to_pylist() == [""] * 3
    assert read_segment(storage, found).schema == arrow_schema(Ledger.EVENTS)
    assert read_segment(storage, found, ["id"]).column_names == ["id"]
