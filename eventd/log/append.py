"""Placing drafts in the log: which are new, and at which position and seq. The head must be locked.

One set query finds the ids that are known, repeats inside the batch included; positions and seqs go to the survivors
only, so both stay without holes. After that a conflict at the insert is a bug, and the transaction fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from eventd.log.values import Appended, Draft, Outcome, size_of
from eventd.store.database import bulk_insert, execute, execute_many, fetch, fetch_in
from eventd.store.schema import event_ids, records
from federation.event import content_digest, content_of

_RECORD = ("position", "topic_id", "seq", "recorded_at", "size", *Draft._fields)
_ID = ("topic_id", "event_id", "node", "position", "expires_at")
_TIMES_DIFFER = 14
"""Characters by which the two times of one content can differ: each has a fraction of a second, or none."""


class Known(NamedTuple):
    """What the books say of an event id.

    `stored`: the id is in the table. Its latest record's `body` says what it stands for, or, where retention removed
    the record, a `digest` does. A body of a size that no draft can equal is not read: then it is empty.
    """

    node: str
    position: int
    expires_at: int | None
    body: str | None
    digest: bytes | None
    stored: bool

    @property
    def gone(self) -> bool:
        """Whether retention removed the record."""
        return self.body is None


def place(
    conn: sa.Connection, topic_id: int, units: Sequence[Sequence[Draft]], *, next_position: int, now: int
) -> tuple[list[Appended], int]:
    """Append the drafts of several units to one topic; the fate of each unit, and the next free position."""
    known = _read_known(conn, topic_id, [draft for unit in units for draft in unit])
    next_seq = fetch(conn, "SELECT next_seq FROM topics WHERE id = ?", (topic_id,))[0][0]
    placing = _Placing(topic_id, next_position, next_seq, known, now)
    appended = [placing.take(unit) for unit in units]
    placing.write(conn)
    return appended, placing.position


def _read_known(conn: sa.Connection, topic_id: int, drafts: Sequence[Draft]) -> dict[str, Known]:
    sql = (
        "SELECT e.event_id, e.node, e.position, e.expires_at, r.size, e.digest FROM event_ids e"
        " LEFT JOIN records r ON r.position = e.position WHERE e.topic_id = ? AND e.event_id {in}"
    )
    found = fetch_in(conn, sql, (topic_id,), [draft.event_id for draft in drafts])
    bodies = _read_bodies(conn, {row[0]: (row[2], row[4]) for row in found if row[4] is not None}, drafts)
    return {
        event_id: Known(node, position, expires_at, None if size is None else bodies.get(position, ""), digest, True)
        for event_id, node, position, expires_at, size, digest in found
    }


def _read_bodies(conn: sa.Connection, places: dict[str, tuple[int, int]], drafts: Sequence[Draft]) -> dict[int, str]:
    """The stored bodies that a draft may equal, by position; `places` are (position, size) by event id.

    No more is read than the drafts themselves hold: small drafts under the ids of large events must not fill memory.
    """
    near = {
        places[draft.event_id][0]
        for draft in drafts
        if draft.event_id in places and abs(places[draft.event_id][1] - size_of(draft.body)) <= _TIMES_DIFFER
    }
    if not near:
        return {}
    return dict(fetch_in(conn, "SELECT position, body FROM records WHERE position {in}", (), sorted(near)))


IdRow = tuple[int, str, str, int, int | None]


class _Placing:
    """The books of one topic while a transaction places drafts in it."""

    def __init__(self, topic_id: int, position: int, seq: int, known: dict[str, Known], now: int) -> None:
        self.position = position
        self._topic_id = topic_id
        self._seq = seq
        self._known = known
        self._now = now
        self._first = position
        self._records: list[tuple[Any, ...]] = []
        self._ids: dict[str, IdRow] = {}
        self._moved: dict[str, tuple[int, int | None]] = {}
        self._back = 0
        self._bytes = 0
        self._largest = 0

    def take(self, drafts: Sequence[Draft]) -> Appended:
        """Decide each draft's fate in order."""
        ids = {draft.event_id for draft in drafts}
        if len(ids) == len(drafts) and self._known.keys().isdisjoint(ids) and self._ids.keys().isdisjoint(ids):
            first = self.position
            self._record_new(drafts)
            return Appended([Outcome.NEW] * len(drafts), range(first, self.position))
        return self._take_slowly(drafts)

    def _record_new(self, drafts: Sequence[Draft]) -> None:
        """All of them are new: the hot path."""
        topic_id, now, position, seq = self._topic_id, self._now, self.position, self._seq
        sizes = [size_of(d.body) for d in drafts]
        self._records += [
            (position + i, topic_id, seq + i, now, size, *draft)
            for i, (draft, size) in enumerate(zip(drafts, sizes, strict=True))
        ]
        for i, d in enumerate(drafts, position):
            self._ids[d.event_id] = (topic_id, d.event_id, d.node, i, d.expires_at)
        self._advance(sizes)

    def _advance(self, sizes: Sequence[int]) -> None:
        self.position += len(sizes)
        self._seq += len(sizes)
        self._bytes += sum(sizes)
        self._largest = max(self._largest, *sizes, 0)

    def _take_slowly(self, drafts: Sequence[Draft]) -> Appended:
        outcomes: list[Outcome] = []
        positions: list[int] = []
        for draft in drafts:
            known = self._known.get(draft.event_id) or self._placed(draft.event_id)
            outcome = Outcome.NEW if known is None else _compare(draft, known)
            if outcome is Outcome.NEW:
                positions.append(self.position)
                self._record_new((draft,))
            elif outcome is Outcome.REFRESH and known is not None:
                positions.append(self.position)
                self._refresh(draft, known)
            else:
                positions.append(known.position if known else 0)
            outcomes.append(outcome)
        return Appended(outcomes, positions)

    def _placed(self, event_id: str) -> Known | None:
        """What this transaction itself placed under the id."""
        row = self._ids.get(event_id)
        if row is None:
            return None
        node, position, expires_at = row[2:5]
        body = self._records[position - self._first][-1]
        return Known(node, position, expires_at, body, None, stored=False)

    def _refresh(self, draft: Draft, known: Known) -> None:
        position = self.position
        self._record_new((draft,))
        if known.stored:
            del self._ids[draft.event_id]
            self._moved[draft.event_id] = (position, draft.expires_at)
            self._back += known.gone
            self._known[draft.event_id] = known._replace(
                position=position, expires_at=draft.expires_at, body=draft.body, digest=None
            )

    def write(self, conn: sa.Connection) -> None:
        """Write what was taken."""
        if not self._records:
            return
        bulk_insert(conn, records, _RECORD, self._records)
        bulk_insert(conn, event_ids, _ID, list(self._ids.values()))
        execute_many(
            conn,
            "UPDATE event_ids SET position = ?, expires_at = ?, digest = NULL, gone_at = NULL"
            " WHERE topic_id = ? AND event_id = ?",
            [(*moved, self._topic_id, event_id) for event_id, moved in self._moved.items()],
        )
        execute(
            conn,
            "UPDATE topics SET next_seq = ?, bytes = bytes + ?, ids = ids + ?,"
            " largest = CASE WHEN largest < ? THEN ? ELSE largest END WHERE id = ?",
            (self._seq, self._bytes, len(self._ids) + self._back, self._largest, self._largest, self._topic_id),
        )


def _compare(draft: Draft, known: Known) -> Outcome:
    if known.node != draft.node or not _same_content(draft, known):
        return Outcome.CONFLICT
    if known.expires_at is not None and (draft.expires_at is None or draft.expires_at > known.expires_at):
        return Outcome.REFRESH
    return Outcome.DUPLICATE


def _same_content(draft: Draft, known: Known) -> bool:
    if known.body is None:
        return content_digest(draft.body) == known.digest
    return known.body != "" and content_of(draft.body) == content_of(known.body)
