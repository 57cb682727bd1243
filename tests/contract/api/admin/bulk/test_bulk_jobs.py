"""Bulk jobs: what a plan counts, what a job retries or drops, and when it ends. On both databases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from eventd.api.admin.bulk import bulk_actions, bulk_runner
from eventd.api.admin.bulk.bulk_runner import BulkJobRunner
from eventd.api.keys.api_key import ApiKey
from eventd.api.keys.valid_keys import Keys
from eventd.errors import Conflict, DatabaseFault, Forbidden, NotFound
from eventd.log.core.eventlog import EventLog
from eventd.log.cursors.cursors import delete_cursors
from eventd.log.delivery import dead_letter_scan
from eventd.log.delivery.repairs import read_all_dead_letters
from eventd.runtime.clock import SECOND
from eventd.store.rows import bulk_jobs as rows
from eventd.store.rows.bulk_jobs import delete_old_jobs
from eventd.testing import ManualClock, draft
from tests.support.fresh import on_sqlite
from tests.support.group_ledger import GroupLedger

OPERATOR = ApiKey(b"operator", frozenset({"read", "write", "delete", "admin"}), (), name="operator")


class Counted:
    """Metrics that keep what they were told."""

    def __init__(self) -> None:
        self.states: dict[str, int] = {}
        self.steps: list[str] = []

    def jobs(self, states: Mapping[str, int]) -> None:
        self.states = dict(states)

    def job_step(self, result: str) -> None:
        self.steps.append(result)


class Bulk:
    """Group g with dead letters of the peers b and c, and what runs its jobs."""

    def __init__(self, ledger: GroupLedger) -> None:
        self.ledger = ledger
        self.metrics = Counted()
        self._published = 0
        self.keys: list[ApiKey] = [OPERATOR]
        self.runner = self.make_runner()

    def make_runner(self, *, alone: bool = True) -> BulkJobRunner:
        log = self.ledger.log
        keys = Keys(lambda: self.keys, clock=log.clock)
        return BulkJobRunner(log, keys, self.metrics, alone=alone)

    async def park(self, *letters: tuple[str, str], peer: str = "b") -> None:
        """Publish an event for each (type, reason) and let the peer refuse it."""
        drafts = [draft(f"e{self._published + at}", type=type) for at, (type, _) in enumerate(letters, 1)]
        self._published += len(drafts)
        positions = await self.ledger.publish(*drafts)
        parked = {at: reason for at, (_, reason) in zip(positions, letters, strict=True)}
        await self.ledger.settle(peer, positions[-1], parked=parked)

    async def ask(self, name: str, key: ApiKey | None = OPERATOR, **params: Any) -> Any:
        self.ledger.services = replace(self.ledger.services, key=key)
        return await self.ledger.call(name, **params)

    async def plan(self, action: str = "retry", **params: Any) -> Any:
        return await self.ask("jobs.plan", action=action, group="g", **params)

    async def start(self, action: str = "retry", **params: Any) -> int:
        plan = await self.plan(action, **params)
        return int((await self.ask("jobs.start", token=plan["token"]))["job"]["number"])

    async def job(self, number: int) -> dict[str, Any]:
        found: dict[str, Any] = (await self.ask("jobs.get", number=number))["job"]
        return found

    async def letters(self) -> list[str]:
        topic = await self.ledger.log.topic("group:g")
        found = await self.ledger.log.database.read(read_all_dead_letters, topic)
        return [letter.reason for letter in found]

    async def deliver(self) -> None:
        """Let all repairs end."""
        names = [cursor.name for peer in "bc" for cursor in await self.ledger.repairs(peer)]
        await self.ledger.log.database.write(delete_cursors, names)


@pytest.fixture
async def bulk(log: EventLog, clock: ManualClock) -> Bulk:
    ledger = GroupLedger(log, clock)
    await ledger.declare("b", "c")
    return Bulk(ledger)


@on_sqlite
async def test_a_plan_counts_and_changes_nothing(bulk: Bulk) -> None:
    await bulk.park(("x", "bad"), ("y", "bad"), ("x", "loop"))
    plan = await bulk.plan(reasons=["bad"])
    assert (plan["count"], plan["exact"], plan["action"], plan["owner"]) == (2, True, "retry", "peers")
    assert [(row["type"], row["reason"]) for row in plan["examples"]] == [("x", "bad"), ("y", "bad")]
    assert await bulk.letters() == ["bad", "bad", "loop"]
    assert (await bulk.ask("jobs.list"))["jobs"] == []


async def test_dead_letters_are_chosen_by_peer_type_and_time(bulk: Bulk, clock: ManualClock) -> None:
    await bulk.park(("order.new", "bad"), ("order.paid", "bad"), ("user", "bad"))
    clock.advance(60)
    await bulk.park(("user", "bad"), peer="c")
    assert (await bulk.plan(peer="b"))["count"] == 3
    assert (await bulk.plan(types=["order.*"]))["count"] == 2
    assert (await bulk.plan(types=["user", "order.new"]))["count"] == 3
    assert (await bulk.plan(since="30s"))["count"] == 1
    assert (await bulk.plan(until="30s"))["count"] == 3
    with pytest.raises(NotFound):
        await bulk.plan(peer="nobody")


async def test_more_dead_letters_than_are_counted_are_an_estimate(bulk: Bulk, monkeypatch: pytest.MonkeyPatch) -> None:
    await bulk.park(*[("x", "bad" if at % 2 else "loop") for at in range(40)])
    monkeypatch.setattr(dead_letter_scan, "COUNTED", 10)
    plan = await bulk.plan(reasons=["bad"])
    assert (plan["count"], plan["exact"]) == (20, False)


async def test_few_dead_letters_of_one_peer_are_counted_among_many_others(
    bulk: Bulk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bulk.park(*[("x", "bad")] * 40)
    await bulk.park(("x", "bad"), ("x", "bad"), ("x", "loop"), peer="c")
    monkeypatch.setattr(dead_letter_scan, "COUNTED", 10)
    plan = await bulk.plan(peer="c", reasons=["bad"])
    assert (plan["count"], plan["exact"]) == (2, True)


async def test_a_job_finds_dead_letters_beyond_those_that_the_plan_looked_at(
    bulk: Bulk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bulk.park(*[("x", "bad")] * 30, ("x", "rare"))
    monkeypatch.setattr(dead_letter_scan, "COUNTED", 10)
    monkeypatch.setattr(dead_letter_scan, "WINDOW", 4)
    plan = await bulk.plan("drop", reasons=["rare"])
    assert (plan["count"], plan["exact"]) == (0, False)
    number = (await bulk.ask("jobs.start", token=plan["token"]))["job"]["number"]
    await bulk.runner.run_all()
    assert (await bulk.job(number))["done"] == 1
    assert await bulk.letters() == ["bad"] * 30


@on_sqlite
async def test_a_job_retries_in_steps_and_counts_by_reason(bulk: Bulk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_runner, "STEP_LETTERS", 2)
    await bulk.park(("x", "bad"), ("x", "bad"), ("x", "loop"), ("x", "bad"), ("x", "bad"))
    number = await bulk.start()
    assert (await bulk.job(number))["state"] == "waiting"
    await bulk.runner.run_all()
    job = await bulk.job(number)
    assert (job["state"], job["done"], job["total"], job["startedBy"]) == ("done", 5, 5, "operator")
    assert job["results"] == [
        {"outcome": "retried", "reason": "bad", "count": 4},
        {"outcome": "retried", "reason": "loop", "count": 1},
    ]
    assert bulk.metrics.steps == ["done"] * 3
    assert (bulk.metrics.states["done"], bulk.metrics.states["running"]) == (1, 0)
    assert await bulk.letters() == []
    assert sum(len(repair.selection["positions"]) for repair in await bulk.ledger.repairs("b")) == 5


@on_sqlite
async def test_what_cannot_be_sent_again_stays_with_its_reason(bulk: Bulk, clock: ManualClock) -> None:
    positions = await bulk.ledger.publish(draft("e1"), draft("e2", expires=clock.now() + SECOND))
    await bulk.ledger.settle("b", positions[-1], parked=dict.fromkeys(positions, "bad"))
    clock.advance(5)
    number = await bulk.start()
    await bulk.runner.run_all()
    job = await bulk.job(number)
    assert (job["state"], job["done"]) == ("done", 2)
    assert job["results"] == [
        {"outcome": "kept", "reason": "it has expired", "count": 1},
        {"outcome": "retried", "reason": "bad", "count": 1},
    ]
    assert await bulk.letters() == ["bad"]


@on_sqlite
async def test_a_job_drops_and_takes_nothing_that_came_after_its_plan(bulk: Bulk) -> None:
    await bulk.park(("x", "bad"), ("x", "bad"))
    plan = await bulk.plan("drop")
    await bulk.park(("x", "late"))
    await bulk.ask("jobs.start", token=plan["token"])
    await bulk.park(("x", "later"))
    await bulk.runner.run_all()
    assert await bulk.letters() == ["late", "later"]


@on_sqlite
async def test_a_token_starts_one_job(bulk: Bulk) -> None:
    await bulk.park(("x", "bad"))
    plan = await bulk.plan()
    first = await bulk.ask("jobs.start", token=plan["token"])
    assert await bulk.ask("jobs.start", token=plan["token"]) == first
    assert len((await bulk.ask("jobs.list"))["jobs"]) == 1
    with pytest.raises(NotFound, match="no plan with this token"):
        await bulk.ask("jobs.start", token=plan["token"][:-1] + "g")


@on_sqlite
async def test_a_plan_expires(bulk: Bulk, clock: ManualClock) -> None:
    plan = await bulk.plan()
    clock.advance(300)
    with pytest.raises(Conflict, match="has expired"):
        await bulk.ask("jobs.start", token=plan["token"])


@on_sqlite
async def test_a_job_is_cancelled_between_two_steps(bulk: Bulk, monkeypatch: pytest.MonkeyPatch) -> None:
    await bulk.park(*[("x", "bad")] * 6)
    monkeypatch.setattr(bulk_runner, "STEP_LETTERS", 2)
    number = await bulk.start("drop")
    after_step(bulk, lambda: bulk.ask("jobs.cancel", number=number), monkeypatch)
    await bulk.runner.run_all()
    job = await bulk.job(number)
    assert (job["state"], job["done"], job["detail"]) == ("cancelled", 2, "cancelled by operator")
    assert len(await bulk.letters()) == 4
    assert (await bulk.ask("jobs.cancel", number=number))["job"] == job


def after_step(bulk: Bulk, act: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `act` happen after the first step of a job."""
    step = BulkJobRunner._step
    acted: list[bool] = []

    async def then(self: BulkJobRunner, job: rows.BulkJob) -> None:
        await step(self, job)
        if not acted:
            acted.append(True)
            await act()

    monkeypatch.setattr(BulkJobRunner, "_step", then)


