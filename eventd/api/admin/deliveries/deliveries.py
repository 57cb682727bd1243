"""Deliveries: the state of each event at each peer it is meant for, and their sums."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import Field

from eventd.api.admin.deliveries.peer_ledger import PeerLedger, open_ledger
from eventd.api.framework.moments import read_span, show_seconds, show_time
from eventd.api.framework.operations import Params, Services
from eventd.api.framework.paging import PAGE_SIZE, After, Limit, read_token, write_token
from eventd.groups.links import wanted_by
from eventd.groups.lookup import find_group, peers_of, read_group_topic
from eventd.log.core.blocks import Block, names, unpack
from eventd.log.core.head import read_head
from eventd.log.core.listing import EventQuery, latest, list_latest, refreshed_span
from eventd.log.core.pages import LOOKED_AT, cost_of
from eventd.log.core.scan import blocks_at, outlines
from eventd.log.core.topic_row import TopicRow
from eventd.log.core.values import Head, Record
from eventd.log.delivery.backlog import read_stale
from eventd.log.delivery.selection import Selection
from eventd.log.delivery.states import BlockLedger, Delivery, DeliveryState, UniformDelivery, derive
from eventd.store.engine.database import Connection
from federation.event import format_time, is_alive
from federation.selector import Selector

PAGE = 500
"""Records read in one transaction, so that no reader keeps a snapshot for long."""
SPAN = 50_000
"""Approximate number of records in the blocks that one transaction sums up; fewer if blocks must be decoded."""


class ListDeliveries(Params):
    """Which deliveries to list. Times are of the observation, as RFC 3339 or ages (`15m`)."""

    group: str
    event_id: str = Field(default="", description="Only this event.")
    peer: str = Field(default="", description="Only deliveries to this peer, by its node name.")
    status: list[DeliveryState] = Field(default=[], description="Only deliveries in this state; repeatable.")
    type: list[str] = Field(default=[], description="Only events of this type; repeatable.")
    since: str = Field(default="", description="Only events observed at this time or later.")
    until: str = Field(default="", description="Only events observed at this time or earlier.")
    newest: bool = Field(default=False, description="Newest events first; `after` then continues with older ones.")
    after: After = ""
    limit: Limit = Field(
        default=PAGE_SIZE, description="Maximum rows of the page; those of one event stay together, even if more."
    )


@dataclass(frozen=True, slots=True)
class _ListingContext:
    """The log's end, the topic, and each peer's ledger without its batches, read once for all pages of one request."""

    head: Head
    topic: TopicRow
    peers: Sequence[PeerLedger]


def _open_context(conn: Connection, group: str, peer: str) -> _ListingContext:
    config = find_group(conn, group)
    found = [open_ledger(conn, each) for each in peers_of(config, peer)]
    return _ListingContext(read_head(conn), read_group_topic(conn, group), found)


async def list_deliveries(services: Services, params: ListDeliveries) -> dict[str, Any]:
    now = services.clock.now()
    span = read_span(params.since, params.until, now)
    context = await services.database.read(_open_context, params.group, params.peer)
    place = read_token(params.after, context.head, context.topic)
    rows: list[dict[str, Any]] = []
    last = (place.position or context.head.next_position) if params.newest else place.position
    further: int | None = last if context.peers else None
    full = False
    while further is not None and not full:
        ask = _question(params, context, span, further)
        page, further = await services.database.read(_read_page, context, ask, now)
        for record, deliveries in page:
            fresh = [row for row in _rows(params, context, record, deliveries) if not _left_out(params, row)]
            full = bool(rows) and len(rows) + len(fresh) > params.limit
            if full:
                break
            rows += fresh
            seen = record.position
    return {"deliveries": rows, "next": write_token(context.head, seen) if full else None, "gap": place.gap}


def _question(
    params: ListDeliveries, context: _ListingContext, span: tuple[int | None, int | None], place: int
) -> EventQuery:
    """Return the query of the next page: records after the position `place`, or before it if newest first."""
    return EventQuery(
        topic_id=context.topic.id,
        event_id=params.event_id,
        types=params.type,
        since=span[0],
        until=span[1],
        after=0 if params.newest else place,
        before=place if params.newest else context.head.next_position,
        newest=params.newest,
        limit=PAGE,
    )


Found = tuple[Record, Sequence[Delivery | None]]


def _read_page(conn: Connection, context: _ListingContext, ask: EventQuery, now: int) -> tuple[list[Found], int | None]:
    """Return the next records in the order of the query, and the last position looked at (None at the end).

    Each record comes with its delivery to each of the context's peers, None for a peer that it is not meant for.
    """
    listed = list_latest(conn, ask)
    records = listed.records[::-1] if ask.newest else listed.records
    columns = [derive(conn, each.link, records, now=now) for each in context.peers]
    found: list[Found] = [(record, [column[at] for column in columns]) for at, record in enumerate(records)]
    return found[::-1] if ask.newest else found, listed.seen if listed.more else None


def _left_out(params: ListDeliveries, row: dict[str, Any]) -> bool:
    return bool(params.status) and row["status"] not in params.status


def _rows(
    params: ListDeliveries, context: _ListingContext, record: Record, deliveries: Sequence[Delivery | None]
) -> list[dict[str, Any]]:
    return [
        {
            "eventId": record.event_id,
            "peer": each.peer.node_name,
            "status": str(delivery.state),
            "attempts": delivery.attempts,
            "lastAttemptAt": show_time(delivery.attempted_at),
            "lastError": delivery.error,
            "deliveredAt": show_time(delivery.delivered_at),
            "eventExpiresAt": format_time(record.expires_at),
            "batchId": delivery.batch_id,
            "group": params.group,
            "type": record.tag,
            "subject": record.subject,
            "seq": record.seq,
            "recordedAt": show_time(record.recorded_at),
        }
        for each, delivery in zip(context.peers, deliveries, strict=True)
        if delivery is not None
    ]


class SummariseDeliveries(Params):
    """Which deliveries to sum up."""

    group: str
    peer: str = Field(default="", description="Only deliveries to this peer, by its node name.")
    type: list[str] = Field(default=[], description="Only events of this type; repeatable.")
    include_expired: bool = Field(
        default=False,
        description="Count all expired events; by default only those that expired before the peer had them.",
    )


@dataclass(slots=True)
class _PeerSummary:
    """The sums of one peer's deliveries: numbers, and times in microseconds.

    `max_lag`: from recording to the first acknowledgement. `min_left`: until the next expiry of an event, delivered or
    not.
    """

    states: dict[DeliveryState, int] = field(default_factory=lambda: dict.fromkeys(DeliveryState, 0))
    max_lag: int = 0
    min_left: int | None = None
    stale: int = 0

    def add(self, record: Record, delivery: Delivery, now: int) -> None:
        self.states[delivery.state] += 1
        if delivery.first_at is not None:
            self.max_lag = max(self.max_lag, delivery.first_at - record.recorded_at)
        if record.expires_at is not None and record.expires_at >= now:
            left = record.expires_at - now
            self.min_left = left if self.min_left is None else min(self.min_left, left)

    def add_whole(self, block: Block, uniform: UniformDelivery) -> None:
        """Add all records of a block, none of which expires and all of which have the same delivery state."""
        self.states[uniform.state] += block.records
        if uniform.first_at is not None:
            self.max_lag = max(self.max_lag, uniform.first_at - block.recorded_at)

    def show(self, group: str, peer: str) -> dict[str, Any]:
        states = self.states
        return {
            "group": group,
            "peer": peer,
            "events": sum(states.values()),
            "delivered": states[DeliveryState.DELIVERED],
            "staleTTL": self.stale,
            "failed": states[DeliveryState.FAILED],
            "pending": states[DeliveryState.PENDING],
            "expired": states[DeliveryState.EXPIRED],
            "refused": states[DeliveryState.REFUSED],
            "inPath": states[DeliveryState.IN_PATH],
            "unknown": states[DeliveryState.UNKNOWN],
            "maxLagSeconds": show_seconds(self.max_lag),
            "minExpiresInSeconds": show_seconds(self.min_left or 0),
        }


async def summarise(services: Services, params: SummariseDeliveries) -> dict[str, Any]:
    now = services.clock.now()
    context = await services.database.read(_open_context, params.group, params.peer)
    refreshed = await services.database.read(refreshed_span, context.topic.id)
    sums = [_PeerSummary() for _ in context.peers]
    adding = _SummaryBuilder(params, context, sums, refreshed, now)
    after: int | None = 0 if context.peers else None
    while after is not None:
        after = await services.database.read(adding.add_blocks, after)
    for each, total in zip(context.peers, sums, strict=True):
        total.stale = await services.database.read(_count_stale, context, each, params.type, now)
    rows = [total.show(params.group, each.peer.node_name) for each, total in zip(context.peers, sums, strict=True)]
    return {"summary": rows}


@dataclass(frozen=True, slots=True)
class _SummaryBuilder:
    """Adds up deliveries block by block, and record by record where the records of a block may differ.

    `refreshed` is the range of positions `[first, end)` that contains every record which a later refresh supersedes.
    """

    params: SummariseDeliveries
    context: _ListingContext
    sums: Sequence[_PeerSummary]
    refreshed: tuple[int, int]
    now: int

    def add_blocks(self, conn: Connection, after: int) -> int | None:
        """Add the next blocks after a position to the sums; return the position to continue after, None at the end."""
        some = _next_blocks(outlines(conn, self.context.topic.id, after, self.context.head.last))
        if not some:
            return None
        ends = some[0].position, some[-1].last
        ledgers = [BlockLedger.read(conn, each.link, *ends) for each in self.context.peers]
        apart: list[int] = []
        looked = 0
        for block in some:
            after = block.last
            if not self._add_whole(block, ledgers):
                apart.append(block.position)
                looked += cost_of(block)
                if looked >= LOOKED_AT:
                    break
        for block, _ in blocks_at(conn, apart):
            self._add_singly(conn, unpack(block))
        return after

    def _add_whole(self, block: Block, ledgers: Sequence[BlockLedger]) -> bool:
        """Add a block to the sums of peers it is meant for; return False, with nothing added, if it must be decoded."""
        types, asked = names(block.types), set(self.params.type)
        if asked and types is not None and types.isdisjoint(asked):
            return True
        first, end = self.refreshed
        superseded = block.position < end and block.last >= first
        if superseded or block.expires_first is not None or (asked and (types is None or not types <= asked)):
            return False
        found: list[UniformDelivery | None] = []
        for each, of_peer in zip(self.context.peers, ledgers, strict=True):
            meant = wanted_by(each.peer).settles(block, self.now)
            one = of_peer.uniform(block) if meant else None
            if meant is None or (meant and one is None):
                return False
            found.append(one)
        for total, uniform in zip(self.sums, found, strict=True):
            if uniform is not None:
                total.add_whole(block, uniform)
        return True

    def _add_singly(self, conn: Connection, records: Sequence[Record]) -> None:
        asked = set(self.params.type)
        found = latest(conn, self.context.topic.id, [one for one in records if not asked or one.tag in asked])
        for each, total in zip(self.context.peers, self.sums, strict=True):
            for record, delivery in zip(found, derive(conn, each.link, found, now=self.now), strict=True):
                every = self.params.include_expired
                if delivery is not None and _counts(each, record, delivery, self.now, all_of_them=every):
                    total.add(record, delivery, self.now)


def _next_blocks(blocks: Iterator[Block]) -> list[Block]:
    """Return the next blocks, with about `SPAN` records together; empty at the end."""
    found: list[Block] = []
    records = 0
    for block in blocks:
        found.append(block)
        records += block.records
        if records >= SPAN:
            break
    return found


def _counts(each: PeerLedger, record: Record, delivery: Delivery, now: int, *, all_of_them: bool) -> bool:
    """Return whether a delivery counts: its record is live, or expired undelivered after the peer's cursor was created.

    With `all_of_them`, every delivery counts.
    """
    if all_of_them or is_alive(record.expires_at, now):
        return True
    cursor = each.link.cursor
    lost = delivery.state is DeliveryState.EXPIRED
    return lost and cursor is not None and record.expires_at is not None and record.expires_at >= cursor.created_at


def _count_stale(conn: Connection, context: _ListingContext, each: PeerLedger, types: Sequence[str], now: int) -> int:
    peer, cursor = each.peer, each.link.cursor
    selector = peer.selector
    both = [name for name in types if selector.takes_type(name)] if types else selector.types
    if cursor is None or (types and not both):
        return 0
    narrowed = Selection(Selector.of(types=both, subject_prefixes=selector.subject_prefixes), peer.relay)
    wanted = narrowed.wanted_by(peer.node_name)
    return len(read_stale(conn, context.topic.id, wanted, after=cursor.position, now=now))
