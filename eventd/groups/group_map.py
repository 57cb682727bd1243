"""The map of a group: the nodes and links that this node knows of, and where the two ends of a link disagree. Pure.

A link has two ends, and each reports on its own: the sender its state, lag and rate, the receiver what arrived. A
node's report counts only for its own ends of links, and its own answer has precedence over a copy of its report that
another node passes on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from federation.status import OUT, LinkReport, NodeReport

SELF, ANSWERED, RELAYED = "self", "answered", "relayed"
UNASKED: Final = "unasked"
"""The word for a node that was not asked for its links. The other words are the results of questions: `pending`,
`older` (its program does not know the question), `not-shared`, `unreachable`, `invalid`."""
MOST_MAP_LINKS: Final = 2000
"""Maximum number of links of a map."""
FRESH_SECONDS: Final = 30.0
"""The two ends of a link are compared only while both reports are at most this old."""
FRESH_ENOUGH_SECONDS: Final = 60.0
"""The same for whether a link is there at all, which changes rarely: a report that two nodes pass on is often older
than `FRESH_SECONDS`, and the finding would come and go."""
SILENT_SECONDS: Final = 60.0
"""A running link with events to send that makes no progress for this many seconds is reported as a contradiction."""


class PeerReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a declared peer answered; for `answer` see `UNASKED`.

    `report` and `others` arrived `age_seconds` ago; both may be older than the latest question.
    """

    node: str
    answer: str
    age_seconds: float | None = None
    report: NodeReport | None = None
    others: tuple[NodeReport, ...] = ()


class GroupView(msgspec.Struct, frozen=True, kw_only=True):
    """What one node knows of a group: its own report, and what each declared peer answered."""

    own: NodeReport
    peers: tuple[PeerReport, ...] = ()


class LinkEnd(NamedTuple):
    """What one end reported about a link. `via`: the node that passed the report on; empty for the end itself."""

    link: LinkReport
    age: float
    via: str

    @property
    def silent_seconds(self) -> float | None:
        """Return how long ago the link last made progress at this end; None if it never did."""
        return None if self.link.last_seconds is None else self.link.last_seconds + self.age

    @property
    def state_seconds(self) -> float | None:
        """Return how long the link has been in its state; None if an older program reports."""
        return None if self.link.state_seconds is None else self.link.state_seconds + self.age


@dataclass(slots=True)
class MapNode:
    """A node of the map.

    `answer` says whether its links are known, see `UNASKED`; `age` and `via` are those of its report.
    """

    node: str
    answer: str = UNASKED
    age: float | None = None
    via: str = ""
    left_out: int = 0


@dataclass(slots=True)
class MapLink:
    """A link from `source` to `target`, with the reports of its two ends."""

    source: str
    target: str
    sender: LinkEnd | None = None
    receiver: LinkEnd | None = None
    findings: list[str] = field(default_factory=list)


@dataclass(slots=True)
class GroupMap:
    """All nodes by name, and links by both names; `left_out`: how many links are not shown."""

    nodes: dict[str, MapNode]
    links: dict[tuple[str, str], MapLink]
    left_out: int = 0


class _DatedReport(NamedTuple):
    """A report with its age in seconds, and the peer that passed it on; empty: none did."""

    report: NodeReport
    age: float
    via: str


def make_map(view: GroupView) -> GroupMap:
    """Return the map of what a node knows."""
    found = GroupMap({}, {})
    own = view.own.node
    found.nodes[own] = MapNode(own, SELF, view.own.age_seconds)
    reports: dict[str, _DatedReport] = {own: _DatedReport(view.own, view.own.age_seconds, "")}
    for peer in view.peers:
        found.nodes[peer.node] = MapNode(peer.node, peer.answer, peer.age_seconds)
        if peer.report is not None:
            reports[peer.node] = _DatedReport(peer.report, (peer.age_seconds or 0.0) + peer.report.age_seconds, "")
    for passed in _passed_on(view.peers, reports):
        reports[passed.report.node] = passed
        node = found.nodes.setdefault(passed.report.node, MapNode(passed.report.node))
        node.answer = RELAYED if node.answer == UNASKED else node.answer
        node.age, node.via = passed.age, passed.via
    for node_name, one in reports.items():
        found.nodes[node_name].left_out = one.report.left_out
        found.left_out += one.report.left_out
        _add_links(found, one)
    for link in found.links.values():
        link.findings = [*_compare(link, reports)]
    return found


