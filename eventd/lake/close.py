"""Closes the ledgers of a node that an operator took out of service for good: they end where they are."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from eventd.errors import Conflict, NotFound
from eventd.lake.manifest import NodeState
from eventd.lake.reader import survey
from eventd.lake.storage import Storage
from eventd.lake.writer import write_state
from eventd.runtime.clock import SECOND

_AT_WORK: Final = 5 * 60 * SECOND
"""A node that reported within this time (microseconds) is in service, and would write its state again."""


def close_node(storage: Storage, node: str, *, now: int) -> NodeState:
    """Close the latest state of a node at the time `now` (microseconds). Returns the closed state.

    Raises NotFound for a node without a state, Conflict for one in service, and LakeUnavailable.
    """
    states = [state for state in survey(storage).nodes if state.node == node]
    if not states:
        raise NotFound(
            f"no node {node} reports to the lake at {storage.url}", hint="`routerctl lake check` lists its nodes"
        )
    latest = max(states, key=lambda state: (state.began_at, state.epoch))
    if abs(now - latest.as_of) < _AT_WORK:
        raise Conflict(f"{node} reported less than 5 minutes ago: it is running", hint="stop the node first")
    closed = replace(latest, closed_at=now)
    write_state(storage, closed)
    return closed
