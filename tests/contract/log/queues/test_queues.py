"""Queues: which worker gets which job, for how long, and what happens to it then."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest

from eventd.errors import Invalid
from eventd.log.core.commit import Transaction
from eventd.log.core.eventlog import EventLog
from eventd.log.core.values import Drafts
from eventd.log.queues import transaction as jobs_module
from eventd.log.queues.units import ClaimJobs, JobHandle, JobHolder, JobRequest, Nack, Refill
from eventd.log.topics.errors import NotAQueue, TopicNotFound
from eventd.log.topics.topics import Ceilings
from eventd.log.topics.write import Write
from eventd.node.housekeeping import Housekeeping
from eventd.observe.metrics import Metrics
from eventd.runtime.clock import SECOND
from eventd.settings.loading import load
from eventd.store.engine.database import Database
from eventd.store.engine.statements import execute, fetch
from eventd.store.rows.leases import JobCounts, acked_seqs, release_leases
from eventd.testing import NOW, ManualClock
from tests.support.queues import Queues, seqs
from tests.support.topics import ALL, Topics, drafts_of


@pytest.fixture
def queues(log: EventLog) -> Queues:
    return Queues(log)


# --- the way of a job ---------------------------------------------------------------------------------------------


async def test_jobs_are_claimed_in_order_and_are_gone_when_they_are_acked(queues: Queues) -> None:
    topic_id = await queues.make("q", lease_ms=30_000)
    await queues.put("q", *range(10), tag="t")
    assert await queues.jobs("q") == JobCounts(10, 0, 0)
    claimed = await queues.deal("q", JobRequest("w1", 4))
    first = claimed.jobs[0]
    assert seqs(first) == [1, 2, 3, 4]
    assert [(job.deliveries, job.recorded_at, job.deadline) for job in first] == [(1, NOW, NOW + 30_000_000)] * 4
    assert (claimed.topic_id, claimed.standing) == (topic_id, JobCounts(6, 4, 0))
    assert len({job.lease_id for job in first}) == 4
    acked = await queues.ack("q", "w1", 1, 2)
    assert (list(acked.done), list(acked.skipped), acked.standing) == ([1, 2], [], JobCounts(6, 2, 0))
    again = await queues.ack("q", "w1", 1, 99, 3)
    assert (list(again.done), list(again.skipped)) == ([3], [1, 99])
    assert [record["data"] for record in await queues.page("q")] == [3, 4, 5, 6, 7, 8, 9]
    assert (await queues.slice("q")).tombstone is None, "an ack is no loss"
    await queues.check("q")


async def test_a_job_that_is_given_back_comes_before_those_that_were_never_claimed(queues: Queues) -> None:
    await queues.make("q")
    await queues.put("q", *range(6))
    await queues.claim("q", "w1", 4)
    assert (await queues.nack("q", "w1", 4, 3)).standing == JobCounts(4, 2, 0)
    again = await queues.claim("q", "w2", 3)
    assert [(job.seq, job.deliveries) for job in again] == [(3, 2), (4, 2), (5, 1)]
    await queues.check("q")


async def test_a_lease_is_valid_until_its_deadline_and_not_any_longer(queues: Queues, clock: ManualClock) -> None:
    await queues.make("q", lease_ms=1000)
    await queues.put("q", "job")
    (job,) = await queues.claim("q", "w1")
    clock.advance(1.0)
    assert await queues.claim("q", "w2") == []
    assert await queues.jobs("q") == JobCounts(0, 1, 0)
    clock.advance(0.001)
    assert await queues.jobs("q") == JobCounts(1, 0, 0), "known although the queue was not read"
    late = await queues.ack("q", "w1", job)
    assert (list(late.done), list(late.skipped), late.standing) == ([], [1], JobCounts(1, 0, 0))
    (again,) = await queues.claim("q", "w2")
    assert (again.seq, again.deliveries) == (1, 2)
    assert again.lease_id != job.lease_id
    await queues.check("q")


async def test_a_lease_that_is_extended_ends_later_and_one_that_is_shortened_sooner(
    queues: Queues, clock: ManualClock
) -> None:
    await queues.make("q", lease_ms=1000)
    await queues.put("q", "job")
    await queues.claim("q", "w1")
    clock.advance(0.9)
    extended = await queues.extend("q", "w1", 1, 7, lease_ms=10_000)
    assert (list(extended.done), list(extended.skipped)) == ([1], [7])
    assert extended.deadline == NOW + 10_900_000
    clock.advance(5)
    assert await queues.claim("q", "w2") == []
    await queues.extend("q", "w1", 1, lease_ms=1)  # the shortest lease is of 100 ms
    clock.advance(0.1)
    assert await queues.claim("q", "w2") == []
    clock.advance(0.001)
    assert seqs(await queues.claim("q", "w2")) == [1]


@pytest.mark.parametrize("step", [-86400, 86400])
async def test_a_step_of_the_wall_clock_moves_no_lease_and_no_delay(
    queues: Queues, clock: ManualClock, step: int
) -> None:
    await queues.make("q", lease_ms=100_000)
    await queues.put("q", "held", "delayed")
    await queues.claim("q", "w1", 2)
    await queues.nack("q", "w1", 2, delay_ms=100_000)
    clock.advance(50)
    clock.set_wall(clock.now() + step * SECOND)
    assert await queues.jobs("q") == JobCounts(0, 1, 0)
    assert await queues.claim("q", "w2", 2) == []
    extended = await queues.extend("q", "w1", 1, lease_ms=50_000)
    assert extended.deadline == clock.now() + 50 * SECOND, "the deadline in the answer is by the wall clock"
    clock.advance(49.9)
    assert await queues.claim("q", "w2", 2) == []
    clock.advance(0.2)
    assert [job.deadline for job in await queues.claim("q", "w2", 2)] == [clock.now() + 100 * SECOND] * 2
    await queues.check("q")


@pytest.mark.parametrize("step", [-40 * 86400, -3600, 3600])
async def test_a_lease_that_outlives_a_restart_ends_though_the_wall_clock_was_set_back(
    queues: Queues, database: Database, step: int
) -> None:
    await queues.make("q", leases_durable=True, lease_ms=100_000)
    await queues.put("q", "job")
    assert seqs(await queues.claim("q", "w1")) == [1]
    later = ManualClock(NOW + step * SECOND)
    await database.write(release_leases, later.steady())
    again = await EventLog.open(database, later)
    held = Queues(again)
    if step < 0:
        later.advance(100)
        assert await held.claim("q", "w2") == [], "not before its time"
        later.advance(0.000_001)
    assert seqs(await held.claim("q", "w2")) == [1]
    await again.close()


async def test_what_outlives_a_start_in_1971_stands_no_longer_than_it_was_asked_for(
    queues: Queues, database: Database
) -> None:
    """A machine without a clock of its own starts so, and the time server sets its clock a moment later."""
    topic = await queues.make("q", leases_durable=True)
    await queues.put("q", "leased", "delayed", "extended", "of an earlier schema")
    await queues.claim("q", "w1", 4, 3000)
    await queues.nack("q", "w1", 2, delay_ms=2000)
    await queues.extend("q", "w1", 3, lease_ms=5000)
    await database.write(execute, "UPDATE leases SET length = 0 WHERE topic_id = ? AND seq = 4", (topic,))
    later = ManualClock(400 * 86_400 * SECOND)
    await database.write(release_leases, later.steady())
    again = await EventLog.open(database, later)
    held, tick = Queues(again), 1 / SECOND
    for seq, seconds in ((2, 2.0), (1, 1.0 + tick), (3, 2.0), (4, 86_395.0 - tick)):
        later.advance(seconds - tick)
        assert await held.claim("q", "w2", 9, 10**8) == []
        later.advance(tick)
        assert seqs(await held.claim("q", "w2", 9, 10**8)) == [seq]
    await held.check("q")
    await again.close()


async def test_a_delay_hides_a_job_for_so_long(queues: Queues, clock: ManualClock) -> None:
    await queues.make("q")
    await queues.put("q", "job")
    await queues.claim("q", "w")
    assert (await queues.nack("q", "w", 1, delay_ms=5000)).standing == JobCounts(0, 0, 0)
    assert await queues.claim("q", "w") == []
    clock.advance(5)
    assert await queues.jobs("q") == JobCounts(1, 0, 0)
    assert [(job.seq, job.deliveries) for job in await queues.claim("q", "w")] == [(1, 2)]
    await queues.check("q")


async def test_only_the_holder_of_a_valid_lease_settles_a_job(queues: Queues, clock: ManualClock) -> None:
    await queues.make("q", lease_ms=1000)
    await queues.put("q", 1, 2)
    stale = await queues.claim("q", "w1", 2)
    for other in (await queues.ack("q", "w2", 1), await queues.nack("q", "w2", 1)):
        assert list(other.skipped) == [1]
    clock.advance(2)
    fresh = await queues.claim("q", "w1", 2)
    assert list((await queues.ack("q", "w1", *stale)).skipped) == [1, 2], "the same node, but under another lease"
    assert list((await queues.extend("q", "w1", stale[0], lease_ms=9000)).skipped) == [1]
    assert list((await queues.ack("q", "w1", *fresh)).done) == [1, 2]


async def test_a_job_that_is_named_twice_is_settled_once(queues: Queues) -> None:
    await queues.make("q")
    await queues.put("q", 1, 2)
    await queues.claim("q", "w", 2)
    acked = await queues.ack("q", "w", 2, 1, 2)
    assert (list(acked.done), list(acked.skipped)) == ([2, 1], [2])
    assert await queues.jobs("q") == JobCounts(0, 0, 0)
    await queues.check("q")


async def test_nodes_that_claim_together_are_dealt_the_jobs_in_turn(queues: Queues) -> None:
    await queues.make("q")
    await queues.put("q", *range(8))
    claimed = await queues.deal("q", JobRequest("a", 10), JobRequest("b", 1), JobRequest("c", 10))
    assert [seqs(hand) for hand in claimed.jobs] == [[1, 4, 6, 8], [2], [3, 5, 7]]
    assert list((await queues.ack("q", "b", 1)).skipped) == [1]


async def test_a_queue_that_gathers_claims_says_so_to_those_that_come_alone(queues: Queues) -> None:
    await queues.make("q", claim_jitter_ms=120)
    await queues.put("q", 1)
    alone = await queues.log.submit(ClaimJobs("q", [JobRequest("w", 1)], os.urandom, gathered=False))
    assert (alone.gather_ms, alone.jobs) == (120, [[]])
    assert seqs(await queues.claim("q")) == [1]


async def test_what_is_no_queue_and_who_has_no_name_is_refused(queues: Queues) -> None:
    await Topics.make(queues, "log")
    await queues.make("q")
    for name, error in (("log", NotAQueue), ("none", TopicNotFound)):
        with pytest.raises(error):
            await queues.claim(name, "")
        with pytest.raises(error):
            await queues.ack(name, "w", 1)
    for node in ("", "n" * 129, "a\0b"):
        with pytest.raises(Invalid, match="node"):
            await queues.claim("q", node)
    far = await queues.ack("q", "w", 2**64 - 1)
    assert list(far.skipped) == [2**64 - 1]


async def test_one_claim_takes_no_more_than_can_be_answered(queues: Queues, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "FOUND_BYTES", 100)
    await queues.make("q")
    await queues.put("q", *["x" * 40] * 9)
    assert seqs(await queues.claim("q", most=9)) == [1, 2, 3]
    assert seqs(await queues.claim("q", most=9)) == [4, 5, 6]


# --- giving up ----------------------------------------------------------------------------------------------------


async def test_a_job_that_comes_back_too_often_goes_to_the_dead_letters(queues: Queues, clock: ManualClock) -> None:
    await queues.make("jobs", lease_ms=1000, max_deliveries=2, dead_letter="dlq")
    await queues.put("jobs", {"n": 1}, tag="t", node="origin", meta={"trace": "x"})
    for _ in range(2):
        assert len(await queues.claim("jobs")) == 1
        clock.advance(2)
    claimed = await queues.deal("jobs", JobRequest("w", 1))
    assert (claimed.jobs, claimed.standing) == ([[]], JobCounts(0, 0, 1))
    (letter,) = await queues.page("dlq", view=ALL)
    assert (letter["data"], letter["$tag"], letter["$node"]) == ({"n": 1}, "t", "origin")
    assert letter["meta"] == {
        "trace": "x",
        "$dead_letter_from": "jobs",
        "$dead_letter_deliveries": "2",
        "$dead_letter_src_seq": "1",
    }
    found = await queues.slice("jobs")
    assert (list(found.seqs), found.tombstone, found.earliest_seq) == ([], None, 2)
    await queues.check("jobs")


async def test_the_claim_that_gives_jobs_up_gets_others(queues: Queues) -> None:
    await queues.make("q", max_deliveries=1, dead_letter="dlq")
    await queues.put("q", *range(40))
    await queues.nack("q", "w", *await queues.claim("q", "w", 30))
    assert seqs(await queues.claim("q", "w", 5)) == [31, 32, 33, 34, 35]
    assert await queues.jobs("q") == JobCounts(5, 5, 30)
    assert len(await queues.page("dlq")) == 30
    await queues.check("q")


async def test_meta_that_is_no_object_is_kept_beside_what_is_said_of_a_dead_letter(queues: Queues) -> None:
    await queues.make("q", max_deliveries=1, dead_letter="dlq")
    await queues.put("q", 1, meta=[1, "two"])
    await queues.nack("q", "w", *await queues.claim("q"))
    await queues.claim("q")
    (letter,) = await queues.page("dlq")
    assert letter["meta"]["$dead_letter_meta"] == [1, "two"]
    assert letter["meta"]["$dead_letter_from"] == "q"


async def test_without_dead_letters_a_job_is_handed_out_for_ever(queues: Queues) -> None:
    await queues.make("q", max_deliveries=1)
    await queues.put("q", 1)
    for deliveries in range(1, 5):
        (job,) = await queues.claim("q")
        assert job.deliveries == deliveries
        await queues.nack("q", "w", job)


@pytest.mark.parametrize("dead_letter", ["full", "group:g"])
async def test_dead_letters_that_nobody_takes_wait_in_the_queue_and_nothing_is_lost(
    queues: Queues, clock: ManualClock, dead_letter: str
) -> None:
    await queues.make("full", type="log", discard="reject", cap_records=1)
    await queues.put("full", 0)
    await queues.make("q", max_deliveries=1, dead_letter=dead_letter)
    await queues.put("q", 1)
    await queues.nack("q", "w", *await queues.claim("q"))
    assert await queues.claim("q") == []
    assert await queues.jobs("q") == JobCounts(0, 0, 0)
    assert [record["data"] for record in await queues.page("q")] == [1]
    await queues.delete("full", before=2)
    await queues.make("q", max_deliveries=1, dead_letter="full")
    assert await queues.claim("q") == []
    clock.advance(5)
    assert await queues.claim("q") == []
    assert await queues.jobs("q") == JobCounts(0, 0, 1)
    assert [record["data"] for record in await queues.page("full")] == [1]
    await queues.check("q")


async def test_dead_letters_keep_to_the_limits_of_their_topic(queues: Queues) -> None:
    await queues.make("dlq", type="log", cap_records=2)
    await queues.make("q", max_deliveries=1, dead_letter="dlq")
    await queues.put("q", 1, 2, 3)
    await queues.nack("q", "w", *await queues.claim("q", most=3))
    await queues.claim("q")
    assert [record["data"] for record in await queues.page("dlq")] == [2, 3]
    assert await queues.losses("dlq") == [(1, 1, "cap")]


@pytest.mark.parametrize(("topics", "size"), [(1, 0), (0, 120)])
async def test_dead_letters_keep_to_the_ceilings_of_all_topics(
    queues: Queues, clock: ManualClock, topics: int, size: int
) -> None:
    """Their topic is one more, and what is said of each takes up more room than the job did."""
    await queues.make("q", max_deliveries=1, dead_letter="dlq")
    await queues.put("q", "x" * 98)
    await queues.nack("q", "w", *await queues.claim("q"))

    async def give_up(ceilings: Ceilings) -> None:
        clock.advance(5)
        claimed = await queues.log.submit(ClaimJobs("q", [JobRequest("w", 1)], os.urandom, ceilings=ceilings))
        assert claimed.jobs == [[]]

    await give_up(Ceilings(topics, size))
    assert [record["data"] for record in await queues.page("q")] == ["x" * 98], "it waits in the queue"
    assert await queues.log.database.read(fetch, "SELECT sum(next_seq - 1) FROM topics WHERE name = 'dlq'") in (
        [(None,)],
        [(0,)],
    )
    await give_up(Ceilings(2, 400))
    assert [record["data"] for record in await queues.page("dlq")] == ["x" * 98]
    await queues.check("q")


# --- beside other things that happen to a topic ---------------------------------------------------------------------


async def test_a_job_that_is_deleted_is_no_job_any_more(queues: Queues) -> None:
    await queues.make("q")
    await queues.put("q", 1, 2, tag="go")
    await queues.put("q", 3, 4, 5, tag="stay")
    await queues.claim("q", "w", 4)
    await queues.ack("q", "w", 2)
    done = await queues.delete("q", match="go")
    assert done.deleted == 1, "the other one was acked"
    assert (await queues.jobs("q")) == JobCounts(1, 2, 0)
    assert list((await queues.ack("q", "w", 1)).skipped) == [1]
    await queues.delete("q", before=4)
    assert await queues.jobs("q") == JobCounts(1, 1, 0)
    assert seqs(await queues.claim("q", "w", 9)) == [5]
    await queues.check("q")


async def test_jobs_that_outlive_their_time_are_lost_also_to_who_holds_them(queues: Queues, clock: ManualClock) -> None:
    await queues.make("q", ttl_ms=10_000)
    await queues.put("q", 1, 2, 3)
    await queues.claim("q", "w", 2)
    await queues.ack("q", "w", 2)
    clock.advance(11)
    await queues.put("q", 4)
    assert seqs(await queues.claim("q", "w", 9)) == [4]
    assert list((await queues.ack("q", "w", 1)).skipped) == [1]
    assert await queues.losses("q") == [(1, 1, "ttl"), (3, 3, "ttl")], "what was acked is no loss"
    assert await queues.jobs("q") == JobCounts(0, 1, 0)
    await queues.check("q")


async def test_a_full_queue_that_refuses_takes_new_jobs_as_soon_as_some_are_acked(queues: Queues) -> None:
    await queues.make("q", discard="reject", cap_records=3)
    await queues.put("q", 1, 2, 3)
    await queues.claim("q", "w", 3)
    acked = await queues.ack("q", "w", 2)
    assert acked.room
    await queues.put("q", 4)
    assert seqs(await queues.claim("q", "w", 3)) == [4]
    found = await queues.slice("q")
    assert (list(found.seqs), found.tombstone) == ([1, 3, 4], None), "an old job without an ack stays"
    await queues.check("q")


async def test_a_queue_over_its_cap_loses_the_oldest_jobs(queues: Queues) -> None:
    await queues.make("q", cap_records=3)
    await queues.put("q", 1, 2, 3)
    await queues.claim("q", "w", 2)
    await queues.ack("q", "w", 1)
    await queues.put("q", 4, 5)
    assert await queues.losses("q") == [(2, 2, "cap")]
    assert list((await queues.ack("q", "w", 2)).skipped) == [2]
    assert await queues.jobs("q") == JobCounts(3, 0, 0)
    await queues.check("q")


async def test_whoever_does_things_in_one_transaction_sees_what_was_done_before(queues: Queues) -> None:
    await queues.make("q")
    await queues.put("q", 1, 2, 3)
    log = queues.log
    first = log.submit(ClaimJobs("q", [JobRequest("a", 2)], os.urandom))
    second = log.submit(ClaimJobs("q", [JobRequest("b", 2)], os.urandom))
    given_back = log.submit(Nack("q", "a", [JobHandle(1)]))
    third = log.submit(ClaimJobs("q", [JobRequest("c", 2)], os.urandom))
    late = log.submit(Write("q", drafts_of([{"data": 4}]), flushes=log.flushes))
    assert seqs((await first).jobs[0]) == [1, 2]
    assert seqs((await second).jobs[0]) == [3]
    assert list((await given_back).done) == [1]
    assert [(job.seq, job.deliveries) for job in (await third).jobs[0]] == [(1, 2)]
    assert (await late).first_seq == 4
    assert (await third).standing == JobCounts(1, 3, 0), "all of them stand as their transaction leaves the queue"
    await queues.check("q")


async def test_a_failure_beside_it_undoes_a_claim_and_it_is_made_again(queues: Queues) -> None:
    await queues.make("q")
    await queues.put("q", 1)
    claim = queues.log.submit(ClaimJobs("q", [JobRequest("a", 2)], os.urandom))
    broken = queues.log.submit(_Broken("q", [], os.urandom))
    with pytest.raises(ZeroDivisionError):
        await broken
    assert seqs((await claim).jobs[0]) == [1]
    await queues.check("q")


class _Broken(ClaimJobs):
    """A unit with a fault."""

    def admit(self, tx: Transaction) -> Drafts:
        raise ZeroDivisionError


# --- what is stored -----------------------------------------------------------------------------------------------


async def test_acks_out_of_order_leave_what_is_done_out_before_it_is_cleared_away(queues: Queues) -> None:
    topic_id = await queues.make("q")
    await queues.put("q", *range(1, 101))
    await queues.claim("q", "w", 100)
    await queues.ack("q", "w", *range(100, 60, -1))
    assert await queues.log.database.read(acked_seqs, topic_id, 61, 100) == frozenset(range(61, 101))
    assert await queues.blocks("q") == [(1, 100)], "not worth while yet"
    assert (await queues.slice("q", limit=1000)).seqs == list(range(1, 61))
    assert (await queues.standing("q")).count == 60
    await queues.check("q")
    await queues.ack("q", "w", *range(60, 45, -1))
    assert not await queues.log.database.read(acked_seqs, topic_id, 1, 100), "half of the block is done"
    assert (await queues.slice("q", limit=1000)).seqs == list(range(1, 46))
    await queues.check("q")
    await queues.ack("q", "w", *range(2, 46))
    assert (await queues.slice("q")).seqs == [1]
    await queues.check("q")
    acked = await queues.ack("q", "w", 1)
    assert acked.standing == JobCounts(0, 0, 0)
    found = await queues.slice("q")
    assert (found.earliest_seq, found.head_seq, found.tombstone) == (101, 100, None)
    assert await queues.blocks("q") == []
    assert await queues.log.database.read(fetch, "SELECT count(*) FROM leases") == [(0,)]
    await queues.check("q")


async def test_acks_in_order_raise_the_floor_without_rewriting_what_is_large(queues: Queues) -> None:
    await queues.make("q")
    await queues.put("q", *range(1, 201))
    await queues.claim("q", "w", 200)
    await queues.ack("q", "w", 1)
    pieces = await queues.blocks("q")
    assert pieces[0] == (2, 32)
    assert sum(records for _, records in pieces) == 199
    for seq in range(2, 40):
        await queues.ack("q", "w", seq)
        assert (await queues.slice("q")).earliest_seq == seq + 1
    assert (await queues.blocks("q"))[1:] == pieces[2:], "the others are as they were"
    await queues.check("q")


async def test_the_identity_of_a_copy_that_is_acked_is_remembered_for_a_while_only(queues: Queues) -> None:
    """Event ids distinguish copies from repetitions, also of jobs."""
    await queues.make("q")
    copies = drafts_of([{"data": number} for number in range(6)], path="1 o")
    ids = [f"o{number}" for number in range(6)]
    paths = [f"1 {one}" for one in ids]
    await queues.log.submit(Write("q", replace(copies, event_ids=ids, paths=paths), flushes=queues.log.flushes))
    await queues.claim("q", "w", 6)
    for acked, gone in (([1], ["o0"]), ([3, 4, 5], ["o0", "o2", "o3", "o4"]), ([2, 6], ids)):
        await queues.ack("q", "w", *acked)
        found = await queues.log.database.read(fetch, "SELECT event_id, gone_at FROM event_ids ORDER BY event_id")
        assert [event_id for event_id, gone_at in found if gone_at is not None] == gone
        assert await queues.log.database.read(fetch, "SELECT ids FROM topics WHERE name = 'q'") == [(6 - len(gone),)]
        await queues.check("q")


# --- over a restart -----------------------------------------------------------------------------------------------


async def test_leases_are_released_at_a_start_and_deliveries_stay_counted(queues: Queues, clock: ManualClock) -> None:
    kept, released = await queues.make("kept", leases_durable=True), await queues.make("q")
    assert kept != released
    for name in ("kept", "q"):
        await queues.put(name, 1, 2, 3)
        await queues.claim(name, "w", 2)
        await queues.nack(name, "w", 1, delay_ms=60_000)
        await queues.ack(name, "w", 2)
    await queues.log.database.write(release_leases, clock.steady())
    assert await queues.jobs("q") == JobCounts(2, 0, 0)
    assert await queues.jobs("kept") == JobCounts(1, 0, 0)
    assert [(job.seq, job.deliveries) for job in await queues.claim("q", "w", 9)] == [(1, 2), (3, 1)]
    assert seqs(await queues.claim("kept", "w", 9)) == [3]
    for name in ("kept", "q"):
        await queues.check(name)


async def test_a_node_that_starts_releases_leases_and_one_for_a_group_alone_does_not(
    queues: Queues, migrated_url: str
) -> None:
    await queues.make("q")
    await queues.put("q", 1, 2, 3)
    await queues.claim("q", "w", 2)
    for group, standing in (("edge", JobCounts(1, 2, 0)), ("", JobCounts(3, 0, 0))):
        settings = load({"database_url": migrated_url} | ({"group": group} if group else {}), {})
        await Housekeeping(queues.log, settings, Metrics()).begin()
        assert await queues.jobs("q") == standing
    await queues.check("q")


# --- nodes that stay ----------------------------------------------------------------------------------------------


async def test_a_holder_is_refilled_as_far_as_it_settled_or_lost_jobs(queues: Queues, clock: ManualClock) -> None:
    topic_id = await queues.make("q", lease_ms=10_000)
    await queues.put("q", *range(9))
    wish = JobRequest("w", 3)
    first = await queues.log.submit(Refill(topic_id, [JobHolder(wish, {})], os.urandom))
    assert [seqs(hand) for hand in first.jobs] == [[1, 2, 3]]
    assert first.look_at == NOW + 10_000_001
    held = {job.seq: job.lease_id for job in first.jobs[0]}
    await queues.ack("q", "w", 2)
    idle = JobHolder(JobRequest("v", 0), {})
    second = await queues.log.submit(Refill(topic_id, [idle, JobHolder(wish, held)], os.urandom))
    assert (list(second.kept), [seqs(hand) for hand in second.jobs]) == ([frozenset(), {1, 3}], [[], [4]])
    clock.advance(11)
    third = await queues.log.submit(Refill(topic_id, [JobHolder(wish, held)], os.urandom))
    assert (list(third.kept), [seqs(hand) for hand in third.jobs]) == ([frozenset()], [[1, 3, 4]])
    await queues.nack("q", "w", 1, 3, 4, delay_ms=2000)
    last = await queues.log.submit(Refill(topic_id, [JobHolder(JobRequest("w", 0), {})], os.urandom))
    assert last.look_at == clock.now() + 2_000_000
    with pytest.raises(TopicNotFound):
        await queues.log.submit(Refill(topic_id + 99, [JobHolder(wish, {})], os.urandom))


async def test_a_holder_that_wishes_for_nothing_takes_nothing_from_others(queues: Queues) -> None:
    topic_id = await queues.make("q")
    await queues.put("q", *range(3))
    await queues.log.submit(Refill(topic_id, [JobHolder(JobRequest("w", 0), {})], os.urandom))
    assert await queues.jobs("q") == JobCounts(3, 0, 0)
    assert seqs(await queues.claim("q", "v", 9)) == [1, 2, 3]


async def test_data_and_meta_of_a_job_are_what_was_written(queues: Queues) -> None:
    await queues.make("q")
    await queues.put("q", {"ä": [1, None, "\t"]}, meta={"m": 1}, tag="t")
    (job,) = await queues.claim("q")
    assert json.loads(job.body) == {"$tag": "t", "meta": {"m": 1}, "data": {"ä": [1, None, "\t"]}}
