"""Readers that watch topics over streams of server-sent events, and writes of large records that fill their buffers.

A reader hangs up, is cut off, or loses its session with the node; it continues after the last event that it was sent,
where its last stream began, or with a new session after its last seq and in its epoch.
"""

from __future__ import annotations

import asyncio
import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from eventd.simulation.load.step import KEY_MILLISECONDS, LANE, UNIT, LoadKind, LoadStep
from eventd.simulation.world.event_stream import SentEvent, open_stream
from eventd.simulation.world.journal import Asked
from eventd.simulation.world.requests import ApiClient
from eventd.simulation.world.streams import Stream
from eventd.simulation.world.topology import GROUP, Topology, client_of
from eventd.simulation.world.world import SimulatedWorld

WATCH: Final = "watch"
"""The kind of journal entry of a stream: its question names the session, and its answer are the events."""
SESSION: Final = "watch session"
TOMBSTONE: Final = "tombstone"
"""The kind of event that reports a loss, or another epoch."""
WATCHED: Final = "watched"
"""The topic of large records."""
GROUP_TOPIC: Final = f"group:{GROUP}"
WRITERS: Final = 3
"""How many nodes the large records name as their writers."""
AHEAD: Final = 1000
"""By how many seqs a client that lies is ahead."""
LOOKING: Final = "look"
"""The lane of a stream that reads both topics from their beginning to their end."""
_READERS: Final = ({"topics": [GROUP_TOPIC, WATCHED], "without": ""}, {"topics": [WATCHED], "without": "writer-0"})
_RESUMES: Final = ("id", "id", "old", "none", "ahead", "anew")
_TRIES: Final = (4, 8)
_PAUSE: Final = 0.4
_CONNECT_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 10.0
_CONFIG: Final = {"durability": "fsync", "idempotency_window_ms": KEY_MILLISECONDS}
_SMALL_BUFFER: Final = 4 << 10
_LARGE_BUFFER: Final = 256 << 10


class Watches(LoadKind):
    """The load of two readers at each node, and of the writer of large records."""

    name = WATCH

    def draw(self, stream: Stream, topology: Topology, host: str, seconds: float) -> Iterator[LoadStep]:
        yield from self._draw_writes(stream, host, seconds)
        for number, reader in enumerate(_READERS):
            at = stream.uniform(0.0, 1.0)
            while at < seconds:
                lasts = stream.choice((0.3, 2.0, 6.0)) * stream.uniform(0.5, 1.5)
                data: dict[str, Any] = {LANE: f"reader {number}", **reader, "seconds": lasts}
                data |= {UNIT: f"{number} at {at:.6f}", "resume": stream.choice(_RESUMES)}
                data |= {"limit": stream.choice((2, 20, 256)), "bytes": stream.choice((2000, 1 << 18))}
                data |= {"pause": stream.choice((0.0, 0.0, 0.05, 0.5))}
                data |= {"buffer": stream.choice((_SMALL_BUFFER, _SMALL_BUFFER, _LARGE_BUFFER))}
                yield LoadStep(round(at, 6), self.name, host, data)
                at += lasts + stream.expovariate(2.0)

    def _draw_writes(self, stream: Stream, host: str, seconds: float) -> Iterator[LoadStep]:
        mean = stream.choice((0.3, 1.0))
        number = 0
        at = stream.uniform(0.0, 0.5)
        while at < seconds:
            count = stream.choice((1, 2, 8))
            data = {LANE: "writer", UNIT: str(number), "first": number, "count": count, "tries": stream.choice(_TRIES)}
            yield LoadStep(round(at, 6), self.name, host, data)
            number += count
            at += stream.expovariate(1 / mean)

    async def perform(self, world: SimulatedWorld, client: ApiClient, step: LoadStep) -> None:
        if "count" in step.data:
            await _write(world, client, step.data)
        else:
            await _read(world, client, step.data)

    async def look(self, world: SimulatedWorld, client: ApiClient, steps: Sequence[LoadStep]) -> bool:
        """Read all of both topics over a stream of its own."""
        data: dict[str, Any] = {LANE: LOOKING, **_READERS[0], "limit": 256, "bytes": 1 << 20, "pause": 0.0, UNIT: ""}
        wid = await _begin_session(client, data, {})
        if wid is None:
            return False
        events = await _stream(world, client, data, wid, "", _LOOK_SECONDS, until_end=True)
        ended = {event.data["topic"] for event in events if event.kind == "caught-up"}
        return ended >= _topics_of(world, client, wid)


