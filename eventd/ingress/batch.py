"""Stores a received batch: events, nonce, mark and receipt are committed in one transaction, or none of them."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from eventd.ingress.mark_queries import LinkForgotten
from eventd.ingress.nonces import repeated
from eventd.log.core.commit import Transaction, Turn
from eventd.log.core.topic_row import require_in_use
from eventd.log.core.units import require_room
from eventd.log.core.values import AppendResult, Drafts, Outcome
from eventd.log.history.hints import keep_hints
from eventd.store.rows.links import (
    StoredMark,
    count_links,
    delete_links,
    keep_nonce,
    keep_receipt,
    nonce_seen,
    read_mark,
    read_receipt,
    record_gap,
    stale_links,
    write_mark,
)
from federation.errors import BatchConflict
from federation.event import from_micros
from federation.history.leaf_hints import LeafPlace
from federation.ranges import Mark, Step, follow
from federation.returned import encode_positions
from federation.wire import BatchHeader, Receipt, Refusal, encode_json

MOST_UNDECLARED = 1000
"""Maximum number of senders, other than declared peers, whose marks are kept in a group: those that sent most
recently."""
SPARE = 100
"""By how many the marks may exceed `MOST_UNDECLARED` before the surplus is removed, so that not every new name costs a
scan of all marks.
"""


def mark_of(stored: StoredMark | None) -> Mark | None:
    """Return a stored mark as it is sent."""
    if stored is None:
        return None
    return Mark(epoch=stored.epoch, incarnation=stored.incarnation, upto=stored.upto, base=stored.base)


@dataclass(frozen=True, slots=True)
class VerifiedBatch:
    """A verified batch to store: its acceptable lines as `drafts`, and their `positions` at the sender, in parallel.

    `refused` are the lines that are not acceptable, which have no draft. `keep_nonce_until` is in microseconds.
    `leaves`: where the events have their leaves, as the sender states without a signature; `to_check`: they are to be
    compared with the trees.
    """

    header: BatchHeader
    digest: str
    key_id: str
    nonce: str
    keep_nonce_until: int
    positions: Sequence[int]
    drafts: Drafts
    refused: Sequence[Refusal]
    leaves: Sequence[LeafPlace] = ()
    to_check: bool = False


@dataclass(frozen=True, slots=True)
class StoreResult:
    """The encoded receipt, the numbers of events stored (`accepted`) and known already, and the refusals.

    `repeated`: the batch was stored before; the receipt is the one given then, the rest is 0 or empty. `stored_at` has
    the position here of each event of the batch, in parallel with `VerifiedBatch.positions`.
    """

    receipt: bytes
    accepted: int
    duplicates: int
    refused: Sequence[Refusal]
    repeated: bool
    stored_at: Sequence[int] = ()


class StoreBatch:
    """A unit of the writer that stores one batch. Result: `StoreResult`.

    Raises `Conflict` for a stored nonce, `BatchConflict` for a batch id stored with another range or content,
    `RangeAhead` when an earlier batch is missing, `LinkForgotten` when the link's mark is neither of the batch's epoch
    nor of `judged`, `Full` at the limit on stored bytes, and `NotFound` when the group was deleted. Then nothing is
    stored, not even the nonce.

    `judged`: the epoch of the mark that the batch may replace, as the batch was judged by it; None: only a missing one.
    """

    cursor = None
    durable = True
    turn = Turn.FRONT

    def __init__(
        self,
        topic_id: int,
        batch: VerifiedBatch,
        ceiling: int | None,
        peers: AbstractSet[str] = frozenset(),
        judged: str | None = None,
    ) -> None:
        self.topic_id = topic_id
        self._batch = batch
        self._ceiling = ceiling
        self._peers = peers
        self._judged = judged
        self._begins = False
        self._link = (topic_id, batch.header.from_node)
        self._step = Step(None)
        self._repeated: bytes | None = None

    @property
    def weight(self) -> int:
        return len(self._batch.drafts)

    @property
    def is_brief(self) -> bool:
        return self._batch.drafts.are_few

    def admit(self, tx: Transaction) -> Drafts:
        batch = self._batch
        require_in_use(tx.conn, tx.head, self.topic_id)
        if nonce_seen(tx.conn, batch.header.group, batch.key_id, batch.nonce):
            raise repeated()
        self._repeated = self._known_receipt(tx)
        if self._repeated is None:
            require_room(tx, self.topic_id, batch.drafts, self._ceiling)
            self._follow(tx)
        keep_nonce(tx.conn, batch.header.group, batch.key_id, batch.nonce, batch.keep_nonce_until)
        return batch.drafts if self._repeated is None else Drafts()

    def _known_receipt(self, tx: Transaction) -> bytes | None:
        header = self._batch.header
        stored = read_receipt(tx.conn, *self._link, header.batch_id)
        if stored is None:
            return None
        if stored.digest != self._batch.digest or stored.range != header.range.to_header():
            raise BatchConflict(f"batch id {header.batch_id} was used before for another range or content")
        return stored.receipt.encode()

    def _follow(self, tx: Transaction) -> None:
        key = ("mark", *self._link)
        if key not in tx.shared:  # The batch that precedes this one may be stored in the same transaction.
            tx.shared[key] = mark_of(read_mark(tx.conn, *self._link))
        mark, covered = tx.shared[key], self._batch.header.range
        epoch = mark and mark.epoch
        # A batch of another epoch may have been stored since this one was judged.
        if not covered.repair and epoch not in (covered.epoch, self._judged):
            raise LinkForgotten(self._batch.header)
        self._begins = mark is None
        self._step = follow(mark, covered)
        tx.shared[key] = self._step.mark

    def finish(self, tx: Transaction, appended: AppendResult) -> StoreResult:
        if self._repeated is not None:
            return StoreResult(self._repeated, 0, 0, (), repeated=True)
        batch, now = self._batch, tx.now
        refused = sorted([*batch.refused, *self._conflicts(appended)], key=lambda refusal: refusal.position)
        duplicates = appended.count(Outcome.DUPLICATE)
        accepted = appended.count(Outcome.NEW) + appended.count(Outcome.REFRESH)
        receipt = encode_json(self._receipt(accepted, duplicates, refused, now))
        keep_receipt(
            tx.conn,
            topic_id=self.topic_id,
            node=batch.header.from_node,
            batch_id=batch.header.batch_id,
            key_id=batch.key_id,
            covers=batch.header.range.to_header(),
            digest=batch.digest,
            receipt=receipt.decode(),
            now=now,
            positions=encode_positions(batch.positions) if accepted == len(batch.positions) and not refused else "",
        )
        self._move_mark(tx)
        if (batch.leaves or batch.to_check) and accepted:
            self._keep_hints(tx, appended, accepted)
        return StoreResult(receipt, accepted, duplicates, refused, repeated=False, stored_at=appended.positions)

    def _keep_hints(self, tx: Transaction, appended: AppendResult, accepted: int) -> None:
        sent, stored = self._batch.positions, appended.positions
        if accepted < len(sent):
            fresh = [at for at, one in enumerate(appended.outcomes) if one in (Outcome.NEW, Outcome.REFRESH)]
            sent, stored = [sent[at] for at in fresh], [stored[at] for at in fresh]
        due = tx.now if self._batch.to_check else None
        keep_hints(tx.conn, self.topic_id, self._batch.leaves, sent, stored, due)

    def _conflicts(self, appended: AppendResult) -> list[Refusal]:
        if not appended.count(Outcome.CONFLICT):
            return []
        at, ids = self._batch.positions, self._batch.drafts.event_ids
        return [
            Refusal(at[n], ids[n], "id_conflict", owner.source, owner.digest) for n, owner in appended.owners.items()
        ]

    def _receipt(self, accepted: int, duplicates: int, refused: Sequence[Refusal], now: int) -> Receipt:
        header = self._batch.header
        return Receipt(
            group=header.group,
            from_node=header.from_node,
            to_node=header.to_node,
            batch=header.batch_id,
            digest=self._batch.digest,
            epoch=header.range.epoch,
            incarnation=header.range.incarnation,
            upto=self._step.mark.upto if self._step.mark and self._step.mark.epoch == header.range.epoch else None,
            accepted=accepted,
            duplicates=duplicates,
            refused=tuple(refused),
            recorded_at=from_micros(now),
        )

    def _move_mark(self, tx: Transaction) -> None:
        mark, epoch = self._step.mark, self._batch.header.range.epoch
        if mark is not None and not self._batch.header.range.repair:
            stored = StoredMark(mark.epoch, mark.incarnation, mark.base, mark.upto)
            write_mark(tx.conn, *self._link, stored, tx.now)
            if self._begins and self._batch.header.from_node not in self._peers:
                self._bound_undeclared(tx)
        if self._step.gap is not None:
            record_gap(tx.conn, *self._link, epoch, *self._step.gap, "lost", tx.now)
        if self._step.taken_back:
            header = self._batch.header
            record_gap(tx.conn, *self._link, epoch, header.range.after, header.range.upto, "taken_back", tx.now)

    def _bound_undeclared(self, tx: Transaction) -> None:
        """Delete all but the latest marks of undeclared senders if there are too many: a member can invent names."""
        if count_links(tx.conn, self.topic_id) > len(self._peers) + MOST_UNDECLARED + SPARE:
            stale = stale_links(tx.conn, self.topic_id, self._peers, most=MOST_UNDECLARED, before=0)
            delete_links(tx.conn, self.topic_id, stale)
