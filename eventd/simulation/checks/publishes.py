"""Checks of publishing connections: the messages of one are stored in the order in which they were sent."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator

from eventd.simulation.checks.violation import Violation
from eventd.simulation.load.publishes import PATH
from eventd.simulation.world.journal import Journal


class PublishReference:
    """What must be true of the events of one node that were published over WebSockets, by its last list.

    What was acknowledged is checked like every emit. After a restore, events come back in the order of peers.
    """

    def __init__(self, journal: Journal, host: str, begin: float) -> None:
        self._host = host
        self._begin = begin
        own = [asked for asked in journal.asked if asked.host == host]
        self._lists = [] if journal.is_restored(host) else [asked for asked in own if asked.kind == "listing"]
        self._connections: defaultdict[str, list[str]] = defaultdict(list)
        for asked in own:
            if asked.path.startswith(PATH) and asked.is_good:
                new = [each["id"] for each in asked.answer["results"] if each["result"] == "new"]
                self._connections[asked.path] += new

    def violations(self) -> Iterator[Violation]:
        """Yield what is wrong at rest."""
        if not self._lists:
            return
        last = self._lists[-1]
        places = {event["id"]: at for at, event in enumerate(last.answer)}
        for ids in self._connections.values():
            there = [name for name in ids if name in places]
            for earlier, later in itertools.pairwise(there):
                if places[later] < places[earlier]:
                    detail = f"{later} before {earlier}, which was sent before it over the same connection"
                    yield Violation("V6", self._host, detail, last.answered_at - self._begin)
                    return
