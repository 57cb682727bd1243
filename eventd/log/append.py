"""Placing drafts in the log: which are new, and at which position and seq. The head must be locked.

One set query finds the ids that are known, repeats inside the batch included; positions and seqs go to the survivors
only, so both stay without holes. After that a conflict at the insert is a bug, and the transaction fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import sqlalchemy as sa

from eventd.log.values import Appended, Draft, Outcome
from eventd.store.database import bulk_insert, execute, execute_many, fetch, fetch_in
from eventd.store.schema import event_ids, records

_RECORD = (
    "position", "topic_id", "seq", "node", "tag", "subject", "event_id", "dedupe_key", "ts", "expires_at",
    "recorded_at", "path", "size", "body",
)  # fmt: skip
_ID = ("topic_id", "event_id", "node", "position", "expires_at", "digest", "gone_at")


class Known(NamedTuple):
    """What the books say of an event id. `stored`: the row is in the table; `gone`: its record is not."""

    node: str
    position: int
    expires_at: int | None
    digest: bytes
    stored: bool
    gone: bool


def place(
    conn: sa.Connection, topic_id: int, units: Sequence[Sequence[Draft]], *, next_position: int, now: int
) -> tuple[list[Appended], int]:
    """Append the drafts of several units to one topic; the fate of each unit, and the next free position."""
    known = _read_known(conn, topic_id, [draft.event_id for unit in units for draft in unit])
    next_seq = fetch(conn, "SELECT next_seq FROM topics WHERE id = ?", (topic_id,))[0][0]
    placing = _Placing(topic_id, next_position, next_seq, known, now)
    appended = [placing.take(unit) for unit in units]
    placing.write(conn)
    return appended, placing.position


def _read_known(conn: sa.Connection, topic_id: int, ids: Sequence[str]) -> dict[str, Known]:
    sql = (
        "SELECT event_id, node, position, expires_at, digest, gone_at FROM event_ids"
        " WHERE topic_id = ? AND event_id {in}"
    )
    return {
        event_id: Known(node, position, expires_at, digest, True, gone_at is not None)
        for event_id, node, position, expires_at, digest, gone_at in fetch_in(conn, sql, (topic_id,), ids)
    }


IdRow = tuple[int, str, str, int, int | None, bytes, None]


class _Placing:
    """The books of one topic while a transaction places drafts in it."""

    def __init__(self, topic_id: int, position: int, seq: int, known: dict[str, Known], now: int) -> None:
        self.position = position
        self._topic_id = topic_id
        self._seq = seq
        self._known = known
        self._now = now
        self._records: list[tuple[object, ...]] = []
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
        sizes = [len(d.body) if d.body.isascii() else len(d.body.encode()) for d in drafts]
        self._records += [
            (position + i, topic_id, seq + i, node, tag, subject, event_id, dedupe_key, ts, expires_at, now, path, size,
             body)
            for i, ((event_id, node, tag, subject, dedupe_key, ts, expires_at, path, body, _), size) in enumerate(
                zip(drafts, sizes, strict=True)
            )
        ]  # fmt: skip
        for i, d in enumerate(drafts, position):
            self._ids[d.event_id] = (topic_id, d.event_id, d.node, i, d.expires_at, d.digest, None)
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
        return None if row is None else Known(*row[2:6], stored=False, gone=False)

    def _refresh(self, draft: Draft, known: Known) -> None:
        position = self.position
        self._record_new((draft,))
        if known.stored:
            del self._ids[draft.event_id]
            self._moved[draft.event_id] = (position, draft.expires_at)
            self._back += known.gone
            self._known[draft.event_id] = known._replace(position=position, expires_at=draft.expires_at, gone=False)

    def write(self, conn: sa.Connection) -> None:
        """Write what was taken."""
        if not self._records:
            return
        bulk_insert(conn, records, _RECORD, self._records)
        bulk_insert(conn, event_ids, _ID, list(self._ids.values()))
        execute_many(
            conn,
            "UPDATE event_ids SET position = ?, expires_at = ?, gone_at = NULL WHERE topic_id = ? AND event_id = ?",
            [(*moved, self._topic_id, event_id) for event_id, moved in self._moved.items()],
        )
        execute(
            conn,
            "UPDATE topics SET next_seq = ?, bytes = bytes + ?, ids = ids + ?,"
            " largest = CASE WHEN largest < ? THEN ? ELSE largest END WHERE id = ?",
            (self._seq, self._bytes, len(self._ids) + self._back, self._largest, self._largest, self._topic_id),
        )


def _compare(draft: Draft, known: Known) -> Outcome:
    if known.node != draft.node or known.digest != draft.digest:
        return Outcome.CONFLICT
    if known.expires_at is not None and (draft.expires_at is None or draft.expires_at > known.expires_at):
        return Outcome.REFRESH
    return Outcome.DUPLICATE
