"""Appends drafts to the log: finds the new ones and assigns positions and seqs. The head must be locked.

Most drafts of events are new, so that is tried first: their ids are inserted, and the table's primary key shows
whether one was known. If so, the transaction restarts and reads the known ids. Then only new events and refreshes get
positions and seqs, so that neither has holes; an id that occurs twice in a transaction counts as known at its second
place. A conflict of primary keys at the second insert is a bug.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, groupby
from typing import NamedTuple

from eventd.log.core.blocks import Block, pack
from eventd.log.core.id_conflicts import IdConflict, Origin, note_conflicts
from eventd.log.core.scan import blocks_at, pick_readable
from eventd.log.core.values import NEVER, AppendResult, Drafts, LeafRun, Outcome
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import bulk_insert, execute_many, fetch, fetch_in
from eventd.store.ids.known import IDS, make_rows, read_ids_of, store_ids
from federation.digest import digest
from federation.event import content_digest, content_of, expiry_micros, read_outlines
from federation.lines import size_of

_TIMES_DIFFER = 14
"""By how many characters the sizes of two otherwise equal events can differ: each of their two times may have a
fraction of a second."""


class KnownId(NamedTuple):
    """A known event id, with the position and expiry of its latest record.

    `body` is the record's body. It is empty if the sizes show that no draft with this id can equal the record, and
    None if the record is not stored. If retention removed the record, `digest` is the digest of its content. The
    record is lost if both are None.
    """

    position: int
    expires_at: int | None
    body: str | None
    digest: bytes | None
    origin: Origin | None = None

    @property
    def gone(self) -> bool:
        """Return whether retention has removed the record."""
        return self.body is None and self.digest is not None

    def named_origin(self) -> Origin | None:
        """Return the origin of the record, with the digest that names its event; None if it is removed."""
        if self.origin is None or self.origin.digest or not self.body:
            return self.origin
        return self.origin._replace(digest=digest(self.body))

    @property
    def lost(self) -> bool:
        """Return whether the id is known but its record is missing: the database was damaged, or changed by hand."""
        return self.body is None and self.digest is None


class Placement(NamedTuple):
    """The result of appending units to a topic: the result of each unit, the next free position, and the written
    blocks."""

    results: list[AppendResult]
    next_position: int
    blocks: list[Block]
    wrote_run: bool = False


def place_new(conn: Connection, topic_id: int, units: Sequence[Drafts], *, next_position: int, now: int) -> Placement:
    """Append the drafts of several units, which should all be new, to one topic.

    Raises `KeyTaken` if a draft is not new; the transaction must then restart and call `place`.
    """
    results: list[AppendResult] = []
    position = next_position
    for unit in units:
        results.append(AppendResult([Outcome.NEW] * len(unit), range(position, position + len(unit))))
        position += len(unit)
    ids = units[0].event_ids if len(units) == 1 else [*chain.from_iterable(unit.event_ids for unit in units)]
    wrote_run = store_ids(conn, topic_id, ids, range(next_position, position))
    made = _store(conn, topic_id, units, position=next_position, now=now, ids=position - next_position)
    return Placement([*_with_runs(results, made)], position, made, wrote_run)


def place(conn: Connection, topic_id: int, units: Sequence[Drafts], *, next_position: int, now: int) -> Placement:
    """Append the new events and refreshes among the drafts of several units to a topic, and store id conflicts."""
    candidates = [_candidates(unit) for unit in units]
    known = read_known(conn, topic_id, [*chain.from_iterable(candidates)])
    placing = _Placer(topic_id, next_position, known)
    appended = [placing.take(unit, each) for unit, each in zip(units, candidates, strict=True)]
    made = placing.write(conn, now)
    named = _name_owners(conn, topic_id, appended, placing.conflicts, now)
    return Placement([*_with_runs(named, made)], placing.position, made, placing.wrote_run)


def _with_runs(results: Iterable[AppendResult], made: Sequence[Block]) -> Iterator[AppendResult]:
    """Yield the results with the leaves of the written blocks."""
    found = [(block, block.tree, block.leaf) for block in made]
    runs = tuple(
        LeafRun(block.position, block.records, tree, leaf)
        for block, tree, leaf in found
        if tree is not None and leaf is not None
    )
    for result in results:
        yield result._replace(leaves=runs) if runs else result


def _name_owners(
    conn: Connection, topic_id: int, appended: Sequence[AppendResult], conflicts: Sequence[IdConflict], now: int
) -> Iterator[AppendResult]:
    """Store the id conflicts of all units, and yield the units' results with the owner of each id in conflict."""
    owners = iter(note_conflicts(conn, topic_id, conflicts, now) if conflicts else ())
    for unit in appended:
        at = [index for index, outcome in enumerate(unit.outcomes) if outcome is Outcome.CONFLICT] if conflicts else []
        yield unit._replace(owners=dict(zip(at, owners, strict=False))) if at else unit


class Candidate(NamedTuple):
    """A draft of an event whose id may be known, with the expiry and the source that its body names."""

    event_id: str
    path: str
    body: str
    expires_at: int | None
    source: str


