"""Reads settled batches page by page, and the selections they were made with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from eventd.log.delivery.selection import Selection
from eventd.log.delivery.states import read_versions
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch
from federation.selector import Selector

LOOKED_AT: Final = 4000
"""Approximate maximum number of batches in one extract."""
PORTION: Final = 200
"""Maximum number of batches that one query reads."""
_TEXT: Final = 1024
"""Characters of receipts and exceptions that count as one row of deliveries, or as an eighth of a row of receipts."""
_COLUMNS: Final = (
    "id, cursor, batch_id, epoch, incarnation, after, upto, events, selector_version, exceptions, picked, attempts,"
    " sent_at, acked_at, status, protocol, key_id, receipt"
)


class BatchRow(NamedTuple):
    """One settled batch: the receiver answered it, or it was not sent because no event was left to send.

    `events` counts the delivered ones. `exceptions` has, by position, the reason why an event was not delivered.
    `picked` are the positions that a repair or a resend sent or left out; empty for other batches.
    """

    id: int
    cursor: str
    batch_id: str
    epoch: str
    incarnation: int
    after: int
    upto: int
    events: int
    selector_version: int
    exceptions: Mapping[int, str]
    picked: Sequence[int]
    attempts: int
    sent_at: int
    acked_at: int
    status: int
    protocol: str
    key_id: str
    receipt: str


class BatchPage(NamedTuple):
    """Batches in order of id; `upto` is the last id that was read, and with `full` later batches may exist."""

    batches: Sequence[BatchRow]
    upto: int
    full: bool


def read_batches(conn: Connection, after: int, *, rows: int, expanded: bool) -> BatchPage:
    """Read batches after the id `after`, until they make about `rows` ledger rows.

    A batch counts as one row, or with `expanded` as one for each delivered event; long texts in it count as more.
    """
    weight = "events + (length(exceptions) + length(receipt)) / ?" if expanded else "1 + length(receipt) / (8 * ?)"
    sql = f"SELECT id, {weight} FROM batches WHERE id > ? ORDER BY id LIMIT ?"
    total, upto, full = 0, after, True
    batches: list[BatchRow] = []
    while total < rows and len(batches) < LOOKED_AT and full:
        begin = upto
        sizes = fetch(conn, sql, (_TEXT, begin, PORTION))
        full = len(sizes) == PORTION
        for at, weighs in sizes:
            total, upto = total + weighs, at
            if total >= rows:
                full = True
                break
        names = f"SELECT {_COLUMNS} FROM batches WHERE id > ? AND id <= ? ORDER BY id"
        batches += map(_batch, fetch(conn, names, (begin, upto)))
    return BatchPage(batches, upto, full)


def _batch(row: Sequence[Any]) -> BatchRow:
    batch = BatchRow._make(row)
    if not (batch.exceptions or batch.picked):
        return batch._replace(exceptions={}, picked=())
    left_out = dict(json.loads(row[9] or "[]"))
    return batch._replace(exceptions=left_out, picked=json.loads(row[10] or "[]"))


class Selections:
    """The selections of the cursors of peers and callbacks by version; read once for each cursor."""

    def __init__(self, conn: Connection) -> None:
        self._conn = conn
        self._known: dict[str, dict[int, tuple[Selection, str]]] = {}

    def of(self, cursor: str, version: int) -> Selection | None:
        """Return a version of the selection of a cursor; None for an unknown version."""
        found = self._versions(cursor).get(version)
        return None if found is None else found[0]

    def text(self, cursor: str, version: int) -> str:
        """Return a version of the selection of a cursor as JSON; empty for an unknown version."""
        found = self._versions(cursor).get(version)
        return "" if found is None else found[1]

    def _versions(self, cursor: str) -> dict[int, tuple[Selection, str]]:
        if cursor not in self._known:
            self._known[cursor] = {
                version: (Selection.from_json(shown), json.dumps(shown, separators=(",", ":")))
                for version, _, stored in read_versions(self._conn, cursor)
                for shown in (shown_selection(stored),)
            }
        return self._known[cursor]


def shown_selection(stored: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a stored selection of a peer or a callback in the form in which the ledgers have it.

    A callback gets all events of its group that its selector matches, as a peer with `relay` does.
    """
    if "selector" not in stored:
        return stored
    return Selection(msgspec.convert(stored["selector"], Selector), relay=True).to_json()
