"""A subscription at each node, whose plugin is played: it answers, crashes, hangs, floods and refuses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from eventd.simulation.load.apply import apply_insistently
from eventd.simulation.load.step import UNIT, LoadKind, LoadStep
from eventd.simulation.world.journal import Asked
from eventd.simulation.world.played_plugin import CONDUCT, PATH, PluginConduct
from eventd.simulation.world.requests import ApiClient
from eventd.simulation.world.streams import Stream
from eventd.simulation.world.topology import GROUP, Topology
from eventd.simulation.world.world import SimulatedWorld

SUBSCRIPTION: Final = "doors"
OWNER: Final = f"EventSubscription/{SUBSCRIPTION}"
MATCHED: Final = "door."
"""The beginning of the types of events that the plugin gets."""
RUN_LISTING: Final = "run listing"
"""The kind of journal entry of all runs of the subscription, the newest of each event."""
PART_LISTING: Final = "part listing"
_PAGE: Final = 500
_LONG_SECONDS: Final = 30.0
_MANY: Final = 8
"""Factor by which a plugin refuses fewer events in loads that long: the retries of each hold up other events, and all
must end within the time after the faults."""


class Subscriptions(LoadKind):
    """The load of a plugin at each node: the events are those of the emits."""

    name = "subscription"

    def draw(self, stream: Stream, topology: Topology, host: str, seconds: float) -> Iterator[LoadStep]:
        share = stream.choice((0.0, 0.05, 0.2))
        conduct = {"crashes": share, "hangs": stream.choice((0.0, 0.05)), "floods": stream.choice((0.0, 0.05))}
        refuses = stream.choice((0, 10, 40)) * (_MANY if seconds >= _LONG_SECONDS else 1)
        data: dict[str, Any] = {UNIT: "setup", "conduct": {**conduct, "refuses": refuses}}
        data |= {"window": stream.choice(("0s", "300ms", "2s")), "timeout": stream.choice(("500ms", "3s"))}
        yield LoadStep(round(stream.uniform(0.0, seconds / 2), 6), self.name, host, data)

    async def perform(self, world: SimulatedWorld, client: ApiClient, step: LoadStep) -> None:
        data = step.data
        conduct = msgspec.json.encode(msgspec.convert(data["conduct"], PluginConduct)).decode()
        plugin: dict[str, Any] = {"executable": PATH, "timeout": data["timeout"], "env": {CONDUCT: conduct}}
        plugin["capabilities"] = ["propose.dynamicConfig", "emit.events"]
        spec: dict[str, Any] = {"groupRef": GROUP, "match": {"types": [f"{MATCHED}*"]}}
        spec["trigger"] = {"pluginRef": "played", "batchWindow": data["window"]}
        spec["retry"] = {"maxAttempts": 3, "baseBackoff": "100ms", "maxBackoff": "2s"}
        documents = [
            _document("plugin.routerd.net/v1alpha1", "Plugin", "played", plugin),
            _document("federation.routerd.net/v1alpha1", "EventSubscription", SUBSCRIPTION, spec),
        ]
        await apply_insistently(world, client, self.name, documents, f"{self.name} {data[UNIT]}")

    async def renew(self, world: SimulatedWorld, client: ApiClient, steps: Sequence[LoadStep]) -> None:
        for step in steps:
            await self.perform(world, client, step)

    async def unrest(self, world: SimulatedWorld, client: ApiClient, steps: Sequence[LoadStep]) -> list[str]:
        reply = await client.ask("subscriptions", "GET", "/subscriptions")
        if not reply.is_good:
            return [f"{client.machine.name} answers {reply.status}"]
        shown = reply.document["subscriptions"]
        return [f"{client.machine.name}: {_words(each)}" for each in shown if each["waitingEvents"]]

    async def look(self, world: SimulatedWorld, client: ApiClient, steps: Sequence[LoadStep]) -> bool:
        """List the newest run of each event, and the parts."""
        begun, runs, before = world.loop.time(), list[Any](), ""
        while True:
            path = f"/subscriptions/{SUBSCRIPTION}/runs?limit={_PAGE}{f'&before={before}' if before else ''}"
            reply = await client.ask("runs", "GET", path)
            if not reply.is_good:
                return False
            runs += reply.document["runs"]
            before = reply.document["next"]
            if before is None:
                break
        world.journal.add(Asked(RUN_LISTING, client.machine.name, begun, world.loop.time(), 200, None, runs))
        reply = await client.ask(PART_LISTING, "GET", f"/dynamic/part?source={OWNER}")
        return reply.is_good


def _document(version: str, kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _words(shown: dict[str, Any]) -> dict[str, Any]:
    return {name: shown[name] for name in ("subscription", "state", "reason", "lastError", "waitingEvents")}
