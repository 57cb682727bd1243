"""Clients that publish events over one WebSocket, and send what was not answered again over the next one.

Each message is an emit in the journal, like the request of another client, so that the same checks apply to it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final
from zlib import crc32

from eventd.simulation.load.emits import Emits, make_event
from eventd.simulation.load.step import UNIT, LoadKind, LoadStep
from eventd.simulation.world.journal import Asked
from eventd.simulation.world.requests import ApiClient
from eventd.simulation.world.streams import Stream
from eventd.simulation.world.topology import GROUP, Topology
from eventd.simulation.world.web_socket import OPENED, SocketMessage, WebSocketClient, open_socket
from eventd.simulation.world.world import SimulatedWorld

PATH: Final = f"/api/v1/groups/{GROUP}/publish"
"""What a connection asks for; in the journal its begin follows, which no other connection of its client has."""
_SECONDS: Final = 5.0
"""After which a client gives up a connection."""
_PAUSE: Final = 0.3
_SIZES: Final = (1, 3, 20, 100)
_WEIGHTS: Final = (10, 8, 3, 1)
"""How many events a message has, and how often."""
_TRIES: Final = (1, 4, 8, 8)

Events = Sequence[Mapping[str, Any]]


class Publishes(LoadKind):
    """The load of one client that publishes events of its node over a WebSocket."""

    name = "publishing"

    def draw(self, stream: Stream, topology: Topology, host: str, seconds: float) -> Iterator[LoadStep]:
        at = stream.uniform(0.0, 1.0)
        first = 0
        while at < seconds:
            counts = [stream.choices(_SIZES, _WEIGHTS)[0] for _ in range(stream.randint(1, 4))]
            data = {UNIT: str(first), "first": first, "counts": counts, "tries": stream.choice(_TRIES)}
            yield LoadStep(round(at, 6), self.name, host, data)
            first += sum(counts)
            at += stream.expovariate(1 / 3)

    async def perform(self, world: SimulatedWorld, client: ApiClient, step: LoadStep) -> None:
        """Send the messages of the step, over as many connections as it takes, or as it has tries."""
        left = [*_messages(client.machine.name, step.data["first"], step.data["counts"])]
        for attempt in range(step.data["tries"]):
            if attempt:
                await world.loop.pause(_PAUSE * 2**attempt)
            left = await _publish(world, client, left, f"{self.name} {step.data[UNIT]}")
            if not left:
                return


def _messages(host: str, first: int, counts: Sequence[int]) -> Iterator[Events]:
    for count in counts:
        yield [make_event(_id_of(host, number)) for number in range(first, first + count)]
        first += count


def _id_of(host: str, number: int) -> str:
    """Return the id of an event. Ids come in no order, so that in long runs some are stored in sorted runs.

    Events with these numbers are of a type that no plugin is run for: for all of them, it would not be done in time.
    """
    return f"{host}.{crc32(b'%d' % number):08x}-{3 * number + 2:05}"


async def _publish(world: SimulatedWorld, client: ApiClient, messages: Sequence[Events], unit: str) -> list[Events]:
    """Send the messages over one connection; return those that have to be sent again.

    `unit` is named by the answer to the last one.
    """
    loop, begun = world.loop, world.loop.time()
    host, path = client.machine.name, f"{PATH} {begun:.6f}"
    waiting = deque(enumerate(messages, 1))
    again: list[Events] = []

    def note(events: Events, status: int, answer: Any) -> None:
        is_last = not waiting and not again and 200 <= status < 300
        question, name = {"events": events}, unit if is_last else ""
        world.journal.add(Asked(Emits.name, host, begun, loop.time(), status, question, answer, path=path, unit=name))

    def take(message: SocketMessage) -> None:
        for answer in message.data.get("answers", ()):
            seq, events = waiting.popleft()
            if answer["seq"] != seq:
                raise ValueError(f"{host} answers message {answer['seq']} before {seq}")
            status = answer.get("status", 200)
            if status >= 500 or status == 429:
                again.append(events)
            note(events, status, _results_of(events, answer) if status == 200 else answer["error"])

    made: WebSocketClient | None = None
    with suppress(OSError):
        async with asyncio.timeout(_SECONDS):
            made = await open_socket(loop, client.machine, PATH)
    if made is not None:
        made.on_message = take
        for seq, events in waiting:
            made.send({"seq": seq, "events": events})
        while waiting and not made.over.done() and loop.time() < begun + _SECONDS:
            await loop.pause(0.1)
        made.close()
    status = 0 if made is None or made.status == OPENED else made.status
    unanswered = [events for _, events in waiting]
    for events in unanswered:
        note(events, status, None)
    return again + unanswered


def _results_of(events: Events, answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer in the form that a request gets, with a result for each event; the seqs are not known."""
    results: list[dict[str, Any]] = [{"id": event["id"], "result": "new", "event": {}} for event in events]
    for each in answer["results"]:
        results[each["index"]] |= each
    return {"results": results}
