"""The events of all sources, to be looked up by source and number."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from eventd.audit.generate.history import EventColumns
from eventd.audit.generate.pseudo_random import Ints
from eventd.audit.generate.segments import Block
from eventd.audit.generate.world import World

_PORTION: Final = 65_536


class EventRows(NamedTuple):
    """The events of a block's rows: the rows `at` of `columns`."""

    columns: EventColumns
    at: Ints


class Catalogue:
    """Looks up the events of a block of rows."""

    def __init__(self, world: World) -> None:
        self._histories = world.histories
        counts = [history.events for history in self._histories]
        self._base = np.cumsum(counts) - counts
        self._kept = self._keep(sum(counts))

    def _keep(self, total: int) -> EventColumns:
        """All events, made in portions, so that memory is needed only once."""
        one = next(history for history in self._histories if history.events).events_of(0, 1)
        kept = EventColumns(*(np.empty((total, *column.shape[1:]), column.dtype) for column in one))
        for history, base in zip(self._histories, self._base.tolist(), strict=True):
            for begin in range(0, history.events, _PORTION):
                some = history.events_of(begin, min(begin + _PORTION, history.events))
                for name in EventColumns._fields:
                    part = getattr(some, name)
                    getattr(kept, name)[base + begin : base + begin + len(part)] = part
        return kept

    def look_up(self, block: Block, sources: Ints, numbers: Ints) -> EventRows:
        """`sources`: of each thing of the block; `numbers`: of the event of each row, rising within a thing."""
        return EventRows(self._kept, numbers + np.repeat(self._base[sources], block.counts))
