"""The Routemaster surface of a running node: its topic, its tokens from the settings, and its listener."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from eventd.api.framework.limits import ConcurrencyLimits
from eventd.api.keys.valid_keys import Keys
from eventd.api.listener.addresses import cannot_listen, patiently
from eventd.api.listener.connection_limiter import ConnectionLimiter, ConnectionMetrics
from eventd.api.listener.connections import open_site
from eventd.api.listener.parsing_time import ParsingTime
from eventd.api.listener.runner import Runner
from eventd.api.routemaster.answers import refused_by_library
from eventd.api.routemaster.app import KEEPALIVE_SECONDS, build_surface
from eventd.api.routemaster.configuration import config_of, read_clients, read_root_key
from eventd.api.routemaster.surface import CountPublished, DueBatches, RootKey, SurfaceContext
from eventd.log.core.eventlog import EventLog
from eventd.log.routemaster.surface_topic import OpenTopic
from eventd.log.routemaster.tokens import ImportTokens
from eventd.settings.model import Settings
from eventd.tls.contexts import ServerTls
from eventd.tls.listening import TlsListener, open_api_tls

SURFACE: Final = "(routemaster)"
"""The name that takes the place of a group's name in metrics and logs of this listener; no group can have such a
name."""
SHUTDOWN_SECONDS: Final = 5.0
"""Seconds that the closing listener waits for requests under way."""
LINGER_SECONDS: Final = 2.0
"""Seconds that the rest of a body that no handler reads is read, so that its sender receives the response."""

logger = logging.getLogger("eventd.routemaster")


@dataclass(frozen=True, slots=True)
class SurfaceDependencies:
    """Dependencies of the surface, given by the node.

    `published` counts written events, `read_keys` takes over the stored tokens, `changed` is called after each change
    of a subscription and returns once deliveries follow it, `due` counts the batches that are due, and `judge` returns
    why a callback must not be called, empty if it may.
    """

    log: EventLog
    keys: Keys
    limits: ConcurrencyLimits
    metrics: ConnectionMetrics
    published: CountPublished
    parsing: ParsingTime
    read_keys: Callable[[], Awaitable[None]]
    changed: Callable[[], Awaitable[None]]
    due: DueBatches
    judge: Callable[[str], str]


class RoutemasterListener:
    """The listener of the surface. `address` is its host and port, None before `start`."""

    def __init__(self, settings: Settings, dependencies: SurfaceDependencies) -> None:
        self.address: tuple[str, int] | None = None
        self.tls: ServerTls | None = None
        self._settings = settings
        self._dependencies = dependencies
        self._root = RootKey()
        self._runner: Runner | None = None
        self._limiter: ConnectionLimiter | None = None

    async def start(self) -> None:
        """Open the topic, import the tokens of the settings, and listen.

        Raises `BadSettings`, `SettingsError`, `CertificateUnusable` and `Unavailable`.
        """
        settings, ours = self._settings, self._dependencies
        config, clients = config_of(settings), read_clients(settings)
        self.reload()
        tls = await open_api_tls(settings.routemaster_tls, settings.credentials_directory, ours.log.clock)
        await ours.log.submit(OpenTopic(config.topic, random=ours.log.chance.token(16)))
        if clients:
            await ours.log.submit(ImportTokens(clients))
            await ours.read_keys()
        self._limiter = ConnectionLimiter(SURFACE, settings.max_connections, ours.metrics, ours.parsing)
        context = SurfaceContext(
            ours.log,
            ours.keys,
            self._root,
            config,
            ours.limits,
            self._limiter,
            published=ours.published,
            reload_keys=ours.read_keys,
            changed=ours.changed,
            due=ours.due,
            judge=ours.judge,
        )
        self._runner = Runner(
            build_surface(context),
            ours.log.chance,
            refused_by_library,
            keepalive_timeout=KEEPALIVE_SECONDS,
            shutdown_timeout=SHUTDOWN_SECONDS,
            lingering_time=LINGER_SECONDS,
        )
        await self._runner.setup()
        await patiently(lambda: self._listen(tls), ours.log.clock)

    async def _listen(self, tls: TlsListener | None) -> None:
        where, runner, limiter = self._settings.routemaster_listen, self._runner, self._limiter
        assert where is not None
        assert runner is not None
        assert limiter is not None
        try:
            await open_site(runner, limiter, where.host, where.port, tls)
        except OSError as error:
            hint = "choose another address with --routemaster-listen (port 0: a free port)"
            what = f"the Routemaster surface cannot listen on {where.host} port {where.port}"
            raise cannot_listen(what, error, hint) from None
        self.address = runner.addresses[0][:2]
        self.tls = None if tls is None else tls.tls
        about = {"group": SURFACE, "address": self.address[0], "port": self.address[1], "tls": tls is not None}
        logger.info("listening", extra=about)

    def reload(self) -> None:
        """Read the administrator's key again. Raises `BadSettings`; then the present key stays valid."""
        self._root.set(read_root_key(self._settings))

    async def stop(self) -> None:
        """Stop listening; requests under way get up to `SHUTDOWN_SECONDS`."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()
        if self._limiter is not None:
            self._limiter.close()
