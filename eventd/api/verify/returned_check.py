"""Judges events that a peer returned: each must be one of this node, and a receipt of the peer may name it.

A receipt is only a claim of the peer, which could invent both receipt and event, unless this node's own ledger
confirms it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from eventd.api.verify.pull_budget import CallEnded, PullBudget
from eventd.egress.peers.questions import Asker
from eventd.errors import Conflict
from eventd.groups.links import read_cursor_of
from eventd.log.delivery.event_ledger import read_batch_digest
from eventd.resources.group_configuration import PeerConfig
from eventd.store.engine.database import Connection, Database
from federation.errors import BadAnswer
from federation.event import Event
from federation.lines import size_of
from federation.peers import Limits
from federation.ranges import Range
from federation.returned import (
    MOST_HASHED,
    MOST_RETURNED,
    BatchReceipt,
    EventsQuery,
    ReturnedEvents,
    check_returned,
    gives_digest,
    read_batch_receipt,
)
from federation.wire import Receipt

MOST_BATCHES = 10_000
"""Number of judged batches that one call remembers; beyond it, it begins to judge anew."""
MOST_LINES = Limits().batch_events
MOST_ANSWERS = 64
"""Maximum number of answers in which the peer may return the other events of a batch: three times those it needs."""
NO_RECEIPT = "the peer has no receipt of its batch any more, or never gave one"
NOT_MATCHED = "its batch cannot be composed again from what the peer holds"


class Returned(NamedTuple):
    """An event as the peer returned it. The peer's receipt of batch `batch_id` names it; else `unproven` is why not.

    `confirmed`: this node's own ledger has the batch with the same digest.
    """

    event: Event
    body: str
    batch_id: str
    unproven: str
    confirmed: bool = False


class ReturnedStep(NamedTuple):
    """The result for the first `looked` of the ids: returned events, and the ids of those too large for an answer."""

    events: list[Returned]
    large: list[str]
    looked: int


class _ReturnedEvent(NamedTuple):
    """An event in an answer. `at`: the index of its id in the question."""

    at: int
    event: Event
    body: str
    receipt: BatchReceipt | None


class _JudgedBatch(NamedTuple):
    """The digests, by id, of the events of a batch, if they result in the digest that the batch's receipt states.

    Empty otherwise.
    """

    digests: Mapping[str, bytes] = {}
    confirmed: bool = False


class _CheckedAnswer(NamedTuple):
    """The answer for the first `looked` ids of a question: events by id, and indexes of too large ones."""

    events: dict[str, _ReturnedEvent]
    large: Sequence[int]
    looked: int


class ReturnedCheck:
    """Asks one peer for events, and judges them. It remembers the batches that it has judged."""

    def __init__(self, asker: Asker, database: Database, budget: PullBudget) -> None:
        self._asker = asker
        self._database = database
        self._budget = budget
        limits = asker.group.limits
        self._limits = Limits(batch_bytes=limits.max_batch_bytes, event_bytes=limits.max_event_bytes)
        self._batches: dict[str, _JudgedBatch] = {}

    async def fetch(self, ids: Sequence[str]) -> ReturnedStep:
        """Ask once for the events with these ids, at most `MOST_RETURNED`, and judge those in the answer.

        The step ends before a batch that is not judged yet if the budget is spent. Events that the peer does not hold
        any more are neither in the step nor too large. Raises `Conflict` for an answer with an event of another source,
        another event than the one asked for, or a receipt that contradicts this node's ledger; and `CallEnded`.
        """
        try:
            answer = await self._ask(ids)
            events: list[Returned] = []
            looked = answer.looked
            for event_id in answer.events:
                judged = await self._judge_in_budget(event_id, answer, is_first=not events)
                if judged is None:
                    looked = answer.events[event_id].at
                    break
                events.append(judged)
        except BadAnswer as error:
            peer = self._asker.peer.node_name
            raise Conflict(
                f"{peer} sent an invalid answer, and nothing of it was stored: {error.message}",
                hint=f"do not pull from {peer} before the cause is found; another peer may hold the events, too",
            ) from None
        return ReturnedStep(events, [ids[index] for index in answer.large if index < looked], looked)

    async def _ask(self, ids: Sequence[str]) -> _CheckedAnswer:
        answer = await self._budget.ask(self._asker, EventsQuery(tuple(ids)), ReturnedEvents)
        return await asyncio.to_thread(self._check, answer, ids)

    def _check(self, answer: ReturnedEvents, ids: Sequence[str]) -> _CheckedAnswer:
        """Raise `BadAnswer` unless the answer holds events that were asked for, each once and in order."""
        if answer.next is not None and not 0 < answer.next < len(ids):
            raise BadAnswer(f"the answer ends at the index {answer.next}, where it began", reason="no_progress")
        looked = len(ids) if answer.next is None else answer.next
        node, group = self._asker.group.node_name, self._asker.group.name
        stated = [(receipt, frozenset(receipt.ids)) for receipt in answer.receipts]
        events: dict[str, _ReturnedEvent] = {}
        last = -1
        for each in answer.events:
            if not last < each.index < looked:
                raise BadAnswer(f"the answer has an event for the index {each.index}", reason="other_event")
            last, event_id = each.index, ids[each.index]
            event = check_returned(each.body, event_id, group=group, node=node, limits=self._limits)
            receipt = None
            if each.receipt is not None:
                receipt, named = stated[each.receipt] if each.receipt < len(stated) else (None, frozenset[str]())
                if event_id not in named:
                    raise BadAnswer(f"the receipt of the event {event_id} is not in the answer", reason="no_receipt")
            events[event_id] = _ReturnedEvent(each.index, event, each.body, receipt)
        last = -1
        for index in answer.large:
            if not last < index < looked or ids[index] in events:
                raise BadAnswer(f"the answer names the index {index} as too large", reason="other_event")
            last = index
        return _CheckedAnswer(events, answer.large, looked)

    async def _judge_in_budget(self, event_id: str, answer: _CheckedAnswer, *, is_first: bool) -> Returned | None:
        """Return the judgement of an event; None if it needs work for which the budget of the call does not suffice.

        The first event of a step is judged in any case, so that the call makes progress: raises `CallEnded` if it
        cannot be.
        """
        returned = answer.events[event_id]
        if returned.receipt is None:
            return Returned(returned.event, returned.body, "", NO_RECEIPT)
        names = {"group": self._asker.group.name, "node": self._asker.group.node_name}
        receipt = read_batch_receipt(returned.receipt, **names, peer=self._asker.peer.node_name)
        if receipt.batch not in self._batches:
            if not is_first and self._budget.is_spent:
                return None
            if len(self._batches) >= MOST_BATCHES:
                self._batches.clear()
            try:
                self._batches[receipt.batch] = await self._prove(returned.receipt, receipt, answer)
            except CallEnded:
                if is_first:
                    raise
                return None
        batch = self._batches[receipt.batch]
        if batch.digests.get(event_id) != _digest(returned.body):
            return Returned(returned.event, returned.body, "", NOT_MATCHED)
        return Returned(returned.event, returned.body, receipt.batch, "", batch.confirmed)

    async def _prove(self, stated: BatchReceipt, receipt: Receipt, answer: _CheckedAnswer) -> _JudgedBatch:
        """Compose the batch again, and return the digests of its events if they give the digest in the receipt.

        An empty judgement otherwise, and for a batch that cannot be composed again, such as a repair.
        """
        covered = Range.from_header(stated.range)
        confirmed = await self._require_agreement(receipt, covered)
        ids = stated.ids
        if covered.repair or len(ids) != receipt.accepted or len(set(ids)) != len(ids) or len(ids) > MOST_LINES:
            return _JudgedBatch()
        bodies = await self._bodies_of(ids, answer)
        if len(bodies) != len(ids):
            return _JudgedBatch()
        ordered = [bodies[event_id] for event_id in ids]
        self._budget.count_hashed(MOST_HASHED * sum(map(size_of, ordered)))
        if not await asyncio.to_thread(gives_digest, receipt, covered, ordered, stated.positions):
            return _JudgedBatch()
        return _JudgedBatch({event_id: _digest(bodies[event_id]) for event_id in ids}, confirmed)

    async def _bodies_of(self, ids: Sequence[str], answer: _CheckedAnswer) -> Mapping[str, str]:
        """Return the events of a batch by id, those that are not in the answer asked for; nothing if some are missing.

        Nothing is returned, either, if they are larger than a batch, or the peer returns them in too many answers.
        """
        bodies = {event_id: answer.events[event_id].body for event_id in ids if event_id in answer.events}
        missing = [event_id for event_id in ids if event_id not in bodies]
        asked = 0
        while missing and asked < MOST_ANSWERS and not self._exceeds(bodies.values()):
            more = await self._ask(missing[:MOST_RETURNED])
            asked += 1
            if len(more.events) < more.looked:
                return {}
            bodies |= {event_id: each.body for event_id, each in more.events.items()}
            missing = missing[more.looked :]
        return {} if missing or self._exceeds(bodies.values()) else bodies

    def _exceeds(self, bodies: Iterable[str]) -> bool:
        return sum(map(size_of, bodies)) > self._limits.batch_bytes

    async def _require_agreement(self, receipt: Receipt, covered: Range) -> bool:
        """Return whether this node's own ledger has a receipt of the same batch, too.

        Raises `BadAnswer` if that receipt has another digest.
        """
        held = await self._database.read(_held_digest, self._asker.peer, receipt.batch, covered.upto)
        if held is not None and held != receipt.digest:
            words = f"the receipt of the batch {receipt.batch} is another one than in this node's ledger"
            raise BadAnswer(words, reason="other_batch")
        return held is not None


def _held_digest(conn: Connection, peer: PeerConfig, batch_id: str, upto: int) -> str | None:
    cursor = read_cursor_of(conn, peer)
    return None if cursor is None else read_batch_digest(conn, cursor.name, batch_id, upto)


def _digest(body: str) -> bytes:
    return hashlib.sha256(body.encode()).digest()