async def _write(world: SimulatedWorld, client: ApiClient, data: dict[str, Any]) -> None:
    question: dict[str, Any] = {"idempotency_key": f"watched {data['first']}", "config": _CONFIG}
    question["records"] = [watched_record(number) for number in range(data["first"], data["first"] + data["count"])]
    for _ in range(data["tries"]):
        path = f"/v0/topics/{WATCHED}"
        reply = await client.ask("watched write", "POST", path, question, seconds=5.0, unit=f"{WATCH} {data[UNIT]}")
        if reply.is_good or 400 <= reply.status < 500:
            return
        await world.loop.pause(_PAUSE)


def watched_record(number: int) -> dict[str, Any]:
    """Return the record with a number, which is unique at its node."""
    text = "x" * (number * 7919 % 9000)
    return {"data": {"number": number, "text": text}, "node": f"writer-{number % WRITERS}"}


async def _read(world: SimulatedWorld, client: ApiClient, data: dict[str, Any]) -> None:
    """Read until the time of the step is over, over one stream after the other."""
    until = world.loop.time() + data["seconds"]
    world.network.path(client.machine.name, client_of(client.machine.name)).buffer = data["buffer"]
    resume = data["resume"]
    while (left := until - world.loop.time()) > 0:
        last = _last_stream(world, client, data[LANE])
        if last is None or resume == "anew":
            places = {} if last is None else _reached(world, last)
            wid = await _begin_session(client, data, places)
            last_id = ""
        else:
            wid, last_id = last.question["wid"], _id_of(last, resume)
        if wid is not None:
            await _stream(world, client, data, wid, last_id, left)
            last = _last_stream(world, client, data[LANE])
        # A session is lost with its node, and one of a topic that did not exist yet does not get it later.
        is_known = last is not None and last.status != 404
        resume = "id" if is_known and last is not None and _has_all(world, client, data, last) else "anew"
        await world.loop.pause(_PAUSE)


async def _begin_session(client: ApiClient, data: dict[str, Any], places: dict[str, dict[str, Any]]) -> str | None:
    """Begin a session at these places; return its name, or None without an answer or without any topic."""
    topics = {name: places.get(name, {"from_seq": 0}) for name in data["topics"]}
    question = {"topics": topics, "include_epoch": True, "heartbeat_ms": 1000}
    question |= {"limit": data["limit"], "max_batch_bytes": data["bytes"]}
    if data["without"]:
        question["node"] = data["without"]
    reply = await client.ask(SESSION, "POST", "/v0/watch?lenient=true", question, seconds=5.0)
    return reply.document["wid"] if reply.is_good and reply.document["topics"] else None


async def _stream(
    world: SimulatedWorld,
    client: ApiClient,
    data: dict[str, Any],
    wid: str,
    last_id: str,
    seconds: float,
    *,
    until_end: bool = False,
) -> list[SentEvent]:
    """Read one stream of a session until it breaks or its time is over; return what was sent."""
    loop, begun = world.loop, world.loop.time()
    question = {"wid": wid, "last_id": last_id, "lane": data[LANE], "pause": data["pause"]}
    made = None
    with suppress(OSError):
        async with asyncio.timeout(_CONNECT_SECONDS):
            made = await open_stream(loop, client.machine, f"/v0/watch/{wid}", last_id, data["pause"])
    ended = ""
    while made is not None and not made.over.done():
        left = begun + seconds - loop.time()
        if left <= 0 or (until_end and _is_at_end(made.events, _topics_of(world, client, wid))):
            ended = "hung up"
            break
        await _either(world, made.over, min(left, 0.2))
    status, events = (0, []) if made is None else (made.status, made.events)
    if made is not None:
        made.close()
    unit, host = f"{WATCH} {data[UNIT]}", client.machine.name
    world.journal.add(Asked(WATCH, host, begun, loop.time(), status, question, (ended, events), unit=unit))
    return events


