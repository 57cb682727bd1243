"""The interface between a consumer and its destination, and the ways in which a delivery can fail.

An unavailable destination has not refused anything. `LinkUnavailable` and `Blocked` concern the link: the cursor stays,
and the delivery is retried. Only a record that is not tried again becomes a dead letter, in `Ack.refused`; the link
continues with the next record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from eventd.log.core.eventlog import EventLog
from eventd.log.core.units import Effect
from eventd.log.cursors.cursors import Cursor
from eventd.log.cursors.dead_letters import DeadLetter
from eventd.log.cursors.steps import DeliveredBatch

ADDRESS_FORBIDDEN = "address_forbidden"
"""The reason of a link to an address that the node's settings forbid."""
LONGEST = 500
"""Maximum number of characters of the other side's text that are stored."""


def plain(text: str) -> str:
    """Return the first 500 characters of a text from the other side, with blanks in place of unprintable characters:
    these could control a terminal, and databases reject some of them.
    """
    return "".join(character if character.isprintable() else " " for character in text[:LONGEST])


class LinkError(Exception):
    """The link as a whole does not work; if neither subclass applies, this node itself is the cause.

    `reason` is a slug out of a fixed set, because it becomes a label of metrics; `detail` explains it, and may quote
    the other side. `retry_after` is the pause in seconds that the other side asked for; `address` that of the
    connection that failed, empty if there was none.
    """

    address: str = ""

    def __init__(self, reason: str, detail: str, *, retry_after: float | None = None) -> None:
        super().__init__(plain(detail))
        self.reason = reason
        self.detail = plain(detail)
        self.retry_after = retry_after


class LinkUnavailable(LinkError):
    """The link backs off and is tried again: the other side is down, asks for time (429, 5xx) or is out of step, or the
    plugin failed.
    """


class Blocked(LinkError):
    """The other side answers, but refuses the link (a wrong key, path or group) or proves nothing.

    Or the plugin cannot run until an operator changes something.
    """


class Rewind(Exception):
    """The other side lacks something that was sent to it.

    `to` is the position up to which it has everything; the consumer goes back to it if its cursor is beyond. `epoch` is
    the epoch in which the other side has proven that; empty without a proof.
    """

    def __init__(self, to: int, detail: str, *, epoch: str = "") -> None:
        super().__init__(detail)
        self.to = to
        self.epoch = epoch
        self.detail = detail


@dataclass(frozen=True, slots=True)
class OpenResult:
    """The result of `open`: whether the other side answered, and the protocol it has proven to speak, if any.

    `unknown`: only a delivery shows whether the other side answers. Then a link without anything to deliver is shown as
    running, although its last delivery failed: it retries nothing.
    """

    reached: bool
    proven: str = ""
    unknown: bool = False


class OutboundRecord(Protocol):
    """Interface of a record to send: its position in this node's log, and its event's id."""

    @property
    def position(self) -> int: ...

    @property
    def event_id(self) -> str: ...


@dataclass(frozen=True, slots=True)
class OutboundBatch:
    """The records of one page that a sink delivers. Positions are node-wide; ranges are half-open, `(after, upto]`.

    `after` is where the previous range ended, or where a loss behind it ended: retention evicted `(lost, after]` before
    it could be sent; `lost` is None without a loss. `exceptions` are positions of matching records that are not sent,
    each with the reason. A `bare` batch has no records, but its range is sent. `attempts` counts the deliveries of its
    records, this one included.
    """

    after: int
    upto: int
    epoch: str
    incarnation: int
    records: Sequence[OutboundRecord]
    exceptions: Sequence[tuple[int, str]] = ()
    lost: int | None = None
    attempts: int = 1
    bare: bool = False

    @property
    def goes(self) -> bool:
        """Whether the batch is sent over the link at all."""
        return self.bare or bool(self.records)


