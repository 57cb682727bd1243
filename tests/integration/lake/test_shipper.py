"""The shipping process, step by step in this process, where it can be killed at each step."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec.structs import astuple

from eventd.egress.lake import shipped_rows
from eventd.egress.lake import shipper as shipping
from eventd.egress.lake.protocol import (
    Answer,
    CursorsMissing,
    Failure,
    RoundEnd,
    Shipment,
    ShippedCheckpoints,
    Terms,
    TidyResult,
    cursor_name,
)
from eventd.egress.lake.shipper import Shipper
from eventd.egress.lake.sink import enrol
from eventd.lake import page_sizes, writer
from eventd.lake.close import close_node
from eventd.lake.compaction import compacting
from eventd.lake.extract import EvictedRows, batches, note_lost
from eventd.lake.ledger_files import DAY
from eventd.lake.manifest import encode
from eventd.lake.reader import survey
from eventd.lake.retention import retaining
from eventd.lake.schema import Ledger
from eventd.lake.segment_reader import read_segment
from eventd.lake.storage import Storage, connect
from eventd.log.core.eventlog import EventLog
from eventd.log.core.head import lock_head
from eventd.log.cursors.steps import Step, apply_step
from eventd.log.history.open_tree import TreeOwner, open_tree
from eventd.log.history.seal import hash_new, store_checkpoint
from eventd.log.retention.evict import EvictionLimits, evict
from eventd.runtime.clock import SECOND
from eventd.store.engine.database import Connection, Database
from eventd.testing import ManualClock, draft
from tests.support.lakes import NOON
from tests.support.ledger_store import LedgerStore

MINUTE = 60 * SECOND
IDS = [f"e{number}" for number in range(10)]


class Killed(BaseException):
    """Stands for SIGKILL: no code handles it."""


class Course:
    """A shipper over a node's database, driven as the node drives it."""

    def __init__(self, url: str, lake: str, **terms: Any) -> None:
        usual = {"rows": 1000, "payloads": False, "compact_after": 0, "retention": 0, "nice": 0}
        self.database = Database(url)
        self.shipper = Shipper(Terms(database=url, lake=lake, **(usual | terms)), self.database)
        self.now = NOON
        self.forgets = False

    def close(self) -> None:
        self.database.close()

    def step(self) -> Answer:
        """One step, and what the node does about it."""
        return self.heed(self.shipper.step(self.now))

    def heed(self, answer: Answer) -> Answer:
        """What the node does about an answer; unless it is killed before."""
        if self.forgets and isinstance(answer, Shipment):
            raise Killed
        if isinstance(answer, CursorsMissing):
            self.database.write_now(enrol, answer.nodes, answer.lake, self.now)
        elif isinstance(answer, Shipment):
            self.database.write_now(_settle, answer, self.now)
        return answer

    def run(self) -> list[Shipment]:
        """A whole round."""
        moved: list[Shipment] = []
        for _ in range(1000):
            answer = self.step()
            assert not isinstance(answer, Failure), answer
            if isinstance(answer, RoundEnd):
                return moved
            if isinstance(answer, Shipment):
                moved.append(answer)
        raise AssertionError("a round without an end")


def _settle(conn: Connection, moved: Shipment, now: int) -> None:
    lock_head(conn)
    note_lost(conn, [EvictedRows(*astuple(each)) for each in moved.lost], now)
    apply_step(conn, Step(cursor_name(moved.node, moved.book), moved.position, moved.upto, moved.upto, now))


def ids(lake: str, book: Ledger = Ledger.EVENTS) -> list[str]:
    """Of all rows of a book; the lake has no trouble, and no file besides."""
    storage = connect(lake)
    found = survey(storage)
    assert found.troubles == []
    data = [entry.path for entry in [*storage.list("landing"), *storage.list("archive")] if ".parquet" in entry.path]
    assert sorted(data) == sorted(segment.place.data for segment in found.segments)
    chosen = [segment for segment in found.segments if segment.place.book is book]
    return [row for segment in chosen for row in read_segment(storage, segment)["id"].to_pylist()]


