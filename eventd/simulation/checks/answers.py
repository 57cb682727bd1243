"""Checks by questions and answers alone: what the clients know, held against what the nodes say later.

Nothing here reads a table of a node: a checker that did would repeat the errors of the node's queries.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from eventd.simulation.checks.contents import EmittedContents
from eventd.simulation.checks.violation import Violation
from eventd.simulation.load.declarations import DECLARE
from eventd.simulation.world.journal import Asked, Journal
from eventd.simulation.world.played_plugin import DERIVED
from eventd.simulation.world.topology import Topology

_NOT_FOUND = 404
_OF_GROUP = ("emit", "list", "links")
_STORED = ("new", "refreshed", "duplicate")
Explain = Callable[[str, str], bool]
"""Returns whether a node, by its name, may lack an event, by its id, because some node has evicted it."""


def explain_nothing(_host: str, _event_id: str) -> bool:
    """Explain no missing event."""
    return False


def _gaps(listing: Asked) -> Iterator[tuple[int, int]]:
    """Yield the last seq before each page of a list, and the page's first one."""
    before, begin = 0, 0
    for count in listing.question:
        page = listing.answer[begin : begin + count]
        if page:
            yield before, page[0]["seq"]
            before, begin = page[-1]["seq"], begin + count


@dataclass(slots=True)
class KnownEvents:
    """What the clients of one node know: `acknowledged` events, by the time of the answer, and `seqs` by id."""

    acknowledged: dict[str, float] = field(default_factory=dict)
    seqs: dict[str, int] = field(default_factory=dict)
    absent: dict[str, float] = field(default_factory=dict)
    """Events that an answer acknowledged, and could not show."""
    refreshed: dict[str, None] = field(default_factory=dict)
    """Events that may have got a later expiry, or were written anew after a restore, and with it a new place."""


