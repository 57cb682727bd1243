"""A part, the events of its run, the run's row and the cursor's step are one transaction: all or nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from eventd.api.framework.operations import Services
from eventd.egress.subscriptions import run_effect
from eventd.errors import DatabaseUnavailable
from eventd.log.core import commit, units
from eventd.log.core.eventlog import EventLog
from eventd.resources.group_configuration import topic_of
from eventd.runtime.clock import SECOND
from eventd.testing import NOW, ManualClock, draft, give_turns, until
from tests.contract.egress.conftest import BOTH_DATABASES
from tests.support import operations
from tests.support.declared import group
from tests.support.derived import EXPIRED, OBSERVED, plugin, subscription
from tests.support.engine import Engine, answer_with, failure, route, routes
from tests.support.stored import read_stored

SEEN = "lab.seen"
FACT = {"type": SEEN, "subject": "x", "message": "seen", "attributes": {"n": "1"}}


"""For what has nothing to do with the database: once is enough."""


@pytest.fixture
async def engine(log: EventLog, clock: ManualClock) -> AsyncIterator[Engine]:
    made = Engine(log, clock)
    yield made
    await made.close()


async def emitted(engine: Engine) -> list[str]:
    return [record.event_id for record in await engine.records() if record.tag == SEEN]


async def consistent(engine: Engine, position: int) -> None:
    """Either everything of the run is there, or nothing."""
    moved = (await engine.cursor()).position >= position
    succeeded = (await engine.statuses()).count("succeeded")
    found = (moved, len(await engine.parts(live=False)), len(set(await emitted(engine))), succeeded)
    assert found in ((True, 1, 1, 1), (False, 0, 0, 0)), found


Breaks = Callable[[pytest.MonkeyPatch], None]


def _once(patch: pytest.MonkeyPatch, owner: Any, name: str, error: Exception, *, after: bool = False) -> None:
    method = getattr(owner, name)
    spent: list[int] = []

    def broken(*args: Any, **kwargs: Any) -> Any:
        if spent:
            return method(*args, **kwargs)
        spent.append(1)
        if after:
            method(*args, **kwargs)
        raise error

    patch.setattr(owner, name, broken)


FAULT, DOWN = RuntimeError("a fault of ours"), DatabaseUnavailable("gone")
STEPS = (
    (run_effect, "refuse_captured"),
    (run_effect, "require_room"),
    (units, "apply_step"),
    (run_effect, "put_part"),
    (run_effect, "end_run"),
    (commit, "move_head"),
    (commit, "notify_head"),
)


@BOTH_DATABASES
@pytest.mark.parametrize(
    ("owner", "name", "error", "after"),
    [
        *[(*step, FAULT, False) for step in STEPS[::2]],
        *[(*step, FAULT, True) for step in STEPS[1::2]],
        (units, "apply_step", DOWN, False),
        (commit, "move_head", DOWN, True),
    ],
    ids=lambda found: getattr(found, "__name__", str(found)),
)
async def test_whatever_fails_at_settling_nothing_is_half_done(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, error: Exception, after: bool
) -> None:
    await engine.subscribe(retry={"maxAttempts": 1})
    engine.plugins.always = lambda request: answer_with(route(request.events[0]), events=[FACT])(request)
    told = engine.plugins.hold()
    await engine.emit("e1")
    await until(lambda: engine.plugins.running)
    _once(monkeypatch, owner, name, error, after=after)
    told.set_result(engine.plugins.always)
    await give_turns()
    await until(lambda: engine.clock.waits or not engine.plugins.running)
    await engine.rested()
    await consistent(engine, 1)

    async def done() -> bool:
        engine.clock.advance(60)
        return bool(await engine.parts(live=False))

    await until(done, "the run to be settled in the end")
    await engine.rested()
    await consistent(engine, 1)
    assert await engine.letters() == [], "what could not be settled is no failure of the event"
    assert {run.attempt for run in await engine.runs()} == {1}


@BOTH_DATABASES
async def test_a_reset_while_the_plugin_runs_makes_the_run_void(engine: Engine) -> None:
    await engine.subscribe()
    told = engine.plugins.hold()
    await engine.emit("e1", "e2")
    await until(lambda: engine.plugins.running)
    await engine.ask("subscriptions.reset", subscription="claims", latest=True)
    assert told.cancelled(), "it is ended at once"
    await give_turns()
    assert await engine.parts() == []
    (run,) = await engine.runs()
    assert (run.status, run.completed_at) == ("interrupted", NOW)
    assert "reset" in run.error
    await engine.emit("e3")
    await engine.ran(["e1", "e2"], ["e3"])
    assert await engine.statuses() == ["interrupted", "succeeded"]


@BOTH_DATABASES
async def test_another_process_resets_it_while_the_plugin_runs(engine: Engine) -> None:
    """The node has not taken notice yet: what it settles is refused."""
    await engine.subscribe()
    told = engine.plugins.hold()
    await engine.emit("e1")
    await until(lambda: engine.plugins.running)
    await operations.run(Services(engine.log), "subscriptions.reset", subscription="claims", latest=True)
    told.set_result(routes)
    await engine.rested()
    assert await engine.parts() == []
    assert await engine.statuses() == ["interrupted"]
    assert (await engine.cursor()).position == 1
    await engine._take_over()
    await engine.emit("e2")
    await engine.ran(["e1"], ["e2"])


@BOTH_DATABASES
async def test_a_subscription_that_is_deleted_while_its_plugin_runs_leaves_nothing(engine: Engine) -> None:
    await engine.subscribe()
    told = engine.plugins.hold()
    await engine.emit("e1")
    await until(lambda: engine.plugins.running)
    await engine.delete("EventSubscription", "claims")
    assert told.cancelled()
    await give_turns()
    assert await engine.parts() == []
    assert await engine.statuses() == ["interrupted"]


# --- events that runs emit ------------------------------------------------------------------------------------------


@BOTH_DATABASES
async def test_a_fact_enters_the_log_with_the_part(engine: Engine) -> None:
    await engine.subscribe()
    engine.plugins.always = answer_with(events=[FACT, {**FACT, "ttl": "5m", "dedupeKey": "k"}])
    await engine.emit("e1")
    await engine.ran(["e1"])
    facts = [record for record in await engine.records() if record.tag == SEEN]
    assert len({fact.event_id for fact in facts}) == 2
    assert {fact.node for fact in facts} == {"onprem"}
    assert [(fact.expires_at or 0) - NOW for fact in facts] == [600 * SECOND, 300 * SECOND]
    assert '"routerd.net/derived-by":"onprem/claims"' in facts[0].body
    assert '"message":"seen"' in facts[0].body


async def test_the_same_said_again_is_no_second_fact(engine: Engine) -> None:
    await engine.subscribe()
    engine.plugins.always = answer_with(events=[FACT], ttl=60 * SECOND)
    await engine.emit("e1")
    await engine.ran(["e1"])
    await engine.ask("subscriptions.reset", subscription="claims")
    await engine.ran(["e1"], ["e1"])
    assert len(await emitted(engine)) == 1


async def test_something_else_said_of_the_same_event_is_another_fact(engine: Engine) -> None:
    await engine.subscribe()
    said = iter("12")
    engine.plugins.always = lambda request: answer_with(events=[{**FACT, "attributes": {"n": next(said)}}])(request)
    await engine.emit("e1", ttl="1m")
    await engine.ran(["e1"])
    await engine.emit("e1", ttl="2m")
    await engine.ran(["e1"], ["e1"])
    assert len(set(await emitted(engine))) == 2, "the later word must not get lost"


async def test_a_name_that_is_taken_is_told(engine: Engine) -> None:
    await engine.subscribe()
    await engine.emit("mine", type="other")
    engine.plugins.always = lambda request: answer_with(route(request.events[0]), events=[{**FACT, "id": "mine"}])(
        request
    )
    await engine.emit("e1")
    await engine.ran(["e1"])
    (run,) = await engine.runs()
    assert run.status == "succeeded"
    assert run.error == "events not stored, because others have the same ids: mine"


BAD_FACTS: tuple[dict[str, Any], ...] = (
    {"type": " "},
    {**FACT, "ttl": "soon"},
    {**FACT, "expiresAt": "today"},
    {**FACT, "payload": {"deep": {"er": 1}}},
    {**FACT, "subject": "x" * 600},
    {**FACT, "payload": {"large": "x" * 3_000_000}},
)


async def test_a_fact_that_cannot_be_stored_fails_the_run(engine: Engine) -> None:
    await engine.subscribe(retry={"maxAttempts": 1})
    for number, bad in enumerate(BAD_FACTS):
        engine.plugins.always = lambda request, bad=bad: answer_with(route(request.events[0]), events=[bad])(request)  # type: ignore[misc]
        await engine.emit(f"e{number}")
        await until(lambda count=number + 1: _has_letters(engine, count), "a dead letter")  # type: ignore[misc]
        event, reason, _, words = (await engine.letters())[-1]
        assert (event, reason) == (f"e{number}", "bad_event")
        assert "status.events[0]" in words
        assert await engine.parts() == []
        run = (await engine.runs())[-1]
        assert (run.exit_code, len(run.stdout_digest)) == (0, 64), "the run is reported all the same"


async def _has_letters(engine: Engine, count: int) -> bool:
    return len(await engine.letters()) == count


async def test_one_that_asks_for_what_it_says_does_not_go_in_a_circle(engine: Engine) -> None:
    await engine.subscribe("*")
    engine.plugins.always = lambda request: answer_with(
        events=[{**FACT, "attributes": {"of": one.id}} for one in request.events]
    )(request)
    await engine.emit("e1")
    await engine.ran(["e1"])
    await engine.passed()
    await engine.ran(["e1"])
    assert len(await emitted(engine)) == 1


async def test_two_that_feed_each_other_do_not_go_in_a_circle(engine: Engine) -> None:
    await engine.apply(
        group("onprem"),
        plugin("/bin/true"),
        subscription("ping", "pong", name="one"),
        subscription("ping", "pong", name="two"),
    )
    engine.plugins.always = lambda request: answer_with(
        events=[
            {"type": "pong" if one.type == "ping" else "ping", "attributes": {"of": one.id}} for one in request.events
        ]
    )(request)
    await engine.emit("e1", type="ping")
    await until(lambda: len(engine.plugins.requests) >= 2)
    for _ in range(3):
        await engine.passed(name="one")
        await engine.passed(name="two")
    # e1 makes each of them emit once, and each is run for what the other emitted, once. One that finds both e1 and the
    # other's event in a batch is run once for both; then all that it emits derives from both, and the other is not run.
    assert len(engine.plugins.requests) in (2, 3, 4)


@BOTH_DATABASES
async def test_a_full_group_holds_the_run_up_and_nothing_is_blamed(engine: Engine, clock: ManualClock) -> None:
    spec = {"retention": {"maxBytes": 2000}}
    await engine.apply(group("onprem", **spec), plugin("/bin/true"), subscription(retry={"maxAttempts": 1}))
    engine.plugins.always = lambda request: answer_with(
        route(request.events[0]), events=[{**FACT, "payload": {"text": "x" * 3000}}]
    )(request)
    await engine.emit("e1")
    await until(lambda: clock.waits)
    await engine.rested()
    state = await engine.state()
    assert (state["state"], state["reason"]) == ("failed", "full")
    assert await engine.parts() == []
    assert await engine.letters() == []
    (run,) = await engine.runs()
    assert run.status == "interrupted"
    assert "not stored" in run.error
    await engine.apply(group("onprem", retention={"maxBytes": 1_000_000}))
    await until(engine.parts, "a part")
    assert len(await emitted(engine)) == 1
    assert (await engine.runs())[-1].attempt == 1


async def test_a_fact_that_the_node_itself_holds_is_refused(engine: Engine) -> None:
    claim = {
        "apiVersion": "net.routerd.net/v1alpha1",
        "kind": "RemoteAddressClaim",
        "metadata": {"name": "held"},
        "spec": {"address": "10.0.0.9/32", "capture": {"type": "proxy-arp"}},
    }
    await engine.subscribe("one", retry={"maxAttempts": 1})
    engine.plugins.answers.append(answer_with(claim))
    await engine.emit("e1", type="one")
    await engine.ran(["e1"])
    engine.plugins.always = answer_with(events=[{"type": OBSERVED, "subject": "10.0.0.9"}])
    await engine.emit("e2", type="one")
    await until(engine.letters, "a dead letter")
    ((event, reason, _, words),) = await engine.letters()
    assert (event, reason) == ("e2", "self_capture")
    assert "10.0.0.9" in words
    assert [record.event_id for record in await engine.records()] == ["e1", "e2"]


# --- withdrawal -----------------------------------------------------------------------------------------------------


@BOTH_DATABASES
async def test_what_has_gone_is_withdrawn_after_its_grace(engine: Engine, clock: ManualClock) -> None:
    await engine.subscribe(lifetime={"grace": "10s"})
    await engine.emit("e1", "e2")
    await engine.ran(["e1", "e2"])
    await engine.emit("e3")
    await engine.ran(["e1", "e2"], ["e3"])
    await engine.emit("x3", subject="e3", type=EXPIRED)
    await engine.reached(4)
    clock.advance(9)
    assert set(await engine.claims()) == {"claim-e1", "claim-e2", "claim-e3"}
    clock.advance(1)
    assert set(await engine.claims()) == {"claim-e1", "claim-e2"}
    assert engine.plugins.given == [["e1", "e2"], ["e3"]], "the plugin is not asked"


async def test_who_is_seen_again_within_the_grace_stays(engine: Engine, clock: ManualClock) -> None:
    await engine.subscribe(lifetime={"grace": "10s"})
    await engine.emit("e1", subject="s")
    await engine.ran(["e1"])
    await engine.emit("x1", subject="s", type=EXPIRED)
    await engine.reached(2)
    clock.advance(5)
    await engine.emit("e2", subject="s")
    await engine.ran(["e1"], ["e2"])
    clock.advance(60)
    assert await engine.claims() == {"claim-s": "e2"}
    assert [held.since for part in await engine.parts() for held in part.claims.values()] == [NOW]


async def test_a_refresh_within_the_grace_saves_it_too(engine: Engine, clock: ManualClock) -> None:
    await engine.subscribe(lifetime={"grace": "10s"})
    await engine.emit("e1", subject="s", ttl="1m")
    await engine.ran(["e1"])
    await engine.emit("x1", subject="s", type=EXPIRED)
    await engine.reached(2)
    await engine.emit("e1", subject="s", ttl="2m")
    await engine.ran(["e1"], ["e1"])
    clock.advance(60)
    assert await engine.claims() == {"claim-s": "e1"}


@pytest.mark.parametrize(("last", "left"), [("gone", set()), ("seen", {"claim-s"})])
async def test_in_one_batch_the_last_word_holds(engine: Engine, clock: ManualClock, last: str, left: set[str]) -> None:
    await engine.subscribe(trigger={"batchWindow": "1s"}, lifetime={"grace": "10s"})
    await engine.emit("e1", subject="s")
    await engine.emit("x1", subject="s", type=EXPIRED)
    if last == "seen":
        await engine.emit("e2", subject="s")
    await engine.gathering(1)
    clock.advance(1)
    await until(lambda: engine.plugins.requests)
    await engine.rested()
    clock.advance(10)
    assert set(await engine.claims()) == left


async def test_what_revokes_is_judged_as_what_it_revokes(engine: Engine, clock: ManualClock) -> None:
    await engine.subscribe(
        match={"subjectPrefixes": ["s"], "sourceNodes": ["onprem"], "payload": {"site": "a"}}, lifetime={"grace": "1s"}
    )
    await engine.emit("e1", subject="s", payload={"site": "a"})
    await engine.ran(["e1"])
    await engine.emit("x1", subject="s", type=EXPIRED, payload={"site": "b"})
    topic = await engine.log.topic("group:edge")
    await engine.log.append(topic, [draft("x2", group="edge", node="b", type=EXPIRED, subject="s", path="b")])
    await engine.passed()
    clock.advance(2)
    assert await engine.claims() == {"claim-s": "e1"}
    await engine.emit("x3", subject="s", type=EXPIRED)
    await engine.reached(4)
    clock.advance(2)
    assert await engine.claims() == {}


async def test_it_may_be_told_not_to_withdraw(engine: Engine, clock: ManualClock) -> None:
    await engine.subscribe(lifetime={"withdrawOnExpired": False})
    await engine.emit("e1", subject="s")
    await engine.ran(["e1"])
    await engine.emit("x1", subject="s", type=EXPIRED)
    await engine.passed()
    clock.advance(60)
    assert await engine.claims() == {"claim-s": "e1"}


@BOTH_DATABASES
@pytest.mark.parametrize("up", [True, False], ids=["up", "down"])
async def test_what_a_deleted_subscription_made_ends_after_its_grace(
    engine: Engine, clock: ManualClock, up: bool
) -> None:
    await engine.subscribe(lifetime={"grace": "10s"})
    await engine.emit("e1")
    await engine.ran(["e1"])
    if not up:
        await engine.stop()
    await engine.delete("EventSubscription", "claims")
    if not up:
        await engine.restart()
    clock.advance(9)
    assert await engine.claims() == {"claim-e1": "e1"}
    clock.advance(1)
    assert await engine.claims() == {}


async def test_a_part_may_end_with_its_events(engine: Engine, clock: ManualClock) -> None:
    await engine.subscribe(lifetime={"clampToEvents": True})
    await engine.emit("e1", ttl="60s")
    await engine.ran(["e1"])
    clock.advance(59)
    assert await engine.claims() == {"claim-e1": "e1"}
    clock.advance(1)
    assert await engine.claims() == {}


async def test_a_subscription_that_turns_to_another_group_takes_nothing_along(
    engine: Engine, clock: ManualClock
) -> None:
    await engine.subscribe(lifetime={"grace": "10s"})
    await engine.emit("e1")
    await engine.ran(["e1"])
    await engine.apply(group("onprem", name="other"), subscription(group="other", lifetime={"grace": "10s"}))
    await engine.emit("e2", group="other")
    await engine.ran(["e1"], ["e2"])
    clock.advance(10)
    assert await engine.claims() == {"claim-e2": "e2"}


# --- again under the same names -------------------------------------------------------------------------------------


@BOTH_DATABASES
async def test_declared_again_it_knows_nothing_of_before(engine: Engine, clock: ManualClock) -> None:
    await engine.subscribe(retry={"maxAttempts": 2, "baseBackoff": "1s"}, lifetime={"grace": "10s"})
    await engine.emit("e1")
    await engine.ran(["e1"])
    engine.plugins.always = lambda request: failure()
    await engine.emit("e2")
    await engine.gathering(1)
    await engine.rested()
    await engine.delete("EventSubscription", "claims")
    await engine.delete("EventGroup", "edge")
    clock.advance(0.5)
    engine.plugins.always = routes
    await engine.subscribe(retry={"maxAttempts": 2, "baseBackoff": "1s"}, lifetime={"grace": "10s"})
    state = await engine.state()
    assert (state["phase"], state["lastRun"], state["waitingEvents"], state["deadLetters"]) == ("Idle", None, 0, 0)
    await engine.emit("e3")
    await engine.ran(["e1"], ["e2"], ["e3"])
    assert (await engine.runs())[-1].attempt == 1
    clock.advance(9.5)
    assert await engine.claims() == {"claim-e3": "e3"}
    assert (await engine.log.database.read(read_stored, await engine.log.topic(topic_of("edge"))))[0].event_id == "e3"


async def test_declared_again_while_the_node_is_down(engine: Engine, clock: ManualClock) -> None:
    await engine.subscribe(lifetime={"grace": "10s"})
    await engine.emit("e1")
    await engine.ran(["e1"])
    engine.plugins.hold()
    await engine.emit("e2")
    await until(lambda: engine.plugins.running)
    await engine.crash()
    await engine.delete("EventSubscription", "claims")
    await engine.subscribe(lifetime={"grace": "10s"})
    assert await engine.statuses() == ["succeeded", "interrupted"], "nothing is said to run that does not"
    await engine.restart()
    await engine.ran(["e1"], ["e2"], ["e1", "e2"])
    assert (await engine.runs())[-1].attempt == 1
