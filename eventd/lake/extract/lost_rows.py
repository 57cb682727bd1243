"""Records in the gap ledger that rows were lost before they were read."""

from __future__ import annotations

from collections.abc import Iterable

from eventd.lake.extract.result import EvictedRows
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch, insert_row


def note_lost(conn: Connection, lost: Iterable[EvictedRows], now: int) -> None:
    """Add losses to the gap ledger in the open transaction, which must hold the lock on the head.

    A loss that is recorded already is not added again. Losses of groups that were deleted in the meantime are ignored.
    """
    for each in lost:
        topics = fetch(conn, "SELECT id FROM topics WHERE name = ?", (f"group:{each.group}",))
        if not topics:
            continue
        what = (topics[0][0], each.peer, each.epoch, each.after, each.upto, each.reason)
        known = (
            "SELECT 1 FROM inbound_gaps WHERE topic_id = ? AND node = ? AND epoch = ? AND after = ? AND upto = ?"
            " AND reason = ? AND book <> ''"
        )
        if not fetch(conn, known, what):
            names = ("topic_id", "node", "epoch", "after", "upto", "reason")
            book = each.reason.partition("_")[0]
            values = {**dict(zip(names, what, strict=True)), "recorded_at": now, "book": book}
            insert_row(conn, "inbound_gaps", values)
