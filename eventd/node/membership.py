"""This node's membership in one group: its keys, its listener, and one consumer for each link and each repair.

A change of the group restarts only the parts it concerns; a change of one peer restarts that peer's consumers alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from eventd.api.listener.addresses import cannot_listen, patiently
from eventd.api.listener.connection_limiter import ConnectionLimiter, ConnectionMetrics
from eventd.api.listener.connections import open_site
from eventd.api.listener.parsing_time import ParsingTime
from eventd.api.listener.runner import Runner
from eventd.api.peers.listener import KEEPALIVE_SECONDS, build_listener, refused_by_library
from eventd.egress.cursors import PEER, REPAIR, link_name, target_of
from eventd.egress.loop.active import Consumers
from eventd.egress.loop.consumer import Consumer
from eventd.egress.peers.budget import Budget
from eventd.egress.peers.peer import PeerDependencies, PeerMetrics, PeerSink
from eventd.egress.peers.status import StatusMetrics
from eventd.egress.transport.transport import Transport
from eventd.errors import EventdError
from eventd.ingress.claimed_sender import Sender
from eventd.ingress.metrics import IngressMetrics
from eventd.ingress.peers import PeerIngress
from eventd.ingress.refusal_counter import RefusalCounter
from eventd.log.core.eventlog import EventLog
from eventd.log.core.wire_page import WirePage
from eventd.log.cursors.cursors import Cursor
from eventd.net.address_rules import AddressRules
from eventd.node.group_history import GroupHistory, HistoryDependencies, HistoryMetrics
from eventd.node.peer_reports import PeerReports, ReportDependencies
from eventd.node.shipped_trees import ShippedTrees
from eventd.observe.rates import RateHistory
from eventd.resources.group_configuration import GroupConfig, ListenConfig, PeerConfig
from eventd.resources.keyring import load_ring
from eventd.runtime.supervisor import Supervisor
from eventd.tls.contexts import ServerTls
from eventd.tls.files import CertificateUnusable
from eventd.tls.listening import TlsListener
from eventd.tls.reasons import HandshakeFailed
from eventd.witnessing.node_keys import LoadedKeys
from federation.keys import KeyRing

logger = logging.getLogger("eventd.group")

SHUTDOWN_SECONDS = 5.0
"""Seconds that a closing listener waits for requests under way."""
LINGER_SECONDS = 2.0
"""Seconds that the rest of a refused body is read, so that its sender receives the answer."""


class GroupMetrics(IngressMetrics, PeerMetrics, ConnectionMetrics, StatusMetrics, HistoryMetrics, Protocol):
    """Interface of the metrics that a group's ingress, links, listener and map update."""


@dataclass(frozen=True, slots=True)
class GroupDependencies:
    """Dependencies shared by all groups of a process.

    `credentials` is the folder of the service manager's secrets; `max_connections` applies to each listener;
    `peer_rules` judge the addresses of peers; `rates` are those of this process.
    """

    log: EventLog
    transport: Transport
    metrics: GroupMetrics
    supervisor: Supervisor
    credentials: Path | None
    max_connections: int
    refusals: RefusalCounter
    budget: Budget
    parsing: ParsingTime
    peer_rules: AddressRules | None
    rates: RateHistory
    shipped: ShippedTrees

    def reports(self) -> ReportDependencies:
        """Return the dependencies that the reports of peers need."""
        return ReportDependencies(self.log, self.transport, self.peer_rules, self.supervisor, self.rates, self.metrics)

    def histories(self) -> HistoryDependencies:
        """Return the dependencies that the histories of groups need."""
        return HistoryDependencies(
            self.log, self.transport, self.peer_rules, self.supervisor, self.metrics, self.shipped
        )


