"""A standby waits while another node serves the database, and takes over when that node ends, freezes or is cut off."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence

import eventd
from eventd.api.keys.valid_keys import Keys
from eventd.api.listener.addresses import listen
from eventd.api.listener.connection_limiter import ConnectionLimiter
from eventd.api.listener.connections import open_site_at
from eventd.api.listener.runner import Runner
from eventd.api.waiting import build_waiting
from eventd.cli.daemon.serving import Service
from eventd.errors import Conflict, DatabaseUnavailable
from eventd.observe.metrics import Metrics
from eventd.runtime.chance import SYSTEM
from eventd.runtime.clock import Clock
from eventd.runtime.stopping import StopState
from eventd.runtime.supervisor import Supervisor
from eventd.settings.model import Settings
from eventd.store.engine.claim import SILENT_SECONDS, ClaimHolder, DatabaseClaim
from eventd.tls.listening import TlsListener, open_api_tls, read_again

LOOK_SECONDS = 0.5
"""Seconds between two attempts to take the claim.

Each attempt waits a while, and succeeds as soon as the claim is free.
"""

logger = logging.getLogger("eventd.serve")


class Standby:
    """Runs a node once this process holds the `claim` on the database.

    `prepare` then checks the database, or migrates it; `make` returns the node, which takes over the claim and serves
    the API on the sockets that the standby listens on.
    """

    def __init__(
        self,
        settings: Settings,
        claim: DatabaseClaim,
        keys: Keys,
        clock: Clock,
        prepare: Callable[[], None],
        make: Callable[[Sequence[socket.socket]], Service],
    ) -> None:
        self.api_address: tuple[str, int] | None = None
        self._settings = settings
        self._claim = claim
        self._keys = keys
        self._clock = clock
        self._prepare = prepare
        self._make = make
        self._metrics = Metrics()
        self._silence = ClaimSilence()
        self._holder = ""
        self._sockets: list[socket.socket] = []
        self._node: Service | None = None
        self._waiting: Runner | None = None
        self._tls: TlsListener | None = None
        self._supervisor: Supervisor | None = None

    async def start(self) -> None:
        """Serve if the claim is free, else stand by with an API of health, readiness and metrics."""
        self._supervisor = Supervisor(self._clock, self._metrics.task_failed)
        self._sockets = await listen(*self._settings.api_listen, self._clock)
        self.api_address = self._sockets[0].getsockname()[:2]
        try:
            if await self._claims():
                await self._serve()
                self._supervisor.guard(self._run_node(), "the node")  # if it fails, so does this process
            else:
                logger.info("standing by", extra={"served_by": self._holder})
                self._metrics.standing_by()
                await self._open_waiting()
                # if it fails, so does this process: a standby that cannot take over is useless
                self._supervisor.guard(self._take_over(), "standing by")
        except BaseException:
            await self.stop()
            raise

    async def _claims(self) -> bool:
        try:
            await self._claim.take_in_thread()
        except Conflict:
            self._holder = self._claim.holder
            return False
        return True

    async def _serve(self) -> None:
        await asyncio.to_thread(self._prepare)
        sockets = [each.dup() for each in self._sockets]  # otherwise none is left for another attempt
        node = self._make(sockets)
        try:
            await node.start()
        except BaseException:
            for each in sockets:
                each.close()
            raise
        self._node = node
        self._close_sockets()  # a connection during the stop is refused instead of waiting

    async def _run_node(self) -> None:
        assert self._node is not None
        await self._node.run_until_stopped()

    # --- standing by ------------------------------------------------------------------------------------------

    async def _open_waiting(self) -> None:
        app = build_waiting(self._keys, self._metrics, eventd.__version__, lambda: self._holder, SYSTEM)
        self._waiting = Runner(app, SYSTEM)
        await self._waiting.setup()
        settings = self._settings
        limiter = ConnectionLimiter("", settings.max_connections, self._metrics)
        self._tls = await open_api_tls(settings.api_tls, settings.credentials_directory, self._clock)
        waiting = [each.dup() for each in self._sockets]  # connections that are waiting then belong to the node
        await open_site_at(self._waiting, limiter, waiting, self._tls)

    async def _close_waiting(self) -> None:
        if self._waiting is not None:
            await self._waiting.cleanup()
            self._waiting = None  # not earlier: if this is cancelled, `stop` closes the rest

    async def _take_over(self) -> None:
        while not await self._takes_over():
            await self._clock.sleep(LOOK_SECONDS)
            if self._tls is not None:
                await read_again(self._tls.tls, {"group": "", "peer": "", "file": self._settings.api_tls_cert_file})
        logger.info("serving")
        await self._run_node()

    async def _takes_over(self) -> bool:
        """Try once to take over, else end the claim of a silent node; returns whether this process serves now.

        An unavailable database is only logged, as it may come back.
        """
        try:
            if not await self._claims():
                await self._end_silent()
                return False
            logger.info("taking over", extra={"from": self._holder})
            await self._close_waiting()
            await self._serve()
        except DatabaseUnavailable as error:
            logger.warning("takeover failed", extra={"error": str(error)})
            if self._waiting is None:
                await self._open_waiting()
            return False
        return True

    async def _end_silent(self) -> None:
        """End the claim of each node that has not checked it for `SILENT_SECONDS`: the node is frozen, or cut off."""
        for holder in self._silence.over(self._claim.holders, self._clock.monotonic()):
            if await asyncio.to_thread(self._claim.end_silent, holder):
                about = {"served_by": self._holder, "seconds": SILENT_SECONDS}
                logger.warning("silent claim ended", extra=about)

    async def run_until_stopped(self) -> None:
        """Run until the node, or the wait for the claim, ends without `stop`; raises its error, or RuntimeError."""
        assert self._supervisor is not None
        await asyncio.wait({self._supervisor.failed})
        self._supervisor.failed.result()

    async def reload(self) -> None:
        """Read the keys and secrets again; without a node, only the keys of the settings."""
        if self._node is not None:
            await self._node.reload()
        else:
            self._keys.reload()

    async def stop(self) -> None:
        """Stop the node, or the wait for the claim, and close the API. May be called again."""
        if self._supervisor is not None:
            await self._supervisor.stop()  # first: a take-over under way must not start a node
        if self._node is not None:
            await self._node.stop()
            self._node = None
        await self._close_waiting()
        self._close_sockets()

    def stop_state(self) -> StopState:
        """Return what a stop under way waits for."""
        return StopState("standby") if self._node is None else self._node.stop_state()

    def _close_sockets(self) -> None:
        for each in self._sockets:
            each.close()
        self._sockets = []


class ClaimSilence:
    """Measures for how long each holder of a claim has not checked the claim, by the clock of this process."""

    def __init__(self) -> None:
        self._since: dict[ClaimHolder, float] = {}

    def over(self, holders: Sequence[ClaimHolder], now: float) -> list[ClaimHolder]:
        """Return the holders whose time `checked` has been the same in all calls for `SILENT_SECONDS`.

        A holder without that time is left out. Call this repeatedly, with all holders and the monotonic time in
        seconds.
        """
        self._since = {holder: self._since.get(holder, now) for holder in holders if holder.checked}
        return [holder for holder, since in self._since.items() if now - since >= SILENT_SECONDS]
