"""Commits the steps of many routers together: fences, room, copies, cursors and counters, in one transaction.

One statement serves all routers wherever possible: a thousand routers of one source cost a few statements, not a few
each. No error of one router fails the transaction: each has its own result.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from eventd.log.core.append import place, write_blocks
from eventd.log.core.blocks import Block, pack
from eventd.log.core.commit import Transaction, Turn
from eventd.log.core.values import NOTHING, AppendResult, Drafts, Outcome
from eventd.log.cursors.dead_letters import DeadLetter, insert_dead_letters
from eventd.log.routers.destinations import RouterDestination, fitting, read_destinations
from eventd.log.routers.router_cursors import lock_cursors, settle_cursors
from eventd.log.routers.source import CopyFailure, CopyPage
from eventd.log.topics.limits import apply_caps, skip_seqs
from eventd.log.topics.write import total_bytes
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import bulk_insert, execute, execute_many
from eventd.store.ids.known import IDS
from eventd.text.plural import counted

FULL = "full"
"""The reason of a waiting router: its destination refuses writes over its limits, or the node or the group is full."""
SELF_CAPTURE = "self_capture"
TOO_LARGE = "too_large"
ID_CONFLICT = "id_conflict"
TRIMMED = "source_trim"

Screen = Callable[[Connection, Drafts, int], Mapping[int, str]]
"""Returns, by index, why some of the events must not enter a group; empty: all may.

Gets the open transaction, the events, and the time."""


class GroupAdmission(NamedTuple):
    """The conditions of a group's topic: its limit of bytes (None: unlimited), and which events it refuses."""

    ceiling: int | None
    screen: Screen


class RouterStep(NamedTuple):
    """One router's step over a page: from `position`, under `version` of its options, to `upto` at most.

    `lost`: how many records were lost before they were copied, by the source or before they reached it; they leave a
    hole in the destination's seqs, or in the case of a group, a dead letter. `admission` is set if the destination is a
    group's topic. `held`: in the last step, there was no room for some of the router's copies. `durable`: its
    destination has the durability `fsync`.
    """

    router: int
    cursor: str
    position: int
    version: int
    source_id: int
    dest_id: int
    upto: int
    upto_seq: int
    copies: CopyPage
    lost: int = 0
    admission: GroupAdmission | None = None
    held: bool = False
    durable: bool = True


class StepResult(NamedTuple):
    """The result of a step: how far the router is in its source, and the numbers of copies and of `refused` originals.

    `held`: why the router has to wait; empty: it need not.
    """

    position: int
    seq: int
    copies: int = 0
    refused: int = 0
    held: str = ""


class CommitSteps:
    """Commit steps of routers. Result: for each a `StepResult`, or None if nothing may be written.

    That is so if the router's stored cursor is no longer at the step's position and version of the options: it was
    moved, changed or deleted meanwhile. `max_bytes`: the limit of all topics of records together; 0: unlimited.
    """

    topic_id = None
    cursor = None
    turn = Turn.BACKGROUND
    is_brief = False

    def __init__(self, moves: Sequence[RouterStep], weight: int, *, max_bytes: int = 0) -> None:
        self._moves = moves
        self._max_bytes = max_bytes
        self.durable = any(move.durable for move in moves)
        self.weight = weight

    def admit(self, tx: Transaction) -> Drafts:
        return NOTHING

    def finish(self, tx: Transaction, appended: AppendResult) -> list[StepResult | None]:
        """Write all steps; by now the drafts of all other units have their positions."""
        found = lock_cursors(tx.conn, [move.cursor for move in self._moves])
        here = [found.get(move.cursor) == (move.position, move.version) for move in self._moves]
        going = [move for move, is_here in zip(self._moves, here, strict=True) if is_here]
        done = iter(_move(tx, going, self._max_bytes))
        return [next(done) if is_here else None for is_here in here]


def _move(tx: Transaction, moves: Sequence[RouterStep], max_bytes: int) -> list[StepResult]:
    if not moves:
        return []
    for move in moves:
        if move.lost:
            _note_lost(tx, move)
    dests = read_destinations(tx, [move.dest_id for move in moves])
    writing = _Pass(tx, max_bytes - total_bytes(tx) if max_bytes else None)
    done = [writing.take(move, dests[move.dest_id]) for move in moves]
    writing.write(dests.values())
    _settle(tx, moves, done)
    return done


