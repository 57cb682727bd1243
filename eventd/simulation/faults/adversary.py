"""An adversary in the network: it records what nodes send to each other, and sends it again, as it was or changed."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import Final

from eventd.simulation.faults.fault import Fault
from eventd.simulation.world.connection import ConnectionEnd
from eventd.simulation.world.journal import Asked
from eventd.simulation.world.life import Life
from eventd.simulation.world.machine import PEER_PORT
from eventd.simulation.world.proxy import MessageReader, with_length
from eventd.simulation.world.topology import GROUP
from eventd.simulation.world.world import SimulatedWorld

REPLAY: Final = "replay"
"""The kind of journal entry of a request of the adversary; its question is a `ReplayedRequest`."""
HOST: Final = "adversary"
ANSWER_SECONDS: Final = 10.0
_CREATED: Final = re.compile(rb";created=(\d+)")
_LATER: Final = 60
"""By how many seconds a changed time of signature is later."""


@dataclass(slots=True)
class RecordedRequest:
    """A request of one node to another; `status` is that of the answer that the other has given, 0 so far: none."""

    source: str
    dest: str
    head: bytes
    body: bytes
    status: int = 0
    answered_at: float = 0.0

    @property
    def path(self) -> str:
        """Return what the request is sent to."""
        return self.head.split(b" ", 2)[1].decode()


@dataclass(frozen=True, slots=True)
class ReplayedRequest:
    """What the adversary has sent: a request as it was (`again`), or how it was changed.

    `was_answered_at`: when its receiver had answered the original with a success; 0: it had not.
    """

    mode: str
    path: str
    was_answered_at: float


class Adversary:
    """The adversary of one run. It sees every request to the listeners of groups from now on."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world
        self._life = Life(HOST, 1, world.network.add(HOST))
        self._recorded: list[RecordedRequest] = []
        world.network.on_connect = self._watch

    def _watch(self, near: ConnectionEnd, port: int) -> None:
        if port != PEER_PORT or near.life is self._life:
            return
        waiting: list[RecordedRequest] = []

        def take_request(head: bytes, body: bytes) -> None:
            request = RecordedRequest(near.life.host, near.other.life.host, head, body)
            self._recorded.append(request)
            waiting.append(request)

        def take_answer(head: bytes, _body: bytes) -> None:
            if waiting:
                request = waiting.pop(0)
                request.status, request.answered_at = int(head.split(b" ", 2)[1]), self._world.loop.time()

        near.on_write = MessageReader(take_request).take
        near.other.on_write = MessageReader(take_answer).take

    async def replay(self, fault: Fault) -> bool:
        """Send a recorded request as the fault says; return whether there is one."""
        found = [each for each in self._recorded if each.dest == fault.target]
        if not found:
            return False
        request = found[-1 - fault.number % len(found)]
        others = [each for each in found if each.path == request.path and each.body != request.body]
        text = _changed(request, fault.mode, others)
        if text is None:
            return False
        dest = fault.other if fault.mode == "to another node" else fault.target
        was_answered_at = request.answered_at if 200 <= request.status < 300 else 0.0
        asked_at = self._world.loop.time()
        status = await self._life.start(self._send(dest, text))
        question = ReplayedRequest(fault.mode, request.path, was_answered_at)
        asked = Asked(REPLAY, dest, asked_at, self._world.loop.time(), status, question, None)
        self._world.journal.add(asked)
        return True

    async def _send(self, dest: str, text: bytes) -> int:
        """Send bytes to a node; return the status of its answer, 0 without one."""
        network, address = self._world.network, self._world.address(dest)
        answered: asyncio.Future[int] = self._world.loop.create_future()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                transport, _ = await network.connect(self._life, lambda: _StatusReader(answered), address, PEER_PORT)
                transport.write(text)
                status = await answered
                transport.abort()
                return status
        except OSError:
            return 0


def _changed(request: RecordedRequest, mode: str, others: list[RecordedRequest]) -> bytes | None:
    """Return the bytes of a request, changed as `mode` says; None if it cannot be changed so."""
    head, body = request.head, request.body
    match mode:
        case "in another group":
            head = head.replace(f"Eventd-Group: {GROUP}".encode(), f"Eventd-Group: {GROUP}s".encode())
        case "of another time":
            head = _CREATED.sub(lambda found: b";created=%d" % (int(found[1]) + _LATER), head)
        case "cut":
            body = body[: len(body) // 2]
        case "with another body" if others:
            body = others[0].body
    if mode not in ("again", "to another node") and (head, body) == (request.head, request.body):
        return None
    return with_length(head, len(body)) + body


class _StatusReader(asyncio.Protocol):
    """Sets a future to the status of the first answer, or to 0 if the connection ends without one."""

    def __init__(self, answered: asyncio.Future[int]) -> None:
        self._answered = answered
        self._text = b""

    def data_received(self, data: bytes) -> None:
        self._text += data
        if b"\r\n" in self._text:
            self._end(int(self._text.split(b" ", 2)[1]))

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(0)

    def _end(self, status: int) -> None:
        if not self._answered.done():
            self._answered.set_result(status)
