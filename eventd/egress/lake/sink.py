"""The lake as a sink: the consumer asks for one segment after the other, and the shipping process writes them.

A lake has one cursor for each ledger of each node name. They succeed and fail together, so the consumer sees them as
one: `LedgerCursors`. The shipping process decides which ledger is next.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

from msgspec.structs import astuple

from eventd.egress.lake.protocol import (
    SEGMENTS,
    Answer,
    CursorsMissing,
    Failure,
    Request,
    RoundEnd,
    Shipment,
    ShippedCheckpoints,
    ShipRequest,
    SignedFiles,
    TidyRequest,
    TidyResult,
    cursor_name,
)
from eventd.egress.lake.signed_files import keep_signed_files
from eventd.egress.lake.worker_client import WorkerClient, WorkerLost
from eventd.egress.loop.sink import Ack, Blocked, LinkError, LinkUnavailable, OpenResult, OutboundBatch
from eventd.lake.extract import EvictedRows, note_lost
from eventd.lake.schema import Ledger
from eventd.log.core.commit import Transaction
from eventd.log.core.eventlog import EventLog
from eventd.log.core.head import lock_head
from eventd.log.core.values import NOTHING, AppendResult, Drafts
from eventd.log.cursors.cursors import Cursor, clear_failures, create_cursor, delete_cursors, read_cursors
from eventd.log.cursors.steps import Postponement, Step
from eventd.store.engine.database import Connection
from eventd.witnessing.own_files import OwnFiles

LOOK_SECONDS: Final = 1.0
"""Seconds between checks of an idle sink whether enough new records justify an early round."""
TIDY_SECONDS: Final = 600.0
"""Seconds after which the lake is tidied again, once nothing was left to tidy."""

logger = logging.getLogger("eventd.lake")


class LakeMetrics(Protocol):
    """Interface of the metrics of shipping and tidying: see `eventd.lake.metrics`."""

    def shipped(self, book: str, rows: int, size: int) -> None: ...

    def held_up(self, state: str, reason: str) -> None: ...

    def rested(self, complete_until: int) -> None: ...

    def tidied(self, compacted: int, removed: int) -> None: ...

    def not_tidied(self, reason: str) -> None: ...


@dataclass(frozen=True, slots=True)
class RoundPage:
    """A page without rows, because only the shipping process reads them. It always claims that there may be more."""

    upto: int
    full: bool = True


@dataclass(frozen=True, slots=True)
class LakeAck(Ack):
    """The result of a step, with the shipping process's answer: None after tidying, or after cursors were created.

    Only the end of a round proves that nothing is wrong with the lake.
    """

    answer: Shipment | RoundEnd | None = None

    @property
    def asked(self) -> bool:
        return isinstance(self.answer, RoundEnd)


class LakeSink:
    """Ships in rounds: the next begins `interval` seconds after one ended, or earlier after `rows` new log entries.

    `shipped` is called with the last checkpoints of the node's trees that the lake has, before the first round. `files`
    get the checkpoints of the files at the end of each.
    """

    own = False

    def __init__(
        self,
        log: EventLog,
        worker: WorkerClient,
        metrics: LakeMetrics,
        *,
        interval: float,
        rows: int,
        shipped: Callable[[Sequence[str]], None] = lambda _: None,
        files: OwnFiles | None = None,
    ) -> None:
        self._log = log
        self._monotonic = log.clock.monotonic
        self._worker = worker
        self._metrics = metrics
        self._interval = interval
        self._rows = rows
        self._shipped = shipped
        self._files = OwnFiles() if files is None else files
        self._rest_until = float("-inf")
        self._head = 0
        self._tidied_at = float("-inf")
        self._tidy_due = False

    @property
    def window(self) -> int:
        return 0 if self._rest_seconds() > 0 and not self._tidy_due else 1

    def _rest_seconds(self) -> float:
        enough = self._log.wakeups.head - self._head >= self._rows
        return 0.0 if enough else self._rest_until - self._monotonic()

    def await_room(self, nudge: asyncio.Future[None]) -> None:
        timer = self._log.clock.timer(max(0.0, min(self._rest_seconds(), LOOK_SECONDS)))
        timer.add_done_callback(lambda _: None if nudge.done() else nudge.set_result(None))
        nudge.add_done_callback(lambda _: timer.cancel())

    async def read(self, log: EventLog, cursor: Cursor, after: int) -> RoundPage:
        return RoundPage(after)

    async def open(self, cursor: Cursor, page: RoundPage, *, start: bool) -> OpenResult:
        return OpenResult(reached=True)

    def select(self, page: RoundPage, after: int, attempts: int) -> OutboundBatch:
        return OutboundBatch(page.upto, page.upto + 1, "", 0, (), attempts=attempts, bare=True)

    async def deliver(self, outbound: OutboundBatch) -> LakeAck:
        """Take one step of tidying if that is due, else of the round; create cursors that are missing."""
        if self._tidy_due:
            self._tidy_due = False
            await self._tidy()
            return LakeAck(outbound.after)
        held, cosigned = self._files.held_sizes(), self._files.cosigned()
        answer = await self._ask(ShipRequest(now=self._log.clock.now(), held=held, cosigned=cosigned))
        match answer:
            case Shipment() | RoundEnd():
                for one in answer.offered if isinstance(answer, RoundEnd) else ():
                    proofs = {size: tuple(map(bytes.fromhex, proof)) for size, proof in one.proofs.items()}
                    self._files.note_signed(one.node, one.note, proofs)
                return LakeAck(outbound.upto, answer=answer)
            case ShippedCheckpoints():
                self._shipped(answer.notes)
                return LakeAck(outbound.after)
            case CursorsMissing():
                await self._log.database.write(enrol, answer.nodes, answer.lake, self._log.clock.now())
                return LakeAck(outbound.after)
            case Failure():
                raise await self._failed(answer)
            case TidyResult():
                raise AssertionError("the shipping process tidied up instead of shipping")

    async def _ask(self, request: Request) -> Answer:
        try:
            return await self._worker.ask(request)
        except WorkerLost as error:
            return Failure(kind="unavailable", reason="process", message=str(error))

    async def _failed(self, failure: Failure) -> LinkError:
        kinds = {"unavailable": LinkUnavailable, "blocked": Blocked}
        if failure.kind not in kinds:
            await self._worker.close()  # its cached state may be wrong
        return kinds.get(failure.kind, LinkError)(failure.reason, failure.message)

    async def _tidy(self) -> None:
        """Let the process take one step of tidying; if more is left, the next step follows the next round."""
        self._tidied_at = self._monotonic()
        answer = await self._ask(TidyRequest(now=self._log.clock.now()))
        if isinstance(answer, TidyResult):
            self._metrics.tidied(answer.compacted, answer.removed)
            if answer.more:
                self._tidied_at = float("-inf")
        elif isinstance(answer, Failure):
            self._metrics.not_tidied(answer.reason)
            logger.warning("lake tidying failed", extra={"error": answer.message})

    def settled(self, ack: Ack) -> None:
        if isinstance(ack, LakeAck) and isinstance(ack.answer, RoundEnd):
            self._rest_until, self._head = self._monotonic() + self._interval, self._log.wakeups.head
            self._tidy_due = self._monotonic() - self._tidied_at >= TIDY_SECONDS

    async def given_up(self) -> None:
        """Do nothing: the next step adopts a segment that was written and not settled."""

    def wind_down(self) -> None:
        """Do nothing: a step may be interrupted at any point."""


class LedgerCursors:
    """The cursors of all ledgers as one, whose position counts the steps since the node started.

    Its failures are stored with each ledger's cursor only for operators to see. What counts is kept in memory, so a
    restarted node tries at once.
    """

    def __init__(self, log: EventLog, metrics: LakeMetrics) -> None:
        self._log = log
        self._metrics = metrics
        self._cursor = Cursor(SEGMENTS, SEGMENTS, topic_id=0, position=0)
        self._clear = True  # an earlier process may have stored failures
        self._files: tuple[SignedFiles, ...] = ()

    async def read(self) -> Cursor:
        return self._cursor

    async def settle(self, step: Step, ack: Ack | None = None) -> None:
        answer = ack.answer if isinstance(ack, LakeAck) else None
        if isinstance(answer, Shipment):
            await self._move(answer, step.now)
        elif isinstance(answer, RoundEnd):
            self._metrics.rested(answer.complete_until)
            if answer.files != self._files:
                await self._keep(answer.files)
            if self._clear:
                names = [cursor.name for cursor in await self._log.database.read(read_cursors, SEGMENTS)]
                await self._log.database.write(clear_failures, names, step.now)
            self._cursor, self._clear = Cursor(SEGMENTS, SEGMENTS, topic_id=0, position=step.position), False
        self._cursor = replace(self._cursor, position=step.upto)

    async def _keep(self, files: tuple[SignedFiles, ...]) -> None:
        for gone in await self._log.database.write(keep_signed_files, files):
            known = {"node": gone.node, "tree": gone.tree, "size": gone.size}
            logger.warning("lake tree replaced", extra=known)
        self._files = files

    async def _move(self, shipment: Shipment, now: int) -> None:
        name = cursor_name(shipment.node, shipment.book)
        losses = _Losses([EvictedRows(*astuple(loss)) for loss in shipment.lost]) if shipment.lost else None
        await self._log.settle(Step(name, shipment.position, shipment.upto, shipment.upto, now), losses)
        if shipment.rows:
            self._metrics.shipped(shipment.book, shipment.rows, shipment.bytes)
        if shipment.adopted:
            logger.info("segment adopted", extra={"cursor": name, "upto": shipment.upto})

    async def postpone(self, failure: Postponement) -> None:
        """Store the failure with the cursor of every ledger, and keep it in memory."""
        self._metrics.held_up(failure.state, failure.reason)
        self._clear = True
        for cursor in await self._log.database.read(read_cursors, SEGMENTS):
            at = cursor.position
            await self._log.postpone(replace(failure, name=cursor.name, position=at, attempted_upto=at))
        self._cursor = replace(
            self._cursor,
            state=failure.state,
            reason=failure.reason,
            attempts=self._cursor.attempts + 1,
            attempted_at=failure.now,
            retry_at=failure.retry_at,
        )


def enrol(conn: Connection, nodes: Sequence[str], lake: str, now: int) -> None:
    """Create the cursors of these nodes' ledgers, for the lake with this id, in the open transaction.

    A cursor of another lake is replaced by a new one: a lake gets every row that the node still has. With an empty
    `lake`, only missing cursors are created.
    """
    lock_head(conn)
    known = {cursor.name: cursor.selection.get("lake") for cursor in read_cursors(conn, SEGMENTS)}
    for name in (cursor_name(node, book) for node in nodes for book in Ledger):
        if lake and known.get(name) != lake:
            delete_cursors(conn, [name])
        create_cursor(conn, name, kind=SEGMENTS, topic_id=0, position=0, now=now, selection={"lake": lake})


class _Losses:
    """Records ledger rows that were lost before they were shipped as gaps, in the transaction of their step."""

    topic_id = None

    def __init__(self, lost: Sequence[EvictedRows]) -> None:
        self._lost = lost

    @property
    def weight(self) -> int:
        return len(self._lost)

    def admit(self, tx: Transaction) -> Drafts:
        return NOTHING

    def write(self, tx: Transaction, appended: AppendResult) -> None:
        note_lost(tx.conn, self._lost, tx.now)
