"""What topics evict at their limits, what is deleted in them, and which losses readers see."""

from __future__ import annotations

import pytest

from eventd.errors import NotFound
from eventd.log.core.eventlog import EventLog
from eventd.log.core.losses import SOURCE_TRIM
from eventd.log.retention import prefix, rewrite
from eventd.log.topics.delete import Delete, DeleteStep, Deletion, delete_records
from eventd.log.topics.errors import Incompatible
from eventd.log.topics.limits import TopicSize, skip_seqs, sweep
from eventd.log.topics.predicate import parse
from eventd.log.topics.topic_page import Tombstone
from eventd.store.engine.database import Database
from eventd.store.engine.statements import fetch
from eventd.testing import NOW, ManualClock
from tests.support.topics import ALL, Topics


@pytest.fixture
def topics(log: EventLog) -> Topics:
    return Topics(log)


async def seqs(topics: Topics, name: str, from_seq: int = 0) -> list[int]:
    return list((await topics.slice(name, from_seq)).seqs)


# --- caps ---------------------------------------------------------------------------------------------------------


async def test_over_a_cap_of_records_the_oldest_go_and_readers_behind_are_told(topics: Topics) -> None:
    await topics.make("cap", cap_records=3)
    for number in range(5):
        await topics.put("cap", number)
    assert await topics.standing("cap") == TopicSize(3, 3, 3)
    found = await topics.slice("cap", 0)
    assert found.tombstone == Tombstone(1, 2, "cap", 2, 3, 5)
    assert (list(found.seqs), found.caught_up, found.earliest_seq) == ([3, 4, 5], True, 3)
    assert (await topics.slice("cap", 1)).tombstone == Tombstone(2, 2, "cap", 1, 3, 5)
    for from_seq in (2, 3, 5):
        assert (await topics.slice("cap", from_seq)).tombstone is None


async def test_over_a_cap_of_bytes_the_oldest_go(topics: Topics) -> None:
    await topics.make("cap", cap_bytes=10)
    await topics.put("cap", "aa", "bb", "cc")  # 4 bytes each, with their quotes
    assert await topics.standing("cap") == TopicSize(2, 8, 2)
    await topics.put("cap", 1)
    assert await topics.standing("cap") == TopicSize(3, 9, 2)
    await topics.put("cap", "dddddd")
    assert await topics.standing("cap") == TopicSize(2, 9, 4)
    assert await topics.losses("cap") == [(1, 3, "cap")]


async def test_the_stricter_of_two_caps_counts(topics: Topics) -> None:
    await topics.make("cap", cap_bytes=100, cap_records=2)
    await topics.put("cap", 1, 2, 3)
    assert (await topics.standing("cap")).count == 2
    await topics.make("cap", cap_bytes=1, cap_records=2)
    assert (await topics.standing("cap")).count == 1


async def test_a_cap_counts_what_lives_not_how_far_the_head_is_from_the_floor(topics: Topics) -> None:
    await topics.make("cap", cap_records=3)
    await topics.put("cap", 1, 2, 3)
    await topics.delete("cap", match="nothing")
    await topics.put("cap", 4, tag="x")
    assert await seqs(topics, "cap") == [2, 3, 4]
    await topics.delete("cap", match="x")
    await topics.put("cap", 5)
    assert await seqs(topics, "cap") == [2, 3, 5], "there was room for it"
    assert await topics.losses("cap") == [(1, 1, "cap")]


async def test_a_topic_that_refuses_loses_no_live_record_to_a_cap(topics: Topics) -> None:
    """Also when records were deleted from its middle, and when the cap is lowered below what it holds."""
    await topics.make("jobs", cap_records=3, discard="reject")
    await topics.put("jobs", 1, 2)
    await topics.put("jobs", 3, tag="done")
    await topics.delete("jobs", match="done")
    await topics.put("jobs", 4)
    assert await seqs(topics, "jobs") == [1, 2, 4]
    await topics.make("jobs", cap_records=1, cap_bytes=1, discard="reject")
    found = await topics.slice("jobs", 0)
    assert (list(found.seqs), found.tombstone) == ([1, 2, 4], None)


async def test_a_floor_never_moves_back(topics: Topics) -> None:
    await topics.make("cap", cap_records=2)
    await topics.put("cap", 1, 2, 3, 4)
    await topics.make("cap")
    assert await topics.standing("cap") == TopicSize(2, 2, 3)
    assert await seqs(topics, "cap") == [3, 4]
    await topics.put("cap", 5)
    found = await topics.slice("cap", 0)
    assert (list(found.seqs), found.tombstone) == ([3, 4, 5], Tombstone(1, 2, "cap", 2, 3, 5))