def _passed_on(peers: Iterable[PeerReport], reports: Mapping[str, _DatedReport]) -> Iterator[_DatedReport]:
    """Yield the newest report that was passed on about each node which has not answered itself, or not lately.

    A node that no longer has this one as a peer refuses its questions: its last answer would hide what has changed.
    """
    newest: dict[str, _DatedReport] = {}
    for peer in peers:
        for other in peer.others:
            one = _DatedReport(other, (peer.age_seconds or 0.0) + other.age_seconds, peer.node)
            counts = other.node not in reports or _is_outdated(reports[other.node], one)
            if counts and (other.node not in newest or one.age < newest[other.node].age):
                newest[other.node] = one
    yield from newest.values()


def _is_outdated(known: _DatedReport, passed: _DatedReport) -> bool:
    return known.age > FRESH_SECONDS and passed.age < known.age


def _add_links(found: GroupMap, dated: _DatedReport) -> None:
    for link in dated.report.links:
        ends = (dated.report.node, link.peer) if link.direction == OUT else (link.peer, dated.report.node)
        if ends not in found.links:
            if len(found.links) >= MOST_MAP_LINKS:
                found.left_out += 1
                continue
            found.links[ends] = MapLink(*ends)
            found.nodes.setdefault(link.peer, MapNode(link.peer))
        end = LinkEnd(link, dated.age, dated.via)
        if link.direction == OUT:
            found.links[ends].sender = end
        else:
            found.links[ends].receiver = end


def _compare(link: MapLink, reports: Mapping[str, _DatedReport]) -> Iterator[str]:
    """Yield the contradictions between the reports of the two ends; nothing unless both reports are fresh."""
    sender, receiver = link.sender, link.receiver
    age = max(reports[end].age if end in reports else math.inf for end in (link.source, link.target))
    is_fresh = age <= FRESH_SECONDS
    if age > FRESH_ENOUGH_SECONDS:
        return
    if is_fresh and sender is not None and sender.link.state == "running" and _has_to_send(sender.link):
        if receiver is None and _is_complete(link.target, reports) and (sender.link.events_per_second or 0) > 0:
            yield f"running at {link.source}, and unknown at {link.target}"
        silent = None if receiver is None else _contradicting_silence(sender, receiver)
        if silent is not None:
            yield f"running at {link.source}, and nothing received at {link.target} for {_span(silent)}"
    if receiver is None or sender is not None or not _is_complete(link.source, reports):
        return
    if is_fresh and (receiver.link.events_per_second or 0) > 0:
        # The rate is the mean of a minute. No newer figure: the silence since a report would count as one of the link.
        yield f"{link.target} received events in the last 2 min, and {link.source} has no link to it"
    elif _sends(link.target, link.source, reports):
        # The receiver's mark of the sender outlives the link: a direction that never was declared is no finding.
        yield f"{link.source} has no link to {link.target} any more, though {link.target} has one to {link.source}"


def _contradicting_silence(sender: LinkEnd, receiver: LinkEnd) -> float | None:
    """Return for how long a receiver has received nothing, if that contradicts its running sender, otherwise None.

    The receiver's report may be older than what the sender has just sent: after a pause or an outage it still shows
    the silence. So the link must have run for a while before that report, or the sender must have delivered before it.
    """
    silent = receiver.silent_seconds
    if silent is None or silent <= SILENT_SECONDS or receiver.link.events_per_second:
        return None
    runs, delivered = sender.state_seconds, sender.silent_seconds
    if runs is not None and runs - receiver.age <= SILENT_SECONDS:
        return None
    if not _waits_long(sender.link) and delivered is not None and delivered < receiver.age:
        return None
    return silent


def _has_to_send(link: LinkReport) -> bool:
    return bool(link.events_per_second) or _waits_long(link)


def _waits_long(link: LinkReport) -> bool:
    return link.lag_events > 0 and link.lag_seconds > SILENT_SECONDS


def _sends(node: str, peer: str, reports: Mapping[str, _DatedReport]) -> bool:
    return any(link.peer == peer and link.direction == OUT for link in reports[node].report.links)


def _is_complete(node: str, reports: Mapping[str, _DatedReport]) -> bool:
    return not reports[node].report.left_out


def _span(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 120 else f"{seconds:.0f} s"


def in_order(links: Iterable[MapLink]) -> Sequence[MapLink]:
    """Return the links, those with a problem first, then by the names of their ends."""

    def rank(link: MapLink) -> tuple[bool, bool, str, str]:
        runs = link.sender is None or link.sender.link.state == "running"
        return not link.findings, runs, link.source, link.target

    return sorted(links, key=rank)
