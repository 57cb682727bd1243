"""How far books can be relied on. What they do not show proves something only where they would have to show it."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from eventd.audit.engine.plan import Keeper, Plan, histories, told_lost
from eventd.audit.engine.silence import Silence
from eventd.audit.engine.small_ledgers import Facts
from eventd.lake.layout import MINUTE
from eventd.lake.reader import Survey, TroubleKind
from eventd.lake.schema import Book
from eventd.runtime.clock import SECOND

_HOUR = 60 * MINUTE
_ALWAYS = (-(1 << 62), 1 << 62)


class Blind(NamedTuple):
    """Where a book of a node shows nothing: facts of these slots, recorded at these times of the node's clock.

    `positions` in (after, upto] of the node's log narrow it further. `why`: what an operator is told; empty where it
    only says that the lake does not go back for ever.
    """

    slots: tuple[int, int] = _ALWAYS
    times: tuple[int, int] = _ALWAYS
    positions: tuple[int, int] = _ALWAYS
    why: str = ""

    def hides(self, slot: int, times: tuple[int, int], position: int | None) -> bool:
        """Whether a fact of this slot, recorded between two times, may be hidden there."""
        return (
            self.slots[0] <= slot <= self.slots[1]
            and self.times[0] <= times[1]
            and times[0] <= self.times[1]
            and (position is None or self.positions[0] < position <= self.positions[1])
        )


@dataclass
class Sight:
    """What of every node's books is in the lake. `until` is by the clock of the node.

    `asked`: from which time on events are looked at. `silences`: the nodes whose ledgers end too early.
    """

    plan: Plan
    until: dict[str, int] = field(default_factory=dict)
    blinds: dict[tuple[str, Book], list[Blind]] = field(default_factory=lambda: defaultdict(list))
    contested: set[str] = field(default_factory=set)
    asked: int = _ALWAYS[0]
    silences: Mapping[str, Silence] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)

    def keeps(self, node: str) -> bool:
        """Whether the node has books in the lake at all."""
        return node in self.until

    def ends_before(self, node: str) -> bool:
        """Whether the books of the node end before the time that was asked for, which is not told otherwise."""
        # A node that is out of service has nothing to tell of a time at which others were at work.
        is_past = node in self.closed and max(self.until.values()) > self.asked
        return self.until[node] <= self.asked and node not in self.silences and not is_past

    def sees(self, node: str, book: Book, slot: int, times: tuple[int, int], *, position: int | None = None) -> bool:
        """Whether a fact of the slot that the node recorded between two times of its clock would be known."""
        if not self.keeps(node) or node in self.contested or times[1] >= self.until[node]:
            return False
        return not any(blind.hides(slot, times, position) for blind in self.blinds.get((node, book), ()))

    def dims(self, node: str) -> str:
        """Why the node's large books cannot be relied on all through; empty where they can."""
        blinds = (blind for book in (Book.EVENTS, Book.DELIVERIES) for blind in self.blinds.get((node, book), ()))
        return next((blind.why for blind in blinds if blind.why), "")

    def passed_by(self, node: str, epoch: str, group: str, peer: str, position: int) -> int:
        """When a link had gone past a position; as far as the books reach if nobody says."""
        until = self.until.get(node, 0) - 1
        passage = self.plan.passages.get((Keeper(node, epoch), group, peer), [])
        at = bisect_left(passage, position, key=lambda one: one[0])
        return min(until, passage[at][1]) if at < len(passage) else until

    def there(self, node: str, peer: str, times: tuple[int, int]) -> tuple[int, int]:
        """Times of a node's clock, as the peer's clock may have shown them."""
        first = self.plan.skew_between(node, peer, times[0] // _HOUR)
        last = self.plan.skew_between(node, peer, times[1] // _HOUR)
        return times[0] + min(first.low, first.high), times[1] + max(last.low, last.high)

    @property
    def margin(self) -> int:
        """How far apart any two clocks of the lake may be, in microseconds."""
        bounds = [bound for hours in self.plan.clocks.values() for one in hours for bound in (one.low, one.high)]
        return max(map(abs, bounds), default=0) + SECOND


def look(survey: Survey, plan: Plan, facts: Mapping[Keeper, Sequence[Facts]], unreadable: Mapping[str, str]) -> Sight:
    """The sight of a lake; `unreadable` are the segments that turned out not to be what they should."""
    sight = Sight(plan)
    for states in histories(survey):
        sight.until[states[-1].node] = states[-1].complete_until
        if states[-1].closed_at:
            sight.closed.add(states[-1].node)
        for before, after in pairwise(states):
            if before.complete_until >= after.began_at:
                continue
            why = f"what {before.node} did between the end of one epoch and the beginning of the next is not known"
            between = Blind(times=(before.complete_until, after.began_at), why=why)
            for book in (Book.EVENTS, Book.DELIVERIES, Book.INBOUND):
                sight.blinds[before.node, book].append(between)
    sight.contested = {one.node for one in survey.troubles if one.kind is TroubleKind.TWO_NODES}
    _add_beginnings(sight, survey)
    _add_troubles(sight, survey, unreadable)
    for keeper, book, _, *lost, noted in told_lost(facts):
        why = f"{keeper.node} had forgotten some of its {book} before they were shipped"
        sight.blinds[keeper.node, book].append(Blind(times=(_ALWAYS[0], noted), positions=(lost[0], lost[1]), why=why))
    return sight


def _add_beginnings(sight: Sight, survey: Survey) -> None:
    """Books of which the first part is gone: what was recorded before is not known."""
    for states in histories(survey):
        first = states[0]
        for book, reach in first.segments.items():
            if reach.after <= 0:
                continue
            times = [
                one.manifest.times[0]
                for one in survey.segments
                if one.manifest.times and (one.manifest.node, one.place.book) == (first.node, book)
            ]
            if times:
                sight.blinds[first.node, book].append(Blind(times=(_ALWAYS[0], min(times))))


def _add_troubles(sight: Sight, survey: Survey, unreadable: Iterable[str]) -> None:
    manifests = {one.place.name: one.manifest for one in survey.segments}
    for name in unreadable:
        manifest = manifests[name]
        blind = Blind(manifest.slots or _ALWAYS, manifest.times or _ALWAYS, why=_torn(manifest.node, manifest.book))
        sight.blinds[manifest.node, manifest.book].append(blind)
    slugs = {one.place.slug: one.manifest.node for one in survey.segments}
    for trouble in survey.troubles:
        if trouble.kind is not TroubleKind.CORRUPT:
            continue
        node = slugs.get(trouble.node, trouble.node)
        if trouble.book is None:
            sight.contested.add(node)
        else:
            times = _neighbours(survey, node, trouble.epoch, trouble.book, trouble.after, trouble.upto)
            sight.blinds[node, trouble.book].append(Blind(times=times, why=_torn(node, trouble.book)))


def _torn(node: str, book: Book) -> str:
    return f"a part of the {book} of {node} is missing or cannot be trusted"


def _neighbours(survey: Survey, node: str, epoch: str, book: Book, after: int, upto: int) -> tuple[int, int]:
    """Between which times the missing numbers were recorded: what lies before and after them tells."""
    beside = [
        (one.place.after, one.place.upto, one.manifest.times)
        for one in survey.segments
        if one.manifest.times and (one.manifest.node, one.place.epoch, one.place.book) == (node, epoch, book)
    ]
    before = [times[1] for _, end, times in beside if end <= after]
    behind = [times[0] for start, _, times in beside if start >= upto]
    return max(before, default=_ALWAYS[0]), min(behind, default=_ALWAYS[1])
