"""Events that peers have not received: those that retention may remove, and those that it has removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from eventd.cli.gateway.session import Session
from eventd.errors import Forbidden
from eventd.text.plural import counted

_MOST_NAMED: Final = 5
"""Maximum number of peers that a note names; of the others, it gives only the number."""


class WaitingEvents(NamedTuple):
    """How many events of a group wait for a peer: `events`, from `position` of this node's log to its `head`."""

    events: int
    position: int
    head: int


async def read_waiting(session: Session, group: str) -> dict[str, WaitingEvents]:
    """Return what waits for each peer of a group; nothing if the key of the caller must not see links."""
    try:
        links = (await session.call("links.status", group=group, peer=""))["outbound"]
    except Forbidden:
        return {}
    return {link["peer"]: WaitingEvents(link["lagEvents"], link["position"], link["head"]) for link in links}


async def note_what_may_be_lost(session: Session, changes: Sequence[Mapping[str, Any]], *, verb: str) -> list[str]:
    """Return a note for each group of which changes let retention remove events that a peer has not received.

    `verb`: what retention does with them.
    """
    notes = []
    for change in changes:
        if change["kind"] == "EventGroup" and await _drops(session, change):
            waiting = await read_waiting(session, change["name"])
            if rows := [f"{row.events:,} for {peer}" for peer, row in waiting.items() if row.events]:
                notes.append(
                    f"note: retention.undelivered of group {change['name']} is drop, so retention {verb} events over"
                    f" its limits also if a peer has not received them; at most this many wait: {_named(rows)}"
                )
    return notes


async def _drops(session: Session, change: Mapping[str, Any]) -> bool:
    """Return whether a change lowers the retention of a group that keeps no events for peers."""
    lowers = change.get("lowers", ())
    if not lowers or "retention.undelivered" in lowers:
        return bool(lowers)
    try:
        stored = await session.call("resources.get", kind="EventGroup", name=change["name"])
    except Forbidden:
        return False
    return bool(stored["spec"].get("retention", {}).get("undelivered") == "drop")


def note_what_was_lost(before: Mapping[str, WaitingEvents], after: Mapping[str, WaitingEvents]) -> list[str]:
    """Return as a note how many events that waited before retention was applied are gone, for which peers.

    Peers that have received something meanwhile are left out: some of what waited is at them.
    """
    rows = []
    for peer, then in before.items():
        now = after.get(peer)
        if now is not None and now.position == then.position and now.events < then.events:
            about = "" if now.head == then.head else "about "  # what was emitted meanwhile waits, too
            rows.append(f"{about}{counted(then.events - now.events, 'event')} for {peer}")
    lost = f"note: peers that had not received removed events do not get them any more: {_named(rows)}"
    return [lost] if rows else []


def _named(rows: Sequence[str]) -> str:
    more = [f"and {counted(len(rows) - _MOST_NAMED, 'more peer')}"] if len(rows) > _MOST_NAMED else []
    return ", ".join([*rows[:_MOST_NAMED], *more])
