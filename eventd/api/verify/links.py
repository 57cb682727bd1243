"""How far the link to a peer is, according to the peer's mark and to this node's cursor."""

from __future__ import annotations

from typing import Any

from eventd.api.framework.moments import show_time
from eventd.api.verify.scope import Scope
from eventd.groups.peer_filters import describe_filter
from eventd.text.plural import counted
from federation.event import micros


def show_link(scope: Scope) -> dict[str, Any]:
    """Return both positions of the link as JSON; `notes` says where they contradict each other, and reports gaps."""
    cursor, head, state = scope.cursor, scope.head, scope.state
    mark = state.mark
    return {
        "epoch": head.epoch,
        "head": head.last,
        "position": cursor.position,
        "confirmed": cursor.sent_upto,
        "mark": None
        if mark is None
        else {"epoch": mark.epoch, "incarnation": mark.incarnation, "base": mark.base, "upto": mark.upto},
        "peerKeepsSince": None if state.since is None else show_time(micros(state.since)),
        "removedByPeer": scope.removed_by_peer,
        "peerGaps": [
            {
                "epoch": gap.epoch,
                "after": gap.after,
                "upto": gap.upto,
                "reason": gap.reason,
                "recordedAt": show_time(micros(gap.recorded_at)),
            }
            for gap in state.gaps
        ],
        "notes": _notes(scope),
    }


def _notes(scope: Scope) -> list[str]:
    cursor, head, mark = scope.cursor, scope.head, scope.state.mark
    node = scope.peer.node_name
    confirmed = cursor.sent_upto if cursor.sent_epoch else 0
    notes: list[str] = []
    if mark is None and confirmed:
        notes.append(f"{node} has no mark of this link, but had confirmed everything up to position {confirmed}")
    elif mark is not None and mark.epoch == cursor.sent_epoch and mark.upto < confirmed:
        notes.append(
            f"{node} is at position {mark.upto}, but had confirmed everything up to {confirmed}: it has lost records"
        )
    elif mark is not None and mark.epoch != head.epoch:
        notes.append(f"{node} is at position {mark.upto} in another epoch of this log ({mark.epoch})")
    elif mark is not None and mark.upto > head.last:
        notes.append(
            f"{node} is at position {mark.upto}, after the end of this log at {head.last}: this node has lost records"
        )
    if not scope.peer.selector.matches_all:
        notes.append(f"only what EventPeer {scope.peer.name} selects is compared: {describe_filter(scope.peer)}")
    lost = [gap for gap in scope.state.gaps if gap.epoch == head.epoch]
    if lost:
        gaps, them = counted(len(lost), "gap"), "it" if len(lost) == 1 else "them"
        notes.append(f"{node} has {gaps} in this epoch of the log: there, routerctl federation gaps shows {them}")
    return notes
