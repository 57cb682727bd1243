"""The nodes and links of a map as a picture sees them: a word for the state of each, and which need attention first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any, Final

OLD_SECONDS: Final = 30.0
"""Seconds after which a report is shown as old."""
NOT_REPORTED: Final = "not reported"
STATES: Final = ("blocked", "failed", "backing-off", "paused", "unknown", NOT_REPORTED, "running")
"""The states of links; those that need attention come first."""
CALM: Final = len(STATES) - 1
"""The rank of links and nodes that need no attention."""
_STEPS: Final = (1.0, 100.0)
"""The rates, in events per second, from which on a line is drawn wider."""
SILENT: Final = ("unreachable", "invalid")
"""The kinds of answers by which a node counts as silent, so that it needs attention."""
_REPORTED: Final = ("self", "answered", "relayed")


@dataclass(frozen=True, slots=True)
class LinkOnMap:
    """A link. `state`: as its sender reports, `not reported` if it has not. `age`: see `past_age`."""

    source: str
    target: str
    state: str
    lag: float | None
    rate: float
    age: float | None
    findings: tuple[str, ...] = ()

    @property
    def rank(self) -> int:
        """Return how much the link needs attention: the smaller the rank, the more."""
        return -1 if self.findings else STATES.index(self.state)

    @property
    def runs(self) -> bool:
        return self.state == "running" and not self.findings

    @property
    def width(self) -> int:
        """Return the width of the line, by the link's rate: 1, 2 or 3."""
        return 1 + sum(self.rate >= least for least in _STEPS)


def silent_nodes(shown: Mapping[str, Any]) -> frozenset[str]:
    """Return the nodes of an answer of `map.show` that do not answer now."""
    return frozenset(node["node"] for node in shown["nodes"] if node["answer"] in SILENT)


def past_age(shown: Mapping[str, Any], silent: Set[str]) -> float | None:
    """Return how old the state of a link is in seconds, if it is news of the past; None if it can be believed.

    It is if the report is old, or of a node that does not answer now: it may have ended. The state is what the sender
    reports; without it, the receiver's report counts.
    """
    end, owner = (shown["sender"], shown["from"]) if shown["sender"] else (shown["receiver"], shown["to"])
    return _past_age(end, owner, silent)


def _past_age(end: Mapping[str, Any] | None, owner: str, silent: Set[str]) -> float | None:
    age: float = end["ageSeconds"] if end is not None else 0.0
    return age if end is not None and (age > OLD_SECONDS or owner in silent) else None


def reporting_nodes(shown: Mapping[str, Any]) -> frozenset[str]:
    """Return the nodes of an answer of `map.show` that have reported all of their links lately."""
    return frozenset(
        node["node"]
        for node in shown["nodes"]
        if node["answer"] in _REPORTED and not node.get("leftOut") and (node["ageSeconds"] or 0.0) <= OLD_SECONDS
    )


def table_rows(
    links: Iterable[Mapping[str, Any]], silent: Set[str], reporting: Set[str] = frozenset()
) -> list[dict[str, Any]]:
    """Return links for a table, with the ages of old reports.

    `past`: the age of the state, if its report is old or its node is `silent`, else None; `receivedPast`: the same for
    what the receiver reports. `carries`: whether the link carries events now. `sentRate` and `receivedRate` are None
    unless it does and the report is recent. `absent`: whether the source, one of `reporting`, has no such link.
    """
    return [
        _table_row(link, silent) | {"absent": link["sender"] is None and link["from"] in reporting} for link in links
    ]


def _table_row(link: Mapping[str, Any], silent: Set[str]) -> dict[str, Any]:
    past, received_past = past_age(link, silent), _past_age(link["receiver"], link["to"], silent)
    sender, receiver, carries = link["sender"], link["receiver"], _carries(link, silent)
    return {
        **link,
        "past": past,
        "receivedPast": received_past,
        "carries": carries,
        "sentRate": sender["eventsPerSecond"] if sender and carries and past is None else None,
        "receivedRate": receiver["eventsPerSecond"] if receiver and carries and received_past is None else None,
    }


def _carries(link: Mapping[str, Any], silent: Set[str]) -> bool:
    """Return whether a link can carry events now: rates are means of a minute, and outlast the end of a link."""
    running = link["sender"] is None or link["sender"]["state"] == "running"
    return running and link["from"] not in silent and link["to"] not in silent


def read_link(shown: Mapping[str, Any], silent: Set[str] = frozenset()) -> LinkOnMap:
    """Return a link of the answer of `map.show`. `silent`: the nodes that do not answer now."""
    sender, receiver = shown["sender"], shown["receiver"]
    ends = [end for end in (sender, receiver) if end is not None]
    state = sender["state"] if sender is not None else NOT_REPORTED
    return LinkOnMap(
        shown["from"],
        shown["to"],
        state if state in STATES else "unknown",
        None if sender is None else sender["lagSeconds"],
        max((end["eventsPerSecond"] or 0.0 for end in ends), default=0.0) if _carries(shown, silent) else 0.0,
        past_age(shown, silent),
        tuple(shown["findings"]),
    )


def ranks_of(nodes: Mapping[str, Mapping[str, Any]], links: list[LinkOnMap]) -> dict[str, int]:
    """Return how much each node needs attention: as much as its worst link; a silent node as much as a failed link."""
    found = {name: STATES.index("failed") if node["answer"] in SILENT else CALM for name, node in nodes.items()}
    for link in links:
        rank = CALM if link.state == NOT_REPORTED and not link.findings else link.rank
        for name in (link.source, link.target):
            found[name] = min(found.get(name, CALM), rank)
    return found
