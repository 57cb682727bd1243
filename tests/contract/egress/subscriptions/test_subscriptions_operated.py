"""The operator's commands for a subscription: retry, reset, pause, and the list of what happened to its events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import ValidationError

from eventd.errors import Invalid, NotFound
from eventd.log.core.eventlog import EventLog
from eventd.log.retention.evict import EvictionLimits, evict
from eventd.testing import NOW, ManualClock, give_turns, until
from tests.contract.egress.conftest import BOTH_DATABASES
from tests.support.declared import group
from tests.support.derived import OBSERVED, plugin, subscription
from tests.support.engine import Engine, fail_for, failure, routes

ONCE = {"maxAttempts": 1}


"""For what has nothing to do with the database: once is enough."""


@pytest.fixture
async def engine(log: EventLog, clock: ManualClock) -> AsyncIterator[Engine]:
    made = Engine(log, clock)
    yield made
    await made.close()


async def parked(engine: Engine, count: int) -> None:
    async def so() -> bool:
        return len(await engine.letters()) == count

    await until(so, f"{count} dead letters")
    await engine.rested()


async def no_backfill(engine: Engine) -> None:
    async def so() -> bool:
        return not await engine.backfills()

    await until(so, "the backfills to end")
    await engine.rested()


# --- retry ----------------------------------------------------------------------------------------------------------


@BOTH_DATABASES
async def test_what_was_parked_is_tried_once_more(engine: Engine) -> None:
    await engine.subscribe(retry=ONCE)
    engine.plugins.always = fail_for("e1", "e3")
    await engine.emit("e1", "e2", "e3")
    await parked(engine, 2)
    engine.plugins.always = routes
    answer = await engine.ask("subscriptions.retry", subscription="EventSubscription/claims")
    assert answer == {"subscription": "claims", "group": "edge", "retried": 2, "kept": []}
    await no_backfill(engine)
    assert set(await engine.claims()) == {"claim-e1", "claim-e2", "claim-e3"}
    assert engine.plugins.given[-2:] == [["e1"], ["e3"]], "each alone: what came between is not to be undone"
    assert await engine.letters() == []


async def test_one_of_them(engine: Engine) -> None:
    await engine.subscribe(retry=ONCE)
    engine.plugins.always = lambda request: failure()
    await engine.emit("e1", "e2")
    await parked(engine, 2)
    engine.plugins.always = routes
    await engine.ask("subscriptions.retry", subscription="claims", ids=["e2"])
    await no_backfill(engine)
    assert await engine.claims() == {"claim-e2": "e2"}
    assert [letter[0] for letter in await engine.letters()] == ["e1"]
    with pytest.raises(NotFound, match="claims has no dead letter of event e2"):
        await engine.ask("subscriptions.retry", subscription="claims", ids=["e1", "e2"])


async def test_what_fails_again_is_parked_again(engine: Engine) -> None:
    await engine.subscribe(retry=ONCE)
    engine.plugins.always = lambda request: failure()
    await engine.emit("e1")
    await parked(engine, 1)
    await engine.ask("subscriptions.retry", subscription="claims")
    await parked(engine, 1)
    await no_backfill(engine)
    assert len(engine.plugins.requests) == 2


async def test_a_retry_begins_to_count_anew(engine: Engine, clock: ManualClock) -> None:
    """Two retries, of which the first ends because its event expires: the second knows nothing of it."""
    await engine.subscribe(retry={"maxAttempts": 2, "baseBackoff": "1s", "maxBackoff": "1s"})
    engine.plugins.always = lambda request: failure()
    await engine.emit("e1", ttl="1000h")
    await engine.emit("e2", ttl="100h")

    async def both() -> bool:
        if clock.waits:
            clock.advance(1)
            await give_turns()
        return len(await engine.letters()) == 2

    await until(both, "two dead letters")
    await engine.rested()
    await engine.ask("subscriptions.retry", subscription="claims", ids=["e2"])
    await engine.gathering(1)
    await engine.rested()
    clock.advance(100 * 3600)  # e2 has failed once more, and has expired
    await no_backfill(engine)
    await engine.ask("subscriptions.retry", subscription="claims", ids=["e1"])
    await engine.gathering(1)
    await engine.rested()
    last = (await engine.runs())[-1]
    assert (last.event_ids, last.attempt) == (["e1"], 1)


@BOTH_DATABASES
async def test_what_cannot_be_tried_again_stays_with_the_reason(engine: Engine, clock: ManualClock) -> None:
    await engine.subscribe(retry=ONCE)
    engine.plugins.always = lambda request: failure()
    await engine.emit("evicted")
    await engine.emit("short", ttl="10s")
    await engine.emit("unwanted", "good")
    await parked(engine, 4)
    topic = await engine.log.topic("group:edge")
    await engine.log.database.write(evict, topic, EvictionLimits(max_records=3), now=clock.now())
    await engine.subscribe(retry=ONCE, match={"subjectPrefixes": ["good"]})
    clock.advance(20)
    engine.plugins.always = routes
    answer = await engine.ask("subscriptions.retry", subscription="claims")
    assert answer["retried"] == 1
    assert {kept["eventId"]: kept["reason"] for kept in answer["kept"]} == {
        "evicted": "retention has removed it",
        "short": "it expired at 2026-11-20T12:00:10Z",
        "unwanted": "the subscription no longer selects it",
    }
    await no_backfill(engine)
    assert await engine.claims() == {"claim-good": "good"}
    assert len(await engine.letters()) == 3


async def test_a_retried_event_does_not_undo_a_later_one(engine: Engine) -> None:
    await engine.subscribe(retry=ONCE)
    engine.plugins.always = fail_for("e1")
    await engine.emit("e1", subject="s")
    await parked(engine, 1)
    await engine.emit("e2", subject="s")
    await until(engine.claims)
    engine.plugins.always = routes
    await engine.ask("subscriptions.retry", subscription="claims")
    await no_backfill(engine)
    assert await engine.claims() == {"claim-s": "e2"}
    assert len(await engine.parts()) == 1
    last = (await engine.runs())[-1]
    assert (last.event_ids, last.status, last.source) == (["e1"], "succeeded", "")


async def test_a_paused_subscription_retries_when_it_is_resumed(engine: Engine) -> None:
    await engine.subscribe(retry=ONCE)
    engine.plugins.always = lambda request: failure()
    await engine.emit("e1")
    await parked(engine, 1)
    engine.plugins.always = routes
    await engine.ask("subscriptions.pause", subscription="claims")
    await engine.ask("subscriptions.retry", subscription="claims")
    await give_turns(50)
    assert len(engine.plugins.requests) == 1
    await engine.ask("subscriptions.resume", subscription="claims")
    await no_backfill(engine)
    assert await engine.claims() == {"claim-e1": "e1"}


# --- reset ----------------------------------------------------------------------------------------------------------


@BOTH_DATABASES
async def test_from_the_beginning(engine: Engine) -> None:
    await engine.subscribe(retry=ONCE)
    engine.plugins.always = fail_for("e2")
    await engine.emit("e1", "e2")
    await parked(engine, 1)
    engine.plugins.always = routes
    plan = await engine.ask("subscriptions.reset", subscription="claims", dryRun=True)
    assert (plan["from"], plan["to"], plan["again"], plan["skipped"]) == (2, 0, 2, 0)
    assert (plan["countIsExact"], plan["deadLetters"], plan["backfills"]) == (True, 1, 0)
    assert len(await engine.letters()) == 1, "a dry run changes nothing"
    answer = await engine.ask("subscriptions.reset", subscription="claims")
    assert answer == {"subscription": "claims", "group": "edge", "from": 2, "to": 0}
    await until(lambda: engine.plugins.given[-1] == ["e1", "e2"])
    await engine.rested()
    assert set(await engine.claims()) == {"claim-e1", "claim-e2"}
    assert await engine.letters() == [], "a reset removes the dead letters"


@BOTH_DATABASES
async def test_since_a_time(engine: Engine, clock: ManualClock) -> None:
    await engine.subscribe()
    await engine.emit("e1")
    await engine.ran(["e1"])
    clock.advance(600)
    await engine.emit("e2")
    await engine.ran(["e1"], ["e2"])
    clock.advance(60)
    await engine.ask("subscriptions.reset", subscription="claims", since="5m")
    await engine.ran(["e1"], ["e2"], ["e2"])
    with pytest.raises(Invalid, match="no event of group edge was stored since 10s"):
        await engine.ask("subscriptions.reset", subscription="claims", since="10s")


async def test_behind_everything(engine: Engine) -> None:
    await engine.subscribe(match={"subjectPrefixes": ["a"]})
    await engine.emit("a1", "b1")
    await engine.ran(["a1"])
    await engine.passed()
    await engine.ask("subscriptions.pause", subscription="claims")
    await engine.subscribe(match={"subjectPrefixes": ["a", "b"]})
    await engine.emit("a2")
    plan = await engine.ask("subscriptions.reset", subscription="claims", latest=True, dryRun=True)
    assert (plan["again"], plan["skipped"], plan["backfills"]) == (0, 1, 1)
    await engine.ask("subscriptions.reset", subscription="claims", latest=True)
    assert await engine.backfills() == [], "what was to be run late is passed over, too"
    assert (await engine.state())["state"] == "paused"
    await engine.ask("subscriptions.resume", subscription="claims")
    await engine.emit("a3")
    await engine.ran(["a1"], ["a3"])


async def test_a_reset_does_not_wait_for_an_open_window(engine: Engine, clock: ManualClock) -> None:
    await engine.subscribe(trigger={"batchWindow": "1h"})
    await engine.emit("e1")
    await engine.gathering(3600)
    await engine.ask("subscriptions.reset", subscription="claims", latest=True)
    await until(lambda: not clock.waits, "the window to be given up")
    clock.advance(3600)
    await engine.emit("e2")
    await engine.gathering(3600)
    clock.advance(3600)
    await engine.ran(["e2"])


@BOTH_DATABASES
async def test_a_reset_forgets_failures(engine: Engine) -> None:
    await engine.subscribe(retry={"maxAttempts": 3, "baseBackoff": "1m"})
    engine.plugins.always = lambda request: failure()
    await engine.emit("e1")
    await engine.gathering(60)
    await engine.rested()
    await engine.ask("subscriptions.reset", subscription="claims")
    await until(lambda: len(engine.plugins.requests) == 2)
    await engine.rested()
    assert [run.attempt for run in await engine.runs()] == [1, 1]


# --- nonsense -------------------------------------------------------------------------------------------------------


async def test_who_is_not_there_cannot_be_operated(engine: Engine) -> None:
    await engine.subscribe()
    for operation in ("retry", "reset", "pause", "resume"):
        for name in ("clams", "EventSubscription/clams"):
            with pytest.raises(NotFound) as caught:
                await engine.ask(f"subscriptions.{operation}", subscription=name)
            assert caught.value.message == "EventSubscription clams is not declared"
            assert caught.value.hint == "did you mean claims?"
        with pytest.raises(NotFound, match="EventSubscription claims is not declared in group other") as refused:
            await engine.ask(f"subscriptions.{operation}", subscription="claims", group="other")
        assert refused.value.hint == "it is in group edge"


async def test_nonsense_is_refused(engine: Engine) -> None:
    await engine.subscribe()
    nonsense: tuple[tuple[str, dict[str, Any], str], ...] = (
        ("reset", {"since": "1h", "latest": True}, "since and latest name two positions: leave one out"),
        ("runs", {"status": "done"}, "status: 'done' is not one of pending, succeeded, failed"),
        ("runs", {"limit": 0}, "greater than or equal to 1"),
        ("pause", {"by": "x" * 201}, "at most 200 characters"),
    )
    for operation, params, told in nonsense:
        with pytest.raises(ValidationError) as caught:
            await engine.ask(f"subscriptions.{operation}", subscription="claims", **params)
        assert told in str(caught.value)


async def test_a_time_that_is_none_is_refused(engine: Engine) -> None:
    await engine.subscribe()
    with pytest.raises(Invalid, match="since"):
        await engine.ask("subscriptions.reset", subscription="claims", since="yesterday")


# --- reading --------------------------------------------------------------------------------------------------------


async def shown(engine: Engine, **asked: Any) -> dict[str, Any]:
    answer: dict[str, Any] = await engine.ask("subscriptions.runs", subscription="claims", **asked)
    return answer


@BOTH_DATABASES
async def test_runs_are_listed_the_newest_first_in_pages(engine: Engine) -> None:
    await engine.subscribe()
    for number in range(5):
        await engine.emit(f"e{number}")
        await until(lambda count=number: len(engine.plugins.requests) == count + 1)
        await engine.rested()
    first = await shown(engine, limit=2)
    assert [row["eventId"] for row in first["runs"]] == ["e4", "e3"]
    second = await shown(engine, limit=2, before=first["next"])
    assert [row["eventId"] for row in second["runs"]] == ["e2", "e1"]
    third = await shown(engine, limit=2, before=second["next"])
    assert [row["eventId"] for row in third["runs"]] == ["e0"]
    assert third["next"] is None
    assert await shown(engine, limit=2, status="failed") == {"runs": [], "next": None}, "all pages were looked through"
    row = third["runs"][0]
    assert row == {
        "id": row["id"],
        "subscription": "EventSubscription/claims",
        "eventId": "e0",
        "group": "edge",
        "plugin": "routes",
        "status": "succeeded",
        "outcome": "succeeded",
        "attempts": 1,
        "startedAt": "2026-11-20T12:00:00Z",
        "completedAt": "2026-11-20T12:00:00Z",
        "dynamicSource": row["dynamicSource"],
        "dynamicGeneration": 1,
        "error": "",
    }


@BOTH_DATABASES
async def test_an_event_is_shown_as_it_stands(engine: Engine) -> None:
    await engine.subscribe(retry={"maxAttempts": 3, "baseBackoff": "1s", "maxBackoff": "1s"})
    engine.plugins.answers.append(failure())
    await engine.emit("e1")
    await engine.gathering(1)
    await engine.rested()
    assert [(row["status"], row["attempts"]) for row in (await shown(engine))["runs"]] == [("failed", 1)]
    engine.clock.advance(1)
    await engine.ran(["e1"], ["e1"])
    assert [(row["status"], row["attempts"]) for row in (await shown(engine))["runs"]] == [("succeeded", 2)]
    assert (await shown(engine, status="failed"))["runs"] == [], "it has succeeded since"
    history = (await shown(engine, eventId="e1"))["runs"]
    assert [(row["status"], row["attempts"]) for row in history] == [("succeeded", 2), ("failed", 1)]


async def test_one_event_is_found_however_old(engine: Engine) -> None:
    odd = 'e"1\\%_'
    await engine.subscribe()
    await engine.emit(odd)
    await engine.ran([odd])
    for number in range(4):
        await engine.emit(f"e{number}")
        await until(lambda count=number: len(engine.plugins.requests) == count + 2)
    await engine.rested()
    found = await shown(engine, eventId=odd, limit=1)
    assert [row["eventId"] for row in found["runs"]] == [odd]
    assert (await shown(engine, eventId='e"1\\xy'))["runs"] == []
    assert (await shown(engine, group="other"))["runs"] == []


@BOTH_DATABASES
async def test_runs_of_a_deleted_subscription_stay(engine: Engine) -> None:
    await engine.subscribe()
    await engine.emit("e1")
    await engine.ran(["e1"])
    await engine.delete("EventSubscription", "claims")
    assert [row["eventId"] for row in (await shown(engine))["runs"]] == ["e1"]


@BOTH_DATABASES
async def test_states_are_listed_by_group_and_name(engine: Engine) -> None:
    await engine.apply(
        group("onprem"),
        group("onprem", name="alpha"),
        plugin("/bin/true"),
        subscription("t", name="b"),
        subscription("t", name="a"),
        subscription("t", name="z", group="alpha"),
    )
    rows = (await engine.ask("subscriptions.list"))["subscriptions"]
    assert [(row["group"], row["subscription"]) for row in rows] == [("alpha", "z"), ("edge", "a"), ("edge", "b")]
    assert {(row["phase"], row["state"], row["lastRun"]) for row in rows} == {("Idle", "running", None)}
    rows = (await engine.ask("subscriptions.list", group="alpha"))["subscriptions"]
    assert [row["subscription"] for row in rows] == ["z"]
    with pytest.raises(NotFound, match="nobody"):
        await engine.ask("subscriptions.list", group="nobody")


# --- gaps -----------------------------------------------------------------------------------------------------------


@BOTH_DATABASES
async def test_what_retention_took_is_told(engine: Engine, clock: ManualClock) -> None:
    await engine.subscribe()
    await engine.emit("e0")
    await engine.ran(["e0"])
    await engine.ask("subscriptions.pause", subscription="claims")
    await engine.emit("e1", "e2", "e3")
    topic = await engine.log.topic("group:edge")
    await engine.log.database.write(evict, topic, EvictionLimits(max_records=1), now=clock.now())
    await engine.ask("subscriptions.resume", subscription="claims")
    await engine.ran(["e0"], ["e3"])
    lost = (await engine.runs())[1]
    assert (lost.status, lost.after, lost.upto, lost.event_ids, lost.completed_at) == ("lost", 1, 3, [], NOW)
    assert lost.error == "retention removed the events from position 2 to 3: no run will receive them"
    rows = (await shown(engine, status="failed"))["runs"]
    assert [(row["eventId"], row["outcome"]) for row in rows] == [("", "lost")]


async def test_a_new_subscription_has_lost_nothing(engine: Engine, clock: ManualClock) -> None:
    await engine.apply(group("onprem"), plugin("/bin/true"))
    await engine.emit("e1", "e2")
    topic = await engine.log.topic("group:edge")
    await engine.log.database.write(evict, topic, EvictionLimits(max_records=1), now=clock.now())
    await engine.apply(subscription(OBSERVED))
    await engine.ran(["e2"])
    assert await engine.statuses() == ["succeeded"]
