"""A topic that is deleted and created again while a client watches it over many streams of one session."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from eventd.simulation.load.step import KEY_MILLISECONDS, LANE, UNIT, LoadKind, LoadStep
from eventd.simulation.load.watches import numbered_places
from eventd.simulation.world.event_stream import SentEvent, open_stream
from eventd.simulation.world.journal import Asked
from eventd.simulation.world.requests import ApiClient
from eventd.simulation.world.streams import Stream
from eventd.simulation.world.topology import Topology
from eventd.simulation.world.world import SimulatedWorld

RENEWAL: Final = "renewal"
"""The kind of journal entry of the write to a topic that is created again; its records have the topic's number."""
DELETION: Final = "renewal deletion"
"""The kind of journal entry of the deletion before it."""
RENEWED_STREAM: Final = "renewed stream"
"""The kind of journal entry of a stream: its question names the session and an id, and its answer is the events."""
RENEWED: Final = "renewed"
"""The topic."""
_CONFIG: Final = {"durability": "fsync", "idempotency_window_ms": KEY_MILLISECONDS}
_SESSION: Final = "renewed session"
_READER: Final = "reader"
_TRIES: Final = 20
_PAUSE: Final = 0.3
_SHORT_PAUSE: Final = 0.1
_CONNECT_SECONDS: Final = 5.0
_NOT_FOUND: Final = 404


class Renewals(LoadKind):
    """The load of one client at each node that deletes and creates a topic, and of one that watches it."""

    name = RENEWAL

    def draw(self, stream: Stream, topology: Topology, host: str, seconds: float) -> Iterator[LoadStep]:
        at = stream.uniform(0.0, 0.5)
        number = 0
        while at < seconds:
            data = {LANE: "writer", UNIT: str(number), "number": number, "count": stream.randint(1, 6)}
            yield LoadStep(round(at, 6), self.name, host, data)
            number += 1
            at += stream.choice((0.3, 1.0, 3.0)) * stream.uniform(0.5, 1.5)
        resumes = [[stream.choice(("last", "older", "older", "none")), stream.random()] for _ in range(40)]
        reads = [stream.choice((1, 2, 4, 20)) for _ in resumes]
        data = {
            LANE: _READER,
            "seconds": seconds,
            "resumes": resumes,
            "reads": reads,
            "limit": stream.choice((1, 2, 9)),
        }
        yield LoadStep(0.1, self.name, host, data)

    async def perform(self, world: SimulatedWorld, client: ApiClient, step: LoadStep) -> None:
        if step.data[LANE] == _READER:
            await _watch(world, client, step.data)
        else:
            await _renew(world, client, step.data)


async def _renew(world: SimulatedWorld, client: ApiClient, data: dict[str, Any]) -> None:
    """Delete the topic, and then write to it, until both are answered."""
    path = f"/v0/topics/{RENEWED}"
    records = [{"data": {"topic": data["number"]}} for _ in range(data["count"])]
    write = {"records": records, "config": _CONFIG, "idempotency_key": f"renewed {data['number']}"}
    is_deleted = False
    for _ in range(_TRIES):
        if not is_deleted:
            is_deleted = (await client.ask(DELETION, "DELETE", path, None, seconds=5.0)).is_good
        unit = f"{RENEWAL} {data[UNIT]}"
        if is_deleted and (await client.ask(RENEWAL, "POST", path, write, seconds=5.0, unit=unit)).is_good:
            return
        await world.loop.pause(_PAUSE)


async def _watch(world: SimulatedWorld, client: ApiClient, data: dict[str, Any]) -> None:
    """Read some events of one stream after the other, each after an id of the session or without one."""
    until, wid, ids = world.loop.time() + data["seconds"], None, list[str]()
    turn = 0
    while world.loop.time() < until:
        if wid is None:
            wid, ids = await _begin_session(client, data), []
        if wid is not None:
            resume, part = data["resumes"][turn % len(data["resumes"])]
            last_id = _last_id(ids, resume, part)
            status, events = await _read(world, client, wid, last_id, data["reads"][turn % len(data["reads"])])
            ids += [event.id for event in events if event.id]
            wid = None if status == _NOT_FOUND else wid
            turn += 1
        await world.loop.pause(_SHORT_PAUSE)


def _last_id(ids: Sequence[str], resume: str, part: float) -> str:
    with_place = [each for each in ids if RENEWED in numbered_places(each)]
    if not with_place or resume == "none":
        return ""
    return ids[-1] if resume == "last" else with_place[int(part * len(with_place))]


async def _begin_session(client: ApiClient, data: dict[str, Any]) -> str | None:
    question = {"topics": {RENEWED: {"from_seq": 0}}, "limit": data["limit"], "heartbeat_ms": 1000}
    reply = await client.ask(_SESSION, "POST", "/v0/watch", question, seconds=5.0)
    return reply.document["wid"] if reply.is_good else None


async def _read(
    world: SimulatedWorld, client: ApiClient, wid: str, last_id: str, count: int
) -> tuple[int, list[SentEvent]]:
    """Read one stream until some events have arrived, it has caught up, or it ends; return its status and events."""
    loop, begun, made = world.loop, world.loop.time(), None
    with suppress(OSError):
        async with asyncio.timeout(_CONNECT_SECONDS):
            made = await open_stream(loop, client.machine, f"/v0/watch/{wid}", last_id, 0.0)
    while made is not None and not made.over.done() and loop.time() < begun + 2.0:
        if len([event for event in made.events if event.id]) >= count:
            break
        await loop.pause(0.05)
    status, events = (0, []) if made is None else (made.status, made.events)
    if made is not None:
        made.close()
    question = {"wid": wid, "last_id": last_id}
    world.journal.add(Asked(RENEWED_STREAM, client.machine.name, begun, loop.time(), status, question, events))
    return status, events
