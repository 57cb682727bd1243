"""Units that create, configure and delete topics of records.

A topic is a row with an id that is never used twice. An idle topic takes no memory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from eventd.errors import Invalid
from eventd.log.core.commit import ChangeUnit, Transaction
from eventd.log.core.head import announce_topics
from eventd.log.core.topic_config import TopicConfig, merged
from eventd.log.core.topic_row import TopicRow, find_topic, insert_topic, read_topic_by_id
from eventd.log.topics.declared import refuse_declared_routers, refuse_declared_topic
from eventd.log.topics.deleted_topics import delete_topic
from eventd.log.topics.errors import Incompatible, Throttled, TopicNotEmpty, TopicNotFound
from eventd.log.topics.limits import apply_limits, apply_ttl_fully, read_size
from eventd.log.topics.router_rows import read_router_names
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch
from eventd.text.topic_names import GROUP_PREFIX, SURFACE_TOPIC, TOPIC_NAME

NAME = re.compile(TOPIC_NAME)
GROUP = GROUP_PREFIX
"""Prefix of the names of groups' topics: they are read and routed like others, but only events are written to them."""
ROUTEMASTER = SURFACE_TOPIC
"""The topic that holds the events of the Routemaster surface: read and routed like others, written by that surface."""


def require_name(name: str, what: str = "topic") -> None:
    """Raise `Invalid` for a name that no topic can have; `what` is the noun in the message for the named thing."""
    if not NAME.fullmatch(name):
        shown = name[:80] + ("…" if len(name) > 80 else "")
        raise Invalid(
            f"{shown!r} is not a valid name of a {what}",
            hint="use a letter or digit, then up to 254 letters, digits and any of . _ : -",
        )


def is_reserved(name: str) -> bool:
    """Return whether this is the name of a topic that the node writes itself: of a group, or of Routemaster."""
    return name.startswith(GROUP) or name == ROUTEMASTER


def refuse_reserved(name: str, doing: str) -> None:
    """Raise `Incompatible` if this is the name of a topic that clients cannot change (see `is_reserved`).

    `doing` is a past participle for the message, such as "deleted".
    """
    if name.startswith(GROUP):
        raise Incompatible(
            f"{name!r} is the topic of an event group and cannot be {doing} here",
            hint="events are emitted to the group, and its retention is declared with it",
            detail={"topic": name, "reason": "event_group"},
        )
    if name == ROUTEMASTER:
        raise Incompatible(
            f"{name!r} is the topic of the Routemaster surface and cannot be {doing} here",
            hint="its events are published to that surface, and its limits are settings: EVENTD_ROUTEMASTER_…",
            detail={"topic": name, "reason": "routemaster"},
        )


class Ceilings(NamedTuple):
    """The limits of all topics of records together: their number, and the bytes of data and meta; 0: unlimited."""

    topics: int = 0
    bytes: int = 0


NO_CEILINGS = Ceilings()


def require_room(conn: Connection, max_topics: int) -> None:
    """Raise `Throttled` if there are `max_topics` topics of records already; 0: unlimited."""
    if max_topics and count_topics(conn) >= max_topics:
        raise Throttled.by("max_topics", max_topics)


def count_topics(conn: Connection) -> int:
    """Return the number of topics of records."""
    return int(fetch(conn, "SELECT topics FROM log_heads WHERE id = 1")[0][0])


class TopicPut(NamedTuple):
    """The row of a topic that was `created`, or else configured."""

    line: TopicRow
    created: bool


class PutTopic(ChangeUnit[TopicPut]):
    """Create a topic, or replace its configuration. Result: `TopicPut`.

    Raises `Incompatible` for another type, and for another configuration of a topic that a resource declares, unless
    it comes from this resource (`declared`); `Throttled` at the limit of topics.
    """

    def __init__(
        self, name: str, config: TopicConfig, *, max_topics: int, random: bytes, declared: bool = False
    ) -> None:
        self._declared = declared
        self._name = name
        self._config = config.resolved()
        self._max_topics = max_topics
        self._random = random

    def make(self, tx: Transaction) -> TopicPut:
        before = find_topic(tx.conn, self._name)
        if before is None:
            require_room(tx.conn, self._max_topics)
            line = insert_topic(tx.conn, self._name, self._config, now=tx.now, random=self._random)
            return TopicPut(line, created=True)
        require_type(before, self._config)
        if not self._declared:
            _refuse_declared(tx, before, self._config)
        return TopicPut(set_config(tx, before, self._config), created=False)


