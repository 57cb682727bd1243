"""Stores counts of refused requests: one row stands for any number of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from eventd.log.core.commit import ChangeUnit, Transaction, Turn
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import bulk_insert, fetch
from federation.errors import WrongCertificate


class RefusedRequests(NamedTuple):
    """How many requests, or events, of one group, peer and key were refused for one reason. Times in microseconds.

    `peer` is a peer's node, `?` for a node that is not a peer, empty if none was named; `key_id` is empty if unknown.
    """

    group_name: str
    peer: str
    key_id: str
    reason: str
    count: int  # type: ignore[assignment]  # a column's name, which hides tuple.count
    first_at: int
    last_at: int


def count_tls_refusals(conn: Connection, group: str, since: int) -> dict[str, int]:
    """Return how many connections and requests of a group TLS refused since that time (microseconds), by reason."""
    sql = (
        "SELECT reason, sum(count) FROM refusals WHERE last_at >= ? AND group_name = ?"
        " AND (substr(reason, 1, 3) = 'tls' OR reason = ?) GROUP BY reason"
    )
    rows = fetch(conn, sql, (since, group, WrongCertificate.code))
    return {reason: int(count) for reason, count in rows}


class StoreRefusals(ChangeUnit[None]):
    """A unit of the writer: adds rows to the table of refusals."""

    turn = Turn.BACKGROUND

    def __init__(self, rows: Sequence[RefusedRequests]) -> None:
        self._rows = rows
        self.weight = len(rows)

    def make(self, tx: Transaction) -> None:
        bulk_insert(tx.conn, "refusals", RefusedRequests._fields, self._rows)
