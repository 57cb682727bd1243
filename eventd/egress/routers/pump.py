"""The pump behind all routers: copies of what was appended to their sources, in step.

All routers of one source that are at the same position are moved together: one page is read for them, copies are made
once for all that make the same ones, and one transaction holds the copies, the cursors and the counters of many. A
router whose destination has no room stays behind alone, and moves together with the others again once it has caught
up.

Routers have a loop of their own because the consumers of a thousand routers of one source would all wake for a record,
read the same page and settle one by one: see `docs/decisions/routers-in-step.md`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from eventd.egress.routers.graph import Graph
from eventd.egress.routers.projection import FAN_IN_HOPS
from eventd.egress.routers.registry import RouterRegistry
from eventd.egress.routers.source_queue import SourceQueue
from eventd.egress.routers.state import (
    DeclaredRouter,
    RouterBatch,
    RouterState,
    SourceState,
    moves_of,
    prepare,
    read_declared,
    step_batches,
)
from eventd.errors import EventdError
from eventd.log.core.eventlog import EventLog
from eventd.log.core.head import read_head
from eventd.log.routers.commit import CommitSteps, RouterStep, StepResult
from eventd.log.topics.router_rows import RouterRow, read_heads
from eventd.resources.group_configuration import GroupConfig
from eventd.runtime.log_pause import PausedCount
from eventd.runtime.supervisor import SpawnTask

PAGE_RECORDS = 256
"""Maximum number of copies that are made of one page: a page has at most this number of records, divided by the number
of different copies of each."""
PAGE_BYTES = 256 << 10
"""Approximate maximum bytes of a page."""
KINDS = 64
"""Maximum number of different copies that are made of each record of one page."""
LOOKED_AT_ONCE = 200
"""Number of sources that are checked before the event loop gets its turn."""
PAGES = 8
"""Number of pages that are read from one source before another source has its turn."""
RETRY_SECONDS = 1.0
"""Interval in seconds at which held routers are tried again, and the positions of routers that made no copies are
stored."""
RETRY_SOON = 0.05
"""A router that has been held for more than this many seconds is tried again as soon as a reader of its destination
waits."""
DRIVE_SECONDS = 5.0
"""Maximum time that a reader waits for copies under way, in seconds."""

NO_GROUP = "no_group"
"""The reason (`RouterState.held`) why a router waits: its destination is a group without this node as a member."""

logger = logging.getLogger("eventd.egress")

Groups = Callable[[], Mapping[str, GroupConfig]]


class Routing:
    """Moves every router of a database. `load`, then `run_for_ever` under the node's supervisor; `stop` at the end.

    `groups` returns the groups of this node by name; `spawn` starts a task under the node's supervisor. `max_bytes`
    limits all topics of records together; 0: no limit. `lazy`: another process moves the routers; here only those are
    moved that a reader waits for.
    """

    def __init__(
        self, log: EventLog, groups: Groups, spawn: SpawnTask, max_bytes: int = 0, *, lazy: bool = False
    ) -> None:
        self._log = log
        self._max_bytes = max_bytes
        self._groups = groups
        self._spawn = spawn
        self._registry = RouterRegistry()
        self._queue = SourceQueue(log.clock, spawn, self._pass, lazy=lazy)
        self._version = -1
        self._stale = False
        self._reloading: asyncio.Task[None] | None = None
        self._unsure = False
        self._looking: asyncio.Task[None] | None = None
        self._loading = asyncio.Lock()
        self._waits = asyncio.Event()
        self._pending: dict[SourceState, None] = {}
        self._letters_added: dict[str, PausedCount] = {}  # by the cursor of a router that has any
        self._closed = False

    # --- loading the routers -----------------------------------------------------------------------------------

    @property
    def graph(self) -> Graph:
        """Return the graph of the loaded routers."""
        return self._registry.graph

    def feeds(self, topic: str) -> bool:
        """Return whether any router writes to a topic."""
        return self._registry.feeds(topic)

    def seen_seq(self, name: str) -> int:
        """Return the seq of its source up to which a router has read; 0 if unknown."""
        router = self._registry.routers.get(name)
        return 0 if router is None else router.seen_seq

    async def load(self) -> None:
        """Load the routers, and start to move them."""
        async with self._loading:
            if self._on_growth not in self._log.wakeups.listeners:
                self._log.wakeups.listeners.append(self._on_growth)
            self._stale = False
            version, found = await self._log.database.read(read_declared)
            try:
                await self._registry.replace(found, lambda: self._log.wakeups.head, self._log.clock.sleep)
                self._version = version
            finally:  # those that were loaded move
                self._on_growth(None)

    def changed(self) -> None:
        """Load the routers again, in the background, because routers, topics or groups may have changed.

        They are read from the database only if `topics_version` changed, or a router was `overtaken`. Afterwards,
        routers that wait for a group try again in any case.
        """
        self._stale = True
        if self._reloading is None or self._reloading.done():
            self._reloading = self._spawn(self._reload(), "routers that were changed")  # tries again by itself

    async def _reload(self) -> None:
        while self._stale and not self._closed:
            self._stale = False
            try:
                head = await self._log.database.read_for_delivery(read_head)
                if head.topics_version != self._version or any(
                    router.overtaken for router in self._registry.routers.values()
                ):
                    await self.load()
            except Exception as error:  # a defect as well: routers that are not loaded move nothing
                logger.warning("reading routers failed", exc_info=error)
                self._version, self._stale = -1, True
                self._waits.set()
                return
        self._release([router for router in self._registry.routers.values() if router.held == NO_GROUP])

    def put(self, line: RouterRow, version: int | None) -> None:
        """Load a router that was declared in this process. `version`: the new `topics_version`; None: not changed."""
        self._queue.put(self._registry.adopt(DeclaredRouter.of(line), tip=self._log.wakeups.head))
        if version is not None:
            self._follow(version)

    def removed(self, names: Iterable[str], version: int) -> None:
        """Drop routers that were deleted in this process. `version`: the new `topics_version`."""
        for name in names:
            self._registry.drop(name)
        self._follow(version)

    def _follow(self, version: int) -> None:
        self._log.topic_versions.made(version)
        if version == self._version + 1:  # nothing else has happened since the last load
            self._version = version
        elif version != self._version:
            self.changed()

    # --- when to move them ----------------------------------------------------------------------------------------

    def _on_growth(self, topics: Collection[int] | None) -> None:
        """Queue the sources that have grown or changed (None: any may have), and let routers that were held because
        these topics had no room try again."""
        if topics is None:
            self._look_everywhere()
            return
        for topic_id in topics:
            if (source := self._registry.sources.get(topic_id)) is not None:
                source.tip = self._log.wakeups.head
                self._queue.put(source)
            self._release(self._registry.into(topic_id))

    def _look_everywhere(self) -> None:
        """Find out, with one query in the background, which sources have grown, because any may have."""
        for source in self._registry.sources.values():
            source.tip = self._log.wakeups.head
        self._unsure = True
        if not self._closed and (self._looking is None or self._looking.done()):
            self._looking = self._spawn(self._look(), "sources of routers")  # tries again by itself

    async def _look(self) -> None:
        while self._unsure and not self._closed:
            self._unsure = False
            try:
                head, seqs = await self._log.database.read_for_delivery(read_heads, [*self._registry.sources])
                for index, (topic_id, head_seq) in enumerate(seqs.items()):
                    if (source := self._registry.sources.get(topic_id)) is not None:
                        source.look(head, head_seq)
                        self._release(source.routers.values())
                        self._queue.put(source)
                    if index % LOOKED_AT_ONCE == 0:
                        await self._log.clock.sleep(0)
            except Exception as error:  # a defect as well: growth must not wait for the next signal
                logger.warning("reading topics failed", exc_info=error)
                self._unsure = True
                self._waits.set()
                return

    def _release(self, routers: Iterable[RouterState]) -> None:
        """Let those of these routers that are held try again."""
        for router in routers:
            if router.held:
                router.held = ""
                self._queue.put(router.source)

    def _rest(self, source: SourceState) -> None:
        watched = any(self._log.wakeups.is_watched(router.line.dest_id) for router in source.routers.values())
        source.rest(self._log.clock.monotonic(), watched=watched)

    async def run_for_ever(self) -> None:
        """Retry held routers and failed reads, and store how far routers without copies have read, until cancelled.

        Growth is noticed without it.
        """
        while True:
            await self._waits.wait()
            await self._log.clock.sleep(RETRY_SECONDS)
            self._waits.clear()
            if self._stale:
                self.changed()
            if self._unsure:
                self._look_everywhere()
            pending, self._pending = self._pending, {}
            for source in pending:
                source.trouble = False
                source.writes = any(router.is_ahead for router in source.routers.values())
                self._release([*source.routers.values()])
                self._queue.put(source)

    async def stop(self) -> None:
        """Start nothing more, and wait for the work under way."""
        self._closed = True
        self._queue.close()
        if self._on_growth in self._log.wakeups.listeners:
            self._log.wakeups.listeners.remove(self._on_growth)
        tasks = [*self._queue.turns, *(task for task in (self._reloading, self._looking) if task is not None)]
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- moving them ----------------------------------------------------------------------------------------------

    async def _pass(self, source: SourceState) -> None:
        """Move the routers of one source over at most `PAGES` pages; store how far they have read if that is due."""
        try:
            source.begin(self._log.clock.monotonic())
            for _ in range(PAGES):
                batch = source.next_batch(KINDS)
                if self._closed or not batch.routers:
                    break
                await self._step(source, batch)
                source.moved()
            else:
                return  # far behind: continue as soon as others had their turn
            self._rest(source)
            if source.writes and not self._closed:
                source.writes = False
                await self._submit([router.note() for router in source.routers.values() if router.is_ahead])
        except EventdError as error:
            self._fail(source, error)
        except Exception as error:  # a defect with one source must not end the others
            logger.exception("routers failed", extra={"topic": source.name})
            self._fail(source, error)

    def _fail(self, source: SourceState, error: Exception) -> None:
        if not self._closed:
            logger.warning("routers waiting", extra={"topic": source.name, "error": str(error)})
        source.trouble = True
        self._wait(source)

    async def _step(self, source: SourceState, batch: RouterBatch) -> None:
        """Move the routers of a batch, except held ones, over the next page of their source."""
        groups = self._groups()
        routers = [router for router in batch.routers if not self._is_held(router, groups)]
        if not routers:
            return
        batch, holes = RouterBatch(routers, batch.until), source.holes
        ask = source.ask(batch, groups, now=self._log.clock.now(), records=PAGE_RECORDS, size=PAGE_BYTES)
        here = (ask.position, ask.seq)
        ready = await self._log.database.read_for_delivery(prepare, ask)  # meanwhile routers may change, or be deleted
        if ready is None:
            for router in routers:
                self._registry.drop(router.line.name)
            return
        source.passed += ready.page.upto_seq - here[1]
        routers = [r for r in routers if not r.gone and r.kind in ready.cuts and (r.seen, r.seen_seq) == here]
        cyclic = [router for router in routers if ready.page.trimmed and self.graph.is_cyclic(router.router)]
        moves = moves_of(routers, ready, groups, cyclic)
        if len(moves) < len(routers):
            self._wait(source)
        await self._submit(moves)
        if not ready.page.full:
            for router in routers:
                router.holes = router.holes if router.held else holes

    def _wait(self, source: SourceState) -> None:
        """Let `run_for_ever` check a source again after `RETRY_SECONDS`."""
        self._pending[source] = None
        self._waits.set()

    def _is_held(self, router: RouterState, groups: Mapping[str, GroupConfig]) -> bool:
        """Return whether a router is held; first hold it if this node is not a member of its destination's group."""
        if router.group and router.group not in groups:
            router.held = NO_GROUP
            self._wait(router.source)
        return bool(router.held)

    async def _submit(self, moves: Sequence[tuple[RouterState, RouterStep]]) -> None:
        """Commit the steps, in batches of one transaction each, and apply their results."""
        batches = [*step_batches(moves)]
        futures = [
            self._log.submit(CommitSteps([move for _, move in part.moves], part.weight, max_bytes=self._max_bytes))
            for part in batches
        ]
        for part, future in zip(batches, futures, strict=True):
            for (router, move), moved in zip(part.moves, await future, strict=True):
                self._settle(router, move, moved)

    def _settle(self, router: RouterState, move: RouterStep, moved: StepResult | None) -> None:
        if moved is None:
            router.overtaken = True
            self.changed()
            return
        router.settle(moved, self._log.clock.monotonic())
        if move.lost:
            self._announce_hole(move.dest_id)
        if moved.held:
            self._wait(router.source)
        if moved.refused:
            added = self._letters_added.setdefault(move.cursor, PausedCount(self._log.clock.monotonic))
            if count := added.add(moved.refused):
                logger.warning("dead letters added", extra={"cursor": move.cursor, "count": count})

    def _announce_hole(self, topic_id: int) -> None:
        """Notify the followers of a topic that got a hole, which does not move the head."""
        if topic_id in self._registry.sources:
            self._registry.sources[topic_id].holes += 1
        self._log.wakeups.touch(topic_id)

    # --- waiting for copies ---------------------------------------------------------------------------------------

    async def drive(self, topic_id: int) -> None:
        """Wait until a topic has the copies of what its sources held at the time of the call, over any number of hops.

        Returns without them after `DRIVE_SECONDS`. A held router (its destination is full, say) is not waited for.
        """
        upstream = self._registry.upstream(topic_id)
        if not upstream:
            return
        soon = self._log.clock.monotonic() - RETRY_SOON
        self._release([router for router in upstream if router.held_at < soon])
        timer: asyncio.Future[None] | None = None
        try:
            # hops of the graph at most
            for _ in range(FAN_IN_HOPS + len({router.line.source_id for router in upstream})):
                if any(router.overtaken for router in upstream) and self._reloading is not None:
                    await asyncio.wait({self._reloading})
                behind = [(router, router.source.tip) for router in upstream if router.is_due]
                if not behind:
                    return
                timer = timer or self._log.clock.timer(DRIVE_SECONDS)
                for router, tip in behind:
                    await self._reach(router, tip, timer)
        finally:
            if timer is not None:
                timer.cancel()

    async def _reach(self, router: RouterState, tip: int, timer: asyncio.Future[None]) -> None:
        source = router.source
        while router.is_due and router.seen <= tip and not (source.trouble or timer.done() or self._closed):
            # a waiter is counted before the source is queued, so that the source does not rest
            move = source.next_move()
            self._queue.put(source)
            await asyncio.wait({move, timer}, return_when=asyncio.FIRST_COMPLETED)
