"""Rows of the Routemaster surface: its topics, its subscribers, and the intervals of the log that each of these gets.

"Topic" means a topic of the surface here. The events of all of them are records of one topic of the log, and positions
are those of the log. An identity is that of a client, see `eventd.store.rows.tokens`. Every caller of a change has
locked the head.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from eventd.store.engine.database import Connection
from eventd.store.engine.statements import bulk_insert, execute, fetch, insert_row, replacing, update_rows
from eventd.store.rows.callback_cursors import SUBSCRIBER, callback_name


def cursor_of(identity: str) -> str:
    """Return the name of a subscriber's cursor."""
    return callback_name(SUBSCRIBER + identity)


# --- topics -------------------------------------------------------------------------------------------------------


class RmTopicRow(NamedTuple):
    """A topic of the surface. `publisher` is the identity that claimed it, empty if none did.

    `events`: how many were accepted. `base` and `recent` are the times that its events got: see
    `eventd.log.routemaster.times`.
    """

    name: str
    publisher: str = ""
    events: int = 0
    base: int = 0
    recent: str = ""
    created_at: int = 0


_TOPIC = ", ".join(RmTopicRow._fields)


def list_rm_topics(conn: Connection) -> list[RmTopicRow]:
    """Return all topics of the surface, ordered by name."""
    return [RmTopicRow(*row) for row in fetch(conn, f"SELECT {_TOPIC} FROM rm_topics ORDER BY name")]


def find_rm_topic(conn: Connection, name: str) -> RmTopicRow | None:
    """Return the topic of this name; None if there is none."""
    rows = fetch(conn, f"SELECT {_TOPIC} FROM rm_topics WHERE name = ?", (name,))
    return RmTopicRow(*rows[0]) if rows else None


def known_rm_topics(conn: Connection) -> frozenset[str]:
    """Return the names of all topics."""
    return frozenset(name for (name,) in fetch(conn, "SELECT name FROM rm_topics"))


def count_rm_topics(conn: Connection) -> int:
    """Return the number of topics."""
    return int(fetch(conn, "SELECT count(*) FROM rm_topics")[0][0])


def count_unclaimed(conn: Connection) -> int:
    """Return the number of topics without a publisher."""
    return int(fetch(conn, "SELECT count(*) FROM rm_topics WHERE publisher = ''")[0][0])


def put_rm_topic(conn: Connection, topic: RmTopicRow) -> None:
    """Create a topic, or replace its row; the time of its creation stays."""
    fresh = replacing(("publisher", "events", "base", "recent"))
    insert_row(conn, "rm_topics", topic._asdict(), f"ON CONFLICT (name) DO UPDATE SET {fresh}")


def delete_rm_topic(conn: Connection, name: str) -> None:
    """Delete the row of a topic."""
    execute(conn, "DELETE FROM rm_topics WHERE name = ?", (name,))


# --- subscribers --------------------------------------------------------------------------------------------------


class Interval(NamedTuple):
    """Selects the events of a topic at positions in `(after, upto]`; `upto` None: also all later ones."""

    topic: str
    after: int
    upto: int | None = None


class SigningKey(NamedTuple):
    """A key that signs the requests to a subscriber: its id, and the file of its secret."""

    id: str
    secret_file: str


class SubscriberRow(NamedTuple):
    """A subscriber. `uuid` is a secret that only callbacks and the subscriber itself get: never log or show it.

    `timeout_ms` and `max_events` are the bounds of its batches as it gave them, `sent` the events it has acknowledged,
    `intervals` what it is to get, ordered by topic and position, and `keys` those with which the node signs its
    requests. `version` is the `selector_version` of its cursor for these intervals.
    """

    identity: str
    callback: str
    uuid: str
    timeout_ms: int
    max_events: int
    sent: int = 0
    created_at: int = 0
    updated_at: int = 0
    version: int = 1
    intervals: tuple[Interval, ...] = ()
    keys: tuple[SigningKey, ...] = ()

    @property
    def handle(self) -> str:
        """Return the subscriber's handle in lists, logs and metrics: that of its first token."""
        return self.identity

    @property
    def cursor(self) -> str:
        """Return the name of its cursor."""
        return cursor_of(self.identity)

    @property
    def shown_callback(self) -> str:
        """Return the callback without the user information in it."""
        return re.sub(r"//[^/@#]*@", "//", self.callback, count=1)

    @property
    def topics(self) -> list[str]:
        """Return the topics that it is subscribed to now."""
        return [interval.topic for interval in self.intervals if interval.upto is None]


_SUBSCRIBER = ", ".join(SubscriberRow._fields[:-2])


def read_subscribers(conn: Connection) -> list[SubscriberRow]:
    """Return all subscribers with their intervals and keys, ordered by identity."""
    found: dict[str, list[Interval]] = {}
    sql = "SELECT subscriber, topic, after, upto FROM rm_intervals ORDER BY subscriber, topic, after"
    for subscriber, *interval in fetch(conn, sql):
        found.setdefault(subscriber, []).append(Interval(*interval))
    keys = {identity: _parse_keys(text) for identity, text in fetch(conn, "SELECT identity, keys FROM rm_signing")}
    rows = fetch(conn, f"SELECT {_SUBSCRIBER} FROM rm_subscribers ORDER BY identity")
    return [
        SubscriberRow(*row)._replace(intervals=tuple(found.get(row[0], ())), keys=keys.get(row[0], ())) for row in rows
    ]


