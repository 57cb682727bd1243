"""A node that waits while another one serves the database, and goes on for it within seconds when that ends."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from aiohttp import web

import eventd
from eventd.api.auth import Keys
from eventd.api.doors import listen
from eventd.api.waiting import build_waiting
from eventd.cli.serving import Service
from eventd.clock import Clock
from eventd.errors import Conflict, DatabaseUnavailable, EventdError
from eventd.observe import Metrics
from eventd.settings import Settings
from eventd.store.claim import Claim
from eventd.supervisor import Supervisor

LOOK_SECONDS = 0.5
"""Between two tries to get the claim. Each waits for it some time, and gets it as soon as it is free."""

logger = logging.getLogger("eventd.serve")


class Standby:
    """Serves once it has the `claim`. `prepare` then looks at the database; `make` gives the node, which takes the
    claim over and serves the API at the sockets that this one has listened at."""

    def __init__(
        self,
        settings: Settings,
        claim: Claim,
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
        self._holder = ""
        self._sockets: list[socket.socket] = []
        self._node: Service | None = None
        self._ended: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._stopped = asyncio.Event()

    async def start(self) -> None:
        """Serve, or stand by; the API listens in either case."""
        self._supervisor = Supervisor()
        self._ended.append(self._supervisor.stop)
        self._sockets = await listen(*self._settings.api_listen)
        self.api_address = self._sockets[0].getsockname()[:2]
        try:
            if await self._claims():
                await self._serve()
            else:
                await self._wait()
        except BaseException:
            await self.stop()
            raise

    async def _claims(self) -> bool:
        try:
            await asyncio.to_thread(self._claim.take)
        except Conflict:
            self._holder = self._claim.holder
            return False
        return True

    async def _serve(self) -> None:
        await asyncio.to_thread(self._prepare)
        self._node = self._make(self._sockets)
        await self._node.start()
        self._supervisor.guard(self._node.run_until_stopped(), "the node")

    async def _wait(self) -> None:
        logger.info("standing by", extra={"served_by": self._holder})
        self._metrics.standing_by()
        app = build_waiting(self._keys, self._metrics, eventd.__version__, lambda: self._holder)
        runner = web.AppRunner(app, access_log=None, handle_signals=False)
        await runner.setup()
        self._ended.append(runner.cleanup)
        for each in self._sockets:  # copies: what waits for a connection meanwhile is for the node
            await web.SockSite(runner, each.dup()).start()
        self._supervisor.guard(self._take_over(runner), "standing by")

    async def _take_over(self, runner: web.AppRunner) -> None:
        while not await self._gets_it():
            await self._clock.sleep(LOOK_SECONDS)
        logger.info("taking over", extra={"from": self._holder})
        await runner.cleanup()
        await self._serve()
        logger.info("serves now")
        await self._stopped.wait()

    async def _gets_it(self) -> bool:
        try:
            return await self._claims()
        except DatabaseUnavailable as error:  # its node cannot reach it either
            logger.warning("%s", error)
            return False

    async def run_until_stopped(self) -> None:
        """Until the node ends by itself, with its error."""
        await asyncio.wait({self._supervisor.failed})
        self._supervisor.failed.result()

    async def reload(self) -> None:
        """Read the secrets again."""
        if self._node is not None:
            await self._node.reload()
        else:
            self._keys.reload()

    async def stop(self) -> None:
        """End the node, or the wait for it."""
        self._stopped.set()
        node, self._node = self._node, None
        if node is not None:
            await node.stop()
        while self._ended:
            with suppress(EventdError):
                await self._ended.pop()()
        for each in self._sockets:
            each.close()
        self._sockets = []
