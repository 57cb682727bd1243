"""Events of other nodes that wait for their check: how many there are, and what the oldest of them wait for."""

from __future__ import annotations

from typing import Final, NamedTuple

from eventd.log.core.scan import scan
from eventd.log.history.trees import find_tree_of
from eventd.log.witnesses.keys import LOG, Pins, known_key, read_known_keys, show_key
from eventd.log.witnesses.witnessed import find_witnessed
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch
from federation.errors import Malformed
from federation.event import read_outlines
from federation.history.checkpoints import LogOrigin
from federation.history.leaf_hints import find_place, read_places
from federation.loops import decode_path

MOST_ROWS: Final = 128
"""How many rows of hints are looked at for the nodes whose events wait: the oldest."""

MOST_WAITING: Final = 10_000
"""How many waiting events are counted, and how many rows of them are read for the oldest: half a million take long."""
WAITING_ROWS: Final = f"""(
    SELECT position, upto, places, checked FROM leaf_hints WHERE topic_id = ? AND due IS NOT NULL
    ORDER BY due LIMIT {MOST_WAITING}
) AS waiting"""
"""The rows of a topic with waiting events, for a statement. Only in the order of `due` does an index have them: by
position, SQLite reads all rows of the topic, also those that wait for nothing."""


class WaitingCount(NamedTuple):
    """Number of waiting events; a lower bound unless `in_full`."""

    events: int
    in_full: bool


class WaitingTree(NamedTuple):
    """A tree for which events wait, and the oldest of these events.

    `age` is for how long it has waited. `sender` brought it, as leaf `leaf`. `held` is the size of the last checkpoint
    that was witnessed, `tiles` the size up to which hashes are stored; 0: none. `key` is the known key, empty
    if none is known; `source` is how it is known, `refused` the last other one that the node has shown since
    that checkpoint.
    """

    node: str
    origin: str
    event_id: str
    sender: str
    leaf: int
    age: int
    held: int
    tiles: int
    key: str
    source: str
    refused: str


def count_waiting(conn: Connection, topic_id: int) -> WaitingCount:
    """Return how many events of other nodes wait for their check; of many, only that it is `MOST_WAITING` or more."""
    # Positions of a row follow each other.
    begun = "CASE WHEN checked < position THEN position - 1 ELSE checked END"
    ((count,),) = fetch(conn, f"SELECT coalesce(sum(upto - {begun}), 0) FROM {WAITING_ROWS}", (topic_id,))
    # Each row has a waiting event: if not all rows were read, the sum is large enough.
    return WaitingCount(min(int(count), MOST_WAITING), int(count) < MOST_WAITING)


def read_waiting(conn: Connection, topic_id: int, group: str, pins: Pins, now: int) -> list[WaitingTree]:
    """Return the trees for which the oldest waiting events wait, one entry for each, the oldest event first."""
    sql = f"SELECT position, upto, places, checked FROM {WAITING_ROWS} ORDER BY position LIMIT {MOST_ROWS}"
    found: dict[str, WaitingTree] = {}
    for position, upto, places, checked in fetch(conn, sql, (topic_id,)):
        waiting = _next_event(conn, topic_id, max(checked, position - 1), upto)
        if waiting is None:
            continue
        at, path, body, recorded_at = waiting
        name, leaf = find_place(read_places(places), at)
        origin = str(LogOrigin(group, path[0], name))
        if leaf and origin not in found:
            event_id = read_outlines([body])[0].id
            held, kept = find_witnessed(conn, topic_id, origin), find_tree_of(conn, topic_id, origin)
            sizes = held.size if held else 0, kept.size if kept else 0
            keys = _keys_of(conn, topic_id, path[0], pins, held.witnessed_at if held else 0)
            found[origin] = WaitingTree(
                path[0], origin, event_id, path[-1], leaf, max(0, now - recorded_at), *sizes, *keys
            )
    return list(found.values())


def _next_event(conn: Connection, topic_id: int, after: int, upto: int) -> tuple[int, tuple[str, ...], str, int] | None:
    """Return position, path, text and time of storage of the next event of another node; None if there is none."""
    for block in scan(conn, topic_id, after, upto):
        for at, (path, body) in enumerate(block.entries(), block.position):
            try:
                nodes = tuple(decode_path(path))
            except Malformed:
                continue
            if body and nodes:
                return at, nodes, body, block.recorded_at
    return None


def _keys_of(conn: Connection, topic_id: int, node: str, pins: Pins, since: int) -> tuple[str, str, str]:
    """Return the known key of a tree, how it is known, and the one that was refused after `since`, as `routerctl log
    keys` shows keys: an id of four bytes proves nothing."""
    known = known_key(conn, topic_id, node, LOG, pins)
    stored = [one for one in read_known_keys(conn, topic_id, pins) if (one.node, one.kind) == (node, LOG)]
    refused = [one.refused for one in stored if one.refused_at is not None and one.refused_at > since]
    shown = refused[0] if refused else None
    return (
        "" if known is None else show_key(LOG, known.public),
        "" if known is None else known.source.value,
        "" if shown is None else show_key(LOG, shown),
    )