async def test_a_lowered_cap_takes_effect_at_once(topics: Topics) -> None:
    await topics.make("cap")
    await topics.put("cap", *range(10))
    await topics.make("cap", cap_records=4)
    assert await topics.standing("cap") == TopicSize(4, 4, 7)
    assert await topics.losses("cap") == [(1, 6, "cap")]


async def test_a_batch_larger_than_the_cap_keeps_its_newest(topics: Topics) -> None:
    await topics.make("cap", cap_records=2)
    assert await topics.put("cap", *range(7)) == [1, 2, 3, 4, 5, 6, 7]
    assert await seqs(topics, "cap") == [6, 7]


async def test_records_that_go_one_by_one_do_not_have_their_block_written_again_each_time(topics: Topics) -> None:
    await topics.make("cap", cap_records=1000)
    await topics.put("cap", *range(1000))
    await topics.put("cap", "one more")
    shape = await topics.blocks("cap")
    assert shape[0] == (2, rewrite.PIECE_RECORDS), "the first cut split it"
    await topics.put("cap", "one more")
    assert await topics.blocks("cap") == [(3, rewrite.PIECE_RECORDS - 1), *shape[1:], (1002, 1)], (
        "the next ones cost little"
    )
    assert len(await topics.page("cap", 0, limit=1000)) == 1000


async def test_a_lot_goes_in_several_steps(
    topics: Topics, database: Database, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefix, "STEP_RECORDS", 100)
    await topics.make("cap")
    for _ in range(10):
        await topics.put("cap", *range(100))
    await topics.make("cap", cap_records=50)
    assert (await topics.standing("cap")).count == 900
    steps = 0
    while await database.write(sweep, clock.now()):
        steps += 1
    assert steps == 9
    assert await topics.standing("cap") == TopicSize(50, 100, 951)
    assert await topics.losses("cap") == [(1, 950, "cap")]


# --- time to live -------------------------------------------------------------------------------------------------


async def test_what_is_too_old_goes_and_readers_behind_are_told(topics: Topics, clock: ManualClock) -> None:
    await topics.make("ttl", ttl_ms=150)
    await topics.put("ttl", 1, 2, 3)
    clock.advance(0.151)
    await topics.put("ttl", 4)
    assert await topics.standing("ttl") == TopicSize(1, 1, 4)
    found = await topics.slice("ttl", 0)
    assert (list(found.seqs), found.tombstone) == ([4], Tombstone(1, 3, "ttl", 3, 4, 4))


async def test_a_record_lives_for_all_of_its_milliseconds(topics: Topics, clock: ManualClock) -> None:
    await topics.make("ttl", ttl_ms=150)
    await topics.put("ttl", 1)
    clock.advance(0.150)
    assert await seqs(topics, "ttl") == [1]
    clock.advance(0.001)
    assert await seqs(topics, "ttl") == []


async def test_what_is_too_old_is_hidden_before_it_is_removed(
    topics: Topics, clock: ManualClock, database: Database
) -> None:
    """A reader writes nothing, and sees what the sweep will make true: also which records were deleted."""
    await topics.make("ttl", ttl_ms=100)
    await topics.put("ttl", 1)
    await topics.put("ttl", 2, tag="x")
    await topics.put("ttl", 3)
    clock.advance(0.05)
    await topics.put("ttl", 4, tag="x")
    await topics.put("ttl", 5)
    await topics.delete("ttl", match="x")
    clock.advance(0.06)
    hidden = await topics.slice("ttl", 0)
    standing = await topics.standing("ttl")
    assert len(await topics.blocks("ttl")) == 3, "still there"
    assert (list(hidden.seqs), hidden.earliest_seq) == ([5], 5)
    assert hidden.tombstone == Tombstone(1, 3, "ttl", 2, 4, 5), "of three seqs two were lost, one was deleted"
    assert standing == TopicSize(1, 1, 5)
    assert await database.write(sweep, clock.now()) == 1
    assert await topics.blocks("ttl") == [(5, 1)]
    swept = await topics.slice("ttl", 0)
    assert (swept.tombstone, swept.seqs, swept.earliest_seq) == (hidden.tombstone, hidden.seqs, hidden.earliest_seq)
    assert await topics.standing("ttl") == standing


async def test_a_time_to_live_that_is_set_later_takes_effect_at_once(topics: Topics, clock: ManualClock) -> None:
    await topics.make("ttl")
    await topics.put("ttl", 1)
    clock.advance(10)
    await topics.make("ttl", ttl_ms=5000)
    assert await topics.standing("ttl") == TopicSize(0, 0, 2)
    assert await topics.losses("ttl") == [(1, 1, "ttl")]


