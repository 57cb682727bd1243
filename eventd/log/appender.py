"""The one writer of a process: gathers what its callers want written and commits it as one transaction.

A caller hands over a unit and awaits its own result. Units that arrive while a transaction runs form the next one, so a
lone unit never lingers and a thousand share one flush to the disk. There is no task in here: the writer thread's
completion starts the next transaction.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol, TypeVar, cast

import sqlalchemy as sa

from eventd.clock import Clock
from eventd.errors import EventdError, Full, Unavailable
from eventd.log.append import Placed, place, place_new
from eventd.log.blocks import Block
from eventd.log.cursors import Postponement, Step, apply_step, check_fence, lock_positions, postpone
from eventd.log.head import lock_head, move_head, read_topic_bytes
from eventd.log.retired import require_in_use
from eventd.log.values import Appended, Draft, Drafts, Head
from eventd.store.database import Database, KeyTaken, in_transaction, notify_head, savepoint
from eventd.store.translation import translate
from federation.errors import MessageError

R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")

GROUP_RECORDS = 1000
"""Records after which a transaction takes no further unit, so that nobody waits long behind it."""


class Transaction:
    """What the units of one transaction share. The head is locked; positions of cursors are read under lock."""

    def __init__(self, conn: sa.Connection, head: Head, positions: dict[str, int], now: int) -> None:
        self.conn = conn
        self.head = head
        self.now = now
        self.positions = positions
        self.shared: dict[Any, Any] = {}  # what one kind of unit has to know of its neighbours


class Unit(Protocol[R_co]):
    """Something to be written, all of it or nothing, in a transaction that others share.

    `admit` runs before anything is placed and answers with the drafts to append. Raising an `EventdError` or a
    `MessageError` there leaves this unit out, provided that it has written nothing yet. `finish` runs when the drafts
    have their positions. Any other error undoes the whole transaction, and its units are tried again one by one, each
    in its own savepoint.
    """

    @property
    def topic_id(self) -> int | None: ...

    @property
    def weight(self) -> int:
        """Records it may add."""
        ...

    @property
    def cursor(self) -> str | None:
        """The cursor whose position must be locked for it."""
        ...

    def admit(self, tx: Transaction) -> Drafts: ...

    def finish(self, tx: Transaction, appended: Appended) -> R_co: ...


Check = Callable[[sa.Connection, int], None]
"""Raises an `EventdError` where something must not be written, by what is stored and the time in microseconds."""


class Publish:
    """Append drafts to a topic, up to a ceiling of stored bytes. Result: `Appended`.

    Raises `Full`, `NotFound` when the topic was retired, and whatever `check` raises, which looks at what is stored.
    """

    cursor = None

    def __init__(
        self, topic_id: int, drafts: Sequence[Draft], *, ceiling: int | None = None, check: Check | None = None
    ) -> None:
        self.topic_id = topic_id
        self._drafts = Drafts.of(drafts)
        self._ceiling = ceiling
        self._check = check

    @property
    def weight(self) -> int:
        return len(self._drafts)

    def admit(self, tx: Transaction) -> Drafts:
        require_in_use(tx.conn, tx.head, self.topic_id)
        if self._check is not None:
            self._check(tx.conn, tx.now)
        require_room(tx, self.topic_id, self._drafts, self._ceiling)
        return self._drafts

    def finish(self, tx: Transaction, appended: Appended) -> Appended:
        return appended


def require_room(tx: Transaction, topic_id: int, drafts: Drafts, ceiling: int | None) -> None:
    """Raise `Full` when the drafts, after those of the units before, would lift the topic over its ceiling of bytes."""
    if ceiling is None:
        return
    taken = tx.shared.get(("bytes", topic_id)) or read_topic_bytes(tx.conn, topic_id)
    taken += drafts.bytes
    if taken > ceiling:
        raise Full(
            f"the topic holds its limit of {ceiling} bytes",
            hint="raise retention.maxBytes, or let the peers that are behind catch up",
        )
    tx.shared["bytes", topic_id] = taken


class Effect(Protocol):
    """What a step brings about besides the cursor: facts that enter the log, and rows of its own."""

    @property
    def topic_id(self) -> int | None:
        """Where its facts go; None when there are none."""
        ...

    @property
    def weight(self) -> int:
        """Records it may add."""
        ...

    def admit(self, tx: Transaction) -> Drafts:
        """Its facts. Raises an `EventdError` when the step must not be made; nothing is written here."""
        ...

    def write(self, tx: Transaction, appended: Appended) -> None:
        """Write its rows; its facts have their positions."""
        ...


class Settle:
    """Move a cursor with all that belongs to the step. Raises `FenceLost` when another moved it."""

    def __init__(self, step: Step, effect: Effect | None = None) -> None:
        self._step = step
        self._effect = effect
        self.cursor = step.name

    @property
    def topic_id(self) -> int | None:
        return None if self._effect is None else self._effect.topic_id

    @property
    def weight(self) -> int:
        return 1 if self._effect is None else 1 + self._effect.weight

    def admit(self, tx: Transaction) -> Drafts:
        check_fence(tx.positions, self._step)
        drafts = Drafts() if self._effect is None else self._effect.admit(tx)
        tx.positions[self._step.name] = self._step.upto
        return drafts

    def finish(self, tx: Transaction, appended: Appended) -> None:
        apply_step(tx.conn, self._step)
        if self._effect is not None:
            self._effect.write(tx, appended)


class Postpone:
    """Record a failed try of a consumer."""

    topic_id = None
    cursor = None
    weight = 1

    def __init__(self, failure: Postponement) -> None:
        self._failure = failure

    def admit(self, tx: Transaction) -> Drafts:
        return Drafts()

    def finish(self, tx: Transaction, appended: Appended) -> None:
        postpone(tx.conn, self._failure)


Place = Callable[..., Placed]
"""`place_new` or `place`."""

Group = list[tuple[Unit[Any], asyncio.Future[Any]]]
"""The units of one transaction, each with what its caller awaits."""


class Appender:
    """Group commit over one database.

    `committed` is told of every transaction that appended something, `timed(seconds, records)` of every transaction.
    """

    def __init__(
        self,
        database: Database,
        clock: Clock,
        committed: Callable[[Committed], None],
        timed: Callable[[float, int], None],
    ) -> None:
        self._database = database
        self._clock = clock
        self._committed = committed
        self._timed = timed
        self._waiting: deque[tuple[Unit[Any], asyncio.Future[Any]]] = deque()
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False

    def submit(self, unit: Unit[R]) -> asyncio.Future[R]:
        """Queue a unit; its result, or its error, once the transaction is durable."""
        if self._closed:
            raise Unavailable("the node is stopping")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        self._waiting.append((unit, future))
        if self._idle.is_set():
            self._idle.clear()
            loop.call_soon(self._start)  # at the end of this tick: whoever else is ready now shares the commit
        return future

    async def close(self) -> None:
        """Take nothing more, and wait until all that was taken is durable."""
        self._closed = True
        await self._idle.wait()

    def _start(self) -> None:
        group: Group = []
        weight = 0
        while self._waiting and weight < GROUP_RECORDS:
            unit, future = self._waiting.popleft()
            if future.cancelled():
                continue
            group.append((unit, future))
            weight += unit.weight
        if not group:
            self._idle.set()
            return
        units = [unit for unit, _ in group]
        now, begun = self._clock.now(), self._clock.monotonic()
        try:
            running = asyncio.wrap_future(self._database.start_write(lambda conn: commit(conn, units, now)))
        except RuntimeError:  # the database was closed: nobody must wait for what will never be written
            for _, future in (*group, *self._waiting):
                _resolve(future, Unavailable("the database is closed"))
            self._waiting.clear()
            self._idle.set()
            return
        running.add_done_callback(lambda done: self._done(group, done, begun))

    def _done(self, group: Group, done: asyncio.Future[Committed], begun: float) -> None:
        error = done.exception()
        if error is None:
            committed = done.result()
            self._timed(self._clock.monotonic() - begun, committed.last - committed.head.last)
            if committed.blocks:
                self._committed(committed)
            for (_, future), result in zip(group, committed.results, strict=True):
                _resolve(future, result)
        else:
            for _, future in group:
                _resolve(future, error)
        self._start()


def _resolve(future: asyncio.Future[Any], result: object) -> None:
    if future.done():  # its caller went away; what was committed stays
        return
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)


class Committed:
    """The results of a transaction's units in order, errors among them, and what it appended to the log at `head`."""

    def __init__(self, head: Head, results: list[Any], blocks: list[Block]) -> None:
        self.head = head
        self.results = results
        self.blocks = blocks

    @property
    def last(self) -> int:
        """The last position it gave, or the last of before."""
        return self.blocks[-1].last if self.blocks else self.head.last

    def topics(self) -> dict[int, bool]:
        """The topics that grew; True where records entered here."""
        grown: dict[int, bool] = {}
        for block in self.blocks:
            grown[block.topic_id] = bool(block.own) or grown.get(block.topic_id, False)
        return grown


