"""Keys of the histories of other nodes, and how each is known.

A key is never replaced by another one that its node shows, unless the known one has signed the change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from eventd.log.history.trees import MINUTE
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch, insert_row, replacing
from federation.history.entries import OpeningEntry
from federation.history.notes import LOG_KEY, WITNESS_KEY, key_part
from federation.history.witnessing import KeySource, KnownKey, follow_rotations, take_key, take_successor

LOG: Final = "log"
WITNESS: Final = "witness"
KINDS: Final = {LOG: LOG_KEY, WITNESS: WITNESS_KEY}
"""The type in verifier keys, by kind."""
_COLUMNS: Final = "node, kind, key, source, pin, learned_at, refused, refused_at"

Pins = Mapping[tuple[str, str], bytes]
"""The declared keys by node and kind."""


class StoredKey(NamedTuple):
    """A key of another node. `pin`: the declared key that it is, or that signed its succession; None: not declared.

    `key` is empty where the node has shown no key that was taken over. `refused`: the last other key that it has shown
    since it showed the known one.
    """

    node: str
    kind: str
    key: bytes
    source: str
    pin: bytes | None
    learned_at: int
    refused: bytes | None
    refused_at: int | None


def show_key(kind: str, public: bytes) -> str:
    """Return a key as the last part of its verifier keys, which `routerctl log keys` prints at its node."""
    return key_part(KINDS[kind], public)


def read_keys(conn: Connection, topic_id: int) -> list[StoredKey]:
    """Return the stored keys of a group's other nodes, by node and kind."""
    rows = fetch(conn, f"SELECT {_COLUMNS} FROM history_keys WHERE topic_id = ? ORDER BY node, kind", (topic_id,))
    return [_stored(row) for row in rows]


def read_known_keys(conn: Connection, topic_id: int, pins: Pins) -> list[StoredKey]:
    """Return the stored keys with pins applied: a declared key takes the place of a learned one."""
    found = list[StoredKey]()
    for stored in read_keys(conn, topic_id):
        known = _known(stored, pins.get((stored.node, stored.kind)))
        if known is None:
            continue
        one = stored._replace(key=known.public, source=known.source.value)
        # A refused key that has been pinned since is no longer refused.
        found.append(one if one.refused != one.key else one._replace(refused=None, refused_at=None))
    return found


def _find(conn: Connection, topic_id: int, node: str, kind: str) -> StoredKey | None:
    sql = f"SELECT {_COLUMNS} FROM history_keys WHERE topic_id = ? AND node = ? AND kind = ?"
    rows = fetch(conn, sql, (topic_id, node, kind))
    return _stored(rows[0]) if rows else None


def _stored(row: tuple[str, str, bytes, str, bytes | None, int, bytes | None, int | None]) -> StoredKey:
    node, kind, key, source, pin, learned_at, refused, refused_at = row
    shown = None if refused is None else bytes(refused)
    return StoredKey(node, kind, bytes(key), source, None if pin is None else bytes(pin), learned_at, shown, refused_at)


def known_key(conn: Connection, topic_id: int, node: str, kind: str, pins: Pins) -> KnownKey | None:
    """Return what is known of a key: a declared one counts more than a learned one, and so do its successors."""
    return _known(_find(conn, topic_id, node, kind), pins.get((node, kind)))


def _known(stored: StoredKey | None, pin: bytes | None) -> KnownKey | None:
    if pin is not None:
        return KnownKey(stored.key if stored and stored.pin == pin else pin, KeySource.PINNED)
    if stored is None or not stored.key:
        return None
    # A key that is not declared any more counts as the weakest, until its node shows it again.
    source = KeySource(stored.source)
    return KnownKey(stored.key, KeySource.SHARED if source is KeySource.PINNED else source)


def was_learned(conn: Connection, topic_id: int, node: str, kind: str, public: bytes) -> bool:
    """Return whether this is the key that was taken over last, whatever is declared."""
    stored = _find(conn, topic_id, node, kind)
    return stored is not None and stored.key == public


def read_witness_keys(conn: Connection, topic_id: int, pins: Pins) -> dict[str, KnownKey]:
    """Return the keys with which other nodes cosign, by node: the known ones, and those that are declared."""
    nodes = {key.node for key in read_keys(conn, topic_id) if key.kind == WITNESS}
    nodes |= {node for node, kind in pins if kind == WITNESS}
    known = {node: known_key(conn, topic_id, node, WITNESS, pins) for node in sorted(nodes)}
    return {node: key for node, key in known.items() if key is not None}


