"""A sink scripted by a test, and the consumers that feed it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from eventd.egress.loop.consumer import Consumer
from eventd.egress.loop.sink import Ack, OpenResult, OutboundBatch, RecordRefusal
from eventd.log.core.eventlog import EventLog
from eventd.log.core.matching_page import MatchingPage
from eventd.log.core.values import Record
from eventd.log.cursors.cursors import Cursor, create_cursor, read_cursor
from eventd.log.cursors.steps import DeliveredBatch
from eventd.runtime.backoff import Backoff
from eventd.runtime.supervisor import Supervisor
from tests.support.reading import read_records

BACKOFF = Backoff(base=1.0, cap=8.0, jitter=0.5)
"""With a random factor of 0 a delay is nominal: 1, 2, 4, 8, 8 … seconds."""

Answer = Callable[[OutboundBatch], Ack | Awaitable[Ack]] | BaseException


def row(
    outbound: OutboundBatch, cursor: str, *, upto: int | None = None, status: int = 200, sent_at: int = 0
) -> DeliveredBatch:
    """Return the ledger row of a batch, or of its beginning up to `upto`."""
    end = outbound.upto if upto is None else upto
    return DeliveredBatch(
        cursor=cursor,
        batch_id=f"{outbound.after}-{end}",
        epoch=outbound.epoch,
        incarnation=outbound.incarnation,
        after=outbound.after,
        upto=end,
        events=sum(record.position <= end for record in outbound.records),
        bytes=0,
        selector_version=1,
        exceptions=[(at, why) for at, why in outbound.exceptions if at <= end],
        picked=(),
        attempts=outbound.attempts,
        sent_at=sent_at,
        acked_at=sent_at,
        status=status,
        protocol="v2",
        key_id="k",
        receipt="",
    )


@dataclass
class ScriptedSink:
    """Records the matching events. Each delivery consumes one of `answers`; without any, the whole batch is
    accepted."""

    cursor: str
    window: int = 1
    own: bool = False
    page: tuple[int, int] = (1000, 1 << 20)
    matches: Callable[[Record], bool] = lambda record: True
    spoils: Callable[[Record], str] = lambda record: ""  # why a matching record must not be sent
    reached: bool = True
    unknown: bool = False
    opening: deque[BaseException] = field(default_factory=deque)
    answers: deque[Answer] = field(default_factory=deque)
    opened: int = 0
    starts: list[bool] = field(default_factory=list)  # what each opening said
    batches: list[OutboundBatch] = field(default_factory=list)
    taken: list[str] = field(default_factory=list)

    def await_room(self, nudge: asyncio.Future[None]) -> None: ...

    async def read(self, log: EventLog, cursor: Cursor, after: int) -> MatchingPage[Record]:
        limit, max_bytes = self.page
        return await read_records(
            log, cursor.topic_id, after, limit=limit, max_bytes=max_bytes, until=cursor.until, own=self.own
        )

    async def open(self, cursor: Cursor, page: MatchingPage[Record], *, start: bool) -> OpenResult:
        self.opened += 1
        self.starts.append(start)
        if self.opening:
            raise self.opening.popleft()
        return OpenResult(self.reached, unknown=self.unknown)

    def select(self, page: MatchingPage[Record], after: int, attempts: int) -> OutboundBatch | None:
        matching = [record for record in page.items if self.matches(record)]
        exceptions = [(record.position, why) for record in matching if (why := self.spoils(record))]
        records = [record for record in matching if not self.spoils(record)]
        if not matching:
            return None
        head = page.head
        return OutboundBatch(after, page.upto, head.epoch, head.incarnation, records, exceptions, attempts=attempts)

    async def deliver(self, outbound: OutboundBatch) -> Ack:
        self.batches.append(outbound)
        answer = self.answers.popleft() if self.answers else self.take
        if isinstance(answer, BaseException):
            raise answer
        ack = answer(outbound)
        return ack if isinstance(ack, Ack) else await ack

    def settled(self, ack: Ack) -> None: ...

    async def given_up(self) -> None: ...

    def wind_down(self) -> None: ...

    def take(self, outbound: OutboundBatch) -> Ack:
        """Return an answer that accepts the whole batch."""
        self.taken += [record.event_id for record in outbound.records]
        return Ack(outbound.upto, (row(outbound, self.cursor, status=200 if outbound.records else 0),), (), "v2")

    def refuse(self, *event_ids: str) -> Answer:
        """Return an answer that accepts all but these events."""

        def answer(outbound: OutboundBatch) -> Ack:
            refused = [record for record in outbound.records if record.event_id in event_ids]
            self.taken += [record.event_id for record in outbound.records if record not in refused]
            batch = replace(row(outbound, self.cursor), exceptions=[(r.position, "refused") for r in refused])
            return Ack(
                outbound.upto, (batch,), [RecordRefusal(r, "bad", f"will not have {r.event_id}") for r in refused]
            )

        return answer

    def take_until(self, event_id: str, held_up: Any) -> Answer:
        """Return an answer that accepts up to and including this event, and is then blocked."""

        def answer(outbound: OutboundBatch) -> Ack:
            ids = [record.event_id for record in outbound.records]
            count = ids.index(event_id) + 1
            self.taken += ids[:count]
            upto = outbound.records[count - 1].position
            return Ack(upto, (row(outbound, self.cursor, upto=upto),), (), "v2", held_up)

        return answer

    def later(self) -> tuple[Answer, asyncio.Future[Answer]]:
        """Return an answer that waits for a future, and the future."""
        told: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        async def wait(outbound: OutboundBatch) -> Ack:
            answer = await told
            if isinstance(answer, BaseException):
                raise answer
            ack = answer(outbound)
            assert isinstance(ack, Ack)
            return ack

        return wait, told


@dataclass
class RunningConsumer:
    """A running consumer."""

    consumer: Consumer
    task: asyncio.Task[None]
    log: EventLog
    name: str

    async def cursor(self) -> Cursor:
        return await self.log.database.read(read_cursor, self.name)

    async def at(self, position: int) -> bool:
        return (await self.cursor()).position == position


@asynccontextmanager
async def run_consumer(
    log: EventLog, sink: ScriptedSink, topic: int, *, chance: float = 0.0, **cursor: Any
) -> AsyncIterator[RunningConsumer]:
    """Yield a running consumer of the sink's cursor, which is created at the beginning of the topic if it is
    missing."""
    values = {"kind": "peer", "position": 0, "now": log.clock.now(), **cursor}
    await log.database.write(create_cursor, sink.cursor, topic_id=topic, **values)
    supervisor = Supervisor(log.clock)
    consumer = Consumer(
        log, sink.cursor, sink, version=1, spawn=supervisor.spawn, backoff=BACKOFF, chance=lambda: chance
    )
    running = supervisor.keep(consumer.run, sink.cursor)
    try:
        yield RunningConsumer(consumer, running, log, sink.cursor)
    finally:
        await supervisor.stop()