class Shelf(LedgerStore):
    """The log of a node whose events go to another."""

    def __init__(self, log: EventLog, url: str) -> None:
        super().__init__(log)
        self.url = url
        self._events = 0

    async def deliver(self, *names: str) -> None:
        """Append events and settle their delivery, one by one."""
        for name in names:
            await self.publish(draft(name, node="site-a"))
            self._events += 1
            await self.settle("site-b", self._events - 1, self._events)

    async def evict(self, keep: int) -> None:
        """Let retention evict all but this many events."""
        limits = EvictionLimits(max_records=keep, keep_undelivered=False)
        await self.log.database.write(evict, await self.log.topic("group:g"), limits, now=NOON)


@pytest.fixture
async def shelf(migrated_sqlite_url: str) -> AsyncIterator[Shelf]:
    """The database of a node with ten events, all delivered to another."""
    with closing(Database(migrated_sqlite_url)) as database:
        log = await EventLog.open(database, ManualClock(NOON))
        made = Shelf(log, migrated_sqlite_url)
        await made.declare("site-b", node="site-a")
        await made.deliver(*IDS)
        yield made
        await log.close()


@pytest.fixture
def lake(tmp_path: Path) -> str:
    """A lake over fsspec; the tests of killed processes use a folder."""
    return f"memory://{tmp_path}/lake"


async def test_a_round_brings_everything_into_the_lake(shelf: Shelf, lake: str) -> None:
    with closing(Course(shelf.url, lake)) as course:
        moved = course.run()
        assert {one.book: one.rows for one in moved if one.rows}.keys() >= {"events", "deliveries", "receipts"}
        assert ids(lake) == ids(lake, Ledger.DELIVERIES) == IDS
        assert course.run() == []


def dying(monkeypatch: pytest.MonkeyPatch, storage: Storage, left: list[int]) -> None:
    """Writing works so many times, and then the process is gone: before it, or in the middle of it."""
    for kind in ("put", "create", "delete"):
        method = getattr(type(storage), kind)

        def call(self: Any, *given: Any, method: Any = method) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            return method(self, *given)

        monkeypatch.setattr(type(storage), kind, call)


