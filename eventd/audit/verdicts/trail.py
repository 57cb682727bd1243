"""The trail of one event to one peer: what the rows of all ledgers say of it."""

from __future__ import annotations

from typing import NamedTuple

from eventd.audit.arrays.alterations import LedgerRow


class Trail(NamedTuple):
    """The rows of all ledgers on one event and one peer, summed up.

    Times are microseconds by the clock of the node of the row; without a row, 0 (`arrived_at`: None). `slot` is the
    minute of the event's own time, `seq` its seq at its source, 0 if unknown. These count rows: `origin` of the source;
    `due` and `ahead` of senders that had the event for the peer and whose link has passed it, or not yet; `restored`
    those like `ahead` of a sender's new epoch that the cells leave out (the first was recorded at `restored_at`);
    `sent` acknowledged deliveries; `expired`, `in_path` and `refused` deliveries that ended so; `held` of the peer.
    `senders` counts the nodes that delivered it, `repeated` the deliveries of a sender after its first; `asked` the
    deliveries by repairs, which an operator requests, and `again` what remains of `repeated` without these;
    `own_in_path` those of `in_path` that are the source's; `unanswered` those of `refused` that the answers to their
    batches do not count; `silent` the senders that had to send it and have no delivery of it, ended as it may. `due_*`
    is of the first sender that had to send it, and recorded it at `due_at`: of a silent one if there is one.
    `expired_node` was the first to give it up as expired, at `expired_at`, and `in_path_node` the last to leave it out
    because of its path, at `in_path_at`. `sent_node` is a node that delivered it, `sent_at` the first attempt,
    `done_at` the last acknowledgement. `link_node` is a node whose link, and no repair, delivered it first, in
    `link_epoch` and by the selection `link_version`. The peer recorded it at `arrived_at` by a receipt, and at
    `held_at` by its own ledger. `due_row` is the first row of a sender that had it for the peer, of a silent one if
    there is one, `delivery_row` the last one of a delivery, of an acknowledged or else an unanswered one if there is
    one, `source_row` and `peer_row` the first rows of the source and of the peer.
    """

    group: str
    source: str
    peer: str
    type: str
    slot: int
    id: str
    seq: int
    origin: int
    due: int
    ahead: int
    restored: int
    sent: int
    senders: int
    repeated: int
    expired: int
    in_path: int
    refused: int
    held: int
    due_node: str
    due_epoch: str
    due_at: int
    due_position: int
    sent_node: str
    sent_at: int
    done_at: int
    arrived_at: int | None
    held_at: int
    restored_at: int
    asked: int
    again: int
    own_in_path: int
    unanswered: int
    silent: int
    expired_node: str
    expired_at: int
    in_path_node: str
    in_path_at: int
    link_node: str
    link_epoch: str
    link_version: int
    due_row: LedgerRow | None
    delivery_row: LedgerRow | None
    source_row: LedgerRow | None
    peer_row: LedgerRow | None

    @property
    def selected(self) -> bool:
        """Return whether a sender had the event for the peer."""
        return bool(self.due or self.ahead or self.restored)