def find_subscriber(conn: Connection, identity: str) -> SubscriberRow | None:
    """Return a subscriber with its intervals and keys; None if the client has not subscribed."""
    rows = fetch(conn, f"SELECT {_SUBSCRIBER} FROM rm_subscribers WHERE identity = ?", (identity,))
    if not rows:
        return None
    intervals = tuple(intervals_of(conn, identity))
    return SubscriberRow(*rows[0])._replace(intervals=intervals, keys=signing_of(conn, identity))


def intervals_of(conn: Connection, identity: str) -> list[Interval]:
    """Return the intervals of a subscriber, ordered by topic and position."""
    sql = "SELECT topic, after, upto FROM rm_intervals WHERE subscriber = ? ORDER BY topic, after"
    return [Interval(*row) for row in fetch(conn, sql, (identity,))]


def put_subscriber(conn: Connection, subscriber: SubscriberRow) -> None:
    """Create a subscriber, or replace its settings; its intervals, keys, count and the time of its creation stay.

    Its `version` stays, too.
    """
    values = subscriber._asdict()
    del values["intervals"], values["keys"]
    fresh = replacing(("callback", "uuid", "timeout_ms", "max_events", "updated_at"))
    insert_row(conn, "rm_subscribers", values, f"ON CONFLICT (identity) DO UPDATE SET {fresh}")


def select_anew(conn: Connection, version: int, identities: Iterable[str]) -> None:
    """Note that the intervals of these subscribers have changed; `version` must be new.

    From now on, consumers that know only the former intervals cannot move the cursor: they would skip events that are
    selected only since the change.
    """
    for identity in identities:
        update_rows(conn, "rm_subscribers", {"version": version}, {"identity": identity})
        update_rows(conn, "cursors", {"selector_version": version}, {"name": cursor_of(identity)})


def subscribers_of(conn: Connection, topic: str) -> list[str]:
    """Return the identities that are subscribed to a topic now."""
    sql = "SELECT DISTINCT subscriber FROM rm_intervals WHERE topic = ? AND upto IS NULL ORDER BY subscriber"
    return [identity for (identity,) in fetch(conn, sql, (topic,))]


def delete_subscriber(conn: Connection, identity: str) -> None:
    """Delete a subscriber and its intervals; the caller deletes its cursor."""
    execute(conn, "DELETE FROM rm_intervals WHERE subscriber = ?", (identity,))
    execute(conn, "DELETE FROM rm_subscribers WHERE identity = ?", (identity,))


def add_sent(conn: Connection, identity: str, events: int) -> None:
    """Add to the number of events that a subscriber has acknowledged."""
    execute(conn, "UPDATE rm_subscribers SET sent = sent + ? WHERE identity = ?", (events, identity))


# --- keys ---------------------------------------------------------------------------------------------------------


def signing_of(conn: Connection, identity: str) -> tuple[SigningKey, ...]:
    """Return the keys that sign the requests to a client, in order."""
    rows = fetch(conn, "SELECT keys FROM rm_signing WHERE identity = ?", (identity,))
    return _parse_keys(rows[0][0]) if rows else ()


def put_signing(conn: Connection, identity: str, keys: Iterable[SigningKey]) -> None:
    """Replace the keys that sign the requests to a client; none: they are not signed."""
    execute(conn, "DELETE FROM rm_signing WHERE identity = ?", (identity,))
    if keys := list(keys):
        insert_row(conn, "rm_signing", {"identity": identity, "keys": json.dumps(keys)})


def _parse_keys(text: str) -> tuple[SigningKey, ...]:
    return tuple(SigningKey(*key) for key in json.loads(text))


_PASSED: Final = (
    "upto IS NOT NULL AND EXISTS"
    f" (SELECT 1 FROM cursors WHERE cursors.name = '{cursor_of('')}' || subscriber AND cursors.position >= upto)"
)

# --- intervals ----------------------------------------------------------------------------------------------------


def open_intervals(conn: Connection, identity: str, topics: Iterable[str], after: int) -> None:
    """Select the events of these topics after a position; the subscriber has no open interval of them."""
    rows = [(identity, topic, after, None) for topic in topics]
    bulk_insert(conn, "rm_intervals", ("subscriber", "topic", "after", "upto"), rows)


def close_intervals(conn: Connection, upto: int, *, topic: str, identity: str | None = None) -> None:
    """End the open intervals of a topic at a position, those of one subscriber or of all; empty ones are deleted."""
    where, params = "topic = ? AND upto IS NULL", [topic]
    if identity is not None:
        where, params = f"subscriber = ? AND {where}", [identity, topic]
    execute(conn, f"DELETE FROM rm_intervals WHERE {where} AND after >= ?", (*params, upto))
    execute(conn, f"UPDATE rm_intervals SET upto = ? WHERE {where}", (upto, *params))


def drop_intervals(conn: Connection, identity: str, position: int) -> None:
    """Delete the intervals of a subscriber that end at or before a position: its cursor has passed them."""
    execute(conn, "DELETE FROM rm_intervals WHERE subscriber = ? AND upto <= ?", (identity, position))


def has_passed(conn: Connection) -> bool:
    """Return whether the cursor of any subscriber has passed an interval that has ended."""
    return bool(fetch(conn, f"SELECT 1 FROM rm_intervals WHERE {_PASSED} LIMIT 1"))


def drop_passed(conn: Connection) -> None:
    """Delete the intervals that have ended and that the cursors of their subscribers have passed."""
    execute(conn, f"DELETE FROM rm_intervals WHERE {_PASSED}")


def set_publisher(conn: Connection, topic: str, publisher: str) -> bool:
    """Set the publisher of a topic, empty for none; return whether the topic exists."""
    return bool(update_rows(conn, "rm_topics", {"publisher": publisher}, {"name": topic}))
