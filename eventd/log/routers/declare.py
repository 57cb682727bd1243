"""Units (requests to the writer) that create, configure and delete routers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from eventd.log.core.commit import ChangeUnit, Transaction
from eventd.log.core.head import announce_topics
from eventd.log.core.topic_config import TopicConfig
from eventd.log.core.topic_row import TopicRow, find_topic, insert_topic
from eventd.log.cursors.cursors import create_cursor
from eventd.log.topics.declared import refuse_declared_routers
from eventd.log.topics.errors import Incompatible, Throttled, TopicNotFound
from eventd.log.topics.router_rows import (
    CURSOR_KIND,
    RouterRow,
    count_routers,
    cursor_of,
    read_router,
    read_routers_beyond,
    read_routers_into,
    remove_routers,
)
from eventd.log.topics.topics import count_topics, is_reserved
from eventd.store.engine.statements import bulk_insert, execute


class RouterSpec(NamedTuple):
    """A requested router; `source` and `dest` are names of topics, `options` is in its stored form."""

    name: str
    source: str
    dest: str
    options: str


class RouterRules(Protocol):
    """Interface of the rules for a router in relation to others; each rule gets the other routers that matter to it."""

    def require_alone(self, into: Sequence[RouterRow]) -> None:
        """Raise `Incompatible` if the router must not share its destination with the routers `into`, which write to it
        already."""
        ...

    def require_no_cycle(self, beyond: Sequence[RouterRow]) -> None:
        """Raise `RouterCycle` if the router would close a forbidden cycle with `beyond`, the routers downstream."""
        ...


class RouterLimits(NamedTuple):
    """The maximum numbers of routers and of topics of records; 0: unlimited."""

    routers: int = 0
    topics: int = 0


class RouterPut(NamedTuple):
    """A router that was `created` or configured. `version`: the new `topics_version`; None if nothing changed."""

    line: RouterRow
    created: bool
    version: int | None


class PutRouter(ChangeUnit[RouterPut]):
    """Create a router, with its missing topics, or replace its options. Result: `RouterPut`.

    A new router begins at the end of its source. Raises, in this order: `TopicNotFound` if the destination, and then if
    the source, is missing and must not be created; `Incompatible` if other routers into the destination exclude it, or
    if the router exists with another source or destination; `Throttled` at the limit of routers; `RouterCycle`;
    `Throttled` at the limit of topics. A refused router leaves no topic behind. The options of a router that a resource
    declares are only replaced by this resource (`declared`); otherwise raises `Incompatible`.
    """

    def __init__(
        self,
        wanted: RouterSpec,
        rules: RouterRules,
        most: RouterLimits,
        *,
        create_dest: bool,
        random: bytes,
        declared: bool = False,
    ) -> None:
        self._declared = declared
        self._wanted = wanted
        self._rules = rules
        self._most = most
        self._create_dest = create_dest
        self._random = random

    def make(self, tx: Transaction) -> RouterPut:
        conn, wanted = tx.conn, self._wanted
        source, dest = find_topic(conn, wanted.source), find_topic(conn, wanted.dest)
        if dest is None and (not self._create_dest or is_reserved(wanted.dest)):
            raise TopicNotFound(wanted.dest)
        if source is None and is_reserved(wanted.source):
            raise TopicNotFound(wanted.source)
        if dest is not None:
            into = read_routers_into(conn, dest.id)
            self._rules.require_alone([line for line in into if line.name != wanted.name])
        before = read_router(conn, wanted.name)
        if before is not None:
            _require_same_ends(before, wanted)
            if not self._declared and before.options != wanted.options:
                refuse_declared_routers(conn, [before.name], "configured")
        elif self._most.routers and count_routers(conn) >= self._most.routers:
            raise Throttled.by("max_routers", self._most.routers)
        if dest is not None:
            beyond = read_routers_beyond(conn, dest.id)
            self._rules.require_no_cycle([line for line in beyond if line.name != wanted.name])
        version = self._make(tx, source, dest) if before is None else self._set(tx, before)
        line = read_router(conn, wanted.name)
        assert line is not None
        return RouterPut(line, before is None, version)

    def _set(self, tx: Transaction, before: RouterRow) -> int | None:
        """Replace a router's options, from its current position on; return the new `topics_version`, None if equal."""
        if before.options == self._wanted.options:
            return None
        sql = "UPDATE routers SET options = ?, updated_at = ? WHERE id = ?"
        execute(tx.conn, sql, (self._wanted.options, tx.now, before.id))
        execute(tx.conn, "UPDATE cursors SET selector_version = selector_version + 1 WHERE name = ?", (before.cursor,))
        return announce_topics(tx.conn)

    def _make(self, tx: Transaction, source: TopicRow | None, dest: TopicRow | None) -> int:
        conn, wanted, now = tx.conn, self._wanted, tx.now
        missing = [name for name, line in ((wanted.source, source), (wanted.dest, dest)) if line is None]
        if 0 < self._most.topics < count_topics(conn) + len(missing):
            raise Throttled.by("max_topics", self._most.topics)
        made = {
            name: insert_topic(conn, name, TopicConfig(), now=now, random=self._random[at * 8 :])
            for at, name in enumerate(missing)
        }
        source, dest = source or made[wanted.source], dest or made[wanted.dest]
        values = {
            "name": wanted.name,
            "source_id": source.id,
            "dest_id": dest.id,
            "options": wanted.options,
            "seq": source.head_seq,
            "forwarded": 0,
            "refused": 0,
            "created_at": now,
            "updated_at": now,
        }
        bulk_insert(conn, "routers", list(values), [list(values.values())])
        at = tx.head.last  # records that this transaction writes to the source come after it
        create_cursor(conn, cursor_of(wanted.name), kind=CURSOR_KIND, topic_id=source.id, position=at, now=now)
        return announce_topics(conn)


def _require_same_ends(before: RouterRow, wanted: RouterSpec) -> None:
    if (before.source, before.dest) != (wanted.source, wanted.dest):
        raise Incompatible(
            f"the router {wanted.name!r} leads from {before.source!r} to {before.dest!r}, which cannot be changed",
            hint="delete it first, or use another name",
            detail={
                "router": wanted.name,
                "reason": "router_repoint_forbidden",
                "existing_source": before.source,
                "existing_dest": before.dest,
            },
        )


class DeleteRouter(ChangeUnit["int | None"]):
    """Delete a router; its copies stay. Result: the new `topics_version`; None: no router has the name.

    Raises `Incompatible` if a resource declares the router, unless it is this resource that is deleted (`declared`).
    """

    def __init__(self, name: str, *, declared: bool = False) -> None:
        self._name = name
        self._declared = declared

    def make(self, tx: Transaction) -> int | None:
        if not self._declared:
            refuse_declared_routers(tx.conn, [self._name], "deleted")
        if not remove_routers(tx.conn, [self._name]):
            return None
        return announce_topics(tx.conn)
