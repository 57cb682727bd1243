"""A snapshot of what the ledgers cover: groups, links, the numbers that can be read, and the selections over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from eventd.lake.extract.batches import shown_selection
from eventd.lake.extract.history import read_open_trees, read_sealed
from eventd.lake.extract.ledgers import table_of
from eventd.lake.extract.scope import Scope, read_groups, read_scope
from eventd.lake.schema import Ledger
from eventd.log.core.head import read_instance
from eventd.log.core.topic_row import read_group_topics
from eventd.log.cursors.cursors import Cursor, read_cursors
from eventd.log.cursors.trimmed import read_forgotten
from eventd.log.delivery.states import read_versions
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch
from eventd.store.rows.callback_cursors import CALLBACK, RESEND

_REPAIRS: Final = {"peer": "repair", CALLBACK: RESEND}
"""By kind of a receiver's cursor, the kind of the cursors that send events to the receiver again."""


class SelectionPeriod(NamedTuple):
    """The selection of a receiver that was in force from `declared_at` (microseconds) until the next version."""

    version: int
    declared_at: int
    selection: Mapping[str, Any]


class LinkSnapshot(NamedTuple):
    """The link to a peer or a callback. Times are in microseconds; all positions up to `cursor` are settled.

    It has been in `state` since `since`. `repairs` are the ranges `(after, upto]` that repairs, or resends, still have
    to send. A callback gets the events after the position `begins`; 0 for a peer, which gets the earlier ones, too.
    """

    peer: str
    selections: Sequence[SelectionPeriod]
    relay: bool
    paused: bool
    state: str
    reason: str
    since: int
    cursor: int
    created_at: int
    repairs: Sequence[tuple[int, int]]
    begins: int = 0


class GroupSnapshot(NamedTuple):
    """A group, this node's name in it, the links to its peers and callbacks, and the last seq that it has assigned.

    `tree`: the id of the tree in which its next own events get leaves; empty: they get none.
    """

    group: str
    node: str
    peers: Sequence[LinkSnapshot]
    last_seq: int
    tree: str = ""


class Span(NamedTuple):
    """The numbers of a ledger that can still be read, `first` to `last` inclusive; none if `first` is `last` + 1.

    `last` is 0 before the first row. For `events` it is the log's last position, of any topic.
    """

    first: int
    last: int


class LedgerSnapshot(NamedTuple):
    """A snapshot of what the ledgers of a database cover.

    `instance` identifies the database; a copy keeps it. `head` is the last position that was assigned.
    """

    epoch: str
    instance: str
    head: int
    books: Mapping[Ledger, Span]
    groups: Sequence[GroupSnapshot]

    @property
    def nodes(self) -> list[str]:
        """Return this node's names in its groups, sorted; mostly one."""
        return sorted({group.node for group in self.groups})


def read_state(conn: Connection) -> LedgerSnapshot:
    """Read what the ledgers cover, as the open transaction sees it."""
    places = read_scope(conn, None)
    instance = read_instance(conn)
    books = {book: _span(conn, book, places) for book in Ledger}
    return LedgerSnapshot(places.epoch, instance, places.last, books, _read_groups(conn, places))


def _span(conn: Connection, book: Ledger, places: Scope) -> Span:
    if book is Ledger.EVENTS:
        sql = "SELECT min(position) FROM blocks WHERE topic_id = ?"
        firsts = [fetch(conn, sql, (topic_id,))[0][0] for topic_id in places.topics]
        return Span(min((first for first in firsts if first is not None), default=places.last + 1), places.last)
    if book is Ledger.HISTORY:
        sealed = read_sealed(conn, places)
        return Span(min(1, sealed), sealed)
    table = table_of(book)
    first, newest = fetch(conn, f"SELECT min(id), max(id) FROM {table}")[0]
    last = max(newest or 0, read_forgotten(conn, table))
    return Span(last + 1 if first is None else first, last)


def _read_groups(conn: Connection, places: Scope) -> list[GroupSnapshot]:
    cursors = read_cursors(conn, *_REPAIRS, *_REPAIRS.values())
    found: dict[str, list[LinkSnapshot]] = {}
    for cursor in cursors:
        if cursor.kind in _REPAIRS and cursor.name in places.peers:
            link = places.peers[cursor.name]
            found.setdefault(link.place.group, []).append(_link(conn, link.peer, cursor, cursors))
    topics, open_trees = read_group_topics(conn), read_open_trees(conn)
    heads = {topic.group_name: topic.head_seq for topic in topics}
    trees = {topic.group_name: open_trees.get(topic.id, "") for topic in topics}
    return [
        GroupSnapshot(group, node, found.get(group, ()), heads.get(group, 0), trees.get(group, ""))
        for group, node in sorted(read_groups(conn).items())
    ]


def read_floors(conn: Connection) -> dict[str, int]:
    """Return the seq up to which retention has evicted the events of each group."""
    return {topic.group_name: topic.evicted_seq for topic in read_group_topics(conn)}


def _link(conn: Connection, receiver: str, cursor: Cursor, cursors: Sequence[Cursor]) -> LinkSnapshot:
    versions = [
        SelectionPeriod(version, declared_at, shown_selection(stored))
        for version, declared_at, stored in sorted(read_versions(conn, cursor.name), key=lambda each: each[0])
    ]
    kind, _, target = cursor.name.partition(":")
    prefix = f"{_REPAIRS[kind]}:{target}{'#' if kind == CALLBACK else '/'}"
    return LinkSnapshot(
        peer=receiver,
        selections=versions,
        relay=bool(versions and versions[-1].selection.get("relay", False)),
        paused=cursor.paused_at is not None,
        state=str(cursor.shown_state),
        reason=cursor.reason,
        since=cursor.since,
        cursor=cursor.position,
        created_at=cursor.created_at,
        repairs=[(each.position, each.until or 0) for each in cursors if each.name.startswith(prefix)],
        begins=(cursor.started_after or 0) if kind == CALLBACK else 0,
    )
