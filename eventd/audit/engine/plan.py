"""What is known before the large books are opened: the links of every node, how far its clock is off, and where its
books cannot be relied on. Made of the lake's survey and of what the small books come down to.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from eventd.audit.engine.cells import Skew
from eventd.audit.engine.columns import NEVER
from eventd.audit.engine.links import ENDLESS, Link, Wish
from eventd.audit.engine.small_ledgers import Clocks, Facts, Passed
from eventd.lake.manifest import NodeState, PeerState
from eventd.lake.reader import Survey, TroubleKind
from eventd.lake.schema import Book

LOST: Final = "_lost"
"""How the reason of a gap ends that is about a book."""


class Keeper(NamedTuple):
    """Whose books: a node in one epoch."""

    node: str
    epoch: str


class Offset(NamedTuple):
    """The peer's clock is ahead by `low` to `high` microseconds in that hour."""

    hour: int
    low: int
    high: int

    @property
    def middle(self) -> int:
        return (self.low + self.high) // 2

    @property
    def error(self) -> int:
        """Half the width; also where the bounds contradict each other, because the clock was moved."""
        return abs(self.high - self.low + 1) // 2


Clockwork = Mapping[tuple[str, str], Sequence[Offset]]
"""By (node, peer), the hours in order."""


@dataclass
class Plan:
    """What has to be known of the lake. `since`: what a node recorded before is told by its earlier epoch.

    `passages`: for each link, of a keeper, group and peer, positions in order and when they were behind it.
    """

    links: dict[Keeper, tuple[Link, ...]] = field(default_factory=dict)
    passages: dict[tuple[Keeper, str, str], list[tuple[int, int]]] = field(default_factory=dict)
    clocks: dict[tuple[str, str], list[Offset]] = field(default_factory=dict)
    since: dict[Keeper, int] = field(default_factory=dict)

    def skews(self, node: str) -> dict[str, Skew]:
        """How far the clocks of a node's peers are ahead, by peer."""
        return {
            peer: Skew(tuple(one.hour for one in hours), tuple(one.middle for one in hours))
            for (sender, peer), hours in self.clocks.items()
            if sender == node
        }

    def skew_between(self, node: str, peer: str, hour: int) -> Offset:
        """How far the peer's clock is ahead of the node's in the hour nearest to this one; not at all if unknown."""
        hours = self.clocks.get((node, peer))
        return min(hours, key=lambda one: abs(one.hour - hour)) if hours else Offset(hour, 0, 0)


def make_plan(survey: Survey, facts: Mapping[Keeper, Sequence[Facts]]) -> Plan:
    """The plan of a lake."""
    plan = Plan(clocks=_clocks(facts))
    contested = {(one.node, one.epoch) for one in survey.troubles if one.kind is TroubleKind.TWO_NODES}
    for states in histories(survey):
        for place, state in enumerate(states):
            keeper = Keeper(state.node, state.epoch)
            ended = state is not states[-1]
            passed = _passed(facts.get(keeper, ()))
            plan.links[keeper] = tuple(_links(state, passed, ended=ended))
            plan.passages |= {(keeper, *line): one.passage for line, one in passed.items()}
            clear = place > 0 and keeper not in contested
            plan.since[keeper] = states[place - 1].complete_until if clear else NEVER
    return plan


def histories(survey: Survey) -> list[list[NodeState]]:
    """The states of each node, one per epoch, the latest last."""
    found: defaultdict[str, list[NodeState]] = defaultdict(list)
    for state in sorted(survey.nodes, key=lambda state: (state.began_at, state.epoch)):
        found[state.node].append(state)
    return [found[node] for node in sorted(found)]


def _links(state: NodeState, passed: Mapping[tuple[str, str], Passed], *, ended: bool) -> Iterable[Link]:
    declared = {(group.group, peer.peer): peer for group in state.groups for peer in group.peers}
    # What a state promises is in the lake only where nothing has been recorded since.
    whole = state.complete_until >= state.as_of
    for group, peer in sorted({*passed, *declared}):
        yield _link(group, peer, declared.get((group, peer)), passed.get((group, peer)), whole=whole, ended=ended)


def _passed(facts: Iterable[Facts]) -> dict[tuple[str, str], Passed]:
    """How far the links of a node went, over all of its segments."""
    found: dict[tuple[str, str], Passed] = {}
    for one in (passed for each in facts for passed in each.passed):
        before = found.get((one.group, one.peer))
        found[one.group, one.peer] = one if before is None else _joined(before, one)
    return found


