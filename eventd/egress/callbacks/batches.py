"""How the records of a callback are cut into the batches of its messages. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from eventd.egress.callbacks.formats import CallbackItem
from eventd.egress.loop.collecting import Window

RECORD_BYTES: Final = 4096
"""A size in bytes that most records do not exceed; see `ItemWindow.quiet`."""


@dataclass(frozen=True, slots=True)
class MessageBatch:
    """The records of one message: the items of the positions in `(after, upto]`, without the `omitted` ones.

    `is_full`: no further record fits, so the same batch results when it is collected again.
    """

    after: int
    upto: int
    items: Sequence[CallbackItem]
    omitted: Sequence[CallbackItem] = ()
    is_full: bool = True

    def first_half(self) -> Self:
        """Return a batch of the first half of the items."""
        return self.before(len(self.items) // 2)

    def before(self, count: int) -> Self:
        """Return a batch of the first `count` items, at least one."""
        upto = self.items[count - 1].position
        omitted = [item for item in self.omitted if item.position <= upto]
        return type(self)(self.after, upto, self.items[:count], omitted)


class BatchLimits(NamedTuple):
    """When a batch closes: at this many events or bytes, and `window` microseconds after its first event."""

    events: int
    bytes: int
    window: int


def cut(items: Sequence[CallbackItem], after: int, upto: int, limits: BatchLimits) -> list[MessageBatch]:
    """Return the batches of consecutive items of the positions in `(after, upto]`; only the last may not be full.

    Omitted items at the end belong to the last batch; if there are no others, it has no items.
    """
    batches: list[MessageBatch] = []
    held: list[CallbackItem] = []
    omitted: list[CallbackItem] = []
    size, begin, last = 0, after, after
    for item in items:
        if item.omitted:
            omitted.append(item)
            last = item.position
            continue
        if held and size + item.size > limits.bytes:
            batches.append(MessageBatch(begin, last, held, omitted))
            held, omitted, size, begin = [], [], 0, last
        held.append(item)
        size, last = size + item.size, item.position
        if len(held) == limits.events:
            batches.append(MessageBatch(begin, last, held, omitted))
            held, omitted, size, begin = [], [], 0, last
    if held or omitted:
        batches.append(MessageBatch(begin, upto, held, omitted, is_full=False))
    elif batches:  # the records that follow are not for this callback
        final = batches[-1]
        batches[-1] = MessageBatch(final.after, upto, final.items, final.omitted)
    return batches


class ItemWindow:
    """The items that are collected for one batch until its window closes."""

    def __init__(self, limits: BatchLimits, items: Sequence[CallbackItem]) -> None:
        self.items: list[CallbackItem] = []
        self.is_cut = False
        """Whether the next item cannot be part of this batch, as after a loss: nothing more is collected then."""
        self._window = Window(limits.window or None, None, limits.events, limits.bytes)
        self._largest = RECORD_BYTES
        self.add(items)

    def add(self, found: Sequence[CallbackItem]) -> None:
        """Add items in log order."""
        self.items += found
        for item in found:
            if not item.omitted:
                self._window.add(item.recorded_at, item.size)
                self._largest = max(self._largest, item.size)

    @property
    def room(self) -> int:
        """Return how many more items fit."""
        return max(1, self._window.room)

    @property
    def room_bytes(self) -> int:
        """Return approximately how many more bytes fit."""
        return max(1, self._window.room_bytes)

    @property
    def quiet(self) -> int:
        """Return a number of further records that cannot fill the window, so that they need not be read one by one.

        If they are larger than the records before, the window closes later than it could, but no later than by time.
        Without this number, each append would wake every callback with an open window.
        """
        return max(0, min(self.room, self.room_bytes // self._largest) - 1)

    @property
    def is_full(self) -> bool:
        return self.is_cut or self._window.is_full

    def closes_in(self, now: int) -> int:
        return 0 if self.is_cut else self._window.closes_in(now)
