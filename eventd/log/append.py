"""Placing drafts in the log: which are new, and at which position and seq. The head must be locked.

Most drafts are new, so that is tried first: their ids are written, and the table's key says whether one was known.
Then what was written is undone, the known ids are looked up, repeats inside the batch included, and positions and seqs
go to the survivors only: both stay without holes. After that a conflict at the insert is a bug.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from typing import NamedTuple

import sqlalchemy as sa

from eventd.log.blocks import Block, pack
from eventd.log.scan import blocks_at, pick
from eventd.log.values import Appended, Draft, Outcome, size_of
from eventd.store.database import bulk_insert, execute, execute_many, fetch, fetch_in
from eventd.store.schema import blocks, event_ids
from federation.event import content_digest, content_of

_ID = ("topic_id", "event_id", "position")
_TIMES_DIFFER = 14
"""Characters by which the two times of one content can differ: each has a fraction of a second, or none."""


class Known(NamedTuple):
    """What the books say of an event id.

    `stored`: the id is in the table. Its latest record's `body` says what it stands for, or, where retention removed
    the record, a `digest` does. A body of a size that no draft can equal is not kept: then it is empty.
    """

    position: int
    expires_at: int | None
    body: str | None
    digest: bytes | None
    stored: bool

    @property
    def gone(self) -> bool:
        """Whether retention removed the record."""
        return self.body is None


Units = Sequence[Sequence[Draft]]
"""The drafts of several units; those of one unit all entered here, or all came from other nodes."""


def place_new(
    conn: sa.Connection, topic_id: int, units: Units, *, next_position: int, now: int
) -> tuple[list[Appended], int]:
    """Append drafts to one topic that should all be new; the fate of each unit, and the next free position.

    Raises `KeyTaken` when one is not; then the transaction has to be undone to where it was, and `place` to be asked.
    """
    fates: list[Appended] = []
    position = next_position
    for unit in units:
        fates.append(Appended([Outcome.NEW] * len(unit), range(position, position + len(unit))))
        position += len(unit)
    drafts = [*chain.from_iterable(units)]
    ids = [(topic_id, draft.event_id, at) for at, draft in enumerate(drafts, next_position)]
    bulk_insert(conn, event_ids, _ID, ids)
    _store(conn, topic_id, drafts, position=next_position, now=now, ids=len(ids))
    return fates, position


def place(
    conn: sa.Connection, topic_id: int, units: Units, *, next_position: int, now: int
) -> tuple[list[Appended], int]:
    """Append drafts, of which any may be known, to one topic; the fate of each unit, and the next free position."""
    known = read_known(conn, topic_id, [*chain.from_iterable(units)])
    placing = _Placing(topic_id, next_position, known)
    appended = [placing.take(unit) for unit in units]
    placing.write(conn, now)
    return appended, placing.position


def _store(conn: sa.Connection, topic_id: int, drafts: Sequence[Draft], *, position: int, now: int, ids: int) -> None:
    """Write drafts that have their ids and their positions. `ids`: by how many the topic has more."""
    seq = fetch(conn, "SELECT next_seq FROM topics WHERE id = ?", (topic_id,))[0][0]
    made = [*_blocks(drafts, topic_id, position, seq, now)]
    bulk_insert(conn, blocks, Block._fields, made)
    execute(
        conn,
        "UPDATE topics SET next_seq = next_seq + ?, bytes = bytes + ?, ids = ids + ? WHERE id = ?",
        (len(drafts), sum(block.bytes for block in made), ids, topic_id),
    )


def _blocks(drafts: Sequence[Draft], topic_id: int, position: int, seq: int, now: int) -> Iterator[Block]:
    for run in _of_one_kind(drafts):
        yield from pack(run, topic_id=topic_id, position=position, seq=seq, now=now)
        position, seq = position + len(run), seq + len(run)


def _of_one_kind(drafts: Sequence[Draft]) -> Iterator[Sequence[Draft]]:
    """Runs of drafts that all entered here, or all came from other nodes."""
    paths = {draft.path for draft in drafts}
    if len(paths) == 1 or "" not in paths:
        yield drafts
    else:
        yield from ([*run] for _, run in groupby(drafts, lambda draft: draft.path == ""))


def read_known(conn: sa.Connection, topic_id: int, drafts: Sequence[Draft]) -> dict[str, Known]:
    """What the books say of the drafts' ids, those that are known."""
    sql = "SELECT event_id, position, gone_at, expires_at, digest FROM event_ids WHERE topic_id = ? AND event_id {in}"
    found = fetch_in(conn, sql, (topic_id,), [draft.event_id for draft in drafts])
    sizes: dict[str, list[int]] = {}
    for draft in drafts:
        sizes.setdefault(draft.event_id, []).append(size_of(draft.body))
    known = {row[0]: Known(row[1], row[3], None, row[4], stored=True) for row in found if row[2] is not None}
    for block, places in blocks_at(conn, [row[1] for row in found if row[2] is None]):
        for record in pick(block, places):
            # No more is kept than the drafts hold: small drafts under the ids of large events must not fill memory.
            near = any(abs(record.size - size) <= _TIMES_DIFFER for size in sizes[record.event_id])
            body = record.body if near else ""
            known[record.event_id] = Known(record.position, record.expires_at, body, None, stored=True)
    return known


