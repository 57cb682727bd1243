"""One transaction of the writer: the state its units share, the order of writes, and the isolation of failures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

from eventd.errors import EventdError
from eventd.log.core.append import Placement, place, place_new, place_records
from eventd.log.core.blocks import Block, names
from eventd.log.core.head import lock_head, mark_unsynced, move_head, require_whole, touch_head
from eventd.log.core.values import NOTHING, AppendResult, Drafts, Head
from eventd.log.cursors.steps import lock_positions
from eventd.runtime.clock import Moment
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import KeyTaken, begin_anew, in_transaction, notify_head, run_of_system, savepoint
from eventd.store.engine.translation import translate
from federation.errors import MessageError

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

GROUP_RECORDS = 1000
"""Sum of the units' weights from which a transaction takes no further unit, so that the next units do not wait long."""


class TransactionTimes:
    """How long a transaction took in seconds: `append` until all was written, `flush` from then until it was committed.

    `flush` includes a flush after the commit, if results need one. Filled in before the units get their results.
    """

    append = 0.0
    flush = 0.0


class Transaction:
    """What the units of a transaction share. The head is locked, and so are the cursors whose `positions` it holds.

    A unit whose result may only be returned after the flush sets `must_flush`.
    """

    def __init__(
        self, conn: Connection, head: Head, positions: dict[str, int], at: Moment, spent: TransactionTimes
    ) -> None:
        self.conn = conn
        self.head = head
        # The wall clock gives stored times and decides expiry; the steady clock gives stored deadlines.
        self.now, self.steady = at
        self.positions = positions
        self.spent = spent
        self.must_flush = False
        self.shared: dict[Any, Any] = {}  # shared by the units of one kind in this transaction
        self.coming: Counter[int] = Counter()  # drafts of the units admitted so far, by topic id
        self.blocks: list[Block] = []  # the placed drafts; `finish` may place more, from `next_position` on
        self.record_bytes = 0  # bytes of bodies added to topics of records
        self.wrote_run = False  # ids were stored as a sorted run

    @property
    def next_position(self) -> int:
        """Return the next free position, after all drafts that have been placed so far."""
        return self.blocks[-1].last + 1 if self.blocks else self.head.next_position


class Turn(IntEnum):
    """Kinds of units. They take turns, one transaction each, so that no kind waits for all units of another."""

    FRONT = 0
    """A unit that a client waits for, and that is written quickly."""
    BULK = 1
    """A batch that fills a transaction."""
    BACKGROUND = 2
    """Work of the node itself, which no client waits for."""


class Unit(Protocol[R_co]):
    """Interface of a unit of work that is written completely or not at all, in a transaction shared with others.

    `admit` runs before anything is placed and returns the drafts to append. An `EventdError` or a `MessageError`
    raised there leaves this unit out, provided that it has written nothing yet. `finish` runs when the drafts have
    their positions. Any other error undoes the whole transaction, and its units are tried again: all together if the
    only problem was an id that is already known, else one by one, each in its own savepoint.

    The results of a transaction without `durable` units are returned before it is flushed to disk, unless a unit sets
    `Transaction.must_flush`. Units of one `turn` are written in the order of their arrival.
    """

    @property
    def topic_id(self) -> int | None: ...

    @property
    def weight(self) -> int:
        """Return its share of a transaction, as the number of new records that take about as long to write."""
        ...

    @property
    def cursor(self) -> str | None:
        """Return the name of the cursor that the unit needs in `Transaction.positions`; None: it needs none."""
        ...

    @property
    def durable(self) -> bool: ...

    @property
    def turn(self) -> Turn: ...

    @property
    def is_brief(self) -> bool:
        """Return whether a client waits for it, and it writes a few rows, however much is stored.

        If it is alone, it may be written in the thread of the loop.
        """
        ...

    def admit(self, tx: Transaction) -> Drafts: ...

    def finish(self, tx: Transaction, appended: AppendResult) -> R_co: ...


