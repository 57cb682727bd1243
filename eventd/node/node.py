"""The whole node on one page: it builds, starts and stops everything."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Sequence
from functools import partial
from typing import Any

import eventd
from eventd.api.admin.bulk.bulk_runner import BulkJobRunner
from eventd.api.app import KEEPALIVE_SECONDS, build_app
from eventd.api.framework.callers import Callers
from eventd.api.framework.limits import ConcurrencyLimits, Limits
from eventd.api.framework.operations import GROUP, Services
from eventd.api.framework.recorder import ActionRecorder
from eventd.api.framework.worker_key_uses import WorkerKeyUses
from eventd.api.framework.worker_peers import WorkerPeers
from eventd.api.framework.worker_rates import WorkerRates
from eventd.api.keys.valid_keys import Keys
from eventd.api.listener.addresses import listen
from eventd.api.listener.connection_limiter import ConnectionLimiter
from eventd.api.listener.connections import open_site_at
from eventd.api.listener.local_connections import LocalListener
from eventd.api.listener.local_socket import LocalSocket
from eventd.api.listener.parsing_time import ParsingTime
from eventd.api.listener.runner import Runner
from eventd.api.topics.calls import V0, Serving
from eventd.console.mount import mount_console
from eventd.dynamic.effective import Following
from eventd.egress.callbacks.sink import CallbackDependencies
from eventd.egress.callbacks.tester import CallbackTester
from eventd.egress.peers.budget import Budget
from eventd.egress.routers.pump import Routing
from eventd.egress.subscriptions.runner import SubscriptionDependencies
from eventd.egress.transport.transport import Transport
from eventd.errors import EventdError
from eventd.log.core.eventlog import EventLog
from eventd.net.local_socket import DATABASE_HEADER, LISTEN_HEADER
from eventd.node import lake_shipping, surface_log
from eventd.node.callback_metrics import DeliveryMetrics
from eventd.node.callback_notices import CallbackNotices
from eventd.node.callbacks import Callbacks
from eventd.node.certificates import Certificates
from eventd.node.change_follower import ChangeFollower
from eventd.node.due_batches import DueSubscriberBatches
from eventd.node.garbage import Garbage
from eventd.node.group_views import VIEW, answer_view, read_view
from eventd.node.housekeeping import Housekeeping
from eventd.node.link_wakeups import NodeMetrics
from eventd.node.machine_access import MACHINE, MachineAccess
from eventd.node.membership import SHUTDOWN_SECONDS, GroupDependencies, Membership, count_unsettled, rings_of
from eventd.node.rate_sampler import RateSampler
from eventd.node.reconciler import Reconciler
from eventd.node.routemaster import SURFACE, RoutemasterListener, SurfaceDependencies
from eventd.node.schedules import Schedules
from eventd.node.stream_tenants import StreamTenants
from eventd.node.streams import NodeStreams
from eventd.node.subscriptions import Subscribers
from eventd.node.topic_changes import TopicChanges
from eventd.plugins.run.context import context_of
from eventd.plugins.run.plugins import Plugins
from eventd.resources.callback_secret_files import CallbackSecretFiles
from eventd.resources.subscriber_configuration import subscriber_limits
from eventd.runtime.chance import Chance
from eventd.runtime.clock import Clock
from eventd.runtime.stopping import OpenParts, StopState
from eventd.runtime.supervisor import Chore, Supervisor
from eventd.runtime.worker_share import ALL, Share
from eventd.settings.environment import plugin_environment
from eventd.settings.identity import identify
from eventd.settings.model import Settings
from eventd.settings.values import Endpoint
from eventd.store.engine.claim import DatabaseClaim
from eventd.store.engine.database import Database
from eventd.store.engine.space import shortage
from eventd.store.rows.keys import read_keys
from eventd.store.schema.migrations import require_current
from eventd.tls.listening import open_api_tls

logger = logging.getLogger("eventd.node")
MOST_UNTRUSTED = 2048
"""Maximum number of the API's connections that are untrusted, unless `max_connections` is higher: a high limit for
streams must not let handshakes that never end fill memory. A client is untrusted until it has sent a request."""


class Node:
    """One process of a node, which does its `share` of the work over one database.

    Call `start`, then `run_until_stopped`; `stop` drains and closes. The node ends with an error when another node
    takes over its `claim` on the database. The API is served on `sockets`, which listen already, or else on the
    configured address, and also on the `local` socket, if there is one, which a whole node binds, publishes and closes.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock,
        chance: Chance,
        claim: DatabaseClaim | None = None,
        share: Share = ALL,
        sockets: Sequence[socket.socket] = (),
        local: LocalSocket | None = None,
        machine: MachineAccess = MACHINE,
    ) -> None:
        self.settings = settings
        self.keys = Keys.of(settings, clock)
        self.api_address: tuple[str, int] | None = None
        self.groups: dict[str, Membership] = {}
        self.metrics = NodeMetrics(self.groups)
        self.routemaster: RoutemasterListener | None = None
        self.streams: NodeStreams | None = None
        self._clock = clock
        self._chance = chance
        self._claim = claim
        self._share = share
        self._sockets = sockets
        self._local = local
        self._machine = machine
        database = partial(Database, settings.database_url, chance=chance, threads=machine.threads)
        database = partial(database, boot_id=machine.boot_id, rewrite=machine.rewrite)
        self._open_database = partial(database, is_first=share.is_first or share.resumed)
        self._workers = WorkerPeers(share, self.readiness, self.metrics)
        self._stopped = asyncio.Event()
        self._parts = OpenParts()
        self._leaving: list[Membership] = []  # the groups that are being stopped

    # --- starting ---------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the database, the groups and the API, in this order. On an error, close what was opened."""
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        self.supervisor = Supervisor(self._clock, self.metrics.task_failed)
        self._stopping = asyncio.get_running_loop().create_future()
        self._parts.add("tasks", self.supervisor.stop)
        claim = self._claim.name if self._claim else self._share.claim
        database = await asyncio.to_thread(self._open_database, shared=not self._share.is_whole, claim=claim)
        self._parts.add("database", lambda: asyncio.to_thread(database.close))
        if check := database.claim_check():
            self._parts.add("claim", check.close)
            self._workers.check_claim = check.ask
        await asyncio.to_thread(require_current, database)
        self.log = await EventLog.open(database, self._clock, timed=self.metrics.committed)
        self.rates = RateSampler(self.log, self.metrics.traffic)
        self._housekeeping = Housekeeping(self.log, self.settings, self.metrics, self._share)
        self.recorder = ActionRecorder(database, self._clock, self.metrics)
        self._parts.add("writer", self.log.close, lambda: {"writes": self.log.units})
        self._parts.add("housekeeping", self._housekeeping.end)
        self._parts.add("refused actions", partial(self.recorder.refused.write, ends=True))
        await self._housekeeping.begin()
        await self._read_keys()
        self.keys.require_any()
        self.following = Following(database, self._clock)
        transport = await self._open_tls()
        self.stream_tenants = StreamTenants(self.settings, transport, database.threads, self._clock)
        self._parts.add("tenants", self.stream_tenants.keys.close)
        self.outbox = Budget(self.settings.max_outbox_bytes, self._count_links, self._clock)
        self.metrics.outbox(lambda: self.outbox.held, lambda: self.outbox.waiting)
        self._dependencies = GroupDependencies(
            self.log,
            transport,
            self.metrics,
            self.supervisor,
            self.settings.credentials_directory,
            self.settings.max_connections,
            self._housekeeping.refusals,
            self.outbox,
            ParsingTime(),
            self.settings.peer_rules,
            self.rates.history,
            lake_shipping.await_shipped(self.settings, self._share),
        )
        self._parts.add("groups", self._stop_groups, lambda: count_unsettled(self._leaving))
        self.reconciler = Reconciler(self.settings, self._share, self.log, self.groups, self._declared_anew)
        self.subscribers = self._make_subscribers()
        self.callbacks = self._make_callbacks()
        self.reconciler.begin(self._dependencies, self.subscribers, self.callbacks, self.schedules)
        self.routing = Routing(
            self.log,
            lambda: self.reconciler.configs,
            self.supervisor.spawn,
            self.settings.max_total_bytes,
            lazy=not self._share.is_first,
        )
        self.topics = TopicChanges(self.log, self.keys, self.routing, self.reconciler.subscriptions_changed)
        self.changes = ChangeFollower(self.log, self.following, self.topics, self.reconciler, self._clock)
        self._parts.add("routers", self.routing.stop)
        await self.reconciler.apply(strict=True)
        await self.routing.load()
        await self._serve_api()
        self._keep_up()

    async def _open_tls(self) -> Transport:
        """Read the certificate of the API; return the transport to peers. Raises `CertificateUnusable`."""
        credentials = self.settings.credentials_directory
        self._tls = await open_api_tls(self.settings.api_tls, credentials, self._clock)
        threads = self.log.database.threads
        transport = Transport(self._clock, credentials, threads=threads, open_address=self._machine.open_address)
        self._parts.add("transport", transport.close)
        self.certificates = Certificates(
            self.settings.api_tls,
            self._tls.tls if self._tls else None,
            self.groups,
            transport,
            self.metrics,
            self._clock,
            credentials,
            lambda: self.callbacks.tls(),
        )
        return transport

    def _count_links(self) -> int:
        return sum(group.count_links() for group in self.groups.values()) + len(self.callbacks)

    def _make_subscribers(self) -> Subscribers:
        threads = self.log.database.threads
        environment = plugin_environment()
        plugins = Plugins(self._clock, environment=environment, threads=threads, run_program=self._machine.run_program)
        self.schedules = Schedules(self.log, plugins, self.supervisor.keep, self.following.changed)
        dependencies = SubscriptionDependencies(
            self.log,
            plugins,
            lambda plugin: context_of(plugin, self.reconciler.declared),
            self.following.changed,
            self.metrics.subscriptions,
        )
        self._parts.add("plugins", plugins.close)
        subscribers = Subscribers(dependencies, self.supervisor, self._chance.fraction)
        close = partial(subscribers.stop, self.settings.drain_timeout)
        self._parts.add("subscriptions", close, lambda: {"plugins": subscribers.unsettled})
        self._parts.add("schedules", self.schedules.stop)
        return subscribers

    def _make_callbacks(self) -> Callbacks:
        settings, log = self.settings, self.log
        rules = settings.callback_rules
        transport = self._dependencies.transport
        files = CallbackSecretFiles(log.database.threads, settings.credentials_directory)
        self._parts.add("callback secrets", files.close)
        self._tester = CallbackTester(transport, rules, self._clock, self._chance, files, subscriber_limits(settings))
        metrics = DeliveryMetrics(self.metrics.callbacks, self.metrics.routemaster, self.metrics.traffic)
        dependencies = CallbackDependencies(log, transport, rules, self.outbox, metrics, self.supervisor.spawn)
        notices = CallbackNotices(log, settings.notices_topic, self.supervisor.spawn)
        callbacks = Callbacks(dependencies, self.supervisor, self._chance.fraction, files, notices.notify)
        close = partial(callbacks.stop, settings.drain_timeout)
        self._parts.add("callbacks", close, lambda: {"callbacks": callbacks.unsettled})
        return callbacks

    def _keep_up(self) -> None:
        settings, share = self.settings, self._share
        chores: dict[str, Chore] = {}
        if share.is_first:  # first, because it may refuse to start
            chores = lake_shipping.chores(self._dependencies, settings, self.metrics.lake, self._chance.fraction)
            jobs = BulkJobRunner(self.log, self.keys, self.metrics, alone=settings.group is None)
            chores["jobs"] = jobs.run_for_ever
        chores |= {
            "changes": self.changes.follow_changes,
            "topics": self.topics.run_for_ever,
            "writing": self.changes.follow_writing,
            **self._housekeeping.chores(lambda: self.reconciler.configs.values()),
            "group recovery": self.reconciler.recover_for_ever,
            "subscribers": self.reconciler.follow_subscriptions,
            "effective configuration": self.following.run_for_ever,
            "routers": self.routing.run_for_ever,
            "rates": self.rates.run_for_ever,
            "garbage": Garbage(self._clock).collect_for_ever,
            "certificates": self.certificates.refresh_for_ever,
            "refused actions": self.recorder.refused.write_for_ever,
            **self.stream_tenants.chores(),
            **surface_log.chores(settings, share, self._workers.collect, self.metrics.routemaster, self._clock),
        }
        # A working node must not end for a failure in one chore: each is run again.
        self._chores = [self.supervisor.keep(chore, name) for name, chore in chores.items()]
        if self._claim is not None:  # without the claim, another node may serve the database
            self._chores.append(self.supervisor.guard(self._claim.keep(self._clock.sleep), "claim"))
        self._parts.add("chores", self._end_chores)

    async def _serve_api(self) -> None:
        settings = self.settings
        limiter = ConnectionLimiter(
            "",
            settings.max_connections + settings.max_sse_connections,
            self.metrics,
            self._dependencies.parsing,
            most_untrusted=max(settings.max_connections, MOST_UNTRUSTED),
        )
        local = None if self._local is None else self._make_local_listener(self._local)
        callers = Callers(self.keys, limiter, local)
        self._workers.answer_with(VIEW, partial(answer_view, self.groups))
        v0 = self._make_v0(callers)
        services = self._make_services(local)
        app = build_app(
            services,
            callers,
            self._workers,
            version=eventd.__version__,
            v0=v0,
            tokens=self.stream_tenants.issuer,
            recorder=self.recorder,
        )
        mount_console(app, services, v0, callers, self.recorder, settings, eventd.__version__, self._describe_address)
        runner = Runner(app, self._chance, keepalive_timeout=KEEPALIVE_SECONDS, shutdown_timeout=SHUTDOWN_SECONDS)
        await runner.setup()
        self._parts.add("api", runner.cleanup)
        await open_site_at(runner, limiter, self._sockets or await listen(*settings.api_listen, self._clock), self._tls)
        self.api_address = runner.addresses[0][:2]
        self._parts.add("workers", self._workers.close)
        if local is not None:
            await local.open(runner)
        await self._workers.open(runner, local)
        if self._local is not None and self._share.is_whole and not self._local.publish():
            self.supervisor.keep(partial(self._local.keep_publishing, self._clock.sleep), "local socket")
        await self._serve_routemaster(v0.serving.concurrency)
        await self._serve_streams(v0)

    def _describe_address(self) -> str:
        """Return the address of the API, with the real port if the settings let the system choose it."""
        return str(Endpoint(*self.api_address) if self.api_address else self.settings.api_listen)

    def _make_services(self, local: LocalListener | None) -> Services:
        return Services(
            self.log,
            self._take_over_now,
            self.metrics,
            self.following,
            rings_of(self.groups, self._dependencies),
            self._workers.readiness,
            self.settings.credentials_directory,
            self.certificates.read,
            local.local.look if local else lambda: None,
            self.settings.peer_rules,
            self.settings.callback_rules,
            self.settings,
            self._tester.test,
            partial(subscriber_limits, self.settings),
            self.stream_tenants.keys.states,
            WorkerRates(self.rates.history, self._workers).read,
            partial(read_view, self._workers.ask_worker_of),
            holds_key=lambda digest: self.keys.by_digest(digest) is not None,
            key_uses=WorkerKeyUses(self.keys, self._workers).read,
            limits=Limits.of(self.settings),
            ask_worker=None if self._share.is_whole else self._workers.ask_worker_of,
            spawn=self.supervisor.spawn,
            retention_waits=self._housekeeping.retention_waits,
        )

    async def _serve_routemaster(self, limits: ConcurrencyLimits) -> None:
        """Open the Routemaster surface, if it is on and this is the node's first process: only this one has it."""
        if self.settings.routemaster_listen is None or not self._share.is_first:
            return
        self.routemaster = listener = RoutemasterListener(
            self.settings,
            SurfaceDependencies(
                self.log,
                self.keys,
                limits,
                self.metrics,
                self.metrics.routemaster.published,
                self._dependencies.parsing,
                self._read_keys,
                self.reconciler.subscriptions_followed,
                DueSubscriberBatches(self.log),
                lambda url: self.settings.callback_rules.forbidden_url(url) or "",
            ),
        )
        self._parts.add("routemaster", listener.stop)
        await listener.start()
        self.metrics.routemaster.started()
        if listener.tls is not None and (declared := self.settings.routemaster_tls) is not None:
            self.certificates.others[SURFACE] = declared, listener.tls

    async def _serve_streams(self, v0: V0) -> None:
        """Open the QUIC listener, if it is on and this is the node's first process: only this one has the caches."""
        listen = self.settings.quic_listen
        if listen is None or not self._share.is_first:
            return
        tenants, metrics = self.stream_tenants.keys, self.metrics.streams
        streams = NodeStreams(self.settings, listen, v0, self.keys, tenants, metrics, self.certificates)
        self._parts.add("quic", streams.stop)
        await streams.start(self.reconciler.declared)
        self.streams = streams
        streams.declare(self.reconciler.declared)  # what was declared while it started

    def _make_local_listener(self, local: LocalSocket) -> LocalListener:
        """Return the listener of the API on the local socket, which a whole node binds."""
        if self._share.is_whole:
            local.bind(self._chance)
        database = identify(self.settings.database_url, self.log.database.path)
        intended = {DATABASE_HEADER: database, LISTEN_HEADER: str(self.settings.api_listen)}
        most = self.settings.max_connections
        return LocalListener(local, most, self.metrics, self._dependencies.parsing, intended)

    def _make_v0(self, callers: Callers) -> V0:
        limits = Limits.of(self.settings)
        return V0(
            log=self.log,
            routing=self.routing,
            supervisor=self.supervisor,
            stopping=self._stopping,
            limits=limits,
            started=self._clock.monotonic(),
            listener=Serving(callers, self.metrics, self._workers, ConcurrencyLimits(limits)),
        )

    # --- following what is declared -----------------------------------------------------------------------------

    async def _take_over_now(self) -> None:
        """Apply the declarations and API keys that were changed through this node.

        A failure is logged, and retried when `changes` notices the change.
        """
        try:
            await self._read_keys()
            self.reconciler.subscriptions_changed()
            await self.reconciler.apply()
        except EventdError as error:
            logger.warning("apply failed", extra={"error": str(error)})

    def _declared_anew(self) -> None:
        self.stream_tenants.follow(self.reconciler.declared)
        if self.streams is not None:
            self.streams.declare(self.reconciler.declared)
        self.following.changed()
        self.routing.changed()

    async def _read_keys(self) -> None:
        """Read the API keys from the database: created ones are accepted from now on, revoked ones are not."""
        await self.keys.take_over(lambda: self.log.database.read(read_keys))

    async def reload(self) -> None:
        """Read the files of keys, secrets and certificates again, and retry what failed because of them.

        That concerns the API, the groups and callbacks served here, and the Routemaster surface. Raises BadSettings.
        """
        await self.reconciler.reload()
        await self.certificates.refresh(force=True)
        self.keys.reload()
        await self.stream_tenants.keys.reload()
        if self.routemaster is not None:
            self.routemaster.reload()
        logger.info("keys reloaded")

    # --- being asked ------------------------------------------------------------------------------------------

    def readiness(self) -> dict[str, str]:
        """Return "ok" or the problem for each check of this process: `database`, and one for each group it serves.

        From the beginning of a stop, the failed check `stopping` is included.
        """
        groups = {GROUP + name: group.problem or "ok" for name, group in self.groups.items()}
        trouble = self.changes.trouble or self.topics.trouble or self.log.work.trouble
        trouble = trouble or shortage(self.log.database.path)
        stopping = {"stopping": "the node stops"} if self._stopped.is_set() else {}
        return {**stopping, "database": trouble or "ok", **groups}

    # --- stopping ---------------------------------------------------------------------------------------------

    async def run_until_stopped(self) -> None:
        """Return once `stop` was requested; raise when a part fails that the node cannot run without."""
        stopped: asyncio.Future[Any] = self.supervisor.spawn(self._stopped.wait(), "stopped")  # awaited here
        await asyncio.wait((stopped, self.supervisor.failed), return_when=asyncio.FIRST_COMPLETED)
        if self.supervisor.failed.done():
            self.supervisor.failed.result()

    async def stop(self) -> None:
        """Accept no further requests, settle the deliveries under way, and close. May be called again."""
        self._stopped.set()
        if self._parts and not self._stopping.done():
            self._stopping.set_result(None)
        if self._local is not None and self._share.is_whole:
            self._local.close()  # a command that starts now finds no socket, and opens the database
        await self._parts.close_all()

    def stop_state(self) -> StopState:
        """Return what a stop under way waits for."""
        return self._parts.state(self.metrics.open_connections())

    async def _end_chores(self) -> None:
        """End the chores first: they must not open anything that is closed next, nor be cancelled during an `apply`."""
        async with self.reconciler.at_rest:
            for task in self._chores:
                task.cancel()
        await asyncio.gather(*self._chores, return_exceptions=True)

    async def _stop_groups(self) -> None:
        self._leaving = groups = list(self.groups.values())
        self.groups.clear()
        stopping = [self.supervisor.spawn(group.stop(self.settings.drain_timeout), "a group") for group in groups]
        await asyncio.gather(*stopping, return_exceptions=True)  # a failed chore is logged; the others end all the same