async def test_a_time_to_live_that_is_taken_back_lets_the_rest_live(
    topics: Topics, clock: ManualClock, database: Database
) -> None:
    await topics.make("ttl", ttl_ms=100)
    await topics.put("ttl", 1)
    await topics.make("ttl")
    clock.advance(10)
    assert await database.write(sweep, clock.now()) == 0
    assert await seqs(topics, "ttl") == [1]


async def test_the_sweep_finds_what_is_due_and_nothing_else(
    topics: Topics, clock: ManualClock, database: Database
) -> None:
    for name, ttl in (("soon", 100), ("later", 10_000), ("never", 0)):
        await topics.make(name, ttl_ms=ttl)
        await topics.put(name, 1)
    await topics.make("idle", ttl_ms=100)
    due = "SELECT name FROM topics WHERE due_at <= ? ORDER BY name"
    assert await database.read(fetch, due, (NOW + 200_000,)) == [("soon",)]
    clock.advance(0.2)
    assert await database.write(sweep, clock.now()) == 1
    assert await database.write(sweep, clock.now()) == 0, "what is empty is not due"
    assert await topics.losses("soon") == [(1, 1, "ttl")]
    assert await seqs(topics, "later") == [1]


async def test_times_never_go_back_in_a_topic_so_age_goes_with_order(topics: Topics, clock: ManualClock) -> None:
    await topics.make("ttl", ttl_ms=1000)
    await topics.put("ttl", 1)
    clock.set_wall(NOW - 10**9)
    await topics.put("ttl", 2)
    clock.set_wall(NOW)
    first, second = await topics.page("ttl")
    assert first["$ts"] == second["$ts"] == NOW // 1000
    clock.advance(1.001)
    assert await seqs(topics, "ttl") == []


async def test_what_went_for_both_reasons_is_told_as_both(topics: Topics, clock: ManualClock) -> None:
    await topics.make("both", ttl_ms=1000, cap_records=3)
    await topics.put("both", 1, 2, 3, 4)
    clock.advance(2)
    await topics.put("both", 5)
    assert await topics.losses("both") == [(1, 1, "cap"), (2, 4, "ttl")]
    assert (await topics.slice("both", 0)).tombstone == Tombstone(1, 4, "mixed", 4, 5, 5)
    assert (await topics.slice("both", 1)).tombstone == Tombstone(2, 4, "ttl", 3, 5, 5)


# --- deletes ------------------------------------------------------------------------------------------------------


async def test_deleting_what_lies_before_a_seq_is_silent(topics: Topics) -> None:
    await topics.make("del")
    await topics.put("del", *range(5))
    assert await topics.delete("del", before=3) == Deletion(2, 3, 5, 3, 3)
    found = await topics.slice("del", 0)
    assert (list(found.seqs), found.tombstone, found.earliest_seq) == ([3, 4, 5], None, 3)
    assert await topics.delete("del", before=3) == Deletion(0, 3, 5, 3, 3), "once is enough"
    assert await topics.delete("del", before=2**63) == Deletion(3, 6, 5, 0, 0)
    assert await topics.delete("del", before=0) == Deletion(0, 6, 5, 0, 0)


async def test_deleting_by_tag(topics: Topics) -> None:
    await topics.make("del")
    for tag in ("tenant42:job-1", "tenant42:job-2", "other:job-9"):
        await topics.put("del", tag, tag=tag)
    await topics.put("del", "none")
    done = await topics.delete("del", match=["tag", "Eq", "tenant42:job-1"])
    assert (done.deleted, done.earliest_seq, done.count) == (1, 2, 3)
    done = await topics.delete("del", match=["tag", "Glob", "tenant42:*"])
    assert (done.deleted, done.earliest_seq, done.count) == (1, 3, 2)
    done = await topics.delete("del", match="*")
    assert (done.deleted, done.earliest_seq, done.count) == (1, 4, 1), "what has no tag stays"


@pytest.mark.parametrize("together", [True, False])
async def test_a_prefix_ends_where_it_ends_and_a_tag_is_compared_as_it_is_written(
    topics: Topics, together: bool
) -> None:
    tags = ["chat-42:a", "chat-42:b", "chat-420:c", 'qu"ote', "ünïcode", "back\\slash", "zzz"]
    await topics.make("del")
    if together:
        await topics.add("del", [{"data": 1, "tag": tag} for tag in tags])
    else:
        for tag in tags:
            await topics.put("del", 1, tag=tag)
    for match, deleted in (("chat-42:*", 2), ('qu"*', 1), ("ünï*", 1), ("back\\slash", 1), ("zz", 0), ("ZZZ", 0)):
        assert (await topics.delete("del", match=match)).deleted == deleted, match
    assert await seqs(topics, "del") == [3, 7]


