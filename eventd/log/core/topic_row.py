"""Rows of the table `topics`: one per topic, of event groups and of records alike.

A deleted topic keeps its row, under a name that no topic in use can have, until all its data is removed. Every
transaction that changes a stored row must lock the head.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from eventd.errors import NotFound
from eventd.log.core.head import shrink
from eventd.log.core.records import new_instance
from eventd.log.core.topic_config import GROUP_CONFIG, TopicConfig, read_config
from eventd.log.core.values import Head
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch, insert_row
from eventd.store.schema.bounds import beyond

DELETED: Final = "-retired:"
"""Prefix of the name of a deleted topic. No name of a group or a topic begins with a dash."""
DELETED_END: Final = f"{DELETED[:-1]};"
IS_DELETED: Final = f"(name >= '{DELETED}' AND name < '{DELETED_END}')"
"""The names of deleted topics, as a range that an index finds among many topics."""

COLUMNS: Final = (
    "id, name, form, next_seq, bytes, ids, evicted_seq, evicted_position, lost_position, instance, config, durability,"
    " deleted, written_at, due_at, created_at"
)


class TopicRow(NamedTuple):
    """A topic. Times in microseconds; sizes in bytes, of events or of records' data and meta.

    Everything up to the floor, `evicted_seq`, is removed. After it a seq may have no record: its line is empty, its
    block is removed, its job is done, or a router never copied the record. `deleted` counts those, so the number of
    live records, those still stored, is known without reading blocks. `ids` counts the event ids, or record ids that
    routers keep, whose record is stored.
    """

    id: int
    name: str
    form: str = "event"
    next_seq: int = 1
    bytes: int = 0
    ids: int = 0
    evicted_seq: int = 0
    evicted_position: int = 0
    lost_position: int = 0
    instance: int = 0
    config_text: str = ""
    durability: str = "fsync"
    deleted: int = 0
    written_at: int | None = None
    due_at: int | None = None
    created_at: int = 0

    @property
    def config(self) -> TopicConfig:
        """Return the topic's configuration; for a group's topic, the one that is shown to readers."""
        return read_config(self.config_text) if self.config_text else GROUP_CONFIG

    @property
    def is_queue(self) -> bool:
        return self.config.type == "queue"

    @property
    def group_name(self) -> str:
        """Return the name of the event group whose topic this is; only for such a topic."""
        return self.name.removeprefix("group:")

    @property
    def of_group(self) -> bool:
        """Return whether it is the topic of an event group."""
        return self.form == "event"

    @property
    def head_seq(self) -> int:
        """Return the last seq that the topic has assigned; 0 before the first."""
        return self.next_seq - 1

    @property
    def earliest_seq(self) -> int:
        """Return the first seq after the floor: no record before it is stored."""
        return self.evicted_seq + 1

    @property
    def live(self) -> int:
        """Return the number of its records, including expired ones that are still stored."""
        return self.next_seq - 1 - self.evicted_seq - self.deleted


# --- reading ------------------------------------------------------------------------------------------------------


def find_topic(conn: Connection, name: str) -> TopicRow | None:
    """Return the topic in use that has this name; None if there is none."""
    rows = fetch(conn, f"SELECT {COLUMNS} FROM topics WHERE name = ?", (name,)) if name >= "0" else []
    return TopicRow(*rows[0]) if rows else None


def find_topic_by_id(conn: Connection, topic_id: int) -> TopicRow | None:
    """Return the topic that has this id; None if it does not exist or was deleted."""
    rows = fetch(conn, f"SELECT {COLUMNS} FROM topics WHERE id = ? AND name >= '0'", (topic_id,))
    return TopicRow(*rows[0]) if rows else None


def read_topic(conn: Connection, name: str) -> TopicRow:
    """Return the topic with this name. Raises `NotFound`."""
    rows = fetch(conn, f"SELECT {COLUMNS} FROM topics WHERE name = ?", (name,))
    if not rows:
        raise NotFound(f"topic {name!r} does not exist")
    return TopicRow(*rows[0])


def read_topic_by_id(conn: Connection, topic_id: int) -> TopicRow:
    """Return the topic with this id, in use or deleted; its row must exist."""
    return TopicRow(*fetch(conn, f"SELECT {COLUMNS} FROM topics WHERE id = ?", (topic_id,))[0])


def read_topic_names(conn: Connection, ids: Sequence[int]) -> dict[int, str]:
    """Return the names of topics by their ids; ids of deleted topics are left out."""
    marks = ", ".join("?" for _ in ids)
    sql = f"SELECT id, name FROM topics WHERE id IN ({marks}) AND name >= '0'"
    return dict(fetch(conn, sql, tuple(ids))) if ids else {}


def read_group_topics(conn: Connection, *, deleted: bool = False) -> list[TopicRow]:
    """Return the topics of groups, sorted by name; with `deleted`, also the topics of deleted groups.

    Topics of records are not included.
    """
    where = "name >= 'group:' AND name < 'group;'" + (" OR name < '0'" if deleted else "")
    rows = fetch(conn, f"SELECT {COLUMNS} FROM topics WHERE form = 'event' AND ({where})")
    return sorted((TopicRow(*row) for row in rows), key=lambda topic: topic.name)


def list_topics(
    conn: Connection, *, prefixes: Sequence[str] = (), prefix: str = "", after: str = "", limit: int = 100
) -> list[TopicRow]:
    """Return the topics in use, of groups and of records, after the name `after`, ordered by the bytes of their names.

    Their names begin with `prefix` and, if `prefixes` are given, also with one of these. If there are more than
    `limit`, one more is returned.
    """
    found: list[TopicRow] = []
    for first, end in _ranges(prefixes, prefix):
        if (room := limit + 1 - len(found)) <= 0:
            break
        rows = fetch(
            conn,
            f"SELECT {COLUMNS} FROM topics WHERE name >= ? AND name < ? ORDER BY name LIMIT ?",
            (beyond(after, first), end, room),
        )
        found += [TopicRow(*row) for row in rows]
    return found


def _ranges(prefixes: Sequence[str], prefix: str) -> list[tuple[str, str]]:
    """Return the ranges `[first, end)` of the names that `list_topics` selects, in order."""
    wanted = [one for one in prefixes if one.startswith(prefix)] if prefixes else [prefix]
    if any(prefix.startswith(one) for one in prefixes):
        wanted = [prefix]
    ranges: list[tuple[str, str]] = []
    for one in sorted(set(wanted)):
        if not one.isascii():
            continue  # names are ASCII
        if ranges and one < ranges[-1][1]:
            continue  # within the previous one
        ranges.append((one or "0", one + "\x7f" if one else "\x7f"))
    return ranges


def read_topic_bytes(conn: Connection, topic_id: int) -> int:
    """Return the bytes that a topic stores, as `TopicRow.bytes`."""
    return int(fetch(conn, "SELECT bytes FROM topics WHERE id = ?", (topic_id,))[0][0])


def require_in_use(conn: Connection, head: Head, topic_id: int) -> None:
    """Raise `NotFound` if the topic was deleted. The head must be locked.

    Only a change of the applied resources deletes a group's topic, so one that was found in use is looked up again only
    when their version (`registry_version`) has changed. The writer's connection, which lives as long as the process,
    remembers what was found.
    """
    found: dict[int, int] = conn.info.setdefault("topics in use", {})
    if found.get(topic_id) == head.registry_version:
        return
    found.pop(topic_id, None)
    if not fetch(conn, f"SELECT 1 FROM topics WHERE id = ? AND NOT {IS_DELETED}", (topic_id,)):
        raise NotFound(
            "the group was deleted meanwhile", hint="declare the group again, if its events are still wanted"
        )
    found[topic_id] = head.registry_version


# --- writing ------------------------------------------------------------------------------------------------------


def ensure_topic(conn: Connection, name: str, now: int) -> int:
    """Return the id of a group's topic, which is created if missing."""
    insert_row(conn, "topics", _new_row(name, now), "ON CONFLICT (name) DO NOTHING")
    return read_topic(conn, name).id


