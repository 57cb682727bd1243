"""The leases of a queue: who holds which job, until when, page by page; and the settings of the node."""

from __future__ import annotations

from typing import Any

import pytest

from eventd.api.framework.operations import Services
from eventd.errors import Conflict, Invalid, NotFound, Unavailable
from eventd.log.core.eventlog import EventLog
from eventd.settings.loading import load
from eventd.testing import ManualClock
from tests.support import operations
from tests.support.fresh import on_sqlite
from tests.support.queues import Queues


@pytest.fixture
async def queues(log: EventLog) -> Queues:
    """The queue q with five jobs."""
    found = Queues(log)
    await found.make("q")
    await found.put("q", *range(5))
    return found


async def leases(queues: Queues, **asked: Any) -> dict[str, Any]:
    found: dict[str, Any] = await operations.run(Services(queues.log), "queues.leases", topic="q", **asked)
    return found


@on_sqlite
async def test_a_lease_names_its_client_and_its_end_but_not_its_id(queues: Queues, clock: ManualClock) -> None:
    await queues.claim("q", "w1", 2, lease_ms=60_000)
    clock.advance(1)
    [job] = await queues.claim("q", "w2", 1, lease_ms=30_000)
    await queues.nack("q", "w2", job, delay_ms=5_000)
    found = (await leases(queues))["leases"]
    assert [(one["seq"], one["state"], one["client"], one["endsAt"][:19]) for one in found] == [
        (3, "delayed", "", "2026-11-20T12:00:06"),
        (1, "leased", "w1", "2026-11-20T12:01:00"),
        (2, "leased", "w1", "2026-11-20T12:01:00"),
    ]
    assert not any("lease" in name.lower() for name in found[0])


async def test_what_has_ended_is_not_listed(queues: Queues, clock: ManualClock) -> None:
    jobs = await queues.claim("q", "w", 2, lease_ms=1_000)
    await queues.ack("q", "w", jobs[0])
    assert [one["seq"] for one in (await leases(queues))["leases"]] == [2]
    clock.advance(2)
    assert (await leases(queues))["leases"] == []


@on_sqlite
async def test_delayed_jobs_are_released_and_held_ones_are_not(queues: Queues) -> None:
    await queues.claim("q", "w", 2)
    await queues.nack("q", "w", 1, delay_ms=60_000)
    done = await operations.run(Services(queues.log), "queues.release", topic="q", seqs=[1, 2, 3, 99])
    assert done == {"released": [1], "skipped": [2, 3, 99], "ready": 4, "leased": 1}
    assert [one["seq"] for one in (await leases(queues))["leases"]] == [2]
    [job] = await queues.claim("q", "v", 1)
    assert (job.seq, job.deliveries) == (1, 2)
    await queues.check("q")


async def test_pages_of_leases_with_one_end_meet(queues: Queues) -> None:
    await queues.claim("q", "w", 5)
    found, after = list[int](), ""
    while after is not None:
        page = await leases(queues, limit=2, after=after)
        found += [one["seq"] for one in page["leases"]]
        after = page["next"]
    assert found == [1, 2, 3, 4, 5]


@on_sqlite
async def test_a_topic_that_is_not_a_queue_has_no_leases(queues: Queues) -> None:
    await queues.make("log", type="log")
    with pytest.raises(Conflict):
        await operations.run(Services(queues.log), "queues.leases", topic="log")
    with pytest.raises(NotFound):
        await operations.run(Services(queues.log), "queues.leases", topic="none")
    with pytest.raises(Invalid):
        await leases(queues, after="x")


@on_sqlite
async def test_a_secret_is_shown_as_set_and_never_its_value(log: EventLog) -> None:
    canary = "canary-key-0001"
    settings = load({"prune_interval": "5s"}, {"EVENTD_API_KEYS": canary})
    answer = await operations.run(Services(log, settings=settings), "node.settings")
    rows = {row["name"]: row for row in answer["settings"]}
    assert (rows["api_keys"]["value"], rows["api_keys"]["secret"]) == ("set", True)
    assert rows["prune_interval"]["value"] == "5s"
    assert rows["prune_interval"]["origin"] != rows["api_keys"]["origin"]
    assert canary not in str(answer)
    with pytest.raises(Unavailable):
        await operations.run(Services(log), "node.settings")