async def test_a_seq_and_a_tag_both_have_to_fit(topics: Topics) -> None:
    await topics.make("del")
    for tag in ("msg-123", "msg-999", "msg-123"):
        await topics.put("del", 1, tag=tag)
    assert (await topics.delete("del", before=3, match=["tag", "Eq", "msg-123"])).deleted == 1
    assert await seqs(topics, "del") == [2, 3]


async def test_deleting_is_about_what_is_there_at_that_time(topics: Topics) -> None:
    await topics.make("del")
    await topics.put("del", 1, tag="chat-42:msg")
    done = await topics.delete("del", match="chat-42:*")
    assert (done.count, done.earliest_seq) == (0, 2)
    assert await topics.put("del", 2, tag="chat-42:msg") == [2]
    assert await seqs(topics, "del") == [2]


async def test_deleting_from_the_middle_leaves_the_other_records_of_a_block(topics: Topics) -> None:
    await topics.make("del")
    told = [{"data": {"n": n}, "tag": f"t{n % 3}", "node": f"n{n}", "meta": {"m": n}} for n in range(9)]
    await topics.add("del", told)
    done = await topics.delete("del", match="t1")
    assert (done.deleted, done.earliest_seq, done.count) == (3, 1, 6)
    left = await topics.page("del", 0, view=ALL)
    assert [record["data"]["n"] for record in left] == [0, 2, 3, 5, 6, 8]
    assert [record["$node"] for record in left] == ["n0", "n2", "n3", "n5", "n6", "n8"]
    done = await topics.delete("del", match="t0")
    assert (done.earliest_seq, done.count, await topics.losses("del")) == (3, 3, [])
    done = await topics.delete("del", match="t2")
    assert (done.earliest_seq, done.count, done.bytes, await topics.blocks("del")) == (10, 0, 0, [])


