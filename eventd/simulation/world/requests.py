"""Requests to the API of a node over the simulated network, from a machine of its own."""

from __future__ import annotations

import asyncio
from typing import Any, Final, NamedTuple

import msgspec

from eventd.net.connecting import connect
from eventd.net.exchange import AnswerTooLarge, Exchange, NoAnswer, Pool
from eventd.simulation.world.journal import Asked, Journal
from eventd.simulation.world.life import Life
from eventd.simulation.world.loop import VirtualLoop
from eventd.simulation.world.machine import API_PORT, Machine

MOST_BYTES: Final = 16 << 20
"""Maximum bytes of an answer."""


class Reply(NamedTuple):
    """An answer: its status, 0 if there was none, and its document."""

    status: int
    document: Any

    @property
    def is_good(self) -> bool:
        """Return whether the node did what it was asked for."""
        return 200 <= self.status < 300


class ApiClient:
    """A client of one machine's node, with persistent connections. Its questions are written into the journal.

    Call `ask` as the process `life` of the client's own machine.
    """

    def __init__(self, loop: VirtualLoop, life: Life, machine: Machine, journal: Journal) -> None:
        self.life = life
        self.machine = machine
        self._loop = loop
        self._journal = journal
        self._pool = Pool(loop.time)

    async def ask(
        self, kind: str, method: str, path: str, document: Any = None, *, seconds: float = 10.0, unit: str = ""
    ) -> Reply:
        """Ask the node, and return its answer. `path` is one of the administration's API, or begins with `/v0`.

        `unit` names the planned work that a good answer acknowledges.
        """
        body = b"" if document is None else msgspec.json.encode(document)
        prefix = "" if path.startswith("/v0/") else "/api/v1"
        head = f"{method} {prefix}{path} HTTP/1.1\r\nHost: {self.machine.address}:{API_PORT}\r\n"
        if document is not None:
            head += "Content-Type: application/json\r\n"
        head += f"Content-Length: {len(body)}\r\n\r\n"
        asked_at, life = self._loop.time(), self.machine.life
        reply = await self._exchange(head.encode(), body, seconds)
        number = life.number if life is not None and not life.is_dead else 0
        self._journal.add(
            Asked(
                kind,
                self.machine.name,
                asked_at,
                self._loop.time(),
                reply.status,
                document,
                reply.document,
                number,
                path,
                unit,
            )
        )
        return reply

    async def _exchange(self, head: bytes, body: bytes, seconds: float) -> Reply:
        try:
            async with asyncio.timeout(seconds):
                exchange = self._pool.take()
                if exchange is None:
                    exchange = await connect(Exchange, self.machine.address, API_PORT)
                answer = await self._pool.ask(exchange, head, body, MOST_BYTES)
        except (OSError, NoAnswer, AnswerTooLarge):
            return Reply(0, None)
        try:
            return Reply(answer.status, msgspec.json.decode(answer.body) if answer.body else None)
        except msgspec.DecodeError:
            return Reply(answer.status, answer.body)