@on_sqlite
async def test_a_finished_job_cannot_be_cancelled(bulk: Bulk) -> None:
    number = await bulk.start()
    await bulk.runner.run_all()
    with pytest.raises(Conflict, match=f"^job {number} is done already$"):
        await bulk.ask("jobs.cancel", number=number)


@pytest.mark.parametrize(
    ("left", "reason"),
    [
        ([], "was revoked or has expired"),
        ([OPERATOR._replace(scopes=frozenset({"read", "admin"}))], "no longer has the scope delete"),
        ([OPERATOR._replace(prefixes=("h",))], "no longer for its group"),
    ],
)
@on_sqlite
async def test_a_job_whose_key_may_no_longer_do_it_is_cancelled(bulk: Bulk, left: list[ApiKey], reason: str) -> None:
    await bulk.park(("x", "bad"))
    number = await bulk.start("drop")
    bulk.keys = left
    await bulk.make_runner().run_all()
    job = await bulk.job(number)
    assert job["state"] == "cancelled"
    assert reason in job["detail"]
    assert await bulk.letters() == ["bad"]


@on_sqlite
async def test_a_job_that_was_started_without_a_key_needs_none(bulk: Bulk) -> None:
    await bulk.park(("x", "bad"))
    plan = await bulk.ask("jobs.plan", None, action="drop", group="g")
    started = await bulk.ask("jobs.start", None, token=plan["token"])
    assert started["job"]["startedBy"].startswith("local ")
    bulk.keys = []
    await bulk.make_runner().run_all()
    assert await bulk.letters() == []


