"""Which parts came of later events: what is run late, out of its order, must not undo them."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import NamedTuple

import sqlalchemy as sa

from eventd.store.engine.database import fetch_in


class Later(NamedTuple):
    """The events of a topic that were recorded, or refreshed, beyond a position."""

    topic_id: int
    position: int

    def of(self, conn: sa.Connection, part_ids: Collection[int]) -> set[int]:
        """Those of the parts that such an event led to."""
        rows = fetch_in(conn, "SELECT id, event_ids FROM parts WHERE id {in}", (), sorted(part_ids))
        told = {part_id: _ids(text) for part_id, text in rows}
        sql = "SELECT event_id FROM event_ids WHERE topic_id = ? AND position > ? AND event_id {in}"
        late = {event_id for (event_id,) in fetch_in(conn, sql, self, sorted(frozenset().union(*told.values())))}
        return {part_id for part_id, ids in told.items() if not late.isdisjoint(ids)}


def _ids(text: str) -> frozenset[str]:
    """The event ids of a part; none where they cannot be read."""
    try:
        found = json.loads(text)
    except ValueError:
        return frozenset()
    return frozenset(one for one in found if isinstance(one, str)) if isinstance(found, list) else frozenset()
