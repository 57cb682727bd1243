"""Bugs of links: of the node that sends, and of the node that receives."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any

import msgspec
import pytest

from eventd.egress.loop import sink
from eventd.egress.loop.consumer import Consumer
from eventd.egress.loop.sink import Ack, LinkUnavailable, RecordRefusal
from eventd.egress.peers import push_v2, range_start
from eventd.egress.peers.peer import PeerSink
from eventd.egress.peers.push_v2 import PushV2
from eventd.egress.peers.range_start import RangeStart
from eventd.errors import EventdError
from eventd.ingress import batch
from eventd.ingress.batch import StoreBatch
from eventd.ingress.reorder_buffer import ReorderBuffer
from eventd.log.core.commit import ChangeUnit, Transaction
from eventd.log.core.eventlog import EventLog
from eventd.log.core.wire_page import PeerFilter
from eventd.log.cursors import cursors, steps
from eventd.log.cursors.cursors import Cursor
from eventd.log.cursors.steps import Step
from eventd.net.exchange import Answer
from eventd.store.engine.database import Connection
from eventd.store.rows.links import StoredMark, write_mark
from federation import ranges
from federation.errors import MessageError
from federation.event import from_micros, is_alive
from federation.peers import BATCH_TYPE
from federation.ranges import Mark, Range
from federation.signing import sign_request, verify_answer
from federation.wire import BatchHeader, Receipt, encode_json
from tests.seeded_bugs.bug import replace_function


def settle_from_anywhere(patch: pytest.MonkeyPatch) -> None:
    """Do not check that a cursor is where the step began."""
    replace_function(patch, steps.check_fence, lambda *_: None)


def settle_by_old_selections(patch: pytest.MonkeyPatch) -> None:
    """Take a step although another selection was declared meanwhile."""
    apply = steps.apply_step

    def apply_any(conn: Connection, step: Step) -> None:
        apply(conn, replace(step, selector_version=None))

    replace_function(patch, steps.apply_step, apply_any)


def settle_out_of_order(patch: pytest.MonkeyPatch) -> None:
    """Settle the last batch that is done, and with it those before it, whether they are done or not."""

    async def settle_last(self: Any, progress: Any, cursor: Any) -> None:
        done = [at for at, (_, task) in enumerate(self._flying) if task.done()]
        last = done[-1] if done else 0
        outbound, task = self._flying[last]
        await self._settle(progress, cursor, outbound, await task)
        for _ in range(last + 1):
            self._flying.popleft()

    patch.setattr(Consumer, "_settle_first", settle_last)


def move_cursor_without_receipt(patch: pytest.MonkeyPatch) -> None:
    """Take a missing answer for a receipt."""
    push = PushV2.push

    async def push_once(self: PushV2, outbound: Any) -> Ack:
        try:
            return await push(self, outbound)
        except LinkUnavailable as error:
            if error.reason in ("timeout", "unreachable"):
                return Ack(outbound.upto, (), (), push_v2.V2)
            raise

    patch.setattr(PushV2, "push", push_once)


def take_false_sums(patch: pytest.MonkeyPatch) -> None:
    """Take a receipt that does not account for every event of its batch."""

    def refusals(self: Any, outbound: Any, receipt: Receipt) -> list[RecordRefusal]:
        sent = {record.position: record for record in outbound.records}
        known = [refusal for refusal in receipt.refused if refusal.position in sent]
        return [RecordRefusal(sent[one.position], one.reason, self._words(one)) for one in known]

    patch.setattr(PushV2, "_refusals", refusals)


def count_too_few(patch: pytest.MonkeyPatch) -> None:
    """Answer with receipts that leave out an event of each batch of several: the lie of a peer."""
    make = StoreBatch._receipt

    def make_less(self: Any, accepted: int, duplicates: int, refused: Any, now: int) -> Receipt:
        return make(self, accepted - (accepted > 1), duplicates, refused, now)

    patch.setattr(StoreBatch, "_receipt", make_less)


def trust_unsigned_answers(patch: pytest.MonkeyPatch) -> None:
    """Do not look at the signature of an answer."""
    replace_function(patch, verify_answer, lambda *_: None)


def forge_receipts(patch: pytest.MonkeyPatch) -> None:
    """Answer a part of the batches in the name of the peer, which never gets them: the deed of another machine."""
    send = PushV2._send
    asked = count()

    async def send_or_answer(self: Any, header: Any, body: bytes, *others: Any) -> Any:
        if not isinstance(header, BatchHeader) or header.form != BATCH_TYPE or next(asked) % 5 != 2:
            return await send(self, header, body, *others)
        key, now = self._ring().signer(self._link.node), self._clock.now()
        signed = sign_request(header, body, key, now=now, nonce=32 * "0", window=self._link.window)
        receipt = Receipt(
            group=header.group,
            from_node=header.from_node,
            to_node=header.to_node,
            batch=header.batch_id,
            digest=signed.digest,
            epoch=header.range.epoch,
            incarnation=header.range.incarnation,
            upto=header.range.upto,
            accepted=body.count(b"\n"),
            duplicates=0,
            recorded_at=from_micros(now),
        )
        return signed, Answer(200, {}, encode_json(receipt)), key.id

    patch.setattr(PushV2, "_send", send_or_answer)


def take_batches_ahead(patch: pytest.MonkeyPatch) -> None:
    """Store a batch that begins beyond the mark, as if nothing were missing before it."""
    follow = ranges.follow

    def follow_blindly(mark: Mark | None, covered: Range) -> ranges.Step:
        if mark is not None and mark.epoch == covered.epoch and (covered.after or 0) > mark.upto:
            mark = msgspec.structs.replace(mark, upto=covered.after)
        return follow(mark, covered)

    patch.setattr(batch, "follow", follow_blindly)


def move_marks_with_repairs(patch: pytest.MonkeyPatch) -> None:
    """Move the mark of a link to the last event of a repair."""
    move = StoreBatch._move_mark

    def move_too(self: Any, tx: Transaction) -> None:
        move(self, tx)
        mark, sent = self._step.mark, self._batch.positions
        if self._batch.header.range.repair and mark is not None and sent:
            stored = StoredMark(mark.epoch, mark.incarnation, mark.base, max(mark.upto, sent[-1]))
            write_mark(tx.conn, *self._link, stored, tx.now)

    patch.setattr(StoreBatch, "_move_mark", move_too)


class _MoveMark(ChangeUnit[None]):
    """Moves the mark of a batch, in a transaction before that of the batch."""

    def __init__(self, unit: Any) -> None:
        self._unit = unit

    def make(self, tx: Transaction) -> None:
        if self._unit._known_receipt(tx) is None:
            self._unit._follow(tx)
            self._unit._move_mark(tx)


def move_marks_before_batches(patch: pytest.MonkeyPatch) -> None:
    """Move the mark in a transaction of its own."""
    submit = EventLog.submit

    async def submit_both(log: EventLog, unit: Any) -> Any:
        with suppress(EventdError, MessageError):
            await submit(log, _MoveMark(unit))
        return await submit(log, unit)

    def submit_twice(self: EventLog, unit: Any) -> Any:
        if isinstance(unit, StoreBatch):
            return asyncio.ensure_future(submit_both(self, unit))
        return submit(self, unit)

    patch.setattr(EventLog, "submit", submit_twice)


def keep_no_nonces(patch: pytest.MonkeyPatch) -> None:
    """Do not store the nonce of a batch with the batch."""
    patch.setattr(batch, "keep_nonce", lambda *_: None)


def forget_receipts(patch: pytest.MonkeyPatch) -> None:
    """Keep no receipt of what is stored, so that a repeated batch is counted anew."""
    patch.setattr(batch, "keep_receipt", lambda *_args, **_options: None)


def forget_no_failed_batches(patch: pytest.MonkeyPatch) -> None:
    """Let the reorder buffer remember a batch as passed although it was not stored."""
    patch.setattr(ReorderBuffer, "forget", lambda *_: None)


def compare_no_marks(patch: pytest.MonkeyPatch) -> None:
    """Continue from the cursor when a link is opened, whatever the mark of the peer is."""

    def as_it_is(_node: str, mark: Mark | None, *_: Any) -> RangeStart:
        return RangeStart(mark is None)

    replace_function(patch, range_start.compare_mark, as_it_is)


def ignore_starts(patch: pytest.MonkeyPatch) -> None:
    """Do not compare marks when a peer was started."""
    patch.setattr(Consumer, "reopen", lambda _self: None)


def rewind_positions_alone(patch: pytest.MonkeyPatch) -> None:
    """Keep what the peer has confirmed when a cursor is set back."""
    rewind = cursors.rewind

    def rewind_one(conn: Connection, name: str, **options: Any) -> None:
        before: Cursor = cursors.read_cursor(conn, name)
        rewind(conn, name, **options)
        cursors.update_rows(
            conn, "cursors", {"sent_upto": before.sent_upto, "sent_epoch": before.sent_epoch}, {"name": name}
        )

    replace_function(patch, rewind, rewind_one)


def send_back(patch: pytest.MonkeyPatch) -> None:
    """Send records also to the nodes that they came from, and through."""

    def hindrance(_self: PeerFilter, record: Any, now: int) -> str:
        return "" if is_alive(record.expires_at, now) else "expired"

    patch.setattr(PeerFilter, "hindrance", hindrance)
    patch.setattr(PeerFilter, "_nothing_hinders", lambda _self, block, now: is_alive(block.expires_first, now))


def report_losses_with_the_next_event(patch: pytest.MonkeyPatch) -> None:
    """Do not report a loss of own events until there is another event to send."""
    must_report = RangeStart.must_report
    patch.setattr(
        RangeStart,
        "must_report",
        lambda self, gap_end, after, _lost, upto: must_report(self, gap_end, after, 0, upto),
    )


def report_no_losses(patch: pytest.MonkeyPatch) -> None:
    """Leave out of the range of a batch that records before it are lost."""
    begin = RangeStart.begin

    def begin_as_if_whole(self: RangeStart, after: int, gap_end: int, lost_position: int) -> tuple[int, int | None]:
        return begin(self, after, gap_end, lost_position)[0], None

    patch.setattr(RangeStart, "begin", begin_as_if_whole)


def note_no_losses(patch: pytest.MonkeyPatch) -> None:
    """Report the loss of own events to the peer, but leave it out of the ledger."""
    patch.setattr(PeerSink, "_with_loss", lambda _self, _outbound, ack: ack)


def keep_no_letters_of_repairs(patch: pytest.MonkeyPatch) -> None:
    """Keep no dead letter of an event that the peer refuses when it is sent again."""
    letters_of = sink.dead_letters

    def first_letters(cursor: Cursor, outbound: Any, ack: Ack, now: int) -> list[Any]:
        is_repair = any(batch.picked for batch in ack.batches)
        return [] if is_repair else letters_of(cursor, outbound, ack, now)

    replace_function(patch, sink.dead_letters, first_letters)