def _candidates(unit: Drafts) -> list[Candidate]:
    outlines = read_outlines(unit.bodies)
    sources = [outline.source_node for outline in outlines]
    return [*map(Candidate, unit.event_ids, unit.paths, unit.bodies, map(expiry_micros, outlines), sources)]


_GROW = (
    "UPDATE topics SET next_seq = next_seq + ?, bytes = bytes + ?, ids = ids + ?, next_leaf = next_leaf + ?,"
    " written_at = CASE WHEN written_at > ? THEN written_at ELSE ? END WHERE id = ?"
    " RETURNING next_seq, written_at, tree, next_leaf"
)


def _store(
    conn: Connection, topic_id: int, units: Sequence[Drafts], *, position: int, now: int, ids: int
) -> list[Block]:
    """Insert new drafts as blocks, update the topic's row, and return the blocks. The caller has inserted any ids.

    `position` is that of the first draft; `ids` is by how much the number of the topic's ids with a record grows.
    """
    made: list[Block] = []
    first = position
    kinds = (part for unit in units for part in unit.of_one_kind())
    for _, alike in groupby(kinds, lambda part: part.own):
        drafts = Drafts.joined([*alike])
        made += pack(drafts, topic_id=topic_id, position=position, seq=position - first, now=now)
        position += len(drafts)
    # Times of records never decrease; an event has the time of its transaction.
    latest = now if units[0].of_records else NEVER
    size, grown = sum(block.bytes for block in made), position - first
    own = 0 if units[0].of_records else sum(block.records for block in made if block.own)
    next_seq, written, tree, next_leaf = fetch(conn, _GROW, (grown, size, ids, own, latest, now, topic_id))[0]
    made = [block._replace(seq=block.seq + next_seq - grown, recorded_at=written) for block in made]
    if tree is not None and own:
        made = [*_with_leaves(made, tree, next_leaf - own)]
    write_blocks(conn, made)
    return made


def _with_leaves(made: Sequence[Block], tree: int, leaf: int) -> Iterator[Block]:
    """Yield all blocks; those of records that entered the log at this node get the tree, and leaves from `leaf` on."""
    for block in made:
        yield block._replace(tree=tree, leaf=leaf) if block.own else block
        leaf += block.records if block.own else 0


def write_blocks(conn: Connection, made: Sequence[Block]) -> None:
    """Insert blocks: the only function that adds rows to their table."""
    bulk_insert(conn, "blocks", Block._fields, made)


def place_records(
    conn: Connection, topic_id: int, units: Sequence[Drafts], *, next_position: int, now: int
) -> Placement:
    """Append the records of several units to a topic, except routers' copies with a record id that the topic has."""
    known = _known_copies(conn, topic_id, [*chain.from_iterable(unit.event_ids for unit in units)])
    results: list[AppendResult] = []
    parts: list[Drafts] = []
    ids: list[tuple[int, str, int]] = []
    position = next_position
    for unit in units:
        result, part = _take_copies(unit, known, position) if unit.event_ids else (None, unit)
        if result is None:
            result = AppendResult([Outcome.NEW] * len(unit), range(position, position + len(unit)))
        ids += [(topic_id, event_id, at) for at, event_id in enumerate(part.event_ids, position)]
        position += len(part)
        results.append(result)
        parts += [part] if len(part) else []
    if not parts:
        return Placement(results, position, [])
    bulk_insert(conn, "event_ids", IDS, ids)
    made = _store(conn, topic_id, parts, position=next_position, now=now, ids=len(ids))
    shift = made[0].seq - made[0].position
    return Placement([result._replace(shift=shift) for result in results], position, made)


def _known_copies(conn: Connection, topic_id: int, ids: Sequence[str]) -> dict[str, int]:
    sql = "SELECT event_id, position FROM event_ids WHERE topic_id = ? AND event_id {in}"
    return dict(fetch_in(conn, sql, (topic_id,), ids)) if ids else {}


def _take_copies(unit: Drafts, known: dict[str, int], position: int) -> tuple[AppendResult, Drafts]:
    """Return the result for routers' copies that keep record ids, and those copies whose ids are not in `known`.

    The latter get positions from `position` on, and their ids are added to `known`.
    """
    outcomes: list[Outcome] = []
    positions: list[int] = []
    new: list[int] = []
    for index, event_id in enumerate(unit.event_ids):
        before = known.get(event_id)
        if before is None:
            before = known[event_id] = position + len(new)
            new.append(index)
            outcomes.append(Outcome.NEW)
        else:
            outcomes.append(Outcome.DUPLICATE)
        positions.append(before)
    part = replace(
        unit,
        event_ids=[unit.event_ids[index] for index in new],
        paths=[unit.paths[index] for index in new],
        bodies=[unit.bodies[index] for index in new],
        sizes=[unit.sizes[index] for index in new],
    )
    return AppendResult(outcomes, positions), part