def _note_lost(tx: Transaction, move: RouterStep) -> None:
    """Record that copies of lost records will never come: as a hole in the seqs of the destination.

    A group's topic has no holes: there, the router gets one dead letter instead.
    """
    if move.admission is None:
        skip_seqs(tx.conn, move.dest_id, move.lost)
        return
    lost = counted(move.lost, "record was", "records were")
    detail = f"{lost} lost before {'it was' if move.lost == 1 else 'they were'} copied"
    _insert_dead_letters(tx, move, [CopyFailure(move.position, "", TRIMMED, detail)])


def _insert_dead_letters(tx: Transaction, move: RouterStep, failures: Iterable[CopyFailure]) -> None:
    letters = [
        DeadLetter(move.cursor, one.position, move.source_id, one.id, one.reason, one.detail, 1, tx.now)
        for one in failures
    ]
    insert_dead_letters(tx.conn, letters)


class _Pass:
    """Writes the steps of one transaction. `left`: bytes by which the topics of records may grow; None: unlimited."""

    def __init__(self, tx: Transaction, left: int | None) -> None:
        self._tx = tx
        self._left = left
        self._blocks: list[Block] = []
        self._ids: list[tuple[int, str, int]] = []

    def take(self, move: RouterStep, dest: RouterDestination) -> StepResult:
        """Decide which copies of a step the destination takes, and add them; return the step's result."""
        if not move.copies and not move.copies.failures:
            return StepResult(move.upto, move.upto_seq)
        return self._into_topic(move, dest) if move.admission is None else self._into_group(move, move.admission, dest)

    def _into_topic(self, move: RouterStep, dest: RouterDestination) -> StepResult:
        copies, sizes = move.copies, move.copies.sizes
        if copies.template is not None and dest.takes_all and self._left is None and not copies.keeps:
            position, seq = self._tx.next_position, dest.line.next_seq + dest.records
            placed = copies.template._replace(
                position=position, topic_id=dest.line.id, seq=seq, recorded_at=dest.written_at(self._tx.now)
            )
            self._put([placed], dest)
            return StepResult(move.upto, move.upto_seq, len(copies))
        has = dest.find_repeats(self._tx.conn, copies) if copies.keeps else frozenset()
        wanted = [index for index in range(len(copies)) if index not in has] if has else [*range(len(copies))]
        most = dest.most_bytes
        large = [] if most is None else [index for index in wanted if sizes[index] > most]
        wanted = [index for index in wanted if index not in large] if large else wanted
        wanted_sizes = [sizes[index] for index in wanted]
        room = min(dest.room(wanted_sizes), fitting(wanted_sizes, self._left))
        end = wanted[room] if room < len(wanted) else None
        self._add(_some(copies.drafts, wanted[:room]), dest)
        detail = f"larger than the destination's limit of {most} bytes"
        failures = [
            CopyFailure(copies.positions[index], "", TOO_LARGE, f"{sizes[index]} bytes of data and meta are {detail}")
            for index in large
            if end is None or index < end
        ]
        return self._end_step(move, end, room, failures)

    def _add(self, drafts: Drafts, dest: RouterDestination) -> None:
        if not drafts:
            return
        topic_id, position = dest.line.id, self._tx.next_position
        seq = dest.line.next_seq + dest.records
        now = dest.written_at(self._tx.now)
        self._put([*pack(drafts, topic_id=topic_id, position=position, seq=seq, now=now)], dest)
        self._ids += [(topic_id, event_id, at) for at, event_id in enumerate(drafts.event_ids, position)]
        dest.ids.update(drafts.event_ids)

    def _put(self, made: Sequence[Block], dest: RouterDestination) -> None:
        self._tx.blocks += made
        self._blocks += made
        dest.records += sum([block.records for block in made])
        size = sum([block.bytes for block in made])
        dest.bytes += size
        self._tx.record_bytes += size
        self._left = None if self._left is None else self._left - size

    def _into_group(self, move: RouterStep, admission: GroupAdmission, dest: RouterDestination) -> StepResult:
        tx, copies = self._tx, move.copies
        has = dest.find_repeats(tx.conn, copies) if copies.keeps else frozenset()
        screened = admission.screen(tx.conn, copies.drafts, tx.now)
        barred = {index: why for index, why in screened.items() if index not in has}
        wanted = [index for index in range(len(copies)) if index not in barred and index not in has]
        left = None if admission.ceiling is None else admission.ceiling - dest.line.bytes - dest.bytes
        room = fitting([copies.sizes[index] for index in wanted], left)
        end = wanted[room] if room < len(wanted) else None
        unfit = dest.find_unfit(tx.conn, copies)
        failures = [one for one in unfit if end is None or one.position < copies.positions[end]]
        ids = copies.drafts.event_ids
        failures += [
            CopyFailure(copies.positions[index], ids[index], SELF_CAPTURE, why)
            for index, why in barred.items()
            if end is None or index < end
        ]
        count = 0
        if room:
            drafts = _some(copies.drafts, wanted[:room])
            placed = place(tx.conn, move.dest_id, [drafts], next_position=tx.next_position, now=tx.now)
            tx.blocks += placed.blocks
            dest.bytes += sum(block.bytes for block in placed.blocks)
            outcomes = placed.results[0].outcomes
            taken = [index for index, outcome in zip(wanted, outcomes, strict=False) if outcome is Outcome.CONFLICT]
            failures += [
                CopyFailure(copies.positions[at], ids[at], ID_CONFLICT, "another event has the id") for at in taken
            ]
            count = sum(outcome in (Outcome.NEW, Outcome.REFRESH) for outcome in outcomes)
        return self._end_step(move, end, count, failures)

    def _end_step(self, move: RouterStep, end: int | None, count: int, failures: Sequence[CopyFailure]) -> StepResult:
        """Store the failures as dead letters, and return the step's result.

        The step ends before the copy with the index `end`, which does not fit; None: the step is complete.
        """
        _insert_dead_letters(self._tx, move, failures)
        if end is None:
            return StepResult(move.upto, move.upto_seq, count, len(failures))
        return StepResult(move.copies.positions[end] - 1, move.copies.seqs[end] - 1, count, len(failures), FULL)

    def write(self, dests: Iterable[RouterDestination]) -> None:
        """Write the blocks and ids of copies for topics of records and the rows of these topics; apply their caps."""
        conn, now = self._tx.conn, self._tx.now
        write_blocks(conn, self._blocks)
        bulk_insert(conn, "event_ids", IDS, self._ids)
        grown = [dest for dest in dests if dest.records]
        execute_many(
            conn,
            "UPDATE topics SET next_seq = next_seq + ?, bytes = bytes + ?, ids = ids + ?, written_at = ?,"
            " due_at = coalesce(due_at, ?) WHERE id = ?",
            [(dest.records, dest.bytes, len(dest.ids), *dest.times(now), dest.line.id) for dest in grown],
        )
        for dest in grown:
            if dest.is_over:
                apply_caps(conn, dest.line.id, now)


