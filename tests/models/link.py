"""A link: one sender, one receiver, and the batches between them.

The rules are the product's own: `compare_mark` and `RangeStart` decide how a range begins, `follow` moves the mark, and
`MarkQueries` decides whether a batch continues an unknown link. The model adds the rest: up to three batches under way,
answers that are lost, batches that arrive late or twice, crashes, restores of either side, new epochs, evictions, and a
receiver that speaks v1 at first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, Final, NamedTuple

from eventd.egress.loop.sink import Blocked, Rewind
from eventd.egress.peers.range_start import RangeStart, compare_mark
from eventd.ingress.mark_queries import LinkForgotten, MarkQueries
from eventd.log.core.values import Head
from eventd.log.cursors.cursors import Cursor
from eventd.runtime.clock import SECOND
from eventd.testing import ManualClock
from federation.ranges import Mark, Range, RangeAhead, follow
from federation.wire import BatchHeader
from tests.models.explorer import Broken, Label

WINDOW: Final = 3
CLOSED, ASKED, OPEN, OPEN_V1 = range(4)
PENDING, STORED, AHEAD, FORGOTTEN = "pending", "stored", "ahead", "forgotten"

ONCE = "an event is stored once (V5)"
EVERYWHERE = "at rest the receiver holds every event of the sender's log (V4)"
COVERED = "everything below the mark is stored, or in a reported gap (V8)"
MONOTONE = "the mark never falls within an epoch (V8)"
ORDER = "events are stored in the order of the sender's log (V6)"
TOLD = "what retention took from the receiver is reported (V10)"
REAL = "a gap is reported only for evicted events (V10)"
CURSOR = "the cursor moves back only by a rewind (T4)"
CONTIGUOUS = "each settled range begins where the last one ended (V8)"


class Batch(NamedTuple):
    """A batch under way. `live`: the attempt that sent it still waits for the answer."""

    live: bool
    epoch: int
    after: int
    upto: int
    lost: int | None
    ids: tuple[int, ...]
    kind: str = "range"


class Flight(NamedTuple):
    """A batch as its sender sees it. `answer`: what has come back; `mark` is the position in an answer `AHEAD`."""

    after: int
    upto: int
    ids: tuple[int, ...]
    answer: str = PENDING
    mark: int = 0


class Sender(NamedTuple):
    """The sender: first what is stored, from `phase` on what a crash takes."""

    log: tuple[int, ...] = ()
    epoch: int = 1
    cursor: int = 0
    sent: int = 0
    sent_epoch: int = 0
    rewound: int | None = None
    floor: int = 0
    lost: int = 0
    v2: bool = False
    phase: int = CLOSED
    answer: tuple[int, int, int] | None = None
    begin: RangeStart = RangeStart()
    scanned: int = 0
    launched: int = 0
    primed: bool = False
    flying: tuple[Flight, ...] = ()
    doubt: bool = False


class Receiver(NamedTuple):
    """The receiver: `mark` is (epoch, base, upto); from `asked` on what a crash takes."""

    store: tuple[int, ...] = ()
    mark: tuple[int, int, int] | None = None
    gaps: frozenset[tuple[int, int, int]] = frozenset()
    v1: bool = False
    asked: bool = False
    passed: tuple[int, int] | None = None


class Left(NamedTuple):
    """How often each fault may still happen."""

    crashes: int
    restores_sender: int
    restores_receiver: int
    epochs: int
    twice: int
    late: int
    evictions: int
    repairs: int


class Link(NamedTuple):
    """A state of the model. `copies` are the backups of the sender and the receiver."""

    sender: Sender
    receiver: Receiver
    net: frozenset[Batch]
    left: Left
    next_id: int = 0
    next_epoch: int = 2
    copies: tuple[Sender | None, Receiver | None] = (None, None)


@lru_cache(1 << 16)
def _compare(
    mark: tuple[int, int, int] | None, sent_epoch: int, sent: int, rewound: int | None, at: tuple[int, int, int, int]
) -> RangeStart | tuple[int, int] | None:
    """Return what the product makes of a mark: how ranges begin, a rewind as (position, epoch), or None if blocked."""
    cursor, epoch, last, gap_end = at
    row = Cursor("peer", "peer", 1, cursor, sent_upto=sent, sent_epoch=_name(sent_epoch), rewound_from=rewound)
    head = Head(last + 1, _name(epoch), 0, 0, 0, 0, "")
    try:
        return compare_mark("b", _mark(mark), row, head, gap_end)
    except Rewind as back:
        return back.to, int(back.epoch or 0)
    except Blocked:
        return None


def _name(epoch: int) -> str:
    return str(epoch) if epoch else ""


def _mark(mark: tuple[int, int, int] | None) -> Mark | None:
    return None if mark is None else Mark(epoch=_name(mark[0]), incarnation=0, base=mark[1], upto=mark[2])


@lru_cache(1 << 16)
def _follow(
    mark: tuple[int, int, int] | None, epoch: int, after: int, upto: int, lost: int | None, repair: bool
) -> tuple[tuple[int, int, int] | None, tuple[int, int] | None] | None:
    """Return the new mark and the gap, as the product decides; None if the batch begins beyond the mark."""
    try:
        step = follow(_mark(mark), _range(epoch, after, upto, lost, repair))
    except RangeAhead:
        return None
    made = step.mark
    return None if made is None else (int(made.epoch), made.base, made.upto), step.gap


def _range(epoch: int, after: int, upto: int, lost: int | None = None, repair: bool = False) -> Range:
    return Range(epoch=_name(epoch), after=0 if repair else after, upto=0 if repair else upto, lost=lost, repair=repair)


_CLOCK: Final = ManualClock()
_ASKED_AT: Final = _CLOCK.now() // SECOND + 1
_ASKED: Final = MarkQueries(_CLOCK)
_ASKED.remember("a", _ASKED_AT, ["a"])
_NOT_ASKED: Final = MarkQueries(_CLOCK)
_BATCH_ID: Final = "01890a5d-ac96-774b-bcce-b302099a8057"


@lru_cache(1 << 16)
def _continues(asked: bool, later: bool, epoch: int, after: int, mark: tuple[int, int, int] | None) -> bool:
    """Return whether the product lets a batch continue a link that is not remembered.

    `asked`: the sender has asked for its mark since the receiver has started; `later`: the batch was signed after that.
    """
    header = BatchHeader(from_node="a", to_node="b", group="g", batch_id=_BATCH_ID, range=_range(epoch, after, after))
    try:
        (_ASKED if asked else _NOT_ASKED).require(header, _ASKED_AT if later else _ASKED_AT - 1, _mark(mark))
    except LinkForgotten:
        return False
    return True


@dataclass
class LinkModel:
    """The model of a link. `bug` names a seeded fault; `v1`: the receiver speaks only v1 at first.

    `any_page`: a batch may end anywhere; otherwise only after one event, or at the end of the log. `window`: how many
    batches may be under way at the same time. `queries`: the receiver's own queries come at any time, and each makes
    the sender compare marks again.
    """

    events: int = 2
    crashes: int = 1
    restores_sender: int = 0
    restores_receiver: int = 1
    epochs: int = 1
    twice: int = 1
    late: int = 1
    evictions: int = 0
    repairs: int = 0
    v1: bool = False
    any_page: bool = False
    window: int = WINDOW
    queries: bool = False
    bug: str = ""
    name: str = "link"

    def start(self) -> Link:
        left = Left(
            self.crashes,
            self.restores_sender,
            self.restores_receiver,
            self.epochs,
            self.twice,
            self.late,
            self.evictions,
            self.repairs,
        )
        return Link(Sender(), Receiver(v1=self.v1), frozenset(), left)

    # --- steps ------------------------------------------------------------------------------------------------

    def steps(self, state: Link) -> Iterator[tuple[Label, Any]]:
        sender = state.sender
        if state.next_id < self.events:
            log = (*sender.log, state.next_id)
            yield ("emit",), state._replace(sender=sender._replace(log=log), next_id=state.next_id + 1)
        yield from self._sending(state)
        for batch in state.net:
            yield from self._arrival(state, batch)
        if sender.flying:
            yield from self._answers(state)
        yield from self._faults(state)
        yield from self._rare(state)

    def _sending(self, state: Link) -> Iterator[tuple[Label, Any]]:
        sender, receiver = state.sender, state.receiver
        if sender.phase == CLOSED:
            if not receiver.v1:
                asked = receiver._replace(asked=True)
                waits = sender._replace(phase=ASKED, answer=receiver.mark, doubt=False)
                yield ("ask",), state._replace(sender=waits, receiver=asked)
            elif not sender.v2:
                opened = sender._replace(phase=OPEN_V1, scanned=sender.cursor, launched=sender.cursor, doubt=False)
                yield ("open over v1",), state._replace(sender=opened)
        elif sender.phase == ASKED:
            yield from self._open(state)
            yield ("hear nothing",), self._end(state)
        elif sender.doubt and not sender.flying:
            yield ("reopen",), self._end(state)
        if sender.phase in (OPEN, OPEN_V1):
            if self.queries and not sender.doubt:
                yield ("hear a query",), state._replace(sender=sender._replace(doubt=True))
            yield from self._launch(state)
            if not sender.flying and sender.scanned > sender.cursor:
                yield ("pass", sender.scanned), state._replace(sender=sender._replace(cursor=sender.scanned))

    def _open(self, state: Link) -> Iterator[tuple[Label, Any]]:
        sender = state.sender
        gap_end = sender.floor if sender.floor > sender.cursor else 0
        sent_epoch = sender.sent_epoch
        if self.bug == "a confirmation counts only in the present epoch" and sent_epoch != sender.epoch:
            sent_epoch = 0
        at = (sender.cursor, sender.epoch, len(sender.log), gap_end)
        found = _compare(sender.answer, sent_epoch, sender.sent, sender.rewound, at)
        if self.bug == "the mark is not compared when the link is opened" and type(found) is not RangeStart:
            found = RangeStart(sender.answer is None)
        if found is None:
            yield ("blocked",), self._end(state)
        elif type(found) is RangeStart:
            at_cursor = sender._replace(
                phase=OPEN, answer=None, begin=found, scanned=sender.cursor, launched=sender.cursor, v2=True
            )
            yield ("open",), state._replace(sender=at_cursor)
        else:
            yield from self._rewind(state, *found)

    def _rewind(self, state: Link, to: int, epoch: int) -> Iterator[tuple[Label, Any]]:
        sender = state.sender
        if to >= sender.cursor:
            yield ("out of step",), self._end(state)
            return
        sent = sender.sent if self.bug == "a rewind keeps what was sent" else to
        sent_epoch = sender.sent_epoch if self.bug == "a rewind keeps what was sent" else epoch
        back = sender._replace(cursor=to, sent=sent, sent_epoch=sent_epoch, rewound=sender.cursor)
        yield ("rewind", to), self._end(state._replace(sender=back))

    def _launch(self, state: Link) -> Iterator[tuple[Label, Any]]:
        sender, last = state.sender, len(state.sender.log)
        v1 = sender.phase == OPEN_V1
        window = self.window if sender.primed and not v1 else 1
        if sender.scanned >= last or len(sender.flying) >= window:
            return
        first = max(sender.scanned, sender.floor)
        gap_end = sender.floor if sender.floor > sender.scanned else 0
        gone = sender.lost if sender.lost > sender.scanned else 0
        ends = range(min(first + 1, last), last + 1)
        for upto in ends if self.any_page else {ends[0], last}:
            ids = sender.log[first:upto]
            if not ids and (v1 or not sender.begin.must_report(gap_end, sender.launched, gone, upto)):
                yield ("skip", upto), state._replace(sender=sender._replace(scanned=upto))
                continue
            after, lost = (sender.launched, None) if v1 else sender.begin.begin(sender.launched, gap_end, gone)
            if self.bug == "a loss is left out of the range":
                lost = None
            if lost is not None and after > sender.floor:
                yield ("send", after, upto), Broken(REAL)
                continue
            batch = Batch(True, sender.epoch, after, upto, lost, ids, "v1" if v1 else "range")
            flying = (*sender.flying, Flight(after, upto, ids))
            moved = sender._replace(scanned=upto, launched=upto, flying=flying)
            yield ("send", after, upto), state._replace(sender=moved, net=state.net | {batch})

    def _arrival(self, state: Link, batch: Batch) -> Iterator[tuple[Label, Any]]:
        receiver, left = state.receiver, state.left
        if receiver.v1 and batch.kind != "v1":
            return
        label = ("store" if batch.kind != "repair" else "store repair", batch.after, batch.upto)
        rest = state._replace(net=state.net - {batch})
        for made, answer, mark in self._store(receiver, batch):
            if type(made) is Broken:
                yield label, made
                continue
            name = label if answer == STORED else ("refuse", batch.after, batch.upto)
            if self.bug == "the mark moves in a transaction of its own" and answer == STORED and left.crashes:
                torn = receiver._replace(mark=made.mark, asked=False, passed=None)
                lame = rest._replace(receiver=torn, left=left._replace(crashes=left.crashes - 1))
                yield ("crash the receiver while it stores",), lame._replace(sender=lame.sender._replace(doubt=True))
            after = rest._replace(receiver=made, sender=_answered(state.sender, batch, answer, mark))
            yield name, after
            if left.twice and answer == STORED:
                again = after._replace(net=after.net | {batch})
                yield (*name, "and once more"), again._replace(left=left._replace(twice=left.twice - 1))

    def _store(self, receiver: Receiver, batch: Batch) -> Iterator[tuple[Any, str, int]]:
        """Yield the receiver after a batch, the answer, and the position in the answer."""
        mark, passed = receiver.mark, receiver.passed
        repair = batch.kind == "repair"
        if batch.kind == "range":
            known = passed is not None and passed[0] == batch.epoch
            if not known:
                require = self.bug != "a batch continues a link without a query for its mark"
                later = batch.live or self.bug == "a batch from before the query continues a link"
                if require and not _continues(receiver.asked, later, batch.epoch, batch.after, mark):
                    yield receiver, FORGOTTEN, 0
                    return
                passed = (batch.epoch, mark[2]) if mark is not None and mark[0] == batch.epoch else None
            upto = passed[1] if passed is not None and passed[0] == batch.epoch else None
            if upto is None or batch.after <= upto:
                passed = (batch.epoch, max(batch.upto, upto or 0))
        new = tuple(each for each in batch.ids if each not in receiver.store)
        if self.bug == "known ids are not looked up":
            new = batch.ids
        if batch.kind == "v1":
            yield receiver._replace(store=receiver.store + new), STORED, 0
            return
        moved = _follow(mark, batch.epoch, batch.after, batch.upto, batch.lost, repair)
        if moved is None and self.bug == "a batch beyond the mark is stored" and mark is not None:
            moved = ((batch.epoch, mark[1], batch.upto), None)
        if moved is None:
            yield receiver._replace(passed=None), AHEAD, 0 if mark is None else mark[2]
            return
        made, gap = moved
        if repair and self.bug == "a repair moves the mark":
            made = (batch.epoch, 0, max(batch.upto, made[2] if made else 0))
        if mark is not None and made is not None and made[0] == mark[0] and made[2] < mark[2]:
            yield Broken(MONOTONE), STORED, 0
        gaps = receiver.gaps | {(batch.epoch, *gap)} if gap is not None else receiver.gaps
        stored = receiver._replace(store=receiver.store + new, mark=made, gaps=gaps, passed=passed)
        yield stored, STORED, 0

    def _answers(self, state: Link) -> Iterator[tuple[Label, Any]]:
        sender = state.sender
        first = sender.flying[0]
        if first.answer == STORED:
            yield self._settle(state, first, sender.flying[1:])
        elif first.answer == AHEAD:
            yield from self._rewind(state, first.mark, sender.epoch)
        if self.bug == "batches are settled as they are answered":
            for later in sender.flying[1:]:
                if later.answer == STORED:
                    yield self._settle(state, later, tuple(each for each in sender.flying if each != later))
        if self.bug == "a time-out counts as an answer" and first.answer == PENDING:
            yield self._settle(state, first, sender.flying[1:])
        yield ("give up",), self._end(state)

    def _settle(self, state: Link, flight: Flight, others: tuple[Flight, ...]) -> tuple[Label, Any]:
        sender = state.sender
        if flight.upto < sender.cursor:
            if self.bug == "batches are settled as they are answered":
                return ("settle", flight.upto), state._replace(sender=sender._replace(flying=others))
            return ("settle", flight.upto), Broken(CURSOR)
        if flight.after > max(sender.cursor, sender.floor):
            return ("settle", flight.upto), Broken(CONTIGUOUS)
        done = sender._replace(
            cursor=flight.upto,
            sent=max(sender.sent, flight.upto),
            sent_epoch=sender.epoch,
            primed=sender.phase == OPEN,
            begin=sender.begin._replace(fresh=False),
            flying=others,
        )
        return ("settle", flight.upto), state._replace(sender=done)

    # --- faults -----------------------------------------------------------------------------------------------

    def _end(self, state: Link) -> Link:
        """End the sender's attempt: nothing waits for answers any more. At most one batch stays on its way."""
        return state._replace(sender=_stored(state.sender)._replace(doubt=state.sender.doubt), net=_late(state))

    def _faults(self, state: Link) -> Iterator[tuple[Label, Any]]:
        sender, receiver, left = state.sender, state.receiver, state.left
        if left.crashes:
            fewer = left._replace(crashes=left.crashes - 1)
            yield (
                ("crash the sender",),
                state._replace(sender=_stored(sender)._replace(doubt=sender.doubt), net=_late(state), left=fewer),
            )
            yield ("crash the receiver",), self._restarted(state._replace(left=fewer), receiver)
            if receiver.v1:
                yield (
                    ("upgrade the receiver",),
                    self._restarted(state._replace(left=fewer), receiver._replace(v1=False)),
                )
        if left.epochs:
            renewed = _stored(sender)._replace(epoch=state.next_epoch, doubt=sender.doubt)
            fewer = left._replace(epochs=left.epochs - 1)
            yield (
                ("begin a new epoch",),
                state._replace(sender=renewed, net=_late(state), next_epoch=state.next_epoch + 1, left=fewer),
            )
        yield from self._restores(state)

    def _restores(self, state: Link) -> Iterator[tuple[Label, Any]]:
        sender, receiver, left = state.sender, state.receiver, state.left
        copy, other = state.copies
        if left.restores_sender:
            if copy is None:
                yield ("back up the sender",), state._replace(copies=(_stored(sender), other))
            else:
                keeps = self.bug == "a restored sender keeps its epoch"
                old = copy if keeps else copy._replace(epoch=state.next_epoch)
                fewer = left._replace(restores_sender=left.restores_sender - 1)
                back = state._replace(sender=old, net=_late(state), left=fewer, copies=(None, other))
                yield ("restore the sender",), back._replace(next_epoch=state.next_epoch + 1)
        if left.restores_receiver:
            if other is None:
                kept = receiver._replace(asked=False, passed=None)
                yield ("back up the receiver",), state._replace(copies=(copy, kept))
            else:
                fewer = left._replace(restores_receiver=left.restores_receiver - 1)
                older = other._replace(v1=receiver.v1)
                yield ("restore the receiver",), self._restarted(state._replace(left=fewer, copies=(copy, None)), older)

    def _restarted(self, state: Link, receiver: Receiver) -> Link:
        """Start the receiver: its own first query shows the sender that it has started."""
        doubt = self.bug != "the start of a peer is ignored"
        fresh = receiver._replace(asked=False, passed=None)
        return state._replace(receiver=fresh, sender=state.sender._replace(doubt=doubt or state.sender.doubt))

    def _rare(self, state: Link) -> Iterator[tuple[Label, Any]]:
        sender, left = state.sender, state.left
        if left.evictions and sender.floor < len(sender.log):
            at = sender.floor + 1
            evicted = sender._replace(floor=at, lost=at if sender.cursor < at else sender.lost)
            yield ("evict", at), state._replace(sender=evicted, left=left._replace(evictions=left.evictions - 1))
        if left.repairs and sender.phase == OPEN and sender.cursor > sender.floor:
            for at in range(sender.floor + 1, sender.cursor + 1):
                batch = Batch(False, sender.epoch, at - 1, at, None, sender.log[at - 1 : at], "repair")
                fewer = left._replace(repairs=left.repairs - 1)
                yield ("repair", at), state._replace(net=state.net | {batch}, left=fewer)

    # --- invariants -------------------------------------------------------------------------------------------

    def broken(self, state: Link) -> str:
        sender, receiver = state.sender, state.receiver
        store, mark = receiver.store, receiver.mark
        if len(set(store)) != len(store):
            return ONCE
        if mark is not None and mark[0] == sender.epoch:
            gaps = [(after, upto) for epoch, after, upto in receiver.gaps if epoch == mark[0]]
            told = {at for after, upto in gaps for at in range(after + 1, upto + 1)}
            for at in range(mark[1] + 1, min(mark[2], len(sender.log)) + 1):
                if sender.log[at - 1] not in store and at not in told:
                    return COVERED
        if not (self.evictions or self.repairs or self.v1):
            own = [each for each in store if each in sender.log]
            if any(one > two for one, two in pairwise(own)):
                return ORDER
        if self.rests(state):
            return self._missing(state)
        return ""

    def _missing(self, state: Link) -> str:
        sender, receiver = state.sender, state.receiver
        if receiver.v1 and self.restores_receiver:
            return ""  # a receiver without marks cannot say what it lost
        _, base, upto = receiver.mark or (0, 0, 0)
        told = {at for _, first, last in receiver.gaps for at in range(first + 1, last + 1)}
        for at, each in enumerate(sender.log, 1):
            if each in receiver.store:
                continue
            if at > sender.floor:
                return EVERYWHERE
            if base < at <= upto and at not in told:
                return TOLD
        return ""

    def rests(self, state: Link) -> bool:
        sender = state.sender
        is_open = sender.phase in (OPEN, OPEN_V1) and not sender.flying and not sender.doubt
        return is_open and sender.cursor == len(sender.log)

    def words(self, label: Label) -> str:
        return say(label)


