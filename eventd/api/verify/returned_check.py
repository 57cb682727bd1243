"""Judges events that a peer returned: each must be one of this node, and a receipt may prove it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from eventd.egress.peers.questions import Asker
from eventd.errors import Conflict
from eventd.groups.links import read_cursor_of
from eventd.log.delivery.event_ledger import read_batch_digest
from eventd.resources.configuration import PeerConfig
from eventd.store.engine.database import Connection, Database
from federation.errors import BadAnswer
from federation.event import Event
from federation.lines import size_of
from federation.peers import Limits
from federation.ranges import Range
from federation.returned import (
    MOST_RETURNED,
    BatchReceipt,
    EventsQuery,
    ReturnedEvents,
    check_returned,
    proves,
    read_batch_receipt,
)
from federation.wire import Receipt

MOST_BATCHES = 10_000
"""Number of judged batches that one call remembers; beyond it, it begins to judge anew."""
MOST_LINES = Limits().batch_events
NO_RECEIPT = "the peer has no receipt of its batch any more, or never gave one"
NOT_MATCHED = "its batch cannot be composed again from what the peer holds"


class Returned(NamedTuple):
    """An event as the peer returned it. The receipt of the batch `batch_id` proves it; else `unproven` is why not."""

    event: Event
    body: str
    batch_id: str
    unproven: str


class _Answers(NamedTuple):
    """What the peer returned for some ids: events and bodies by id, their receipts, and ids of too large events."""

    events: dict[str, tuple[Event, str]]
    receipts: dict[str, BatchReceipt]
    large: list[str]


class ReturnedCheck:
    """Asks one peer for events, and judges them. It remembers the batches that it has judged."""

    def __init__(self, asker: Asker, database: Database) -> None:
        self._asker = asker
        self._database = database
        limits = asker.group.limits
        self._limits = Limits(batch_bytes=limits.max_batch_bytes, event_bytes=limits.max_event_bytes)
        self._batches: dict[str, Mapping[str, bytes]] = {}

    async def fetch(self, ids: Sequence[str]) -> tuple[list[Returned], list[str]]:
        """Return the events with these ids, at most `MOST_RETURNED`, and the ids of those too large for an answer.

        Events that the peer does not hold any more are in neither. Raises `Conflict` for an answer with an event of
        another source, another event than the one asked for, or a receipt that contradicts this node's ledger.
        """
        try:
            answers = await self._ask(ids)
            found = [await self._judge(event_id, answers) for event_id in answers.events]
        except BadAnswer as error:
            peer = self._asker.peer.node_name
            raise Conflict(
                f"{peer} sent an invalid answer, and nothing of it was stored: {error.message}",
                hint=f"do not pull from {peer} before the cause is found; another peer may hold the events, too",
            ) from None
        return found, answers.large

    async def _ask(self, ids: Sequence[str]) -> _Answers:
        answers = _Answers({}, {}, [])
        while ids:
            answer = await self._asker.ask(EventsQuery(tuple(ids[:MOST_RETURNED])), ReturnedEvents)
            self._take(answer, ids, answers)
            if answer.next is None:
                ids = ids[MOST_RETURNED:]
            elif 0 < answer.next < len(ids):
                ids = ids[answer.next :]
            else:
                raise BadAnswer(f"the answer ends at the index {answer.next}, where it began", reason="no_progress")
        return answers

    def _take(self, answer: ReturnedEvents, ids: Sequence[str], answers: _Answers) -> None:
        node, group = self._asker.group.node_name, self._asker.group.name
        last = -1
        for each in answer.events:
            if not last < each.index < min(len(ids), MOST_RETURNED):
                raise BadAnswer(f"the answer has an event for the index {each.index}", reason="other_event")
            last, event_id = each.index, ids[each.index]
            event = check_returned(each.body, event_id, group=group, node=node, limits=self._limits)
            answers.events[event_id] = (event, each.body)
            if each.receipt is not None:
                if each.receipt >= len(answer.receipts) or event_id not in answer.receipts[each.receipt].ids:
                    raise BadAnswer(f"the receipt of the event {event_id} is not in the answer", reason="no_receipt")
                answers.receipts[event_id] = answer.receipts[each.receipt]
        answers.large.extend(ids[index] for index in answer.large if index < len(ids))

    async def _judge(self, event_id: str, answers: _Answers) -> Returned:
        event, body = answers.events[event_id]
        stated = answers.receipts.get(event_id)
        if stated is None:
            return Returned(event, body, "", NO_RECEIPT)
        names = {"group": self._asker.group.name, "node": self._asker.group.node_name}
        receipt = read_batch_receipt(stated, **names, peer=self._asker.peer.node_name)
        if receipt.batch not in self._batches:
            if len(self._batches) >= MOST_BATCHES:
                self._batches.clear()
            self._batches[receipt.batch] = await self._prove(stated, receipt, answers)
        if self._batches[receipt.batch].get(event_id) != _digest(body):
            return Returned(event, body, "", NOT_MATCHED)
        return Returned(event, body, receipt.batch, "")

    async def _prove(self, stated: BatchReceipt, receipt: Receipt, answers: _Answers) -> Mapping[str, bytes]:
        """Return the digests, by id, of the events of a batch that gives the digest in its receipt; else nothing."""
        covered = Range.from_header(stated.range)
        await self._require_agreement(receipt, covered)
        ids = stated.ids
        if covered.repair or len(ids) != receipt.accepted or len(set(ids)) != len(ids) or len(ids) > MOST_LINES:
            return {}
        bodies = {event_id: answers.events[event_id][1] for event_id in ids if event_id in answers.events}
        missing = [event_id for event_id in ids if event_id not in bodies]
        for start in range(0, len(missing), MOST_RETURNED):
            more = await self._ask(missing[start : start + MOST_RETURNED])
            bodies |= {event_id: body for event_id, (_, body) in more.events.items()}
            if self._exceeds(bodies.values()):
                return {}
        if len(bodies) != len(ids) or self._exceeds(bodies.values()):
            return {}
        ordered = [bodies[event_id] for event_id in ids]
        if not proves(receipt, covered, ordered, stated.positions):
            return {}
        return {event_id: _digest(bodies[event_id]) for event_id in ids}

    def _exceeds(self, bodies: Iterable[str]) -> bool:
        return sum(map(size_of, bodies)) > self._limits.batch_bytes

    async def _require_agreement(self, receipt: Receipt, covered: Range) -> None:
        """Raise `BadAnswer` if this node's own ledger has a receipt of the same batch with another digest."""
        held = await self._database.read(_held_digest, self._asker.peer, receipt.batch, covered.upto)
        if held is not None and held != receipt.digest:
            words = f"the receipt of the batch {receipt.batch} is another one than in this node's ledger"
            raise BadAnswer(words, reason="other_batch")


def _held_digest(conn: Connection, peer: PeerConfig, batch_id: str, upto: int) -> str | None:
    cursor = read_cursor_of(conn, peer)
    return None if cursor is None else read_batch_digest(conn, cursor.name, batch_id, upto)


def _digest(body: str) -> bytes:
    return hashlib.sha256(body.encode()).digest()
