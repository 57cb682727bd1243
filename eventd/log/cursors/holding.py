"""What retention must keep for cursors that have not passed it yet."""

from __future__ import annotations

from typing import Final

from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch
from eventd.store.rows.callback_cursors import CALLBACK

DISABLED_BY: Final = "the node"
"""Shown as the operator who paused a cursor that the node has disabled. Retention keeps nothing for it."""


def read_held_position(conn: Connection, topic_id: int, now: int) -> int | None:
    """Return the position after which a topic's records are kept for callbacks; None if none keeps any.

    A callback that fails, or is paused, keeps records until it has failed, or been paused, for its `hold`; one that the
    node has disabled keeps none. `now` in microseconds.
    """
    rows = fetch(
        conn,
        "SELECT min(position) FROM cursors WHERE topic_id = ? AND kind = ? AND hold IS NOT NULL"
        " AND (paused_at IS NULL OR (paused_by <> ? AND paused_at > ? - hold))"
        " AND (failing_since IS NULL OR failing_since > ? - hold)",
        (topic_id, CALLBACK, DISABLED_BY, now, now),
    )
    return None if rows[0][0] is None else int(rows[0][0])
