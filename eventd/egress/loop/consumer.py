"""The one loop of every destination: read a page, pass it to the sink, settle the cursor, wait.

Each destination has its own consumer, so one that is down delays no other. Several batches may be under way; they are
settled in order, and when one fails, those behind it are cancelled and sent again from the cursor.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic

from eventd.egress.loop.cursor_store import CursorStore, StoredCursor
from eventd.egress.loop.link_log import LinkLog, LossLog
from eventd.egress.loop.sink import (
    Ack,
    Blocked,
    LinkError,
    LinkUnavailable,
    OpenResult,
    OutboundBatch,
    PageT,
    Rewind,
    Sink,
    dead_letters,
)
from eventd.egress.loop.wait_any import until_any
from eventd.errors import DatabaseUnavailable, EventdError, FenceLost, NotFound
from eventd.log.core.eventlog import EventLog
from eventd.log.core.wakeups import Watch
from eventd.log.cursors.cursors import Cursor, LinkState, clear_failures, end_cursor, rewind
from eventd.log.cursors.steps import Postponement, Step
from eventd.runtime.backoff import Backoff
from eventd.runtime.clock import SECOND, Countdown
from eventd.runtime.log_pause import PausedCount
from eventd.runtime.supervisor import SpawnTask

IDLE_WRITE = 5.0
"""Interval in seconds at which a cursor is stored that only passes records which are not selected for its
destination."""
BROKEN_WAIT = 1.0
"""Seconds to wait when this node's own database cannot record a failure."""

REOPEN_AFTER = 1.0
"""Seconds after a comparison of marks until which the next one is postponed; twice as many after each that was."""
LONGEST_REOPEN = 60.0
"""Maximum number of these seconds."""
CALM = 600.0
"""Seconds without a rewind after which the count of rewinds begins again; at least four times the cap of the back-off.
"""
DATABASE = "database"
"""The reason of a link while this node's own database is unavailable."""
REWINDS = "rewinds"
"""The reason of a link whose other side rewinds repeatedly."""
AT_CAP = 64
"""A number of failures for which the back-off is at its cap. A refused link counts as having this many: it waits for a
change, and is only probed meanwhile."""
RESULTS = (LinkError, Rewind, EventdError)
"""Errors of a delivery that this loop handles."""

logger = logging.getLogger("eventd.egress")


@dataclass(slots=True)
class _Progress:
    """The positions of one attempt, and the `failures` in a row before it.

    `stored_at`: when the attempt began, or last stored the cursor, in monotonic seconds.
    """

    settled: int  # the cursor as stored
    sent: int  # end of the last acknowledged range, as stored
    scanned: int  # read up to here
    launched: int  # end of the last range passed to the sink
    failures: int
    stored_at: float
    healthy: bool  # the stored state says that the link works