def _joined(one: Passed, other: Passed) -> Passed:
    starts = [each.after for each in (one, other) if each.after >= 0]
    repaired = {
        version: max(one.repaired.get(version, 0), other.repaired.get(version, 0))
        for version in {*one.repaired, *other.repaired}
    }
    return Passed(
        one.group,
        one.peer,
        min(starts, default=-1),
        max(one.upto, other.upto),
        sorted([*one.versions, *other.versions]),
        {**one.selections, **other.selections},
        repaired,
        sorted([*one.passage, *other.passage]),
    )


def _link(
    group: str, peer: str, declared: PeerState | None, passed: Passed | None, *, whole: bool, ended: bool
) -> Link:
    went = -1 if passed is None else passed.upto
    cursor = declared.cursor if declared is not None and whole else -1
    begins = passed.after if passed is not None and passed.after >= 0 else max(cursor, 0)
    return Link(
        group,
        peer,
        _wishes(declared, passed, whole=whole),
        ENDLESS if ended else max(went, cursor, 0),
        begins,
        declared.created_at if declared is not None else 0,
    )


def _wishes(declared: PeerState | None, passed: Passed | None, *, whole: bool) -> tuple[Wish, ...]:
    """The versions of a link's selection. A peer that is not declared any more gets nothing beyond what it got."""
    said: dict[int, tuple[str, int]] = {}
    last: dict[int, int] = {}
    repaired: dict[int, int] = {}
    if passed is not None:
        said = {version: (_one_text(json.loads(text or "{}")), 0) for version, text in passed.selections.items()}
        repaired = passed.repaired
        for upto, version in passed.versions:
            last[version] = max(upto, last.get(version, 0))
    if declared is not None:
        said |= {one.version: (_one_text(one.selection), one.declared_at) for one in declared.selections}
    if not said:
        return (Wish("{}"),) if declared is not None else (Wish("{}", upto=0),)
    wishes, upto = [], 0
    under_way = _under_way(declared)
    for version in sorted(said):
        text, declared_at = said[version]
        current = version == max(said) and declared is not None
        upto = ENDLESS if current else max(upto, last.get(version, 0))
        sent = max((end for one, end in repaired.items() if one >= version), default=0)
        reached = sent if under_way is None or not whole else under_way
        wishes.append(Wish(text, declared_at, upto, reached))
    return tuple(wishes)


def _under_way(declared: PeerState | None) -> int | None:
    """Up to where no repair has anything to do any more; None where nobody says."""
    repairs = getattr(declared, "repairs", None)
    return None if repairs is None else min((after for after, _ in repairs), default=ENDLESS)


def _one_text(selection: Mapping[str, Any]) -> str:
    """One text for equal selections."""
    return json.dumps(selection, sort_keys=True)


def _clocks(facts: Mapping[Keeper, Sequence[Facts]]) -> dict[tuple[str, str], list[Offset]]:
    """What both directions say of each pair of clocks."""
    bounds: dict[tuple[str, str, int], tuple[int, int]] = {}

    def narrow(node: str, peer: str, hour: int, low: int, high: int) -> None:
        before = bounds.get((node, peer, hour))
        bounds[node, peer, hour] = (low, high) if before is None else (max(low, before[0]), min(high, before[1]))

    for keeper, each in facts.items():
        for one in (clocks for fact in each for clocks in fact.clocks):
            narrow(keeper.node, one.peer, one.hour, one.low, one.high)
            narrow(one.peer, keeper.node, _hour_there(one), -one.high, -one.low)
    found: dict[tuple[str, str], list[Offset]] = defaultdict(list)
    for (node, peer, hour), (low, high) in sorted(bounds.items()):
        found[node, peer].append(Offset(hour, low, high))
    return dict(found)


def _hour_there(clocks: Clocks) -> int:
    """The same hour by the peer's clock, as near as it goes."""
    from eventd.audit.engine.cells import HOUR
    from eventd.lake.layout import MINUTE

    return clocks.hour + round((clocks.low + clocks.high) / 2 / (HOUR * MINUTE))


def told_lost(facts: Mapping[Keeper, Sequence[Facts]]) -> list[tuple[Keeper, Book, str, int, int, int]]:
    """Facts that a node could not ship any more: whose, of which book and peer, the range, and when it was noted."""
    return [
        (keeper, Book(gap.reason.removesuffix(LOST)), gap.peer, gap.after, gap.upto, gap.recorded_at)
        for keeper, each in facts.items()
        for gap in (gap for fact in each for gap in fact.gaps)
        if gap.reason.endswith(LOST) and gap.reason.removesuffix(LOST) in set(Book)
    ]