async def _either(world: SimulatedWorld, over: Any, seconds: float) -> None:
    """Wait until a stream is over, but not longer than this."""
    timer = world.loop.create_future()
    handle = world.loop.call_later(seconds, lambda: None if timer.done() else timer.set_result(None))

    def end(_: Any) -> None:
        if not timer.done():
            timer.set_result(None)

    over.add_done_callback(end)
    try:
        await timer
    finally:
        handle.cancel()
        over.remove_done_callback(end)


def _is_at_end(events: Sequence[SentEvent], topics: set[str]) -> bool:
    return topics <= {event.data["topic"] for event in events if event.kind == "caught-up"}


# --- what a client knows -------------------------------------------------------------------------------------------


def _last_stream(world: SimulatedWorld, client: ApiClient, lane: str) -> Asked | None:
    """Return the last stream of a reader, whether it was answered or not."""
    for asked in reversed(world.journal.asked):
        if asked.kind == WATCH and asked.host == client.machine.name and asked.question["lane"] == lane:
            return asked
    return None


def _session(world: SimulatedWorld, host: str, wid: str) -> Asked:
    own = (asked for asked in world.journal.of(SESSION) if asked.host == host and asked.is_good)
    return next(asked for asked in own if asked.answer["wid"] == wid)


def _topics_of(world: SimulatedWorld, client: ApiClient, wid: str) -> set[str]:
    return set(_session(world, client.machine.name, wid).answer["topics"])


def _has_all(world: SimulatedWorld, client: ApiClient, data: dict[str, Any], last: Asked) -> bool:
    return _topics_of(world, client, last.question["wid"]) >= set(data["topics"])


def events_of(world_journal: Sequence[Asked], session: str) -> list[SentEvent]:
    """Return the events with an id of a session's streams, in the order in which they arrived."""
    streams = (each for each in world_journal if each.kind == WATCH and each.question["wid"] == session)
    return [event for each in streams for event in each.answer[1] if event.id]


def _reached(world: SimulatedWorld, last: Asked) -> dict[str, dict[str, Any]]:
    """Return the places that a reader has reached in its topics: a seq, and the epoch that the node has named."""
    session = _session(world, last.host, last.question["wid"])
    seqs = {name: each["from_seq"] for name, each in session.answer["topics"].items()}
    epochs = epochs_at_start(session)
    events = events_of(world.journal.asked, last.question["wid"])
    for event in events:
        if event.kind == TOMBSTONE:
            epochs[event.data["topic"]] = event.data["epoch"]
        seqs |= places_of(event.id)
    return {name: {"from_seq": seq, "epoch": epochs[name]} for name, seq in seqs.items()}


def epochs_at_start(session: Asked) -> dict[str, str]:
    """Return the epoch of a reader's place in each topic when it has begun a session: the one that it has named."""
    asked = session.question["topics"]
    return {name: asked[name].get("epoch", each["epoch"]) for name, each in session.answer["topics"].items()}


def _id_of(last: Asked, resume: str) -> str:
    """Return the id with which a reader continues after its last stream."""
    ids: list[str] = [event.id for event in last.answer[1] if event.id] or [last.question["last_id"]]
    match resume:
        case "id":
            return ids[-1]
        case "old":
            return ids[len(ids) // 2]
        case "ahead" if ids[-1]:
            places = numbered_places(ids[-1])
            return id_of_places({name: (number, seq + AHEAD) for name, (number, seq) in places.items()})
    return ""


def places_of(text: str) -> dict[str, int]:
    """Return the seqs by topic in the id of an event; empty for a text that is none."""
    return {name: seq for name, (_, seq) in numbered_places(text).items()}


def numbered_places(text: str) -> dict[str, tuple[int, int]]:
    """Return by topic the number of an epoch and a seq in the id of an event; empty for a text that is none.

    A seq alone is of the epoch 0.
    """
    try:
        found = msgspec.json.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, binascii.Error, msgspec.DecodeError):
        return {}
    return {name: (0, place) if isinstance(place, int) else (place[0], place[1]) for name, place in found.items()}


def id_of_places(places: dict[str, tuple[int, int]]) -> str:
    """Return the id of an event after which a client has these places: by topic the number of an epoch, and a seq."""
    shown = {name: [number, seq] if number else seq for name, (number, seq) in sorted(places.items())}
    return urlsafe_b64encode(msgspec.json.encode(shown)).rstrip(b"=").decode()
