"""Ids in sorted runs are known exactly as ids in rows are: two logs with one history, of which one has no runs."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

from eventd.log.core import id_merges
from eventd.log.core.eventlog import EventLog
from eventd.log.core.freed_ids import find_records, free_id, give_back_id
from eventd.log.core.head import lock_head
from eventd.log.core.id_merges import MergeIds, merge_ids
from eventd.log.core.listing import read_id_places, read_ids
from eventd.log.core.topic_row import read_topic
from eventd.log.core.values import Draft, Outcome
from eventd.log.retention.evict import EvictionLimits, RowRetention, delete_old_rows, evict
from eventd.runtime.clock import SECOND
from eventd.store.engine.database import Connection, Database
from eventd.store.engine.statements import execute, fetch
from eventd.store.ids import covers, known, merging, runs
from eventd.store.ids.known import read_ids_of
from eventd.store.ids.ranges import add_span, spans_within
from eventd.store.schema import migrations
from eventd.testing import NOW, ManualClock, draft

HOUR = 3600 * SECOND
ALL = 99
"""Instead of a number of steps of merges: until none is due."""
EXPIRIES = (NOW + HOUR, NOW + 2 * HOUR, None)
BOOKS = RowRetention(ids=24 * HOUR, batches=HOUR, dead_letters=HOUR, receipts=HOUR)
ODD = ["é", "a x", "b\n", "a"]
PLAIN = [f"{first}{second}" for first in "abcdefgh" for second in range(60)]
IDS = PLAIN + ODD
NEIGHBOURS = Random(1).sample(PLAIN, len(PLAIN))


class Append(NamedTuple):
    drafts: list[Draft]
    in_run: bool = True


class Abort(NamedTuple):
    """The same, in a transaction that is undone."""

    drafts: list[Draft]


class Evict(NamedTuple):
    keep: int


class Forget(NamedTuple):
    hours: int


class Free(NamedTuple):
    event_id: str


class GiveBack(NamedTuple):
    event_id: str


class Merge(NamedTuple):
    steps: int


class Reopen(NamedTuple):
    pass


def choose(random: Random) -> NamedTuple:
    """Return the next step of a history."""

    def drafts(most: int) -> list[Draft]:
        at = random.randrange(len(NEIGHBOURS))
        near = NEIGHBOURS[at : at + 30] if random.random() < 0.7 else IDS  # those may all be new, or forgotten
        ids = random.sample(near, min(len(near), random.randint(1, most)))
        return [draft(each, node=random.choice("xxxxxy"), expires=random.choice(EXPIRIES)) for each in ids]

    kind = random.choices(range(8), (12, 2, 2, 2, 1, 1, 6, 1))[0]
    if kind == 0:
        return Append(drafts(12), random.random() < 0.8)
    if kind == 1:
        return Abort(drafts(8))
    if kind == 2:
        return Evict(random.choice((0, 20, 60, 120)))
    if kind == 3:
        return Forget(random.randint(1, 20))
    if kind in (4, 5):
        return (Free if kind == 4 else GiveBack)(random.choice(IDS))
    return Merge(random.choice((1, 2, 3, ALL))) if kind == 6 else Reopen()


class Undone(Exception):
    """Ends a transaction of a test without its commit."""


class Side:
    """A log; `has_runs`: its ids go to runs whenever the step says so."""

    def __init__(self, path: Path, clock: ManualClock, *, has_runs: bool) -> None:
        self.path, self.clock, self.has_runs = path, clock, has_runs

    async def open(self) -> None:
        self.database = Database(f"sqlite:///{self.path}")
        self.log = await EventLog.open(self.database, self.clock)
        self.topic = await self.log.topic("group:g")

    async def close(self) -> None:
        await self.log.close()
        self.database.close()

    async def do(self, step: NamedTuple) -> object:
        match step:
            case Append(some, _):
                done = await self.log.append(self.topic, some)
                return [*done.outcomes], [*done.positions]
            case Abort(some):
                return await self._abort(some)
            case Evict(keep):
                limits = EvictionLimits(max_records=keep, keep_undelivered=False)
                return await self.database.write(evict, self.topic, limits, now=self.clock.now())
            case Forget(_):
                await self.database.write(delete_old_rows, BOOKS, now=self.clock.now())
            case Free(event_id):
                return await self.database.write(self._free, event_id)
            case GiveBack(event_id):
                return await self.database.write(self._give_back, event_id)
            case Merge(steps) if self.has_runs and steps == ALL:
                await merge_ids(self.log)
            case Merge(steps) if self.has_runs:
                for _ in range(steps):
                    await self.log.submit(MergeIds())
            case Reopen():
                await self.close()
                covers.kept.clear()
                await self.open()
        return None

    async def _abort(self, some: Sequence[Draft]) -> object:
        def work(conn: Connection) -> None:
            head = lock_head(conn)
            ids = [each.event_id for each in some]
            known.store_ids(conn, self.topic, ids, range(head.next_position, head.next_position + len(ids)))
            raise Undone

        try:
            await self.database.write(work)
        except Undone:
            return "undone"
        except Exception as error:
            return type(error).__name__
        return None

    def _free(self, conn: Connection, event_id: str) -> bool:
        row = read_ids_of(conn, self.topic, [event_id]).get(event_id)
        return row is not None and free_id(conn, self.topic, event_id, row.position)

    def _give_back(self, conn: Connection, event_id: str) -> object:
        lock_head(conn)
        row = read_ids_of(conn, self.topic, [event_id]).get(event_id)
        if row is None:
            return None
        found = find_records(conn, self.topic, event_id, row.position)
        return found, len(found) > 1 and give_back_id(conn, self.topic, event_id, row.position, found[1])

    def seen(self, conn: Connection) -> dict[str, Any]:
        """What readers see of the ids, by any way."""
        topic = read_topic(conn, "group:g")
        stored = known.read_ids_of(conn, self.topic, IDS)
        return {
            "ids": stored,
            "one by one": {each: read_id_places(conn, each, [self.topic]) for each in IDS[::7]},
            "by prefix": [read_ids(conn, self.topic, prefix, 5) for prefix in ("", "a", "b1", "é", "d\n")],
            "counted": topic.ids,
            "head": (topic.head_seq, topic.evicted_seq, topic.bytes),
        }

    def require_one_place(self, conn: Connection) -> None:
        """An id has a row or an entry that counts, never both; and the topic counts those with a record."""
        rows = {each for (each,) in fetch(conn, "SELECT event_id FROM event_ids WHERE topic_id = ?", (self.topic,))}
        assert rows.isdisjoint(known._read_entries(conn, self.topic, IDS))
        stored = sum(last - first + 1 for first, last in spans_within(conn, self.topic, 1, 1 << 40))
        sql = "SELECT count(*) FROM event_ids WHERE topic_id = ? AND gone_at IS NULL"
        assert stored + fetch(conn, sql, (self.topic,))[0][0] == read_topic(conn, "group:g").ids


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Makes runs and steps small, and lets the one flag of the list decide whether ids go to a run."""
    wanted = [False]

    def belong(conn: Connection, _topic_id: int, ids: Sequence[str]) -> bool:
        [(_, _, path)] = fetch(conn, "PRAGMA database_list")[:1]
        return wanted[0] and "with-runs" in path and known._are_plain(ids)

    monkeypatch.setattr(known, "_belong_in_run", belong)
    for module, name, value in (
        (runs, "SET_ENTRIES", 6),
        (runs, "FEW_IDS", 0),
        (runs, "CHUNK_LINES", 2),
        (merging, "SET_ENTRIES", 6),
        (merging, "CHUNK_LINES", 2),
        (merging, "STEP_LINES", 6),
        (merging, "FACTOR", 2),
        (merging, "MOST_RUNS", 3),
        (merging, "FIRST_LEVEL", 4),
        (merging, "FILTER_CHUNKS", 1),
        (merging, "PART_BYTES", 8),
    ):
        monkeypatch.setattr(module, name, value)
    return wanted


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database without rows."""
    path = tmp_path_factory.mktemp("template") / "eventd.db"
    with closing(Database(f"sqlite:///{path}")) as database:
        database.write_now(migrations.upgrade, now=NOW)
    return path


async def open_side(tmp_path: Path, template: Path, clock: ManualClock | None = None) -> Side:
    """Open a log, in a copy of the template, whose ids may be in runs."""
    side = Side(tmp_path / "with-runs.db", clock or ManualClock(), has_runs=True)
    shutil.copy(template, side.path)
    await side.open()
    return side


@pytest.mark.parametrize("seed", range(4))
async def test_ids_in_runs_are_known_exactly_as_ids_in_rows_are(
    tmp_path: Path, template: Path, small: list[bool], seed: int
) -> None:
    clock, random = ManualClock(), Random(seed)
    sides = [Side(tmp_path / f"{name}.db", clock, has_runs=name != "rows") for name in ("rows", "with-runs")]
    for side in sides:
        shutil.copy(template, side.path)
        await side.open()
    for _ in range(120):
        step = choose(random)
        small[0] = not isinstance(step, Append) or step.in_run
        if isinstance(step, Forget):
            clock.advance(step.hours * 3600)
        did = [await side.do(step) for side in sides]
        assert did[0] == did[1], step
        seen = [await side.database.read(side.seen) for side in sides]
        assert seen[0] == seen[1], step
        await sides[1].database.read(sides[1].require_one_place)
    for side in sides:
        await side.close()


async def test_an_id_that_was_freed_and_came_again_has_its_later_position_after_a_merge(
    tmp_path: Path, template: Path, small: list[bool]
) -> None:
    side = await open_side(tmp_path, template)
    small[0] = True
    await side.do(Append([draft("kept"), *(draft(each) for each in PLAIN[:8])]))
    for each in PLAIN[:8]:
        assert await side.do(Free(each))
    again = [draft(each) for each in PLAIN[:8]]
    assert await side.do(Append(again)) == ([Outcome.NEW] * 8, [*range(10, 18)])
    await side.do(Merge(ALL))
    assert len(await side.database.read(runs.read_all_runs)) == 1, "they were merged"
    assert await side.do(Append(again)) == ([Outcome.DUPLICATE] * 8, [*range(10, 18)])
    await side.close()


async def test_an_evicted_event_stays_known_beside_a_lost_block_whose_ids_are_in_a_run(
    tmp_path: Path, template: Path, small: list[bool]
) -> None:
    side = await open_side(tmp_path, template)
    small[0] = True
    for some in (PLAIN[:10], PLAIN[10:20], PLAIN[20:30]):
        await side.do(Append([draft(each, expires=NOW + HOUR) for each in some]))
    small[0] = False
    later = draft(PLAIN[0], expires=NOW + 2 * HOUR)
    assert await side.do(Append([later])) == ([Outcome.REFRESH], [31])
    await side.database.write(lambda conn: execute(conn, "DELETE FROM blocks WHERE position = 11"))
    await side.do(Evict(0))
    assert await side.do(Append([later])) == ([Outcome.DUPLICATE], [31]), "it has a row, not an entry"
    found = await side.database.read(read_ids_of, side.topic, [PLAIN[0], PLAIN[5], PLAIN[15]])
    assert [found[each].gone_at is None for each in (PLAIN[0], PLAIN[5], PLAIN[15])] == [False, False, True]
    await side.close()


@pytest.mark.parametrize("prefixes", [["a", "b"], ["", ""]])
async def test_a_merge_writes_each_entry_about_once_also_if_its_runs_have_ids_of_different_ranges(
    tmp_path: Path, template: Path, prefixes: list[str]
) -> None:
    shutil.copy(template, tmp_path / "eventd.db")
    random, count, chunk = Random(2), 5000, merging.CHUNK_LINES
    with closing(Database(f"sqlite:///{tmp_path / 'eventd.db'}")) as database:

        def fill(conn: Connection) -> None:
            for number in range(merging.FACTOR):
                first = number * count + 1
                ids = [f"{prefixes[number % 2]}{random.randbytes(8).hex()}" for _ in range(count)]
                run = runs.create_run(conn, 1, entries=count, last=first + count - 1)
                runs.add_lines(conn, run.id, sorted(f"{each} {at}" for at, each in enumerate(ids, first)))
            add_span(conn, 1, 1, merging.FACTOR * count)

        database.write_now(fill)
        steps = written = 0
        more = True
        while more:
            before = dict(database.read_now(fetch, "SELECT rowid, length(lines) FROM id_chunks"))
            step = database.write_now(merging.merge_some)
            after = database.read_now(
                fetch, "SELECT rowid, length(lines) - length(replace(lines, char(10), '')) - 1 FROM id_chunks"
            )
            assert all(lines <= chunk for _, lines in after)
            written += sum(lines for row, lines in after if row not in before)
            steps += 1
            more = step.complete is None
        [(entries,)] = database.read_now(fetch, "SELECT sum(entries) FROM id_runs WHERE into_run IS NULL")
    assert entries == merging.FACTOR * count
    assert written < 1.3 * entries
    assert steps < 1.3 * entries / merging.STEP_LINES + 2


async def test_nothing_is_kept_of_runs_that_were_undone_or_that_another_process_has_merged(
    tmp_path: Path, template: Path, small: list[bool]
) -> None:
    covers.kept.clear()
    path = tmp_path / "with-runs.db"
    shutil.copy(template, path)
    writes, merges = (Side(path, ManualClock(), has_runs=True) for _ in range(2))
    await writes.open()
    await merges.open()
    small[0] = True
    for start in range(0, 400, 10):
        await writes.do(Abort([draft(each) for each in PLAIN[start : start + 10]]))
        await writes.do(Append([draft(each) for each in PLAIN[start : start + 10]]))
        mine = dict(covers.kept.covers)
        await merges.do(Merge(ALL))
        for mark, cover in mine.items():
            covers.kept.keep(mark, cover)  # as if the merge had been in another process
    await writes.do(Append([draft(each) for each in PLAIN[400:410]]))
    listed = {run.mark for run in await writes.database.read(runs.read_all_runs)}
    assert set(covers.kept.covers) <= listed
    covers.kept.clear()
    assert covers.kept._bytes == 0
    await writes.close()
    await merges.close()


async def test_a_process_continues_the_merges_that_an_earlier_one_left(
    tmp_path: Path, template: Path, small: list[bool]
) -> None:
    side = await open_side(tmp_path, template)
    assert not side.log.unmerged.is_set(), "it has no runs"
    small[0] = True
    for start in range(0, 40, 10):
        await side.do(Append([draft(each) for each in PLAIN[start : start + 10]]))
    await side.do(Merge(1))
    await side.do(Reopen())
    assert side.log.unmerged.is_set()
    await side.do(Merge(ALL))
    assert not side.log.unmerged.is_set()
    await side.close()


async def test_a_failed_round_of_merges_is_due_again(
    tmp_path: Path, template: Path, small: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    side = await open_side(tmp_path, template)
    small[0] = True
    for start in range(0, 40, 10):
        await side.do(Append([draft(each) for each in PLAIN[start : start + 10]]))

    def fail(*_: object) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(id_merges, "merge_some", fail)
        with pytest.raises(OSError, match="no space"):
            await merge_ids(side.log)
    assert side.log.unmerged.is_set()
    await side.do(Merge(ALL))
    assert len(await side.database.read(runs.read_all_runs)) == 1
    await side.close()


async def test_retention_deletes_all_of_the_runs_whose_ids_are_forgotten(
    tmp_path: Path, template: Path, small: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "FORGOTTEN_CHUNKS", 2)
    monkeypatch.setattr(merging, "MOST_RUNS", 99)
    clock = ManualClock()
    side = await open_side(tmp_path, template, clock)
    small[0] = True
    for start in range(0, 200, 20):
        await side.do(Append([draft(each) for each in PLAIN[start : start + 20]]))
    while (await side.database.write(evict, side.topic, EvictionLimits(0, keep_undelivered=False), now=NOW)).more:
        pass
    clock.advance(25 * 3600)
    while await side.database.write(delete_old_rows, BOOKS, now=clock.now()):
        pass
    assert await side.database.read(runs.read_all_runs) == []
    assert await side.database.read(fetch, "SELECT * FROM id_chunks") == []
    await side.close()


async def test_runs_do_not_pile_up_where_nothing_merges_them_in_the_background(
    tmp_path: Path, template: Path, small: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "STEP_LINES", 16)
    side = await open_side(tmp_path, template)
    small[0] = True
    most = 0
    for start in range(0, 480, 3):  # fewer than a step moves, as it is with the sizes that nodes use
        await side.do(Append([draft(each) for each in PLAIN[start : start + 3]]))
        held = await side.database.read(runs.read_runs, side.topic)
        merges = await side.database.read(merging.find_merges, held)
        waiting = {run.id for each in merges if each.complete for run in each.sources} | {run.into for run in held}
        levels = Counter(merging.level_of(run.entries) for run in held if run.id not in waiting)
        most = max(most, *levels.values())
    assert most <= merging.MOST_RUNS + 2, "one for the new run, and one for that of a merge"
    await side.do(Merge(ALL))
    assert len(await side.database.read(known.read_ids_of, side.topic, PLAIN)) == 480
    await side.close()


async def test_small_runs_are_merged_while_large_ones_are(tmp_path: Path, template: Path, small: list[bool]) -> None:
    side = await open_side(tmp_path, template)
    small[0] = True
    for start in range(0, 200, 100):
        await side.do(Append([draft(each) for each in PLAIN[start : start + 100]]))
    await side.do(Merge(2))
    large = [run for run in await side.database.read(runs.read_all_runs) if run.into is not None]
    assert len(large) == 2
    for start in (200, 203):
        await side.do(Append([draft(each) for each in PLAIN[start : start + 3]]))
    await side.log.submit(MergeIds([run.into for run in large if run.into is not None]))
    held = await side.database.read(runs.read_all_runs)
    assert [run for run in held if run.into is not None] == large, "their filter is still being made"
    assert [run.entries for run in held if run.last == 206] == [6], "the small ones are"
    await side.close()


async def test_the_filter_of_a_run_is_stored_in_parts_and_is_deleted_with_it(
    tmp_path: Path, template: Path, small: list[bool]
) -> None:
    side = await open_side(tmp_path, template)
    small[0] = True

    async def parts() -> list[Any]:
        return [
            row
            for row in await side.database.read(fetch, "SELECT run, length(data) FROM id_filters ORDER BY run, part")
        ]

    await side.do(Append([draft(each) for each in PLAIN[:20]]))
    await side.do(Append([draft(each) for each in PLAIN[20:40]]))
    await side.do(Merge(ALL))
    [run] = await side.database.read(runs.read_all_runs)
    stored = await parts()
    assert {each for each, _ in stored} == {run.id}
    assert len(stored) > 1
    assert all(size <= merging.PART_BYTES for _, size in stored)
    covers.kept.clear()
    assert await side.database.read(runs.find_possible, [run], ["nothing"] * 20) == {}
    assert len(await side.database.read(read_ids_of, side.topic, PLAIN[:40])) == 40
    await side.database.write(known.delete_runs, [side.topic], 1000)
    assert await parts() == []
    await side.close()


async def test_a_known_event_does_not_send_the_new_ids_of_its_transaction_to_rows(
    tmp_path: Path, template: Path, small: list[bool]
) -> None:
    side = await open_side(tmp_path, template)
    await side.do(Append([draft(PLAIN[3], expires=NOW + HOUR)]))
    small[0] = True
    some = [draft(each, expires=NOW + 2 * HOUR) for each in PLAIN[:6]]  # of which the fourth is a refresh
    side.log.unmerged.clear()
    outcomes, positions = await side.do(Append(some))  # type: ignore[misc]
    assert [outcome is Outcome.NEW for outcome in outcomes] == [True, True, True, False, True, True]
    assert positions == [2, 3, 4, 5, 6, 7]
    assert await side.database.read(spans_within, side.topic, 1, 100) == [(2, 4), (6, 7)]
    assert side.log.unmerged.is_set()
    await side.database.read(side.require_one_place)
    await side.close()


async def test_a_transaction_that_merges_some_of_its_own_runs_keeps_all_of_its_ids(
    tmp_path: Path, template: Path, small: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known, "MOST_ENTRIES", 3)
    side = await open_side(tmp_path, template)
    small[0] = True
    await side.do(Append([draft(each) for each in PLAIN[:60]]))
    assert len(await side.database.read(read_ids_of, side.topic, PLAIN[:60])) == 60
    await side.close()