def require_type(line: TopicRow, config: TopicConfig) -> None:
    """Raise `Incompatible` if the topic has another type (log or queue) than `config`."""
    if line.config.type != config.type:
        detail = {"topic": line.name, "existing_type": line.config.type, "requested_type": config.type}
        raise Incompatible(
            f"the topic {line.name!r} is a {line.config.type} and cannot become a {config.type}",
            hint="delete it first, or use another name",
            detail=detail,
        )


def _refuse_declared(tx: Transaction, line: TopicRow, config: TopicConfig) -> None:
    """Raise `Incompatible` if a resource declares the topic, and `config` differs from its configuration."""
    if config != line.config:
        refuse_declared_topic(tx.conn, line.name, "configured")


def set_config(tx: Transaction, line: TopicRow, config: TopicConfig) -> TopicRow:
    """Replace the configuration of a topic, and return the topic's new row; an equal one changes nothing.

    Records that have exceeded the old time to live are all removed; of the new limits, one step is applied.
    """
    text = msgspec.json.encode(config).decode()
    if text != line.config_text:
        apply_ttl_fully(tx.conn, line, tx.now)
        due = tx.now if config.ttl_ms else None
        execute(
            tx.conn,
            "UPDATE topics SET config = ?, durability = ?, due_at = ? WHERE id = ?",
            (text, config.durability, due, line.id),
        )
        announce_topics(tx.conn)
        line = apply_limits(tx.conn, read_topic_by_id(tx.conn, line.id), tx.now)
        tx.shared["set anew", line.id] = line
    return line


class PatchTopic(ChangeUnit[TopicPut]):
    """Change some fields of a topic's configuration. Result: `TopicPut`.

    `changes` are by field; None resets a field to its default. Raises `TopicNotFound`, `Invalid` for an unknown field
    or an invalid value, and `Incompatible` for another type, and for any change of a topic that a resource declares.
    """

    def __init__(self, name: str, changes: Mapping[str, Any]) -> None:
        self._name = name
        self._changes = changes

    def make(self, tx: Transaction) -> TopicPut:
        line = find_topic(tx.conn, self._name)
        if line is None:
            raise TopicNotFound(self._name)
        config = merged(line.config, self._changes)
        require_type(line, config)
        _refuse_declared(tx, line, config)
        return TopicPut(set_config(tx, line, config), created=False)


class DeletedTopic(NamedTuple):
    """The id of a deleted topic, the names of the routers deleted with it, and the new `topics_version`."""

    topic_id: int
    routers_removed: list[str]
    version: int


class DeleteTopic(ChangeUnit[DeletedTopic | None]):
    """Delete a topic with its routers. Result: `DeletedTopic`; None if there was no such topic.

    Raises `TopicNotEmpty` if `if_empty` and the topic has records, and `Incompatible` if a resource declares the topic
    or one of its routers, unless it is this resource that is deleted (`declared`).
    """

    def __init__(self, name: str, *, if_empty: bool = False, declared: bool = False) -> None:
        self._declared = declared
        self._name = name
        self._if_empty = if_empty

    def make(self, tx: Transaction) -> DeletedTopic | None:
        line = find_topic(tx.conn, self._name)
        if line is None:
            return None
        count = read_size(tx.conn, line, tx.now).count + tx.coming[line.id]
        if self._if_empty and count:
            raise TopicNotEmpty(self._name, count)
        if not self._declared:
            refuse_declared_topic(tx.conn, self._name, "deleted")
            refuse_declared_routers(tx.conn, read_router_names(tx.conn, line.id), "deleted with its topic")
        retired = delete_topic(tx.conn, self._name, of_records=True)
        assert retired is not None
        return DeletedTopic(line.id, *retired)
