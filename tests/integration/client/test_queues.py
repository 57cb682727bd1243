"""The client of /v0: claimed jobs and their leases."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from eventd.client import Client, Config, Job, NewRecord
from eventd.errors import Conflict, Invalid, NotFound
from eventd.testing import until
from tests.support.flaky_proxy import CUT, UNANSWERED, Fault, FlakyProxy


@pytest.fixture
async def queue(client: Client) -> str:
    """A queue of four jobs."""
    await client.topics.put("jobs", Config(type="queue", lease_ms=30_000))
    await client.topics.write("jobs", [NewRecord({"n": n}, tag=f"t:{n}", meta=n) for n in range(1, 5)])
    return "jobs"


async def test_jobs_are_claimed_and_settled(client: Client, queue: str) -> None:
    claimed = await client.queues.claim(queue, "w1", most=3)
    assert [(job.seq, job.data, job.tag, job.meta, job.deliveries) for job in claimed.claimed] == [
        (1, {"n": 1}, "t:1", 1, 1),
        (2, {"n": 2}, "t:2", 2, 1),
        (3, {"n": 3}, "t:3", 3, 1),
    ]
    assert claimed.ready == 1
    first, second, third = claimed.claimed
    done = await client.queues.ack(queue, "w1", [first])
    assert (done.acked, done.skipped, done.in_flight) == (1, [], 2)
    back = await client.queues.nack(queue, "w1", [second, 4], delay_ms=0)
    assert (back.nacked, back.skipped) == (1, [4])
    longer = await client.queues.extend(queue, "w1", [third], lease_ms=60_000)
    assert longer.extended == 1
    assert longer.deadlines[3] > third.deadline
    again = (await client.queues.claim(queue, "w2")).claimed[0]
    assert (again.seq, again.deliveries) == (2, 2)
    state = await client.topics.get(queue)
    assert state.queue is not None
    assert (state.queue.ready, state.queue.in_flight, state.count) == (1, 2, 3)


async def test_a_job_is_settled_under_its_own_lease_only(client: Client, queue: str) -> None:
    (job,) = (await client.queues.claim(queue, "w1")).claimed
    await client.queues.nack(queue, "w1", [job])
    (again,) = (await client.queues.claim(queue, "w1")).claimed
    assert again.seq == job.seq
    assert (await client.queues.ack(queue, "w1", [job])).skipped == [job.seq]
    assert (await client.queues.ack(queue, "w1", [again])).acked == 1


async def test_an_ack_whose_answer_was_lost_is_done(
    far: Client, client: Client, network: FlakyProxy, queue: str
) -> None:
    (job,) = (await client.queues.claim(queue, "w1")).claimed
    network.faults = [Fault("/ack", UNANSWERED)]
    told = await far.queues.ack(queue, "w1", [job])
    assert (told.acked, told.skipped) == (0, [job.seq])  # done by the first ack, whose answer was lost
    assert (await client.topics.get(queue)).count == 3


async def test_errors_are_told_as_they_are(client: Client, queue: str) -> None:
    await client.topics.put("log")
    with pytest.raises(NotFound):
        await client.queues.claim("ghost", "w")
    with pytest.raises(Conflict) as caught:
        await client.queues.claim("log", "w")
    assert caught.value.code == "not_a_queue"
    with pytest.raises(Invalid):
        await client.queues.claim(queue, "")


async def work(client: Client, queue: str, node: str, most: int) -> list[Job]:
    """Take so many jobs and ack each."""
    done: list[Job] = []
    async with asyncio.timeout(30), aclosing(client.queues.work(queue, node)) as jobs:
        async for job in jobs:
            done.append(job)
            await client.queues.ack(queue, node, [job])
            if len(done) == most:
                break
    return done


async def test_jobs_come_as_they_are_settled(client: Client, queue: str) -> None:
    done = await work(client, queue, "w", 4)
    assert [(job.seq, job.data, job.tag, job.meta) for job in done] == [(n, {"n": n}, f"t:{n}", n) for n in range(1, 5)]
    assert (await client.topics.get(queue)).count == 0


async def test_what_is_not_settled_goes_back_when_the_work_ends(client: Client, queue: str) -> None:
    async with asyncio.timeout(30), aclosing(client.queues.work(queue, "w", most=2)) as jobs:
        assert (await anext(jobs)).seq == 1
        assert (await anext(jobs)).seq == 2

    async def given_back() -> bool:
        state = await client.topics.get(queue)
        return state.queue is not None and state.queue.in_flight == 0

    await until(given_back, "the jobs to be given back")


async def test_work_goes_on_when_its_stream_was_cut(
    far: Client, client: Client, network: FlakyProxy, queue: str
) -> None:
    network.faults = [Fault("/work", CUT, words=b"event: job"), Fault("/work", 503)]
    done: list[int] = []
    async with asyncio.timeout(30), aclosing(far.queues.work(queue, "w")) as jobs:
        async for job in jobs:
            if (await client.queues.ack(queue, "w", [job])).acked:
                done.append(job.seq)
            if len(done) == 4:
                break
    assert sorted(done) == [1, 2, 3, 4]


async def test_work_ends_with_its_queue(client: Client, queue: str) -> None:
    jobs = client.queues.work(queue, "w")
    async with asyncio.timeout(30), aclosing(jobs):
        await anext(jobs)
        await client.topics.delete(queue)
        with pytest.raises((NotFound, Conflict)):
            await anext(jobs)
