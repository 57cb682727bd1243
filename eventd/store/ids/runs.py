"""Sorted runs of ids: each is written once, found by a filter, and replaced when it is merged with others.

The entries of a run are lines, an id and its position, in chunks of some kilobytes. A chunk covers the ids from its
first to its last line. Runs that are being merged lose chunks to the new run, in the same transaction, so that an entry
is in exactly one of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from eventd.store.engine.database import Connection
from eventd.store.engine.statements import chance_of, execute, fetch, insert_row
from eventd.store.ids.covers import Cover, kept
from eventd.store.ids.filters import IdFilter, hash_ids

SET_ENTRIES = 32_768
"""Up to this number of entries, a process keeps the ids of a run as a set in memory, and stores no filter."""
FEW_IDS = 16
"""Up to this number of ids, a run whose set or filter is not in memory is searched without loading it."""
CHUNK_LINES = 170


class IdRun(NamedTuple):
    """A run. `into`: the run that it is being merged into. `mark` names its content: no other run ever has it."""

    id: int
    topic_id: int
    entries: int
    last: int
    into: int | None
    mark: bytes
    has_filter: bool


_COLUMNS = "id, topic_id, entries, last, into_run, mark, has_filter"


def read_runs(conn: Connection, topic_id: int) -> list[IdRun]:
    """Return the runs of a topic, the oldest first."""
    sql = f"SELECT {_COLUMNS} FROM id_runs WHERE topic_id = ? ORDER BY id"
    return [IdRun(*row) for row in fetch(conn, sql, (topic_id,))]


def read_all_runs(conn: Connection) -> list[IdRun]:
    """Return the runs of all topics, the oldest first."""
    return [IdRun(*row) for row in fetch(conn, f"SELECT {_COLUMNS} FROM id_runs ORDER BY id")]


def has_runs(conn: Connection) -> bool:
    """Return whether any topic has a run."""
    return bool(fetch(conn, "SELECT 1 FROM id_runs LIMIT 1"))


def create_run(conn: Connection, topic_id: int, *, entries: int, last: int) -> IdRun:
    """Insert the row of a new run, which has no chunks yet; `last` is the highest position of its entries."""
    mark = chance_of(conn).token(16)
    row = {"topic_id": topic_id, "entries": entries, "last": last, "mark": mark}
    [(id,)] = insert_row(conn, "id_runs", row, "RETURNING id")
    return IdRun(id, topic_id, entries, last, None, mark, has_filter=False)


def add_chunk(conn: Connection, run: int, lines: Sequence[str]) -> None:
    """Insert sorted lines as one chunk of a run."""
    low = lines[0].partition(" ")[0].encode()
    insert_row(conn, "id_chunks", {"run": run, "low": low, "lines": "\n" + "\n".join(lines) + "\n"})


def add_lines(conn: Connection, run: int, lines: Sequence[str]) -> None:
    """Insert sorted lines as chunks of a run."""
    for start in range(0, len(lines), CHUNK_LINES):
        add_chunk(conn, run, lines[start : start + CHUNK_LINES])


def read_chunks(conn: Connection, run: int, after: bytes, limit: int) -> list[tuple[bytes, str]]:
    """Return the next chunks of a run whose first id is after `after`, as (first id, lines)."""
    sql = "SELECT low, lines FROM id_chunks WHERE run = ? AND low > ? ORDER BY low LIMIT ?"
    return [(bytes(low), lines) for low, lines in fetch(conn, sql, (run, after, limit))]


def read_first_ids(conn: Connection, run: int, limit: int) -> list[bytes]:
    """Return the first ids of the first chunks of a run, from the index alone."""
    return [
        bytes(low)
        for (low,) in fetch(conn, "SELECT low FROM id_chunks WHERE run = ? ORDER BY low LIMIT ?", (run, limit))
    ]


def ids_of(lines: str) -> list[str]:
    """Return the ids of a chunk."""
    return lines[1:-1].replace("\n", " ").split(" ")[::2]


def drop_runs(conn: Connection, runs: Iterable[int]) -> None:
    """Delete runs that have no chunks any more."""
    for run in runs:
        execute(conn, "DELETE FROM id_runs WHERE id = ?", (run,))
        execute(conn, "DELETE FROM id_filters WHERE run = ?", (run,))


# --- where an id may be ---------------------------------------------------------------------------------------------


def _cover_of(conn: Connection, run: IdRun, ids: int) -> Cover | None:
    cover = kept.get(run.mark)
    if cover is not None or ids <= FEW_IDS:
        return cover
    if run.has_filter:
        parts = fetch(conn, "SELECT data FROM id_filters WHERE run = ? ORDER BY part", (run.id,))
        cover = IdFilter.of_bytes(b"".join(bytes(data) for (data,) in parts))
    elif run.into is None and run.entries <= SET_ENTRIES:
        chunks = read_chunks(conn, run.id, b"", run.entries)
        cover = frozenset(each for _, lines in chunks for each in ids_of(lines))
        if len(cover) != run.entries:  # it is just being filled
            return None
    if cover is not None:
        kept.keep(run.mark, cover)
    return cover


def find_possible(conn: Connection, runs: Sequence[IdRun], ids: Sequence[str]) -> dict[int, Sequence[str]]:
    """Return, by the id of each of a topic's runs, which of the ids may be in it; a run that has none is left out.

    A run that is being filled has nothing that is not in the sets or filters of those that are merged into it.
    """
    hashes: list[int] | None = None
    found: dict[int, Sequence[str]] = {}
    filled = {run.into for run in runs if run.into is not None}
    for run in runs:
        if run.id in filled:
            continue
        cover = _cover_of(conn, run, len(ids))
        if cover is None:
            some: Sequence[str] = ids
        elif isinstance(cover, IdFilter):
            hashes = hash_ids(ids) if hashes is None else hashes
            hits = cover.among(hashes)
            some = [each for each, its in zip(ids, hashes, strict=True) if its in hits] if hits else ()
        else:
            some = () if cover.isdisjoint(ids) else [each for each in ids if each in cover]
        if some:
            found[run.id] = some
            if run.into is not None:
                found[run.into] = [*dict.fromkeys((*found.get(run.into, ()), *some))]
    return found


def find_entries(conn: Connection, possible: Mapping[int, Sequence[str]]) -> Iterator[tuple[str, int]]:
    """Yield the entries of these ids in these runs, as (id, position); an id may have several."""
    sql = "SELECT lines FROM id_chunks WHERE run = ? AND low <= ? ORDER BY low DESC LIMIT 1"
    for run, ids in possible.items():
        lines, last = "", ""
        for each in sorted(ids):
            if not lines or each > last:
                rows = fetch(conn, sql, (run, each.encode()))
                if not rows:
                    continue
                [(lines,)] = rows
                last = lines[lines.rfind("\n", 0, -1) + 1 :].partition(" ")[0]
            at = lines.find(f"\n{each} ")
            while at >= 0:
                begin = at + len(each) + 2
                end = lines.index("\n", begin)
                yield each, int(lines[begin:end])
                at = lines.find(f"\n{each} ", end)


def scan_prefix(conn: Connection, run: int, prefix: str) -> Iterator[tuple[str, int]]:
    """Yield the entries of a run whose ids begin with a prefix, in order, as (id, position)."""
    sql = "SELECT low FROM id_chunks WHERE run = ? AND low <= ? ORDER BY low DESC LIMIT 1"
    rows = fetch(conn, sql, (run, prefix.encode(errors="replace")))
    sql = "SELECT low, lines FROM id_chunks WHERE run = ? AND low >= ? ORDER BY low LIMIT 1"
    after = bytes(rows[0][0]) if rows else b""
    while rows := fetch(conn, sql, (run, after)):
        [(low, lines)] = rows
        for line in lines[1:-1].split("\n"):
            each, _, position = line.partition(" ")
            if each.startswith(prefix):
                yield each, int(position)
            elif each > prefix:
                return
        after = bytes(low) + b"\0"


def delete_chunks(conn: Connection, run: int, limit: int) -> int:
    """Delete at most so many chunks of a run; return their number."""
    some = "SELECT low FROM id_chunks WHERE run = ? ORDER BY low LIMIT ?"
    return execute(conn, f"DELETE FROM id_chunks WHERE run = ? AND low IN ({some})", (run, run, limit))
