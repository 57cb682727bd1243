"""Finds ledgers whose end was removed: they end earlier than they did before, and the node's state was lowered to
match.

Two things show this. An earlier audit with the same output saw a longer ledger. Or other rows (of `inbound` at its
peers, or its own receipts) name a position of the node's log that its ledger `events` must include, because they are
from a time up to which the node says that everything is shipped.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from eventd.audit.coverage.coverage import BlindSpot, Coverage
from eventd.audit.coverage.holes import LATEST
from eventd.audit.report.findings import Finding, rolled_back
from eventd.audit.segments.ledger_summaries import LedgerSummary
from eventd.audit.segments.plan import NodeEpoch, declared_gaps, states_by_node
from eventd.lake.layout import LedgerSlug
from eventd.lake.losses import parse_loss
from eventd.lake.manifest import NodeState, Number, Time
from eventd.lake.reader import Survey, TroubleKind
from eventd.lake.schema import Ledger
from eventd.text.plural import counted
from federation.event import format_time


class Promise(msgspec.Struct, frozen=True):
    """What the state of a node and epoch promised to an audit: the log's last position, and the end of each ledger.

    `at` is when the state was written (microseconds).
    """

    node: str
    epoch: str
    head: Number
    ends: dict[str, Number]
    at: Time


class DeletedRange(msgspec.Struct, frozen=True, array_like=True):
    """Rows with numbers in (after, upto] that were deleted from a ledger before retention may delete them.

    It was noticed at `at` (microseconds).
    """

    ledger: LedgerSlug
    after: Number
    upto: Number
    at: Time


class Rollback(NamedTuple):
    """The numbers in (after, upto] of a ledger, which are not in the lake, and the proof that they should be."""

    book: Ledger
    after: int
    upto: int
    proof: str

    @property
    def rows(self) -> int:
        """Return how many rows of `events` these may have been."""
        return self.upto - self.after if self.book is Ledger.EVENTS else 0


@dataclass
class Rollbacks:
    """The ledgers of a lake whose end was removed, by node and epoch.

    `lost`: of each epoch whose state an earlier audit saw and that is no longer in the lake, the last promise.
    """

    found: dict[NodeEpoch, list[Rollback]] = field(default_factory=lambda: defaultdict(list))
    lost: list[Promise] = field(default_factory=list)

    def findings(self) -> Iterator[Finding]:
        """Yield a finding for each node and epoch."""
        for owner, each in sorted(self.found.items()):
            book = min((one.book for one in each), key=list(Ledger).index)
            mine = [one for one in each if one.book is book]
            texts = dict.fromkeys(f"{one.book} ends at {one.after:,}: {one.proof}" for one in each)
            after, upto = min(one.after for one in mine), max(one.upto for one in mine)
            yield rolled_back(owner.node, after, upto, "; ".join(texts))
        for promise in self.lost:
            text = (
                f"the state of epoch {promise.epoch}, which an earlier audit saw ({format_time(promise.at)}), is gone"
            )
            yield rolled_back(promise.node, 0, max(promise.ends.values(), default=0), text)

    @property
    def rows(self) -> Counter[str]:
        """Return, by node, how many rows of `events` are gone, at most."""
        found: Counter[str] = Counter()
        for owner, each in self.found.items():
            found[owner.node] += max(one.rows for one in each)
        return found


def promises_of(survey: Survey, before: Iterable[Promise]) -> list[Promise]:
    """Return the highest promise of each state, from this survey and from `before`, the promises of earlier audits.

    Promises of an old epoch whose state was deleted with its last segment are forgotten.
    """
    states = {NodeEpoch(state.node, state.epoch) for state in survey.nodes}
    remembered = {NodeEpoch(one.node, one.epoch): one for one in before}
    found = {owner: one for owner, one in remembered.items() if owner in states or not _is_past(survey, one)}
    for state in survey.nodes:
        owner = NodeEpoch(state.node, state.epoch)
        ends = {book.value: reach.upto for book, reach in state.segments.items()}
        known = found.get(owner)
        if known is None:
            found[owner] = Promise(*owner, state.head, ends, state.as_of)
            continue
        most = {book: max(ends.get(book, 0), known.ends.get(book, 0)) for book in sorted({*ends, *known.ends})}
        higher = most != known.ends or state.head > known.head
        at = state.as_of if higher else known.at
        found[owner] = Promise(*owner, max(state.head, known.head), most, at)
    return [found[owner] for owner in sorted(found)]


def find_rollbacks(
    survey: Survey,
    before: Iterable[Promise],
    summaries: Mapping[NodeEpoch, Sequence[LedgerSummary]],
    coverage: Coverage,
) -> Rollbacks:
    """Return the rollbacks of a lake.

    `before`: the promises that earlier audits saw. `summaries`: those of the small ledgers.
    """
    made = Rollbacks()
    states = {NodeEpoch(state.node, state.epoch): state for state in survey.nodes}
    ends = _ends(survey)
    losses = _last_losses(survey, summaries)
    for promise in before:
        _compare(made, promise, states, survey)
    for owner, state in states.items():
        if not state.complete_until or owner.node in coverage.contested:
            continue
        reach = _end_of(state, Ledger.EVENTS)
        if state.head > reach:
            proof = f"the same state says that the log had reached position {state.head:,}"
            made.found[owner].append(Rollback(Ledger.EVENTS, reach, state.head, proof))
        proofs = [*_named_positions(owner, state, reach, summaries, coverage)]
        end = ends[owner.node, Ledger.EVENTS]
        if losses.get(owner, -1) < end:  # else these may have been the events that the node lost
            proofs += _stored_events(state, reach, end, summaries.get(owner, ()), coverage)
        made.found[owner] += [Rollback(Ledger.EVENTS, reach, upto, proof) for upto, proof in proofs]
    made.found = {owner: each for owner, each in made.found.items() if each}
    return made


def add_unknown_batches(
    made: Rollbacks, questioned: Iterable[dict[str, Any]], survey: Survey, coverage: Coverage
) -> list[dict[str, Any]]:
    """Add the ledgers `inbound` and `events` that end before batches which receipts prove; return the other receipts.

    `questioned`: rows of `questioned_receipts`. A receipt that counts no event proves nothing about the peer, and one
    that counts no new event nothing about its `events`.
    """
    states = {states[-1].node: states[-1] for states in states_by_node(survey)}
    ends = _ends(survey)
    rest: list[dict[str, Any]] = []
    late: defaultdict[tuple[str, Ledger], list[dict[str, Any]]] = defaultdict(list)
    for row in questioned:
        peer = row["peer"]
        times = coverage.peer_times(row["source"], peer, (row["first"], row["last"]))
        later = [
            book
            for book in (Ledger.INBOUND, *([Ledger.EVENTS] if row["new"] else ()))
            if times[0] > ends[peer, book] and coverage.covers(peer, book, 0, times)
        ]
        if not row["n"] or not row["lacking"] or Ledger.INBOUND not in later:
            rest.append(row)
            continue
        for book in later:
            late[peer, book].append(row)
    for (peer, book), rows in late.items():
        state = states[peer]
        reach = state.segments.get(book)
        after, counts = 0 if reach is None else reach.upto, "new" if book is Ledger.EVENTS else "n"
        lost = sum(row[counts] for row in rows)
        senders = ", ".join(sorted({row["source"] for row in rows}))
        batches = counted(len(rows), "later batch", "later batches")
        proof = f"receipts that {senders} keeps count {batches} with {counted(lost, 'event')}"
        upto = after + (lost if book is Ledger.EVENTS else len(rows))
        owner = NodeEpoch(state.node, state.epoch)
        made.found.setdefault(owner, []).append(Rollback(book, after, upto, proof))
    return rest


def add_uneven_batches(made: Rollbacks, uneven: Iterable[Mapping[str, Any]], survey: Survey) -> None:
    """Add the ledgers `deliveries` that end before the batches of the node's own receipts.

    `uneven`: rows of `uneven_batches`. Both ledgers number batches alike, and both are shipped up to the
    time that the state names.
    """
    states = {NodeEpoch(state.node, state.epoch): state for state in survey.nodes}
    late: defaultdict[NodeEpoch, list[int]] = defaultdict(list)
    for row in uneven:
        state = states.get(NodeEpoch(row["source"], row["type"]))
        if state is None or row["carried"] or not row["answered"]:
            continue
        if row["number"] > _end_of(state, Ledger.DELIVERIES) and row["last"] < min(state.complete_until, state.as_of):
            late[NodeEpoch(state.node, state.epoch)].append(row["number"])
    for owner, numbers in late.items():
        after = _end_of(states[owner], Ledger.DELIVERIES)
        proof = f"its own receipts count events of {counted(len(numbers), 'later batch', 'later batches')}"
        made.found.setdefault(owner, []).append(Rollback(Ledger.DELIVERIES, after, max(numbers), proof))


def _end_of(state: NodeState, book: Ledger) -> int:
    """Return the number up to which a state has all rows of a ledger in the lake."""
    reach = state.segments.get(book)  # numbers without rows have no segments
    last = state.books.get(book, 0)
    if book is Ledger.EVENTS:  # a state that is written before all is shipped has the log's end of the one before it
        last = min(last, state.head)
    return max(last, 0 if reach is None else reach.upto)


def _ends(survey: Survey) -> Mapping[tuple[str, Ledger], int]:
    """Return the time of the last row of each node's ledgers, in microseconds; 0 for one without rows."""
    ends: defaultdict[tuple[str, Ledger], int] = defaultdict(int)
    for _, manifest in survey.segments:
        if manifest.times:
            ledger = (manifest.node, manifest.book)
            ends[ledger] = max(manifest.times[1], ends[ledger])
    return ends


