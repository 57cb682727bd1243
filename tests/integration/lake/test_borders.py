"""What one node writes to a lake cannot affect another's part: no name, state, row or link reaches beyond its
folders."""

from __future__ import annotations

import os
from io import BytesIO
from pathlib import Path

import pytest
from msgspec.structs import replace

from eventd.audit.segments.segment_jobs import CellMaker, SegmentJob, SegmentJobs
from eventd.audit.segments.spark_tasks import OpenFile
from eventd.errors import LakeUnavailable
from eventd.lake.layout import ARCHIVE, LANDING, archived, day_of, landing, state_path
from eventd.lake.ledger_files import DAY
from eventd.lake.manifest import encode
from eventd.lake.reader import TroubleKind, survey
from eventd.lake.retention import retaining
from eventd.lake.schema import Ledger
from eventd.lake.storage import connect
from eventd.lake.stored_files import FileDraft
from eventd.lake.writer import Segment, write_segment
from tests.support.lakes import EPOCH, NOON, numbered, ship, ship_state, table


@pytest.fixture
def lake(tmp_path: Path) -> str:
    """Two nodes with two segments each."""
    storage = connect(str(tmp_path / "lake"))
    for node in ("site-a", "site-b"):
        ship(storage, 0, 5, node=node)
        ship(storage, 5, 10, node=node)
        ship_state(storage, 10, node=node)
    return str(tmp_path / "lake")


def replacing(lake: str, *names: str, tree: str = ARCHIVE, upto: int = 10) -> Segment:
    """A segment of site-b that says that it has taken the place of these."""
    storage = connect(lake)
    made = archived if tree == ARCHIVE else landing
    where = {"day": day_of(NOON)} if tree == ARCHIVE else {"at": NOON}
    place = made(Ledger.EVENTS, "site-b", EPOCH, 0, upto, **where)  # type: ignore[operator]
    rows = numbered(Ledger.EVENTS, range(1, upto + 1), node="site-b")
    return write_segment(storage, place, rows, node="site-b", now=NOON, replaces=names)


def events(lake: str) -> list[tuple[str, int, int]]:
    return [(one.manifest.node, one.after, one.upto) for one in survey(connect(lake)).segments]


BOTH = [("site-a", 0, 5), ("site-a", 5, 10), ("site-b", 0, 5), ("site-b", 5, 10)]


@pytest.mark.parametrize(
    "name",
    [
        landing(Ledger.EVENTS, "site-a", EPOCH, 0, 5, at=NOON).name,
        landing(Ledger.DELIVERIES, "site-b", EPOCH, 0, 5, at=NOON).name,
        landing(Ledger.EVENTS, "site-b", "b" * 16, 0, 5, at=NOON).name,
        landing(Ledger.EVENTS, "site-b", EPOCH, 5, 11, at=NOON).name,
        archived(Ledger.EVENTS, "site-b", EPOCH, 0, 5, day=day_of(NOON)).name,
        "../../etc/passwd",
    ],
)
def test_a_manifest_replaces_nothing_beyond_its_own_node_book_and_range(lake: str, name: str) -> None:
    bad = replacing(lake, name)
    assert events(lake) == BOTH, "nothing is hidden, and what lies so counts for nothing"
    storage = connect(lake)
    own = [one.place for one in survey(storage).segments if one.manifest.node == "site-b"]
    storage.delete(path for place in own for path in (place.data, place.manifest))
    (trouble,) = survey(storage).troubles
    assert (trouble.kind, trouble.name) == (TroubleKind.CORRUPT, bad.place.name)
    rule = "only an archive segment may, and only a landing segment in its range"
    assert trouble.message == f"its manifest replaces {name}: {rule}"


def test_only_the_archive_replaces_anything(lake: str) -> None:
    replacing(lake, landing(Ledger.EVENTS, "site-b", EPOCH, 0, 5, at=NOON).name, tree=LANDING)
    assert events(lake) == BOTH


def test_a_manifest_replaces_its_own(lake: str) -> None:
    replacing(lake, *(landing(Ledger.EVENTS, "site-b", EPOCH, after, after + 5, at=NOON).name for after in (0, 5)))
    assert events(lake) == [*BOTH[:2], ("site-b", 0, 10)]


def test_a_state_speaks_for_the_node_in_whose_folder_it_lies(lake: str) -> None:
    storage = connect(lake)
    state = next(one for one in survey(storage).nodes if one.node == "site-a")
    path = state_path("site-b", "b" * 16)
    storage.put(path, encode(replace(state, epoch="b" * 16, began_at=NOON + 1)))
    found = survey(storage)
    assert [(one.node, one.epoch) for one in found.nodes] == [("site-a", EPOCH), ("site-b", EPOCH)]
    (trouble,) = found.troubles
    assert (trouble.kind, trouble.name) == (TroubleKind.CORRUPT, path)
    assert "belongs to another node or epoch" in trouble.message