def commit(conn: sa.Connection, units: Sequence[Unit[Any]], now: int) -> Committed:
    """Write all units in the open transaction; where one of them fails, all but that one.

    When the database itself has undone the transaction, all of them fail.
    """
    head = lock_head(conn)
    try:
        done = _together(conn, units, head, now)
    except Exception:
        if not in_transaction(conn):
            raise
        done = _one_by_one(conn, units, head, now)
    if done.blocks:
        move_head(conn, done.last + 1)
        notify_head(conn)
    return done


def _together(conn: sa.Connection, units: Sequence[Unit[Any]], head: Head, now: int) -> Committed:
    """All units at once: first as if every draft were new, which most are, then with a look at the known ids."""
    with suppress(KeyTaken), savepoint(conn):
        return _write(conn, units, head, now, place_new)
    with savepoint(conn):
        return _write(conn, units, head, now, place)


def _one_by_one(conn: sa.Connection, units: Sequence[Unit[Any]], head: Head, now: int) -> Committed:
    """One unit of the group has a fault of its own: find it, and let the others through."""
    total = Committed(head, [], [])
    for unit in units:
        try:
            with savepoint(conn):
                done = _write(conn, [unit], replace(head, next_position=total.last + 1), now, place)
        except Exception as error:
            if not in_transaction(conn):
                raise
            total.results.append(translate(error))
            continue
        total.results += done.results
        total.blocks += done.blocks
    return total


