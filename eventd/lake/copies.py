"""Finds databases that ship their ledgers under two names, because the database or its files in the lake were
copied."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from eventd.lake.manifest import NodeState


def copies(states: Sequence[NodeState]) -> Iterator[tuple[NodeState, NodeState]]:
    """Yield pairs of states of one database, or one epoch, under two names that have a group in common.

    The name that began later is second; there is one pair for each pair of names. A node that has different names in
    different groups ships under each name, with other groups.
    """
    ordered = sorted(states, key=lambda state: (state.began_at, state.as_of, state.node))
    seen: set[tuple[str, str]] = set()
    for at, after in enumerate(ordered):
        groups = {one.group for one in after.groups}
        for before in ordered[:at]:
            same = before.instance == after.instance or before.epoch == after.epoch
            names = (min(before.node, after.node), max(before.node, after.node))
            if not same or before.node == after.node or names in seen:
                continue
            if any(one.group in groups for one in before.groups):
                seen.add(names)
                yield before, after