class Membership:
    """One group on this node.

    `trouble` says, under `keys` or `listen`, why the keys or the listener do not work as declared; it is empty when
    both work. `address` is the host and port of its listener, None without one.
    """

    def __init__(self, config: GroupConfig, topic_id: int, dependencies: GroupDependencies) -> None:
        self.config = config
        self.trouble: dict[str, str] = {}
        self.topic_id = topic_id
        self._dependencies = dependencies
        self._ring: KeyRing | EventdError = KeyRing([])
        self._runner: Runner | None = None
        self._limiter: ConnectionLimiter | None = None
        self._listening: ListenConfig | None = None
        self.tls: ServerTls | None = None
        """The TLS of the listener; None without one, or for plain HTTP."""
        self._links: Consumers[PeerConfig] = Consumers(dependencies.supervisor.keep, self._start)
        self.address: tuple[str, int] | None = None
        self.reports = PeerReports(lambda: self.config, self.ring, dependencies.reports())
        self.history = GroupHistory(lambda: self.config, topic_id, self.ring, dependencies.histories())
        self.ingress = self._make_ingress()

    @property
    def problem(self) -> str:
        """Return why the group does not work as declared; empty if it does."""
        if self._listening != self.config.listen and "listen" not in self.trouble:
            return "the group does not listen yet"
        return "; ".join(self.trouble.values())

    def _make_ingress(self) -> PeerIngress:
        dependencies = self._dependencies
        return PeerIngress(
            self.config,
            self.topic_id,
            dependencies.log,
            self.ring,
            dependencies.metrics,
            dependencies.refusals,
            self.reports,
            self.history.answers,
        )

    # --- keys -------------------------------------------------------------------------------------------------

    def ring(self) -> KeyRing:
        """Return the current keys. Raises `SecretUnreadable` while they cannot be read."""
        if isinstance(self._ring, EventdError):
            raise self._ring
        return self._ring

    async def load_keys(self) -> None:
        """Read the key files again. If one is unusable, log the error once and set `trouble`; `ring` raises it then."""
        try:
            self._ring = await asyncio.to_thread(load_ring, self.config, self._dependencies.credentials)
            self.trouble.pop("keys", None)
        except EventdError as error:
            self._ring = error
            if self._note_trouble("keys", error):
                logger.error("keys unreadable", extra={"group": self.config.name, "error": str(error)})

    def _note_trouble(self, part: str, error: EventdError) -> bool:
        """Set the `trouble` of a part; return whether it is new, and so to be logged."""
        before, self.trouble[part] = self.trouble.get(part), str(error)
        return before != str(error)

    # --- life -------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Read the keys, where a failure only sets `trouble`, and open the listener.

        An address in use is retried for a few seconds. Raises `Unavailable` when it cannot be bound.
        """
        await self.load_keys()
        await patiently(self._listen, self._dependencies.log.clock)

    async def keep_history(self, loaded: LoadedKeys) -> None:
        """Keep the group's history as it is declared now, with the keys of the node."""
        await self.history.keep(loaded)
        self.ingress.history = self.history.answers

    async def update(self, config: GroupConfig) -> None:
        """Apply a changed declaration of the group to its keys, ingress and listener; for its links, call `adjust`."""
        before, self.config = self.config, config
        if before.same_but_peers(config):
            self.ingress.config = config
            return
        await self.load_keys()
        earlier, self.ingress = self.ingress, self._make_ingress()
        self.ingress.counter.counts, self.ingress.mark_queries = earlier.counter.counts, earlier.mark_queries
        if before.listen != config.listen and not self._keeps_listening(config):
            await self.stop_listening()
        await self.recover()
        self.wake_all()

    def _keeps_listening(self, config: GroupConfig) -> bool:
        """Return whether the present listener, with TLS, stays open until the newly declared listener has read its
        certificate."""
        old, new = self._listening, config.listen
        return old is not None and old.tls is not None and new is not None and new.tls is not None

    async def recover(self) -> None:
        """Try again to read the keys and to listen, if that failed before; a failure sets `trouble`."""
        if "keys" in self.trouble:
            await self.load_keys()
        if self._listening != self.config.listen:
            try:
                await self._listen()
            except EventdError as error:
                if self._note_trouble("listen", error):
                    logger.error("listening failed", extra={"group": self.config.name, "error": str(error)})

    async def _listen(self) -> None:
        where = self.config.listen
        if where is None:
            return
        try:
            loaded = await self._load_tls(where)
        except CertificateUnusable as error:  # it does not listen without TLS where TLS is declared
            if self._note_trouble("listen", error):
                logger.error("certificate unusable", extra={"group": self.config.name, "error": str(error)})
            return
        await self.stop_listening()  # as declared before, until the new certificate could be read
        self.tls = loaded
        tls = None if loaded is None else TlsListener(loaded, self._note_failed_handshake)
        limiter = ConnectionLimiter(
            self.config.name, self._dependencies.max_connections, self._dependencies.metrics, self._dependencies.parsing
        )
        runner = Runner(
            build_listener(lambda: self.ingress, limiter),
            self._dependencies.log.chance,
            refused_by_library,
            auto_decompress=False,
            keepalive_timeout=KEEPALIVE_SECONDS,
            shutdown_timeout=SHUTDOWN_SECONDS,
            lingering_time=LINGER_SECONDS,
        )
        await runner.setup()
        try:
            await open_site(runner, limiter, where.address, where.port, tls)
        except OSError as error:
            await runner.cleanup()
            limiter.close()
            what = f"EventGroup {self.config.name!r}: cannot listen on {where.address} port {where.port}"
            raise cannot_listen(
                what, error, "change spec.listen; if another program uses the address, you can stop it instead"
            ) from None
        self._runner, self._limiter, self._listening = runner, limiter, where
        self.address = runner.addresses[0][:2]
        self.trouble.pop("listen", None)
        about = {"address": where.address, "port": where.port, "tls": tls is not None}
        logger.info("listening", extra={"node": self.config.node_name, "group": self.config.name, **about})

    async def _load_tls(self, where: ListenConfig) -> ServerTls | None:
        """Return the TLS of a listener, its files read; None for plain HTTP. Raises `CertificateUnusable`."""
        if where.tls is None:
            return None
        tls = ServerTls(where.tls, self._dependencies.credentials, self._dependencies.log.clock.now)
        await tls.load()
        return tls

    def _note_failed_handshake(self, failure: HandshakeFailed, address: str) -> None:
        self.ingress.counter.count_refused_request(failure.reason, sender=lambda: Sender(address), code="tls")

    async def stop_listening(self) -> None:
        """Close this group's listener; requests under way get up to 5 s (`SHUTDOWN_SECONDS`). Its links continue."""
        runner, self._runner, self._listening, self.address = self._runner, None, None, None
        self.trouble.pop("listen", None)  # of an address that is perhaps no longer declared
        self.tls = None
        if runner is not None:
            await runner.cleanup()
        if self._limiter is not None:
            self._limiter.close()
            self._limiter = None

    async def stop(self, seconds: float) -> None:
        """Stop listening, give every consumer up to `seconds` to settle the work under way, then end it."""
        await self.stop_listening()
        sealed = self._dependencies.supervisor.spawn(
            self.history.end(seconds), f"end of the history of {self.config.name}"
        )
        await self.reports.stop()
        await self._links.end(self._links.names, seconds)
        await sealed

    @property
    def unsettled(self) -> int:
        """Return how many links are to end and still settle the work under way."""
        return self._links.unsettled

    async def leave(self) -> None:
        """End the membership of a deleted group: cancel its deliveries, then close its listener like `stop_listening`.

        Requests under way store nothing, because the group's topic is deleted.
        """
        self.history.stop()
        await self.reports.stop()
        await self._links.end(self._links.names, 0.0)
        await self.stop_listening()

    # --- links ------------------------------------------------------------------------------------------------

    async def retire(self, config: GroupConfig) -> list[str]:
        """End only the consumers that the changed declaration `config` affects. Returns their cursors' names."""
        peers = {peer.node_name: peer for peer in config.peers.values()}
        moved = (config.node_name, config.replay_window) != (self.config.node_name, self.config.replay_window)
        return await self._links.retire(lambda name: None if moved else peers.get(target_of(name)[1]))

    async def adjust(self, cursors: Iterable[Cursor]) -> None:
        """Run a consumer for each cursor of a link or repair to the group's declared peers, and no others."""
        peers = {peer.node_name: peer for peer in self.config.peers.values()}
        mine = {
            cursor.name: cursor
            for cursor in cursors
            if cursor.kind in (PEER, REPAIR) and target_of(cursor.name)[0] == self.config.name
        }
        await self._links.adjust(mine, lambda name: peers.get(target_of(name)[1]))
        self.history.follow_peers()

    def _start(self, cursor: Cursor, peer: PeerConfig) -> Consumer[WirePage]:
        ours, log = self._dependencies, self._dependencies.log
        of_peer = PeerDependencies(
            ours.transport, ours.budget, self.ring, log.clock, log.chance.token, ours.metrics, ours.peer_rules
        )
        link = link_name(self.config.name, peer.node_name)
        return Consumer(
            log,
            cursor.name,
            PeerSink(self.config, peer, link, cursor, of_peer),
            version=cursor.selector_version,
            spawn=ours.supervisor.spawn,
            backoff=peer.backoff,
            chance=log.chance.fraction,
            about={
                "node": self.config.node_name,
                "group": self.config.name,
                "peer": peer.node_name,
                "remote": peer.endpoint,
            },
        )

    def wake(self, node: str) -> None:
        """Shorten the back-off of the links to a peer: the peer called this node, so it is up."""
        for name, consumer in self._links:
            if target_of(name)[1] == node:
                consumer.wake()

    def reopen(self, node: str) -> None:
        """Let the links to a peer ask again for its mark: the peer may have been restarted, and have lost records."""
        for name, consumer in self._links:
            if target_of(name)[1] == node:
                consumer.reopen()

    def wake_all(self) -> None:
        """Let every link and repair of the group read its cursor again: the cause of its failure may be gone."""
        for _, consumer in self._links:
            consumer.reread()

    def count_links(self) -> int:
        """Return the number of consumers, also of repairs, and of ones that have finished."""
        return len(self._links)

    def link_names(self) -> list[str]:
        """Return the names of the consumers' cursors, also of repairs, and of consumers that have finished."""
        return self._links.names


def count_unsettled(groups: Sequence[Membership]) -> dict[str, int]:
    """Return the work under way of groups that stop: links that settle, and histories whose last records are sealed."""
    return {
        "links": sum(group.unsettled for group in groups),
        "histories": sum(group.history.is_ending for group in groups),
    }


def rings_of(groups: Mapping[str, Membership], dependencies: GroupDependencies) -> Callable[[GroupConfig], KeyRing]:
    """Return a function that returns the keys of a group: those in use if this process serves the group, else read
    from the key files.

    It raises `SecretUnreadable`.
    """

    def ring(config: GroupConfig) -> KeyRing:
        here = groups.get(config.name)
        return load_ring(config, dependencies.credentials) if here is None else here.ring()

    return ring
