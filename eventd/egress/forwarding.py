"""The pump behind all routers: copies of what was appended to their sources, in step.

All routers of one source that stand at one position are moved together: one page is read for them, a copy is made once
for all that make the same one, and one transaction holds the copies, the cursors and the counters of many.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from eventd.egress.topology import Graph
from eventd.log.eventlog import EventLog
from eventd.resources.effective import GroupConfig


class Routing:
    """Moves every router of a database. `load`, then `run_for_ever` under the node's supervisor.

    `groups` tells the groups of this node by name; `spawn` starts a task under the node's supervisor.
    """

    graph: Graph

    def __init__(
        self,
        log: EventLog,
        groups: Callable[[], Mapping[str, GroupConfig]],
        spawn: Callable[[Coroutine[Any, Any, Any], str], Any],
    ) -> None:
        self._log = log
        self._groups = groups
        self._spawn = spawn

    async def load(self) -> None:
        """Read which routers there are."""
        raise NotImplementedError

    async def run_for_ever(self) -> None:
        """Move routers as their sources grow, and try again those that are held."""
        raise NotImplementedError

    def changed(self) -> None:
        """Routers, topics or groups may have been changed: look again. Costs nothing where no version moved."""
        raise NotImplementedError

    async def drive(self, topic_id: int) -> None:
        """Wait until a topic has what its sources held at the time of the call, over any number of hops.

        A router that is held (its destination is full, say) is not waited for.
        """
        raise NotImplementedError
