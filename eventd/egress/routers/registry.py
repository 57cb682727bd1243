"""The loaded routers by name, source and destination."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

from eventd.egress.routers.graph import Graph
from eventd.egress.routers.state import DeclaredRouter, RouterState, SourceState

ADOPTED_AT_ONCE = 200
"""Number of routers that are loaded before the event loop gets its turn."""


class RouterRegistry:
    """The loaded routers. For one event loop."""

    def __init__(self) -> None:
        self.sources: dict[int, SourceState] = {}
        self.routers: dict[str, RouterState] = {}
        self._into: defaultdict[int, dict[str, RouterState]] = defaultdict(dict)
        self._fed: Counter[str] = Counter()
        self._graph: Graph | None = None

    @property
    def graph(self) -> Graph:
        """Return the graph of the loaded routers."""
        if self._graph is None:
            self._graph = Graph(router.router for router in self.routers.values())
        return self._graph

    def feeds(self, topic: str) -> bool:
        """Return whether any router writes to a topic."""
        return topic in self._fed

    def into(self, topic_id: int) -> Collection[RouterState]:
        """Return the loaded routers that write to a topic."""
        return self._into[topic_id].values() if topic_id in self._into else ()

    def adopt(self, declared: DeclaredRouter, *, tip: int) -> SourceState:
        """Load a declared router, new or known; return the state of its source, which may have grown up to `tip`."""
        line = declared.line
        router = self.routers.get(line.name)
        if router is not None and router.line.id != line.id:
            self.drop(line.name)
            router = None
        if router is not None:
            if router.declare(declared):
                self._graph = None
            return router.source
        source = self.sources.get(line.source_id)
        if source is None:
            source = self.sources[line.source_id] = SourceState(line.source_id, line.source)
        source.tip = max(source.tip, tip)
        router = self.routers[line.name] = source.routers[line.name] = RouterState(declared, source)
        self._into[line.dest_id][line.name] = router
        self._fed[line.dest] += 1
        self._graph = None
        return source

    def drop_others(self, names: Iterable[str]) -> None:
        """Drop all loaded routers except those with these names."""
        for name in sorted(self.routers.keys() - {*names}):
            self.drop(name)

    async def replace(
        self, found: Sequence[DeclaredRouter], tip: Callable[[], int], sleep: Callable[[float], Awaitable[None]]
    ) -> None:
        """Load these routers, and drop all others. `tip()` returns the position up to which a source may have grown.

        An error with one router does not affect the others; the last error is raised at the end.
        """
        failed: Exception | None = None
        self.drop_others(declared.line.name for declared in found)
        for index, declared in enumerate(found):
            try:
                self.adopt(declared, tip=tip())
            except Exception as error:
                failed = error
            if index % ADOPTED_AT_ONCE == 0:
                await sleep(0)
        if failed is not None:
            raise failed

    def drop(self, name: str) -> None:
        """Drop the router of this name, if it is loaded, and mark its state as `gone`."""
        router = self.routers.pop(name, None)
        if router is None:
            return
        router.gone = True
        self._graph = None
        router.source.routers.pop(name)
        if not router.source.routers:
            self.sources.pop(router.line.source_id)
        self._into[router.line.dest_id].pop(name)
        if not self._into[router.line.dest_id]:
            del self._into[router.line.dest_id]
        self._fed -= Counter([router.line.dest])

    def upstream(self, topic_id: int) -> list[RouterState]:
        """Return all loaded routers through which a record may reach a topic, the farthest first."""
        found: dict[str, RouterState] = {}
        seen, waiting = {topic_id}, deque([topic_id])
        while waiting:
            for router in self.into(waiting.popleft()):
                found[router.line.name] = router
                if router.line.source_id not in seen:
                    seen.add(router.line.source_id)
                    waiting.append(router.line.source_id)
        return [*found.values()][::-1]