def read_known(conn: Connection, topic_id: int, drafts: Sequence[Candidate]) -> dict[str, KnownId]:
    """Return a `KnownId` for each event id of the drafts that the topic has already, by event id."""
    found = read_ids_of(conn, topic_id, [draft.event_id for draft in drafts])
    sizes: dict[str, list[int]] = {}
    for draft in drafts:
        sizes.setdefault(draft.event_id, []).append(size_of(draft.body))
    known = {event_id: KnownId(row.position, row.expires_at, None, row.digest) for event_id, row in found.items()}
    for block, places in blocks_at(conn, [row.position for row in found.values() if row.gone_at is None]):
        for record in pick_readable(block, places):
            before = known.get(record.event_id)
            if before is None or before.position != record.position or record.topic_id != topic_id:
                continue  # the block belongs to another topic or was changed by hand: the record of this id is lost
            # Only contents that a draft could equal are loaded: small drafts under the ids of large events must not
            # fill memory.
            near = any(abs(record.size - size) <= _TIMES_DIFFER for size in sizes[record.event_id])
            # One that no draft equals is in conflict with each: its digest stands for its content.
            body, mark = (record.body, b"") if near else ("", digest(record.body))
            origin = Origin(record.node, record.path, record.recorded_at, digest=mark)
            known[record.event_id] = KnownId(record.position, record.expires_at, body, None, origin)
    return known


class _Placer:
    """Decides which drafts of one transaction enter one topic, at which positions, and writes them."""

    def __init__(self, topic_id: int, position: int, known: dict[str, KnownId]) -> None:
        self.position = position
        self._first = position
        self._topic_id = topic_id
        self._known = known
        self._units: list[Drafts] = []
        self._ids: dict[str, int] = {}
        self._moved: dict[str, int] = {}
        self._replaced: dict[str, int] = {}
        self._back = 0
        self.conflicts: list[IdConflict] = []
        self.wrote_run = False

    def take(self, unit: Drafts, candidates: Sequence[Candidate]) -> AppendResult:
        """Decide and return the outcome and the position of each draft of a unit, in order."""
        outcomes: list[Outcome] = []
        positions: list[int] = []
        taken: list[Candidate] = []
        for draft in candidates:
            known = self._known.get(draft.event_id)
            outcome = Outcome.NEW if known is None or known.lost else _compare(draft, known)
            if known is None or outcome in (Outcome.NEW, Outcome.REFRESH):
                taken.append(draft)
                positions.append(self._take(draft, known, unit.key_id))
            else:
                positions.append(known.position)
            if known is not None and outcome is Outcome.CONFLICT:
                self.conflicts.append(IdConflict(draft.event_id, known.named_origin(), draft.source, unit.key_id))
            outcomes.append(outcome)
        if taken:
            ids, paths, bodies, _, _ = zip(*taken, strict=True)
            self._units.append(replace(unit, event_ids=ids, paths=paths, bodies=bodies))
        return AppendResult(outcomes, positions)

    def _take(self, draft: Candidate, known: KnownId | None, key_id: str) -> int:
        position = self.position
        self.position += 1
        if known is None:
            self._ids[draft.event_id] = position
        elif known.lost:
            self._replaced[draft.event_id] = position
        else:
            self._moved[draft.event_id] = position
            self._back += known.gone
        origin = Origin(draft.source, draft.path, 0, key_id)
        self._known[draft.event_id] = KnownId(position, draft.expires_at, draft.body, None, origin)
        return position

    def write(self, conn: Connection, now: int) -> list[Block]:
        """Insert the new events and refreshes of all units taken; return their blocks."""
        if not self._units:
            return []
        if self._ids:
            self.wrote_run = store_ids(conn, self._topic_id, [*self._ids], [*self._ids.values()])
        make_rows(conn, self._topic_id, [*self._moved, *self._replaced])
        execute_many(
            conn,
            "UPDATE event_ids SET first_position = coalesce(first_position, position), position = ?, digest = NULL,"
            " expires_at = NULL, gone_at = NULL WHERE topic_id = ? AND event_id = ?",
            [(position, self._topic_id, event_id) for event_id, position in self._moved.items()],
        )
        execute_many(
            conn,
            "UPDATE event_ids SET position = ? WHERE topic_id = ? AND event_id = ?",
            [(position, self._topic_id, event_id) for event_id, position in self._replaced.items()],
        )
        ids = len(self._ids) + self._back
        return _store(conn, self._topic_id, self._units, position=self._first, now=now, ids=ids)


def _compare(draft: Candidate, known: KnownId) -> Outcome:
    if not _same_content(draft, known):
        return Outcome.CONFLICT
    if known.expires_at is not None and (draft.expires_at is None or draft.expires_at > known.expires_at):
        return Outcome.REFRESH
    return Outcome.DUPLICATE


def _same_content(draft: Candidate, known: KnownId) -> bool:
    """Return whether the draft and the known record are equal except for the times of observation and expiry."""
    if known.body is None:
        return content_digest(draft.body) == known.digest
    return known.body != "" and content_of(draft.body) == content_of(known.body)
