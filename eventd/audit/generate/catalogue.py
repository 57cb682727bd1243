"""The events of all emitters, looked up by emitter and number."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from eventd.audit.generate.emitters import EventColumns
from eventd.audit.generate.pseudo_random import Ints
from eventd.audit.generate.segments import Block
from eventd.audit.generate.world import World

_PAGE: Final = 65_536


class EventRows(NamedTuple):
    """The events of a block's rows: the event of row i is at index `at[i]` of `columns`."""

    columns: EventColumns
    at: Ints


class EventCatalogue:
    """Holds the columns of the events of all emitters in memory, to look up those of a block of rows."""

    def __init__(self, world: World) -> None:
        self._emitters = world.emitters
        counts = [emitter.events for emitter in self._emitters]
        self._base = np.cumsum(counts) - counts
        self._kept = self._keep(sum(counts))

    def _keep(self, total: int) -> EventColumns:
        """Return the columns of all events, filled page by page to limit the memory."""
        one = next(emitter for emitter in self._emitters if emitter.events).events_of(0, 1)
        kept = EventColumns(*(np.empty((total, *column.shape[1:]), column.dtype) for column in one))
        for emitter, base in zip(self._emitters, self._base.tolist(), strict=True):
            for begin in range(0, emitter.events, _PAGE):
                some = emitter.events_of(begin, min(begin + _PAGE, emitter.events))
                for name in EventColumns._fields:
                    part = getattr(some, name)
                    getattr(kept, name)[base + begin : base + begin + len(part)] = part
        return kept

    def look_up(self, block: Block, emitters: Ints, numbers: Ints) -> EventRows:
        """Return the events of a block's rows.

        `emitters` has an emitter's index for each item of the block, `numbers` an event's number for each row.
        """
        return EventRows(self._kept, numbers + np.repeat(self._base[emitters], block.counts))