def _last_losses(survey: Survey, summaries: Mapping[NodeEpoch, Sequence[LedgerSummary]]) -> Mapping[NodeEpoch, int]:
    """Return when each node last declared a loss of events, in microseconds; nodes without a loss are left out."""
    last: defaultdict[NodeEpoch, int] = defaultdict(int)
    for owner, gap in declared_gaps(survey, summaries):
        loss = parse_loss(gap.reason)
        if loss is not None and loss.book is Ledger.EVENTS:
            last[owner] = max(gap.recorded_at, last[owner])
    return last


def _stored_events(
    state: NodeState, reach: int, end: int, summaries: Iterable[LedgerSummary], coverage: Coverage
) -> Iterator[tuple[int, str]]:
    """Yield a position and the proof if the node's `inbound` ledger shows batches with new events after the last row
    of its `events`.

    An event has the recording time of its batch.
    """
    complete = min(state.complete_until, state.as_of)
    late = [one for summary in summaries for one in summary.stored if end < one.last < complete]
    if late and coverage.covers(state.node, Ledger.EVENTS, 0, (late[-1].last, late[-1].last)):
        events = sum(one.events if one.first > end else 1 for one in late)
        at = format_time(max(one.last for one in late))
        yield reach + events, f"its own answers to batches count at least {counted(events, 'later event')} (until {at})"


