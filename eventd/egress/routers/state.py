"""The state of running routers: their positions, the pages for routers at one position, and each one's step."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

from eventd.dynamic.guard import OBSERVED, SelfCapture, refuse_captured
from eventd.egress.routers.event_map import cut_events
from eventd.egress.routers.graph import router_of
from eventd.egress.routers.projection import Router, Shape, cut_records
from eventd.log.core.head import read_head
from eventd.log.core.values import Drafts
from eventd.log.routers.commit import GroupAdmission, RouterStep, StepResult
from eventd.log.routers.source import CopyPage, OriginalPage, read_source
from eventd.log.topics.router_rows import RouterRow, read_routers
from eventd.log.topics.topics import GROUP
from eventd.resources.group_configuration import GroupConfig
from eventd.store.engine.database import Connection
from federation.event import DECODER

FEWEST_RECORDS = 16
"""Lower bound of the limit of records in a page, however many different copies are made of each."""

SLICE_WEIGHT = 250
SLICE_BYTES = 1 << 20
"""Maximum number of copies, and of their bytes, in one transaction, unless one step has more: other writers wait."""
ROUTER_WEIGHT = 2
"""A router counts as this many copies in a transaction, in addition to its own."""

REST_SECONDS = 0.25
"""Seconds between two moves of the routers of a steadily growing source, unless a reader waits for the copies: a
continuous writer is not delayed by their transaction after each of its writes.
"""
REST_WATCHED_SECONDS = 0.01
"""Seconds between two moves like `REST_SECONDS`, but for a source one of whose destinations has followers."""
STEADY_SECONDS = 0.05
"""A source that grows again within this many seconds after a move grows steadily."""

NO_COPIES = CopyPage()

Kind = Shape | str
"""Identifies routers that make equal copies: by the copies' shape or, if the destination is a group's topic, by the
router's name."""


class DeclaredRouter(NamedTuple):
    """A router as loaded: its row and its options. `kind` is equal for routers that make equal copies."""

    line: RouterRow
    router: Router
    kind: Kind

    @classmethod
    def of(cls, line: RouterRow) -> Self:
        """Return the declaration in a row."""
        router = router_of(line)
        return cls(line, router, line.name if line.dest.startswith(GROUP) else Shape.of(router))


def read_declared(conn: Connection) -> tuple[int, list[DeclaredRouter]]:
    """Return the stored `topics_version`, and all routers, sorted by name."""
    return read_head(conn).topics_version, [*map(DeclaredRouter.of, read_routers(conn))]


class RouterState:
    """A running router.

    `position`, `seq` and `state` are as stored; it has read up to the position `seen` and the seq `seen_seq`. `held` is
    the reason why it waits for its destination; empty if it does not wait. `held_at`: when a step last failed for want
    of room (monotonic seconds). `overtaken`: its row was moved, changed or deleted meanwhile, and must be read.
    `gone`: it was dropped here. `holes`: the number of holes of its source that it has read over.
    """

    __slots__ = (
        *("source", "line", "router", "group", "kind", "cursor", "durable"),
        *("position", "seq", "state", "seen", "seen_seq", "held", "held_at", "overtaken", "gone", "holes"),
    )

    def __init__(self, declared: DeclaredRouter, source: SourceState) -> None:
        self.source = source
        self.held_at = 0.0
        self.gone = False
        self.holes = 0
        self._begin(declared)

    def _begin(self, declared: DeclaredRouter) -> None:
        self.line, self.router, self.kind = line, _, _ = declared
        self.group = line.dest.removeprefix(GROUP) if line.dest.startswith(GROUP) else ""
        self.cursor = line.cursor
        self.durable = line.durability == "fsync"
        self.position, self.seq, self.state = line.position, line.seq, line.state
        self.seen, self.seen_seq = line.position, line.seq
        self.held = ""
        self.overtaken = False

    def declare(self, declared: DeclaredRouter) -> bool:
        """Load a declaration; return True if the router begins again at its stored position.

        It does when its options have changed, or it was `overtaken`.
        """
        if self.overtaken or declared.line.version != self.line.version:
            self._begin(declared)
            return True
        self.line = declared.line
        self.durable = declared.line.durability == "fsync"
        return False

    @property
    def is_due(self) -> bool:
        """Return whether it has work to do, and may do it."""
        source = self.source
        return (self.seen < source.tip or self.holes < source.holes) and not (self.held or self.overtaken or self.gone)

    @property
    def is_ahead(self) -> bool:
        """Return whether it has read further than its stored position says."""
        return self.seen_seq > self.seq and not (self.overtaken or self.gone)

    def move(self, page: OriginalPage, cut: CopyPage, lost: int, admission: GroupAdmission | None) -> RouterStep:
        """Return its step over a page, which writes the copies `cut`.

        `lost` is the number of records that the source lost or never got.
        """
        upto, seq = page.upto, page.upto_seq
        return self._step(upto, seq, cut, lost, admission, self.state != "running", self.durable)

    def note(self) -> tuple[RouterState, RouterStep]:
        """Return this router and the step that stores how far it has read, without any copies."""
        return self, self._step(self.seen, self.seen_seq, NO_COPIES, 0, None, False, False)

    def _step(self, *what: Any) -> RouterStep:
        line = self.line
        return RouterStep(line.id, self.cursor, self.position, line.version, line.source_id, line.dest_id, *what)

    def settle(self, moved: StepResult, at: float) -> None:
        """Apply the result of its step, at a monotonic time."""
        self.position, self.seq = self.seen, self.seen_seq = moved.position, moved.seq
        self.state = "backing-off" if moved.held else "running"
        if moved.held:
            self.held, self.held_at = moved.held, at


