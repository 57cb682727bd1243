"""Load: single events emitted into one node through the client library, as fast as they are stored."""

from __future__ import annotations

import asyncio
from asyncio import FIRST_EXCEPTION
from collections.abc import Iterator
from dataclasses import dataclass, field

from eventd.bench.ledger import Ledger
from eventd.bench.result import Show
from eventd.bench.site import BenchPlan
from eventd.bench.targets import GroupTarget, StoredEvent
from eventd.bench.wire import LOOK_SECONDS, LoadResult, NodeClient, cpu_now, nothing_sent, now
from eventd.client import Client
from eventd.client.publishing import Publisher
from eventd.runtime.clock import SystemClock
from eventd.runtime.supervisor import Supervisor


@dataclass(slots=True)
class EmitRun:
    """One run: `window` concurrent emitters, each of which waits until its event is stored before it emits the next.

    Over a `websocket`, or in requests.
    """

    client: NodeClient
    target: GroupTarget
    wanted: BenchPlan
    window: int
    websocket: bool = True
    ledger: Ledger = field(default_factory=Ledger)
    _latencies: list[float] = field(default_factory=list)

    async def pour(self, show: Show, words: str) -> LoadResult:
        """Emit the events of the plan, or as many as fit in its duration; return the times, without answers.

        Raises the node's error if it refuses an event, and `Unavailable` if none was emitted.
        """
        client = Client(str(self.client.address), self.client.key, tls=self.client.tls)
        supervisor = Supervisor(SystemClock())
        async with (
            client,
            client.publisher(self.target.group, window=self.window, websocket=self.websocket) as publisher,
        ):
            cpu, begun = cpu_now(), now()
            deadline = begun + self.wanted.seconds
            rows = [self._row(line, deadline) for line in range(self.window)]
            emitters = {supervisor.spawn(self._emit(publisher, row), "emitter", expects=Exception) for row in rows}
            try:
                while emitters:
                    done, emitters = await asyncio.wait(emitters, timeout=LOOK_SECONDS, return_when=FIRST_EXCEPTION)
                    for emitter in done:
                        emitter.result()
                    self._show_progress(show, words, now() - begun)
                seconds, busy = now() - begun, cpu_now() - cpu
            finally:
                await supervisor.stop()
        if not self._latencies:
            raise nothing_sent()
        return LoadResult([], self._latencies, seconds, round(busy / seconds, 2))

    def _show_progress(self, show: Show, words: str, passed: float) -> None:
        wanted = self.wanted
        done = min(passed, wanted.seconds) * 10 if wanted.seconds else len(self._latencies)
        show(words, int(done), int(wanted.seconds * 10) or wanted.events)

    def _row(self, line: int, deadline: float) -> Iterator[int]:
        """Yield the numbers of the events of one emitter: its share, or as many as it can emit before the deadline."""
        if not self.wanted.seconds:
            share, more = divmod(self.wanted.events, self.window)
            yield from self.ledger.take(line, share + (line < more))
            return
        while now() < deadline:
            yield from self.ledger.take(line, 1)

    async def _emit(self, publisher: Publisher, row: Iterator[int]) -> None:
        event, kept = self.target.event, self._latencies.append
        for number in row:
            begun = now()
            await publisher.emit(event(number))
            kept(now() - begun)

    async def read(self, client: NodeClient, show: Show, words: str) -> list[StoredEvent]:
        """Return all events that a node holds in the group of the run, including any that the run did not send."""
        found: list[StoredEvent] = []
        async for page in self.target.read(client):
            found += page
            show(words, len(found), self.ledger.count)
        return found
