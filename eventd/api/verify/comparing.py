"""The comparison, in steps of a few milliseconds of work or one query to the peer.

First both sides sum up the same events in the same buckets. Where a bucket differs, the peer is asked which ids of this
node's events in the bucket it does not know; if these do not explain the difference, both sides' events in the bucket
are read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from eventd.api.verify.findings import Findings, Verdict, judge
from eventd.api.verify.pages import advance
from eventd.api.verify.resolving import DifferingBuckets, Resolver, named_in, query_known
from eventd.api.verify.scope import Scope, read_scope
from eventd.egress.peers.questions import Asker, HistoryEnded
from eventd.errors import Conflict
from eventd.log.delivery.digests import ListedRecord, list_step, rest, sum_step
from eventd.runtime.clock import Clock
from eventd.store.engine.database import Database
from federation.compare import (
    MOST_ASKED,
    MOST_BUCKETS,
    MOST_PARTS,
    Grain,
    KnownEvents,
    KnownQuery,
    State,
    StateQuery,
    Sums,
    SumsQuery,
    coarser,
    count_in,
    fold,
    minus,
    read_sums,
    total_of,
)

FINEST = Grain(minutes=1, parts=MOST_PARTS)
MOST_HELD = 4 * MOST_BUCKETS
"""Maximum number of buckets of this node's events in memory; above that number, buckets are merged."""
EVENTS_PER_BUCKET = 8
"""Before the peer is queried, buckets are merged until they hold about this many events: to transfer the sums of
smaller ones would cost more than to query the events of those that differ."""
FEWEST = 64
"""If there are at most this many buckets, they are not merged to reach `EVENTS_PER_BUCKET`."""
MOST_ROUNDS = 5
"""Maximum number of rounds, each of which reads both sides' events in as many of the differing buckets as fit."""
MOST_RESTARTS = 2
"""Maximum number of restarts of a comparison because the peer's log has begun another epoch."""


class Progress(NamedTuple):
    """The progress of a stage: the number of positions that are done, of the total `of`, which is 0 if it is unknown
    or zero."""

    stage: str
    done: int
    of: int


