"""What a campaign has done that an invariant of the simulation is about.

Not each run has the load or the fault that an invariant needs: the number of runs would say too much.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple


class Occasion(NamedTuple):
    """A count of a campaign's result: the sum of these names of a `member`, as `words` name it."""

    member: str
    names: tuple[str, ...]
    words: str

    def count(self, result: Mapping[str, Any]) -> int:
        """Return how often a campaign has had it."""
        return sum(result[self.member].get(name, 0) for name in self.names)


UNITS: Final[Mapping[str, str]] = {
    "emit": "emits",
    "publishing": "series of messages with events, over a WebSocket",
    "watch": "watch streams, and large writes to watched topics",
    "socket": "series of batches for a topic, over a WebSocket",
    "renewal": "writes to topics that are deleted and created again",
    "route": "declarations of routers, and writes to their topics",
    "subscription": "declarations of plugins",
    "callback": "declarations of callbacks",
}
"""What a unit of load is, by the kind of load. Other kinds have none."""

OCCASIONS: Final[Mapping[str, Occasion]] = {
    "V10": Occasion(
        "branches", ("gap reported", "reader of another epoch"), "reported gaps and readers of another epoch"
    ),
    "V11": Occasion("acknowledgedUnits", ("callback",), UNITS["callback"]),
    "V12": Occasion("acknowledgedUnits", ("route",), UNITS["route"]),
    "V13": Occasion("acknowledgedUnits", ("subscription",), UNITS["subscription"]),
    "V14": Occasion(
        "acknowledgedUnits",
        ("watch", "socket", "renewal"),
        "watches, series over WebSockets, and writes that they read",
    ),
    "V15": Occasion("branches", ("lease taken over",), "leases taken over"),
    "V16": Occasion("faults", ("new epoch", "restore"), "new epochs and restores"),
    "V17": Occasion("faults", ("replay",), "requests that an adversary sent again"),
    "V38": Occasion("faults", ("restore",), "restores"),
}
"""By invariant. What is not here is checked in each run."""


def checked_in(names: Sequence[str], result: Mapping[str, Any]) -> str:
    """Return how often a campaign has had what these invariants are about."""
    always = [name for name in names if name not in OCCASIONS]
    parts = [f"{', '.join(always)} in each of {result['countedRuns']:,} runs that count"] if always else []
    its = [(name, OCCASIONS[name]) for name in names if name in OCCASIONS]
    parts += [f"{name} with {occasion.count(result):,} {occasion.words}" for name, occasion in its]
    return "; ".join(parts)
