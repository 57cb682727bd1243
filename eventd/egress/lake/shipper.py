"""The work of the shipping process, one step at a time; each step leaves a valid lake.

A round begins with a snapshot of the node: everything recorded before it is shipped in the round, ledger by ledger. At
its end the node's state as of its beginning is written, so the state never lists more than the lake contains.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from eventd.egress.lake.archive_signer import ArchiveSigner
from eventd.egress.lake.coverage import LakeCoverage, read_coverage, read_lost, read_states
from eventd.egress.lake.node_state import describe, segments_of, with_floors
from eventd.egress.lake.protocol import (
    SEGMENTS,
    Answer,
    CursorsMissing,
    Failure,
    RoundEnd,
    Shipment,
    ShippedCheckpoints,
    ShipRequest,
    Terms,
    TidyResult,
    cursor_name,
)
from eventd.egress.lake.shipped_checkpoints import read_shipped_checkpoints
from eventd.egress.lake.shipped_rows import ShippedRows
from eventd.egress.lake.signed_files import signed_files
from eventd.egress.lake.state_signer import StateSigner
from eventd.errors import EventdError, LakeUnusable, MissingExtra, Unavailable
from eventd.lake.compaction import compacting
from eventd.lake.extract import LedgerSnapshot, Memory, read_floors, read_state
from eventd.lake.extract.history import read_open_trees
from eventd.lake.layout import LedgerKey, landing
from eventd.lake.ledger_files import Done
from eventd.lake.manifest import NodeState, SegmentRange
from eventd.lake.retention import retaining
from eventd.lake.schema import OWN_TIME, Ledger
from eventd.lake.storage import Storage, connect, make_lake
from eventd.lake.writer import TooLargeSegment, has_leaves, write_segment
from eventd.log.core.head import read_head
from eventd.log.cursors.cursors import Cursor, read_cursors
from eventd.runtime.clock import SECOND
from eventd.store.engine.database import Connection, Database
from eventd.witnessing.node_keys import read_history_keys

if TYPE_CHECKING:
    import pyarrow as pa

STATE_SECONDS: Final = 60
"""Seconds after which a node's state is written again, even if it has not changed, and during a long round."""
SETTLING: Final = 10 * SECOND
"""Events recorded at least this many microseconds before a round are assumed to be committed: an event gets its time
slightly before its commit."""
_ORDER: Final = (Ledger.GAPS, *(book for book in Ledger if book is not Ledger.GAPS))
"""The order of the ledgers in a round: `gaps` first, so that lost rows are in that ledger before any state lists them
as shipped."""


class AheadOfLog(LakeUnusable):
    """The lake has events of this epoch beyond the end of the log: the database is an older copy."""


class _StepSnapshot(NamedTuple):
    """The log's epoch and the cursors of all ledgers, by name, in one snapshot at the beginning of a step.

    `floors`: by group, the seq up to which its events were evicted.
    """

    epoch: str
    cursors: Mapping[str, Cursor]
    floors: Mapping[str, int]


@dataclass
class _Round:
    """One round: the state and the time at its beginning, the ledgers still to ship, the nodes that got a segment.

    `lossy`: the nodes that have added losses to `gaps` in this round.
    """

    state: LedgerSnapshot
    began: int
    books: list[tuple[str, Ledger]]
    shipped: set[str] = field(default_factory=set)
    lossy: set[str] = field(default_factory=set)