def _stored(sender: Sender) -> Sender:
    """Return what of a sender survives a crash."""
    return Sender(*sender[: Sender._fields.index("phase")])


def _late(state: Link) -> frozenset[Batch]:
    """Return the batches that are still on their way after their attempt has ended: the newest ones, within bounds."""
    late = {batch._replace(live=False) for batch in state.net}
    return frozenset(sorted(late, key=lambda batch: (batch.epoch, batch.upto, batch.after))[-state.left.late :])


def _answered(sender: Sender, batch: Batch, answer: str, mark: int) -> Sender:
    """Return the sender with the answer to a batch on its way; an attempt that has ended gets none."""
    if not batch.live or batch.kind == "repair":
        return sender
    flying = tuple(
        flight._replace(answer=answer, mark=mark)
        if flight.answer == PENDING and (flight.after, flight.upto, flight.ids) == (batch.after, batch.upto, batch.ids)
        else flight
        for flight in sender.flying
    )
    return sender._replace(flying=flying)


_WORDS: Final[dict[str, Callable[..., str]]] = {
    "emit": lambda: "the sender stores an event",
    "ask": lambda: "the sender asks for its mark",
    "hear a query": lambda: "the receiver asks for its own mark, as after a start",
    "hear nothing": lambda: "the answer to the sender's query is lost",
    "open": lambda: "the sender opens the link",
    "open over v1": lambda: "the sender opens the link over v1",
    "reopen": lambda: "the sender compares marks again, because the receiver has started",
    "pass": lambda upto: f"the sender stores that its cursor has passed {upto}",
    "skip": lambda upto: f"the sender reads up to {upto} and has nothing to send",
    "blocked": lambda: "the link is blocked: the receiver claims more than there is",
    "out of step": lambda: "the sender waits: what the receiver lacks may be under way",
    "rewind": lambda to: f"the sender moves its cursor back to {to}",
    "send": lambda after, upto: f"the sender sends the batch ({after}, {upto}]",
    "store": lambda after, upto, *more: " ".join([f"the receiver stores the batch ({after}, {upto}]", *more]),
    "store repair": lambda after, upto, *more: " ".join([f"the receiver stores a repair of {upto}", *more]),
    "refuse": lambda after, upto: f"the receiver refuses the batch ({after}, {upto}]",
    "settle": lambda upto: f"the sender settles its cursor at {upto}",
    "give up": lambda: "the sender gives up its attempt",
    "evict": lambda at: f"retention evicts the sender's event {at}",
    "repair": lambda at: f"the sender repairs its event {at}",
}


def say(label: Label) -> str:
    """Return a step of a link as a sentence."""
    name, *arguments = label
    found = _WORDS.get(name)
    return found(*arguments) if found else name