@pytest.mark.parametrize("column", ["node", "epoch"])
@pytest.mark.parametrize(
    "book", [Ledger.EVENTS, Ledger.DELIVERIES, Ledger.RECEIPTS, Ledger.INBOUND, Ledger.GAPS, Ledger.REFUSALS]
)
def test_rows_of_another_node_or_epoch_are_not_counted(lake: str, book: Ledger, column: str, tmp_path: Path) -> None:
    rows: list[dict[str, int | str]] = [
        {"number": number, "position": number, "node": "site-b", "epoch": EPOCH} for number in (11, 12)
    ]
    rows[1][column] = "site-a"
    place = landing(book, "site-b", EPOCH, 10, 12, at=NOON)
    segment = write_segment(connect(lake), place, table(book, rows), node="site-b", now=NOON)
    job = SegmentJob(name=place.name, manifest=segment.manifest)
    file = OpenFile(segment.place.data, connect(lake))
    outcome = CellMaker(SegmentJobs([job]))(iter([file]), FileDraft(BytesIO()))
    assert outcome.rows == {}
    assert outcome.errors == {place.name: f"its rows are of another {column} than its manifest"}


# --- links in the file system ---------------------------------------------------------------------------------------


def test_links_within_a_tree_are_not_followed(lake: str, tmp_path: Path) -> None:
    """Followed, one to a folder above would be walked for ever, and one to another day be deleted as that day."""
    day = Path(lake, LANDING, "events", f"dt={day_of(NOON)}")
    (day / "loop").symlink_to(day.parent)
    (day.parent / "dt=2020-01-01").symlink_to(day)
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "x").mkdir(parents=True)
    (elsewhere / "x" / "file.parquet").write_bytes(b"not of the lake")
    (Path(lake, LANDING) / "gaps").symlink_to(elsewhere)
    storage = connect(lake)
    paths = [entry.path for entry in storage.list(LANDING)]
    assert len(paths) == 8
    assert not any("loop" in path or "2020" in path or "gaps" in path for path in paths)
    assert (events(lake), survey(storage).troubles) == (BOTH, [])
    for days in (0, 1, 2):
        list(retaining(storage, ["site-a", "site-b"], now=NOON + days * DAY, keep=365 * DAY))
    assert events(lake) == BOTH


def test_a_segment_behind_a_link_is_a_loss_that_is_told(lake: str, tmp_path: Path) -> None:
    folder = Path(lake, LANDING, "events", f"dt={day_of(NOON)}")
    folder.rename(tmp_path / "moved")
    folder.symlink_to(tmp_path / "moved")
    found = survey(connect(lake))
    assert [(one.node, one.after, one.upto) for one in found.troubles] == [("site-a", 0, 10), ("site-b", 0, 10)]


def test_a_file_that_is_a_link_does_not_count(lake: str, tmp_path: Path) -> None:
    segment = survey(connect(lake)).segments[0]
    file = Path(lake, segment.place.data)
    file.rename(tmp_path / "outside.parquet")
    file.symlink_to(tmp_path / "outside.parquet")
    (trouble,) = survey(connect(lake)).troubles
    assert (trouble.name, trouble.message) == (segment.place.name, "its file is missing")


def test_a_lake_and_its_trees_may_lie_behind_links(lake: str, tmp_path: Path) -> None:
    Path(lake, LANDING).rename(tmp_path / "disk")
    Path(lake, LANDING).symlink_to(tmp_path / "disk")
    (tmp_path / "link").symlink_to(lake)
    assert events(str(tmp_path / "link")) == BOTH


def test_a_draft_is_not_written_through_a_link(lake: str, tmp_path: Path) -> None:
    """The name of a draft is predictable: a user that may write to the folder must not choose what is overwritten."""
    precious = tmp_path / "precious"
    precious.write_text("mine")
    path = "nodes/x/y.json"
    draft = Path(lake, "nodes", "x", f".y.json.{os.getpid()}.tmp")
    draft.parent.mkdir()
    draft.symlink_to(precious)
    connect(lake).put(path, b"state")
    assert precious.read_text() == "mine"
    assert Path(lake, path).read_bytes() == b"state"
    assert not draft.is_symlink()


def test_a_tree_that_is_a_link_to_itself_is_an_error_that_is_told(tmp_path: Path) -> None:
    (tmp_path / "landing").symlink_to(tmp_path / "landing")
    with pytest.raises(LakeUnavailable, match="Too many levels of symbolic links"):
        connect(str(tmp_path)).list(LANDING)