class RouterBatch(NamedTuple):
    """Routers at one position, and the position `until` of the next router ahead, where they join it.

    None if no router is ahead.
    """

    routers: list[RouterState]
    until: int | None


class SourceState:
    """A topic that routers read.

    `tip`: the last position at which it may have grown. `queued` and `moving`: its routers wait for their turn, or have
    it. `trouble`: they could not be moved, and wait. `writes`: how far they have read is to be stored. `holes`: how
    often it got a hole. `rests_until`: when its routers may be moved again (monotonic seconds), unless a reader waits;
    `resting`: a timer for that time is set. `passed`: how many seqs were read in this pass.
    """

    def __init__(self, topic_id: int, name: str) -> None:
        self.topic_id = topic_id
        self.name = name
        self.routers: dict[str, RouterState] = {}
        self.tip = self.holes = 0
        self.queued = self.moving = self.trouble = self.writes = self.resting = False
        self.rests_until = self._ended_at = float("-inf")
        self._steady = False
        self.passed = 0
        self._moves: list[asyncio.Future[None]] = []

    @property
    def is_due(self) -> bool:
        """Return whether there is work to do."""
        return self.writes or any(router.is_due for router in self.routers.values())

    def begin(self, now: float) -> None:
        """Note that its routers start to move, at `now` (monotonic seconds)."""
        self.passed = 0
        self._steady = now - self._ended_at < STEADY_SECONDS

    def rest(self, now: float, *, watched: bool) -> None:
        """Note that its routers have caught up at `now`; they pause if the source grows steadily, or `passed` > 1.

        `watched`: a destination has followers.
        """
        self._ended_at = now
        if self._steady or self.passed > 1:
            self.rests_until = now + (REST_WATCHED_SECONDS if watched else REST_SECONDS)

    @property
    def is_awaited(self) -> bool:
        """Return whether a reader waits for its routers."""
        return any(not move.done() for move in self._moves)

    def next_move(self) -> asyncio.Future[None]:
        """Return a future that is done at the next call of `moved`; until then, a reader waits (`is_awaited`)."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._moves = [each for each in self._moves if not each.done()]
        self._moves.append(future)
        return future

    def moved(self) -> None:
        """Complete the futures of `next_move`: the routers have moved over a page, or their pass has ended."""
        moves, self._moves = self._moves, []
        for future in moves:
            if not future.done():
                future.set_result(None)

    def look(self, head: int, head_seq: int) -> None:
        """Note that the topic ended at `head_seq` when the log ended at `head`.

        So routers that have read up to `head_seq` have seen everything up to `head`.
        """
        for router in self.routers.values():
            if router.seen_seq == head_seq and router.holes == self.holes:
                router.seen = max(router.seen, head)

    def next_batch(self, kinds: int) -> RouterBatch:
        """Return the due routers that are farthest behind, all at one position and of at most `kinds` kinds.

        The batch is empty if none is due.
        """
        places: defaultdict[tuple[int, int], list[RouterState]] = defaultdict(list)
        for router in self.routers.values():
            if router.is_due:
                places[router.seen, router.seen_seq].append(router)
        if not places:
            return RouterBatch([], None)
        first, *others = sorted(places)
        some = {*[*dict.fromkeys(router.kind for router in places[first])][:kinds]}
        until = next((position for position, _ in others if position > first[0]), None)
        return RouterBatch([router for router in places[first] if router.kind in some], until)

    def ask(
        self, batch: RouterBatch, groups: Mapping[str, GroupConfig], *, now: int, records: int, size: int
    ) -> PageRead:
        """Return the request for the next page of a batch; nothing is read yet. `size`: the page's limit in bytes."""
        first = batch.routers[0]
        wanted = {router.kind: (router, groups.get(router.group)) for router in batch.routers}
        limit = max(FEWEST_RECORDS, records // len(wanted))
        return PageRead(self.topic_id, first.seen, first.seen_seq, batch.until, limit, size, now, wanted)


def step_batches(moves: Sequence[tuple[RouterState, RouterStep]]) -> Iterator[StepBatch]:
    """Divide steps, in order, into batches of one transaction each."""
    part: list[tuple[RouterState, RouterStep]] = []
    weight = size = 0
    for each in moves:
        cut = each[1].copies
        more, bulk = ROUTER_WEIGHT + len(cut), cut.bytes
        if part and (weight + more > SLICE_WEIGHT or size + bulk > SLICE_BYTES):
            yield StepBatch(part, weight)
            part, weight, size = [], 0, 0
        part.append(each)
        weight, size = weight + more, size + bulk
    if part:
        yield StepBatch(part, weight)


class StepBatch(NamedTuple):
    """The steps of one transaction, and their cost (`weight`), as a number of copies."""

    moves: list[tuple[RouterState, RouterStep]]
    weight: int


class PageRead(NamedTuple):
    """A page to read, and for each kind of copies one router that makes this kind, with its group if the router leads
    to one."""

    topic_id: int
    position: int
    seq: int
    until: int | None
    limit: int
    max_bytes: int
    now: int
    wanted: Mapping[Kind, tuple[RouterState, GroupConfig | None]]


class Ready(NamedTuple):
    """A page, and its copies by kind."""

    page: OriginalPage
    cuts: Mapping[Kind, CopyPage]


def prepare(conn: Connection, ask: PageRead) -> Ready | None:
    """Return a page of a source and its copies by kind, which takes long; None if the topic was deleted."""
    page = read_source(
        conn,
        ask.topic_id,
        position=ask.position,
        seq=ask.seq,
        until=ask.until,
        limit=ask.limit,
        max_bytes=ask.max_bytes,
        now=ask.now,
    )
    if page is None:
        return None
    return Ready(page, {kind: _cut(page, *who) for kind, who in ask.wanted.items()})


def _cut(page: OriginalPage, running: RouterState, group: GroupConfig | None) -> CopyPage:
    if isinstance(running.kind, Shape):
        return cut_records(page, running.kind)
    return NO_COPIES if group is None else cut_events(page, running.router, group)


def moves_of(
    batch: Sequence[RouterState], ready: Ready, groups: Mapping[str, GroupConfig], cyclic: Collection[RouterState]
) -> list[tuple[RouterState, RouterStep]]:
    """Return the steps of routers over a page.

    A router without copies, failures or losses gets no step: only its `seen` moves, which is stored later. Records
    that the source never got (`trimmed`) make a hole in the destination, too, but not for `cyclic` routers, to which
    the hole would return.
    """
    moves: list[tuple[RouterState, RouterStep]] = []
    page, admissions = ready.page, {name: _admission(group) for name, group in groups.items()}
    for router in batch:
        cut = ready.cuts[router.kind]
        lost = page.lost + (0 if router in cyclic else page.trimmed)
        if cut or cut.failures or lost:
            moves.append((router, router.move(page, cut, lost, admissions.get(router.group))))
        else:
            router.seen, router.seen_seq = page.upto, page.upto_seq
    return moves


def _admission(group: GroupConfig) -> GroupAdmission:
    return GroupAdmission(group.retention.max_bytes, _screen)


def _screen(conn: Connection, drafts: Drafts, now: int) -> Mapping[int, str]:
    """Return, by index, the reasons why events are refused: an event that reports a client which this node itself
    captures."""
    if OBSERVED not in drafts.types:
        return {}
    events = [DECODER.decode(body) for body in drafts.bodies]
    try:
        refuse_captured(conn, [(event.type, event.subject, event.payload) for event in events], now)
    except SelfCapture as refused:
        return {int(str(each["index"])): str(each["message"]) for each in refused.detail}
    return {}
