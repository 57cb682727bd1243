"""The writer of a log in a process: commits the units of many callers in common transactions.

A caller submits a unit and awaits its result. Units of one kind that arrive while a transaction runs form the next one,
so a single unit never waits and a thousand share one flush. There is no task: the end of one transaction on the writer
thread starts the next. A short unit that is alone is written in the thread of the loop, as long as the disk is fast.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from eventd.errors import Unavailable
from eventd.log.core.commit import GROUP_RECORDS, CommitResult, TransactionTimes, Turn, Unit, UnmarkedLoss, commit
from eventd.log.core.head import touch_head
from eventd.log.core.loop_budget import LoopBudget
from eventd.log.core.values import AppendResult
from eventd.log.core.writer_stats import WriterStats
from eventd.runtime.clock import Clock, Moment
from eventd.store.engine.database import Connection, Database
from eventd.tracing import tracing
from eventd.tracing.contexts import TraceContext

R = TypeVar("R")
T = TypeVar("T")

BACKGROUND_RECORDS = 250
"""Sum of the weights of background units from which a transaction takes no further one: a client's unit waits only a
few milliseconds."""

QueuedUnit = tuple[Unit[Any], asyncio.Future[Any], TraceContext | None]
"""A unit, the future that its caller awaits, and the span in which the caller works."""
MOST_LINKS = 64
"""Maximum number of units to which the trace span of a commit links."""
Group = deque[QueuedUnit]


class Writer:
    """Group commit for one database.

    `committed` is called after every commit that appended records, and returns whether readers that it woke may run
    before the callers get the results of a lone unit. `timed(seconds, records, in_loop)` is called after every commit.
    Neither is called after a transaction that failed as a whole. `in_loop`: it ran in the thread of the loop. `seen`
    returns the last position known to be assigned.
    """

    def __init__(
        self,
        database: Database,
        clock: Clock,
        committed: Callable[[CommitResult], bool],
        timed: Callable[[float, int, bool], None],
        seen: Callable[[], int],
    ) -> None:
        self._database = database
        self._clock = clock
        self._committed = committed
        self._timed = timed
        self._seen = seen
        self._budget = LoopBudget(clock.monotonic)
        self.work = WriterStats()
        self._waiting: dict[Turn, Group] = {turn: deque() for turn in Turn}
        self._turns = deque(Turn)
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False
        self._under_way = 0  # units that are being written
        self._marked = False  # the mark "unsynced" of the head is on the disk

    def submit(self, unit: Unit[R]) -> asyncio.Future[R]:
        """Queue a unit. The future gets its result or error once the transaction is as durable as its units require.

        Raises `Unavailable` after `close`.
        """
        if self._closed:
            raise Unavailable("the node is stopping")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        self._waiting[unit.turn].append((unit, future, tracing.current() if tracing.on else None))
        self.work.queued(self.waiting)
        if self._idle.is_set():
            self._idle.clear()
            loop.call_soon(self._start)  # at the end of this tick: other units that are ready now share the commit
        return future

    @property
    def waiting(self) -> int:
        """Return the number of units that wait for their transaction."""
        return sum(map(len, self._waiting.values()))

    @property
    def units(self) -> int:
        """Return the number of units that are being written, or wait for it."""
        return self.waiting + self._under_way

    @property
    def is_idle(self) -> bool:
        """Return whether no unit is being written, or waits for it."""
        return self._idle.is_set()

    async def close(self) -> None:
        """Refuse new units, and wait until all queued ones are written."""
        self._closed = True
        await self._idle.wait()

    def _next(self) -> list[QueuedUnit]:
        """Remove and return the next transaction's units, all of one kind (`Turn`): another kind would delay them."""
        for turn in [*self._turns]:
            self._turns.rotate(-1)
            if group := [*_take(self._waiting[turn], BACKGROUND_RECORDS if turn is Turn.BACKGROUND else GROUP_RECORDS)]:
                return group
        return []

    def _start(self) -> None:
        group = self._next()
        self._under_way = len(group)
        if not group:
            self._idle.set()
            return
        self._write(group)

    def _write(self, group: list[QueuedUnit]) -> None:
        units = [unit for unit, _, _ in group]
        # A kill, or the commit of another process, could come between the mark "unsynced" of the head and its flush.
        durable = any(unit.durable for unit in units) or not self._marked
        at, spent, seen = Moment.of(self._clock), TransactionTimes(), self._seen()
        run = _GroupWrite(group, self._clock.monotonic(), spent, durable)

        def work(conn: Connection) -> CommitResult:
            done = commit(conn, units, at, spent, durable=durable, seen=seen)
            spent.append = self._clock.monotonic() - run.begun
            return done

        if self._is_lone(units) and (done := self._write_in_loop(run, work)) is not None:
            self._done(run, done)
            return
        try:
            running = self._database.start_write(work, durable=durable)
        except RuntimeError:  # the database was closed: these units will never be written
            for _, future, _ in (*group, *chain.from_iterable(self._waiting.values())):
                _resolve(future, Unavailable("the database is closed"))
            for waiting in self._waiting.values():
                waiting.clear()
            self._under_way = 0
            self._idle.set()
            return
        _when_done(running, lambda done: self._done(run, done))

    def _is_lone(self, units: Sequence[Unit[Any]]) -> bool:
        """Return whether these units may be written in the loop: a brief one alone, and the disk was fast lately."""
        alone = len(units) == 1 and units[0].is_brief and not self.waiting
        return alone and self._budget.is_open and self._database.may_write_in_loop

    def _write_in_loop(
        self, run: _GroupWrite, work: Callable[[Connection], CommitResult]
    ) -> Future[CommitResult] | None:
        """Write in this thread, and return the completed future; None if it has to be written in the other."""
        done = self._database.write_in_loop(work, durable=run.durable)
        self._budget.note_loop(self._clock.monotonic() - run.begun)
        if done is None:
            self._budget.distrust()
        run.in_loop = done is not None
        return done

    def _done(self, run: _GroupWrite, done: Future[CommitResult]) -> None:
        error = done.exception()
        if error is None:
            committed = done.result()
            self._marked = committed.is_marked if run.durable else self._marked and committed.is_marked
            if committed.must_flush and not run.durable:
                flushing = self._database.start_write(touch_head)
                _when_done(flushing, lambda flushed: self._flushed(run, committed, flushed))
                return
            self._start()  # the next transaction need not wait until the results are delivered
            self._deliver_results(run, committed, flushed=run.durable)
            return
        if isinstance(error, UnmarkedLoss):  # another process has stopped, and said that nothing can be lost
            self._marked = False
            self._write(run.group)
            return
        self._budget.distrust()
        self.work.trouble = str(error) or type(error).__name__
        for _, future, _ in run.group:
            _resolve(future, error)
        self._start()

    def _flushed(self, run: _GroupWrite, committed: CommitResult, flushed: Future[None]) -> None:
        """Deliver the results of a transaction after its flush.

        After a failed flush the commit may be lost, and every caller gets the error.
        """
        error = flushed.exception()
        if error is not None:
            committed.results = [error] * len(run.group)
        self._start()
        self._deliver_results(run, committed, flushed=error is None)

    def _deliver_results(self, run: _GroupWrite, committed: CommitResult, *, flushed: bool) -> None:
        seconds = self._clock.monotonic() - run.begun
        run.spent.flush = seconds - run.spent.append
        if flushed and not run.in_loop and not self._database.is_checkpointing:
            self._budget.note_flush(run.spent.flush)
        sizes = [(block.records, block.bytes) for block in committed.blocks]
        self.work.done(sizes, run.spent.flush if flushed else None)
        span = self._trace(run.group, committed, seconds) if tracing.on else None
        report_time = partial(self._report_time, run, committed, seconds, span)
        if run.in_loop:
            self._deliver_lone(run, committed, report_time)
            return
        try:
            report_time()
            if committed.blocks:
                self._committed(committed)
        finally:  # a callback may fail: the callers whose units are written must still get their results
            _resolve_all(run.group, committed.results)

    def _deliver_lone(self, run: _GroupWrite, committed: CommitResult, report_time: Callable[[], None]) -> None:
        """Wake readers, answer the caller, and report the duration, each in a turn of the loop of its own.

        So the first turn of a woken reader, which may be a push, does not wait for the others. With many readers, the
        caller is answered before them.
        """
        loop = asyncio.get_running_loop()
        readers_first = False
        try:
            if committed.blocks:
                readers_first = self._committed(committed)
        finally:  # it may fail: the caller must still get its result
            if readers_first:
                loop.call_soon(_resolve_all, run.group, committed.results)
            else:
                _resolve_all(run.group, committed.results)
            loop.call_soon(loop.call_soon, report_time)

    def _report_time(
        self, run: _GroupWrite, committed: CommitResult, seconds: float, span: TraceContext | None
    ) -> None:
        with tracing.within(span):
            self._timed(seconds, committed.last - committed.head.last, run.in_loop)

    def _trace(self, group: Sequence[QueuedUnit], committed: CommitResult, seconds: float) -> TraceContext | None:
        """Export the span of a commit, and remember which span recorded its events."""
        callers = [(context, result) for (_, _, context), result in zip(group, committed.results, strict=True)]
        links = [context for context, _ in callers if context is not None and context.sampled]
        if not links:  # work of the node itself
            return None
        for context, result in callers:
            if context is not None and context.sampled and isinstance(result, AppendResult):
                tracing.sampled.remember(result.positions, context)
        began = self._clock.now() * 1000 - int(seconds * 1e9)
        about = {"eventd.units": len(group), "eventd.records": committed.last - committed.head.last}
        return tracing.past("commit", began, links=links[:MOST_LINKS], attributes=about)


