"""Random histories of events, failures, stops and crashes: the parts finally match the log, and each event ran once."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from eventd.log.core.eventlog import EventLog
from eventd.plugins.contract.contract import Result, RunRequest
from eventd.store.parts.claims import FOR_SUBJECT
from eventd.store.rows.runs import RunStatus
from eventd.testing import ManualClock, give_turns, until
from tests.contract.egress.conftest import BOTH_DATABASES
from tests.support.derived import EXPIRED, OBSERVED
from tests.support.engine import TTL, Engine, fail_for, failure, route


def routes(request: RunRequest) -> Result:
    """A route for each event, which is about its subject."""
    resources = [route(event) for event in request.events]
    for resource, event in zip(resources, request.events, strict=True):
        resource["metadata"]["annotations"] = {FOR_SUBJECT: event.subject}
    return Result(observed_at=request.now, ttl=TTL, resources=resources)


SPECS = (
    {},
    {"trigger": {"batchWindow": "700ms"}},
    {"trigger": {"debounce": "400ms"}},
    {"trigger": {"batchWindow": "900ms", "debounce": "300ms"}},
)


class History:
    """What happened to a subscription, and what must come of it."""

    def __init__(self, engine: Engine, chance: random.Random) -> None:
        self.engine = engine
        self.chance = chance
        self.spec = self.chance.choice(SPECS)
        self.words: list[tuple[str, str, str]] = []  # type, subject, id
        self.poison: set[str] = set()
        self.crashes = 0
        engine.plugins.always = routes

    async def declare(self, grace: int) -> None:
        retry = {"maxAttempts": 3, "baseBackoff": "100ms", "maxBackoff": "400ms"}
        await self.engine.subscribe(retry=retry, lifetime={"grace": f"{grace}s"}, **self.spec)

    async def emit(self, type: str = OBSERVED) -> None:
        for _ in range(self.chance.randint(1, 6)):
            name = f"e{len(self.words)}"
            subject = f"s{self.chance.randint(0, 5)}"
            if type == OBSERVED and self.chance.random() < 0.08:
                self.poison.add(name)
                subject = f"bad-{name}"
                self.engine.plugins.always = fail_for(*self.poison, then=routes)
            self.words.append((type, subject, name))
            await self.engine.emit(name, subject=subject, dedupeKey=f"{type} {subject}", type=type)

    async def step(self) -> None:
        kind = self.chance.choice(
            ["emit"] * 5 + ["expire"] * 2 + ["wait"] * 5 + ["stop", "crash", "pause", "trouble", "change"]
        )
        if kind == "emit":
            await self.emit()
        elif kind == "expire":
            await self.emit(EXPIRED)
        elif kind == "stop":
            await self.engine.restart(self.chance.choice((0.0, 5.0)))
        elif kind == "crash" and not self.crashes:
            self.crashes += 1
            await self.engine.crash()
            await self.engine.restart()
        elif kind == "pause":
            await self.engine.ask("subscriptions.pause", subscription="claims")
            await self.emit()
            await self.engine.ask("subscriptions.resume", subscription="claims")
        elif kind == "trouble":
            self.engine.plugins.answers.append(failure("cannot_start", about_plugin=True, transient=True))
        elif kind == "change":
            await self.declare(grace=self.chance.randint(5, 9))
        await give_turns(self.chance.randint(0, 30))
        self.engine.clock.advance(self.chance.random())

    async def come_to_rest(self) -> None:
        async def so() -> bool:
            self.engine.clock.advance(0.5)
            await give_turns(20)
            return (await self.engine.cursor()).position >= len(self.words)

        await until(so, "the subscription to have passed everything", seconds=20)
        await self.engine.rested()

    async def judge(self) -> None:
        observed = {name for type, _, name in self.words if type == OBSERVED}
        runs = await self.engine.runs()
        done = [run for run in runs if run.status in (RunStatus.SUCCEEDED, RunStatus.PARKED)]
        told = Counter(name for run in done for name in [*run.event_ids, *run.coalesced])
        assert told == Counter(observed), "each event has ended once"
        assert {letter[0] for letter in await self.engine.letters()} == self.poison
        assert all(run.completed_at is not None for run in runs)
        last: dict[str, str] = {}
        for type, subject, name in self.words:
            if type == EXPIRED:
                last.pop(subject, None)
            elif name not in self.poison:
                last[subject] = name
        self.engine.clock.advance(9)
        assert await self.engine.claims() == {f"claim-{subject}": name for subject, name in last.items()}


@BOTH_DATABASES
@pytest.mark.parametrize("number", range(2))
async def test_whatever_happens_each_event_comes_to_its_end_once(
    log: EventLog, clock: ManualClock, number: int, chance: random.Random
) -> None:
    engine = Engine(log, clock)
    try:
        history = History(engine, chance)
        await history.declare(grace=5)
        for _ in range(40):
            await history.step()
        await history.come_to_rest()
        await history.judge()
    finally:
        await engine.close()
