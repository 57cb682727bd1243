"""The ids that a topic knows: in rows of `event_ids`, or as entries of sorted runs. An id is in one of the two.

A row can be changed, an entry cannot. Ids that arrive in no order, many in a transaction, get entries on SQLite: each
of their rows would change a page of its own. What changes the row of an id calls `make_rows` before.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import msgspec

from eventd.store.engine.database import Connection
from eventd.store.engine.statements import (
    KeyTaken,
    bulk_insert,
    compares_bytes,
    fetch,
    fetch_in,
    insert_numbered,
    listed_in,
)
from eventd.store.ids import covers, merging, ranges, runs

IDS: Final = ("topic_id", "event_id", "position")
"""The columns that are set in the row of a new event id; the others are null."""
LEAST_IDS = 64
"""Minimum number of ids of one transaction that get entries. Fewer cost little in any case."""
MOST_ENTRIES = 2048
"""Maximum number of entries of a new run: they are one chunk, which a look-up reads as a whole."""
ROWS_BETWEEN = 8
"""Ids get entries if there are at least so many rows for each of them, between the first and the last: then most rows
would change a page of their own. Between ids that rise with time there are few."""


class IdRow(NamedTuple):
    """What a topic knows of an id. `gone_at`, `expires_at`, `digest`: of a record that retention has removed."""

    position: int
    first_position: int | None = None
    gone_at: int | None = None
    expires_at: int | None = None
    digest: bytes | None = None


def read_ids_of(conn: Connection, topic_id: int, ids: Sequence[str]) -> dict[str, IdRow]:
    """Return what the topic knows of each of the ids, by id; the others are unknown."""
    sql = (
        "SELECT event_id, position, first_position, gone_at, expires_at, digest FROM event_ids"
        " WHERE topic_id = ? AND event_id {in}"
    )
    found = {row[0]: IdRow(*row[1:]) for row in fetch_in(conn, sql, (topic_id,), list(ids))} if ids else {}
    found.update(_read_entries(conn, topic_id, [each for each in dict.fromkeys(ids) if each not in found]))
    return found


def _read_entries(
    conn: Connection, topic_id: int, ids: Sequence[str], held: Sequence[runs.IdRun] | None = None
) -> dict[str, IdRow]:
    """Return what entries say of the ids. `held`: the topic's runs, if they are read already."""
    if ids and held is None:
        held = runs.read_runs(conn, topic_id)
    if not ids or not held:
        return {}
    if not _are_plain(ids):
        ids = [each for each in ids if _are_plain([each])]
    found: dict[str, IdRow] = {}
    for each, position in runs.find_entries(conn, runs.find_possible(conn, held, ids)):
        if ranges.is_stored(conn, topic_id, position):
            found[each] = IdRow(position)
        elif gone := ranges.find_gone(conn, topic_id, position):
            found[each] = IdRow(position, None, *gone)
    return found


def _are_plain(ids: Sequence[str]) -> bool:
    """Return whether the ids can be in the lines of a run: of printable ASCII characters, without blanks."""
    text = "".join(ids)
    return text.isascii() and text.isprintable() and " " not in text and all(ids)