class _GroupWrite:
    """One attempt to write a group: when it began, in monotonic seconds, and where it runs."""

    def __init__(self, group: list[QueuedUnit], begun: float, spent: TransactionTimes, durable: bool) -> None:
        self.group = group
        self.begun = begun
        self.spent = spent
        self.durable = durable
        self.in_loop = False


def _when_done(running: Future[T], then: Callable[[Future[T]], None]) -> None:
    """Call `then` with the future `running`, in the event loop, as soon as the writer thread has completed it."""
    loop = asyncio.get_running_loop()

    def deliver(done: Future[T]) -> None:
        with suppress(RuntimeError):  # the loop has ended, and with it every caller
            loop.call_soon_threadsafe(then, done)

    running.add_done_callback(deliver)


def _take(waiting: Group, most: int) -> Iterator[QueuedUnit]:
    """Remove and yield the next units whose callers still wait, until the sum of their weights is at least `most`."""
    weight = 0
    while waiting and weight < most:
        queued = waiting.popleft()
        if not queued[1].cancelled():
            weight += queued[0].weight
            yield queued


def _resolve_all(group: Sequence[QueuedUnit], results: Sequence[Any]) -> None:
    for (_, future, _), result in zip(group, results, strict=True):
        _resolve(future, result)


def _resolve(future: asyncio.Future[Any], result: object) -> None:
    if future.done():  # its caller was cancelled; the commit stays
        return
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)
