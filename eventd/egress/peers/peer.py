"""A peer as a sink: which events it gets, over which protocol, and its mark."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from eventd.egress.loop.sink import Ack, Blocked, LinkError, OpenResult
from eventd.egress.peers.budget import Allowance, Budget
from eventd.egress.peers.leaf_hints import LeafHints
from eventd.egress.peers.outbound_batch import OutboundLines, PeerBatch
from eventd.egress.peers.push_v1 import PAGE, V1, PushV1
from eventd.egress.peers.push_v2 import V2, Link, PushV2, V2Unsupported
from eventd.egress.peers.range_start import RangeStart, compare_mark
from eventd.egress.transport.transport import Transport
from eventd.log.core.eventlog import EventLog
from eventd.log.core.wire_page import WirePage
from eventd.log.cursors.cursors import Cursor
from eventd.log.cursors.steps import GAP_PROTOCOL, DeliveredBatch
from eventd.log.delivery.selection import Selection
from eventd.net.address_rules import AddressRules
from eventd.resources.group_configuration import GroupConfig, PeerConfig
from eventd.runtime.clock import SECOND, Clock
from eventd.tracing import tracing
from eventd.tracing.spans import Attributes
from federation.keys import KeyRing


class PeerMetrics(Protocol):
    """Interface of the metrics of deliveries to peers. Times are in seconds."""

    def delivered(self, group: str, peer: str, count: int, size: int, lag: float) -> None: ...

    def rejected(self, group: str, peer: str, count: int) -> None: ...

    def lost(self, group: str, peer: str, most: int) -> None: ...

    def failed(self, group: str, peer: str, reason: str) -> None: ...

    def not_opened(self, group: str, peer: str, reason: str) -> None: ...

    def skewed(self, group: str, peer: str, seconds: float) -> None: ...


@dataclass(frozen=True, slots=True)
class PeerDependencies:
    """Dependencies shared by the sinks of a group. `random` returns random bytes, `ring` the group's current keys.

    `rules` judge the addresses of peers.
    """

    transport: Transport
    budget: Budget
    ring: Callable[[], KeyRing]
    clock: Clock
    random: Callable[[int], bytes]
    metrics: PeerMetrics
    rules: AddressRules | None = None


class PeerSink:
    """Delivers to one peer for one cursor: its own, or a repair's.

    `link` is the name of the peer's own cursor, under which deliveries are recorded.
    """

    def __init__(
        self, group: GroupConfig, peer: PeerConfig, link: str, cursor: Cursor, dependencies: PeerDependencies
    ) -> None:
        self._group = group
        self._peer = peer
        self._dependencies = dependencies
        self._repair = cursor.kind == "repair"
        selection = Selection.from_json(cursor.selection) if self._repair else Selection.of(peer)
        self._wanted = selection.wanted_by(peer.node_name)
        on = Link(
            cursor=link,
            group=group.name,
            node=group.node_name,
            peer=peer.node_name,
            endpoint=peer.endpoint,
            seconds=peer.timeout,
            window=group.replay_window,
            selector_version=cursor.selector_version,
            repair=self._repair,
            tls=peer.tls,
            rules=dependencies.rules,
        )
        self._v1 = PushV1(on, dependencies.transport, dependencies.ring, dependencies.clock)
        self._v2 = PushV2(
            on, dependencies.transport, dependencies.ring, dependencies.clock, dependencies.random, self._skewed
        )
        self._protocol = "" if peer.protocol == "auto" else peer.protocol
        self._room = Allowance(dependencies.budget, peer.batch_bytes)
        self._leaves = LeafHints()
        self._opened = False
        self._primed = False
        self._start = RangeStart()

    @property
    def window(self) -> int:
        """Return how many batches may be under way.

        At most one over v1, for repairs, and until the first receipt since the link was opened; otherwise see
        `Allowance`.
        """
        wide = self._protocol == V2 and self._primed and not self._repair
        return self._room.window(self._peer.in_flight if wide else 1)

    def await_room(self, nudge: asyncio.Future[None]) -> None:
        """Have `nudge` completed when it is this link's turn and the budget has room for a batch; perhaps at once."""
        self._room.wait(nudge)

    @property
    def own(self) -> bool:
        """Return whether the peer gets only records that entered the log at this node, as it does without relay."""
        return self._wanted.own

    async def read(self, log: EventLog, cursor: Cursor, after: int) -> WirePage:
        """Return the next page for this peer: without lines before `open`, empty if the memory for it is not free."""
        page = await log.lines(
            cursor.topic_id,
            after,
            replace(self._wanted, runs=self._v2.takes_runs and self._protocol == V2),
            limit=PAGE if self._protocol == V1 else self._peer.batch_events,
            max_bytes=self._room.take(),
            until=cursor.until,
            at_tail=self._primed,
        )
        self._v2.head = page.head
        if not self._opened:  # a peer that does not answer even the opening must not hold memory for a batch
            self._room.drop()
            return page.without_lines()
        page = page if self._room.keep(len(page.body)) else page.unread(after)
        self._room.is_in_step = not page.full
        if self._group.keeps_history and page.count and self._protocol == V2:
            return replace(page, hints=await self._leaves.hints_of(log, cursor.topic_id, page, after, own=self.own))
        return page

    async def open(self, cursor: Cursor, page: WirePage, *, start: bool) -> OpenResult:
        """Find out the protocol; over v2, except for a repair, compare the peer's mark with its latest confirmation."""
        try:
            opened = await self._open(cursor, page, start=start)
        except LinkError as held:
            self._dependencies.metrics.not_opened(self._group.name, self._peer.node_name, held.reason)
            raise
        self._opened = True
        return opened

    async def _open(self, cursor: Cursor, page: WirePage, *, start: bool) -> OpenResult:
        self._primed = False
        if self._peer.protocol == "auto":
            self._protocol = cursor.protocol if cursor.protocol == V2 else ""
        if self._protocol == V1:
            return OpenResult(reached=False, unknown=True)
        try:
            mark = await self._v2.mark(start=start)
        except V2Unsupported as answer:
            if self._protocol == V2:
                raise Blocked("no_v2", f"{answer}, but this link uses only v2") from None
            self._protocol = V1
            return OpenResult(reached=True)
        self._protocol = V2
        if not self._repair:
            self._start = compare_mark(self._peer.node_name, mark, cursor, page.head, gap_end(page))
        return OpenResult(reached=True, proven=V2)

    def select(self, page: WirePage, after: int, attempts: int) -> PeerBatch | None:
        """Return the whole page as a batch; None without records, exceptions or a gap to report."""
        # Retention keeps only records that entered here: records to be relayed may be gone.
        if page.gaps and not self._wanted.own:
            self._start = self._start._replace(gone_until=gap_end(page))
        reports = not page.count and self._must_report_gap(page, after)
        if not page.count and not page.exceptions and not reports:
            self._room.drop()
            return None
        self._room.carry()
        after, lost = self._start.begin(after, gap_end(page), page.lost_position)
        if lost is not None and self._protocol == V1:
            # No range continues here: the loss begins where the page does, and is noted once.
            lost = max(lost, page.gaps[0].after) if page.gaps else lost
            self._start = RangeStart()
        bare = reports and self._protocol != V1
        lines, head = OutboundLines(page.body, page.count, page.oldest, page.form), page.head
        begin = (after, page.upto, head.epoch, head.incarnation)
        evicted = 0 if lost is None else most_evicted(page, lost, after)
        return PeerBatch(*begin, lines, page.exceptions, lost, attempts, bare, page.hints, evicted)

    def _must_report_gap(self, page: WirePage, after: int) -> bool:
        if self._repair:
            return False
        return self._start.must_report(gap_end(page), after, page.lost_position, page.upto)

    async def deliver(self, outbound: PeerBatch) -> Ack:
        """Deliver over the protocol that was found; without anything to send, only return the ledger rows.

        v1 cannot report a loss: without records to send, the ledger row of the loss is all that is left of it.
        """
        if not outbound.goes:
            unsent = (self._unsent(outbound),) if outbound.exceptions else ()
            return self._with_loss(outbound, Ack(outbound.upto, unsent))
        if not tracing.on:
            return await self._send(outbound)
        links = [context for _, context in tracing.sampled.between(outbound.after, outbound.upto)]
        about: Attributes = {
            "eventd.group": self._group.name,
            "eventd.node": self._group.node_name,
            "eventd.peer": self._peer.node_name,
            "eventd.protocol": self._protocol,
            "eventd.events": len(outbound.records),
        }
        with tracing.span("send", "client", links=links, attributes=about):
            return await self._send(outbound)

    async def _send(self, outbound: PeerBatch) -> Ack:
        try:
            ack = await (self._v1 if self._protocol == V1 else self._v2).push(outbound)
        except LinkError as held:
            self._dependencies.metrics.failed(self._group.name, self._peer.node_name, held.reason)
            held.__context__ = None  # an error may hold this task, the task the error, and both the batch
            raise
        self._primed, self._start = True, self._start._replace(fresh=False)
        self._room.answers = self._room.answers or ack.asked
        if outbound.records:
            self._count(outbound, ack)
        return self._with_loss(outbound, ack)

    def settled(self, ack: Ack) -> None:
        """Give the memory of the oldest batch under way back to the budget, and count the loss before it.

        An attempt whose result was not committed is made again, with the same loss.
        """
        self._room.settled()
        if ack.evicted:
            self._dependencies.metrics.lost(self._group.name, self._peer.node_name, ack.evicted)

    async def given_up(self) -> None:
        """Give all memory back to the budget. The next attempt opens the link again."""
        self._opened = self._primed = False
        self._room.end()

    def wind_down(self) -> None:
        """Do nothing: a request under way has its own time limit."""

    def _count(self, outbound: PeerBatch, ack: Ack) -> None:
        where = (self._group.name, self._peer.node_name)
        if ack.asked:
            lag = (self._dependencies.clock.now() - outbound.records.oldest) / SECOND
            events, size = sum(batch.events for batch in ack.batches), sum(batch.bytes for batch in ack.batches)
            self._dependencies.metrics.delivered(*where, events, size, max(0.0, lag))
        if ack.refused:
            self._dependencies.metrics.rejected(*where, len(ack.refused))
        if ack.failure is not None:
            self._dependencies.metrics.failed(*where, ack.failure.reason)

    def _with_loss(self, outbound: PeerBatch, ack: Ack) -> Ack:
        """Add the ledger row of the events that were evicted before the batch, if there are any."""
        after = outbound.lost
        if after is None or self._repair:
            return ack
        row = replace(
            self._v2.row(outbound, (), status=0),
            after=after,
            upto=outbound.after,
            events=0,
            exceptions=(),
            protocol=GAP_PROTOCOL,
        )
        return replace(ack, batches=(row, *ack.batches), evicted=outbound.evicted)

    def _unsent(self, outbound: PeerBatch) -> DeliveredBatch:
        """Return the ledger row for a page from which nothing is sent, because all of its records are exceptions: the
        row shows their outcome."""
        return self._v2.row(outbound, (), status=0)

    def _skewed(self, seconds: float) -> None:
        self._dependencies.metrics.skewed(self._group.name, self._peer.node_name, seconds)


def gap_end(page: WirePage) -> int:
    """Return where the evicted positions at the beginning of a page end; 0: there are none."""
    return page.gaps[-1].upto if page.gaps else 0


def most_evicted(page: WirePage, after: int, upto: int) -> int:
    """Return the number of events that retention removed at positions in `(after, upto]`, or more.

    Records of other topics have positions, too. But there are no more events than retention has removed from the group.
    """
    positions = upto - after
    return min(positions, page.gaps[-1].upto_seq) if page.gaps else positions