def learn_key(
    conn: Connection, topic_id: int, node: str, kind: str, offered: KnownKey, pins: Pins, now: int
) -> KnownKey:
    """Return what is known of a key after its node has shown one, and keep it. Raises KeyChanged.

    A key that was refused before is forgotten then: the node has the known one again.
    """
    known = known_key(conn, topic_id, node, kind, pins)
    return _keep(conn, topic_id, (node, kind), known, take_key(node, known, offered, KINDS[kind]), pins, now)


def find_successor(
    conn: Connection,
    topic_id: int,
    entry: OpeningEntry,
    source: KeySource,
    pins: Pins,
    rotations: Iterable[OpeningEntry] = (),
) -> KnownKey:
    """Return what is known of a node's log key after it has opened a tree, for `keep_log_key`. Raises KeyChanged.

    `rotations` are those before, oldest first, of which some may not be known here.
    """
    known = known_key(conn, topic_id, entry.opening.origin.node, LOG, pins)
    return take_successor(entry, follow_rotations(rotations, known), source)


def keep_log_key(conn: Connection, topic_id: int, node: str, key: KnownKey, pins: Pins, now: int) -> None:
    """Keep the log key of a node, as `find_successor` has found it in this transaction."""
    _keep(conn, topic_id, (node, LOG), known_key(conn, topic_id, node, LOG, pins), key, pins, now)


def _keep(
    conn: Connection, topic_id: int, of: tuple[str, str], known: KnownKey | None, key: KnownKey, pins: Pins, now: int
) -> KnownKey:
    stored = _find(conn, topic_id, *of)
    row = {"key": key.public, "source": key.source.value, "pin": pins.get(of)}
    is_kept = stored is not None and (stored.key, stored.pin, stored.refused) == (key.public, row["pin"], None)
    if known != key or not is_kept:
        node, kind = of
        values = {"topic_id": topic_id, "node": node, "kind": kind, **row, "learned_at": now}
        values |= {"refused": None, "refused_at": None}
        changed = replacing(["key", "source", "pin", "learned_at", "refused", "refused_at"])
        insert_row(conn, "history_keys", values, f"ON CONFLICT (topic_id, node, kind) DO UPDATE SET {changed}")
    return key


def note_refused_key(conn: Connection, topic_id: int, node: str, kind: str, shown: bytes, pins: Pins, now: int) -> bool:
    """Record that a node has shown another key than the known one; return whether that is new.

    It is recorded once a minute at most: a member with a shared secret can show a new key in each message.
    Of a key that is declared and was never shown, as after a reset, nothing is stored before. The row then has no key:
    a wrong declaration must not be known when it is withdrawn.
    """
    if (node, kind) in pins:
        row = {"topic_id": topic_id, "node": node, "kind": kind, "key": b"", "source": KeySource.PINNED.value}
        insert_row(conn, "history_keys", row | {"pin": None, "learned_at": now}, "ON CONFLICT DO NOTHING")
    sql = (
        "UPDATE history_keys SET refused = ?, refused_at = ? WHERE topic_id = ? AND node = ? AND kind = ?"
        " AND (refused IS NULL OR (refused <> ? AND (refused_at <= ? OR refused_at > ?)))"
    )
    # A later time was noted before the clock was set back: it must not keep keys from being noted until then.
    return execute(conn, sql, (shown, now, topic_id, node, kind, shown, now - MINUTE, now)) > 0


def forget_refused_key(conn: Connection, topic_id: int, node: str, kind: str, now: int) -> None:
    """Forget the other key that a node has shown, because it continues with the known one.

    Not within a minute: else a member with a shared secret could have a key noted after each message of the node.
    """
    sql = (
        "UPDATE history_keys SET refused = NULL, refused_at = NULL WHERE topic_id = ? AND node = ? AND kind = ?"
        " AND refused IS NOT NULL AND (refused_at <= ? OR refused_at > ?)"
    )
    execute(conn, sql, (topic_id, node, kind, now - MINUTE, now))


def forget_keys(conn: Connection, topic_id: int, node: str) -> int:
    """Forget the learned keys of a node, so that the ones it shows next are taken over; return how many there were."""
    return execute(conn, "DELETE FROM history_keys WHERE topic_id = ? AND node = ?", (topic_id, node))