class Shipper:
    """Ships the ledgers of one database to one lake. For one thread."""

    def __init__(self, terms: Terms, database: Database) -> None:
        self._terms = terms
        self._database = database
        self._memory = Memory()
        self._state_written_at: dict[str, int] = {}
        self._showed = False
        self._held: Mapping[str, Sequence[int]] = {}
        self._cosigned: Mapping[str, str] = {}
        self._forget()

    def _forget(self) -> None:
        """Drop the round and all knowledge of the lake, so that both are read again: after a failure, and at the
        start."""
        self._storage: Storage | None = None
        self._lake = ""
        self._coverage: LakeCoverage | None = None
        self._round: _Round | None = None
        self._tidying: Iterator[Done] | None = None
        self._files: StateSigner | None = None
        self._verified = set[str]()

    def answer(self, request: ShipRequest) -> Answer:
        """Take the next step of a round, with what witnesses have said of the files since."""
        self._held, self._cosigned = request.held, request.cosigned
        return self.step(request.now)

    def step(self, now: int) -> Answer:
        """Take the next step of a round. An `EventdError` is returned as a `Failure`, and ends the round."""
        try:
            return self._step(now)
        except EventdError as error:
            self._forget()
            return _failed(error)

    def tidy(self, now: int) -> Answer:
        """Expire, delete or compact a few segments, one step per call; do nothing before the lake was read.

        An `EventdError` is returned as a `Failure`.
        """
        if self._storage is None or self._coverage is None:
            return TidyResult()
        if self._tidying is None:
            self._tidying = self._pieces(self._storage, list(self._coverage.states), now)
        try:
            done = next(self._tidying, None)
        except EventdError as error:
            self._tidying = None
            return _failed(error)
        if done is None:
            self._tidying = None
            return TidyResult()
        return TidyResult(compacted=done.compacted, removed=done.removed, more=True)

    def _pieces(self, storage: Storage, nodes: list[str], now: int) -> Iterator[Done]:
        archives = ArchiveSigner(storage, self._signer, self._known, self._verified)
        if keep := self._terms.retention:
            yield from retaining(storage, nodes, now=now, keep=keep)
        if after := self._terms.compact_after:
            yield from compacting(storage, nodes, now=now, after=after, signing=archives)
        for _ in archives.verify(nodes):
            yield Done()

    def _step(self, now: int) -> Answer:
        look = self._database.read_now(_read_snapshot)
        if self._round is None or self._round.state.epoch != look.epoch:
            state = self._database.read_now(read_state)
            self._round = _Round(state, now, [(node, book) for node in state.nodes for book in _ORDER])
            if self._coverage is not None and self._coverage.epoch != state.epoch:
                self._coverage = None
                self._tidying = None  # it signs in the epoch that it began in
            if state.epoch != look.epoch:
                return self._step(now)  # the state was rewritten meanwhile
        enrol = self._reach_lake(self._round.state, look, now)
        return enrol or self._advance(self._round, look, now)

    def _reach_lake(
        self, state: LedgerSnapshot, look: _StepSnapshot, now: int
    ) -> CursorsMissing | ShippedCheckpoints | None:
        """Read the lake, or make it, if that is not done yet; return None if every ledger has a cursor for this lake.

        Otherwise return the request to create them, before the lake is read if a ledger has no cursor at all. At first,
        return what the lake has of the node's trees.
        """
        names = [cursor_name(node, book) for node in state.nodes for book in Ledger]
        if any(name not in look.cursors for name in names):
            # Before the lake is read, because the settings explain what is wrong with it.
            return CursorsMissing(nodes=tuple(state.nodes), lake="")
        if self._storage is None:
            storage = connect(self._terms.lake)
            self._lake = make_lake(storage, now, self._database.chance).id
            self._storage = storage
            kept = signed_files(state.nodes, look.cursors, self._lake)
            self._files = StateSigner(
                storage, Path(self._terms.keys), self._database.chance, self._terms.retention, kept
            )
        if not self._showed:  # before the lake is compared with the log: these checkpoints show an older copy, too
            trees = self._database.read_now(read_open_trees)
            notes = self._shipped_checkpoints(self._storage, state, trees.values()) if trees else []
            self._showed = True
            return ShippedCheckpoints(notes=tuple(notes))
        if self._coverage is None or not {*state.nodes} <= {*self._coverage.states}:
            self._coverage = self._read_coverage(self._storage, state, now)
        if any(look.cursors[name].selection.get("lake") != self._lake for name in names):
            return CursorsMissing(nodes=tuple(state.nodes), lake=self._lake)
        return None

    def _shipped_checkpoints(self, storage: Storage, state: LedgerSnapshot, trees: Collection[str]) -> list[str]:
        keys = read_history_keys(Path(self._terms.keys)) if self._terms.keys else None
        public = None if keys is None else keys.log.public_key().public_bytes_raw()
        return read_shipped_checkpoints(storage, state.nodes, state.epoch, trees, public)

    def _read_coverage(self, storage: Storage, state: LedgerSnapshot, now: int) -> LakeCoverage:
        coverage = read_coverage(storage, state.nodes, state.epoch)
        for node in state.nodes:
            reach = coverage.reaches.get(LedgerKey(node, state.epoch, Ledger.EVENTS))
            if reach is not None and reach.upto > state.head:
                raise AheadOfLog(
                    f"the lake at {storage.url} has this log up to position {reach.upto}, "
                    f"and the log ends at {state.head}",
                    hint="the database is an older copy: stop the node and run `routerd-eventd migrate --new-epoch`",
                )
            before = coverage.states.get(node)
            if before is None or self._signer.is_changed(before):  # every segment has a state, which the node wrote
                first = self._first_state(state, node, coverage, now)
                if before is not None:
                    coverage.states[node] = replace(first, tree=before.tree)
                coverage.states[node] = self._signer.write(first, coverage)
        return coverage

    def _first_state(self, state: LedgerSnapshot, node: str, coverage: LakeCoverage, now: int) -> NodeState:
        interval = self._terms.interval
        return describe(state, node, coverage, None, {}, began_at=now, as_of=now, complete_until=0, interval=interval)

    # --- a round ----------------------------------------------------------------------------------------------

    def _advance(self, round_: _Round, look: _StepSnapshot, now: int) -> Answer:
        while round_.books:
            node, book = round_.books[0]
            cursor = look.cursors[cursor_name(node, book)]
            moved = self._adopt(round_.state.epoch, node, book, cursor.position)
            losses_due = book is Ledger.GAPS and node in round_.lossy
            if moved is None and (losses_due or cursor.position < round_.state.books[book].last):
                moved = self._ship(round_.state.epoch, node, book, cursor.position, now)
            if moved is not None and moved.upto > cursor.position:
                if moved.lost:  # the node adds them to `gaps` when it moves the cursor
                    round_.lossy.add(node)
                    round_.books.insert(0, (node, Ledger.GAPS))
                self._write_interim_state(node, look, now)
                return moved
            round_.books.pop(0)  # the ledger is shipped as far as the round goes, or as far as possible
        until = round_.began - SETTLING
        for node in round_.state.nodes:
            self._write_state(round_, node, look, until, now)
        self._round = None
        offered = self._signer.offers(self._known, self._held)
        return RoundEnd(complete_until=until, files=self._signer.files(self._known), offered=offered)

    def _adopt(self, epoch: str, node: str, book: Ledger, position: int) -> Shipment | None:
        """Return a shipment that moves the cursor over segments already in the lake; None if none is beyond it.

        The losses that were found when their rows were read may not be declared yet.
        """
        ledger = LedgerKey(node, epoch, book)
        reach = self._known.reaches.get(ledger)
        if reach is None or reach.upto <= position:
            return None
        lost = read_lost(self._at, ledger, position)
        return Shipment(node=node, book=book, position=position, upto=reach.upto, adopted=True, lost=lost)

    def _ship(self, epoch: str, node: str, book: Ledger, position: int, now: int) -> Shipment:
        """Ship the next segment of a ledger.

        As long as the segment is too large for the memory of its readers, halve the number of its rows.
        """
        most = self._terms.rows
        while True:
            terms = replace(self._terms, rows=most)
            rows = ShippedRows(self._database, terms, self._memory, epoch, node, book, position)
            tables = [*rows]
            try:
                return self._write_segment(rows, tables, LedgerKey(node, epoch, book), position, now)
            except TooLargeSegment:
                most = min(most, sum(table.num_rows for table in tables)) // 2
                if not most:  # one event, or one batch of deliveries, always fits
                    raise
                tables.clear()

    def _write_segment(
        self, rows: ShippedRows, tables: Sequence[pa.Table], kept: LedgerKey, position: int, now: int
    ) -> Shipment:
        """Write the rows that were read to one segment, if there are any. Raises TooLargeSegment."""
        book, node, lost = kept.book, kept.node, tuple(rows.lost)
        if not tables:
            return Shipment(node=node, book=book, position=position, upto=rows.upto, lost=lost)
        reach = self._known.reaches.get(kept)
        after = position if reach is None else reach.upto
        at = tables[0][OWN_TIME[book]][0].value
        place = landing(book, node, kept.epoch, after, rows.upto, at=at)
        segment = write_segment(
            self._at,
            place,
            tables,
            node=node,
            now=now,
            payloads=self._terms.payloads,
            leaves=book is Ledger.EVENTS and any(map(has_leaves, tables)),
            lost=lost,
            announce=lambda text: self._signer.shipped(place.name, node, text, self._known),
        )
        self._known.note(kept, after, rows.upto)
        if self._round is not None:
            self._round.shipped.add(node)
        return Shipment(
            node=node,
            book=book,
            position=position,
            upto=rows.upto,
            rows=segment.manifest.rows,
            bytes=segment.manifest.bytes,
            lost=lost,
        )

    # --- the states of the nodes --------------------------------------------------------------------------------

    def _write_state(self, round_: _Round, node: str, look: _StepSnapshot, until: int, now: int) -> None:
        """Write the node's state of the round if it got a segment, if groups changed, or after `STATE_SECONDS`."""
        before = self._known.states[node]
        state = describe(
            round_.state,
            node,
            self._known,
            _positions(look, node),
            look.floors,
            began_at=before.began_at,
            as_of=now,
            complete_until=until,
            payloads=self._terms.payloads,
            interval=self._terms.interval,
        )
        if node in round_.shipped or state.groups != before.groups or self._is_time(node, now):
            self._write(state, now)

    def _write_interim_state(self, node: str, look: _StepSnapshot, now: int) -> None:
        """Every `STATE_SECONDS` of a long round, write the last state again, with the segments shipped so far."""
        if self._is_time(node, now):
            before = self._known.states[node]
            segments = segments_of(node, self._known)
            books = _positions(look, node)
            groups = with_floors(before.groups, look.floors)
            self._write(
                replace(before, books=books, segments=segments, groups=groups, as_of=now, closed_at=0),
                now,
            )

    def _is_time(self, node: str, now: int) -> bool:
        return abs(now - self._state_written_at.get(node, 0)) >= STATE_SECONDS * SECOND

    def _write(self, state: NodeState, now: int) -> None:
        """Write a state, without segments that the state in the lake no longer lists: retention has expired them."""
        there = read_states(self._at, [state.node], state.epoch).get(state.node)
        if there is not None:
            removed = {book: reach.after for book, reach in there.segments.items()}
            for kept, reach in self._known.reaches.items():
                if kept.node == state.node and (after := removed.get(kept.book, 0)) > reach.after:
                    self._known.reaches[kept] = SegmentRange(after=min(after, reach.upto), upto=reach.upto)
            state = replace(state, segments=segments_of(state.node, self._known))
        self._known.states[state.node] = self._signer.write(state, self._known, self._cosigned.get(state.node, ""))
        self._state_written_at[state.node] = now

    @property
    def _signer(self) -> StateSigner:
        assert self._files is not None
        return self._files

    @property
    def _at(self) -> Storage:
        assert self._storage is not None
        return self._storage

    @property
    def _known(self) -> LakeCoverage:
        assert self._coverage is not None
        return self._coverage


def _positions(look: _StepSnapshot, node: str) -> dict[Ledger, int]:
    return {book: look.cursors[cursor_name(node, book)].position for book in Ledger}


def _read_snapshot(conn: Connection) -> _StepSnapshot:
    cursors = {cursor.name: cursor for cursor in read_cursors(conn, SEGMENTS)}
    return _StepSnapshot(read_head(conn).epoch, cursors, read_floors(conn))


def _failed(error: EventdError) -> Failure:
    kind = "fault"
    if isinstance(error, Unavailable):
        kind = "unavailable"
    elif isinstance(error, LakeUnusable | MissingExtra):
        kind = "blocked"
    return Failure(kind=kind, reason=error.code, message=str(error))