class ChangeUnit(ABC, Generic[R]):
    """A unit that appends nothing: `make` checks, then writes, and returns the result."""

    topic_id = None
    cursor = None
    weight = 1
    durable = True
    turn = Turn.FRONT
    is_brief = False

    _made: R

    @abstractmethod
    def make(self, tx: Transaction) -> R:
        """Write the change and return its result. To refuse it, raise an `EventdError` before anything is written."""

    def admit(self, tx: Transaction) -> Drafts:
        self._made = self.make(tx)
        return NOTHING

    def finish(self, tx: Transaction, appended: AppendResult) -> R:
        return self._made


PlaceDrafts = Callable[..., Placement]
"""`place_new` or `place`: how drafts of events are placed."""


class CommitResult:
    """The results of a transaction's units in order, errors included, and the blocks that the transaction appended.

    `head` is the head before these blocks; `record_bytes` are the bytes of data and meta in those of topics of records.
    `wrote_run`: ids were stored as a sorted run, which should be merged with others.
    `must_flush`: results may only be returned after the flush, even if no unit is durable. `is_marked`: the head says
    that commits may be lost.
    """

    def __init__(self, head: Head, results: list[Any], blocks: list[Block]) -> None:
        self.head = head
        self.results = results
        self.blocks = blocks
        self.must_flush = False
        self.is_marked = False
        self.record_bytes = 0
        self.wrote_run = False

    @property
    def last(self) -> int:
        """Return the last position of the log after the transaction."""
        return self.blocks[-1].last if self.blocks else self.head.last

    def topics(self) -> dict[int, bool]:
        """Return, by the id of each topic that grew, whether any of its new records entered the log at this node."""
        grown: dict[int, bool] = {}
        for block in self.blocks:
            grown[block.topic_id] = bool(block.own) or grown.get(block.topic_id, False)
        return grown

    def families(self) -> frozenset[str] | None:
        """Return the tags of the new records, each without what follows its last dot; None if they are not known."""
        listed = [names(block.types) for block in self.blocks]
        if not all(listed):  # too many to list, or none
            return None
        return frozenset(tag.rpartition(".")[0] for tags in listed if tags is not None for tag in tags)


def commit(
    conn: Connection,
    units: Sequence[Unit[Any]],
    at: Moment,
    spent: TransactionTimes,
    *,
    durable: bool,
    seen: int = 0,
) -> CommitResult:
    """Write all units in the open transaction; a failing unit is left out, and its error is its result.

    If the database itself has undone the transaction, its error is raised. `durable`: the commit will be flushed to
    disk; otherwise raises `UnmarkedLoss` if the head does not say that commits may be lost. `seen`: a position known to
    be assigned; a log that ends before it gets a new epoch.
    """
    head = require_whole(conn, lock_head(conn), seen)
    if not durable and not head.unsynced:
        raise UnmarkedLoss
    try:  # as if every draft were new, which is the usual case
        done = _write(conn, units, head, at, spent, place_new)
    except Exception as error:
        if not in_transaction(conn):
            raise
        begin_anew(conn)
        head = require_whole(conn, lock_head(conn), seen)
        done = _carefully(conn, units, head, at, spent, together=isinstance(error, KeyTaken))
    if done.blocks:
        move_head(conn, done.last + 1, done.record_bytes)
        notify_head(conn)
    asked = any(unit.durable for unit in units)
    marks = flush_marks(asked=asked, durable=durable, unsynced=bool(head.unsynced), appended=bool(done.blocks))
    if marks.unsynced:
        mark_unsynced(conn, run_of_system(conn))
    done.is_marked = bool(head.unsynced) or marks.unsynced
    if marks.touch:
        touch_head(conn)
    return done


class UnmarkedLoss(Exception):
    """A transaction that is not to be flushed finds no mark that commits may be lost; another process removed it.

    The transaction must be undone and written again, flushed: other processes would see a mark before a later flush,
    and rely on it.
    """


class FlushMarks(NamedTuple):
    """Which columns of the head a transaction changes: `unsynced`, `flushes`."""

    unsynced: bool
    touch: bool


