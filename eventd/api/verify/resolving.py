"""Resolves buckets that differ by more than the ids unknown to the peer: the peer holds more events, or others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from eventd.api.verify.findings import Findings, Judgement, judge
from eventd.api.verify.pages import advance
from eventd.api.verify.scope import Scope
from eventd.egress.peers.questions import Asker
from eventd.errors import Conflict
from eventd.log.delivery.digests import ListedRecord, list_step, rest
from eventd.log.delivery.repairs import read_placed, read_refreshed
from eventd.runtime.clock import Clock
from eventd.store.engine.database import Connection, Database
from federation.compare import (
    MOST_ASKED,
    MOST_BUCKETS,
    Grain,
    Ids,
    IdsQuery,
    KnownEvents,
    KnownQuery,
    RecordScope,
    minus,
    show_fingerprint,
    total_of,
)

MOST_LOOKED_AT = 200_000
"""Maximum number of events, counted on both sides together, in the buckets that are read at once."""

Pair = tuple[str, str]
"""An id, and the fingerprint of a record under it."""


class _KnownRecord(NamedTuple):
    """An id that this node's log knows. `position`: of its latest record, None if retention has evicted it.

    `refreshed`: its expiry has been extended, so the peer may still have an earlier record.
    """

    position: int | None
    refreshed: bool


class DifferingBuckets(NamedTuple):
    """The buckets that still differ: their keys (`left`), and by key their `sizes` and differences (`found`).

    A size is the number of events on both sides together; a difference is this node's sum minus the peer's.
    """

    grain: Grain
    left: Sequence[int]
    sizes: Mapping[int, int]
    found: Mapping[int, int]


class Resolver:
    """Compares both sides' events in the first of the differing buckets, as many as can be read together: `keys`."""

    def __init__(self, scope: Scope, database: Database, clock: Clock, look: DifferingBuckets) -> None:
        self._scope = scope
        self._database = database
        self._clock = clock
        self._grain = look.grain
        self.keys = _fitting(look.left, look.sizes)
        self._found = [look.found[key] for key in self.keys]
        self._ours: dict[Pair, ListedRecord] = {}
        self._theirs: set[Pair] = set()
        self._at, self._number = scope.after, 0
        self._asked = self._pages = 0
        self.is_done = False

    @property
    def progress(self) -> tuple[int, int]:
        """Return how many positions of both logs have been read, and how many are to be read."""
        scope = self._scope
        return self._at - scope.after + self._asked, scope.upto - scope.after + scope.state.upto

    async def step(self, asker: Asker, findings: Findings) -> None:
        """Take one step: list events of one side or, when both are listed, compare them and add the findings."""
        if self._at < self._scope.upto:
            await self._list_ours()
        elif self._asked < self._scope.state.upto:
            await self._list_theirs(asker)
        else:
            await self._compare(asker, findings)
            self.is_done = True

    async def _list_ours(self) -> None:
        scope, begun = self._scope, self._clock.monotonic()
        found = await self._database.read(
            list_step,
            scope.topic.id,
            self._at,
            scope.upto,
            scope.chosen,
            self._grain,
            frozenset(self.keys),
            scope.left_out,
            number=self._number,
        )
        self._at, self._number = found.upto, found.number
        self._ours |= {(record.event_id, show_fingerprint(record.fingerprint)): record for record in found.held}
        await rest(self._clock.sleep, self._clock.monotonic() - begun)

    async def _list_theirs(self, asker: Asker) -> None:
        state = self._scope.state
        question = IdsQuery(
            history=state.history,
            after=self._asked,
            upto=state.upto,
            what=self._scope.what,
            grain=self._grain,
            buckets=tuple(map(self._grain.bucket, self.keys)),
        )
        ids = await asker.ask(question, Ids)
        self._theirs.update((each.id, each.fingerprint) for each in ids.events)
        if len(self._theirs) > 2 * MOST_LOOKED_AT:
            raise Conflict(f"{asker.peer.node_name} lists over {2 * MOST_LOOKED_AT} events in buckets read together")
        self._pages += 1
        self._asked = advance(asker.peer.node_name, self._asked, ids.next, state.upto, self._pages)

    def _adds_up(self) -> bool:
        """Return whether the listed events differ by as much as the sums did.

        If not, one side has changed meanwhile, or the peer has reported wrong sums.
        """
        ours = total_of(record.fingerprint for record in self._ours.values())
        theirs = total_of(int(digits, 16) for _, digits in self._theirs)
        listed = minus(ours, theirs)
        for total in self._found:
            listed = minus(listed, total)
        return listed == 0

    async def _compare(self, asker: Asker, findings: Findings) -> None:
        if not self._adds_up():
            findings.unresolved += len(self.keys)
        beyond = [event_id for event_id, _ in sorted(self._theirs - self._ours.keys())]
        lacking = sorted(self._ours[pair] for pair in self._ours.keys() - self._theirs)
        places = await self._read_places(sorted({*beyond, *(record.event_id for record in lacking)}))
        for event_id in sorted({each for each in beyond if each not in places}):
            findings.add_extra(event_id)
        newest = [record for record in lacking if places.get(record.event_id, _GONE).position == record.position]
        for start in range(0, len(newest), MOST_ASKED):
            await self._judge(asker, findings, newest[start : start + MOST_ASKED], places)

    async def _read_places(self, ids: Sequence[str]) -> dict[str, _KnownRecord]:
        found: dict[str, _KnownRecord] = {}
        for start in range(0, len(ids), MOST_ASKED):
            some = ids[start : start + MOST_ASKED]
            found |= await self._database.read(_read_places, self._scope.topic.id, some)
        return found

    async def _judge(
        self, asker: Asker, findings: Findings, some: Sequence[ListedRecord], places: Mapping[str, _KnownRecord]
    ) -> None:
        """Ask the peer which of `some` records it holds with other content: it lacks a refresh, or holds
        another event.

        Ids that the peer does not know have been judged before, and events that it has by another path are no
        difference. Another id that it knows but did not list is unresolved: the peer answers from its ids alone, or has
        just received the event.
        """
        known = await asker.ask(query_known(some, self._scope.what), KnownEvents)
        other = named_in(known.other, some)
        stale = [record for record in other if places[record.event_id].refreshed]
        judged: list[Judgement] = await self._database.read(judge, self._scope, stale, self._clock.now())
        findings.add(judged)
        for record in other:
            if not places[record.event_id].refreshed:
                findings.add_other(record.event_id)
        explained = {*known.unknown, *known.gone, *known.other, *(known.by_another_path or ())}
        findings.unresolved += len(some) - len(explained & {*range(len(some))})


