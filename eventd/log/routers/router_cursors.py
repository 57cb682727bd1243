"""The cursors of routers: many are locked, and moved, by one statement."""

from __future__ import annotations

from collections.abc import Sequence

from eventd.log.core.commit import Transaction
from eventd.log.cursors.cursors import LinkState
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch, for_update


def lock_cursors(conn: Connection, names: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Return the position and options' version of each cursor by name; the rows stay locked until the commit."""
    marks = ", ".join("?" * len(names))
    sql = f"SELECT name, position, selector_version FROM cursors WHERE name IN ({marks}) ORDER BY name"
    return {name: (at, version) for name, at, version in fetch(conn, sql + for_update(conn), sorted(names))}


def settle_cursors(tx: Transaction, names: Sequence[str], position: int, held: str) -> None:
    """Move these cursors to a position. `held`: why their routers have to wait there; empty: they need not."""
    state = LinkState.BACKING_OFF.value if held else LinkState.RUNNING.value
    changes = {
        "position = ?": position,
        "sent_upto = ?": position,
        "since = CASE WHEN state = ? THEN since ELSE ? END": (state, tx.now),
        "state = ?": state,
        "reason = ?": held,
        "attempts = ?": int(bool(held)),
        "attempted_at = ?": tx.now,
        "attempted_upto = ?": position,
    } | ({} if held else {"succeeded_at = ?": tx.now})
    values = [each for value in changes.values() for each in (value if isinstance(value, tuple) else (value,))]
    marks = ", ".join("?" * len(names))
    execute(tx.conn, f"UPDATE cursors SET {', '.join(changes)} WHERE name IN ({marks})", (*values, *names))
