"""Merges sorted runs of ids, step by step, as units of the writer."""

from __future__ import annotations

from eventd.log.core.commit import ChangeUnit, Transaction, Turn
from eventd.log.core.eventlog import EventLog
from eventd.store.ids.filters import IdFilter
from eventd.store.ids.merging import MergeStep, end_merge, extend_filter, merge_some
from eventd.store.ids.runs import IdRun


class MergeIds(ChangeUnit[MergeStep]):
    """One step of a merge."""

    turn = Turn.BACKGROUND
    weight = 1000  # a transaction of its own

    def make(self, tx: Transaction) -> MergeStep:
        return merge_some(tx.conn)


class EndMerge(ChangeUnit[None]):
    """Stores the filter of a run that has all its entries."""

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


async def _merge_all(log: EventLog) -> None:
    while (step := await log.submit(MergeIds())).worked:
        if step.complete is not None:
            made = IdFilter.sized(step.complete.entries)
            after: bytes | None = b""
            while after is not None:
                after = await log.database.read(extend_filter, step.complete, made, after)
            await log.submit(EndMerge(step.complete, made))
