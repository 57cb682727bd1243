"""Clients of two nodes emit events with the same ids: the later event is refused wherever the other one is known.

The sender of a refused event has a dead letter, which an operator retries, although the peer refuses the event again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, Final

from eventd.simulation.load.emits import OBSERVED
from eventd.simulation.load.repairs import RETRY, link_differences
from eventd.simulation.load.step import LANE, LoadKind, LoadStep
from eventd.simulation.world.journal import Asked, Journal
from eventd.simulation.world.requests import ApiClient
from eventd.simulation.world.streams import Stream
from eventd.simulation.world.topology import GROUP, Topology
from eventd.simulation.world.world import SimulatedWorld

CONFLICT: Final = "conflict"
"""The kind of journal entry of an emit whose ids the client of another node uses, too."""
LETTER_LISTING: Final = "letter listing"
"""The kind of journal entry of all dead letters of a node's peers."""
SHARED_TYPE: Final = "badge.read"
"""The type of these events: no plugin and no callback gets it."""
_SPACING: Final = 0.4
"""Seconds from one set of ids to the next."""
_DELAYS: Final = (0.0, 0.03, 0.03, 0.3, 2.0)
"""By how much a client is late at most, in seconds: mostly less than a batch takes."""
_MOST_IDS: Final = 3
_TRIES: Final = 5
_PAUSE: Final = 0.4


class Conflicts(LoadKind):
    """The load of clients that use the same ids for different events, and of an operator who retries dead letters."""

    name = CONFLICT

    def draw(self, stream: Stream, topology: Topology, host: str, seconds: float) -> Iterator[LoadStep]:
        pairs = list(combinations(topology.nodes, 2))
        steps = []
        for number in range(int(seconds / _SPACING)):
            is_meant = host in pairs[number % len(pairs)] and stream.random() < 0.9
            at = number * _SPACING + stream.uniform(0.0, stream.choice(_DELAYS))
            ids = [f"shared-{number:04}-{one}" for one in range(1 + number % _MOST_IDS)]
            if is_meant and at < seconds:
                data = {"events": [make_shared(event_id, host) for event_id in ids], LANE: "client"}
                steps.append(LoadStep(round(at, 6), self.name, host, data))
        for _ in range(stream.choice((0, 2, 5))):
            at = stream.uniform(seconds / 4, seconds)
            steps.append(LoadStep(round(at, 6), self.name, host, {LANE: "operator"}))
        yield from sorted(steps, key=lambda step: step.at)

    async def perform(self, world: SimulatedWorld, client: ApiClient, step: LoadStep) -> None:
        if "events" not in step.data:
            await client.ask(RETRY, "POST", f"/groups/{GROUP}/dead-letters/retry", {"all": True})
            return
        for attempt in range(_TRIES):
            if attempt:
                await world.loop.pause(_PAUSE)
            question = {"events": step.data["events"]}
            reply = await client.ask(CONFLICT, "POST", f"/groups/{GROUP}/events", question, seconds=5.0)
            if reply.is_good or 400 <= reply.status < 500:
                return

    async def look(self, world: SimulatedWorld, client: ApiClient, steps: Sequence[LoadStep]) -> bool:
        """Ask for all dead letters, as one entry of the journal."""
        found: list[dict[str, Any]] = []
        asked_at, after = world.loop.time(), 0
        while True:
            path = f"/groups/{GROUP}/dead-letters?limit=1000&after={after}"
            reply = await client.ask("letters", "GET", path)
            if not reply.is_good:
                return False
            found += reply.document["deadLetters"]
            if reply.document["next"] is None:
                break
            after = reply.document["next"]
        name, now = client.machine.name, world.loop.time()
        world.journal.add(Asked(LETTER_LISTING, name, asked_at, now, 200, None, found))
        return True

    async def unrest(self, world: SimulatedWorld, client: ApiClient, steps: Sequence[LoadStep]) -> list[str]:
        """Say which links differ by more than the refused events."""
        return await link_differences(world, client)


def make_shared(event_id: str, host: str) -> dict[str, Any]:
    """Return the event that the client of a node emits with an id that another client uses, too."""
    payload = {"door": host, "text": "y" * (len(event_id) * ord(host[0]) % 50)}
    return {"id": event_id, "type": SHARED_TYPE, "observedAt": OBSERVED, "payload": payload}


def shared_ids(journal: Journal) -> set[str]:
    """Return the ids that clients of several nodes use, each for an event of its own."""
    return {event["id"] for asked in journal.of(CONFLICT) for event in asked.question["events"]}


def without_shared(journal: Journal, lists: Mapping[str, Iterable[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """Return the lists of the nodes without the events whose id says nothing of their source."""
    shared = shared_ids(journal)
    return {host: [event for event in events if event["id"] not in shared] for host, events in lists.items()}
