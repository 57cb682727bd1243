"""Checks in the background whether the trees of other nodes have the events that came from there: mode `verify`.

Nothing is checked where events arrive. A check that lags takes a twentieth of a core, until it lags by a minute.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Concatenate, Final, ParamSpec, Protocol, TypeVar

from eventd.log.witnesses.checked_rows import keep_checked
from eventd.log.witnesses.checking import CheckedStep, CheckScope, Searched, check_due
from eventd.log.witnesses.findings import FindingKind
from eventd.log.witnesses.keys import LOG
from eventd.runtime.clock import SECOND, cpu_seconds
from eventd.store.engine.database import Connection
from eventd.witnessing.group_witness import GroupWitness
from federation.peers import PROTOCOL_V1

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger("eventd.history")

CHECK_SECONDS: Final = 1.0
"""The pause between two checks, so that one covers many batches."""
IDLE_SECONDS: Final = 5.0
"""How often tiles are looked for that waiting events need, in seconds."""
ASK_SECONDS: Final = 10.0
"""The shortest time between two questions to a peer about one tree."""
REST: Final = 19
"""The pause of a check that lags, as a multiple of the processor time that it took: a twentieth of a core."""
LONGEST_REST: Final = 5.0
"""The longest pause in seconds, as after searches in a large tree: others' events must not wait for them."""
MOST_LAG: Final = 60 * SECOND
"""From this lag on (microseconds), a check takes the time that it needs."""


class VerifyMetrics(Protocol):
    """Interface of the metrics of checks."""

    def history_verified(self, group: str, result: str, events: int) -> None: ...


class Verifying:
    """Checks the events of one group. `cpu` returns the processor seconds of the calling thread."""

    def __init__(self, witness: GroupWitness, metrics: VerifyMetrics, cpu: Callable[[], float] = cpu_seconds) -> None:
        self._witness = witness
        self._metrics = metrics
        self._cpu = cpu
        self._asked: dict[tuple[str, str], float] = {}
        self._searched: Searched = {}

    async def run(self) -> None:
        """Check what is due, until cancelled."""
        log = self._witness.log
        with log.watch((self._witness.topic_id,)) as watch:
            while True:
                turn = watch.turn
                rest = await self.check()
                if rest is None:
                    await self._wait(watch.after(turn))
                await log.clock.sleep(CHECK_SECONDS if rest is None else rest)

    async def _wait(self, appended: asyncio.Future[None]) -> None:
        timer = self._witness.log.clock.timer(IDLE_SECONDS)
        try:
            await asyncio.wait({appended, timer}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            appended.cancel()

    async def check(self) -> float | None:
        """Check the next events; return the pause in seconds before the next ones, None if nothing is left to check."""
        ours, log = self._witness, self._witness.log
        now = log.clock.now()
        step, comparing = await log.database.read(self._timed, check_due, self._scope(), now, self._searched)
        storing = 0.0
        if step.rows:
            counts, storing = await log.database.write(self._timed, keep_checked, ours.topic_id, step.rows, now)
            group = ours.config().name
            for verdict, events in counts.verdicts.items():
                if events:
                    self._metrics.history_verified(group, verdict.value, events)
            self._report(step, counts.findings)
        self._ask(step.wanted)
        if not step.more:
            return None
        urgent = step.moved and step.since is not None and now - step.since > MOST_LAG
        return 0.0 if urgent else min(REST * (comparing + storing), LONGEST_REST)

    def _ask(self, wanted: Collection[tuple[str, str]]) -> None:
        """Have peers asked about trees, each one now and then: an event a second must not cost a question a second."""
        now = self._witness.log.clock.monotonic()
        self._asked = {tree: at for tree, at in self._asked.items() if now - at < ASK_SECONDS}
        for tree in wanted:
            if tree not in self._asked:
                self._asked[tree] = now
                self._witness.wanted.want(*tree)

    def _scope(self) -> CheckScope:
        config = self._witness.config()
        pinned = {node for node, kind in self._witness.pins() if kind == LOG}
        peers = {peer.node_name for peer in config.peers.values() if peer.protocol != PROTOCOL_V1}
        return CheckScope(self._witness.topic_id, config.name, pinned, peers)

    def _report(self, step: CheckedStep, findings: int) -> None:
        """Log each refuted event once, up to the findings that are kept, and count those findings."""
        senders = [event.sender for row in step.rows for event in row.refuted]
        for sender in senders[:findings]:
            self._witness.report([FindingKind.REFUTED], sender)

    def _timed(
        self, conn: Connection, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> tuple[T, float]:
        """Run `fn` in the thread of the database; return its result and the processor seconds that it took."""
        begun = self._cpu()
        return fn(conn, *args, **kwargs), self._cpu() - begun
