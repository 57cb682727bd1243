"""The history of a callback: the requests to its endpoint, and the records that it lost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from heapq import merge
from itertools import islice
from typing import NamedTuple, Self

from eventd.log.cursors.cursors import read_cursors
from eventd.log.delivery.acknowledgements import AcceptedBatch, read_gaps, read_newest_batches, read_recent_gaps
from eventd.store.engine.database import Connection
from eventd.store.rows.callback_attempts import CallbackAttempt, read_attempts
from eventd.store.rows.callback_cursors import RESEND, callback_name, callback_of
from eventd.text.plural import counted


class LostRecords(NamedTuple):
    """Records that retention removed before a callback got them: seqs from `first` to `last`, noted at `at` (µs)."""

    at: int
    first: int
    last: int
    records: int
    reasons: Sequence[str]


def read_losses(conn: Connection, callback: str, *, limit: int) -> list[LostRecords]:
    """Return the newest losses of a callback."""
    rows = read_gaps(conn, callback_name(callback), limit=limit)
    lost = [(row.acked_at, json.loads(row.receipt)["lost"]) for row in rows]
    return [LostRecords(at, one["from"], one["to"], one["count"], one["reasons"]) for at, one in lost]


class LossCount(NamedTuple):
    """How many records a callback has lost, and when the last of them was noted, in microseconds."""

    records: int
    last_at: int


def count_losses(conn: Connection, since: int) -> dict[str, LossCount]:
    """Return the losses of callbacks that were noted since a time (microseconds), by the name of the callback."""
    found: dict[str, LossCount] = {}
    for row in read_recent_gaps(conn, since):
        name = callback_of(row.cursor)
        before = found.get(name, LossCount(0, 0))
        records = before.records + json.loads(row.receipt)["lost"]["count"]
        found[name] = LossCount(records, max(before.last_at, row.acked_at))
    return found


class EndpointAttempt(NamedTuple):
    """One request to an endpoint, or several equal ones, as operators see it. Times in microseconds.

    `id` is that of its row. `requests`: how many requests the entry stands for, from `first_at` to `at`.
    """

    id: int
    at: int
    first_at: int
    message_id: str
    after: int
    upto: int
    events: int
    attempt: int
    requests: int
    status: int
    reason: str
    detail: str
    duration: int
    address: str
    key_ids: str
    answer: str
    retry_at: int | None


class AttemptPlace(NamedTuple):
    """A place in the list of a callback's attempts, which are rows of two tables: one for failed, one for accepted
    attempts.

    For each table it has the id of the last row before the place; None if there is no such row. Times would not be
    sufficient: several rows may have the same time.
    """

    failed: int | None = None
    accepted: int | None = None

    def after(self, shown: Sequence[EndpointAttempt]) -> Self:
        """Return the place after these attempts, which are listed from here on."""
        failed = [one.id for one in shown if one.reason]
        accepted = [one.id for one in shown if not one.reason]
        return type(self)(failed[-1] if failed else self.failed, accepted[-1] if accepted else self.accepted)


NEWEST = AttemptPlace()


def read_attempt_list(
    conn: Connection, callback: str, *, before: int | None, limit: int, place: AttemptPlace = NEWEST
) -> list[EndpointAttempt]:
    """Return up to `limit` attempts of a callback and its resends from a place on, newest first.

    `before`: only those from before this time (microseconds; None: all).
    """
    name = callback_name(callback)
    names = [name, *(c.name for c in read_cursors(conn, RESEND) if callback_of(c.name) == callback)]
    rows = [row for one in names for row in read_attempts(conn, one, before=before, below=place.failed, limit=limit)]
    failed = map(_failure, sorted(rows, key=lambda row: row.id, reverse=True))
    accepted = map(_success, read_newest_batches(conn, name, before=before, below=place.accepted, limit=limit))
    # Rows of each table stay in the order of their ids, whatever their times are: no page skips or repeats one.
    return [*islice(merge(failed, accepted, key=lambda one: -one.at), limit)]


def _failure(row: CallbackAttempt) -> EndpointAttempt:
    return EndpointAttempt(
        row.id,
        row.started_at,
        row.first_at,
        row.message_id,
        row.after,
        row.upto,
        row.events,
        row.attempt,
        row.folded,
        row.status,
        row.reason or "under_way",
        row.detail,
        row.duration,
        row.address,
        row.key_ids,
        row.answer,
        row.retry_at,
    )


def _success(batch: AcceptedBatch) -> EndpointAttempt:
    found = json.loads(batch.receipt) if batch.receipt else {}
    detail = ""
    if lost := found.get("lost"):
        detail = f"reported {counted(lost['count'], 'lost event')}"
    return EndpointAttempt(
        batch.id,
        batch.acked_at,
        batch.sent_at,
        batch.batch_id,
        batch.after,
        batch.upto,
        batch.events,
        batch.attempts,
        found.get("requests", 1),
        batch.status,
        "",
        detail,
        found.get("duration", 0),
        found.get("address", ""),
        batch.key_id,
        found.get("answer", ""),
        None,
    )