def query_known(some: Sequence[ListedRecord], what: RecordScope) -> KnownQuery:
    """Return the question which of these events the peer does not know, holds differently, or has by another path."""
    return KnownQuery(
        ids=tuple(record.event_id for record in some),
        fingerprints=tuple(show_fingerprint(record.fingerprint) for record in some),
        what=what,
    )


def named_in(indexes: Iterable[int], some: Sequence[ListedRecord]) -> list[ListedRecord]:
    """Return the events that an answer names by their indexes in the question, in their order."""
    return [some[at] for at in sorted(set(indexes)) if at < len(some)]


_GONE = _KnownRecord(None, False)


def _read_places(conn: Connection, topic_id: int, ids: Sequence[str]) -> dict[str, _KnownRecord]:
    refreshed = read_refreshed(conn, topic_id, ids)
    placed = read_placed(conn, topic_id, ids)
    return {event_id: _KnownRecord(position, event_id in refreshed) for event_id, position in placed.items()}


def _fitting(left: Sequence[int], sizes: Mapping[int, int]) -> list[int]:
    """Return the first keys whose buckets fit together: up to `MOST_LOOKED_AT` events, or one bucket with more."""
    found: list[int] = []
    size = 0
    for key in left[:MOST_BUCKETS]:
        size += sizes.get(key, 0)
        if found and size > MOST_LOOKED_AT:
            break
        found.append(key)
    return found
