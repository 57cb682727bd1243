"""How much of the delivery ledger is in the lake, and why shipping is delayed."""

from __future__ import annotations

from typing import Any

from eventd.api.framework.moments import show_time
from eventd.api.framework.operations import Params, Services
from eventd.egress.lake.protocol import SEGMENTS
from eventd.lake.extract import LedgerSnapshot, read_state
from eventd.lake.schema import Ledger
from eventd.log.cursors.cursors import Cursor, read_cursors
from eventd.store.engine.database import Connection


class ShowLake(Params):
    """No parameters."""


async def show_lake(services: Services, _params: ShowLake) -> dict[str, Any]:
    """Return what `read_shipping` does, and whether the running node has a lake (`configured`; None: none runs)."""
    return {"configured": is_configured(services), **await services.database.read(read_shipping)}


def is_configured(services: Services) -> bool | None:
    """Return whether the running node ships to a lake; None if no node runs. A node for one group ships to none."""
    settings = services.settings
    return None if settings is None else bool(settings.lake) and settings.group is None


def read_shipping(conn: Connection) -> dict[str, Any]:
    """Return as JSON the id of the `lake` (`""` until known), and how far each ledger table is shipped (`books`)."""
    cursors = read_cursors(conn, SEGMENTS)
    if not cursors:
        return {"lake": "", "books": []}
    state = read_state(conn)
    kept = {f"{SEGMENTS}/{node}/{book}": (node, book) for node in state.nodes for book in Ledger}
    books = [_book(cursor, *kept[cursor.name], state) for cursor in cursors if cursor.name in kept]
    order = list(Ledger)
    return {
        "lake": str(cursors[0].selection.get("lake", "")),
        "books": sorted(books, key=lambda row: (row["node"], order.index(row["book"]))),
    }


def _book(cursor: Cursor, node: str, book: Ledger, state: LedgerSnapshot) -> dict[str, Any]:
    last = state.books[book].last
    return {
        "node": node,
        "book": str(book),
        "state": str(cursor.shown_state),
        "reason": cursor.reason,
        "since": show_time(cursor.since),
        "upto": cursor.position,
        "last": last,
        "waiting": max(0, last - cursor.position),
        "attempts": cursor.attempts,
        "retryAt": show_time(cursor.retry_at),
        "lastError": cursor.last_error,
        "lastSuccessAt": show_time(cursor.succeeded_at),
    }
