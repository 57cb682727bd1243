"""The list of queues: their jobs by state, and the oldest job that can be claimed."""

from __future__ import annotations

from typing import Any

import pytest

from eventd.api.framework.operations import Services
from eventd.errors import Conflict, EventdError, Forbidden
from eventd.log.core.eventlog import EventLog
from eventd.log.core.records import read_body
from eventd.log.queues import letters, survey
from eventd.log.topics.delete import delete_records
from eventd.testing import ManualClock
from tests.support import operations
from tests.support.fresh import on_sqlite
from tests.support.queues import Queues


@pytest.fixture
async def queues(log: EventLog, clock: ManualClock) -> Queues:
    """The queue q with jobs 1 and 2, and a second later 3 and 4."""
    found = Queues(log)
    await found.make("q")
    await found.put("q", 1, 2)
    clock.advance(1)
    await found.put("q", 3, 4)
    return found


async def listed(queues: Queues, **asked: Any) -> dict[str, Any]:
    found: dict[str, Any] = await operations.run(Services(queues.log), "queues.list", **asked)
    return found


async def oldest(queues: Queues) -> tuple[int, str] | None:
    """Return the seq of the oldest ready job of q, and the second in which it was written."""
    [one] = (await listed(queues))["queues"]
    ready = one["oldestReady"]
    return ready and (ready["seq"], ready["writtenAt"][17:19])


async def test_jobs_are_counted_by_state(queues: Queues) -> None:
    first, _ = await queues.claim("q", "w", 2)
    await queues.nack("q", "w", first, delay_ms=60_000)
    [one] = (await listed(queues))["queues"]
    assert {name: one[name] for name in ("queue", "ready", "leased", "delayed", "deadLettered")} == {
        "queue": "q",
        "ready": 2,
        "leased": 1,
        "delayed": 1,
        "deadLettered": 0,
    }


async def test_the_oldest_ready_job_is_the_one_that_was_written_first(queues: Queues, clock: ManualClock) -> None:
    assert await oldest(queues) == (1, "00")
    one, two = await queues.claim("q", "w", 2, lease_ms=5_000)
    assert await oldest(queues) == (3, "01"), "what a client holds is not ready"
    await queues.nack("q", "w", two)
    assert await oldest(queues) == (2, "00"), "what a client gave back is"
    await queues.claim("q", "v", 1, lease_ms=60_000)
    clock.advance(6)
    assert await oldest(queues) == (1, "00"), "and so is what was not finished in time"
    assert one.seq == 1


@on_sqlite
async def test_a_queue_whose_jobs_are_all_held_has_no_ready_one(queues: Queues) -> None:
    await queues.claim("q", "w", 4)
    assert await oldest(queues) is None


@on_sqlite
async def test_deleted_and_finished_jobs_are_not_ready(queues: Queues) -> None:
    await queues.ack("q", "w", *await queues.claim("q", "w", 1))
    await delete_records(queues.log.submit, "q", before_seq=4, predicate=None)
    assert await oldest(queues) == (4, "01")


async def test_a_job_whose_time_to_live_is_over_is_not_ready(log: EventLog, clock: ManualClock) -> None:
    queues = Queues(log)
    await queues.make("q", ttl_ms=1500)
    await queues.put("q", 1)
    clock.advance(1)
    await queues.put("q", 2)
    clock.advance(1)
    assert await oldest(queues) == (2, "01")


async def test_pages_of_queues_meet_and_show_no_other_topics(log: EventLog) -> None:
    queues = Queues(log)
    for name in ("a", "b", "c", "d"):
        await queues.make(name, type="log" if name == "b" else "queue")
    found, after = list[str](), ""
    while after is not None:
        page = await listed(queues, limit=2, after=after)
        found += [one["queue"] for one in page["queues"]]
        after = page["next"]
    assert found == ["a", "c", "d"]
    assert [one["queue"] for one in (await listed(queues, prefix="c"))["queues"]] == ["c"]
    assert (await listed(queues, prefix="é"))["queues"] == []


