"""The shipping of a node's books, as the node sees it: ask for one step, settle what it achieved, rest."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from msgspec.structs import astuple

from eventd.egress.lake.protocol import SEGMENTS, Enrol, Failed, Moved, Rest, Step, Tidied, Tidy, cursor_name
from eventd.egress.lake.worker_client import Courier, ProcessLost
from eventd.egress.loop.trouble import Trouble
from eventd.errors import EventdError, FenceLost
from eventd.lake.extract import Lost, note_lost
from eventd.lake.schema import Book
from eventd.log.core.commit import Transaction
from eventd.log.core.eventlog import EventLog
from eventd.log.core.head import lock_head
from eventd.log.core.values import NOTHING, Appended, Drafts
from eventd.log.cursors.cursors import (
    Cursor,
    LinkState,
    Postponement,
    clear_failures,
    create_cursor,
    delete_cursors,
    read_cursors,
)
from eventd.log.cursors.cursors import Step as CursorStep
from eventd.runtime.backoff import Backoff
from eventd.runtime.clock import SECOND
from eventd.store.engine.database import Connection

BACKOFF: Final = Backoff(base=1.0, cap=60.0)
LOOK_SECONDS: Final = 1.0
"""How often it is looked whether enough has come in to be shipped before the interval is over."""
TIDY_SECONDS: Final = 600.0
BROKEN_SECONDS: Final = 1.0
"""How long to wait when this node's own database is in trouble."""
PROBES: Final = 64
"""As which failure in a row one counts that waits for somebody to do something: it is only probed meanwhile."""

logger = logging.getLogger("eventd.lake")


class Watcher(Protocol):
    """Who is told what is shipped: see `eventd.lake.metrics`."""

    def shipped(self, book: str, rows: int, size: int) -> None: ...

    def held_up(self, state: str, reason: str) -> None: ...

    def rested(self, complete_until: int) -> None: ...

    def tidied(self, compacted: int, removed: int) -> None: ...

    def not_tidied(self, reason: str) -> None: ...