def _write(conn: sa.Connection, units: Sequence[Unit[Any]], head: Head, now: int, how: Place) -> Committed:
    names = [unit.cursor for unit in units if unit.cursor is not None]
    tx = Transaction(conn, head, lock_positions(conn, names) if names else {}, now)
    results: list[Any] = [None] * len(units)
    admitted: dict[int, Drafts] = {}
    for index, unit in enumerate(units):
        try:
            admitted[index] = unit.admit(tx)
        except (EventdError, MessageError) as error:
            results[index] = error
    appended, blocks = _place(conn, units, admitted, head, now, how)
    for index in admitted:
        results[index] = units[index].finish(tx, appended.get(index, Appended((), ())))
    return Committed(head, results, blocks)


def _place(
    conn: sa.Connection,
    units: Sequence[Unit[Any]],
    admitted: dict[int, Drafts],
    head: Head,
    now: int,
    how: Place,
) -> tuple[dict[int, Appended], list[Block]]:
    by_topic: dict[int, list[int]] = {}
    for index, drafts in admitted.items():
        if drafts:
            by_topic.setdefault(cast(int, units[index].topic_id), []).append(index)
    appended: dict[int, Appended] = {}
    position = head.next_position
    blocks: list[Block] = []
    for topic_id, indexes in by_topic.items():
        placed = how(conn, topic_id, [admitted[i] for i in indexes], next_position=position, now=now)
        appended.update(zip(indexes, placed.fates, strict=True))
        position = placed.next_position
        blocks += placed.blocks
    return appended, blocks
