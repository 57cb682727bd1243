"""Checks of events that a peer refuses, because another event has their id there, and of their dead letters.

Only runs without restores and without retention have such events: of what a restore or retention has taken, nothing
shows which of the two events with an id it was. By v1 a peer does not tell its sender that it has refused one.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple

from eventd.simulation.checks.stored_rows import Row
from eventd.simulation.checks.tables import StoredTables
from eventd.simulation.checks.violation import Violation
from eventd.simulation.load.conflicts import CONFLICT, LETTER_LISTING, shared_ids
from eventd.simulation.load.repairs import VERIFY
from eventd.simulation.world.journal import Asked, Journal
from eventd.simulation.world.topology import GROUP, PlannedLink, Topology

REASON: Final = "id_conflict"
_ACKNOWLEDGED: Final = ("new", "duplicate")
_CONFLICT: Final = "conflict"
_TAKEN: Final = 409


class Letter(NamedTuple):
    """A dead letter: the peer that refused the event, its id, and the reason with its detail."""

    peer: str
    event_id: str
    reason: str
    detail: str


class ConflictReference:
    """What must be true of events whose ids the clients of two nodes use, by answers and then by tables.

    `final` are the lists of all nodes at rest, `stored` their tables.
    """

    def __init__(
        self,
        journal: Journal,
        topology: Topology,
        final: Mapping[str, Iterable[dict[str, Any]]],
        stored: Mapping[str, StoredTables],
        begin: float,
    ) -> None:
        self._journal = journal
        self._topology = topology
        self._stored = stored
        self._begin = begin
        self._shared = shared_ids(journal)
        self._final = {host: self._shared_of(events) for host, events in final.items()}

    def _shared_of(self, events: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
        """Return the events with shared ids by id."""
        return {event["id"]: event for event in events if event["id"] in self._shared}

    def violations(self) -> Iterator[Violation]:
        """Yield what is wrong."""
        for host in self._topology.nodes:
            yield from self._lost(host)
            yield from self._not_taken(host)
            yield from self._letters_listed(host)
            yield from self._letters_at_rest(host)
            yield from self._receipts(host)
            yield from self._compared(host)

    @cached_property
    def _end(self) -> float:
        return max((asked.answered_at for asked in self._journal.asked), default=0.0)

    def _found(self, invariant: str, host: str, detail: str, at: float | None = None) -> Violation:
        return Violation(invariant, host, detail, (self._end if at is None else at) - self._begin)

    def _of(self, kind: str, host: str) -> list[Asked]:
        return [asked for asked in self._journal.of(kind) if asked.host == host]

    def _lost(self, host: str) -> Iterator[Violation]:
        """V3: a node keeps its own event once it has acknowledged it; if another one has the id, it keeps that."""
        answers = [(asked, *each) for asked in self._of(CONFLICT, host) for each in _answers(asked)]
        lists = [
            (asked.asked_at, asked.answered_at, self._shared_of(asked.answer)) for asked in self._of("listing", host)
        ]
        for asked_at, answered_at, listed in [*lists, (self._end, self._end, self._final.get(host, {}))]:
            for asked, event_id, is_own in answers:
                source = listed.get(event_id, {}).get("sourceNode")
                if asked.answered_at < asked_at and (source is None or (source == host) != is_own):
                    words = "acknowledged" if is_own else "refused, because another event has the id,"
                    has = f"the event of {source}" if source else "no event"
                    yield self._found("V3", host, f"{event_id} {words} and {has} is listed", answered_at)
                    return

    def _not_taken(self, host: str) -> Iterator[Violation]:
        """V4: a node that its peer sends an event has it, or another one with its id."""
        for link in self._topology.links:
            missing = self._carried(link) - self._final[host].keys() if link.dest == host else set()
            if missing:
                detail = f"{min(missing)} is listed at {link.source}, and no event with its id"
                yield self._found("V4", host, detail)

    def _carried(self, link: PlannedLink) -> set[str]:
        """Return the ids of the listed events that a link carries."""
        return {name for name, event in self._final[link.source].items() if _carries(link, event)}

    def _letters_listed(self, host: str) -> Iterator[Violation]:
        """V4: a dead letter has a cause, and a peer and an event have one at a time."""
        for listing in self._of(LETTER_LISTING, host):
            for words in self._wrong_letters(_listed_letters(listing)):
                yield self._found("V4", host, words, listing.answered_at)
                return

    def _wrong_letters(self, letters: Sequence[Letter]) -> Iterator[str]:
        for letter in letters:
            if letter.event_id not in self._shared or letter.reason != REASON:
                yield f"a dead letter without a cause: {letter.event_id}, {letter.reason}"
        for (peer, event_id), count in Counter((letter.peer, letter.event_id) for letter in letters).items():
            if count > 1:
                yield f"{count} dead letters of {event_id} for {peer}"

    def _letters_at_rest(self, host: str) -> Iterator[Violation]:
        """V4: a sender has one dead letter for each event that a peer refuses, and none for another event."""
        stored = [_stored_letter(row) for row in self._stored[host].letters()]
        yield from (self._found("V4", host, words) for words in self._wrong_letters(stored))
        listed = [_listed_letters(listing) for listing in self._of(LETTER_LISTING, host)[-1:]]
        for letters in (*listed, stored):
            wrong = [words for peer in self._topology.nodes for words in self._wrong_set(host, peer, letters)]
            yield from (self._found("V4", host, words) for words in wrong)
            if wrong:
                return

    def _wrong_set(self, host: str, peer: str, letters: Sequence[Letter]) -> Iterator[str]:
        """Yield what is wrong with the dead letters for one peer."""
        has = {letter.event_id: letter.detail for letter in letters if letter.peer == peer}
        least, most = self._refused(host, peer)
        if missing := least - has.keys():
            yield f"{peer} refuses {min(missing)}, and no dead letter says so"
        if extra := has.keys() - most:
            yield f"a dead letter of {min(extra)}, which {peer} does not refuse"
        for name in sorted(has.keys() & most):
            owner = self._final[peer][name]["sourceNode"]
            if f"an event of {owner} " not in has[name]:
                yield f"{peer} refuses {name} because of the event of {owner}, and the dead letter says: {has[name]}"
                return

    def _refused(self, host: str, peer: str) -> tuple[set[str], set[str]]:
        """Return the ids of the events that a peer has refused: those that it must have, and those that it may have.

        A link that was changed may have carried other events before, and forgets its dead letters when it is removed.
        """
        own, theirs = self._final[host], self._final[peer]
        other = {name for name in own.keys() & theirs.keys() if own[name]["sourceNode"] != theirs[name]["sourceNode"]}
        was = [link for link in self._topology.links if (link.source, link.dest) == (host, peer)]
        if any(link.protocol == "v1" for link in was):
            return set(), set()
        if not was or was[0].is_changed:
            return set(), other
        sent = other & self._carried(was[0])
        return sent, sent

    def _receipts(self, host: str) -> Iterator[Violation]:
        """V9: a peer refuses of a batch only events whose id another one has there."""
        for row in self._stored[host].settled_batches():
            peer = row["cursor"].partition("/")[2].partition("/")[0]
            most = self._refused(host, peer)[1]
            for refusal in json.loads(json.loads(row["receipt"])["body"])["refused"]:
                if refusal["id"] not in most or refusal["reason"] != REASON:
                    detail = f"{peer} has refused {refusal['id']}: {refusal['reason']}"
                    yield self._found("V9", host, detail)
                    return

    def _compared(self, host: str) -> Iterator[Violation]:
        """V1: the last comparison of a link counts the events that the peer has refused."""
        for link in self._topology.links_from(host):
            path = f"/groups/{GROUP}/peers/{link.dest}/verify"
            done = [
                asked.answer["report"] for asked in self._of(VERIFY, host) if asked.path == path and _is_done(asked)
            ]
            least, most = self._refused(host, link.dest)
            refused = done[-1]["events"]["setAside"].get("refused", 0) if done else len(least)
            if not len(least) <= refused <= len(most):
                detail = f"a comparison with {link.dest} says that {refused} events are refused, not {len(least)}"
                yield self._found("V1", host, detail)


def _answers(asked: Asked) -> Iterator[tuple[str, bool]]:
    """Yield the ids of which an answer says something, and whether the node has this event; no: it has another one."""
    if asked.status == _TAKEN:
        yield asked.question["events"][0]["id"], False
    for result in asked.answer["results"] if asked.is_good else ():
        if result["result"] in (*_ACKNOWLEDGED, _CONFLICT):
            yield result["id"], result["result"] != _CONFLICT


def _carries(link: PlannedLink, event: Mapping[str, Any]) -> bool:
    is_meant = link.takes(event["type"]) and (link.relay or event["sourceNode"] == link.source)
    return is_meant and event["sourceNode"] != link.dest and link.dest not in event["path"]


def _listed_letters(listing: Asked) -> list[Letter]:
    return [Letter(each["peer"], each["eventId"], each["reason"], each["detail"]) for each in listing.answer]


def _stored_letter(row: Row) -> Letter:
    return Letter(row["cursor"].partition("/")[2], row["event_id"], row["reason"], row["detail"])


def _is_done(asked: Asked) -> bool:
    return asked.is_good and bool(asked.answer["done"]) and bool(asked.answer["report"]["compared"])