def store_ids(conn: Connection, topic_id: int, ids: Sequence[str], positions: Sequence[int]) -> bool:
    """Store new ids of a group's topic, whose records have these positions, in ascending order.

    Raises `KeyTaken` if one is known already; the transaction must then be undone. Returns whether a run was written,
    which should be merged with others later. The head must be locked.
    """
    if not _belong_in_run(conn, topic_id, ids):
        if _read_entries(conn, topic_id, ids):
            raise KeyTaken("an event id is known already")
        if positions and positions[-1] - positions[0] == len(positions) - 1:
            insert_numbered(conn, "event_ids", IDS, topic_id, ids, positions[0])
        else:
            rows = [(topic_id, each, at) for each, at in zip(ids, positions, strict=True)]
            bulk_insert(conn, "event_ids", IDS, rows)
        return False
    held = runs.read_runs(conn, topic_id)
    covers.forget_ended(conn, topic_id, [run.mark for run in held])
    listed = f"SELECT 1 FROM event_ids WHERE topic_id = ? AND {listed_in(conn, 'event_id')} LIMIT 1"
    distinct = frozenset(ids)
    if len(distinct) < len(ids) or fetch(conn, listed, (topic_id, msgspec.json.encode(ids).decode())):
        raise KeyTaken("an event id is known already")
    if _read_entries(conn, topic_id, ids, held):
        raise KeyTaken("an event id is known already")
    # first: a merge drops entries at positions that are in no span, also those of runs that this loop has just added
    for first, last in ranges.spans_of(positions):
        ranges.add_span(conn, topic_id, first, last)
    for start in range(0, len(ids), MOST_ENTRIES):
        merging.merge_overdue(conn, runs.read_runs(conn, topic_id) if start else held)
        some, places = ids[start : start + MOST_ENTRIES], positions[start : start + MOST_ENTRIES]
        run = runs.create_run(conn, topic_id, entries=len(some), last=places[-1])
        runs.add_chunk(conn, run.id, sorted([f"{each} {at}" for each, at in zip(some, places, strict=True)]))
        covers.note_mark(conn, topic_id, run.mark)
        covers.kept.keep(run.mark, frozenset(some))
    return True


def _belong_in_run(conn: Connection, topic_id: int, ids: Sequence[str]) -> bool:
    if not compares_bytes(conn) or len(ids) < LEAST_IDS or not _are_plain(ids):
        return False
    sql = "SELECT 1 FROM event_ids WHERE topic_id = ? AND event_id > ? AND event_id < ? LIMIT 1 OFFSET ?"
    return bool(fetch(conn, sql, (topic_id, min(ids), max(ids), ROWS_BETWEEN * len(ids))))


def make_rows(conn: Connection, topic_id: int, ids: Collection[str]) -> None:
    """Replace the entries of ids by rows of `event_ids`, which may then be changed. The head must be locked."""
    found = _read_entries(conn, topic_id, [*ids])
    rows = [(topic_id, each, row.position, row.gone_at, row.expires_at, row.digest) for each, row in found.items()]
    for _, _, position, *_ in rows:
        ranges.end_entry(conn, topic_id, position)
    bulk_insert(conn, "event_ids", (*IDS, "gone_at", "expires_at", "digest"), rows)


def read_ids_from(conn: Connection, topic_id: int, prefix: str, limit: int) -> list[str]:
    """Return the first ids in runs that begin with a prefix and have a stored record, in order."""
    lowest = ranges.lowest_stored(conn, topic_id)
    found: list[str] = []
    for run in runs.read_runs(conn, topic_id):
        if lowest is None or run.last < lowest:
            continue
        some: list[str] = []
        for each, position in runs.scan_prefix(conn, run.id, prefix):
            if len(some) == limit:
                break
            # Most entries whose record is removed are before the lowest: no query is needed for them.
            if position >= lowest and ranges.is_stored(conn, topic_id, position):
                some.append(each)
        found += some
    return sorted(found)[:limit]


def delete_runs(conn: Connection, topic_ids: Sequence[int], room: int) -> int:
    """Delete about `room` rows of the runs of deleted topics; return their number."""
    deleted = 0
    sql = "SELECT id, mark FROM id_runs WHERE topic_id {in} ORDER BY id"  # a run before the one that it is merged into
    for run, mark in fetch_in(conn, sql, (), topic_ids):
        if deleted >= room:
            break
        went = runs.delete_chunks(conn, run, room - deleted)
        if went < room - deleted:
            runs.drop_runs(conn, [run])
            covers.kept.forget([bytes(mark)])
            went += 1
        deleted += went
    return deleted
