"""A callback as a sink: reads the records of its source, collects them into batches, and delivers these in order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from eventd.egress.callbacks.batches import BatchLimits, ItemWindow, MessageBatch, cut
from eventd.egress.callbacks.delivery import CallbackDelivery, CallbackMetrics, PageSource
from eventd.egress.callbacks.endpoint import SECRET_UNREADABLE, CallbackEndpoint, ReadSecrets
from eventd.egress.callbacks.formats import EXPIRED, STANDARD, CallbackItem
from eventd.egress.callbacks.gap import GapReport
from eventd.egress.callbacks.rate import RateLimiter
from eventd.egress.callbacks.selection import CallbackReader, CallbackSelection
from eventd.egress.loop.collecting import Collector
from eventd.egress.loop.sink import Ack, Blocked, LinkError, OpenResult, OutboundBatch
from eventd.egress.peers.budget import Allowance, Budget
from eventd.egress.transport.transport import Transport
from eventd.log.core.eventlog import EventLog
from eventd.log.core.losses import Loss
from eventd.log.core.topic_row import TopicRow, find_topic_by_id, seq_at
from eventd.log.cursors.cursors import Cursor, clear_failures
from eventd.log.topics.source_page import SourcePage, SourceStart, read_source_page, recent_source_page
from eventd.net.address_rules import AddressRules
from eventd.resources.callback_configuration import CallbackConfig
from eventd.runtime.supervisor import SpawnTask
from eventd.store.engine.database import Connection
from eventd.store.rows.callback_attempts import CallbackAttempt
from federation.event import is_alive

READ_AHEAD = 256
"""Maximum number of events that are read together for a callback that gets single ones."""
_UNBOUNDED = 1 << 30


@dataclass(frozen=True, slots=True)
class CallbackDependencies:
    """Dependencies shared by the callbacks of a process."""

    log: EventLog
    transport: Transport
    rules: AddressRules
    budget: Budget
    metrics: CallbackMetrics
    spawn: SpawnTask


@dataclass(frozen=True, slots=True)
class CallbackPage:
    """A page of a callback's items; everything up to `upto` was read. `losses` come before the first item."""

    upto: int
    full: bool
    items: Sequence[CallbackItem] = ()
    losses: Sequence[Loss] = ()
    source: PageSource | None = None

    @property
    def size(self) -> int:
        return sum(item.size for item in self.items)


@dataclass(frozen=True, slots=True)
class CallbackOutbound(OutboundBatch):
    """The first page of a batch; the sink reads the rest by itself. `losses` precede its records."""

    records: Sequence[CallbackItem]
    full: bool = False
    losses: Sequence[Loss] = ()
    source: PageSource | None = None


