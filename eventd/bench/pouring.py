"""Load: events or records written to one node over several connections, as fast as they are answered."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field

from eventd.bench.ledger import Ledger
from eventd.bench.nodes import pause
from eventd.bench.result import Show
from eventd.bench.site import BenchPlan
from eventd.bench.targets import StoredEvent, Target
from eventd.bench.wire import LoadResult, NodeClient, cpu_now, now

KEEP = 512
"""Bytes kept of each answer, enough for its status and its counts."""
MOST_PREPARED = 256 << 20
"""Approximate maximum bytes of requests prepared before the clock starts; others are made during the run."""
LOOK_SECONDS = 0.01


@dataclass(slots=True)
class LoadRun:
    """One run of load on the `target`: its requests, and the ledger of the numbers sent."""

    client: NodeClient
    target: Target
    wanted: BenchPlan
    ledger: Ledger = field(default_factory=Ledger)
    sent_bytes: int = 0
    _ready: list[deque[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._ready = [deque() for _ in range(self.wanted.in_flight)]

    def prepare(self) -> None:
        """Prepare the first `MOST_PREPARED` bytes of requests, or all; none for a run of a given duration."""
        made = line = 0
        while not self.wanted.seconds and self.ledger.count < self.wanted.events and made < MOST_PREPARED:
            asked = self._next(line)
            self._ready[line].append(asked)
            made, line = made + len(asked), (line + 1) % self.wanted.in_flight

    def _next(self, line: int) -> bytes:
        count = self.wanted.batch
        if not self.wanted.seconds:
            count = min(count, self.wanted.events - self.ledger.count)
        asked = self.client.request("POST", self.target.path, self.target.batch(self.ledger.take(line, count)))
        self.sent_bytes += len(asked)
        return asked

    def _row(self, line: int, deadline: float) -> Iterator[bytes]:
        """Yield the requests of one connection: prepared ones, then new ones until the run is over."""
        ready = self._ready[line]
        while ready:
            yield ready.popleft()
        while now() < deadline if self.wanted.seconds else self.ledger.count < self.wanted.events:
            yield self._next(line)

    async def pour(self, show: Show, words: str) -> LoadResult:
        """Send the events of the plan, or as many as fit in its duration; return the answers and times.

        Raises the node's error if it refuses a request."""
        begun, wanted = now(), self.wanted

        def progress(answers: int) -> None:
            done = min(now() - begun, wanted.seconds) * 10 if wanted.seconds else answers * wanted.batch
            show(words, int(done), int(wanted.seconds * 10) or wanted.events)

        deadline = begun + wanted.seconds
        rows = [self._row(line, deadline) for line in range(wanted.in_flight)]
        return await self.client.load(rows, keep=KEEP, progress=progress)

    async def read(self, client: NodeClient, show: Show, words: str) -> list[StoredEvent]:
        """Return all entries that a node holds in the target of the run, including any that the run did not send."""
        found: list[StoredEvent] = []
        pages: AsyncIterator[list[StoredEvent]] = self.target.read(client)
        async for page in pages:
            found += page
            show(words, len(found), self.ledger.count)
        return found

    def problems(self, found: Sequence[StoredEvent]) -> list[str]:
        """Return a message for each way in which the entries read differ from those sent."""
        return self.ledger.problems(one.number for one in found)


async def held(client: NodeClient, group: str) -> int:
    """Return how many events of a group a node holds; 0 without the group."""
    status = await client.call("GET", "/api/v1/status")
    return next((int(one["events"]) for one in status["groups"] if one["group"] == group), 0)


@dataclass(frozen=True, slots=True)
class Arrival:
    """The arrival of events at a node: from the last poll that found none to the first that found all, or to the end of
    the wait.

    `begun` and `ended` are seconds of the monotonic clock, `busy` is the share of a core that this process used."""

    seconds: float
    begun: float
    ended: float
    busy: float


async def arrive(client: NodeClient, group: str, count: int, show: Show, words: str, *, longest: float) -> Arrival:
    """Return the `Arrival` once a node holds `count` events of a group, or none has arrived for `longest` seconds."""
    begun, cpu = now(), cpu_now()
    news, before = now(), 0
    while True:
        at = now()
        have = await held(client, group)
        if have == 0:
            begun, cpu = at, cpu_now()
        if have > before:
            news, before = at, have
        show(words, have, count)
        if have >= count or now() - news > longest:
            ended = now()
            return Arrival(ended - begun, begun, ended, (cpu_now() - cpu) / max(ended - begun, 1e-9))
        await pause(LOOK_SECONDS)
