"""Rows of routers, and their deletion with one of their topics.

A router's cursor is a row of `cursors` like every consumer's; its `selector_version` is the version of the router's
options. This module does not interpret `options`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from eventd.log.core.head import read_head
from eventd.log.cursors.cursors import delete_cursors
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute_many, fetch, fetch_in
from eventd.store.schema.bounds import beyond

CURSOR_KIND = "router"
MOST_NAMES = 500
"""Maximum number of routers that one statement of `list_routers` reads."""


class RouterRow(NamedTuple):
    """A router. It has read its source up to `position` and `seq`.

    `source` and `dest` are the names of its topics. `state` and `reason` show whether it has to wait; `forwarded`
    counts copies, and records that were lost before they were copied; `refused` counts records that it could not copy.
    `source_head` is the last seq of its source, `durability` that of its destination, `version` the version of its
    options. Times in microseconds.
    """

    id: int
    name: str
    source_id: int
    dest_id: int
    options: str
    seq: int
    forwarded: int
    refused: int
    created_at: int
    updated_at: int
    source: str
    source_head: int
    dest: str
    durability: str
    position: int
    version: int
    state: str
    reason: str

    @property
    def cursor(self) -> str:
        """Return the name of the router's cursor."""
        return cursor_of(self.name)


_COLUMNS = (
    "r.id, r.name, r.source_id, r.dest_id, r.options, r.seq, r.forwarded, r.refused, r.created_at, r.updated_at,"
    " s.name, s.next_seq - 1, d.name, d.durability"
)
_LINES = f"SELECT {_COLUMNS} FROM routers r JOIN topics s ON s.id = r.source_id JOIN topics d ON d.id = r.dest_id"
_CURSORS = "SELECT name, position, selector_version, state, reason FROM cursors WHERE name {in}"


def cursor_of(router: str) -> str:
    """Return the name of a router's cursor."""
    return f"{CURSOR_KIND}:{router}"


def read_routers(conn: Connection) -> list[RouterRow]:
    """Return all routers, sorted by name."""
    return _complete(conn, fetch(conn, f"{_LINES} ORDER BY r.name"))


def read_router(conn: Connection, name: str) -> RouterRow | None:
    """Return the router of this name; None if there is none."""
    found = _complete(conn, fetch(conn, f"{_LINES} WHERE r.name = ?", (name,)))
    return found[0] if found else None


def read_routers_into(conn: Connection, topic_id: int) -> list[RouterRow]:
    """Return the routers that write to a topic, sorted by name."""
    return _complete(conn, fetch(conn, f"{_LINES} WHERE r.dest_id = ? ORDER BY r.name", (topic_id,)))


def read_routers_beyond(conn: Connection, topic_id: int) -> list[RouterRow]:
    """Return all routers downstream of a topic, over any number of hops; the rows of other routers are not read."""
    found: list[RouterRow] = []
    seen, edge = {topic_id}, [topic_id]
    while edge:
        lines = _complete(conn, fetch_in(conn, f"{_LINES} WHERE r.source_id {{in}}", (), edge))
        found += lines
        edge = sorted({line.dest_id for line in lines} - seen)
        seen |= {*edge}
    return found


class RejectedRecord(NamedTuple):
    """A dead letter of a router: the record's id (empty: none), the reason, a detail, and when, in microseconds."""

    id: str
    reason: str
    detail: str
    at: int


def read_rejected(conn: Connection, name: str, limit: int) -> list[RejectedRecord]:
    """Return at most `limit` dead letters of a router, the newest first."""
    sql = "SELECT event_id, reason, detail, parked_at FROM dead_letters WHERE cursor = ? ORDER BY id DESC LIMIT ?"
    return [RejectedRecord(*row) for row in fetch(conn, sql, (cursor_of(name), limit))]


def read_heads(conn: Connection, topic_ids: Sequence[int]) -> tuple[int, dict[int, int]]:
    """Return the last position of the log, and the last seq of each of these topics that exists, by id."""
    sql = "SELECT id, next_seq - 1 FROM topics WHERE id {in}"
    return read_head(conn).last, dict(fetch_in(conn, sql, (), topic_ids))


def count_routers(conn: Connection) -> int:
    """Return the number of routers."""
    return int(fetch(conn, "SELECT count(*) FROM routers")[0][0])


class RouterFilter(NamedTuple):
    """The routers to list: by a prefix of the name, the source, the destination (empty: any), and the test `sees`."""

    prefix: str = ""
    source: str = ""
    dest: str = ""
    sees: Callable[[RouterRow], bool] = lambda _line: True


def list_routers(conn: Connection, choice: RouterFilter, *, after: str, limit: int) -> list[RouterRow]:
    """Return matching routers after the name `after`, sorted by the bytes of names: `limit` of them, and one more if
    there are more."""
    found: list[RouterRow] = []
    for line in _listed(conn, choice, after):
        if choice.sees(line):
            found.append(line)
        if len(found) > limit:
            break
    return found


def _listed(conn: Connection, choice: RouterFilter, after: str) -> Iterator[RouterRow]:
    where, values = ["r.name >= ?"], list[str]()
    if choice.prefix:
        where, values = [*where, "r.name < ?"], [*values, choice.prefix + "\x7f"]
    for column, name in (("s.name", choice.source), ("d.name", choice.dest)):
        if name:
            where, values = [*where, f"{column} = ?"], [*values, name]
    sql = f"{_LINES} WHERE {' AND '.join(where)} ORDER BY r.name LIMIT ?"
    while lines := _complete(conn, fetch(conn, sql, (beyond(after, choice.prefix), *values, MOST_NAMES))):
        yield from lines
        after = lines[-1].name


def _complete(conn: Connection, rows: Sequence[tuple[object, ...]]) -> list[RouterRow]:
    """Return the routers of some rows of `_LINES`, completed from the rows of their cursors."""
    names = [cursor_of(str(row[1])) for row in rows]
    cursors = {name: rest for name, *rest in fetch_in(conn, _CURSORS, (), names)} if names else {}
    return [RouterRow._make((*row, *cursors[name])) for row, name in zip(rows, names, strict=True)]


def read_router_names(conn: Connection, topic_id: int) -> list[str]:
    """Return the names of the routers that read or write a topic, sorted by bytes."""
    sql = "SELECT name FROM routers WHERE source_id = ? OR dest_id = ? ORDER BY name"
    return [str(name) for (name,) in fetch(conn, sql, (topic_id, topic_id))]


def remove_routers_of(conn: Connection, topic_id: int) -> list[str]:
    """Remove every router that reads or writes a topic, in the open transaction; return their names, sorted by bytes.

    The caller must increase `topics_version`. The head must be locked.
    """
    names = read_router_names(conn, topic_id)
    remove_routers(conn, names)
    return names


def remove_routers(conn: Connection, names: Sequence[str]) -> int:
    """Remove routers by name, with their cursors; return their number."""
    delete_cursors(conn, map(cursor_of, names))
    return execute_many(conn, "DELETE FROM routers WHERE name = ?", [(name,) for name in names])