@on_sqlite
async def test_a_key_of_some_names_gets_its_queues_only(log: EventLog) -> None:
    queues = Queues(log)
    for name in ("a.1", "b.1", "b.2", "c.1"):
        await queues.make(name)
    services = Services(log, sees=lambda name: name.startswith("b."))
    first = await operations.run(services, "queues.list", limit=1)
    assert ([one["queue"] for one in first["queues"]], first["next"]) == (["b.1"], "b.1")
    second = await operations.run(services, "queues.list", limit=1, after="b.1")
    assert ([one["queue"] for one in second["queues"]], second["next"]) == (["b.2"], None)


async def test_a_search_that_ends_early_says_so(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    queues = Queues(log)
    for name in ("a", "b", "c"):
        await queues.make(name)
    assert (await listed(queues))["complete"]
    monkeypatch.setattr(survey, "MOST_TOPICS", 2)
    page = await listed(queues)
    assert ([one["queue"] for one in page["queues"]], page["complete"]) == (["a", "b"], False)


# --- dead letters ---------------------------------------------------------------------------------------------------


@pytest.fixture
async def given_up(log: EventLog) -> Queues:
    """The queues p and q, whose dead letters are in the topic graves: one of p, and three of q."""
    queues = Queues(log)
    for name in ("p", "q"):
        await queues.make(name, dead_letter="graves", max_deliveries=1)
    for name, count in (("q", 2), ("p", 1), ("q", 1)):
        await queues.put(name, *range(count), tag="eu", meta={"a": 1})
        await queues.nack(name, "w", *await queues.claim(name, "w", count))
        assert await queues.claim(name, "w", count) == []
    return queues


async def retry(queues: Queues, queue: str = "q", **asked: Any) -> dict[str, Any]:
    found: dict[str, Any] = await operations.run(Services(queues.log), "queues.retry", topic=queue, **asked)
    return found


@on_sqlite
async def test_dead_letters_become_jobs_again_as_they_were(given_up: Queues) -> None:
    assert await retry(given_up) == {"retried": 3, "complete": True}
    jobs = await given_up.claim("q", "w", 9)
    assert [(job.seq, job.deliveries) for job in jobs] == [(4, 1), (5, 1), (6, 1)]
    assert all(read_body(job.body) == (None, "eu", data, '{"a":1}') for job, data in zip(jobs, "010", strict=True))
    left = await given_up.page("graves")
    assert [one["meta"]["$dead_letter_from"] for one in left] == ["p"], "those of other queues stay"
    await given_up.check("q")
    assert await retry(given_up) == {"retried": 0, "complete": True}


async def test_a_limit_takes_the_oldest(given_up: Queues) -> None:
    assert await retry(given_up, limit=1) == {"retried": 1, "complete": False}
    assert [read_body(job.body).data for job in await given_up.claim("q", "w", 9)] == ["0"]
    assert await retry(given_up) == {"retried": 2, "complete": True}


@on_sqlite
async def test_more_than_one_transaction_takes_are_returned(given_up: Queues, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letters, "MOST_AT_ONCE", 1)
    assert await retry(given_up) == {"retried": 3, "complete": True}


@on_sqlite
async def test_a_queue_that_is_full_gets_no_dead_letters_and_none_is_lost(given_up: Queues) -> None:
    await given_up.change("q", cap_records=1, discard="reject")
    with pytest.raises(EventdError, match="limits of the topic"):
        await retry(given_up)
    assert len(await given_up.page("graves")) == 4
    assert await given_up.claim("q", "w", 9) == []


@on_sqlite
async def test_a_queue_without_a_log_of_dead_letters_has_none_to_retry(log: EventLog) -> None:
    queues = Queues(log)
    await queues.make("a")
    await queues.make("b", dead_letter="a")
    for name in ("a", "b"):
        with pytest.raises(Conflict):
            await retry(queues, name)
    await queues.make("log", type="log")
    with pytest.raises(Conflict):
        await retry(queues, "log")


@on_sqlite
async def test_a_key_that_may_not_access_the_dead_letters_moves_none(given_up: Queues) -> None:
    services = Services(given_up.log, sees=lambda name: name == "q")
    with pytest.raises(Forbidden):
        await operations.run(services, "queues.retry", topic="q")