class Comparison:
    """One comparison with one peer. Each call of `work` continues it; `findings` are complete once it `is_done`."""

    def __init__(self, group: str, node: str, database: Database, clock: Clock) -> None:
        self._where = (group, node)
        self._database = database
        self._clock = clock
        self._restarts = self._pages = 0
        self._begin()

    def _begin(self) -> None:
        self.findings = Findings()
        self.progress = Progress("asking", 0, 0)
        self._stage: Callable[[Asker], Awaitable[None]] | None = self._ask_state
        self._grain = FINEST
        self._ours: dict[int, int] = {}
        self._theirs: dict[int, int] = {}
        self._found: dict[int, int] = {}  # the difference of each bucket
        self._differing: dict[int, int] = {}  # the part of each difference that is not explained yet
        self._sizes: dict[int, int] = {}
        self._to_ask: list[ListedRecord] = []
        self._at = self._number = self._rounds = 0

    @property
    def is_done(self) -> bool:
        return self._stage is None

    @property
    def scope(self) -> Scope:
        """Return which records are compared; only valid after the first step."""
        return self._scope

    async def work(self, asker: Asker, seconds: float) -> None:
        """Continue for `seconds`, or to the end; at least one step.

        Raises what `read_scope` and `Asker.ask` raise, except `HistoryEnded`: the next call then begins again. Raises
        `Conflict` after more than `MOST_RESTARTS` restarts, for contradictory answers, and what `advance` raises.
        """
        end = self._clock.monotonic() + seconds
        try:
            while self._stage is not None:
                await self._stage(asker)
                if self._clock.monotonic() >= end:
                    break
        except HistoryEnded:
            self._restarts += 1
            if self._restarts > MOST_RESTARTS:
                words = f"the log of {self._where[1]} began new epochs {self._restarts} times during the comparison"
                raise Conflict(words, hint="verify again later") from None
            self._begin()

    # --- one stage after the other --------------------------------------------------------------------------------

    async def _ask_state(self, asker: Asker) -> None:
        state = await asker.ask(StateQuery(), State)
        self._scope = await self._database.read(read_scope, *self._where, state, self._clock.now())
        self._at, self.findings.waiting = self._scope.after, self._scope.waiting
        self._stage = self._sum_ours

    async def _sum_ours(self, _asker: Asker) -> None:
        scope, begun = self._scope, self._clock.monotonic()
        if self._at < scope.upto:
            found = await self._database.read(
                sum_step,
                scope.topic.id,
                self._at,
                scope.upto,
                scope.chosen,
                self._grain,
                self._ours,
                scope.left_out,
            )
            self._at = found.upto
            self.findings.compared += found.records
            self.findings.aside.update(found.left_out)
            await self._coarsen()
            await rest(self._clock.sleep, self._clock.monotonic() - begun)
        self.progress = Progress("own", self._at - scope.after, scope.upto - scope.after)
        if self._at >= scope.upto:
            await self._coarsen(max(FEWEST, self.findings.compared // EVENTS_PER_BUCKET))
            self._stage, self._at = self._ask_sums, 0

    async def _coarsen(self, most: int = MOST_HELD) -> None:
        """Merge buckets if this node has over `most`, or the peer over twice that: to at most 3/4 of these numbers."""
        if len(self._ours) <= most and len(self._theirs) <= 2 * most:
            return
        while len(self._ours) > 0.75 * most or len(self._theirs) > 1.5 * most:
            grain = coarser(max(self._ours, self._theirs, key=len), self._grain)
            self._ours = await asyncio.to_thread(fold, self._ours, self._grain, grain)
            self._theirs = await asyncio.to_thread(fold, self._theirs, self._grain, grain)
            self._grain = grain

    async def _ask_sums(self, asker: Asker) -> None:
        scope, state, grain = self._scope, self._scope.state, self._grain
        if self._at < state.upto:
            question = SumsQuery(history=state.history, after=self._at, upto=state.upto, what=scope.what, grain=grain)
            sums = await asker.ask(question, Sums)
            await asyncio.to_thread(read_sums, sums, grain, self._grain, self._theirs)
            self._pages += 1
            self._at = advance(self._where[1], self._at, sums.next, state.upto, self._pages)
            await self._coarsen()
        self.progress = Progress("peer", self._at, state.upto)
        if self._at >= state.upto:
            await self._compare()

    async def _compare(self) -> None:
        ours, theirs = self._ours, self._theirs
        self._found = await asyncio.to_thread(differences, ours, theirs)
        self._differing = dict(self._found)
        self._sizes = {key: count_in(ours.get(key, 0)) + count_in(theirs.get(key, 0)) for key in self._differing}
        late = self.findings.compared - sum(map(count_in, ours.values()))
        self._ours, self._theirs = {}, {}
        self._at, self._number = self._scope.after, 0
        self._stage = self._find_absent if self._differing or late else self._resolve

    async def _find_absent(self, asker: Asker) -> None:
        """List some of this node's ids in differing buckets, or ask the peer which of the listed ids it does not know.

        Ids of events that were observed too early for any bucket are listed, too.
        """
        scope, begun = self._scope, self._clock.monotonic()
        if self._at < scope.upto and len(self._to_ask) < MOST_ASKED:
            found = await self._database.read(
                list_step,
                scope.topic.id,
                self._at,
                scope.upto,
                scope.chosen,
                self._grain,
                self._differing.keys(),
                scope.left_out,
                number=self._number,
                late=True,
            )
            self._at, self._number = found.upto, found.number
            self._to_ask += found.held
            await rest(self._clock.sleep, self._clock.monotonic() - begun)
        elif self._to_ask:
            some, self._to_ask = self._to_ask[:MOST_ASKED], self._to_ask[MOST_ASKED:]
            await self._ask_known(asker, some)
        self.progress = Progress("ids", self._at - scope.after, scope.upto - scope.after)
        if self._at >= scope.upto and not self._to_ask:
            self._stage = self._resolve

    async def _ask_known(self, asker: Asker, some: Sequence[ListedRecord]) -> None:
        known = await asker.ask(self._known_query(some), KnownEvents)
        unknown = named_in(known.unknown, some)
        gone = named_in(set(known.gone) - set(known.unknown), some)
        self.findings.add(await self._database.read(judge, self._scope, unknown, self._clock.now()))
        self.findings.aside[Verdict.HELD_ONCE] += len(gone)
        by_another_path = named_in({*(known.by_another_path or ())} - {*known.unknown, *known.gone}, some)
        self.findings.aside[Verdict.BY_ANOTHER_PATH] += len(by_another_path)
        for record in (*unknown, *gone, *by_another_path):
            if record.key in self._differing:
                self._differing[record.key] = minus(self._differing[record.key], total_of([record.fingerprint]))

    def _known_query(self, some: Sequence[ListedRecord]) -> KnownQuery:
        """Return the question about these events.

        A peer may have events that are relayed to it by another path, too, which its sums of this link then lack. It is
        asked for those only where there may be some: to tell them, it reads the records of all ids in question.
        """
        if self._scope.what.own:
            return KnownQuery(ids=tuple(record.event_id for record in some))
        return query_known(some, self._scope.what)

    async def _resolve(self, asker: Asker) -> None:
        """Begin to read both sides' events in as many of the buckets that still differ as fit.

        End the comparison if none differ, or after `MOST_ROUNDS`; buckets left then count as unresolved.
        """
        left = [key for key, total in self._differing.items() if total]
        if not left or self._rounds >= MOST_ROUNDS:
            self.findings.unresolved += len(left)
            self._stage = None
            return
        self._rounds += 1
        look = DifferingBuckets(self._grain, left, self._sizes, self._found)
        resolving = Resolver(self._scope, self._database, self._clock, look)
        for key in resolving.keys:
            del self._differing[key]

        async def read_both_sides(asker: Asker) -> None:
            await resolving.step(asker, self.findings)
            self.progress = Progress("peer ids", *resolving.progress)
            if resolving.is_done:
                self._stage = self._resolve

        self._stage = read_both_sides


def differences(ours: Mapping[int, int], theirs: Mapping[int, int]) -> dict[int, int]:
    """Return this node's sums minus the peer's, for each bucket in which they differ."""
    left = {key: minus(ours.get(key, 0), theirs.get(key, 0)) for key in {*ours, *theirs}}
    return {key: total for key, total in left.items() if total}