def _compare(made: Rollbacks, promise: Promise, states: Mapping[NodeEpoch, NodeState], survey: Survey) -> None:
    """Add the ledgers that end earlier than the promise says."""
    owner = NodeEpoch(promise.node, promise.epoch)
    state = states.get(owner)
    if state is None:
        damaged = any(
            one.kind is TroubleKind.CORRUPT and one.book is None and one.epoch == promise.epoch
            for one in survey.troubles
        )
        # The state of an old epoch is deleted with its last segment; a damaged one is a finding by itself.
        if not (damaged or _is_past(survey, promise)):
            made.lost.append(promise)
        return
    proof = f"an earlier audit saw it end at {{:,}} ({format_time(promise.at)})"
    for book in Ledger:
        reach = state.segments.get(book)
        upto, there = promise.ends.get(book.value, 0), 0 if reach is None else reach.upto
        if there < upto:
            made.found[owner].append(Rollback(book, there, upto, proof.format(upto)))
    if state.head < promise.head and owner not in made.found:
        words = f"an earlier audit saw the log end at {promise.head:,} ({format_time(promise.at)})"
        made.found[owner].append(Rollback(Ledger.EVENTS, state.head, promise.head, words))


def _is_past(survey: Survey, promise: Promise) -> bool:
    """Return whether the node has a later epoch than that of the promise."""
    return any(one.node == promise.node and one.began_at > promise.at for one in survey.nodes)


def _named_positions(
    owner: NodeEpoch,
    state: NodeState,
    reach: int,
    summaries: Mapping[NodeEpoch, Sequence[LedgerSummary]],
    coverage: Coverage,
) -> Iterator[tuple[int, str]]:
    """Yield the highest position beyond `reach` that each ledger names, and the proof.

    A position counts only if it was named so early that the node must have shipped the event since.
    """
    complete = min(state.complete_until, state.as_of)
    for other, each in summaries.items():
        marks = [mark for summary in each for mark in _marks(summary, owner, other)]
        late = [
            (position, at)
            for position, at in marks
            if position > reach and _latest(coverage, other.node, owner.node, at) < complete
        ]
        if late:
            position, at = max(late)
            own = other.node == owner.node
            who = "its own receipts have" if own else f"{other.node} has recorded"
            yield position, f"{who} position {position:,} of its log ({format_time(at)})"


def _marks(summary: LedgerSummary, owner: NodeEpoch, other: NodeEpoch) -> Iterator[tuple[int, int]]:
    """Yield the positions of the owner's log that one ledger names, and when it named them, by its own clock."""
    if other == owner:
        yield from (mark for progress in summary.progress for mark in progress.acknowledged)
    for link in summary.reached:
        if (link.sender, link.epoch) == owner:
            yield from link.marks


def _latest(coverage: Coverage, by: str, node: str, at: int) -> int:
    """Return the latest that a time by one node's clock may be by another's; endless if the clocks are not known."""
    if by == node:
        return at
    if not coverage.plan.clocks.get((by, node)):
        return LATEST
    return coverage.peer_times(by, node, (at, at))[1] + coverage.margin


def add_blind_spots(coverage: Coverage, survey: Survey, rollbacks: Rollbacks) -> None:
    """Add blind spots for ledgers that were rolled back: events recorded after their last row may be missing."""
    ends = _ends(survey)
    for owner, each in rollbacks.found.items():
        for book in dict.fromkeys(one.book for one in each):
            since = ends[owner.node, book]
            why = f"the end of the {book} of {owner.node} was removed"
            coverage.blind_spots[owner.node, book].append(BlindSpot(times=(since, LATEST), why=why))
