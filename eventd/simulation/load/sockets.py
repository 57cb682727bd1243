"""Clients that publish to a topic and follow it over one WebSocket, and continue after what they were sent."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from eventd.simulation.load.step import KEY_MILLISECONDS, UNIT, LoadKind, LoadStep
from eventd.simulation.world.journal import Asked
from eventd.simulation.world.requests import ApiClient
from eventd.simulation.world.streams import Stream
from eventd.simulation.world.topology import Topology
from eventd.simulation.world.web_socket import SocketMessage, WebSocketClient, open_socket
from eventd.simulation.world.world import SimulatedWorld

SOCKET: Final = "socket"
"""The kind of journal entry of a connection: its question is the begin, and its answer are the messages."""
PUBLISH: Final = "publish"
"""The kind of journal entry of a batch that was acknowledged."""
PUBLISHED: Final = "published"
"""The topic that is published to and followed."""
_BEGIN: Final = (0, None)
_CONFIG: Final = {"durability": "fsync", "idempotency_window_ms": KEY_MILLISECONDS}
_CONNECT_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 10.0
_PAUSE: Final = 0.3


class Sockets(LoadKind):
    """The load of one client of a WebSocket at each node."""

    name = SOCKET

    def draw(self, stream: Stream, topology: Topology, host: str, seconds: float) -> Iterator[LoadStep]:
        at = stream.uniform(0.0, 1.0)
        first = 0
        while at < seconds:
            lasts = stream.choice((0.5, 2.0, 6.0)) * stream.uniform(0.5, 1.5)
            counts = [stream.choice((1, 2, 10)) for _ in range(stream.randint(1, 8))]
            data = {UNIT: str(first), "first": first, "counts": counts, "seconds": lasts}
            yield LoadStep(round(at, 6), self.name, host, {**data, "limit": stream.choice((2, 1000))})
            first += sum(counts)
            at += lasts + stream.expovariate(2.0)

    async def perform(self, world: SimulatedWorld, client: ApiClient, step: LoadStep) -> None:
        """Publish all batches, over as many connections as it takes, and follow the topic until the time is over."""
        data = step.data
        until = world.loop.time() + data["seconds"]
        batches = [*_batches(data["first"], data["counts"])]
        for _ in range(_most_connections(data["seconds"])):
            left = until - world.loop.time()
            if left <= 0 and not batches:
                return
            place = _reached(world, client)
            batches = await _converse(world, client, batches, place, data["limit"], max(left, _PAUSE), data[UNIT])
            await world.loop.pause(_PAUSE)

    async def look(self, world: SimulatedWorld, client: ApiClient, steps: Sequence[LoadStep]) -> bool:
        """Follow the whole topic to its end."""
        await _converse(world, client, [], _BEGIN, 1000, _LOOK_SECONDS, "", until_end=True)
        last = next(each for each in reversed(world.journal.of(SOCKET)) if each.host == client.machine.name)
        ops = {message.data["op"] for message in last.answer}
        return "caught_up" in ops or any(message.data.get("code") == "topic_not_found" for message in last.answer)


def _most_connections(seconds: float) -> int:
    return 20 + round(seconds / _PAUSE)


def _batches(first: int, counts: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first number of each batch, and how many records it has."""
    for count in counts:
        yield first, count
        first += count


def published_record(number: int) -> dict[str, Any]:
    """Return the data of the record with a number, which is unique at its node."""
    return {"number": number, "text": "x" * (number * 31 % 500)}


async def _converse(
    world: SimulatedWorld,
    client: ApiClient,
    batches: list[tuple[int, int]],
    place: tuple[int, str | None],
    limit: int,
    seconds: float,
    unit: str,
    *,
    until_end: bool = False,
) -> list[tuple[int, int]]:
    """Follow the topic after a seq of an epoch over one connection, and publish before that and meanwhile.

    Return the batches without an acknowledgement.
    """
    loop, begun = world.loop, world.loop.time()
    after, epoch = place
    made: WebSocketClient | None = None
    with suppress(OSError):
        async with asyncio.timeout(_CONNECT_SECONDS):
            made = await open_socket(loop, client.machine)
    if made is not None:
        waiting = deque(batches)
        while len(waiting) > len(batches) // 2:  # a batch that was written before is not written again
            made.send(_command(*waiting.popleft()))
        start = {"topic": PUBLISHED, "from_seq": after, "epoch": epoch, "include_epoch": True}
        made.send({"op": "subscribe", **start, "limit": limit})
        while not made.over.done() and loop.time() < begun + seconds:
            if waiting and made.messages and made.messages[-1].data["op"] in ("caught_up", "error"):
                made.send(_command(*waiting.popleft()))  # it is to be sent back to the client that has caught up
            if until_end and any(each.data["op"] in ("caught_up", "error") for each in made.messages):
                break
            await loop.pause(0.1)
        made.close()
    status, messages = (0, []) if made is None else (made.status, made.messages)
    host = client.machine.name
    acks = [each for each in messages if each.data["op"] == "ack"]
    for message in acks:
        world.journal.add(Asked(PUBLISH, host, begun, message.at, 200, message.data["request_id"], message.data))
    done = {each.data["request_id"] for each in acks}
    left = [batch for batch in batches if batch[0] not in done]
    name = f"{SOCKET} {unit}" if unit and not left else ""
    question = {"after": after, "epoch": epoch, "sent": [first for first, _ in batches], "looks": until_end}
    status = 200 if status == 101 else status
    world.journal.add(Asked(SOCKET, host, begun, loop.time(), status, question, messages, unit=name))
    return left


def _command(first: int, count: int) -> dict[str, Any]:
    records = [{"data": published_record(number)} for number in range(first, first + count)]
    command: dict[str, Any] = {"op": "publish", "request_id": first, "topic": PUBLISHED, "records": records}
    return {**command, "config": _CONFIG, "idempotency_key": f"published {first}"}


def _reached(world: SimulatedWorld, client: ApiClient) -> tuple[int, str | None]:
    """Return the seq up to which the client was sent the topic, and its epoch; None as long as it knows none."""
    for asked in reversed(world.journal.asked):
        is_own = asked.kind == SOCKET and asked.host == client.machine.name and not asked.question["looks"]
        if is_own and (epochs := [*epochs_of(asked)]):
            return [asked.question["after"], *places_of(asked.answer)][-1], epochs[-1]
    return _BEGIN


def epochs_of(connection: Asked) -> Iterator[str]:
    """Yield the epochs of a client's places, as the client and the node have named them; none without a subscription.

    The node's answer to a subscription names the present epoch, which is that of the client unless it knows one.
    """
    known = connection.question["epoch"]
    for message in connection.answer:
        match message.data["op"]:
            case "subscribed":
                yield known or message.data["topics"][PUBLISHED]["epoch"]
            case "tombstone":
                yield message.data["epoch"]


def places_of(messages: Sequence[SocketMessage]) -> Iterator[int]:
    """Yield the seqs that the messages of a connection have led to."""
    for message in messages:
        match message.data["op"]:
            case "record":
                yield message.data["to_seq"]
            case "tombstone":
                yield message.data["earliest_seq"] - 1
