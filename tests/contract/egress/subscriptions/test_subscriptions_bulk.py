"""A bulk job runs the dead letters of a subscription again."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from eventd.api.admin.bulk.bulk_runner import BulkJobRunner
from eventd.api.keys.valid_keys import Keys
from eventd.log.core.eventlog import EventLog
from eventd.testing import ManualClock, until
from tests.support.bulk import Uncounted
from tests.support.engine import Engine, fail_for, routes


@pytest.fixture
async def engine(log: EventLog, clock: ManualClock) -> AsyncIterator[Engine]:
    made = Engine(log, clock)
    yield made
    await made.close()


async def test_a_job_runs_the_dead_letters_of_a_subscription_again(engine: Engine) -> None:
    await engine.subscribe(retry={"maxAttempts": 1})
    engine.plugins.always = fail_for("e1", "e2")
    await engine.emit("e1")
    await until(engine.letters, "a dead letter")
    engine.plugins.always = routes
    plan = await engine.ask("jobs.plan", action="retry", subscription="claims")
    assert (plan["count"], plan["group"], plan["owner"]) == (1, "edge", "subscription")
    started = await engine.ask("jobs.start", token=plan["token"])
    await BulkJobRunner(engine.log, Keys(tuple), Uncounted(), alone=True).run_all()
    job = (await engine.ask("jobs.get", number=started["job"]["number"]))["job"]
    assert (job["state"], job["done"], [each["outcome"] for each in job["results"]]) == ("done", 1, ["retried"])
    assert await engine.letters() == []
    await engine.ask("subscriptions.retry", subscription="claims")  # as the node notices the backfill
    await until(engine.parts, "a part")
