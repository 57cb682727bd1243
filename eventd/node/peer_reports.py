"""The reports of a group's peers about their links.

Peers are asked only while a map of the group is open, at this node or one hop away. Each request for the map is a
lease of 30 s. While one lasts, each peer is asked every 10 s at most, and less often if it does not answer; without
one, no peer is asked. One answer serves all maps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from eventd.egress.peers.status import OLDER, UNREACHABLE, LinksUntold, StatusAsker, StatusMetrics
from eventd.egress.transport.transport import Transport
from eventd.groups.group_map import ANSWERED, GroupView, PeerReport
from eventd.groups.lookup import peers_of
from eventd.groups.own_links import LinkRates, read_own_links
from eventd.log.core.eventlog import EventLog
from eventd.net.address_rules import AddressRules
from eventd.observe.rates import INBOUND, LINK, RateHistory
from eventd.resources.group_configuration import GroupConfig, PeerConfig
from eventd.runtime.supervisor import Supervisor
from federation.keys import KeyRing
from federation.peers import PROTOCOL_V1
from federation.status import OLDEST_SECONDS, NodeReport, StatusQuestion

LEASE_SECONDS: Final = 30.0
"""How long after the last request for a map the peers are asked."""
ROUND_SECONDS: Final = 10.0
SLOWEST_SECONDS: Final = 60.0
"""Maximum number of seconds between two questions to a peer that does not answer: the pause doubles up to this."""
OLDER_SECONDS: Final = 300.0
"""Seconds between two questions to a peer that does not know the question: it may have been upgraded in the
meantime."""
MOST_ASKED: Final = 256
"""Maximum number of peers of a group that are asked."""
ASKED_AT_ONCE: Final = 16
OWN_SECONDS: Final = 5.0
"""Seconds for which this node's own links, once read, serve all requests."""
OWN_REST: Final = 20
"""The minimum of that time, as a multiple of the time that reading the links took."""
MINUTE_TICKS: Final = 12
"""Number of samples of the rates in a minute."""
PENDING: Final = "pending"


@dataclass(frozen=True, slots=True)
class ReportDependencies:
    """Dependencies shared by the reports of all groups.

    `rules` judge the addresses of peers; `rates` are the rates of this process.
    """

    log: EventLog
    transport: Transport
    rules: AddressRules | None
    supervisor: Supervisor
    rates: RateHistory
    metrics: StatusMetrics


@dataclass(slots=True)
class _Peer:
    """What is known of a peer: its last answer, which arrived at `at`, and how the last question ended.

    Times are monotonic; `due` is when the peer is asked again.
    """

    outcome: str = PENDING
    report: NodeReport | None = None
    others: tuple[NodeReport, ...] = ()
    at: float = 0.0
    due: float = 0.0
    failures: int = 0


