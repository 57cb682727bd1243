"""Merges the runs of a topic, in small steps, so that there are never many of them.

Runs have levels by their sizes, each of eight times as many entries as the one before. Eight runs of a level become
one of the next. A step moves some thousand entries; the runs keep their filters until that of the new one is stored,
which is made outside of the writer's transactions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute
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
FIRST_LEVEL = 4096
"""Number of entries from which on a run is of the second level."""
STEP_LINES = 4096
"""Entries that a step moves, approximately: a writer waits for it for a few milliseconds."""
FORGOTTEN_CHUNKS = 256
"""Chunks that a step deletes of a run of which no id is known any more."""
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


def merge_some(conn: Connection) -> MergeStep:
    """Do one step of a merge in the open transaction, or delete some of what no position needs any more.

    The head must be locked.
    """
    held = read_all_runs(conn)
    by_topic = dict(_by_topic(held))
    for topic_id in {*noted_topics(conn), *by_topic}:
        forget_ended(conn, topic_id, [run.mark for run in by_topic.get(topic_id, ())])
    sources = [run for run in held if run.into is not None]
    if sources:
        return _move_some(conn, held, [run for run in sources if run.into == sources[0].into])
    if delete_forgotten(conn, held):
        return MergeStep(worked=True)
    for topic_id, runs in _by_topic(held):
        by_level: defaultdict[int, list[IdRun]] = defaultdict(list)
        for run in runs:
            by_level[level_of(run.entries)].append(run)
        for _, alike in sorted(by_level.items()):
            if len(alike) >= FACTOR:
                some = alike[:FACTOR]
                new = create_run(conn, topic_id, entries=0, last=max(run.last for run in some))
                for run in some:
                    execute(conn, "UPDATE id_runs SET into_run = ? WHERE id = ?", (new.id, run.id))
                return _move_some(conn, [*held, new], [run._replace(into=new.id) for run in some])
    return MergeStep(worked=False)


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


def _move_some(conn: Connection, held: Sequence[IdRun], sources: Sequence[IdRun]) -> MergeStep:
    target = next(run for run in held if run.id == sources[0].into)
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


def end_merge(conn: Connection, run: IdRun, made: IdFilter) -> None:
    """Store the filter of a complete run, and delete what is left of the runs that were merged.

    The head must be locked. Another process may have done it before.
    """
    sources = [each for each in read_runs(conn, run.topic_id) if each.into == run.id]
    if not sources:
        return
    execute(conn, "UPDATE id_runs SET filter = ?, has_filter = 1 WHERE id = ?", (made.to_bytes(), run.id))
    drop_runs(conn, [each.id for each in sources])
    kept.forget(each.mark for each in sources)
    kept.keep(run.mark, made)
