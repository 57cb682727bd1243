"""Closes the ledgers of a node that an operator took out of service permanently: no more rows are expected in them."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from eventd.errors import Conflict, NotFound
from eventd.lake.manifest import NodeState
from eventd.lake.reader import survey
from eventd.lake.storage import Storage
from eventd.lake.writer import write_state
from eventd.runtime.clock import SECOND
from eventd.text.duration import format_duration

_IN_SERVICE: Final = 5 * 60 * SECOND
"""If the state of a node was written within this time (microseconds), or within three of its shipping intervals if
these are longer, the node may still be in service, and would overwrite a closed state."""


def close_node(storage: Storage, node: str, *, now: int) -> NodeState:
    """Mark the state of a node's latest epoch as closed at `now` (microseconds), and return that state.

    Raises NotFound without a readable state, Conflict if it was written a short time ago (see
    `_IN_SERVICE`), and like `survey`.
    """
    states = [state for state in survey(storage).nodes if state.node == node]
    if not states:
        raise NotFound(
            f"no node {node} reports to the lake at {storage.url}", hint="`routerctl lake check` lists its nodes"
        )
    latest = max(states, key=lambda state: (state.began_at, state.epoch))
    wait = max(_IN_SERVICE, 3 * latest.interval)
    if abs(now - latest.as_of) < wait:
        time = format_duration(wait)
        raise Conflict(
            f"{node} reported less than {time} ago: it may be running", hint=f"stop the node, and wait {time}"
        )
    closed = replace(latest, closed_at=now)
    write_state(storage, closed)
    return closed