@on_sqlite
async def test_each_action_needs_its_scope_and_the_group(bulk: Bulk) -> None:
    deleter = OPERATOR._replace(scopes=frozenset({"read", "delete"}))
    stranger = OPERATOR._replace(prefixes=("other",))
    for key in (deleter, stranger):
        with pytest.raises(Forbidden):
            await bulk.ask("jobs.plan", key, action="retry", group="g")
    plan, drops = await bulk.plan(), await bulk.ask("jobs.plan", deleter, action="drop", group="g")
    for key in (deleter, stranger):
        with pytest.raises(Forbidden):
            await bulk.ask("jobs.start", key, token=plan["token"])
    started = await bulk.ask("jobs.start", deleter, token=drops["token"])
    number = started["job"]["number"]
    assert (await bulk.ask("jobs.list", stranger))["jobs"] == []
    visible = await bulk.ask("jobs.list", OPERATOR._replace(prefixes=("g",)))
    assert [job["number"] for job in visible["jobs"]] == [number]
    for name in ("jobs.get", "jobs.cancel"):
        with pytest.raises(NotFound):
            await bulk.ask(name, stranger, number=number)
    retrier = OPERATOR._replace(scopes=frozenset({"admin"}))
    with pytest.raises(Forbidden):
        await bulk.ask("jobs.cancel", retrier, number=number)