def insert_topic(conn: Connection, name: str, config: TopicConfig, *, now: int, random: bytes) -> TopicRow:
    """Create a topic of records under an unused name, and return its row. The head must be locked."""
    config = config.resolved()
    values: dict[str, Any] = {
        **_new_row(name, now),
        "form": "record",
        "instance": new_instance(random),
        "config": msgspec.json.encode(config).decode(),
        "durability": config.durability,
    }
    columns, marks = ", ".join(values), ", ".join("?" * len(values))
    sql = f"INSERT INTO topics ({columns}) VALUES ({marks}) RETURNING {COLUMNS}"
    topic = TopicRow(*fetch(conn, sql, tuple(values.values()))[0])
    execute(conn, "UPDATE log_heads SET topics = topics + 1 WHERE id = 1")
    return topic


def _new_row(name: str, now: int) -> dict[str, Any]:
    """Return the values of a new topic's columns, by name."""
    zero = ("bytes", "ids", "evicted_seq", "evicted_position", "lost_position")
    return {"name": name, "next_seq": 1, **dict.fromkeys(zero, 0), "created_at": now}


_STORED = ("next_seq", "bytes", "ids", "evicted_seq", "evicted_position", "lost_position", "deleted", "due_at")
_UPDATE = f"UPDATE topics SET {', '.join(f'{name} = ?' for name in _STORED)} WHERE id = ?"


def update_topic(conn: Connection, before: TopicRow, topic: TopicRow) -> TopicRow:
    """Store the counters and the floor of `topic`, but no configuration, and return it; `before` is the stored row.

    For a topic of records, the total size of such topics in the head changes accordingly.
    """
    if not topic.of_group:
        shrink(conn, before.bytes - topic.bytes)
    execute(conn, _UPDATE, (*(getattr(topic, name) for name in _STORED), topic.id))
    return topic


def seq_at(conn: Connection, topic: TopicRow, position: int) -> int | None:
    """Return the seq of the last record of a topic at or before a position; None if it cannot be known any more."""
    held = fetch(
        conn,
        "SELECT position, seq, records FROM blocks WHERE topic_id = ? AND position <= ? ORDER BY position DESC LIMIT 1",
        (topic.id, position),
    )
    if held:
        first, seq, records = held[0]
        return int(seq + min(position - first, records - 1))
    return topic.evicted_seq if position >= topic.evicted_position else None
