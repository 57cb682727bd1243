"""Merges sorted runs of ids, step by step, as units of the writer."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from dataclasses import dataclass

from eventd.log.core.commit import ChangeUnit, Transaction, Turn
from eventd.log.core.eventlog import EventLog
from eventd.store.ids.filters import IdFilter
from eventd.store.ids.merging import MergeStep, end_merge, extend_filter, filter_parts, merge_some, store_filter_part
from eventd.store.ids.runs import IdRun

FILTER_READS = 4
"""Reads of entries between two steps of merges, for each filter that is to be made: under load, a step waits for its
turn, and filters that wait must not become ever more."""


class MergeIds(ChangeUnit[MergeStep]):
    """One step of a merge."""

    turn = Turn.BACKGROUND
    weight = 1000  # a transaction of its own

    def __init__(self, in_making: Collection[int] = ()) -> None:
        self._in_making = in_making

    def make(self, tx: Transaction) -> MergeStep:
        return merge_some(tx.conn, self._in_making)


class StoreFilterPart(ChangeUnit[None]):
    """Stores a part of the filter of a run that has all its entries."""

    turn = Turn.BACKGROUND
    weight = 1000  # a transaction of its own

    def __init__(self, run: IdRun, part: int, data: bytes) -> None:
        self._run = run
        self._part = part
        self._data = data

    def make(self, tx: Transaction) -> None:
        store_filter_part(tx.conn, self._run, self._part, self._data)


class EndMerge(ChangeUnit[None]):
    """Replaces runs by the one that has all their entries, and its filter."""

    turn = Turn.BACKGROUND

    def __init__(self, run: IdRun, made: IdFilter) -> None:
        self._run = run
        self._made_filter = made

    def make(self, tx: Transaction) -> None:
        end_merge(tx.conn, self._run, self._made_filter)


async def merge_ids(log: EventLog) -> None:
    """Merge until no merge is due, and delete what is forgotten. After an error, `log.unmerged` is still set."""
    log.unmerged.clear()
    try:
        await _merge_all(log)
    except BaseException:
        log.unmerged.set()
        raise


@dataclass(slots=True)
class _FilterInMaking:
    """A filter of a complete run, which has the ids of the chunks up to `after`."""

    run: IdRun
    made: IdFilter
    after: bytes = b""


async def _merge_all(log: EventLog) -> None:
    in_making: deque[_FilterInMaking] = deque()
    worked = True
    while worked or in_making:
        if worked or log.unmerged.is_set():  # runs are written while a large filter is made
            log.unmerged.clear()
            step = await log.submit(MergeIds([each.run.id for each in in_making]))
            worked = step.worked
            if step.complete is not None:
                in_making.append(_FilterInMaking(step.complete, IdFilter.sized(step.complete.entries)))
        reads = FILTER_READS * len(in_making)
        while in_making and reads > 0:
            reads -= 1
            first = in_making[0]
            after = await log.database.read(extend_filter, first.run, first.made, first.after)
            if after is None:
                for part, data in enumerate(filter_parts(first.made)):
                    await log.submit(StoreFilterPart(first.run, part, data))
                await log.submit(EndMerge(first.run, first.made))
                in_making.popleft()
                worked = True
            else:
                first.after = after
