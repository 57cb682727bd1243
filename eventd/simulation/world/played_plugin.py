"""A plugin that is played: the node runs no program, and gets an answer, a failure, or none in time.

What it does is in the environment of its declaration: the shares of the runs that crash, hang, or write too much, and
which events it refuses for ever. Each of its answers has an event and a resource for each event that it was given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from eventd.plugins.contract.contract import PluginFailed
from eventd.plugins.run.executable import RawAnswer, too_much
from eventd.processes.guards import Guards
from eventd.runtime.clock import SECOND, Clock
from eventd.simulation.world.streams import Stream

PATH: Final = "/played/plugin"
"""The program of its declaration."""
CONDUCT: Final = "CONDUCT"
"""The variable that holds a `PluginConduct` as JSON."""
DERIVED: Final = "derived.door"
"""The type of the events that it emits; each names in its payload, as `of`, the event that it was derived from."""
DOORS: Final = 7
"""How many resources it proposes; each is about every seventh event."""
_SECONDS: Final = (0.005, 0.05, 1.0)


class PluginConduct(msgspec.Struct):
    """How a plugin behaves. The first three are shares of its runs; `refuses`: of how many events it refuses one."""

    crashes: float = 0.0
    hangs: float = 0.0
    floods: float = 0.0
    refuses: int = 0

    def is_refused(self, event_id: str) -> bool:
        """Return whether it never takes an event."""
        return self.refuses > 0 and number_of(event_id) % self.refuses == self.refuses - 1


class PlayedPlugin:
    """The plugin of one process of a node. `note` is called with the event ids of each run, and how it ended."""

    def __init__(self, stream: Stream, note: Callable[[list[str], str], None]) -> None:
        self._stream = stream
        self._note = note

    async def run(
        self, path: str, request: bytes, *, longest: int, environment: Mapping[str, str], clock: Clock, guards: Guards
    ) -> RawAnswer:
        """Do what `run_executable` does, without a process. Raises `PluginFailed`."""
        conduct = msgspec.json.decode(environment[CONDUCT], type=PluginConduct)
        asked = msgspec.json.decode(request)
        ids = [event["id"] for event in asked["spec"].get("events", ())]
        choice = self._stream.random()
        seconds = self._stream.choice(_SECONDS) * self._stream.random()
        if choice < conduct.hangs:
            await clock.sleep(longest / SECOND)
            self._note(ids, "hung")
            raise PluginFailed("the plugin was killed: it ran too long", reason="timeout", transient=True)
        await clock.sleep(min(seconds, longest / SECOND))
        if choice < conduct.hangs + conduct.floods:
            self._note(ids, "flooded")
            raise too_much("stdout_too_large", "", "")
        if choice < conduct.hangs + conduct.floods + conduct.crashes:
            self._note(ids, "crashed")
            raise PluginFailed("the plugin was ended by SIGKILL", reason="killed", exit_code=-9, transient=True)
        if any(map(conduct.is_refused, ids)):
            self._note(ids, "refused")
            raise PluginFailed("the plugin exited with status 3", reason="exit_code", exit_code=3)
        self._note(ids, "answered")
        return RawAnswer(0, _answer(ids), "")


def number_of(event_id: str) -> int:
    """Return the number at the end of an event's id."""
    return int(event_id.rpartition("-")[2])


def door_of(event_id: str) -> str:
    """Return the name of the resource that an event is about."""
    return f"door-{number_of(event_id) % DOORS}"


def _answer(ids: list[str]) -> bytes:
    last = {door_of(event_id): event_id for event_id in ids}
    resources: list[dict[str, Any]] = [
        {"apiVersion": "played.example/v1", "kind": "Door", "metadata": {"name": name}, "spec": {"of": event_id}}
        for name, event_id in sorted(last.items())
    ]
    events = [{"type": DERIVED, "payload": {"of": event_id}} for event_id in ids]
    status = {"ttl": "8760h", "resources": resources, "events": events}
    return msgspec.json.encode({"apiVersion": "plugin.routerd.net/v1alpha1", "kind": "PluginResult", "status": status})