@pytest.mark.parametrize("where", range(14))
async def test_whatever_was_written_last_the_next_process_goes_on(
    shelf: Shelf, tmp_path: Path, where: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = str(tmp_path / "lake")
    with monkeypatch.context() as patch, closing(Course(shelf.url, lake)) as course:
        dying(patch, connect(lake), [where])
        with suppress(Killed):
            course.run()
    await shelf.deliver("late")
    with closing(Course(shelf.url, lake)) as course:
        course.run()
        assert ids(lake) == ids(lake, Ledger.DELIVERIES) == [*IDS, "late"]


@pytest.mark.parametrize("where", range(5))
async def test_a_segment_that_the_node_did_not_hear_of_is_taken_over(shelf: Shelf, tmp_path: Path, where: int) -> None:
    lake = str(tmp_path / "lake")
    with closing(Course(shelf.url, lake)) as course:
        for _ in range(where):
            course.step()
        course.forgets = True
        with suppress(Killed):
            course.run()
    await shelf.deliver("late")
    with closing(Course(shelf.url, lake)) as course:
        moved = course.run()
        assert any(one.adopted for one in moved)
        assert ids(lake) == ids(lake, Ledger.DELIVERIES) == [*IDS, "late"]


@pytest.mark.parametrize("size", [(16 << 20) + 1, (256 << 20) + 1])
async def test_a_state_or_a_manifest_of_any_size_stops_no_shipping(shelf: Shelf, tmp_path: Path, size: int) -> None:
    storage = connect(str(tmp_path / "lake"))
    with closing(Course(shelf.url, storage.url)) as course:
        course.forgets = True
        with suppress(Killed):
            course.run()
    (manifest,) = (file.path for file in storage.list("landing") if file.path.endswith(".json"))
    for path in [manifest, *(file.path for file in storage.list("nodes"))]:
        os.truncate(storage.locate(path), size)
    with closing(Course(shelf.url, storage.url)) as course:
        assert any(one.adopted for one in course.run())
    (trouble,) = survey(storage).troubles
    assert trouble.message == "its manifest has more than 16 MiB"


@pytest.mark.parametrize("archived", [False, True])
@pytest.mark.parametrize("book", [Ledger.EVENTS, Ledger.DELIVERIES])
async def test_rows_that_were_evicted_before_a_segment_that_the_node_did_not_hear_of_are_declared_as_lost(
    shelf: Shelf, tmp_path: Path, book: Ledger, archived: bool
) -> None:
    await shelf.evict(3)
    lake = str(tmp_path / "lake")
    with closing(Course(shelf.url, lake)) as course, suppress(Killed):
        while True:
            answer = course.shipper.step(course.now)
            course.forgets = isinstance(answer, Shipment) and answer.book is book
            course.heed(answer)
            course.now += MINUTE  # the state lists each segment at once
    for later in (10, 20) if archived else ():
        assert list(compacting(connect(lake), ["site-a"], now=NOON + later * DAY, after=DAY))
    with closing(Course(shelf.url, lake)) as course:
        (adopted,) = [one for one in course.run() if one.adopted]
        course.run()  # the losses are rows of `gaps`, which the next round ships
    assert adopted.book is book
    assert ids(lake) == ids(lake, Ledger.DELIVERIES) == IDS[7:]
    storage = connect(lake)
    segments = [one for one in survey(storage).segments if one.place.book is Ledger.GAPS]
    rows = [row for one in segments for row in read_segment(storage, one).to_pylist()]
    lost = {(row["reason"], row["after"], row["upto"]) for row in rows}
    assert lost == {("events_lost", 0, 7), *(("deliveries_lost", at, at + 1) for at in range(7))}


async def test_a_shipment_of_a_node_whose_events_are_evicted_lists_a_bounded_number_of_losses(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "LOOKED_AT", 1)
    monkeypatch.setattr(batches, "PORTION", 2)
    monkeypatch.setattr(shipped_rows, "MOST_LOST", 3)
    await shelf.evict(1)
    lake = str(tmp_path / "lake")
    with closing(Course(shelf.url, lake)) as course:
        moved = [one for one in course.run() if one.book is Ledger.DELIVERIES]
        assert [(one.upto, len(one.lost), one.rows) for one in moved] == [(4, 4, 0), (8, 4, 0), (10, 1, 1)]
        assert ids(lake, Ledger.DELIVERIES) == IDS[9:]
    (segment,) = [one for one in survey(connect(lake)).segments if one.place.book is Ledger.DELIVERIES]
    assert [(lost.after, lost.upto) for lost in segment.manifest.lost] == [(8, 9)]


async def test_what_a_killed_process_had_not_finished_is_removed(shelf: Shelf, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    with closing(Course(shelf.url, str(lake))) as course:
        course.run()
    (mine,) = (lake / "landing/events").glob("dt=*/node=*")
    other = mine.with_name("node=other-12345678")
    other.mkdir()
    (state,) = (lake / "nodes").iterdir()
    another = state.with_name("other-12345678")
    another.mkdir()
    for folder in (mine, other, state, another):
        (folder / ".x.77.tmp").write_bytes(b"half")
    with closing(Course(shelf.url, str(lake))) as course:
        course.run()
    assert {path.parent for path in lake.rglob("*.tmp")} == {other, another}


async def test_a_segment_has_so_many_rows_and_the_next_follows(
    shelf: Shelf, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipped_rows, "EXTRACT_ROWS", 2)
    with closing(Course(shelf.url, lake, rows=4)) as course:
        sizes = [one.rows for one in course.run() if one.book is Ledger.EVENTS]
        assert sizes == [4, 4, 2]
        assert ids(lake) == IDS


async def test_rows_that_are_large_make_smaller_segments(
    shelf: Shelf, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipped_rows, "PAYLOAD_ROWS", 1)
    monkeypatch.setattr(shipped_rows, "SEGMENT_BYTES", 1)
    with closing(Course(shelf.url, lake, payloads=True)) as course:
        assert [one.rows for one in course.run() if one.book is Ledger.EVENTS] == [1] * 10
        assert ids(lake) == IDS


async def test_rows_that_readers_would_refuse_for_their_memory_make_smaller_segments(
    shelf: Shelf, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(10, 16):
        await shelf.publish(draft(f"e{number}", node="site-a", payload={"text": "x" * 50_000}))
    monkeypatch.setattr(page_sizes, "MOST_TIMES", 0)
    monkeypatch.setattr(page_sizes, "LEAST_BOUND", 120_000)
    with closing(Course(shelf.url, lake, payloads=True)) as course:
        assert [one.rows for one in course.run() if one.book is Ledger.EVENTS] == [8, 4, 2, 2]
        assert ids(lake) == [f"e{number}" for number in range(16)]


async def test_a_segment_that_cannot_be_divided_is_a_fault(
    shelf: Shelf, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_sizes, "MOST_TIMES", 0)
    monkeypatch.setattr(page_sizes, "LEAST_BOUND", 10)
    with closing(Course(shelf.url, lake)) as course:
        assert isinstance(course.step(), CursorsMissing)
        assert course.step() == ShippedCheckpoints(notes=())
        assert isinstance(course.step(), CursorsMissing)
        failed = course.step()
        assert isinstance(failed, Failure)
        assert (failed.kind, failed.reason) == ("fault", "invalid_request")


async def test_a_state_that_readers_would_refuse_blocks_the_link_with_the_reason(
    shelf: Shelf, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(Course(shelf.url, lake)) as course:
        course.run()
        (before,) = survey(connect(lake)).nodes
        manifests = [len(encode(one.manifest)) for one in survey(connect(lake)).segments]
        monkeypatch.setattr(writer, "MOST_JSON", len(encode(before)) - 50)
        assert max(manifests) + 50 < writer.MOST_JSON, "segments are written as before"
        await shelf.publish(draft("late", node="site-a"))
        failed = course.step()
        while isinstance(failed, Shipment):
            course.heed(failed)
            failed = course.step()
        assert isinstance(failed, Failure)
        assert (failed.kind, failed.reason) == ("blocked", "lake_unusable")
        assert re.search(r"state of site-a would have [\d,]+ bytes, and readers of the lake take", failed.message)
        assert survey(connect(lake)).nodes == [before], "it is as it was"
        monkeypatch.undo()
        course.run()
    assert ids(lake) == [*IDS, "late"]


async def test_numbers_without_rows_are_within_the_next_segment(shelf: Shelf, lake: str) -> None:
    with closing(Course(shelf.url, lake)) as course:
        course.run()
        topic = await shelf.log.topic("group:elsewhere")  # of no group that is declared
        await shelf.log.append(topic, [draft("x1"), draft("x2")])
        moved = [one for one in course.run() if one.book is Ledger.EVENTS]
        assert [(one.position, one.upto, one.rows) for one in moved] == [(10, 12, 0)]
        await shelf.deliver("late")
        course.run()
        assert ids(lake) == [*IDS, "late"]
        spans = [(s.after, s.upto) for s in survey(connect(lake)).segments if s.place.book is Ledger.EVENTS]
        assert spans == [(0, 10), (10, 13)]


async def test_a_lost_segment_is_not_covered_up(shelf: Shelf, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    storage = connect(lake)
    with closing(Course(shelf.url, lake)) as course:
        course.run()
    (lost,) = [s.place for s in survey(storage).segments if s.place.book is Ledger.EVENTS]
    storage.delete([lost.manifest, lost.data])
    await shelf.deliver("late")
    with closing(Course(shelf.url, lake)) as course:
        course.run()
    found = survey(storage)
    assert [(trouble.book, trouble.after, trouble.upto) for trouble in found.troubles] == [("events", 0, 10)]


async def test_an_older_copy_that_claims_the_same_history_ships_nothing(shelf: Shelf, tmp_path: Path) -> None:
    lake, copy = str(tmp_path / "lake"), tmp_path / "copy.db"
    file = Path(shelf.url.removeprefix("sqlite:///"))
    with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)
    await shelf.deliver("late")
    with closing(Course(shelf.url, lake)) as course:
        course.run()
    with closing(Course(f"sqlite:///{copy}", lake)) as course:
        assert isinstance(course.step(), CursorsMissing)
        assert isinstance(course.step(), ShippedCheckpoints)
        answer = course.step()
        assert isinstance(answer, Failure)
        assert (answer.kind, answer.reason) == ("blocked", "lake_unusable")
        assert "routerd-eventd migrate --new-epoch" in answer.message
    assert ids(lake) == [*IDS, "late"]


async def test_the_state_is_written_when_there_is_news_and_once_a_minute(shelf: Shelf, lake: str) -> None:
    storage = connect(lake)

    def as_of() -> int:
        return max(state.as_of for state in survey(storage).nodes)

    with closing(Course(shelf.url, lake)) as course:
        course.run()
        assert as_of() == NOON
        course.now += MINUTE // 2
        course.run()
        assert as_of() == NOON
        course.now += MINUTE // 2
        course.run()
        assert as_of() == NOON + MINUTE
        assert survey(storage).nodes[0].complete_until == NOON + MINUTE - shipping.SETTLING
        await shelf.deliver("late")
        course.now += SECOND
        course.run()
        assert as_of() == NOON + MINUTE + SECOND


async def test_an_idle_node_says_that_it_looked_and_opens_what_was_closed(shelf: Shelf, lake: str) -> None:
    storage = connect(lake)
    with closing(Course(shelf.url, lake, interval=5 * SECOND)) as course:
        course.run()
        course.now += 60 * MINUTE
        closed = [close_node(storage, state.node, now=course.now) for state in survey(storage).nodes]
        course.run()
    assert closed
    for state in survey(storage).nodes:
        assert (state.as_of, state.complete_until) == (NOON + 60 * MINUTE, NOON + 60 * MINUTE - shipping.SETTLING)
        assert (state.interval, state.closed_at) == (5 * SECOND, 0)


async def test_what_somebody_has_removed_is_not_promised_again(shelf: Shelf, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    storage = connect(lake)
    with closing(Course(shelf.url, lake)) as course:
        course.run()
        far = NOON + 1000 * DAY
        assert list(retaining(storage, ["site-a"], now=far, keep=DAY))
        await shelf.deliver("late")
        course.now = far
        course.run()
        assert survey(storage).troubles == []
        (state,) = survey(storage).nodes
        assert (state.segments[Ledger.EVENTS].after, state.segments[Ledger.EVENTS].upto) == (10, 11)


async def test_it_tidies_up_when_it_is_asked_to(shelf: Shelf, lake: str) -> None:
    def pieces(course: Course) -> Iterator[TidyResult]:
        while isinstance(answer := course.shipper.tidy(course.now), TidyResult) and answer.more:
            yield answer

    with closing(Course(shelf.url, lake, compact_after=DAY, retention=900 * DAY)) as course:
        assert list(pieces(course)) == []  # it has not looked at the lake yet
        course.run()
        course.now = NOON + 500 * DAY
        assert sum(piece.compacted for piece in pieces(course)) > 0
        course.now += 2 * DAY
        assert sum(piece.removed for piece in pieces(course)) > 0
        assert ids(lake) == IDS
        course.now = NOON + 2000 * DAY
        assert [piece.removed for piece in pieces(course) if piece.removed] == []
        assert ids(lake) == IDS
        course.now += DAY
        assert sum(piece.removed for piece in pieces(course)) > 0
        assert ids(lake) == []


async def test_a_tree_is_in_the_lake_for_good_and_earlier_versions_read_the_state(shelf: Shelf, tmp_path: Path) -> None:
    owner = TreeOwner("g", "site-a", Ed25519PrivateKey.from_private_bytes(b"1" * 32))
    topic = await shelf.log.topic("group:g")
    tree = await shelf.log.database.write(open_tree, topic, owner, NOON)
    await shelf.publish(draft("grown", node="site-a"))
    hashed = await shelf.log.database.read(hash_new, topic)
    assert hashed is not None
    await shelf.log.database.write(store_checkpoint, hashed, owner, NOON)
    storage = connect(str(tmp_path / "lake"))
    with closing(Course(shelf.url, storage.url)) as course:
        assert [one.upto for one in course.run() if one.book is Ledger.HISTORY] == [11]
    assert [*compacting(storage, ["site-a"], now=NOON + 500 * DAY, after=DAY)]
    assert [*retaining(storage, ["site-a"], now=NOON + 1000 * DAY, keep=DAY, grace=0)]
    found = survey(storage)
    rows = {
        one.place.book: read_segment(storage, one).to_pylist() for one in found.segments if one.place.tree == "archive"
    }
    assert [row["leaf"] for row in rows[Ledger.EVENTS]] == [None] * 10 + [1]
    assert [row["kind"] for row in rows[Ledger.HISTORY]] == ["opening", "checkpoint"]
    assert {row["tree"] for row in rows[Ledger.HISTORY]} == {tree.origin.rpartition("/")[2]}
    (state,), (file,) = (
        found.nodes,
        [one.path for one in storage.list("nodes") if one.path.endswith(f"{found.nodes[0].epoch}.json")],
    )
    written = json.loads(storage.read(file))
    assert state.books[Ledger.HISTORY] == written["later_books"]["history"] == 11
    assert "history" not in written["books"] | written["segments"]
    assert state.segments[Ledger.HISTORY].after == 0, "retention has not removed it"


def damage_history(lake: str, upto: int) -> None:
    [data] = Path(lake).rglob(f"landing/history/**/*-{upto:020d}.parquet")
    data.write_bytes(b"damaged")


async def test_the_lake_shows_the_last_checkpoint_of_each_tree_before_anything_is_shipped(
    shelf: Shelf, tmp_path: Path
) -> None:
    lake, key = str(tmp_path / "lake"), Ed25519PrivateKey.from_private_bytes(b"1" * 32)
    owner, topic, database = TreeOwner("g", "site-a", key), await shelf.log.topic("group:g"), shelf.log.database
    notes: list[str] = []
    for name in ("first", "second", "third"):
        tree = await database.write(open_tree, topic, owner, NOON)
        await shelf.publish(draft(name, node="site-a"))
        hashed = await database.read(hash_new, topic)
        assert hashed is not None
        stored = await database.write(store_checkpoint, hashed, owner, NOON)
        assert stored is not None
        with closing(Course(shelf.url, lake)) as course:
            shown = [course.step() for _ in range(2)]
            assert ShippedCheckpoints(notes=tuple(notes[-1:])) in shown
            course.run()
        notes.append(stored.note)
    damage_history(lake, 13)
    with closing(Course(shelf.url, lake)) as course:
        assert course.step() == ShippedCheckpoints(notes=tuple(notes[1:2])), "of the newest segment that can be read"
    assert tree.origin in notes[1]
