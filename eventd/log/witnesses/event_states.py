"""States of events of other nodes, derived from stored tiles.

The check stores how far it is and which events are refuted, not each result: the tiles give the others again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple

from eventd.log.core.values import Record
from eventd.log.history.refuted import MarkKind, read_refuted_at
from eventd.log.history.trees import Tree, read_tiles
from eventd.log.witnesses.waiting import MOST_WAITING, WAITING_ROWS
from eventd.log.witnesses.witnessed import read_believed_trees
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch
from federation.digest import digest
from federation.errors import Malformed
from federation.history.checkpoints import LogOrigin
from federation.history.entries import event_entry
from federation.history.leaf_hints import LeafPlace, find_place, read_places
from federation.history.merkle import HASH_SIZE, hash_leaf
from federation.history.tiles import TILE_WIDTH
from federation.loops import decode_path


class EventHistory(StrEnum):
    """The state of an event of another node, derived from stored tiles. Each event is in exactly one."""

    WAITING = "waiting"
    """It is to be compared, or to be compared again."""
    VERIFIED = "verified"
    """The tree of its node has it."""
    UNPROVEN = "unproven"
    """Nothing that is stored here proves it."""
    REFUTED = "refuted"
    """The tree of its node does not have it."""


def span_of(conn: Connection, topic_id: int, state: EventHistory) -> tuple[int, int] | None:
    """Return the first and the last position at which events in this state can be; (0, 0): nowhere, None: anywhere."""
    if state is EventHistory.WAITING:
        sql = f"SELECT min(position), max(upto), count(*) FROM {WAITING_ROWS}"
    elif state is EventHistory.REFUTED:
        sql = "SELECT min(position), max(position), 0 FROM refuted_events WHERE topic_id = ?"
    else:
        return None
    ((first, last, rows),) = fetch(conn, sql, (topic_id,))
    if rows == MOST_WAITING:  # others may wait
        return None
    return (0, 0) if first is None else (int(first), int(last))


def read_event_states(
    conn: Connection, topic_id: int, group: str, records: Iterable[Record]
) -> dict[int, EventHistory]:
    """Return by position what is known of each record that came from another node."""
    foreign = {record.position: (record, node) for record in records if (node := admitting_node(record))}
    marks = read_refuted_at(conn, topic_id, [*foreign])
    refuted = {mark.position for mark in marks if mark.kind == MarkKind.REFUTED}
    reader = _StateReader(conn, topic_id, group)
    return {
        position: EventHistory.REFUTED if position in refuted else reader.read(record, node)
        for position, (record, node) in foreign.items()
    }


def pick_in_state(
    conn: Connection, topic_id: int, group: str, records: Iterable[Record], state: EventHistory
) -> list[Record]:
    """Return those of the records that came from another node and are in this state."""
    given = list(records)
    states = read_event_states(conn, topic_id, group, given)
    return [record for record in given if states.get(record.position) is state]


def admitting_node(record: Record) -> str:
    """Return the node that admitted an event, the first one of its path; empty for this one.

    Its tree has the leaf. The event's `sourceNode` is what that node says, and can be any other one.
    """
    try:
        path = decode_path(record.path)
    except Malformed:
        return ""
    return path[0] if path else ""


class _HintRow(NamedTuple):
    position: int
    upto: int
    places: Sequence[LeafPlace]
    checked: int
    is_due: bool


class _StateReader:
    """Reads rows and tiles of one transaction, each once."""

    def __init__(self, conn: Connection, topic_id: int, group: str) -> None:
        self._conn = conn
        self._topic_id = topic_id
        self._group = group
        self._row: _HintRow | None = None
        self._trees: dict[str, Tree] | None = None
        self._tiles: dict[tuple[int, int], bytes] = {}

    def read(self, record: Record, node: str) -> EventHistory:
        """Return what is known of an event that `node` admitted, and that is not refuted."""
        row = self._row_at(record.position)
        if row is None:
            return EventHistory.UNPROVEN
        if row.is_due and record.position > row.checked:
            return EventHistory.WAITING
        name, leaf = find_place(row.places, record.position)
        if leaf and self._leaf_at(str(LogOrigin(self._group, node, name)), leaf) == _leaf_of(record):
            return EventHistory.VERIFIED
        return EventHistory.UNPROVEN

    def _row_at(self, position: int) -> _HintRow | None:
        if self._row is None or not self._row.position <= position <= self._row.upto:
            sql = (
                "SELECT position, upto, places, checked, due FROM leaf_hints WHERE topic_id = ? AND position <= ?"
                " ORDER BY position DESC LIMIT 1"
            )
            rows = fetch(self._conn, sql, (self._topic_id, position))
            self._row = None
            for first, upto, places, checked, due in rows:
                self._row = _HintRow(first, upto, read_places(places), checked, due is not None)
        return self._row if self._row is not None and position <= self._row.upto else None

    def _leaf_at(self, origin: str, index: int) -> bytes:
        if self._trees is None:
            self._trees = {tree.origin: tree for tree in read_believed_trees(self._conn, self._topic_id)}
        tree = self._trees.get(origin)
        if tree is None or tree.size <= index:
            return b""
        number, at = divmod(index, TILE_WIDTH)
        if (tree.id, number) not in self._tiles:
            stored = dict(read_tiles(self._conn, tree.id, 0, number, 1))
            self._tiles = {(tree.id, number): stored.get(number, b"")}
        return self._tiles[tree.id, number][at * HASH_SIZE : (at + 1) * HASH_SIZE]


def _leaf_of(record: Record) -> bytes:
    return hash_leaf(event_entry(digest(record.body.encode())))