@dataclass(frozen=True, slots=True)
class RecordRefusal:
    """A record that becomes a dead letter, and why. `attempts`: how often it was sent; 0: as often as its batch."""

    record: OutboundRecord
    reason: str
    detail: str
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class Ack:
    """The result of a delivery.

    The cursor moves to `upto`. This position lies before the batch's end after a `failure`, or if the sink delivered
    only a part, and beyond the batch's end if the sink read further by itself. `refused` records become dead letters,
    stored under the cursor name `ledger_cursor`; if empty, under that of the batches or the cursor's own. `effect` is
    written in the transaction that moves the cursor. `reason`: why the destination gets no more at present, although it
    works. `evicted`: the number of events that a peer did not get because retention had removed them, or more.
    """

    upto: int
    batches: Sequence[DeliveredBatch] = ()
    refused: Sequence[RecordRefusal] = ()
    protocol: str = ""
    failure: LinkError | None = None
    effect: Effect | None = None
    ledger_cursor: str = ""
    reason: str = ""
    evicted: int = 0

    @property
    def asked(self) -> bool:
        """Whether the result proves that the link works: a batch with nothing to send proves nothing."""
        return self.effect is not None or any(batch.status for batch in self.batches)


def dead_letters(cursor: Cursor, outbound: OutboundBatch, ack: Ack, now: int) -> list[DeadLetter]:
    """Return the dead letters for the refused records of a batch."""
    # A repair stores them under the name of the peer's own cursor, which outlives it.
    name = ack.ledger_cursor or (ack.batches[0].cursor if ack.batches else cursor.name)
    return [
        DeadLetter(
            name,
            refused.record.position,
            cursor.topic_id,
            refused.record.event_id,
            refused.reason,
            refused.detail,
            refused.attempts or outbound.attempts,
            now,
        )
        for refused in ack.refused
    ]


class PageBounds(Protocol):
    """Interface of a page: the position up to which it was read, and whether more records may exist beyond."""

    @property
    def upto(self) -> int: ...

    @property
    def full(self) -> bool: ...


PageT = TypeVar("PageT", bound=PageBounds)


class Sink(Protocol[PageT]):
    """Interface of a destination: reads pages of the log in the form that it needs, and delivers their records."""

    @property
    def window(self) -> int:
        """Return how many batches may be under way at the same time; 0 if there is no room for any."""
        ...

    @property
    def own(self) -> bool:
        """Return whether the sink needs only records that entered the log at this node, not by a peer."""
        ...

    def await_room(self, nudge: asyncio.Future[None]) -> None:
        """Set the result of `nudge` when there is room for a batch again."""
        ...

    async def read(self, log: EventLog, cursor: Cursor, after: int) -> PageT:
        """Return the next page beyond the position `after`, and not beyond `cursor.until`."""
        ...

    async def open(self, cursor: Cursor, page: PageT, *, start: bool) -> OpenResult:
        """Prepare the deliveries. `page` is the first; the caller reads it again. Raises `LinkError` or `Rewind`.

        Without `start`, the consumer only compares marks again because the other side was started: the link was opened
        before, and has not failed since.
        """
        ...

    def select(self, page: PageT, after: int, attempts: int) -> OutboundBatch | None:
        """Return the batch to deliver from a page; None if the page has nothing for this sink.

        `after` is the end of the previous batch's range; `attempts` counts the page's deliveries, this one included.
        """
        ...

    async def deliver(self, outbound: Any) -> Ack:
        """Deliver a batch from `select`. Raises `LinkError` or `Rewind`; then nothing of it is settled."""
        ...

    def settled(self, ack: Ack) -> None:
        """Note that the result of `deliver` is committed."""
        ...

    async def given_up(self) -> None:
        """Note that the consumer's attempt has ended: deliveries that were not settled are void."""
        ...

    def wind_down(self) -> None:
        """Let deliveries under way wait for no further records, because the consumer is to finish."""
        ...
