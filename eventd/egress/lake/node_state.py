"""Builds a node's state for the lake from a snapshot of its ledgers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from eventd.egress.lake.coverage import LakeCoverage
from eventd.lake.extract import LedgerSnapshot, LinkSnapshot
from eventd.lake.manifest import GroupState, NodeState, PeerState, SegmentRange, Selection, SelectionConditions
from eventd.lake.schema import Ledger


def describe(
    state: LedgerSnapshot,
    node: str,
    coverage: LakeCoverage,
    positions: Mapping[Ledger, int] | None,
    floors: Mapping[str, int],
    *,
    began_at: int,
    as_of: int,
    complete_until: int,
    payloads: bool = False,
    interval: int = 0,
) -> NodeState:
    """Return the state of a node for the lake; nothing is written. `positions` are those of its ledgers' cursors.

    With `positions` None, before anything was shipped, the state lists no positions and no groups. `floors`: by group,
    the seq up to which its events were evicted; read after the last segment, because they may have been lost to it.
    """
    return NodeState(
        node=node,
        epoch=state.epoch,
        instance=state.instance,
        began_at=began_at,
        as_of=as_of,
        head=state.head,
        complete_until=complete_until,
        books=dict(positions or {}),
        segments=segments_of(node, coverage),
        groups=tuple(
            GroupState(
                group=group.group,
                peers=tuple(map(_peer, group.peers)),
                last_seq=group.last_seq,
                evicted_seq=floors.get(group.group, -1),
                tree=group.tree,
            )
            for group in state.groups
            if positions is not None and group.node == node
        ),
        payloads=payloads,
        interval=interval,
    )


def segments_of(node: str, coverage: LakeCoverage) -> dict[Ledger, SegmentRange]:
    """Return, for each ledger of this node, the range that its segments in the lake cover."""
    return {kept.book: reach for kept, reach in coverage.reaches.items() if kept.node == node}


def with_floors(groups: Sequence[GroupState], floors: Mapping[str, int]) -> tuple[GroupState, ...]:
    """Return the groups with the seqs up to which their events are evicted at present."""
    return tuple(replace(group, evicted_seq=floors.get(group.group, group.evicted_seq)) for group in groups)


def _peer(link: LinkSnapshot) -> PeerState:
    return PeerState(
        peer=link.peer,
        selections=tuple(
            Selection(version=one.version, declared_at=one.declared_at, selection=SelectionConditions.of(one.selection))
            for one in link.selections
        ),
        relay=link.relay,
        paused=link.paused,
        state=link.state,
        reason=link.reason,
        since=link.since,
        cursor=link.cursor,
        created_at=link.created_at,
        repairs=tuple(link.repairs),
        begins=link.begins,
    )