class PeerReports:
    """The reports of one group's peers in memory, and of this node itself. `config` returns the group as declared."""

    def __init__(
        self, config: Callable[[], GroupConfig], ring: Callable[[], KeyRing], dependencies: ReportDependencies
    ) -> None:
        self._config = config
        self._dependencies = dependencies
        self._clock = dependencies.log.clock
        random = dependencies.log.chance.token
        self._asker = StatusAsker(dependencies.transport, ring, self._clock, random, dependencies.rules)
        self._peers: dict[str, _Peer] = {}
        self._until = [0.0, 0.0]
        """When the leases end: at index 0 the lease of other nodes that ask, at index 1 that of this node's own
        maps."""
        self._task: asyncio.Task[None] | None = None
        self._round_done = asyncio.Event()
        self._own: NodeReport | None = None
        self._own_at = self._own_until = 0.0
        self._reading = asyncio.Lock()

    # --- being asked ------------------------------------------------------------------------------------------

    async def report(self, hops: int) -> tuple[NodeReport, Sequence[NodeReport]]:
        """Return this node's report and the reports that its peers have given.

        With `hops`, the peers are asked again for a while.
        """
        if hops:
            self._lease(0)
        return await self._read_own(), list(self._told())

    def _told(self) -> Iterator[NodeReport]:
        now = self._clock.monotonic()
        for known in self._peers.values():
            if known.report is not None:
                age = round(now - known.at + known.report.age_seconds, 3)
                if age <= OLDEST_SECONDS:
                    yield msgspec.structs.replace(known.report, age_seconds=age)

    async def view(self, wait: float) -> GroupView:
        """Return what this node knows of the group, and keep asking the peers for reports for a while.

        If peers have not been asked yet, wait up to `wait` seconds for their first answers.
        """
        self._lease(1)
        names = [peer.node_name for peer in peers_of(self._config())]
        if wait and not self._round_done.is_set():
            done = self._dependencies.supervisor.spawn(self._round_done.wait(), "a map")
            await asyncio.wait([done], timeout=wait)
            done.cancel()
        own = await self._read_own()
        return GroupView(own=own, peers=tuple(self._show(name) for name in names))

    def _show(self, name: str) -> PeerReport:
        known = self._peers.get(name, _Peer())
        if known.report is None:
            return PeerReport(node=name, answer=known.outcome)
        age = round(self._clock.monotonic() - known.at, 3)
        return PeerReport(node=name, answer=known.outcome, age_seconds=age, report=known.report, others=known.others)

    async def _read_own(self) -> NodeReport:
        """Return the links of this node, read anew if they are older than `OWN_SECONDS`."""
        async with self._reading:
            now = self._clock.monotonic()
            if self._own is None or now >= self._own_until:
                config = self._config()
                history = self._dependencies.rates
                rates = LinkRates(*(history.means(kind, config.name, MINUTE_TICKS) for kind in (LINK, INBOUND)))
                read = self._dependencies.log.database.read
                self._own = await read(read_own_links, config, self._clock.now(), rates)
                self._own_at = self._clock.monotonic()
                self._own_until = self._own_at + max(OWN_SECONDS, OWN_REST * (self._own_at - now))
            age = round(self._clock.monotonic() - self._own_at, 3)
            return msgspec.structs.replace(self._own, age_seconds=age)

    # --- asking -----------------------------------------------------------------------------------------------

    def _lease(self, hops: int) -> None:
        self._until[hops] = self._clock.monotonic() + LEASE_SECONDS
        if self._task is None or self._task.done():
            self._round_done.clear()
            self._task = self._dependencies.supervisor.spawn(self._ask_while_leased(), "a map")

    async def stop(self) -> None:
        """Stop asking the peers."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _ask_while_leased(self) -> None:
        while (begun := self._clock.monotonic()) < max(self._until):
            hops = int(begun < self._until[1])
            await self._ask_all(StatusQuestion(hops))
            self._round_done.set()
            await self._clock.sleep(max(0.1, begun + ROUND_SECONDS - self._clock.monotonic()))

    async def _ask_all(self, question: StatusQuestion) -> None:
        """Ask the peers that are due, of the first `MOST_ASKED`.

        A few are asked at the same time, so that a slow one does not delay the others.
        """
        config, now = self._config(), self._clock.monotonic()
        peers = peers_of(config)[:MOST_ASKED]
        self._peers = {peer.node_name: self._peers.get(peer.node_name, _Peer()) for peer in peers}
        due = [peer for peer in peers if self._peers[peer.node_name].due <= now]
        if not due:
            return
        spawn, rest = self._dependencies.supervisor.spawn, iter(due)
        asking = [spawn(self._ask_in_turn(config, rest, question), "a question") for _ in due[:ASKED_AT_ONCE]]
        try:
            await asyncio.wait(asking)
        finally:
            for task in asking:
                task.cancel()

    async def _ask_in_turn(self, config: GroupConfig, due: Iterator[PeerConfig], question: StatusQuestion) -> None:
        for peer in due:
            await self._ask(config, peer, question)

    async def _ask(self, config: GroupConfig, peer: PeerConfig, question: StatusQuestion) -> None:
        known = self._peers[peer.node_name]
        try:
            answer = await self._asker.ask(config, peer, question)
        except LinksUntold as untold:
            known.outcome, known.failures = untold.reason, known.failures + 1
            if untold.reason != UNREACHABLE:  # it has answered: what it told before is no longer what it tells
                known.report, known.others = None, ()
            pause = OLDER_SECONDS if untold.reason == OLDER else min(SLOWEST_SECONDS, 5.0 * 2**known.failures)
        else:
            known.outcome, known.failures = ANSWERED, 0
            known.report, known.others, known.at = answer.own, answer.others, self._clock.monotonic()
            pause = ROUND_SECONDS / 2
        known.due = self._clock.monotonic() + (0.0 if peer.protocol == PROTOCOL_V1 else pause)
        self._dependencies.metrics.status_asked(config.name, known.outcome)
