"""A callback at each node, to a played receiver on its client's machine, which often does not accept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from eventd.simulation.load.apply import apply_insistently
from eventd.simulation.load.step import UNIT, LoadKind, LoadStep
from eventd.simulation.world.journal import Asked
from eventd.simulation.world.played_plugin import number_of
from eventd.simulation.world.receiver import PlayedAnswer, ReceivedMessage, open_receiver, receiver_url
from eventd.simulation.world.requests import ApiClient
from eventd.simulation.world.streams import Stream
from eventd.simulation.world.topology import GROUP, Topology
from eventd.simulation.world.world import SimulatedWorld

CALLBACK: Final = "hook"
MESSAGE: Final = "message"
"""The kind of journal entry of a message at the receiver: its question is the message, its status the answer's."""
CALLBACK_LETTERS: Final = "callback letters"
MATCHED: Final = "door."
"""The beginning of the types of events that are pushed."""
REFUSALS: Final = 2
"""After how many answers about its content a message is searched for the event at fault."""
REFUSING: Final = (400, 413, 422, 500)
"""The answers that may be about the content of a message."""
GONE: Final = 410
_UNWILLING: Final = (*(500, 503, 503, 429, 404, 0, 0, -1), *REFUSING)
_SECONDS: Final = (0.0, 0.02, 0.4)


class CallbackLoad(LoadKind):
    """The load of a callback at each node: the events are those of the emits."""

    name = "callback"

    def draw(self, stream: Stream, topology: Topology, host: str, seconds: float) -> Iterator[LoadStep]:
        data: dict[str, Any] = {UNIT: "setup", "format": stream.choice(("standard", "batch"))}
        data |= {"in flight": stream.choice((1, 1, 3)), "window": stream.choice(("0s", "500ms"))}
        data |= {"unwilling": stream.choice((0.0, 0.1, 0.4)), "gone": stream.choice((0.0, 0.01))}
        data |= {"poison": stream.choice((0, 5, 25)), "until": seconds}
        yield LoadStep(round(stream.uniform(0.0, seconds / 2), 6), self.name, host, data)

    async def perform(self, world: SimulatedWorld, client: ApiClient, step: LoadStep) -> None:
        receiver = PlayedReceiver(world, client, step.data, world.loop.time() - step.at + step.data["until"])
        open_receiver(world.loop, world.network, client.life, receiver.take)
        await self._declare(world, client, step)

    async def renew(self, world: SimulatedWorld, client: ApiClient, steps: Sequence[LoadStep]) -> None:
        for step in steps:
            await self._declare(world, client, step)

    async def _declare(self, world: SimulatedWorld, client: ApiClient, step: LoadStep) -> None:
        data, url = step.data, receiver_url(client.life)
        spec: dict[str, Any] = {"source": {"groupRef": GROUP}, "match": {"types": [f"{MATCHED}*"]}, "url": url}
        spec |= {"format": data["format"], "from": "earliest", "allowPlain": True}
        if data["format"] == "batch":
            spec["batch"] = {"maxEvents": 20, "window": data["window"]}
        spec["limits"] = {"timeout": "2s", "connectTimeout": "1s", "inFlight": data["in flight"]}
        spec["retry"] = {"baseBackoff": "100ms", "maxBackoff": "2s", "isolateAfter": REFUSALS}
        version, name = "federation.routerd.net/v1alpha1", {"name": CALLBACK}
        document = {"apiVersion": version, "kind": "EventCallback", "metadata": name, "spec": spec}
        await apply_insistently(world, client, self.name, [document], f"{self.name} {data[UNIT]}")

    async def unrest(self, world: SimulatedWorld, client: ApiClient, steps: Sequence[LoadStep]) -> list[str]:
        """Say what waits; resume a callback that the node has disabled, as an operator does."""
        reply = await client.ask("callbacks", "GET", "/callbacks")
        if not reply.is_good:
            return [f"{client.machine.name} answers {reply.status}"]
        for each in reply.document["callbacks"]:
            if each["pausedBy"]:
                await client.ask("resume", "POST", f"/callbacks/{CALLBACK}/resume", {})
            if each["waitingEvents"] or each["pausedBy"]:
                return [f"{client.machine.name}: {_words(each)}"]
        return []

    async def look(self, world: SimulatedWorld, client: ApiClient, steps: Sequence[LoadStep]) -> bool:
        path = f"/callbacks/{CALLBACK}/dead-letters?limit=1000"
        reply = await client.ask(CALLBACK_LETTERS, "GET", path)
        host = client.machine.name
        is_declared = any(asked.host == host and asked.is_good for asked in world.journal.of(self.name))
        return reply.is_good or (reply.status == 404 and not is_declared)


class PlayedReceiver:
    """The receiver of one node: it is unwilling at random until a time of the loop, and notes each message."""

    def __init__(self, world: SimulatedWorld, client: ApiClient, data: dict[str, Any], until: float) -> None:
        self._world = world
        self._host = client.machine.name
        self._data = data
        self._until = until
        self._stream = world.streams.of(f"receiver {self._host}")

    def take(self, message: ReceivedMessage) -> PlayedAnswer:
        """Decide on the answer to a message, and write it down."""
        answer = PlayedAnswer(*self._choose(message))
        self._world.journal.add(
            Asked(MESSAGE, self._host, message.at, message.at + answer.seconds, answer.status, message, None)
        )
        return answer

    def _choose(self, message: ReceivedMessage) -> tuple[int, float]:
        choice, seconds = self._stream.random(), self._stream.choice(_SECONDS) * self._stream.random()
        status = self._stream.choice(_UNWILLING)
        if message.at >= self._until:
            return 200, seconds
        if choice < self._data["gone"]:
            return GONE, seconds
        if choice < self._data["gone"] + self._data["unwilling"]:
            return status, seconds
        every = self._data["poison"]
        if every and any(number_of(name) % every == every - 1 for name in ids_of(message)):
            return 422, seconds
        return self._stream.choice((200, 204)), seconds


def events_in(message: ReceivedMessage) -> list[dict[str, Any]]:
    """Return the events in a message, in their order."""
    body = msgspec.json.decode(message.body)
    return body if isinstance(body, list) else [body]


def ids_of(message: ReceivedMessage) -> list[str]:
    """Return the ids of the events in a message, in their order."""
    return [each["id"] for each in events_in(message)]


def _words(shown: dict[str, Any]) -> dict[str, Any]:
    return {name: shown[name] for name in ("callback", "state", "reason", "lastError", "waitingEvents", "pausedBy")}
