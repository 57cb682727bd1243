"""The runs of a subscription's plugin, and their events: windows, coalescing, selection."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from eventd.log.core import matching_page
from eventd.log.core.eventlog import EventLog
from eventd.runtime.clock import SECOND
from eventd.testing import NOW, ManualClock, draft, give_turns, until
from tests.contract.egress.conftest import BOTH_DATABASES
from tests.support.declared import group
from tests.support.derived import EXPIRED, OBSERVED, plugin, subscription
from tests.support.engine import Engine, route

MS = 0.001


"""For what has nothing to do with the database: once is enough."""


@pytest.fixture
async def engine(log: EventLog, clock: ManualClock) -> AsyncIterator[Engine]:
    made = Engine(log, clock)
    yield made
    await made.close()


@BOTH_DATABASES
async def test_an_event_becomes_a_part_at_once_and_only_once(engine: Engine) -> None:
    await engine.subscribe()
    await engine.emit("e1", subject="10.88.60.9/32")
    await engine.ran(["e1"])
    (part,) = await engine.parts()
    assert part.source == "EventSubscription/claims/8b5cc4df7eec7d32"
    (run,) = await engine.runs()
    assert (run.status, run.attempt, run.source, run.generation) == ("succeeded", 1, part.source, 1)
    assert (await engine.cursor()).position == 1
    request = engine.plugins.requests[0]
    assert (request.trigger, request.topic) == ("federation-subscription", "routerd.federation.subscription/claims")
    await until(lambda: engine.changes == 1)  # counted when the loop learns of the commit
    assert engine.told.runs == [("edge", "claims", "succeeded", 1)]
    await engine.restart()
    await engine.emit("e1", subject="10.88.60.9/32")
    await give_turns()
    await engine.ran(["e1"])
    assert len(await engine.parts()) == 1


# --- windows --------------------------------------------------------------------------------------------------------


async def test_events_of_one_window_are_one_run(engine: Engine, clock: ManualClock) -> None:
    await engine.subscribe(trigger={"batchWindow": "80ms"})
    await engine.emit("e1")
    await engine.gathering(80 * MS)
    clock.advance(30 * MS)
    await engine.emit("e2")
    await engine.gathering(50 * MS)
    clock.advance(49 * MS)
    await give_turns()
    assert engine.plugins.given == []
    clock.advance(1 * MS)
    await engine.ran(["e1", "e2"])


async def test_an_event_puts_off_the_end_of_a_debounce(engine: Engine, clock: ManualClock) -> None:
    await engine.subscribe(trigger={"debounce": "80ms"})
    await engine.emit("e1")
    await engine.gathering(80 * MS)
    clock.advance(50 * MS)
    await engine.emit("e2")
    await engine.gathering(80 * MS)
    clock.advance(79 * MS)
    await give_turns()
    assert engine.plugins.given == []
    clock.advance(1 * MS)
    await engine.ran(["e1", "e2"])


async def test_both_together_close_at_whichever_is_first(engine: Engine, clock: ManualClock) -> None:
    await engine.subscribe(trigger={"batchWindow": "100ms", "debounce": "60ms"})
    await engine.emit("e1")
    await engine.gathering(60 * MS)
    clock.advance(50 * MS)
    await engine.emit("e2")
    await engine.gathering(50 * MS)
    clock.advance(50 * MS)
    await engine.ran(["e1", "e2"])
    await engine.emit("e3")
    await engine.gathering(60 * MS)
    clock.advance(60 * MS)
    await engine.ran(["e1", "e2"], ["e3"])


async def test_a_debounce_alone_lasts_a_minute_at_most(engine: Engine, clock: ManualClock) -> None:
    await engine.subscribe(trigger={"debounce": "20s"})
    for number, wait in enumerate((20, 20, 20, 15)):
        await engine.emit(f"e{number}")
        await engine.gathering(wait)
        clock.advance(15)
    await engine.ran(["e0", "e1", "e2", "e3"])


async def test_what_does_not_concern_it_puts_nothing_off(engine: Engine, clock: ManualClock) -> None:
    await engine.subscribe(trigger={"debounce": "80ms"})
    await engine.emit("e1")
    await engine.gathering(80 * MS)
    clock.advance(50 * MS)
    await engine.emit("other", type="something.else")
    await engine.gathering(30 * MS)
    clock.advance(30 * MS)
    await engine.ran(["e1"])


async def test_a_full_window_closes_at_once_and_the_rest_comes_next(engine: Engine, clock: ManualClock) -> None:
    await engine.subscribe(trigger={"batchWindow": "10s"})
    await engine.emit(*[f"e{number:04}" for number in range(600)])
    await engine.gathering(10)
    await engine.emit(*[f"e{number:04}" for number in range(600, 1100)])
    await until(lambda: len(engine.plugins.given) == 1)
    assert engine.plugins.given[0] == [f"e{number:04}" for number in range(1024)]
    await engine.gathering(10)
    clock.advance(10)
    await until(lambda: len(engine.plugins.given) == 2)
    assert engine.plugins.given[1] == [f"e{number:04}" for number in range(1024, 1100)]


async def test_four_mebibytes_are_enough(engine: Engine) -> None:
    await engine.subscribe(trigger={"batchWindow": "10s"})
    for first in range(0, 140, 20):
        ids = [f"e{number:03}" for number in range(first, first + 20)]
        await engine.emit(*ids, payload={"text": "x" * 40_000})
    await until(lambda: len(engine.plugins.given) == 1)
    assert 100 <= len(engine.plugins.given[0]) <= 106, "as many as hold 4 MiB"
    await engine.gathering(10)


@BOTH_DATABASES
async def test_a_window_survives_a_restart_and_closes_when_it_would_have(engine: Engine, clock: ManualClock) -> None:
    await engine.subscribe(trigger={"batchWindow": "80ms"})
    await engine.emit("e1")
    await engine.gathering(80 * MS)
    clock.advance(30 * MS)
    await engine.restart()
    await engine.gathering(50 * MS)
    await engine.emit("e2")
    clock.advance(50 * MS)
    await engine.ran(["e1", "e2"])
    assert len(await engine.runs()) == 1


async def test_stopping_does_not_wait_for_a_window(engine: Engine, clock: ManualClock) -> None:
    await engine.subscribe(trigger={"batchWindow": "1h"})
    await engine.emit("e1")
    await engine.gathering(3600)
    await engine.stop(5.0)  # the clock stands still: a wait for the window would never end
    assert await engine.runs() == []
    clock.advance(3600)
    await engine.restart()
    await engine.ran(["e1"])


async def test_a_stop_begins_no_run(engine: Engine) -> None:
    await engine.subscribe()
    held = engine.plugins.hold()
    await engine.emit("e1")
    await until(lambda: engine.plugins.running)
    await engine.emit("e2")
    stopping = engine.spawn(engine.stop(5.0), "stop")
    await give_turns()
    held.set_result(engine.plugins.always)
    await stopping
    assert engine.plugins.given == [["e1"]]
    assert await engine.statuses() == ["succeeded"], "what ran has ended in peace"
    await engine.restart()
    await engine.ran(["e1"], ["e2"])


async def test_pausing_in_an_open_window_loses_nothing(engine: Engine, clock: ManualClock) -> None:
    await engine.subscribe(trigger={"batchWindow": "10s"})
    await engine.emit("e1")
    await engine.gathering(10)
    await engine.ask("subscriptions.pause", subscription="claims", by="maya")
    await until(lambda: not clock.waits, "no run to wait for the window")
    clock.advance(60)
    await engine.emit("e2")
    await give_turns()
    assert engine.plugins.given == []
    state = await engine.state()
    assert (state["state"], state["pausedBy"], state["waitingEvents"], state["waitingSeconds"]) == (
        "paused", "maya", 2, 60.0,
    )  # fmt: skip
    await engine.ask("subscriptions.resume", subscription="claims")
    await engine.ran(["e1", "e2"])


async def test_a_window_does_not_wait_for_a_clock_that_was_set_back(engine: Engine, clock: ManualClock) -> None:
    await engine.subscribe(trigger={"batchWindow": "10s"})
    await engine.emit("e1")
    await engine.gathering(10)
    clock.set_wall(NOW - 3600 * SECOND)
    await engine.emit("e2")
    await engine.gathering(10)
    clock.advance(10)
    await engine.ran(["e2", "e1"])  # by time of observation, and by that clock e2 is the earlier one


@pytest.mark.parametrize("step", [-86400, 86400])
async def test_a_step_of_the_wall_clock_moves_no_window(engine: Engine, clock: ManualClock, step: int) -> None:
    await engine.subscribe(trigger={"batchWindow": "100s", "debounce": "60s"})
    await engine.emit("e1")
    await engine.gathering(60)
    clock.advance(50)
    await give_turns()
    clock.set_wall(clock.now() + step * SECOND)
    await engine.emit("e2")
    await engine.gathering(50)
    clock.advance(49)
    await give_turns()
    assert engine.plugins.given == []
    clock.advance(1)
    await until(lambda: engine.plugins.given)
    assert sorted(engine.plugins.given[0]) == ["e1", "e2"]


async def test_a_new_declaration_of_the_window_holds_for_the_open_one(engine: Engine, clock: ManualClock) -> None:
    await engine.subscribe(trigger={"batchWindow": "1h"})
    await engine.emit("e1")
    await engine.gathering(3600)
    clock.advance(2)
    await engine.subscribe(trigger={"batchWindow": "5s"})
    await engine.gathering(3)
    clock.advance(3)
    await engine.ran(["e1"])


async def test_what_expires_in_the_window_is_not_run(engine: Engine, clock: ManualClock) -> None:
    await engine.subscribe(trigger={"batchWindow": "10s"})
    await engine.emit("short", ttl="5s")
    await engine.emit("long", ttl="1h")
    await engine.gathering(10)
    clock.advance(10)
    await engine.ran(["long"])
    assert [run.event_ids for run in await engine.runs()] == [["long"]]


async def test_a_window_in_which_everything_expires_is_no_run(engine: Engine, clock: ManualClock) -> None:
    await engine.subscribe(trigger={"batchWindow": "10s"})
    await engine.emit("short", ttl="5s")
    await engine.gathering(10)
    clock.advance(10)
    await engine.passed()
    assert engine.plugins.given == []
    assert await engine.runs() == []


# --- coalescing -----------------------------------------------------------------------------------------------------


@BOTH_DATABASES
async def test_of_events_with_one_key_the_last_goes_and_every_id_is_accounted_for(
    engine: Engine, clock: ManualClock
) -> None:
    await engine.subscribe(trigger={"batchWindow": "1s"})
    await engine.emit("a1", "a2", "a3", dedupeKey="a", subject="s")
    await engine.emit("b1", dedupeKey="b")
    await engine.emit("a4", dedupeKey="a", subject="s")
    await engine.gathering(1)
    clock.advance(1)
    await engine.ran(["a4", "b1"])
    (run,) = await engine.runs()
    assert sorted([*run.event_ids, *run.coalesced]) == ["a1", "a2", "a3", "a4", "b1"]
    assert await engine.claims() == {"claim-s": "a4", "claim-b1": "b1"}
    shown = (await engine.ask("subscriptions.runs", subscription="claims", eventId="a2"))["runs"]
    assert [(row["eventId"], row["status"], row["outcome"]) for row in shown] == [("a2", "succeeded", "coalesced")]


async def test_a_key_is_one_of_a_type(engine: Engine, clock: ManualClock) -> None:
    await engine.subscribe(OBSERVED, "t", trigger={"batchWindow": "1s"})
    await engine.emit("a1", dedupeKey="a")
    await engine.emit("a2", dedupeKey="a", type="t")
    await engine.gathering(1)
    clock.advance(1)
    await engine.ran(["a1", "a2"])


async def test_a_thousand_and_more_of_one_key_are_one_event(engine: Engine, clock: ManualClock) -> None:
    await engine.subscribe(trigger={"batchWindow": "5s"})
    ids = [f"a{number:04}" for number in range(3000)]
    await engine.emit(*ids, dedupeKey="a", subject="s")
    await engine.gathering(5)
    clock.advance(5)
    await engine.ran(["a2999"])
    (run,) = await engine.runs()
    assert sorted([*run.event_ids, *run.coalesced]) == ids


@BOTH_DATABASES
async def test_a_refresh_runs_again_and_renews_the_part(engine: Engine, clock: ManualClock) -> None:
    await engine.subscribe()
    await engine.emit("e1", ttl="300s")
    await engine.ran(["e1"])
    before = (await engine.parts())[0]
    clock.advance(200)
    await engine.emit("e1", ttl="300s")
    await engine.ran(["e1"], ["e1"])
    (after,) = await engine.parts()
    assert (after.source, after.id) == (before.source, before.id)
    assert after.expires_at == before.expires_at + 200 * SECOND


async def test_a_new_id_for_the_same_thing_renews_the_claim(engine: Engine, clock: ManualClock) -> None:
    await engine.subscribe()
    await engine.emit("e1", subject="s")
    await engine.ran(["e1"])
    clock.advance(60)
    await engine.emit("e2", subject="s")
    await engine.ran(["e1"], ["e2"])
    (part,) = await engine.parts()
    assert part.event_ids == ["e2"]
    assert [held.since for held in part.claims.values()] == [NOW], "held without a break"
    assert await engine.claims() == {"claim-s": "e2"}


async def test_nothing_to_propose_is_no_part(engine: Engine) -> None:
    from tests.support.engine import answer_with

    await engine.subscribe()
    engine.plugins.always = answer_with()
    await engine.emit("e1")
    await engine.ran(["e1"])
    assert await engine.parts() == []
    (run,) = await engine.runs()
    assert (run.status, run.source, run.generation) == ("succeeded", "", None)


# --- selection ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("match", "taken"),
    [
        ({}, ["b1", "e1", "e2", "e3", "e4"]),
        ({"types": ["routerd.client.*"]}, ["b1", "e1", "e2", "e3", "e4", "e5"]),
        ({"types": ["*"]}, ["b1", "e1", "e2", "e3", "e4", "e5", "e6"]),
        ({"types": ["routerd.client"]}, []),
        ({"subjectPrefixes": ["10.", "11."]}, ["e1", "e2"]),
        ({"payload": {"state": "up"}}, ["e3"]),
        ({"payload": {"state": ""}}, ["b1", "e1", "e2", "e4"]),
        ({"payload": {"state": "up", "site": "x"}}, []),
        ({"sourceNodes": ["b"]}, ["b1"]),
    ],
)
async def test_what_is_asked_for_is_given_and_nothing_else(
    engine: Engine, clock: ManualClock, match: dict[str, Any], taken: list[str]
) -> None:
    await engine.apply(group("onprem"), plugin("/bin/true"))
    await engine.emit("e1", subject="10.0.0.1/32")
    await engine.emit("e2", subject="11.0.0.1/32")
    await engine.emit("e3", subject="12.0.0.1/32", payload={"state": "up"})
    await engine.emit("e4", payload={"state": ""})
    await engine.emit("e5", type="routerd.client.ipv6.seen")
    await engine.emit("e6", type="routerd.clients.ipv6.seen")
    topic = await engine.log.topic("group:edge")
    await engine.log.append(topic, [draft("b1", group="edge", node="b", type=OBSERVED, path="b")])
    asked = {"types": [OBSERVED]} | match
    await engine.apply(subscription(match=asked, trigger={"batchWindow": "1s"}))
    clock.advance(1)
    if taken:
        await engine.ran(taken)
    await engine.passed()
    assert sorted(id for ids in engine.plugins.given for id in ids) == sorted(taken)


async def test_what_has_expired_is_not_run(engine: Engine, clock: ManualClock) -> None:
    await engine.apply(group("onprem"), plugin("/bin/true"))
    await engine.emit("old", ttl="1s")
    clock.advance(2)
    await engine.emit("new", ttl="1m")
    await engine.apply(subscription())
    await engine.ran(["new"])


async def test_narrowing_recalls_nothing(engine: Engine) -> None:
    await engine.subscribe()
    await engine.emit("e1", "e2")
    await engine.ran(["e1", "e2"])
    before = await engine.claims()
    await engine.subscribe(match={"subjectPrefixes": ["e1"]})
    await engine.emit("e3", "e1b")
    await engine.ran(["e1", "e2"], ["e1b"])
    assert await engine.claims() == before | {"claim-e1b": "e1b"}


async def test_widening_brings_exactly_what_was_left_out(engine: Engine) -> None:
    await engine.subscribe(match={"subjectPrefixes": ["a"]})
    await engine.emit("a1", "b1", "c1", "a2", "b2")
    await engine.ran(["a1", "a2"])
    await engine.passed()
    await engine.subscribe(match={"subjectPrefixes": ["a", "b"]})
    await engine.ran(["a1", "a2"], ["b1", "b2"])
    await until(lambda: not_any(engine), "the backfill to end")
    await engine.emit("b3", "c2")
    await engine.ran(["a1", "a2"], ["b1", "b2"], ["b3"])


async def not_any(engine: Engine) -> bool:
    return not await engine.backfills()


@BOTH_DATABASES
async def test_widening_holds_across_a_restart(engine: Engine) -> None:
    await engine.subscribe(match={"subjectPrefixes": ["a"]})
    await engine.emit("a1", "b1", "b2")
    await engine.ran(["a1"])
    await engine.passed()
    held = engine.plugins.hold()
    await engine.subscribe(match={"subjectPrefixes": ["a", "b"]})
    await until(lambda: engine.plugins.running)
    await engine.stop(0.0)
    assert not held.done() or held.cancelled()
    assert (await engine.statuses())[-1] == "interrupted"
    await engine.restart()
    await engine.ran(["a1"], ["b1", "b2"], ["b1", "b2"])
    await until(lambda: not_any(engine), "the backfill to end")
    assert (await engine.runs())[-1].attempt == 1, "a stop is no try"
    await engine.restart()
    await engine.ran(["a1"], ["b1", "b2"], ["b1", "b2"])


async def test_widening_while_the_node_is_down(engine: Engine) -> None:
    await engine.subscribe(match={"subjectPrefixes": ["a"]})
    await engine.emit("a1", "b1")
    await engine.ran(["a1"])
    await engine.passed()
    await engine.stop()
    await engine.subscribe(match={"subjectPrefixes": ["b"]})
    await engine.restart()
    await engine.ran(["a1"], ["b1"])


async def test_narrowing_again_ends_what_a_widening_has_begun(engine: Engine) -> None:
    await engine.subscribe(match={"subjectPrefixes": ["a"]})
    await engine.emit("a1", "b1", "c1")
    await engine.ran(["a1"])
    await engine.passed()
    await engine.ask("subscriptions.pause", subscription="claims")
    await engine.subscribe(match={"subjectPrefixes": ["a", "b", "c"]})
    await give_turns()
    assert engine.plugins.given == [["a1"]], "a backfill is paused with its subscription"
    await engine.subscribe(match={"subjectPrefixes": ["a", "c"]})
    await engine.ask("subscriptions.resume", subscription="claims")
    await engine.ran(["a1"], ["c1"])
    await until(lambda: not_any(engine), "the backfill to end")


async def test_events_that_are_run_late_do_not_undo_later_ones(engine: Engine) -> None:
    await engine.subscribe(match={"payload": {"state": "up"}})
    await engine.emit("old", subject="s", payload={"state": "down"})
    await engine.emit("other", subject="t", payload={"state": "down"})
    await engine.emit("gone", subject="s", type=EXPIRED)
    await engine.emit("new", subject="s", payload={"state": "up"})
    await engine.ran(["new"])
    await engine.passed()
    await engine.subscribe()
    await engine.ran(["new"], ["old", "other"])
    await until(lambda: not_any(engine), "the backfill to end")
    assert await engine.claims() == {"claim-s": "new", "claim-t": "other"}
    assert [part.ends for part in await engine.parts() if part.event_ids == ["new"]] == [{}]


async def test_turning_withdrawal_on_ends_only_what_is_not_observed_again(engine: Engine, clock: ManualClock) -> None:
    await engine.subscribe(lifetime={"withdrawOnExpired": False})
    await engine.emit("a1", subject="a")
    await engine.ran(["a1"])
    await engine.emit("b1", subject="b")
    await engine.ran(["a1"], ["b1"])
    await engine.emit("a-gone", subject="a", type=EXPIRED)
    await engine.emit("b-gone", subject="b", type=EXPIRED)
    await engine.emit("b2", subject="b")
    await engine.ran(["a1"], ["b1"], ["b2"])
    await engine.passed()
    await engine.subscribe()
    await until(lambda: not_any(engine), "the backfill to end")
    clock.advance(31)
    assert await engine.claims() == {"claim-b": "b2"}


# --- what it costs --------------------------------------------------------------------------------------------------


async def test_fifty_that_nothing_concerns_take_no_block_apart_and_leave_the_database_alone(
    engine: Engine, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = [subscription(f"kind.{number}.*", name=f"s{number}") for number in range(50)]
    await engine.apply(group("onprem"), plugin("/bin/true"), *some)
    await engine.emit("first", type="kind.none")
    for number in range(50):
        await engine.passed(name=f"s{number}")
    topic = await engine.log.topic("group:edge")
    asked: list[str] = []
    taken_apart: list[int] = []
    for name in ("read", "read_for_delivery", "write"):
        monkeypatch.setattr(engine.log.database, name, noting(asked, name, getattr(engine.log.database, name)))
    monkeypatch.setattr(engine.log, "submit", noting(asked, "submit", engine.log.submit))
    monkeypatch.setattr(matching_page, "unpack", noting(taken_apart, 1, matching_page.unpack))
    for seconds in (1, 5, 60):
        clock.advance(seconds)
        await give_turns(50)
    assert asked == []
    for first in (0, 10, 20):
        ids = [f"e{number}" for number in range(first, first + 10)]
        await engine.log.append(topic, [draft(each, group="edge", type="kind.none") for each in ids])
        if first == 0:  # after so long a rest each writes down that it has passed something; not again for seconds
            await until(lambda: len(asked) >= 1 + 50)
            asked.clear()
        await give_turns(200)
    assert taken_apart == []
    assert asked == ["submit", "submit"], "the appends, and nothing else"
    await engine.log.append(topic, [draft("mine", group="edge", type="kind.7.x", subject="s")])
    await until(lambda: engine.plugins.given == [["mine"]])
    assert len(taken_apart) == 1


def noting(notes: list[Any], name: Any, method: Any) -> Any:
    def noted(*args: Any, **kwargs: Any) -> Any:
        notes.append(name)
        return method(*args, **kwargs)

    return noted


def test_resources_of_these_tests_name_their_event() -> None:
    from eventd.testing import event

    assert route(event("e1", subject="s"))["metadata"]["name"] == "claim-s"
