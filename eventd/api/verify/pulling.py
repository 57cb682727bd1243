"""The operation that gets this node's own events back from a peer, after a restore from an older copy.

Each call works for a while and returns where the next one continues; nothing else is kept in between. Events that are
stored are not requested again, so an interrupted run can simply be started again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from pydantic import Field

from eventd.api.admin.resources.groups import EmitTarget, find_target
from eventd.api.framework.operations import Params, Services
from eventd.api.verify.asking import asking, find_group_and_peer
from eventd.api.verify.pages import advance
from eventd.api.verify.pull_budget import CallEnded, PullBudget
from eventd.api.verify.returned_check import Returned, ReturnedCheck
from eventd.egress.peers.questions import Asker, HistoryEnded, QueryUnsupported
from eventd.errors import Conflict, Invalid, Unavailable
from eventd.log.core.head import read_head
from eventd.log.core.values import Draft, Outcome
from eventd.log.delivery.repairs import read_placed
from eventd.log.delivery.returned import StoreReturned
from eventd.store.rows.returned_events import ReturnedMark
from federation.compare import MOST_MINUTES, Grain, Ids, IdsQuery, RecordScope, State, StateQuery
from federation.event import expiry_micros, is_alive
from federation.lines import size_of
from federation.peers import MAX_TEXT, PROTOCOL_V1
from federation.ranges import MAX_POSITION
from federation.returned import MOST_RETURNED

MOST_SHOWN = 100
"""Maximum number of unproven events that one answer lists."""
LOOKED_UP = 1000
"""Number of ids that are looked up in this log in one step."""
STORED_BYTES = 8 << 20
"""Approximate limit of the bytes of events that one transaction stores."""
_POSITION = re.compile(f"[0-9]{{1,{len(str(MAX_POSITION))}}}")
_MOST_POSITION_TEXT = MAX_TEXT + 100
_GRAIN = Grain(MOST_MINUTES)
_BUCKETS = tuple((slot, 0) for slot in range(-70, 260))
"""Buckets of `_GRAIN` that hold every event, whenever it was observed."""


class Pull(Params):
    """Get events of this node that its log lacks back from a peer, after a restore from an older copy.

    Each call works for a while; `next` says where the next one continues.
    """

    group: str
    peer: str = Field(description="The peer, by its node name.")
    accept_unproven: bool = Field(
        default=False, description="Also store events that no receipt of the peer names; they are marked."
    )
    dry_run: bool = Field(default=False, description="Only count what would be stored.")
    after: str = Field(default="", description="Continue here: `next` of the call before; empty begins.")
    seconds: int = Field(default=20, ge=0, le=50, description="Longest time to work before the answer, in seconds.")


class PullPosition(NamedTuple):
    """The progress of a run: page number `page` begins after position `after` of the peer's log, in the epoch
    `history`.

    The first `done` ids of the page are finished. The run ends at the position `upto`.
    """

    history: str
    upto: int
    after: int = 0
    page: int = 0
    done: int = 0

    @classmethod
    def read(cls, text: str) -> Self:
        """Read the text of a position. Raises `Invalid`."""
        history, *numbers = text[:_MOST_POSITION_TEXT].split(":")
        named = 0 < len(history) <= MAX_TEXT and history.isprintable()
        if not named or len(numbers) != 4 or not all(map(_POSITION.fullmatch, numbers)):
            raise Invalid(f"after: {text[:80]!r} is not the `next` of an earlier call")
        return cls(history, *map(int, numbers))

    def __str__(self) -> str:
        return ":".join(map(str, self))


@dataclass(slots=True)
class PullCounts:
    """Numbers of events of one call. `left`: those that were not stored, by reason; `unproven`: some of them, listed.

    `stored` counts all that were stored, or would be in a dry run; `marked` those of them that are unproven, and
    `confirmed` those whose receipt this node's own ledger confirms.
    """

    lacking: int = 0
    stored: int = 0
    marked: int = 0
    confirmed: int = 0
    left: Counter[str] = field(default_factory=Counter)
    unproven: list[dict[str, str]] = field(default_factory=list)

    def show(self) -> dict[str, Any]:
        return {
            "lacking": self.lacking,
            "stored": self.stored,
            "byReceipt": self.stored - self.marked,
            "confirmed": self.confirmed,
            "unproven": self.marked,
            "left": dict(sorted(self.left.items())),
            "unprovenEvents": self.unproven,
        }


async def pull(services: Services, params: Pull) -> dict[str, Any]:
    group, peer = await services.database.read(find_group_and_peer, params.group, params.peer)
    if peer.protocol == PROTOCOL_V1:
        raise Conflict(f"{params.peer} is declared with v1, which returns no events")
    try:
        async with asking(services, group, peer) as asker:
            target = await find_target(services.database, group.name, services.clock.now())
            run = _PullRun(services, params, asker, target)
            position = await run.work()
    except QueryUnsupported as answer:
        raise Conflict(
            f"{params.peer} cannot return events: {answer}", hint=f"upgrade {params.peer}, or pull from another peer"
        ) from None
    except HistoryEnded:
        raise Conflict(f"the log of {params.peer} has begun another epoch meanwhile", hint="pull again") from None
    asked = {"group": params.group, "peer": params.peer, "dryRun": params.dry_run}
    return {**asked, **run.counts.show(), "next": None if position is None else str(position)}


class _PullRun:
    """One call: reads the ids that the peer lists, asks for the events that this log lacks, and stores them."""

    def __init__(self, services: Services, params: Pull, asker: Asker, target: EmitTarget) -> None:
        self.counts = PullCounts()
        self._services = services
        self._params = params
        self._asker = asker
        self._target = target
        self._budget = PullBudget(services.clock, params.seconds, services.client_waits)
        self._check = ReturnedCheck(asker, services.database, self._budget)
        self._begun = self._at = PullPosition("", 0)

    async def work(self) -> PullPosition | None:
        """Work until the budget is spent; return where to continue, None when all is done."""
        try:
            at = PullPosition.read(self._params.after) if self._params.after else await self._begin()
            self._begun = self._at = at
            await self._continue()
        except CallEnded:
            if self._at == self._begun:
                raise Unavailable(
                    f"{self._params.peer} takes too long to answer", hint="pull again, or from another peer"
                ) from None
        return self._at if self._at.after < self._at.upto else None

    async def _continue(self) -> None:
        while self._at.after < self._at.upto and (self._at == self._begun or not self._budget.is_spent):
            await self._page()

    async def _page(self) -> None:
        """Ask for a page of ids, and deal with them until the budget is spent, at least with some."""
        at = self._at
        question = IdsQuery(
            history=at.history, after=at.after, upto=at.upto, what=RecordScope(), grain=_GRAIN, buckets=_BUCKETS
        )
        page = await self._budget.ask(self._asker, question, Ids)
        ids = list(dict.fromkeys(each.id for each in page.events))
        while self._at.done < len(ids):
            await self._step(ids)
            if self._budget.is_spent and self._at.done < len(ids):
                return
        after = advance(self._params.peer, at.after, page.next, at.upto, at.page + 1)
        self._at = at._replace(after=after, page=at.page + 1, done=0)

    async def _step(self, ids: Sequence[str]) -> None:
        """Ask for the next lacking events of a page once, and store them."""
        lacking, upto = await self._lacking(ids, self._at.done)
        some = lacking[:MOST_RETURNED]
        looked = await self._get([ids[index] for index in some]) if some else 0
        self._at = self._at._replace(done=lacking[looked] if looked < len(lacking) else upto)

    async def _begin(self) -> PullPosition:
        state = await self._budget.ask(self._asker, StateQuery(), State)
        head = await self._services.database.read(read_head)
        if state.mark is not None and state.mark.epoch == head.epoch and state.mark.upto > head.last:
            raise Conflict(
                f"{self._params.peer} holds this log up to position {state.mark.upto} of its present epoch, and the log"
                f" ends at {head.last}: begin a new epoch first, or the peer drops what this node stores from now on",
                hint="stop the node, run `routerd-eventd migrate --new-epoch`, start it, and pull again",
            )
        try:
            return PullPosition.read(str(PullPosition(state.history, state.upto)))
        except Invalid:
            raise Conflict(f"{self._params.peer} sent an invalid answer: it names no valid epoch of its log") from None

    async def _lacking(self, ids: Sequence[str], start: int) -> tuple[list[int], int]:
        """Return indexes of ids, from `start` on, that this log does not know or whose record is lost.

        Ids of events that retention removed are known. The second value is the index up to which ids were looked up:
        until there are enough for a question, or the budget is spent.
        """
        found: list[int] = []
        while start < len(ids) and len(found) < MOST_RETURNED:
            some = ids[start : start + LOOKED_UP]
            known = await self._services.database.read(read_placed, self._target.topic, some)
            found += [index for index, event_id in enumerate(some, start) if event_id not in known]
            start += len(some)
            if self._budget.is_spent:
                break
        return found, start

    async def _get(self, ids: Sequence[str]) -> int:
        """Ask for these events once, store those with a receipt or accepted ones; return how many were dealt with."""
        counts, accepted = self.counts, list[Returned]()
        returned, large, looked = await self._check.fetch(ids)
        counts.lacking += looked
        counts.left += Counter({"tooLarge": len(large), "notReturned": looked - len(returned) - len(large)})
        now = self._services.clock.now()
        for each in returned:
            if not is_alive(expiry_micros(each.event), now):
                counts.left["expired"] += 1
            elif each.unproven and not self._params.accept_unproven:
                counts.left["unproven"] += 1
                if len(counts.unproven) < MOST_SHOWN:
                    counts.unproven.append({"id": each.event.id, "reason": each.unproven})
            else:
                accepted.append(each)
        for part in _parts(accepted):
            await self._store(part, now)
        return looked

    async def _store(self, accepted: Sequence[Returned], now: int) -> None:
        counts = self.counts
        outcomes: Sequence[Outcome] = [Outcome.NEW] * len(accepted)
        if not self._params.dry_run:
            drafts = [
                Draft(each.event.id, each.event.source_node, each.event.type, expiry_micros(each.event), "", each.body)
                for each in accepted
            ]
            marks = [
                ReturnedMark(self._params.peer, now, each.batch_id, each.unproven, int(each.confirmed))
                for each in accepted
            ]
            unit = StoreReturned(self._target.topic, drafts, marks, ceiling=self._target.group.retention.max_bytes)
            outcomes = (await self._services.log.submit(unit)).outcomes
        for each, outcome in zip(accepted, outcomes, strict=True):
            if outcome is Outcome.NEW:
                counts.stored += 1
                counts.marked += bool(each.unproven)
                counts.confirmed += each.confirmed
            else:
                counts.left["otherEvent" if outcome is Outcome.CONFLICT else "hereMeanwhile"] += 1


def _parts(accepted: Sequence[Returned]) -> Iterator[Sequence[Returned]]:
    """Yield events in parts of at most `STORED_BYTES`, or of one event."""
    start = size = 0
    for end, each in enumerate(accepted):
        more = size_of(each.body)
        if size and size + more > STORED_BYTES:
            yield accepted[start:end]
            start, size = end, 0
        size += more
    if accepted:
        yield accepted[start:]