class Consumer(Generic[PageT]):
    """Delivers what lies beyond a cursor to a sink until finished or cancelled, or the cursor is deleted or ends.

    `version` is that of the sink's selection: when another is declared, the consumer waits until it is replaced.
    `cursors` stores its position; by default in the cursor called `name`. `spawn` starts a task under the node's
    supervisor; `chance` returns numbers in [0, 1) for the jitter. `about` are more fields of its log lines. For
    `families` see `Watch`: those of all records that it may deliver.
    """

    def __init__(
        self,
        log: EventLog,
        name: str,
        sink: Sink[PageT],
        *,
        version: int,
        spawn: SpawnTask,
        backoff: Backoff,
        chance: Callable[[], float],
        cursors: CursorStore | None = None,
        about: Mapping[str, str] | None = None,
        families: frozenset[str] | None = None,
    ) -> None:
        self.name = name
        self._log = log
        self._cursors = cursors or StoredCursor(log, name)
        self._monotonic = log.clock.monotonic
        self._countdown = Countdown(log.clock)
        self._sink = sink
        self._version = version
        self._spawn = spawn
        self._backoff = backoff
        self._chance = chance
        self._families = families
        self._signal: asyncio.Future[None] | None = None
        self._resting = False
        self._about = {"cursor": name, **(about or {})}
        self._link_log = LinkLog(logger, self._about, self._monotonic)
        self._loss_log = LossLog(logger, self._about, self._monotonic)
        self._letters_added = PausedCount(self._monotonic)
        self._called = False
        self._finishing = False
        self._flying: deque[tuple[OutboundBatch, asyncio.Task[Ack]]] = deque()
        self._tried_upto = 0
        self._failed_upto = 0
        self._opened_at = float("-inf")
        self._reopen_after = REOPEN_AFTER
        self._must_compare = False
        self._opens_as_start = True  # whether the next opening is more than a comparison of marks
        self._postponed_comparison: asyncio.Future[None] | None = None  # done when it is due
        self._rewinds = 0
        self._rewound_at = float("-inf")

    def wake(self) -> None:
        """Shorten the wait after failures to the wait after a first failure, because the other side has sent a
        request.

        The wait still counts from the failure, so that a peer that sends requests often and refuses this node is not
        tried each time. A wait after repeated rewinds is not shortened.
        """
        self._called = True
        self.look_again()

    def look_again(self) -> None:
        """Read the cursor again if the consumer waits for its next attempt; an attempt under way is not disturbed."""
        if self._resting:
            self.reread()

    def reopen(self) -> None:
        """Let the next attempt compare marks with the other side, which was restarted and may have lost records.

        At most one comparison is under way or postponed, and none is left out: it begins after the last restart. The
        pause after the last comparison doubles with each postponed one, because an older program takes each comparison
        for a restart, and compares as well: the two nodes soon do so once a minute. It is short again after twice its
        length.
        Deliveries under way are settled first, because their answers may be from before the restart.
        """
        passed = self._monotonic() - self._opened_at
        if passed > 2 * self._reopen_after:
            self._reopen_after = REOPEN_AFTER
        if passed > self._reopen_after:
            self._compare()
        elif self._postponed_comparison is None:
            self._postponed_comparison = self._log.clock.timer(self._reopen_after - passed)
            self._postponed_comparison.add_done_callback(self._compare_later)

    def _compare_later(self, due: asyncio.Future[None]) -> None:
        if not due.cancelled():
            self._compare()

    def _compare(self) -> None:
        self._must_compare = True
        self._compare_if_due()

    def _compare_if_due(self) -> None:
        if self._must_compare and not self._flying:
            self._interrupt()

    def reread(self) -> None:
        """Read the cursor again at once, because other code has changed it (paused, resumed).

        An attempt under way ends, and its deliveries are cancelled. The next one opens the link as after a start.
        """
        self._opens_as_start = True
        self._interrupt()

    def _interrupt(self) -> None:
        if self._signal is not None and not self._signal.done():
            self._signal.set_result(None)

    def finish(self) -> None:
        """Let `run` start no further deliveries, settle those under way, and then return. Does not wait for that."""
        self._finishing = True
        self._sink.wind_down()
        self.reread()

    def _cancel_postponed_comparison(self) -> None:
        if self._postponed_comparison is not None:
            self._postponed_comparison.cancel()
            self._postponed_comparison = None

    async def run(self) -> None:
        """Run until `finish` or cancelled. Also returns when the cursor was deleted or has reached its end."""
        try:
            await self._run()
        finally:
            self._cancel_postponed_comparison()

    async def _run(self) -> None:
        finished = False
        while not (finished or self._finishing):
            self._signal = asyncio.get_running_loop().create_future()
            self._resting = True  # before reading: a signal during the read must end the wait
            try:
                cursor = await self._cursors.read()
                if rest := self._due(cursor):
                    await self._rest(rest)
                else:
                    self._called = self._resting = False
                    finished = await self._attempt(cursor)
            except NotFound:
                return
            except EventdError as error:  # the database itself fails: nothing can be recorded in it
                self._opens_as_start = True
                self._link_log.note(LinkState.FAILED, DATABASE, str(error))
                await self._log.clock.sleep(BROKEN_WAIT)
            except Exception:  # a defect that cannot be recorded: a link must not end silently
                logger.exception("consumer failed", extra=self._about)
                await self._log.clock.sleep(BROKEN_WAIT)

    def _due(self, cursor: Cursor) -> float:
        """Return the seconds until the next attempt; infinite while paused, or with an outdated selection."""
        if cursor.paused_at is not None or cursor.selector_version != self._version:
            return float("inf")
        if cursor.retry_at is None or cursor.attempted_at is None:
            return 0.0
        passed = self._countdown.passed(cursor.attempted_at, cursor.retry_at)
        rest = (cursor.retry_at - cursor.attempted_at) / SECOND
        # A sign of life does not end the wait after rewinds: it comes from the side that causes them.
        if self._called and cursor.reason != REWINDS:
            rest = min(rest, self._backoff.base)
        return max(0.0, rest - passed)

    async def _rest(self, seconds: float) -> None:
        """Wait that many seconds, or until `reread` is called."""
        nudge = asyncio.get_running_loop().create_future()
        await self._first(nudge, [], None if seconds == float("inf") else seconds)

    async def _attempt(self, cursor: Cursor) -> bool:
        """Deliver until an error or a signal; return whether the cursor has reached its end.

        An error is recorded in the cursor, except a lost fence and `DatabaseUnavailable`, which is raised.
        """
        progress = _Progress(
            cursor.position,
            cursor.sent_upto,
            cursor.position,
            cursor.sent_upto,
            cursor.attempts,
            self._monotonic(),
            cursor.state is LinkState.RUNNING,
        )
        self._failed_upto = cursor.attempted_upto if cursor.attempts else 0
        failed = True
        try:
            with self._log.watch((cursor.topic_id,), own=self._sink.own, families=self._families) as watch:
                ended = await self._pump(cursor, progress, watch)
            failed = False
            return ended
        except FenceLost:
            return False
        except Rewind as back:
            with contextlib.suppress(FenceLost):  # moved meanwhile: the next attempt begins from there
                await self._go_back(progress, back)
        except LinkError as held:
            await self._postpone(progress, held)
        except DatabaseUnavailable:
            raise  # no failure of the link: `run` tries again soon, while a failed link waits for a change
        except EventdError as error:
            await self._postpone(progress, LinkError(error.code, str(error)))
        except Exception as error:  # a defect in one link must not end the others
            logger.exception("consumer failed", extra=self._about)
            await self._postpone(progress, LinkError("internal", f"{type(error).__name__} in this node; see its log"))
        finally:
            self._opens_as_start |= failed
            await self._give_up_flying()
        return False

    async def _go_back(self, progress: _Progress, back: Rewind) -> None:
        if back.to >= progress.settled:  # nothing to send again: what the other side lacks may still be in flight
            await self._postpone(progress, LinkUnavailable("out_of_step", back.detail))
            return
        at, now = progress.settled, self._log.clock.now()
        await self._log.database.write(rewind, self.name, position=at, to=back.to, epoch=back.epoch, now=now)
        progress.settled = back.to
        calm = self._monotonic() - self._rewound_at > max(CALM, 4 * self._backoff.cap)
        self._rewinds, self._rewound_at = 1 if calm else self._rewinds + 1, self._monotonic()
        if self._rewinds > 1:  # a side that rewinds repeatedly must not cause sending without a pause
            what = f"the peer's mark went back {self._rewinds} times: {back.detail}"
            await self._postpone(progress, LinkUnavailable(REWINDS, what), failures=self._rewinds - 1)

    async def _pump(self, cursor: Cursor, progress: _Progress, watch: Watch) -> bool:
        assert self._signal is not None
        opened: OpenResult | None = None
        while True:
            more = True
            while more and len(self._flying) < self._sink.window and not self._signal.done():
                page = await self._sink.read(self._log, cursor, progress.scanned)
                if opened is None:
                    opened = await self._open(cursor, progress, page)
                    continue  # what `open` found out may change the size of a page
                self._take(page, progress)
                more = page.full
                del page  # otherwise the last page would stay in memory while the link is idle
            if self._finishing:
                await self._land(progress, cursor)
            if self._signal.done():
                return False
            ended = cursor.until is not None and progress.scanned >= cursor.until
            if not self._flying and not more and ended:
                await self._log.database.write(end_cursor, cursor)
                return True
            if opened is not None and not (self._flying or more or progress.healthy):
                if opened.reached:
                    await self._settle_idle(progress, succeeded=True)  # it works again, and no delivery will show it
                elif opened.unknown:
                    await self._forget_failures(progress)
            await self._wait(progress, watch, more or ended)  # records beyond its end are not waited for
            while self._flying and self._flying[0][1].done():
                await self._settle_first(progress, cursor)
            self._compare_if_due()

    async def _open(self, cursor: Cursor, progress: _Progress, page: PageT) -> OpenResult:
        self._opened_at, self._must_compare = self._monotonic(), False
        if self._postponed_comparison is not None and self._postponed_comparison.done():
            self._reopen_after = min(2 * self._reopen_after, LONGEST_REOPEN)
        self._cancel_postponed_comparison()
        self._tried_upto = max(
            progress.settled, page.upto
        )  # a link that cannot be opened has failed for everything that waited
        start, self._opens_as_start = self._opens_as_start, False  # before it opens: it may be interrupted
        opened = await self._sink.open(cursor, page, start=start)
        if opened.proven and opened.proven != cursor.protocol:
            now, at = self._log.clock.now(), progress.settled
            await self._cursors.settle(
                replace(self._step(at, at, progress.sent, now), protocol=opened.proven, succeeded=False)
            )
        return opened

    async def _land(self, progress: _Progress, cursor: Cursor) -> None:
        """Wait for all deliveries under way, and settle them."""
        while self._flying:
            await self._settle_first(progress, cursor)

    async def _settle_first(self, progress: _Progress, cursor: Cursor) -> None:
        outbound = self._flying[0][0]
        # The task is not bound to a name: an error raised here would hold it, it the error, and both the batch.
        await self._settle(progress, cursor, outbound, await self._flying[0][1])
        self._flying.popleft()

    def _take(self, page: PageT, progress: _Progress) -> None:
        # Records stored after the last failure have not failed.
        attempts = progress.failures + 1 if progress.scanned < self._failed_upto else 1
        outbound = self._sink.select(page, progress.launched, attempts)
        progress.scanned = page.upto
        if outbound is None:
            return
        if outbound.goes:
            progress.launched = outbound.upto
        delivery = self._spawn(self._sink.deliver(outbound), f"{self.name} {outbound.upto}", expects=RESULTS)
        self._flying.append((outbound, delivery))
        self._tried_upto = max(self._tried_upto, outbound.upto)

    async def _wait(self, progress: _Progress, watch: Watch, more: bool) -> None:
        """Wait until the first batch is done, more can be sent, or a signal comes.

        If the cursor has only passed records that are not sent, store it `IDLE_WRITE` after the last time.
        """
        timeout = None
        if not self._flying and progress.scanned > progress.settled:
            timeout = progress.stored_at + IDLE_WRITE - self._monotonic()
            if timeout <= 0:
                await self._settle_idle(progress)
                return
        elif not self._flying and self._link_log.reason == DATABASE:
            self._link_log.note(LinkState.RUNNING)  # everything that was read is stored
        nudge = asyncio.get_running_loop().create_future()
        if more and not self._flying:
            self._sink.await_room(nudge)
        elif not more and (not self._flying or len(self._flying) < self._sink.window):
            watch.beyond(progress.scanned, nudge)
        await self._first(nudge, [task for _, task in [*self._flying][:1]], timeout)

    async def _first(
        self, nudge: asyncio.Future[None], waits: list[asyncio.Future[Any]], seconds: float | None
    ) -> None:
        """Wait until one of the futures is done, a signal comes, or time is up."""
        assert self._signal is not None
        timer = [] if seconds is None else [self._log.clock.timer(seconds)]
        try:
            await until_any(nudge, [self._signal, *waits, *timer])
        finally:
            for one in timer:
                one.cancel()

    async def _settle(self, progress: _Progress, cursor: Cursor, outbound: OutboundBatch, ack: Ack) -> None:
        now = self._log.clock.now()
        sent = max([progress.sent, *(batch.upto for batch in ack.batches if batch.status)])
        asked = ack.asked
        if ack.upto > progress.settled or ack.batches or ack.effect is not None:
            letters = dead_letters(cursor, outbound, ack, now)
            step = self._step(progress.settled, ack.upto, sent, now)
            step = replace(
                step,
                batches=ack.batches,
                dead_letters=letters,
                protocol=ack.protocol,
                succeeded=asked,
                reason=ack.reason,
            )
            await self._cursors.settle(step, ack)
            self._sink.settled(ack)
            if count := self._letters_added.add(len(letters)):  # the dead letters list all of them
                about = {"count": count, "event_id": letters[0].event_id, "reason": letters[0].reason}
                logger.warning("dead letters added", extra=self._about | about)
            self._loss_log.note(ack.evicted)
            progress.settled, progress.sent = ack.upto, sent
            # A sink may have delivered only a part of its batch, or read beyond it.
            progress.scanned = ack.upto if ack.upto < outbound.upto else max(progress.scanned, ack.upto)
            progress.failures = 0 if asked else progress.failures
            progress.stored_at = self._monotonic()
            progress.healthy = progress.healthy or asked
            if asked:
                self._link_log.note(LinkState.RUNNING)
        if ack.failure is not None:
            raise ack.failure

    def _step(self, position: int, upto: int, sent_upto: int, now: int) -> Step:
        return Step(self.name, position, upto, sent_upto, now, selector_version=self._version)

    async def _settle_idle(self, progress: _Progress, *, succeeded: bool = False) -> None:
        now = self._log.clock.now()
        step = self._step(progress.settled, progress.scanned, progress.sent, now)
        await self._cursors.settle(replace(step, succeeded=succeeded))
        progress.settled = progress.scanned
        progress.stored_at = self._monotonic()
        progress.healthy = progress.healthy or succeeded
        if succeeded:
            self._link_log.note(LinkState.RUNNING)

    async def _forget_failures(self, progress: _Progress) -> None:
        """Show the link as running: all that it has failed to deliver was evicted, or has expired."""
        await self._log.database.write(clear_failures, [self.name], self._log.clock.now())
        progress.failures, progress.healthy = 0, True
        self._link_log.note(LinkState.RUNNING)

    async def _postpone(self, progress: _Progress, held: LinkError, *, failures: int | None = None) -> None:
        now = self._log.clock.now()
        state = {LinkUnavailable: LinkState.BACKING_OFF, Blocked: LinkState.BLOCKED}.get(type(held), LinkState.FAILED)
        failed = progress.failures + 1 if failures is None else failures
        attempts = failed if state is LinkState.BACKING_OFF else AT_CAP
        delay = self._backoff.delay(attempts, self._chance(), retry_after=held.retry_after)
        upto = max(self._tried_upto, progress.settled)
        self._link_log.note(state, held.reason, held.detail)
        retry_at = now + int(delay * SECOND)
        self._countdown.begin(now, retry_at)
        await self._cursors.postpone(
            Postponement(self.name, progress.settled, state, held.reason, held.detail, upto, now, retry_at)
        )

    async def _give_up_flying(self) -> None:
        flying = [task for _, task in self._flying]
        self._flying.clear()
        for task in flying:
            task.cancel()
        await asyncio.gather(*flying, return_exceptions=True)
        await self._sink.given_up()
