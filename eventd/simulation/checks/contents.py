"""What events say: an event has the type and the payload with which a client has emitted it, wherever it is listed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from eventd.simulation.load.conflicts import CONFLICT
from eventd.simulation.world.journal import Journal
from eventd.simulation.world.played_plugin import DERIVED


class EmittedContents:
    """The types and payloads of all events that the clients of a run have emitted, with an answer or without one."""

    def __init__(self, journal: Journal) -> None:
        emitted = [each for asked in journal.of("emit") for each in asked.question["events"]]
        self._known = {each["id"]: (each["type"], each.get("payload")) for each in emitted}
        self.emitted_at: dict[str, float] = {}
        """When each event was first emitted: no node can have it before."""
        for asked in journal.of("emit"):
            for each in asked.question["events"]:
                first = self.emitted_at.get(each["id"], asked.asked_at)
                self.emitted_at[each["id"]] = min(first, asked.asked_at)
        self._shared = {
            (each["id"], asked.host): (each["type"], each["payload"])
            for asked in journal.of(CONFLICT)
            for each in asked.question["events"]
        }

    @property
    def types(self) -> dict[str, str]:
        """Return the types of the events by their ids."""
        return {name: kind for name, (kind, _) in self._known.items()}

    def difference(self, events: Iterable[Mapping[str, Any]]) -> str:
        """Say what the first event has that was not emitted so; empty if all are as they were emitted.

        The events that a plugin derives have ids that no client knows.
        """
        for event in events:
            name, kind = event["id"], event["type"]
            known = self._known.get(name) or self._shared.get((name, event.get("sourceNode", "")))
            if known is None and kind != DERIVED:
                return f"{name} was never emitted"
            if known is not None and (kind, event.get("payload")) != known:
                return f"{name} is {kind} {event.get('payload')}, and was emitted as {known[0]} {known[1]}"
        return ""

    def payload_difference(self, records: Iterable[Mapping[str, Any]]) -> str:
        """Say what the first record of the group's topic, or of a copy of it, has that was not emitted so.

        Empty if there is none.
        """
        for record in records:
            name = record["meta"]["id"]
            if name in self._known and record["data"] != self._known[name][1]:
                return f"{name} is {record['data']}, and was emitted as {self._known[name][1]}"
        return ""