class Segments:
    """Ships without end, and fails for nothing: whatever goes wrong is shown and tried again. `interval` in seconds."""

    def __init__(
        self,
        log: EventLog,
        courier: Courier,
        watcher: Watcher,
        *,
        interval: float,
        rows: int,
        chance: Callable[[], float],
        backoff: Backoff = BACKOFF,
    ) -> None:
        self._log = log
        self._courier = courier
        self._watcher = watcher
        self._interval = interval
        self._rows = rows
        self._chance = chance
        self._backoff = backoff
        self._failures = 0
        self._trouble = Trouble(logger, "shipping to the lake is held up", "shipping to the lake goes on")
        self._tidied_at = float("-inf")
        self._must_tidy = False

    async def run_for_ever(self) -> None:
        """Ship until cancelled."""
        try:
            while True:
                try:
                    await self._advance()
                except FenceLost:
                    continue  # the cursor is elsewhere: the next step begins there
                except EventdError as error:  # this node's own database: nothing can be written down about it
                    self._trouble.note("database", str(error))
                    await self._log.clock.sleep(BROKEN_SECONDS)
                except Exception:  # a fault of ours must not end a node that works
                    logger.exception("shipping failed")
                    await self._log.clock.sleep(BROKEN_SECONDS)
        finally:
            await self._courier.close()

    async def _advance(self) -> None:
        now = self._log.clock.now()
        try:
            answer = await self._courier.ask(Step(now=now))
        except ProcessLost as error:
            answer = Failed(kind="unavailable", reason="process", message=str(error))
        match answer:
            case Enrol():
                await self._log.database.write(enrol, answer.nodes, answer.lake, self._log.clock.now())
            case Moved():
                await self._settle(answer)
            case Failed():
                await self._postpone(answer)
            case Rest():
                await self._rest(answer)
            case Tidied():
                raise AssertionError("a step tidied up")

    async def _settle(self, moved: Moved) -> None:
        name, now = cursor_name(moved.node, moved.book), self._log.clock.now()
        step = CursorStep(name, moved.position, moved.upto, moved.upto, now)
        await self._log.settle(step, _Losses([Lost(*astuple(loss)) for loss in moved.lost]) if moved.lost else None)
        if moved.rows:
            self._watcher.shipped(moved.book, moved.rows, moved.bytes)
        if moved.adopted:
            logger.info("a segment that was written before is taken over", extra={"cursor": name, "upto": moved.upto})

    async def _rest(self, rest: Rest) -> None:
        self._watcher.rested(rest.complete_until)
        if self._failures or self._trouble.kind:
            cursors = await self._log.database.read(read_cursors, SEGMENTS)
            await self._log.database.write(clear_failures, [c.name for c in cursors], self._log.clock.now())
            self._failures = 0
            self._trouble.note("")
        began, head = self._log.clock.monotonic(), self._log.wakeups.head
        await self._tidy_if_due()
        while (left := began + self._interval - self._log.clock.monotonic()) > 0:
            await self._log.clock.sleep(min(left, LOOK_SECONDS))
            if self._log.wakeups.head - head >= self._rows:
                return

    async def _tidy_if_due(self) -> None:
        """One piece of tidying up between two rounds, until nothing is left to do for a while."""
        now = self._log.clock.monotonic()
        if not self._must_tidy and now - self._tidied_at < TIDY_SECONDS:
            return
        self._tidied_at = now
        try:
            answer = await self._courier.ask(Tidy(now=self._log.clock.now()))
        except ProcessLost as error:
            answer = Failed(kind="unavailable", reason="process", message=str(error))
        self._must_tidy = isinstance(answer, Tidied) and answer.more
        if isinstance(answer, Tidied):
            self._watcher.tidied(answer.compacted, answer.removed)
        elif isinstance(answer, Failed):
            self._watcher.not_tidied(answer.reason)
            logger.warning("could not tidy up the lake", extra={"error": answer.message})

    async def _postpone(self, failed: Failed) -> None:
        """Write down with every cursor that shipping is held up, then wait."""
        self._failures += 1
        states = {"unavailable": LinkState.BACKING_OFF, "blocked": LinkState.BLOCKED}
        state = states.get(failed.kind, LinkState.FAILED)
        self._watcher.held_up(state, failed.reason)
        if state is LinkState.FAILED:
            await self._courier.close()  # what it knows may be wrong
        attempts = PROBES if state is LinkState.BLOCKED else self._failures
        delay = self._backoff.delay(attempts, self._chance())
        self._trouble.note(f"{state} {failed.reason}", failed.message)
        now = self._log.clock.now()
        for cursor in await self._log.database.read(read_cursors, SEGMENTS):
            await self._log.postpone(_postponement(cursor, state, failed, now, now + int(delay * SECOND)))
        await self._log.clock.sleep(delay)


def _postponement(cursor: Cursor, state: LinkState, failed: Failed, now: int, retry_at: int) -> Postponement:
    return Postponement(
        cursor.name, cursor.position, state, failed.reason, failed.message, cursor.position, now, retry_at
    )


def enrol(conn: Connection, nodes: Sequence[str], lake: str, now: int) -> None:
    """Make the cursors of these nodes' books, of a lake with this id, in the open transaction.

    One of another lake begins anew: a lake holds all that its nodes still know when it is begun.
    """
    lock_head(conn)
    known = {cursor.name: cursor.selection.get("lake") for cursor in read_cursors(conn, SEGMENTS)}
    for name in (cursor_name(node, book) for node in nodes for book in Book):
        if lake and known.get(name) != lake:
            delete_cursors(conn, [name])
        create_cursor(conn, name, kind=SEGMENTS, topic_id=0, position=0, now=now, selection={"lake": lake})


class _Losses:
    """What retention took before it was shipped becomes a fact of the book of gaps, with the step that found it."""

    topic_id = None

    def __init__(self, lost: Sequence[Lost]) -> None:
        self._lost = lost

    @property
    def weight(self) -> int:
        return len(self._lost)

    def admit(self, tx: Transaction) -> Drafts:
        return NOTHING

    def write(self, tx: Transaction, appended: Appended) -> None:
        note_lost(tx.conn, self._lost, tx.now)
