"""What a consumer asks of whoever takes its records, and the ways in which a delivery can fail.

Down is not wrong. `Unavailable` and `Blocked` are about the link: the cursor stays, and the destination is tried again.
Only an answer about one record sets that record aside, in `Ack.parked`, and the rest goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from eventd.log.core.eventlog import EventLog
from eventd.log.core.units import Effect
from eventd.log.cursors.cursors import Batch, Cursor, DeadLetter

LONGEST = 500
"""Characters that are kept of what another side says."""


def plain(text: str) -> str:
    """What another side says, as it may be stored and shown.

    It could be megabytes, steer a terminal, or hold what no database takes as text.
    """
    return "".join(character if character.isprintable() else " " for character in text[:LONGEST])


class HeldUp(Exception):
    """The link as a whole cannot go on now.

    `reason` is a slug out of a fixed set, for it becomes a label of metrics; the message says it in words, and may
    quote the other side; `retry_after` is what that asked for, in seconds.
    """

    def __init__(self, reason: str, detail: str, *, retry_after: float | None = None) -> None:
        super().__init__(plain(detail))
        self.reason = reason
        self.detail = plain(detail)
        self.retry_after = retry_after


class Unavailable(HeldUp):
    """The other side is down or asks for time: refused connections, time-outs, 429, 5xx."""


class Blocked(HeldUp):
    """The other side answers and refuses the link: a wrong key, a wrong path, a wrong group."""


class Rewind(Exception):
    """The other side has less than the cursor says.

    `to` is the position to go back to, `epoch` the one in which the other side has proven to be there; blank for none.
    """

    def __init__(self, to: int, detail: str, *, epoch: str = "") -> None:
        super().__init__(detail)
        self.to = to
        self.epoch = epoch
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Opened:
    """What opening found out: whether the other side answered, and the protocol it has proven to speak, if any."""

    reached: bool
    proven: str = ""


class Carried(Protocol):
    """A record on its way out: its position here, and its event's id."""

    @property
    def position(self) -> int: ...

    @property
    def event_id(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Parcel:
    """What a sink takes of one page. Positions are node-wide; ranges are half-open, `(after, upto]`.

    `after` is where the previous range ended; `exceptions` are matching records that are not sent, with the reason;
    `lost` is where a loss begins: retention took (lost, after] before it could be sent; None when nothing was lost.
    A `bare` parcel has no records, and its range is sent all the same.
    """

    after: int
    upto: int
    epoch: str
    incarnation: int
    records: Sequence[Carried]
    exceptions: Sequence[tuple[int, str]] = ()
    lost: int | None = None
    attempts: int = 1
    bare: bool = False

    @property
    def goes(self) -> bool:
        """Whether anything goes over the link."""
        return self.bare or bool(self.records)


@dataclass(frozen=True, slots=True)
class Parked:
    """A record that the other side will never take. `attempts` is how often it was tried, where that is known."""

    record: Carried
    reason: str
    detail: str
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class Ack:
    """What became of a parcel.

    `upto` may lie before the parcel's end; then `held_up` says why. It may lie beyond, where the sink looked further by
    itself. `effect` is written in the transaction that moves the cursor, and the books of what is parked are kept under
    the name `books`, where that is not the cursor's own.
    """

    upto: int
    batches: Sequence[Batch] = ()
    parked: Sequence[Parked] = ()
    protocol: str = ""
    held_up: HeldUp | None = None
    effect: Effect | None = None
    books: str = ""

    @property
    def asked(self) -> bool:
        """Whether the other side was: where nothing had to be handed over, that is no success of the link."""
        return self.effect is not None or any(batch.status for batch in self.batches)


def letters_of(cursor: Cursor, parcel: Parcel, ack: Ack, now: int) -> list[DeadLetter]:
    """The dead letters of a parcel."""
    # A repair keeps its books under the name of the peer's own cursor: they outlive it.
    books = ack.books or (ack.batches[0].cursor if ack.batches else cursor.name)
    return [
        DeadLetter(
            books,
            parked.record.position,
            cursor.topic_id,
            parked.record.event_id,
            parked.reason,
            parked.detail,
            parked.attempts or parcel.attempts,
            now,
        )
        for parked in ack.parked
    ]


class Scanned(Protocol):
    """What a consumer must know of a page: the last position that was looked at, and whether more may be waiting."""

    @property
    def upto(self) -> int: ...

    @property
    def full(self) -> bool: ...


PageT = TypeVar("PageT", bound=Scanned)


class Sink(Protocol[PageT]):
    """Takes pages of records somewhere. It reads them in the form it needs: as records, or as lines for the wire."""

    @property
    def window(self) -> int:
        """Parcels that may be under way at once; 0 while there is no room for one."""
        ...

    @property
    def own(self) -> bool:
        """Whether only records that entered the log here concern this sink."""
        ...

    def await_room(self, nudge: asyncio.Future[None]) -> None:
        """There is no room for a parcel: set the nudge when there is."""
        ...

    async def read(self, log: EventLog, cursor: Cursor, after: int) -> PageT:
        """The next page beyond `after`, no further than the cursor's own end."""
        ...

    async def open(self, cursor: Cursor, page: PageT) -> Opened:
        """Get ready to deliver; it may change the size of a page. Raises `HeldUp` or `Rewind`."""
        ...

    def select(self, page: PageT, after: int, attempts: int) -> Parcel | None:
        """What to deliver of the page; None when nothing in it concerns this sink."""
        ...

    async def deliver(self, parcel: Any) -> Ack:
        """Deliver what `select` made. Raises `HeldUp`; then nothing is settled."""
        ...

    def settled(self, ack: Ack) -> None:
        """What `deliver` answered is written."""
        ...

    async def given_up(self) -> None:
        """The consumer stands still: what `deliver` has begun or answered, and was not settled, is void."""
        ...

    def wind_down(self) -> None:
        """The node is about to stop: end what is under way, and wait for nothing that has not begun."""
        ...
