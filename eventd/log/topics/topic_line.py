"""The row of a topic that holds records, as its users see it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import sqlalchemy as sa

from eventd.log.core.topic_config import GROUP_CONFIG, TopicConfig, read_config
from eventd.store.engine.database import fetch
from eventd.store.schema.columns import beyond


class TopicLine(NamedTuple):
    """A topic's line in the books. Times in microseconds, sizes in bytes of data and meta."""

    id: int
    name: str
    form: str
    next_seq: int
    bytes: int
    evicted_seq: int
    evicted_position: int
    instance: int
    config_text: str
    durability: str
    deleted: int
    written_at: int | None
    due_at: int | None
    created_at: int

    @property
    def config(self) -> TopicConfig:
        """What is set for it."""
        return read_config(self.config_text) if self.config_text else GROUP_CONFIG

    @property
    def head_seq(self) -> int:
        """The seq of its newest record; 0 before the first."""
        return self.next_seq - 1

    @property
    def earliest_seq(self) -> int:
        """The seq of its oldest record; one beyond the head where it is empty."""
        return self.evicted_seq + 1

    @property
    def live(self) -> int:
        """How many records it holds, with those that have outlived their time and are still there."""
        return self.head_seq - self.evicted_seq - self.deleted

    @property
    def of_group(self) -> bool:
        """Whether it is the topic of an event group."""
        return self.form == "event"


COLUMNS = (
    "id, name, form, next_seq, bytes, evicted_seq, evicted_position, instance, config, durability, deleted,"
    " written_at, due_at, created_at"
)


def read_line(conn: sa.Connection, name: str) -> TopicLine | None:
    """The line of a topic that is in use, by its name."""
    rows = fetch(conn, f"SELECT {COLUMNS} FROM topics WHERE name = ?", (name,)) if name >= "0" else []
    return TopicLine(*rows[0]) if rows else None


def read_line_of(conn: sa.Connection, topic_id: int) -> TopicLine | None:
    """The line of a topic that is in use, by its id."""
    rows = fetch(conn, f"SELECT {COLUMNS} FROM topics WHERE id = ? AND name >= '0'", (topic_id,))
    return TopicLine(*rows[0]) if rows else None


def list_lines(
    conn: sa.Connection, *, prefixes: Sequence[str] = (), prefix: str = "", after: str = "", limit: int = 100
) -> list[TopicLine]:
    """Topics in the order of their names' bytes, beyond `after`: of any of the `prefixes`, if there are some.

    One more than `limit` is given where there are more.
    """
    ranges = _ranges(prefixes, prefix)
    found: list[TopicLine] = []
    for first, end in ranges:
        if (room := limit + 1 - len(found)) <= 0:
            break
        rows = fetch(
            conn,
            f"SELECT {COLUMNS} FROM topics WHERE name >= ? AND name < ? ORDER BY name LIMIT ?",
            (beyond(after, first), end, room),
        )
        found += [TopicLine(*row) for row in rows]
    return found


def _ranges(prefixes: Sequence[str], prefix: str) -> list[tuple[str, str]]:
    """The ranges `[first, end)` of names that begin with one of the prefixes and with `prefix`, in order."""
    wanted = [one for one in prefixes if one.startswith(prefix)] if prefixes else [prefix]
    if any(prefix.startswith(one) for one in prefixes):
        wanted = [prefix]
    ranges: list[tuple[str, str]] = []
    for one in sorted(set(wanted)):
        if not one.isascii():
            continue  # no name is like that
        if ranges and one < ranges[-1][1]:
            continue  # within the one before
        ranges.append((one or "0", one + "\x7f" if one else "\x7f"))
    return ranges


def reread(conn: sa.Connection, line: TopicLine) -> TopicLine:
    """The line as it is by now."""
    return TopicLine(*fetch(conn, f"SELECT {COLUMNS} FROM topics WHERE id = ?", (line.id,))[0])
