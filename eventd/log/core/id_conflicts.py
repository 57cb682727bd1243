"""Conflicts of event ids: an id belongs to the first event that used it; a different event with it is not stored.

The emitter chooses the id, so a member can take one that another would use. Nothing prevents that; these rows name both
sides, so that operators notice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from eventd.log.core.values import IdOwner
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch
from federation.loops import decode_path

UNKNOWN: Final = "?"
"""Stands for a source or a key that is unknown, or no longer stored."""
MOST_KINDS: Final = 1000
"""How many kinds of conflicts are kept for a topic, the most recent ones: sources may be invented."""
KINDS_PER_TRANSACTION: Final = 100
"""Maximum number of kinds that one transaction adds, and of keys that it looks up; beyond, they are `UNKNOWN`."""


class Origin(NamedTuple):
    """The origin of a stored event: its source, its encoded path, and when it was recorded (microseconds).

    `key_id` is the key that signed it, if the event is of this transaction, and then `recorded_at` is 0; None: the key
    must be looked up. `digest` is that of the event; empty if it is not computed yet.
    """

    source: str
    path: str
    recorded_at: int
    key_id: str | None = None
    digest: bytes = b""


class IdConflict(NamedTuple):
    """A conflict: the event that has the id (`owner`), and the source and key of the one that is not stored.

    `owner` is None if its record is removed.
    """

    event_id: str
    owner: Origin | None
    source: str
    key_id: str


class ConflictCount(NamedTuple):
    """The conflicts of one owner and key with one source and key: how many (`times`), and when the first and last was.

    `event_id` is that of the last one. A key is empty for events emitted at this node. Times in microseconds.
    """

    owner: str
    owner_key: str
    source: str
    key_id: str
    times: int
    event_id: str
    first_at: int
    last_at: int


def note_conflicts(conn: Connection, topic_id: int, found: Sequence[IdConflict], now: int) -> list[IdOwner]:
    """Add conflicts to the stored counts in the open transaction; return the owner of the id of each, in order."""
    keys: dict[tuple[str, int], str] = {}
    owners = [_owner(conn, topic_id, each.owner, keys) for each in found]
    kinds: dict[tuple[str, str, str, str], tuple[int, str]] = {}
    for each, owner in zip(found, owners, strict=True):
        kind = (owner.source, owner.key_id, each.source, each.key_id)
        if kind not in kinds and len(kinds) >= KINDS_PER_TRANSACTION:
            kind = (UNKNOWN, UNKNOWN, UNKNOWN, each.key_id)
        kinds[kind] = (kinds.get(kind, (0, ""))[0] + 1, each.event_id)
    for kind, (times, event_id) in kinds.items():
        execute(
            conn,
            "INSERT INTO id_conflicts (topic_id, owner, owner_key, source, key_id, times, event_id, first_at, last_at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (topic_id, owner, owner_key, source, key_id) DO UPDATE"
            " SET times = id_conflicts.times + excluded.times, event_id = excluded.event_id,"
            " last_at = excluded.last_at",
            (topic_id, *kind, times, event_id, now, now),
        )
    _bound(conn, topic_id)
    return owners


def _owner(conn: Connection, topic_id: int, origin: Origin | None, keys: dict[tuple[str, int], str]) -> IdOwner:
    if origin is None:
        return IdOwner(UNKNOWN, UNKNOWN)
    mark = origin.digest.hex()
    if origin.key_id is not None:
        return IdOwner(origin.source, origin.key_id, mark)
    if not origin.path:
        return IdOwner(origin.source, "", mark)
    came = (decode_path(origin.path)[-1], origin.recorded_at)
    if came not in keys:
        keys[came] = _key_of(conn, topic_id, *came) if len(keys) < KINDS_PER_TRANSACTION else UNKNOWN
    return IdOwner(origin.source, keys[came], mark)


def _key_of(conn: Connection, topic_id: int, node: str, recorded_at: int) -> str:
    """Return the id of the key that signed the batch of `node` recorded at `recorded_at`; `UNKNOWN` without its row."""
    sql = "SELECT key_id FROM inbound_batches WHERE recorded_at = ? AND topic_id = ? AND node = ? LIMIT 1"
    rows = fetch(conn, sql, (recorded_at, topic_id, node))
    return str(rows[0][0]) if rows else UNKNOWN


def _bound(conn: Connection, topic_id: int) -> None:
    [(kinds,)] = fetch(conn, "SELECT count(*) FROM id_conflicts WHERE topic_id = ?", (topic_id,))
    if kinds <= MOST_KINDS + KINDS_PER_TRANSACTION:
        return
    [(last,)] = fetch(
        conn,
        "SELECT last_at FROM id_conflicts WHERE topic_id = ? ORDER BY last_at DESC LIMIT 1 OFFSET ?",
        (topic_id, MOST_KINDS),
    )
    execute(conn, "DELETE FROM id_conflicts WHERE topic_id = ? AND last_at <= ?", (topic_id, last))


def read_conflicts(conn: Connection, topic_id: int, *, since: int = 0) -> list[ConflictCount]:
    """Return the counts of conflicts that last occurred at `since` (microseconds) or later, the highest first."""
    sql = f"SELECT {', '.join(ConflictCount._fields)} FROM id_conflicts WHERE topic_id = ? AND last_at >= ?"
    rows: Iterable[tuple[object, ...]] = fetch(conn, f"{sql} ORDER BY times DESC, owner, source", (topic_id, since))
    return [ConflictCount(*row) for row in rows]  # type: ignore[arg-type]