async def test_a_large_delete_goes_in_steps_and_spares_what_is_written_meanwhile(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventd.log.topics.delete.LOOKED_AT", 50)
    await topics.make("del")
    for _ in range(10):
        await topics.put("del", *range(10), tag="x")
    submit, steps = topics.log.submit, 0

    async def writing_between(unit: Delete) -> DeleteStep:
        nonlocal steps
        done = await submit(unit)
        steps += 1
        await topics.put("del", "new", tag="x")
        return done

    done = await delete_records(writing_between, "del", predicate=parse("x"))
    assert (done.deleted, steps > 1) == (100, True)
    assert await seqs(topics, "del") == [100 + n for n in range(1, steps + 1)]


async def test_what_is_not_there_cannot_be_emptied_nor_can_a_group(topics: Topics) -> None:
    with pytest.raises(NotFound, match="topic 'ghost' does not exist"):
        await topics.delete("ghost", before=5)
    await topics.log.topic("group:g")
    with pytest.raises(Incompatible, match="topic of an event group"):
        await topics.delete("group:g", before=5)


async def test_what_was_too_old_is_lost_and_not_deleted(topics: Topics, clock: ManualClock) -> None:
    await topics.make("del", ttl_ms=100)
    await topics.put("del", 1, 2)
    clock.advance(1)
    assert (await topics.delete("del", before=3)).deleted == 0
    assert await topics.losses("del") == [(1, 2, "ttl")]


# --- both watermarks ----------------------------------------------------------------------------------------------


async def test_a_loss_is_told_without_what_was_deleted_before_it(topics: Topics) -> None:
    await topics.make("dual", cap_records=4)
    for number in range(1, 5):
        await topics.put("dual", number)
    await topics.delete("dual", before=3)
    found = await topics.slice("dual", 0)
    assert (list(found.seqs), found.tombstone) == ([3, 4], None)
    for number in range(5, 11):
        await topics.put("dual", number)
    found = await topics.slice("dual", 0)
    assert list(found.seqs) == [7, 8, 9, 10]
    assert found.tombstone == Tombstone(3, 6, "cap", 4, 7, 10)


async def test_a_loss_around_deleted_records_says_how_many_it_was(topics: Topics) -> None:
    await topics.make("dual")
    for number in range(1, 7):
        await topics.put("dual", number, tag="x" if number in (2, 4) else "y")
    await topics.delete("dual", match="x")
    await topics.make("dual", cap_records=1)
    assert await topics.losses("dual") == [(1, 1, "cap"), (3, 3, "cap"), (5, 5, "cap")]
    assert (await topics.slice("dual", 0)).tombstone == Tombstone(1, 5, "cap", 3, 6, 6)
    assert (await topics.slice("dual", 3)).tombstone == Tombstone(5, 5, "cap", 1, 6, 6)


async def test_a_floor_passes_over_what_was_deleted_behind_it(topics: Topics) -> None:
    await topics.make("dual")
    for number in range(1, 5):
        await topics.put("dual", number, tag="x" if number == 2 else "y")
    await topics.delete("dual", match="x")
    await topics.make("dual", cap_records=2)
    found = await topics.slice("dual", 0)
    assert (found.earliest_seq, found.tombstone) == (3, Tombstone(1, 1, "cap", 1, 2, 4))
    assert await topics.standing("dual") == TopicSize(2, 2, 3)


# --- holes --------------------------------------------------------------------------------------------------------


async def test_a_topic_may_begin_with_records_that_never_came(topics: Topics, database: Database) -> None:
    dest = await topics.make("dest")
    await database.write(skip_seqs, dest, 2)
    assert await topics.standing("dest") == TopicSize(0, 0, 3)
    assert (await topics.slice("dest", 0)).tombstone == Tombstone(1, 2, SOURCE_TRIM, 2, 3, 2)
    assert await topics.put("dest", "copy") == [3]
    found = await topics.slice("dest", 0)
    assert (list(found.seqs), found.tombstone) == ([3], Tombstone(1, 2, SOURCE_TRIM, 2, 3, 3))


async def test_records_that_never_came_may_be_missing_between_others(topics: Topics, database: Database) -> None:
    dest = await topics.make("dest")
    await topics.put("dest", 1, 2, 3)
    await database.write(skip_seqs, dest, 2)
    await topics.put("dest", 6, 7)
    await database.write(skip_seqs, dest, 1)
    assert await topics.standing("dest") == TopicSize(5, 5, 1)
    told = Tombstone(4, 5, SOURCE_TRIM, 2, 6, 8)
    found = await topics.slice("dest", 0)
    assert (list(found.seqs), found.next_from_seq, found.caught_up) == ([1, 2, 3, 6, 7], 7, False)
    assert found.tombstone == told
    found = await topics.slice("dest", 7)
    assert (list(found.seqs), found.caught_up, found.tombstone) == ([], True, Tombstone(8, 8, SOURCE_TRIM, 1, 9, 8))
    found = await topics.slice("dest", 0, limit=3)
    assert (found.next_from_seq, found.tombstone) == (3, None), "the loss is reported where it is passed"
    assert (await topics.slice("dest", 3)).tombstone == told
    assert (await topics.slice("dest", 4)).tombstone == told.__class__(5, 5, SOURCE_TRIM, 1, 6, 8)
    assert (await topics.slice("dest", 5)).seqs == [6, 7]


async def test_a_page_may_be_asked_to_end_before_what_is_missing(topics: Topics, database: Database) -> None:
    dest = await topics.make("dest")
    await topics.put("dest", 1, 2)
    await database.write(skip_seqs, dest, 2)
    await topics.put("dest", 5)
    found = await topics.slice("dest", 0, apart=True)
    assert (list(found.seqs), found.next_from_seq, found.tombstone) == ([1, 2], 2, None)
    found = await topics.slice("dest", 2, apart=True)
    assert (list(found.seqs), found.tombstone) == ([5], Tombstone(3, 4, SOURCE_TRIM, 2, 5, 5))


async def test_limits_and_deletes_go_over_holes(topics: Topics, database: Database) -> None:
    dest = await topics.make("dest")
    await topics.put("dest", 1, 2)
    await database.write(skip_seqs, dest, 2)
    await topics.put("dest", 5, 6, 7)
    await topics.make("dest", cap_records=3)
    assert await topics.standing("dest") == TopicSize(3, 3, 5), "the hole is behind the floor"
    assert await topics.losses("dest") == [(1, 2, "cap"), (3, 4, SOURCE_TRIM)]
    assert (await topics.slice("dest", 0)).tombstone == Tombstone(1, 4, "mixed", 4, 5, 7)
    await database.write(skip_seqs, dest, 3)
    assert await topics.delete("dest", before=100) == Deletion(3, 11, 10, 0, 0)
    assert (await topics.slice("dest", 6)).tombstone == Tombstone(8, 10, SOURCE_TRIM, 3, 11, 10)
