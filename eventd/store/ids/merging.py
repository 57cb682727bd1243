"""Merges the runs of a topic, in small steps, so that there are never many of them.

Runs have levels by their sizes, each of eight times as many entries as the one before. Eight runs of a level become
one of the next. A step moves some thousand entries; the runs keep their filters until that of the new one is stored,
which is made outside of the writer's transactions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch, insert_row
from eventd.store.ids.covers import forget_ended, kept, noted_topics
from eventd.store.ids.filters import IdFilter
from eventd.store.ids.ranges import lowest_known
from eventd.store.ids.runs import (
    CHUNK_LINES,
    SET_ENTRIES,
    IdRun,
    add_lines,
    create_run,
    delete_chunks,
    drop_runs,
    ids_of,
    read_all_runs,
    read_chunks,
    read_first_ids,
    read_runs,
)

FACTOR = 8
"""How many runs of a level are merged."""
MOST_RUNS = 3 * FACTOR
"""Number of runs of a level of a topic above which each new run is preceded by a step of their merge."""
FIRST_LEVEL = 4096
"""Number of entries from which on a run is of the second level."""
STEP_LINES = 4096
"""Entries that a step moves, approximately: a writer waits for it for a few milliseconds."""
FORGOTTEN_CHUNKS = 256
"""Chunks that a step deletes of a run of which no id is known any more."""
PART_BYTES = 1 << 20
"""Bytes of a filter that one transaction stores."""
FILTER_CHUNKS = 64
"""Chunks whose ids are added to a new filter in one read."""


class MergeStep(NamedTuple):
    """What a step did. `worked`: another step may find more to do. `complete`: the run that has all its entries now,
    and lacks a filter."""

    worked: bool
    complete: IdRun | None = None


def level_of(entries: int) -> int:
    """Return the level of a run by its number of entries."""
    level = 0
    while entries >= FIRST_LEVEL:
        entries //= FACTOR
        level += 1
    return level


class IdMerge(NamedTuple):
    """Runs of one level of a topic that become one of the next. `target`: the run that gets their entries; None: the
    merge has not begun. `complete`: it has all of them, and only lacks its filter."""

    topic_id: int
    level: int
    sources: Sequence[IdRun]
    target: IdRun | None = None
    complete: bool = False


def merge_some(conn: Connection, in_making: Collection[int] = ()) -> MergeStep:
    """Do one step of the merge of the lowest level in the open transaction; if none is due, delete some of what is
    forgotten.

    `in_making`: complete runs whose filter the caller makes. The head must be locked.
    """
    held = read_all_runs(conn)
    by_topic = dict(_by_topic(held))
    for topic_id in dict.fromkeys([*noted_topics(conn), *by_topic]):
        forget_ended(conn, topic_id, [run.mark for run in by_topic.get(topic_id, ())])
    merges = find_merges(conn, held)
    for each in merges:
        if each.complete and each.target is not None and each.target.id not in in_making:
            return _end_if_small(conn, each.target, each.sources)
    for each in merges:
        if not each.complete:
            return _do_step(conn, each)
    return MergeStep(worked=delete_forgotten(conn, held) > 0)


def merge_overdue(conn: Connection, held: Sequence[IdRun]) -> None:
    """Do a step of a merge for each level of which a topic has many runs. `held`: its runs. The head must be locked.

    A transaction that adds a run does this before. A step moves more entries than a run adds, so runs of a level cannot
    pile up.
    """
    if len(held) <= MOST_RUNS:
        return
    merges = find_merges(conn, held)
    done = {run.id for each in merges if each.complete for run in each.sources}
    targets = {run.into for run in held}
    levels = Counter(level_of(run.entries) for run in held if run.id not in done and run.id not in targets)
    for each in merges:
        if not each.complete and levels[each.level] > MOST_RUNS:
            _do_step(conn, each)


def find_merges(conn: Connection, held: Sequence[IdRun]) -> list[IdMerge]:
    """Return the merges that have begun and those that are due, the lowest levels first.

    Each level of a topic has at most one to which a step can be done.
    """
    by_id = {run.id: run for run in held}
    begun: defaultdict[int, list[IdRun]] = defaultdict(list)
    free: defaultdict[tuple[int, int], list[IdRun]] = defaultdict(list)
    targets = {run.into for run in held}
    for run in held:
        if run.into is not None:
            begun[run.into].append(run)
        elif run.id not in targets:
            free[run.topic_id, level_of(run.entries)].append(run)
    found: list[IdMerge] = []
    for into, sources in begun.items():
        level = level_of(max(run.entries for run in sources))
        complete = not any(read_first_ids(conn, run.id, 1) for run in sources)
        found.append(IdMerge(sources[0].topic_id, level, sources, by_id[into], complete))
    busy = {(each.topic_id, each.level) for each in found if not each.complete}
    for (topic_id, level), runs in free.items():
        if len(runs) >= FACTOR and (topic_id, level) not in busy:
            found.append(IdMerge(topic_id, level, runs[:FACTOR]))
    return sorted(found, key=lambda each: each.level)


def _do_step(conn: Connection, merge: IdMerge) -> MergeStep:
    if merge.target is not None:
        return _move_some(conn, merge.target, merge.sources)
    new = create_run(conn, merge.topic_id, entries=0, last=max(run.last for run in merge.sources))
    for run in merge.sources:
        execute(conn, "UPDATE id_runs SET into_run = ? WHERE id = ?", (new.id, run.id))
    return _move_some(conn, new, [run._replace(into=new.id) for run in merge.sources])


def _by_topic(held: Sequence[IdRun]) -> Iterator[tuple[int, list[IdRun]]]:
    by_topic: defaultdict[int, list[IdRun]] = defaultdict(list)
    for run in held:
        by_topic[run.topic_id].append(run)
    yield from by_topic.items()


def delete_forgotten(conn: Connection, held: Sequence[IdRun] | None = None) -> int:
    """Delete some of a run of which no entry counts any more; return how many rows, 0: there is none.

    `held`: all runs. A run that is being merged is left to its merge, which drops such entries. The head must be
    locked.
    """
    held = read_all_runs(conn) if held is None else held
    merged = {run.into for run in held}
    for topic_id, runs in _by_topic(held):
        lowest = lowest_known(conn, topic_id)
        for run in runs:
            if run.into is None and run.id not in merged and (lowest is None or run.last < lowest):
                deleted = delete_chunks(conn, run.id, FORGOTTEN_CHUNKS)
                if deleted < FORGOTTEN_CHUNKS:
                    drop_runs(conn, [run.id])
                    kept.forget([run.mark])
                return deleted + 1
    return 0


def _move_some(conn: Connection, target: IdRun, sources: Sequence[IdRun]) -> MergeStep:
    bound, counts = _next_chunks(conn, sources)
    if not counts:
        return _end_if_small(conn, target, sources)
    taken: list[str] = []
    for run, count in counts.items():
        chunks = read_chunks(conn, run, b"", count)
        lines = [line for _, text in chunks for line in text[1:-1].split("\n")]
        delete_chunks(conn, run, count)
        # all entries of an id move together: the blank sorts before every character of an id
        end = len(lines) if bound is None else bisect_left(lines, f"{bound} ")
        taken += lines[:end]
        add_lines(conn, run, lines[end:])
    taken.sort()
    lowest = lowest_known(conn, target.topic_id)
    moved = [*_only_last(taken, lowest)]
    if moved:
        add_lines(conn, target.id, moved)
        execute(conn, "UPDATE id_runs SET entries = entries + ? WHERE id = ?", (len(moved), target.id))
    if bound is not None:
        return MergeStep(worked=True)
    return _end_if_small(conn, target._replace(entries=target.entries + len(moved)), sources)


def _next_chunks(conn: Connection, sources: Sequence[IdRun]) -> tuple[str | None, dict[int, int]]:
    """Return the id before which the next step takes all entries (None: all that are left), and how many of its first
    chunks each run has there.

    They are the first chunks of all runs together. Only the last one of a run may have more, which is written back: a
    run whose ids come later is left as it is.
    """
    most = max(len(sources), STEP_LINES // CHUNK_LINES)  # at most so many runs have a chunk with the same first id
    firsts = {run.id: read_first_ids(conn, run.id, most + 1) for run in sources}
    ordered = sorted(chain.from_iterable(firsts.values()))
    bound = ordered[most] if len(ordered) > most else None
    counts = {run: len(some) if bound is None else bisect_left(some, bound) for run, some in firsts.items()}
    return None if bound is None else bound.decode(), {run: count for run, count in counts.items() if count}


def _only_last(lines: Sequence[str], lowest: int | None) -> Iterator[str]:
    """Yield the lines without those whose position counts no more: one before `lowest`, or before another of its id."""
    if lowest is None:
        return
    before, before_id, before_position = "", "", -1
    for line in lines:
        each, _, text = line.partition(" ")
        position = int(text)
        if position < lowest or (each == before_id and position < before_position):
            continue
        if before and each != before_id:
            yield before
        before, before_id, before_position = line, each, position
    if before:
        yield before


def _end_if_small(conn: Connection, target: IdRun, sources: Sequence[IdRun]) -> MergeStep:
    if target.entries > SET_ENTRIES:
        return MergeStep(worked=True, complete=target)
    drop_runs(conn, [run.id for run in sources])
    kept.forget(run.mark for run in sources)
    return MergeStep(worked=True)


def extend_filter(conn: Connection, run: IdRun, made: IdFilter, after: bytes) -> bytes | None:
    """Add the next ids of a run, those of chunks after `after`, to its filter; return where to continue, None: done."""
    chunks = read_chunks(conn, run.id, after, FILTER_CHUNKS)
    for _, lines in chunks:
        made.add(ids_of(lines))
    return chunks[-1][0] if chunks else None


def filter_parts(made: IdFilter) -> list[bytes]:
    """Return the parts in which a filter is stored."""
    data = made.to_bytes()
    return [data[start : start + PART_BYTES] for start in range(0, len(data), PART_BYTES)]


def store_filter_part(conn: Connection, run: IdRun, part: int, data: bytes) -> None:
    """Store a part of the filter of a complete run, unless the run no longer exists.

    Another process, or an earlier one, may have done it before, with the same bytes.
    """
    if fetch(conn, "SELECT 1 FROM id_runs WHERE id = ? AND has_filter = 0", (run.id,)):
        execute(conn, "DELETE FROM id_filters WHERE run = ? AND part = ?", (run.id, part))
        insert_row(conn, "id_filters", {"run": run.id, "part": part, "data": data})


def end_merge(conn: Connection, run: IdRun, made: IdFilter) -> None:
    """Note that all parts of the filter of a complete run are stored, and delete the rows of the runs that were merged.

    The head must be locked. Another process may have done it before.
    """
    sources = [each for each in read_runs(conn, run.topic_id) if each.into == run.id]
    if not sources:
        return
    execute(conn, "UPDATE id_runs SET has_filter = 1 WHERE id = ?", (run.id,))
    drop_runs(conn, [each.id for each in sources])
    kept.forget(each.mark for each in sources)
    kept.keep(run.mark, made)
