"""Failing runs: how often they are retried, which event becomes a dead letter, and that no other subscription waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from eventd.log.core.eventlog import EventLog
from eventd.store.rows.runs import RunStatus
from eventd.testing import ManualClock, give_turns, until
from tests.contract.egress.conftest import BOTH_DATABASES
from tests.support.declared import group
from tests.support.derived import plugin, subscription
from tests.support.engine import Engine, fail_for, failure, routes

SLOW = {"baseBackoff": "1s", "maxBackoff": "60s"}


@pytest.fixture
async def engine(log: EventLog, clock: ManualClock) -> AsyncIterator[Engine]:
    made = Engine(log, clock)
    yield made
    await made.close()


async def after_failure(engine: Engine, seconds: float) -> None:
    """Until it rests after a failed run; then the time is over."""
    await engine.gathering(seconds)
    await engine.rested()
    engine.clock.advance(seconds)


@BOTH_DATABASES
async def test_three_failed_runs_are_one_dead_letter_and_no_part(engine: Engine, clock: ManualClock) -> None:
    await engine.subscribe(retry=SLOW)
    engine.plugins.always = lambda request: failure()
    await engine.emit("e1")
    await after_failure(engine, 1)
    await after_failure(engine, 2)
    await until(engine.letters, "a dead letter")
    await engine.rested()
    ((event, reason, attempts, words),) = await engine.letters()
    assert (event, reason, attempts) == ("e1", "exit_code", 3)
    assert "no route to provider" in words
    runs = await engine.runs()
    assert [(run.status, run.attempt, run.exit_code, run.stderr) for run in runs] == [
        ("failed", 1, 42, "no route to provider\n"),
        ("failed", 2, 42, "no route to provider\n"),
        ("parked", 3, 42, "no route to provider\n"),
    ]
    assert await engine.parts() == []
    assert (await engine.cursor()).position == 1
    state = await engine.state()
    assert (state["phase"], state["state"], state["deadLetters"]) == ("Degraded", "running", 1)
    engine.plugins.always = routes
    await engine.emit("e2")
    await until(engine.parts, "the next event's part")
    assert (await engine.state())["phase"] == "Applied"


async def test_the_wait_doubles_up_to_its_longest(engine: Engine) -> None:
    await engine.subscribe(retry={"maxAttempts": 10, "baseBackoff": "1s", "maxBackoff": "5s"})
    engine.plugins.always = lambda request: failure()
    await engine.emit("e1")
    for seconds in (1, 2, 4, 5, 5):
        await after_failure(engine, seconds)
    state = await engine.state()
    assert (state["state"], state["reason"]) == ("backing-off", "plugin_failed")


async def test_attempts_survive_a_restart(engine: Engine) -> None:
    await engine.subscribe(retry=SLOW)
    engine.plugins.always = lambda request: failure()
    await engine.emit("e1")
    for seconds in (1, 2):
        await engine.gathering(seconds)
        await engine.rested()
        await engine.restart()
        engine.clock.advance(seconds)
    await until(engine.letters, "a dead letter")
    assert [run.attempt for run in await engine.runs()] == [1, 2, 3]


async def test_one_poison_event_does_not_harm_the_others(engine: Engine) -> None:
    await engine.subscribe(retry=SLOW, trigger={"batchWindow": "1s"})
    engine.plugins.always = fail_for("e3")
    await engine.emit(*[f"e{number}" for number in range(8)])
    for seconds in (1, 1, 2):
        await engine.gathering(seconds)
        engine.clock.advance(seconds)
    await until(lambda: engine.plugins.given[-1:] == [["e4", "e5", "e6", "e7"]], "the last run")
    await engine.rested()
    assert [letter[0] for letter in await engine.letters()] == ["e3"]
    assert set(await engine.claims()) == {f"claim-e{number}" for number in range(8) if number != 3}
    statuses = await engine.statuses()
    assert statuses.count("failed") + statuses.count("parked") <= 7
    told = [event for run in await engine.runs() if run.status is RunStatus.SUCCEEDED for event in run.event_ids]
    assert sorted(told) == [f"e{number}" for number in range(8) if number != 3], "each healthy event ran once"


async def test_two_poison_events_among_hundreds_are_found_soon(engine: Engine) -> None:
    await engine.subscribe(retry=SLOW, trigger={"batchWindow": "1s"})
    ids = [f"e{number:04}" for number in range(256)]
    engine.plugins.always = fail_for("e0030", "e0200")
    await engine.emit(*ids)
    waited = 0.0

    async def ended() -> bool:
        nonlocal waited
        if engine.clock.waits:
            waited += engine.clock.waits[0]
            engine.clock.advance(engine.clock.waits[0])
            await give_turns()
        return len(await engine.letters()) == 2 and (await engine.cursor()).position == 256

    await until(ended, "both to be dead letters and the rest to be run")
    assert [letter[0] for letter in await engine.letters()] == ["e0030", "e0200"]
    assert len(await engine.claims()) == 254
    assert waited <= 1 + 3 + 3 + 1, "each poison event costs one row of waits"
    assert len(engine.plugins.requests) <= 2 * (3 + 16)


async def test_an_outage_is_waited_for_between_the_events_it_takes(engine: Engine) -> None:
    """A plugin that fails for every event must not be run without pause until all of them are dead letters."""
    await engine.subscribe(retry=SLOW, trigger={"batchWindow": "1s"})
    engine.plugins.always = lambda request: failure()
    await engine.emit(*[f"e{number}" for number in range(64)])
    for seconds in (1, 1, 2):
        await engine.gathering(seconds)
        engine.clock.advance(seconds)
    await engine.gathering(1)
    assert len(await engine.letters()) == 1, "one became a dead letter, and then there is a pause again"


async def test_halves_do_not_bring_back_what_was_replaced(engine: Engine) -> None:
    await engine.subscribe(retry={**SLOW, "maxAttempts": 1}, trigger={"batchWindow": "1s"})
    engine.plugins.always = fail_for("d2")
    for number in (1, 2):
        for key in "abcd":
            await engine.emit(f"{key}{number}", dedupeKey=key, subject=key)
    await engine.gathering(1)
    engine.clock.advance(1)
    await until(engine.letters, "a dead letter")
    given = {event for ids in engine.plugins.given for event in ids}
    assert given == {"a2", "b2", "c2", "d2"}
    seen = {each for run in await engine.runs() for each in [*run.event_ids, *run.coalesced]}
    assert seen == {f"{key}{number}" for key in "abcd" for number in (1, 2)}


# --- runs that do not end -------------------------------------------------------------------------------------------


@BOTH_DATABASES
async def test_a_crash_while_the_plugin_runs_counts(engine: Engine) -> None:
    await engine.subscribe(retry={"maxAttempts": 1})
    for attempt in (1, 2, 3):
        engine.plugins.hold()
        if attempt == 1:
            await engine.emit("e1")
        else:
            await engine.restart()
        await until(lambda: engine.plugins.running)
        assert (await engine.runs())[-1].attempt == attempt
        await engine.crash()
    assert await engine.statuses() == ["failed", "failed", "running"]
    await engine.restart()
    await until(engine.letters, "the end of a row of crashes")
    assert [(letter[0], letter[1], letter[2]) for letter in await engine.letters()] == [("e1", "node_ended", 3)]
    assert len(engine.plugins.requests) == 3, "it was not run a fourth time"
    assert await engine.statuses() == ["failed", "failed", "parked"]
    engine.plugins.always = routes
    await engine.emit("e2")
    await until(engine.parts, "the next event's part")


async def test_of_a_batch_that_crashes_the_node_half_is_tried(engine: Engine, clock: ManualClock) -> None:
    await engine.subscribe(trigger={"batchWindow": "1s"}, retry={**SLOW, "maxAttempts": 1})
    await engine.emit("e1", "e2", "e3", "e4")
    engine.plugins.hold()
    await engine.gathering(1)
    clock.advance(1)
    for crashes in (1, 2, 3):
        await until(lambda: engine.plugins.running)
        await engine.crash()
        if crashes < 3:
            engine.plugins.hold()
        await engine.restart()
    await until(lambda: len(engine.plugins.given) >= 5)
    await engine.rested()
    assert engine.plugins.given == [["e1", "e2", "e3", "e4"]] * 3 + [["e1", "e2"], ["e3", "e4"]]
    assert len(await engine.claims()) == 4
    assert await engine.letters() == []


@BOTH_DATABASES
async def test_a_stop_does_not_count(engine: Engine) -> None:
    await engine.subscribe(retry={"maxAttempts": 1})
    await engine.emit("e0")
    await engine.ran(["e0"])
    for _ in range(3):
        engine.plugins.hold()
        if len(engine.plugins.requests) == 1:
            await engine.emit("e1")
        else:
            await engine.restart()
        await until(lambda: engine.plugins.running)
        await engine.stop(0.0)
    assert await engine.statuses() == ["succeeded", "interrupted", "interrupted", "interrupted"]
    assert {run.attempt for run in await engine.runs()} == {1}
    assert all(run.completed_at is not None and run.error for run in (await engine.runs())[1:])
    await engine.restart()
    await until(lambda: len(engine.plugins.requests) == 5)
    await engine.rested()
    assert set(await engine.claims()) == {"claim-e0", "claim-e1"}


async def test_a_change_of_the_declaration_does_not_count(engine: Engine) -> None:
    await engine.subscribe(retry={"maxAttempts": 1})
    engine.plugins.hold()
    await engine.emit("e1")
    await until(lambda: engine.plugins.running)
    await engine.subscribe(retry={"maxAttempts": 1}, lifetime={"grace": "1s"})
    await engine.ran(["e1"], ["e1"])
    assert await engine.statuses() == ["interrupted", "succeeded"]


# --- plugins that cannot run ----------------------------------------------------------------------------------------


async def test_a_plugin_that_cannot_run_blocks_and_parks_nothing(engine: Engine, clock: ManualClock) -> None:
    await engine.subscribe(retry={**SLOW, "maxBackoff": "60s"})
    engine.plugins.always = lambda request: failure("missing", about_plugin=True, exit_code=None, stderr="")
    await engine.emit("e1")
    for _ in range(5):
        await after_failure(engine, 60)
    await engine.gathering(60)
    assert await engine.letters() == []
    assert {(run.status, run.attempt) for run in await engine.runs()} == {("blocked", 1)}
    state = await engine.state()
    assert (state["state"], state["reason"], state["phase"]) == ("blocked", "missing", "Degraded")
    engine.plugins.always = routes
    await engine.ask("subscriptions.retry", subscription="claims")  # at once: the clock stands still
    await until(engine.parts, "a part")
    assert (await engine.state())["state"] == "running"


async def test_it_mends_by_itself(engine: Engine) -> None:
    await engine.subscribe(retry={**SLOW, "maxBackoff": "60s"})
    engine.plugins.answers.append(failure("not_executable", about_plugin=True))
    await engine.emit("e1")
    await after_failure(engine, 60)
    await until(engine.parts, "a part")


async def test_a_shortage_is_waited_for(engine: Engine) -> None:
    await engine.subscribe(retry=SLOW)
    engine.plugins.answers.extend(failure("cannot_start", about_plugin=True, transient=True) for _ in range(4))
    await engine.emit("e1")
    for seconds in (1, 2, 4, 8):
        await after_failure(engine, seconds)
    await until(engine.parts, "a part")
    assert await engine.letters() == []


async def test_nothing_waits_any_more_is_nothing_wrong_any_more(engine: Engine, clock: ManualClock) -> None:
    await engine.subscribe(retry={**SLOW, "maxBackoff": "60s"})
    engine.plugins.answers.append(failure("missing", about_plugin=True))
    await engine.emit("e1", ttl="10s")
    await after_failure(engine, 60)

    async def running() -> bool:
        return (await engine.cursor()).state == "running"

    await until(running, "the subscription to be well")
    assert engine.plugins.given == [["e1"]], "it had expired"


# --- side by side ---------------------------------------------------------------------------------------------------


async def test_a_slow_one_and_a_failing_one_delay_nobody(engine: Engine) -> None:
    await engine.apply(
        group("onprem"),
        *[plugin("/bin/true", name=name) for name in ("slow", "bad", "good")],
        *[subscription(name=name, plugin=name) for name in ("slow", "bad", "good")],
    )
    endless = engine.spawn(asyncio.Event().wait(), "slow")
    answers = {"slow": lambda request: endless, "bad": lambda request: failure(), "good": routes}
    engine.plugins.always = lambda request: answers[request.plugin](request)
    for number in range(5):
        await engine.emit(f"e{number}")
        await until(lambda count=number + 1: has_parts(engine, count), f"{number + 1} parts")
    assert {run.subscription for run in await engine.runs() if run.status is RunStatus.SUCCEEDED} == {"good"}


async def has_parts(engine: Engine, count: int) -> bool:
    return len(await engine.parts()) == count
