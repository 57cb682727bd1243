"""Emits at each node: units of 1 to 50 events, repeats of earlier ids, and refreshes with a later expiry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from eventd.simulation.load.step import LoadKind, LoadStep
from eventd.simulation.world.requests import ApiClient
from eventd.simulation.world.streams import Stream
from eventd.simulation.world.topology import GROUP, Topology
from eventd.simulation.world.world import SimulatedWorld

OBSERVED: Final = "2026-09-21T14:00:00Z"
"""The time of observation of every event: the same for a repeat, which is then the same event."""
REPEATS: Final = 0.06
"""The share of units that repeat an earlier event."""
REFRESHES: Final = 0.03
"""The share of units that refresh an earlier event."""
EXPIRIES: Final = ("2027-09-21T14:00:00Z", "2028-09-21T14:00:00Z", "2029-09-21T14:00:00Z")
"""The expiries of refreshed events, each later than the one before."""
_SIZES: Final = ((1, 1), (2, 6), (7, 50))
_TRIES: Final = (1, 4, 8, 8)
"""How often clients ask in all without an answer: one that gives up leaves a unit of which nothing is known."""
_PAUSES: Final = (0.2, 0.4, 0.8, 1.6)
_TYPES: Final = ("door.open", "door.shut", "power.lost")


class Emits(LoadKind):
    """The load of clients that emit events and try again when they get no answer."""

    name = "emit"

    def draw(self, stream: Stream, topology: Topology, host: str, seconds: float) -> Iterator[LoadStep]:
        mean = stream.choice((0.3, 0.8, 2.0))
        known: list[str] = []
        refreshed: dict[str, int] = {}
        at = stream.expovariate(1 / mean)
        while at < seconds:
            choice = stream.random()
            if known and choice < REPEATS:
                ids, expires = [stream.choice(known)], ""
                expires = EXPIRIES[refreshed[ids[0]]] if ids[0] in refreshed else ""
            elif known and choice < REPEATS + REFRESHES:
                ids = [stream.choice(known)]
                refreshed[ids[0]] = min(refreshed.get(ids[0], -1) + 1, len(EXPIRIES) - 1)
                expires = EXPIRIES[refreshed[ids[0]]]
            else:
                count = stream.randint(*stream.choices(_SIZES, (5, 4, 1))[0])
                ids, expires = [f"{host}-{len(known) + number:05}" for number in range(count)], ""
                known += ids
            events = [make_event(event_id, expires) for event_id in ids]
            yield LoadStep(round(at, 6), self.name, host, {"events": events, "tries": stream.choice(_TRIES)})
            at += stream.expovariate(1 / mean)

    async def perform(self, world: SimulatedWorld, client: ApiClient, step: LoadStep) -> None:
        for attempt in range(step.data["tries"]):
            if attempt:
                await world.loop.pause(_PAUSES[min(attempt, len(_PAUSES)) - 1])
            question = {"events": step.data["events"]}
            reply = await client.ask(self.name, "POST", f"/groups/{GROUP}/events", question, seconds=5.0)
            if reply.is_good or 400 <= reply.status < 500:
                return


def make_event(event_id: str, expires: str = "") -> dict[str, Any]:
    """Return the event with an id that ends with a number; what it says follows from that, so a repeat is the same."""
    number = int(event_id.rpartition("-")[2])
    event: dict[str, Any] = {"id": event_id, "type": _TYPES[number % len(_TYPES)], "observedAt": OBSERVED}
    event["payload"] = {"text": "x" * (number * 37 % 400)}
    if expires:
        event["expiresAt"] = expires
    return event
