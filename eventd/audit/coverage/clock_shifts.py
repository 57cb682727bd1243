"""How far the clock of each node is ahead of the audit's, by the receipts that its peers and it gave each other.

A report is dated by the clock of its node. A node whose clock is wrong would seem silent, or its silence would not be
noticed. Receipts show the difference between the clocks of two nodes, not the difference between them and the clock of
the audit: that is taken to be the smallest difference of a node that reports.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from eventd.audit.segments.cells import HOUR
from eventd.audit.segments.plan import ClockOffset, ClockOffsets, states_by_node
from eventd.lake.manifest import NodeState
from eventd.lake.reader import Survey
from eventd.runtime.clock import SECOND

_NEAR: Final = 24
"""Hours that may lie between a measured difference of two clocks and the last report of one of the nodes. A clock may
have been set since an older one was measured."""


def clock_shifts(survey: Survey, clocks: ClockOffsets, now: int, allowed: int) -> dict[str, int]:
    """Return, by node, how far its clock is ahead of the audit's (microseconds): 0 if it is unknown, or below a second.

    `now` is the time by the audit's clock. Reports that are no older than `allowed` count as new.
    """
    by_node = {state.node: state for *_, state in states_by_node(survey)}
    shifts = dict.fromkeys(by_node, 0)
    known: set[str] = set()
    for root in by_node:
        if root not in known:
            offsets = _offsets(root, by_node, clocks)
            known |= {*offsets}
            reference = _reference([by_node[name] for name in offsets], offsets, now, allowed)
            shifts |= {name: offset - offsets[reference] for name, offset in offsets.items()}
    return {name: shift if abs(shift) >= SECOND else 0 for name, shift in shifts.items()}


def _reference(states: Sequence[NodeState], offsets: Mapping[str, int], now: int, allowed: int) -> str:
    """Return the node whose clock differs least from the audit's, of those that reported last by one common clock."""
    newest = max(state.as_of - offsets[state.node] for state in states)
    reporting = [state for state in states if state.as_of - offsets[state.node] >= newest - allowed]
    return min(reporting, key=lambda state: (abs(now - state.as_of), state.node)).node


def _offsets(root: str, states: Mapping[str, NodeState], clocks: ClockOffsets) -> dict[str, int]:
    """Return how far the clocks of all nodes that are connected with `root` are ahead of its clock, `root` included."""
    offsets, ahead = {root: 0}, [root]
    while ahead:
        node = ahead.pop(0)
        for peer, hours in _peers(node, clocks):
            if peer in states and peer not in offsets and (last := _latest(states[node], states[peer], hours)):
                offsets[peer] = offsets[node] + last.middle
                ahead.append(peer)
    return offsets


def _peers(node: str, clocks: ClockOffsets) -> Iterator[tuple[str, Sequence[ClockOffset]]]:
    return ((peer, hours) for (sender, peer), hours in sorted(clocks.items()) if sender == node and hours)


def _latest(one: NodeState, other: NodeState, hours: Sequence[ClockOffset]) -> ClockOffset | None:
    """Return the last known difference of two clocks; None if both nodes have reported for long since then.

    None also if the ledgers of the two contradict each other in any of the last hours.
    """
    last = hours[-1]
    if any(hour.low - hour.high > SECOND for hour in hours if last.hour - hour.hour <= _NEAR):
        return None
    reported = min(one.as_of, other.as_of - last.middle)
    return last if reported // HOUR - last.hour <= _NEAR else None