class CallbackSink:
    """Delivers to one callback, for its own cursor or for a resend's.

    `ledger` is the name of the callback's own cursor, under which deliveries are recorded; `selection` says which
    records of its topic it gets. `secrets` reads its present secrets, `rate` limits its requests.
    """

    own = False

    def __init__(
        self,
        config: CallbackConfig,
        selection: CallbackSelection,
        cursor: Cursor,
        ledger: str,
        secrets: ReadSecrets,
        rate: RateLimiter,
        dependencies: CallbackDependencies,
    ) -> None:
        self._config = config
        self._selection = selection
        self._topic_id = cursor.topic_id
        self._until = cursor.until
        self._log = log = dependencies.log
        self._metrics = dependencies.metrics
        self._collector = Collector(log, cursor.topic_id, selection.families)
        self._room = Allowance(dependencies.budget, config.max_bytes)
        self._endpoint = endpoint = CallbackEndpoint(
            config, dependencies.transport, dependencies.rules, secrets, log.clock, rate
        )
        self._delivery = CallbackDelivery(
            config, endpoint, log, cursor, ledger, self._next_after, dependencies.metrics, dependencies.spawn
        )
        self._attempts = self._delivery.attempts
        self._gaps = GapReport(config, endpoint, log, cursor, ledger, dependencies.metrics)
        self._limits = BatchLimits(config.max_events, config.max_bytes, config.window)
        self._topic: TopicRow | None = None
        self._seqs: dict[int, int] = {}  # of the positions where a page may begin
        self._page: CallbackPage | None = None  # what is left of the last one
        self._at = 0
        self._opened = self._follows = False
        self._is_stored = True  # the result of the last request

    @property
    def window(self) -> int:
        """Return 1 if the budget has room for a batch, otherwise 0."""
        return self._room.window(1)

    def await_room(self, nudge: asyncio.Future[None]) -> None:
        """Have `nudge` completed when it is this callback's turn and the budget has room for a batch."""
        self._room.wait(nudge)

    # --- reading ----------------------------------------------------------------------------------------------

    async def read(self, log: EventLog, cursor: Cursor, after: int) -> CallbackPage:
        """Return the next page. It has no items before `open` was called, or if there is no memory for them."""
        if not self._opened:
            return CallbackPage(after, True)
        self._at, size = after, self._room.take()
        page = self._rest(after, size) or await self._find(after, max(self._config.max_events, READ_AHEAD), size)
        self._page = None
        if not self._room.keep(page.size):
            return CallbackPage(after, True)
        self._room.is_in_step = not page.full
        return page

    def _rest(self, after: int, size: int) -> CallbackPage | None:
        """Return the rest of the page that the last run has not delivered, if it can be continued; None otherwise."""
        page, until = self._page, self._end
        if page is None or page.losses or until is not None or not page.items or page.items[-1].position <= after:
            return None
        items = [item for item in page.items if item.position > after]
        now = self._log.clock.now()
        if not all(is_alive(item.expires_at, now) for item in items):
            return None  # read again, which omits the expired ones
        rest = CallbackPage(page.upto, page.full, items, (), page.source)
        return rest if rest.size <= size else None

    async def _find(self, after: int, limit: int, max_bytes: int) -> CallbackPage:
        again = self._attempts.until is not None
        # A batch that was tried before is the same again, although some of its events may have expired since.
        reader = CallbackReader(
            self._selection, self._config.format, self._config.name, 0 if again else self._log.clock.now()
        )
        if again:
            limit = max_bytes = _UNBOUNDED
        seq = self._seqs.get(after)
        found = None
        if self._follows and self._topic is not None and seq is not None and self._end is None:
            start = SourceStart(after, seq)
            found = recent_source_page(self._log, self._topic, start, reader, limit=limit, max_bytes=max_bytes)
        if found is None:
            found = await self._log.database.read_for_delivery(
                _read, self._topic_id, after, seq, reader, self._end, limit, max_bytes
            )
        if found is None:
            raise Blocked("no_topic", f"the topic of the callback {self._config.name} was deleted")
        return self._as_page(found)

    def _as_page(self, found: SourcePage[CallbackItem]) -> CallbackPage:
        self._topic, self._follows = found.topic, not found.full
        self._seqs = {found.upto: found.upto_seq} | {item.position: item.seq for item in found.items}
        omitted = self._attempts.omitted
        # They had expired when the batch was first tried: exceptions of it, although they were not judged again.
        items = (
            [_omitted(item) if item.position in omitted else item for item in found.items] if omitted else found.items
        )
        full = found.full and not self._is_complete(found.upto)
        return CallbackPage(found.upto, full, items, found.losses, PageSource(found.topic.name, found.head))

    @property
    def _end(self) -> int | None:
        """Return the last position of the batch that is tried again, or of the resend; None without an end."""
        return self._until if self._attempts.until is None else self._attempts.until

    def _is_complete(self, upto: int) -> bool:
        return self._end is not None and upto >= self._end

    async def _next_after(self, after: int) -> MessageBatch | None:
        """Return the batch of the next single event after a position; None if there is none, or losses come first."""
        omitted: list[CallbackItem] = []
        reader = CallbackReader(self._selection, self._config.format, self._config.name, self._log.clock.now())
        at, full, limit = after, not self._ends_at(after), 1
        while full:
            found = await self._log.database.read_for_delivery(
                _read, self._topic_id, at, None, reader, self._until, limit, self._limits.bytes
            )
            if found is None or found.losses:
                return None
            for item in found.items:
                if not item.omitted:
                    return MessageBatch(after, item.position, [item], omitted)
                omitted.append(item)
            at, full = found.upto, found.full and not self._ends_at(found.upto)
            limit = READ_AHEAD  # where one event has expired, others often have, too
        return None

    def _ends_at(self, upto: int) -> bool:
        """Return whether a resend has no records beyond this position."""
        return self._until is not None and upto >= self._until

    async def open(self, cursor: Cursor, page: CallbackPage, *, start: bool) -> OpenResult:
        """Read the secrets, and recall earlier attempts at the next events. Raises `LinkError`.

        Nothing is sent, so the endpoint is not `reached`. A callback whose secrets have become readable is running
        again, although it may have nothing to send.
        """
        self._follows, self._page = False, None
        await self._endpoint.require_secrets()
        if cursor.reason == SECRET_UNREADABLE:
            await self._log.database.write(clear_failures, [cursor.name], self._log.clock.now())
        await self._attempts.recall(cursor.position)
        self._opened = True
        return OpenResult(reached=False)

    def select(self, page: CallbackPage, after: int, attempts: int) -> CallbackOutbound | None:
        """Return the page as the first of a batch; None if it has neither items nor losses."""
        if page.source is None or not (page.items or page.losses):
            if self._is_complete(page.upto) and page.source is not None:
                self._attempts.forget()  # the events of the earlier attempt are no longer stored
            self._room.drop()
            return None
        self._room.carry()
        head = page.source.head
        return CallbackOutbound(
            self._at,
            page.upto,
            head.epoch,
            head.incarnation,
            page.items,
            full=page.full,
            losses=page.losses,
            source=page.source,
        )

    # --- delivering -------------------------------------------------------------------------------------------

    async def deliver(self, outbound: CallbackOutbound) -> Ack:
        """Collect events until a batch closes, send it, and return the result. Losses are reported first, and alone.

        If the node stops before a batch closes, nothing is settled. Raises `LinkError`.
        """
        assert outbound.source is not None
        try:
            if outbound.losses:
                following = outbound.records[0] if outbound.records else None
                upto = outbound.upto if following is None else following.position - 1
                await self._require_storing()
                return await self._gaps.report(outbound.losses, outbound.after, upto, outbound.source)
            batches = await self._collect(outbound)
            await self._require_storing()
            ack = Ack(0) if batches is None else await self._delivery.deliver(batches, outbound.source)
        except LinkError as error:
            error.__context__ = None  # an error may hold this task, the task the error, and both the batch
            raise
        self._room.answers = self._room.answers or ack.asked
        if 0 < ack.upto < outbound.upto and ack.failure is None:
            self._page = CallbackPage(outbound.upto, outbound.full, outbound.records, (), outbound.source)
        return ack

    async def _require_storing(self) -> None:
        """Raise the database's error if the result of the last request could not be stored, and still nothing can.

        Otherwise the endpoint would get the same message every second, for as long as a disk is full.
        """
        if not self._is_stored:
            await self._log.try_writing()
        self._is_stored = False

    async def _collect(self, outbound: CallbackOutbound) -> list[MessageBatch] | None:
        """Return the full batches of the page or, without any, one batch once its window has closed.

        None when stopped.
        """
        if self._attempts.until is None:
            batches = cut(outbound.records, outbound.after, outbound.upto, self._limits)
            full = [batch for batch in batches if batch.is_full]
            if full or not any(batch.items for batch in batches) or self._config.format == STANDARD:
                return full or batches
        gathered = ItemWindow(self._limits, outbound.records)

        async def find(after: int, _shift: int) -> CallbackPage:  # the window has its first item already
            page = await self._find(after, gathered.room, gathered.room_bytes)
            if page.losses:
                gathered.is_cut = True
                return CallbackPage(after, False)
            gathered.add(page.items)
            return page

        upto = await self._collector.collect(gathered, outbound.upto, outbound.full, find, self._is_complete)
        if upto is None:
            return None
        if self._attempts.until is not None:  # exactly the batch that was tried before
            sent = [item for item in gathered.items if not item.omitted]
            omitted = [item for item in gathered.items if item.omitted]
            return [MessageBatch(outbound.after, upto, sent, omitted, is_full=False)]
        return cut(gathered.items, outbound.after, upto, self._limits)[:1]

    def settled(self, ack: Ack) -> None:
        """Note that the result is committed, and return the batch's memory to the budget."""
        self._is_stored = ack.failure is None
        self._attempts.passed(ack)
        self._room.settled()

    def note_stored(self) -> None:
        """Note that the failure of the last request is committed."""
        self._is_stored = True

    async def given_up(self) -> None:
        """Return all memory to the budget. The next attempt opens the callback again."""
        self._opened, self._page = False, None
        self._room.end()

    def wind_down(self) -> None:
        """Collect no further events; a request under way may finish."""
        self._collector.wind_down()

    def take_failures(self) -> list[CallbackAttempt]:
        """Return the attempts that failed, once, so that they are stored with the cursor, which waits now."""
        failed = [*self._gaps.take_failures(), *self._attempts.take_failures()]  # newest last: that of a batch
        if failed:
            self._metrics.postponed(self._config.name, failed[-1].events)
        return failed


def _omitted(item: CallbackItem) -> CallbackItem:
    """Return an item that an earlier attempt at its batch left out, with the reason."""
    return item if item.omitted else item._replace(omitted=EXPIRED)


def _read(
    conn: Connection,
    topic_id: int,
    position: int,
    seq: int | None,
    reader: CallbackReader,
    until: int | None,
    limit: int,
    max_bytes: int,
) -> SourcePage[CallbackItem] | None:
    """Return the next page after a position, whose seq is `seq`; if `seq` is None, it is looked up."""
    if seq is None:
        topic = find_topic_by_id(conn, topic_id)
        if topic is None:
            return None
        found = seq_at(conn, topic, position)
        # Evicted since: at most so many records were after the position.
        seq = max(0, topic.evicted_seq - (topic.evicted_position - position)) if found is None else found
    start = SourceStart(position, seq)
    return read_source_page(
        conn, topic_id, start, reader, until=until, limit=limit, max_bytes=max_bytes, expire_at=None
    )