def flush_marks(*, asked: bool, durable: bool, unsynced: bool, appended: bool) -> FlushMarks:
    """Return which columns of the head a transaction changes, by whether a unit asked for a flush, whether the
    transaction is flushed (`durable`), and what the head says before.

    The mark must be flushed before the first commit that is not flushed. The result of a durable unit may depend on
    commits of other processes that are not flushed, and so may later commits on a mark that is not: a flushed
    transaction that appends nothing must write something then.
    """
    return FlushMarks(not asked and not unsynced, durable and unsynced and not appended)


def _carefully(
    conn: Connection, units: Sequence[Unit[Any]], head: Head, at: Moment, spent: TransactionTimes, *, together: bool
) -> CommitResult:
    """Write all units again after a failure, now reading the known ids.

    The units are written all together if `together` is true, that is, if the only problem was an id that is already
    known; otherwise, or if this fails, one by one.
    """
    if together:
        try:
            with savepoint(conn):
                return _write(conn, units, head, at, spent, place)
        except Exception:
            if not in_transaction(conn):
                raise
    return _one_by_one(conn, units, head, at, spent)


def _one_by_one(
    conn: Connection, units: Sequence[Unit[Any]], head: Head, at: Moment, spent: TransactionTimes
) -> CommitResult:
    """Write units one by one, so that only the faulty one fails."""
    total = CommitResult(head, [], [])
    for unit in units:
        try:
            with savepoint(conn):
                head_now = replace(head, next_position=total.last + 1)
                done = _write(conn, [unit], head_now, at, spent, place, record_bytes=total.record_bytes)
        except Exception as error:
            if not in_transaction(conn):
                raise
            total.results.append(translate(error))
            continue
        total.results += done.results
        total.blocks += done.blocks
        total.record_bytes = done.record_bytes
        total.must_flush = total.must_flush or done.must_flush
        total.wrote_run = total.wrote_run or done.wrote_run
    return total


def _write(
    conn: Connection,
    units: Sequence[Unit[Any]],
    head: Head,
    at: Moment,
    spent: TransactionTimes,
    how: PlaceDrafts,
    *,
    record_bytes: int = 0,
) -> CommitResult:
    names = [unit.cursor for unit in units if unit.cursor is not None]
    tx = Transaction(conn, head, lock_positions(conn, names) if names else {}, at, spent)
    tx.record_bytes = record_bytes
    results: list[Any] = [None] * len(units)
    admitted: dict[int, Drafts] = {}
    for index, unit in enumerate(units):
        try:
            drafts = admitted[index] = unit.admit(tx)
        except (EventdError, MessageError) as error:
            results[index] = error
            continue
        if drafts:
            tx.coming[cast(int, unit.topic_id)] += len(drafts)
    appended = _place(tx, units, admitted, how)
    for index in admitted:
        results[index] = units[index].finish(tx, appended.get(index, AppendResult((), ())))
    done = CommitResult(head, results, tx.blocks)
    done.must_flush, done.record_bytes, done.wrote_run = tx.must_flush, tx.record_bytes, tx.wrote_run
    return done


def _place(
    tx: Transaction, units: Sequence[Unit[Any]], admitted: dict[int, Drafts], how: PlaceDrafts
) -> dict[int, AppendResult]:
    by_topic: dict[int, list[int]] = {}
    for index, drafts in admitted.items():
        if drafts:
            by_topic.setdefault(cast(int, units[index].topic_id), []).append(index)
    appended: dict[int, AppendResult] = {}
    position = tx.head.next_position
    for topic_id, indexes in by_topic.items():
        alike = [admitted[i] for i in indexes]
        place_them = place_records if alike[0].of_records else how
        placed = place_them(tx.conn, topic_id, alike, next_position=position, now=tx.now)
        appended.update(zip(indexes, placed.results, strict=True))
        position = placed.next_position
        tx.blocks += placed.blocks
        tx.wrote_run = tx.wrote_run or placed.wrote_run
        if alike[0].of_records:
            tx.record_bytes += sum(block.bytes for block in placed.blocks)
    return appended