def _some(drafts: Drafts, indexes: Sequence[int]) -> Drafts:
    """Return the drafts with these indexes, in order; `drafts` itself if these are all of them."""
    if len(indexes) == len(drafts):
        return drafts
    return replace(
        drafts,
        event_ids=[drafts.event_ids[index] for index in indexes] if drafts.event_ids else (),
        paths=[drafts.paths[index] for index in indexes],
        bodies=[drafts.bodies[index] for index in indexes],
        sizes=[drafts.sizes[index] for index in indexes] if drafts.sizes else (),
    )


def _settle(tx: Transaction, moves: Sequence[RouterStep], done: Sequence[StepResult]) -> None:
    """Update cursors and counters, equal changes together."""
    cursors: defaultdict[tuple[int, str], list[str]] = defaultdict(list)
    counters: defaultdict[tuple[int, int, int], list[int]] = defaultdict(list)
    for move, moved in zip(moves, done, strict=True):
        if move.held and moved.held and moved.position == move.position and not (moved.refused or move.lost):
            continue  # a retry that changes nothing writes nothing
        cursors[moved.position, moved.held].append(move.cursor)
        counters[moved.seq, moved.copies + move.lost, moved.refused].append(move.router)
    for (position, held), names in cursors.items():
        settle_cursors(tx, names, position, held)
    for (seq, forwarded, refused), ids in counters.items():
        marks = ", ".join("?" * len(ids))
        sql = f"UPDATE routers SET seq = ?, forwarded = forwarded + ?, refused = refused + ? WHERE id IN ({marks})"
        execute(tx.conn, sql, (seq, forwarded, refused, *ids))
