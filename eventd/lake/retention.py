"""Deletes what has expired: marks the segments of old days first, and deletes them a day later.

Readers are not disturbed: segments that were marked as expired stay for at least a day. A run that is interrupted
leaves a valid lake, and the next run continues.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from eventd.lake.coverage import choose
from eventd.lake.expiry import Expiry, Mark, read_expiry, write_expiry
from eventd.lake.file_tree import TREES
from eventd.lake.layout import ARCHIVE, LedgerSlug, SegmentName, day_of, expiry_path, slug, state_path
from eventd.lake.ledger_files import GRACE, Done, LedgerFiles, list_files, remove_segments
from eventd.lake.manifest import NodeState, SegmentRange
from eventd.lake.schema import Ledger
from eventd.lake.state_files import read_state, state_files
from eventd.lake.storage import Storage
from eventd.lake.writer import write_state


class LedgerRetention(NamedTuple):
    """The work of retention on one ledger of a node and epoch: the segments to mark as expired, and those to
    delete."""

    node: str
    epoch: str
    book: Ledger
    expired: Sequence[SegmentName]
    removed: Sequence[SegmentName]


def retaining(storage: Storage, nodes: Collection[str], *, now: int, keep: int, grace: int = GRACE) -> Iterator[Done]:
    """Mark segments of days older than `keep` as expired, delete those marked at least `grace` ago; yield each result.

    Both times are in microseconds. The state of a node is rewritten to no longer promise marked segments. The state of
    an old epoch is deleted if it has no segments and was last written `keep` + `grace` ago. Raises LakeUnavailable.
    """
    names = {slug(node): node for node in nodes}
    ledgers = list_files(storage, names)
    states = _read_states(storage, names)
    for slug_, epoch in sorted({(key.slug, key.epoch) for key in ledgers}):
        books = {key.book: files for key, files in ledgers.items() if key[:2] == (slug_, epoch)}
        history = _EpochRetention(storage, slug_, epoch, states.get((slug_, epoch)))
        yield from history.retain(books, now, keep, grace)
    yield from _forget_epochs(storage, states, ledgers, now - keep - grace)


def plan_retention(
    storage: Storage, nodes: Collection[str], *, now: int, keep: int, grace: int = GRACE
) -> list[LedgerRetention]:
    """Return the segments that `retaining` would mark or delete, by ledger, without changing the lake.

    Ledgers without any are left out. Raises like `retaining`.
    """
    names = {slug(node): node for node in nodes}
    states = _read_states(storage, names)
    plans = []
    for key, files in sorted(list_files(storage, names).items()):
        history = _EpochRetention(storage, key.slug, key.epoch, states.get((key.slug, key.epoch)))
        step = history.plan(key.book, files, now, keep, grace)
        if step.expired or step.removed:
            plans.append(LedgerRetention(names[key.slug], key.epoch, key.book, step.expired, step.removed))
    return plans


class _Step(NamedTuple):
    """The work for one ledger: the segments to mark as expired, and the segments and unfinished files to delete."""

    expired: Sequence[SegmentName]
    removed: Sequence[SegmentName]
    unfinished: Sequence[SegmentName]
    kept: tuple[Mark, ...]
    """The marks of the ledger that remain afterwards, including the new one."""


class _EpochRetention:
    """Retention of one node and epoch: reads and changes its state and its marks, and deletes its segments."""

    def __init__(self, storage: Storage, slug: str, epoch: str, state: NodeState | None) -> None:
        self._storage = storage
        self._slug, self._epoch = slug, epoch
        self._state = state
        self._expiry = read_expiry(storage, slug, epoch)

    def plan(self, book: Ledger, files: LedgerFiles, now: int, keep: int, grace: int) -> _Step:
        """Return the work for one ledger that is due at `now`.

        A segment is deleted only if its mark is at least `grace` old and its day older than `keep` (microseconds). The
        ledger `history` is kept: it is small, and the trees of later events cannot be computed without it.
        """
        if book is Ledger.HISTORY:
            return _Step((), (), (), ())
        last_day = day_of(now - keep)
        old = _prefix(files, last_day)
        marks = tuple(mark for mark in self._expiry.marks.get(book, ()) if not self._promises(book, mark.upto))
        marked = max((mark.upto for mark in marks), default=-1)
        due = max((mark.upto for mark in marks if mark.at <= now - grace), default=-1)
        due = min(due, old[-1].upto if old else -1)
        expired = [place for place in old if place.upto > marked]
        left = tuple(mark for mark in marks if mark.upto > due)
        return _Step(
            expired=expired,
            removed=[place for place in files.both if place.upto <= due and place.day < last_day],
            unfinished=[place for place in files.unfinished if place.upto <= due],
            kept=(*left, Mark(upto=expired[-1].upto, at=now)) if expired else left,
        )

    def _promises(self, book: Ledger, upto: int) -> bool:
        """Return whether the node's state promises any row with a number up to `upto`, so that readers rely on the
        row."""
        reach = self._state.segments.get(book) if self._state is not None else None
        return reach is not None and reach.after < min(upto, reach.upto)

    def retain(self, books: Mapping[Ledger, LedgerFiles], now: int, keep: int, grace: int) -> Iterator[Done]:
        """Mark and delete the due segments of each ledger, and yield each result; `books` loses the deleted ones."""
        for book, files in sorted(books.items()):
            step = self.plan(book, files, now, keep, grace)
            if step.expired:
                self._withdraw(book, step.expired[-1].upto)
                yield Done(expired=len(step.expired))
            self._storage.delete(place.data for place in step.unfinished)
            if step.removed:
                remove_segments(self._storage, step.removed)
                for place in step.removed:
                    (files.archive if place.tree == ARCHIVE else files.landing).remove(place)
                yield Done(removed=len(step.removed))
            self._note(book, step.kept)

    def _withdraw(self, book: Ledger, upto: int) -> None:
        """Rewrite the node's state so that it promises no row with a number up to `upto`.

        The state is read again first, because the node may have rewritten it.
        """
        if self._state is None:
            return
        self._state = read_state(self._storage, self._state.node, self._epoch)
        if self._state is None or not self._promises(book, upto):
            return
        reach = self._state.segments[book]
        kept = SegmentRange(after=min(upto, reach.upto), upto=reach.upto)
        self._state = msgspec.structs.replace(self._state, segments={**self._state.segments, book: kept})
        write_state(self._storage, self._state)

    def _note(self, book: Ledger, marks: tuple[Mark, ...]) -> None:
        if self._expiry.marks.get(book, ()) != marks:
            self._expiry = Expiry(marks={**self._expiry.marks, book: marks})
            write_expiry(self._storage, self._slug, self._epoch, self._expiry)


def _forget_epochs(
    storage: Storage,
    states: Mapping[tuple[str, str], NodeState],
    ledgers: Mapping[LedgerSlug, LedgerFiles],
    before: int,
) -> Iterator[Done]:
    """Delete the files of each epoch that has no segments and whose state was last written before `before`.

    They are the state, its marks, and the lines of its tree of files. Whole days are compared; `before` is in
    microseconds. The state of a node's latest epoch stays.
    """
    newest = {slug: max(s.began_at for (other, _), s in states.items() if other == slug) for slug, _ in states}
    for (node, epoch), state in states.items():
        is_empty = not any(files.both for key, files in ledgers.items() if key[:2] == (node, epoch))
        if is_empty and day_of(state.as_of) < day_of(before) and state.began_at < newest[node]:
            lines = [one.path for one in storage.list(f"{TREES}/{node}/{epoch}")]
            storage.delete([state_path(state.node, epoch), expiry_path(node, epoch), *lines])
            yield Done(removed=1)


def _prefix(files: LedgerFiles, day: str) -> list[SegmentName]:
    """Return the segments, selected without overlaps and in order, that precede the first segment of `day` or a later
    day."""
    old = []
    for place in choose(files.both):
        if place.day >= day:
            break
        old.append(place)
    return old


def _read_states(storage: Storage, names: Collection[str]) -> dict[tuple[str, str], NodeState]:
    found = {(file.slug, file.epoch): file.state for file in state_files(storage) if file.slug in names}
    return {key: state for key, state in found.items() if isinstance(state, NodeState)}
