"""How far the clock of each node is ahead of a reference clock, by the receipts that the node and its peers gave each
other.

A report is dated by the clock of its node. A node whose clock is wrong would seem silent, or its silence would not be
noticed. Receipts show the difference between the clocks of two nodes, not the difference between them and the clock of
the audit: so the reference is the clock of the node that reports and differs least from the audit's. If all nodes are
closed, nothing can be compared with the audit's clock, and the reference is the median of theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from eventd.audit.segments.cells import HOUR
from eventd.audit.segments.plan import ClockOffset, ClockOffsets, states_by_node
from eventd.lake.manifest import NodeState
from eventd.lake.reader import Survey
from eventd.runtime.clock import SECOND

_NEAR: Final = 24
"""Maximum number of hours between the measurement of a difference of two clocks and the last report of one of the
nodes. An older measurement does not count, because a clock may have been set since."""


class ClockShift(NamedTuple):
    """A clock is `ahead` of the reference clock, with a difference of at most `error` (microseconds)."""

    ahead: int
    error: int

    @property
    def correction(self) -> int:
        """Return by how much times of this clock are corrected; an error below one second is not corrected."""
        return self.ahead if abs(self.ahead) >= SECOND else 0


def clock_shifts(survey: Survey, clocks: ClockOffsets, now: int, allowed: int) -> dict[str, ClockShift]:
    """Return, by node, how far its clock is ahead of the reference clock; nodes of which it is unknown are left out.

    Nodes that are not connected by recent receipts have different references. `now` is the time by the audit's clock.
    Reports that are no older than `allowed` count as new.
    """
    by_node = {state.node: state for *_, state in states_by_node(survey)}
    shifts: dict[str, ClockShift] = {}
    known: set[str] = set()
    for root in by_node:
        if root not in known:
            found = _shifts_from(root, by_node, clocks)
            known |= {*found}
            if len(found) > 1:
                reference = _reference([by_node[name] for name in found], found, now, allowed)
                shifts |= _shifts_from(reference, by_node, clocks)
    return shifts


def _reference(states: Sequence[NodeState], shifts: Mapping[str, ClockShift], now: int, allowed: int) -> str:
    """Return the node whose clock differs least from the audit's clock, of the nodes with the latest reports by one
    common clock.

    If all nodes are closed, return the node with the median clock; of two such nodes, the one whose clock is behind.
    """
    if all(state.closed_at for state in states):
        return sorted(shifts, key=lambda node: (shifts[node].ahead, node))[(len(shifts) - 1) // 2]
    newest = max(state.as_of - shifts[state.node].ahead for state in states)
    reporting = [state for state in states if state.as_of - shifts[state.node].ahead >= newest - allowed]
    return min(reporting, key=lambda state: (abs(now - state.as_of), state.node)).node


def _shifts_from(root: str, states: Mapping[str, NodeState], clocks: ClockOffsets) -> dict[str, ClockShift]:
    """Return how far the clocks of all nodes that are connected with `root` are ahead of its clock, `root` included."""
    shifts, ahead = {root: ClockShift(0, 0)}, [root]
    while ahead:
        node = ahead.pop(0)
        for peer, hours in _peers(node, clocks):
            if peer in states and peer not in shifts and (last := _latest(states[node], states[peer], hours)):
                before = shifts[node]
                shifts[peer] = ClockShift(before.ahead + last.middle, before.error + last.error)
                ahead.append(peer)
    return shifts


def _peers(node: str, clocks: ClockOffsets) -> Iterator[tuple[str, Sequence[ClockOffset]]]:
    return ((peer, hours) for (sender, peer), hours in sorted(clocks.items()) if sender == node and hours)


def _latest(one: NodeState, other: NodeState, hours: Sequence[ClockOffset]) -> ClockOffset | None:
    """Return the last known difference of two clocks.

    None if it was measured long before the last reports of both nodes. None also if the ledgers of the two nodes
    contradict each other in any of the last hours.
    """
    last = hours[-1]
    if any(hour.low - hour.high > SECOND for hour in hours if last.hour - hour.hour <= _NEAR):
        return None
    reported = min(one.as_of, other.as_of - last.middle)
    return last if reported // HOUR - last.hour <= _NEAR else None