@on_sqlite
async def test_a_failing_step_is_tried_again_and_then_the_job_fails(
    bulk: Bulk, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise DatabaseFault("no more today")

    await bulk.park(("x", "bad"))
    number = await bulk.start("drop")
    monkeypatch.setattr(bulk_actions, "delete_dead_letters", fail)
    for attempts in range(1, bulk_runner.MOST_ATTEMPTS):
        await bulk.runner.run_all()
        job = await bulk.job(number)
        assert (job["state"], job["attempts"], job["detail"]) == ("waiting", attempts, "no more today")
        clock.advance(60)
    await bulk.runner.run_all()
    job = await bulk.job(number)
    assert (job["state"], job["detail"], job["done"]) == ("failed", "no more today", 0)
    assert await bulk.letters() == ["bad"]


@on_sqlite
async def test_a_job_waits_while_a_peer_has_many_unfinished_repairs_and_others_run(
    bulk: Bulk, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_runner, "STEP_LETTERS", 1)
    monkeypatch.setattr(bulk_actions, "MOST_REPAIRS", 2)
    await bulk.park(*[("x", "bad")] * 3)
    await bulk.park(("x", "bad"), peer="c")
    waits, runs = await bulk.start(peer="b"), await bulk.start(peer="c")
    await bulk.runner.run_all()
    job = await bulk.job(waits)
    assert (job["state"], job["done"], job["attempts"]) == ("waiting", 2, 0)
    assert job["detail"] == "peer g/b has 2 unfinished deliveries of earlier retries"
    assert (await bulk.job(runs))["state"] == "done"
    await bulk.deliver()
    clock.advance(bulk_runner.WAIT_SECONDS)
    await bulk.runner.run_all()
    assert (await bulk.job(waits))["state"] == "done"


@on_sqlite
async def test_a_job_of_a_deleted_group_ends_with_nothing_done(bulk: Bulk) -> None:
    await bulk.park(("x", "bad"))
    number = await bulk.start()
    for kind, name in (("EventPeer", "b"), ("EventPeer", "c"), ("EventGroup", "g")):
        await bulk.ledger.call("resources.delete", kind=kind, name=name)
    await bulk.runner.run_all()
    job = await bulk.job(number)
    assert (job["state"], job["done"], job["results"]) == ("done", 0, [])


async def test_a_step_of_a_process_that_lost_its_lease_changes_nothing(
    bulk: Bulk, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bulk.park(("x", "bad"), ("x", "bad"))
    number = await bulk.start("drop")
    database, now = bulk.ledger.log.database, clock.now()
    (stale,) = await database.write(rows.claim_jobs, "frozen", now, now + 30 * SECOND)
    other = bulk.make_runner(alone=False)
    await other.run_all()
    assert (await bulk.job(number))["state"] == "running"  # the lease of the frozen process
    clock.advance(30)
    step = await database.read(bulk_runner._prepare, stale, clock.now())
    await other.run_all()
    assert (await bulk.job(number))["state"] == "done"
    assert await database.write(bulk_runner._carry_out, stale, step, clock.now(), clock.now()) is None
    assert (await bulk.job(number))["done"] == 2


async def test_leases_and_waits_that_began_while_the_clock_was_ahead_end_once_the_clock_is_right(
    bulk: Bulk, clock: ManualClock
) -> None:
    await bulk.park(("x", "bad"))
    leased, waiting = await bulk.start("drop"), await bulk.start("drop")
    database, ahead = bulk.ledger.log.database, clock.now() + 2 * 86_400 * SECOND
    _, job = await database.write(rows.claim_jobs, "killed", ahead, ahead + 30 * SECOND)
    await database.write(bulk_runner._put_off, replace(job, retry_at=ahead + 5 * SECOND))
    await bulk.make_runner(alone=False).run_all()
    assert [(await bulk.job(number))["state"] for number in (leased, waiting)] == ["done", "done"]


async def test_only_some_jobs_run_at_a_time(bulk: Bulk, clock: ManualClock) -> None:
    started = [await bulk.start("drop") for _ in range(4)]
    database, now = bulk.ledger.log.database, clock.now()
    claimed = await database.write(rows.claim_jobs, "one", now, now + SECOND)
    assert [job.number for job in claimed] == started[:2]
    assert await database.write(rows.claim_jobs, "two", now, now + SECOND) == []
    assert await database.write(rows.claim_jobs, "two", now - SECOND, now) == [], "it read its clock before the other"


async def test_unfinished_jobs_finished_jobs_and_plans_are_bounded(
    bulk: Bulk, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventd.api.admin.bulk.bulk_jobs.MOST_UNFINISHED", 2)
    monkeypatch.setattr(rows, "MOST_FINISHED", 1)
    monkeypatch.setattr(rows, "MOST_PLANS", 2)
    await bulk.start("drop")
    await bulk.start("drop")
    with pytest.raises(Conflict, match="2 jobs are not finished"):
        await bulk.start("drop")
    await bulk.runner.run_all()
    await bulk.start("drop")
    assert [job["state"] for job in (await bulk.ask("jobs.list"))["jobs"]] == ["waiting", "done"]
    plans = [await bulk.plan() for _ in range(3)]
    with pytest.raises(NotFound):
        await bulk.ask("jobs.start", token=plans[0]["token"])
    await bulk.runner.run_all()
    clock.advance(10)
    assert await bulk.ledger.log.database.write(delete_old_jobs, clock.now(), 100) == 2
    assert (await bulk.ask("jobs.list"))["jobs"] == []


async def test_jobs_are_listed_page_by_page(bulk: Bulk) -> None:
    started = [await bulk.start("drop") for _ in range(5)]
    await bulk.runner.run_all()
    first = await bulk.ask("jobs.list", limit=2, state="done")
    second = await bulk.ask("jobs.list", limit=3, after=first["next"])
    assert [job["number"] for job in first["jobs"] + second["jobs"]] == started[::-1]
    assert second["next"] is None


@pytest.mark.parametrize(
    "wrong",
    [{}, {"group": "g", "callback": "c"}, {"group": "g", "peer": "b", "subscription": "s"}, {"peer": "b"}],
)
@on_sqlite
async def test_a_plan_is_of_one_owner(bulk: Bulk, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        await bulk.ask("jobs.plan", action="drop", **wrong)