class _Placing:
    """The books of one topic while a transaction places drafts in it."""

    def __init__(self, topic_id: int, position: int, known: dict[str, Known]) -> None:
        self.position = position
        self._first = position
        self._topic_id = topic_id
        self._known = known
        self._placed: list[Draft] = []
        self._ids: dict[str, int] = {}
        self._moved: dict[str, int] = {}
        self._back = 0

    def take(self, drafts: Sequence[Draft]) -> Appended:
        """Decide each draft's fate in order."""
        outcomes: list[Outcome] = []
        positions: list[int] = []
        for draft in drafts:
            known = self._known.get(draft.event_id) or self._just_placed(draft.event_id)
            outcome = Outcome.NEW if known is None else _compare(draft, known)
            if known is None or outcome is Outcome.REFRESH:
                positions.append(self._take(draft, known))
            else:
                positions.append(known.position)
            outcomes.append(outcome)
        return Appended(outcomes, positions)

    def _just_placed(self, event_id: str) -> Known | None:
        """What this transaction itself placed under the id."""
        position = self._ids.get(event_id)
        if position is None:
            return None
        draft = self._placed[position - self._first]
        return Known(position, draft.expires_at, draft.body, None, stored=False)

    def _take(self, draft: Draft, known: Known | None) -> int:
        position = self.position
        self._placed.append(draft)
        self.position += 1
        if known is None or not known.stored:
            self._ids.setdefault(draft.event_id, position)
        if known is None:
            return position
        self._moved[draft.event_id] = position
        self._back += known.gone
        self._known[draft.event_id] = Known(position, draft.expires_at, draft.body, None, stored=True)
        return position

    def write(self, conn: sa.Connection, now: int) -> None:
        """Write what was taken."""
        if not self._placed:
            return
        bulk_insert(conn, event_ids, _ID, [(self._topic_id, event_id, at) for event_id, at in self._ids.items()])
        execute_many(
            conn,
            "UPDATE event_ids SET first_position = coalesce(first_position, position), position = ?, digest = NULL,"
            " expires_at = NULL, gone_at = NULL WHERE topic_id = ? AND event_id = ?",
            [(position, self._topic_id, event_id) for event_id, position in self._moved.items()],
        )
        ids = len(self._ids) + self._back
        _store(conn, self._topic_id, self._placed, position=self._first, now=now, ids=ids)


def _compare(draft: Draft, known: Known) -> Outcome:
    if not _same_content(draft, known):
        return Outcome.CONFLICT
    if known.expires_at is not None and (draft.expires_at is None or draft.expires_at > known.expires_at):
        return Outcome.REFRESH
    return Outcome.DUPLICATE


def _same_content(draft: Draft, known: Known) -> bool:
    """Whether both state the same, times aside. The source is a part of the content."""
    if known.body is None:
        return content_digest(draft.body) == known.digest
    return known.body != "" and content_of(draft.body) == content_of(known.body)