class AnswerReference:
    """What must be true by the answers of one run."""

    def __init__(self, journal: Journal, topology: Topology, begin: float) -> None:
        self.known = {name: KnownEvents() for name in topology.nodes}
        self._journal = journal
        self._topology = topology
        self._begin = begin
        self._types: dict[str, str] = {}  # of events, by their ids
        self._asked_at: dict[str, float] = {}  # when each event was first emitted
        self._contents = EmittedContents(journal)
        # A relay does not send back what came through a node, which may have lost it with a restore, and has it later.
        is_relayed_anew = bool(journal.restores) and any(link.relay for link in topology.links)
        self._is_ordered = not (journal.of(DECLARE) or topology.speaks_v1 or is_relayed_anew)
        for asked in journal.of("emit"):
            self._take(asked)

    def _take(self, asked: Asked) -> None:
        known = self.known[asked.host]
        for event in asked.question["events"]:
            self._types[event["id"]] = event["type"]
            self._asked_at[event["id"]] = min(self._asked_at.get(event["id"], asked.asked_at), asked.asked_at)
            if "expiresAt" in event:
                self._may_move(event["id"])
        if self._journal.may_have_lost(asked):
            for event in asked.question["events"]:
                self._may_move(event["id"])
            return
        if not asked.is_good:
            return
        for result in asked.answer["results"]:
            if result["result"] in _STORED:
                known.acknowledged.setdefault(result["id"], asked.answered_at)
            if result["event"] is None and not self._may_take(asked.host, result["id"], None, asked.answered_at):
                known.absent.setdefault(result["id"], asked.answered_at)
            elif result["result"] == "new" and "seq" in result["event"]:
                known.seqs[result["id"]] = result["event"]["seq"]

    def _may_move(self, event_id: str) -> None:
        for known in self.known.values():
            known.refreshed[event_id] = None

    @property
    def acknowledged(self) -> int:
        """Return how many events were acknowledged."""
        return sum(len(known.acknowledged) for known in self.known.values())

    def violations(
        self, final: Mapping[str, list[dict[str, Any]]], explain: Explain = explain_nothing
    ) -> Iterator[Violation]:
        """Yield what is wrong, by the lists of each node at rest; `explain`: which events a node may lack."""
        yield from self._lost_resources()
        yield from self._lost_meanwhile()
        yield from self._stored_anew()
        yield from self._appended_in_order()
        for host, events in final.items():
            ids = [event["id"] for event in events]
            yield from self._twice(host, ids)
            yield from self._missing(host, set(ids), explain)
            yield from self._out_of_order(host, ids, final)
            yield from self._moved(host, events)
            yield from self._changed(host, events)

    def _found(self, invariant: str, host: str, detail: str, at: float | None = None) -> Violation:
        moment = max((asked.answered_at for asked in self._journal.asked), default=0.0) if at is None else at
        return Violation(invariant, host, detail, moment - self._begin)

    def _lost_resources(self) -> Iterator[Violation]:
        """V3: a node that has taken its resources keeps them."""
        taken = {asked.host: asked.answered_at for asked in self._journal.of("apply") if asked.is_good}
        for asked in (each for kind in _OF_GROUP for each in self._journal.of(kind)):
            if asked.status == _NOT_FOUND and asked.asked_at > taken.get(asked.host, asked.asked_at):
                yield self._found("V3", asked.host, "the applied resources are lost", asked.answered_at)
                return

    def _lost_meanwhile(self) -> Iterator[Violation]:
        """V3: whatever was acknowledged before a list was asked for is in the list, after any restart."""
        for host, known in self.known.items():
            for name, at in known.absent.items():
                yield self._found("V3", host, f"{name} acknowledged, and not there at that moment", at)
                break
        for asked in self._journal.of("listing"):
            yield from self._changed(asked.host, asked.answer, asked.answered_at)
            listed = {event["id"] for event in asked.answer}
            acknowledged = self.known[asked.host].acknowledged
            lost = [name for name, at in acknowledged.items() if at < asked.asked_at and name not in listed]
            lost = [name for name in lost if not self._may_be_evicted(asked, name)]
            if lost:
                yield self._found("V3", asked.host, f"{_some(lost)} acknowledged and lost", asked.answered_at)
                return

    def _may_be_evicted(self, listing: Asked, name: str) -> bool:
        """Return whether retention may have taken an event that a list lacks: it is below all that a page of it has."""
        seqs = [event["seq"] for event in listing.answer]
        known = self.known[listing.host]
        seq = None if name in known.refreshed else known.seqs.get(name)
        if seq is not None and seqs and not any(before < seq < first for before, first in _gaps(listing)):
            return False
        return self._may_take(listing.host, name, seq, listing.answered_at, max(seqs, default=0))

    def _may_take(self, host: str, name: str, seq: int | None, at: float, head: int = 0) -> bool:
        retention = self._journal.retentions.get(host)
        return retention is not None and retention.may_take(seq, head, at - self._asked_at[name])

    def _stored_anew(self) -> Iterator[Violation]:
        """V5: a node knows the id of each event that it has acknowledged, also if the event is evicted."""
        for asked in self._journal.of("emit"):
            if not asked.is_good or self._journal.may_have_lost(asked):
                continue
            known = self.known[asked.host].acknowledged
            new = [each["id"] for each in asked.answer["results"] if each["result"] == "new"]
            again = [name for name in new if known[name] < asked.asked_at]
            if again:
                yield self._found("V5", asked.host, f"{_some(again)} stored a second time", asked.answered_at)
                return

    def _missing(self, host: str, listed: set[str], explain: Explain) -> Iterator[Violation]:
        """V4: whatever was acknowledged at a node is at each node that its links lead to."""
        for source, known in self.known.items():
            reached = {
                kind: host in self._topology.reached(source, kind) for kind in dict.fromkeys(self._types.values())
            }
            missing = [name for name in known.acknowledged if name not in listed and reached[self._types[name]]]
            missing = [name for name in missing if not explain(host, name)]
            if missing:
                invariant = "V3" if host == source else "V4"
                yield self._found(invariant, host, f"{_some(missing)} acknowledged at {source} and missing")

    def _twice(self, host: str, ids: list[str]) -> Iterator[Violation]:
        """V5: a list has each event once."""
        twice = [name for name, count in Counter(ids).items() if count > 1]
        if twice:
            yield self._found("V5", host, f"{_some(twice)} listed twice")

    def _out_of_order(
        self, host: str, ids: list[str], final: Mapping[str, list[dict[str, Any]]]
    ) -> Iterator[Violation]:
        """V6: events of one source are in the order of that source's own list, unless a filter let them in later."""
        if not self._is_ordered:
            return
        for source, events in final.items():
            may_move = set(self.known[source].refreshed)
            if self._journal.is_restored(source):  # its plugin is run again, in some other order
                may_move.update(event["id"] for event in events if event["type"] == DERIVED)
            own = [event["id"] for event in events if event["sourceNode"] == source and event["id"] not in may_move]
            place = {name: at for at, name in enumerate(own)}
            there = [place[name] for name in ids if name in place]
            for earlier, later in itertools.pairwise(there):
                if later < earlier:
                    yield self._found("V6", host, f"{own[earlier]} before {own[later]}, unlike {source}")
                    break

    def _appended_in_order(self) -> Iterator[Violation]:
        """V6: an emit that was answered before another one was asked has the lower seqs."""
        for host in self.known:
            done: list[tuple[float, int]] = []  # when it was answered, with its highest seq
            for asked in self._journal.of("emit"):
                if asked.host != host or not asked.is_good or self._journal.may_have_lost(asked):
                    continue
                new = [each for each in asked.answer["results"] if each["result"] == "new"]
                seqs = [each["event"]["seq"] for each in new if each["event"]]
                before = max((seq for at, seq in done if at < asked.asked_at), default=0)
                if seqs and min(seqs) <= before:
                    detail = f"seq {min(seqs)} is not above {before}, which was answered before"
                    yield self._found("V6", host, detail, asked.answered_at)
                if seqs:
                    done.append((asked.answered_at, max(seqs)))

    def _moved(self, host: str, events: list[dict[str, Any]]) -> Iterator[Violation]:
        """V7: a seq that was answered for an event stays that of the event."""
        known = self.known[host]
        by_seq = {event["seq"]: event["id"] for event in events}
        for name, seq in known.seqs.items():
            if name not in known.refreshed and by_seq.get(seq) not in (None, name):
                yield self._found("V7", host, f"seq {seq} was answered for {name}, and is {by_seq[seq]} now")
                return

    def _changed(self, host: str, events: list[dict[str, Any]], at: float | None = None) -> Iterator[Violation]:
        """V7: a listed event says what was emitted."""
        difference = self._contents.difference(events)
        if difference:
            yield self._found("V7", host, difference, at)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
