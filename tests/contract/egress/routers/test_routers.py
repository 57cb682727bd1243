"""Routers over each database: what is copied, what waits, which losses are reported, and that nothing is
copied twice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from eventd.egress.routers.projection import MOST_KEYS, Guarantee, Router
from eventd.egress.routers.pump import RETRY_SECONDS, Routing
from eventd.egress.routers.registry import RouterRegistry
from eventd.egress.routers.state import DeclaredRouter, prepare, read_declared
from eventd.log.core.eventlog import EventLog
from eventd.log.queues.units import Ack, ClaimJobs, JobHandle, JobRequest
from eventd.log.routers.commit import CommitSteps, RouterStep
from eventd.log.routers.source import CopyPage
from eventd.log.topics.errors import Incompatible, RouterCycle
from eventd.log.topics.router_rows import read_heads
from eventd.log.topics.topic_page import Tombstone
from eventd.log.topics.topics import DeleteTopic
from eventd.runtime.supervisor import Supervisor
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import execute, fetch
from eventd.testing import ManualClock, give_turns, until
from tests.contract.egress.conftest import BOTH_DATABASES
from tests.support.routed import RoutedTopics


@pytest.fixture
async def routed(log: EventLog) -> AsyncIterator[RoutedTopics]:
    opened = RoutedTopics(log)
    await opened.start()
    yield opened
    await opened.stop()


ONCE = {"guarantee": Guarantee.EXACTLY_ONCE}
FAN_IN = {"fan_in": True}


async def restart(routed: RoutedTopics) -> None:
    await routed.stop()
    await routed.start()


async def letters(routed: RoutedTopics) -> list[tuple[str, int, str]]:
    return await routed.log.database.read(fetch, "SELECT cursor, position, reason FROM dead_letters ORDER BY position")


# --- what is copied -----------------------------------------------------------------------------------------------


@BOTH_DATABASES
async def test_what_comes_after_a_router_is_copied_in_order_and_once(routed: RoutedTopics) -> None:
    await routed.make("a")
    await routed.put("a", "before")
    await routed.route("a->b")
    for number in range(3):
        await routed.put("a", *range(number * 300, number * 300 + 300))
    assert await routed.data("b") == [*range(900)]
    await restart(routed)
    assert await routed.data("b") == [*range(900)]
    line = await routed.line("a->b")
    assert (line.seq, line.forwarded, line.refused, line.state) == (901, 900, 0, "running")


async def test_thousands_behind_are_caught_up_together_with_those_ahead(routed: RoutedTopics) -> None:
    await routed.route("a->b", "a->c")
    await routed.stop()
    for number in range(12):
        await routed.put("a", *range(number * 100, number * 100 + 100))
    await routed.start(steps=3)
    await routed.settled("b")
    await routed.stop()
    await routed.route("a->d")
    await routed.start()
    for name in ("b", "c"):
        assert await routed.data(name) == [*range(1200)]
    await routed.put("a", "last")
    assert (await routed.data("b"))[-1] == (await routed.data("d"))[-1] == "last"
    assert len(await routed.data("d")) == 1


async def test_a_copy_may_lose_its_node_and_its_tag_and_only_some_are_made(routed: RoutedTopics) -> None:
    await routed.route("a->bare", preserve_node=False, preserve_tag=False)
    await routed.route("a->some", filter=("tag", "Glob", "x:*"))
    told = [{"data": n, "node": "n", "tag": tag} for n, tag in enumerate(("x:1", "y", "x:2"))]
    await routed.add("a", told)
    assert [record.keys() & {"$node", "$tag"} for record in await routed.records("bare")] == [set()] * 3
    assert [(r["data"], r["$node"], r["$tag"]) for r in await routed.records("some")] == [
        (0, "n", "x:1"),
        (2, "n", "x:2"),
    ]
    assert (await routed.line("a->some")).forwarded == 2


async def test_what_was_deleted_before_it_was_copied_is_not(routed: RoutedTopics) -> None:
    await routed.route("a->b")
    await routed.stop()
    await routed.add("a", [{"data": n, "tag": "odd" if n % 2 else "even"} for n in range(10)])
    await routed.delete("a", match="odd")
    await routed.start()
    assert await routed.data("b") == [0, 2, 4, 6, 8]
    line = await routed.line("a->b")
    assert (line.seq, line.forwarded) == (10, 5)
    assert await routed.losses("b") == []


async def test_deletes_stay_where_they_are_asked_for(routed: RoutedTopics) -> None:
    await routed.route("a->b")
    await routed.put("a", 1, 2, 3)
    await routed.settled("b")
    await routed.delete("a", before=3)
    await routed.delete("b", before=2)
    assert (await routed.data("a"), await routed.data("b")) == ([3], [2, 3])
    await restart(routed)
    assert (await routed.data("a"), await routed.data("b")) == ([3], [2, 3])


async def test_what_is_written_to_a_destination_stands_beside_the_copies_after_a_restart(routed: RoutedTopics) -> None:
    await routed.route("a->b")
    await routed.put("a", "copied 1")
    await routed.settled("b")
    await routed.put("b", "written")
    await routed.put("a", "copied 2")
    before = await routed.records("b")
    assert [record["data"] for record in before] == ["copied 1", "written", "copied 2"]
    await restart(routed)
    await routed.delete("b", before=2)
    await restart(routed)
    assert await routed.records("b") == before[1:]


async def test_two_routers_between_the_same_topics_make_two_copies(routed: RoutedTopics) -> None:
    await routed.route("a->b")
    await routed.declare(Router("again", "a", "b"))
    await routed.put("a", 1, 2)
    assert sorted(await routed.data("b")) == [1, 1, 2, 2]


async def test_chains_are_read_to_their_end_by_a_reader_of_the_last(routed: RoutedTopics) -> None:
    names = [f"t{n}->t{n + 1}" for n in range(10)]
    await routed.route(*names)
    await routed.put("t0", "far")
    assert await routed.data("t10") == ["far"]
    paths = await routed.log.database.read(fetch, "SELECT paths FROM blocks ORDER BY position")
    assert [json.loads(path) for (path,) in paths] == [[""], *[[str(n)] for n in range(1, 11)]]


# --- options that are changed ----------------------------------------------------------------------------------


async def test_other_options_hold_from_the_next_record_on(routed: RoutedTopics) -> None:
    await routed.route("a->b")
    await routed.add("a", [{"data": 1, "tag": "t"}])
    await routed.settled("b")
    await routed.route("a->b", preserve_tag=False)
    await routed.add("a", [{"data": 2, "tag": "t"}])
    assert [(r["data"], r.get("$tag")) for r in await routed.records("b")] == [(1, "t"), (2, None)]


@BOTH_DATABASES
async def test_a_step_by_options_that_were_changed_meanwhile_is_void(routed: RoutedTopics) -> None:
    await routed.route("a->b")
    line = await routed.line("a->b")
    stale = RouterStep(
        line.id, line.cursor, line.position, line.version, line.source_id, line.dest_id, 5, 5, CopyPage()
    )
    await routed.route("a->b", preserve_tag=False)
    assert await routed.log.submit(CommitSteps([stale], 1)) == [None]
    behind = stale._replace(version=line.version + 1, position=line.position + 1)
    assert await routed.log.submit(CommitSteps([behind], 1)) == [None]
    there = stale._replace(version=line.version + 1)
    assert (await routed.log.submit(CommitSteps([behind, there], 2)))[0] is None
    assert (await routed.line("a->b")).position == 5


async def test_a_router_that_is_changed_or_removed_while_its_source_is_read_holds_up_no_other(
    routed: RoutedTopics, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await routed.route("a->b", "a->c", "a->d")
    database, reading, go_on = routed.log.database, asyncio.Event(), asyncio.Event()
    read = database.read_for_delivery

    async def slow(fn: Any, *args: Any, **kwargs: Any) -> Any:
        found = await read(fn, *args, **kwargs)
        if fn is prepare:
            reading.set()
            await go_on.wait()
        return found

    monkeypatch.setattr(database, "read_for_delivery", slow)
    await routed.put("a", 1, tag="t")
    await reading.wait()
    await routed.route("a->b", preserve_tag=False)
    await routed.remove("a->d")
    go_on.set()
    assert [[(r["data"], r.get("$tag")) for r in await routed.records(name)] for name in ("b", "c", "d")] == [
        [(1, None)],
        [(1, "t")],
        [],
    ]
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


@BOTH_DATABASES
async def test_two_pumps_over_one_database_make_each_copy_once(routed: RoutedTopics) -> None:
    other = RoutedTopics(routed.log)
    await routed.route("a->b", "b->c")
    await other.start()
    for number in range(20):
        await routed.put("a", number)
        await other.settled("b") if number % 2 else await routed.settled("b")
    assert await routed.data("c") == [*range(20)]
    await other.stop()


async def test_the_same_put_changes_nothing(routed: RoutedTopics) -> None:
    await routed.route("a->b")
    before = await routed.line("a->b")
    await routed.route("a->b")
    assert await routed.line("a->b") == before


@BOTH_DATABASES
async def test_a_refused_router_leaves_nothing_behind(routed: RoutedTopics) -> None:
    await routed.route("a->b", "b->c")
    with pytest.raises(RouterCycle):
        await routed.route("c->a")
    with pytest.raises(Incompatible):
        await routed.route("x->c")
    with pytest.raises(Incompatible):
        await routed.declare(Router("a->b", "a", "z"))
    names = await routed.log.database.read(fetch, "SELECT name FROM topics ORDER BY id")
    assert names == [("a",), ("b",), ("c",)]
    cursors = await routed.log.database.read(fetch, "SELECT name FROM cursors ORDER BY name")
    assert cursors == [("router:a->b",), ("router:b->c",)]


@BOTH_DATABASES
async def test_routers_go_with_their_topic_and_stop_at_once(routed: RoutedTopics) -> None:
    await routed.route("a->b", "b->c", "a->d")
    await routed.put("a", 1)
    await routed.settled("c", "d")
    gone = await routed.log.submit(DeleteTopic("b"))
    assert gone.routers_removed == ["a->b", "b->c"]
    await routed.put("a", 2)
    assert await routed.data("d") == [1, 2]
    assert await routed.data("c") == [1]
    assert await routed.log.database.read(fetch, "SELECT name FROM cursors") == [("router:a->d",)]


async def test_a_router_that_is_removed_copies_nothing_more(routed: RoutedTopics) -> None:
    await routed.route("a->b")
    await routed.put("a", 1)
    await routed.settled("b")
    assert await routed.remove("a->b")
    assert not await routed.remove("a->b")
    await routed.put("a", 2)
    await routed.route("a->b")
    await routed.put("a", 3)
    assert await routed.data("b") == [1, 3]


# --- destinations without room ------------------------------------------------------------------------------------


@BOTH_DATABASES
async def test_a_full_destination_holds_its_own_router_alone(routed: RoutedTopics) -> None:
    await routed.make("full", cap_records=2, discard="reject")
    await routed.route("a->full", "a->free")
    await routed.put("a", 1, 2, 3, 4)
    assert await routed.data("full") == [1, 2]
    assert await routed.data("free") == [1, 2, 3, 4]
    held = await routed.line("a->full")
    assert (held.state, held.reason, held.seq, held.forwarded) == ("backing-off", "full", 2, 2)
    await restart(routed)
    await routed.put("a", 5)
    assert await routed.data("full") == [1, 2]
    await routed.delete("full", before=3)
    routed.log.wakeups.touch(held.dest_id)
    assert await routed.data("full") == [3, 4]
    await routed.delete("full", before=4)
    routed.log.wakeups.touch(held.dest_id)
    assert await routed.data("full") == [4, 5]
    freed = await routed.line("a->full")
    assert (freed.state, freed.reason, freed.seq, freed.forwarded) == ("running", "", 5, 5)


async def test_room_that_nobody_tells_of_is_found_in_time(routed: RoutedTopics, clock: ManualClock) -> None:
    await routed.make("full", cap_records=1, discard="reject", ttl_ms=500)
    await routed.route("a->full")
    await routed.put("a", 1, 2)
    assert await routed.data("full") == [1]
    assert routed.routing is not None
    chore = asyncio.get_running_loop().create_task(routed.routing.run_for_ever())
    await until(lambda: clock.waits, "the pump to look again in time")
    clock.advance(1)
    await until(lambda: routed.standing("full"), "the copy")
    assert await routed.data("full") == [2]
    chore.cancel()


async def test_bytes_are_room_too_and_what_never_fits_is_set_aside(routed: RoutedTopics) -> None:
    await routed.make("small", cap_bytes=20, discard="reject")
    await routed.route("a->small")
    await routed.put("a", "12345678", "x" * 30, "abcdefg", "last")
    assert await routed.data("small") == ["12345678", "abcdefg"]
    line = await routed.line("a->small")
    assert (line.seq, line.forwarded, line.refused, line.reason) == (3, 2, 1, "full")
    assert [(cursor, reason) for cursor, _, reason in await letters(routed)] == [("router:a->small", "too_large")]


@BOTH_DATABASES
async def test_caps_of_a_destination_that_discards_take_the_oldest_copies(routed: RoutedTopics) -> None:
    await routed.make("last", cap_records=3)
    await routed.route("a->last")
    await routed.put("a", *range(10))
    assert await routed.data("last") == [7, 8, 9]
    assert await routed.losses("last") == [(1, 7, "cap")]


# --- what a source loses -------------------------------------------------------------------------------------------


@BOTH_DATABASES
async def test_what_a_source_loses_is_a_hole_in_the_destination(routed: RoutedTopics) -> None:
    await routed.make("a", cap_records=3)
    await routed.route("a->b")
    await routed.put("a", "first")
    await routed.settled("b")
    await routed.stop()
    for number in range(6):
        await routed.put("a", number)
    await routed.start()
    assert await routed.data("b") == ["first", 3, 4, 5]
    assert [record["$seq"] for record in await routed.records("b")] == [1, 5, 6, 7]
    assert await routed.losses("b") == [(2, 4, "source_trim")]
    line = await routed.line("a->b")
    assert (line.seq, line.forwarded) == (7, 7)


@BOTH_DATABASES
async def test_what_outlives_its_time_before_it_is_copied_is_lost(routed: RoutedTopics, clock: ManualClock) -> None:
    await routed.make("a", ttl_ms=1000)
    await routed.route("a->b")
    await routed.stop()
    await routed.put("a", 1)
    await routed.put("a", 2)
    clock.advance(2)
    await routed.put("a", 3)
    await routed.start()
    assert await routed.data("b") == [3]
    assert (await routed.slice("b")).tombstone == Tombstone(1, 2, "source_trim", 2, 3, 3)
    assert (await routed.line("a->b")).forwarded == 3


@BOTH_DATABASES
async def test_jobs_that_are_done_are_no_loss_when_their_time_is_over(routed: RoutedTopics, clock: ManualClock) -> None:
    await routed.make("a", type="queue", ttl_ms=1000)
    await routed.route("a->b")
    await routed.stop()
    await routed.put("a", 1, 2, 3)
    submit, log = routed.log.submit, routed.log
    await submit(ClaimJobs("a", [JobRequest("w", 3)], lambda size: b"r" * size))
    assert (await submit(Ack("a", "w", [JobHandle(2)], flushes=log.flushes))).done == [2]
    clock.advance(2)
    await routed.start()
    await routed.settled("b")
    assert await routed.losses("b") == [(1, 2, "source_trim")]
    assert (await routed.line("a->b")).forwarded == 2


async def test_a_source_that_lost_all_it_had_is_told_of_without_a_record(
    routed: RoutedTopics, clock: ManualClock
) -> None:
    await routed.make("a", ttl_ms=1000)
    await routed.route("a->b", "b->c")
    await routed.stop()
    await routed.put("a", 1, 2)
    clock.advance(2)
    await routed.start()
    assert await routed.data("c") == []
    for name in ("b", "c"):
        assert await routed.losses(name) == [(1, 2, "source_trim")]


async def test_deleted_records_among_lost_ones_are_no_loss(routed: RoutedTopics) -> None:
    await routed.make("a", cap_records=2)
    await routed.route("a->b")
    await routed.stop()
    await routed.add("a", [{"data": 1, "tag": "gone"}, {"data": 2}])
    await routed.delete("a", match="gone")
    await routed.put("a", 3)
    await routed.put("a", 4)
    await routed.start()
    assert await routed.data("b") == [3, 4]
    assert await routed.losses("b") == [(1, 1, "source_trim")]


async def test_a_loss_goes_round_no_cycle(routed: RoutedTopics) -> None:
    await routed.make("a", cap_records=2)
    await routed.route("a->b", "b->a", **FAN_IN)
    await routed.stop()
    for number in range(5):
        await routed.put("a", number)
    await routed.start()
    assert await routed.data("b") == [3, 4]
    assert await routed.losses("b") == [(1, 3, "source_trim")]
    assert (await routed.standing("a")).count == 2
    assert await routed.losses("a") == [(1, 3, "cap")]


# --- stamps -----------------------------------------------------------------------------------------------------


async def test_a_stamp_says_what_a_copy_was_made_of(routed: RoutedTopics) -> None:
    await routed.make("a")
    await routed.put("a", "before")
    await routed.route("a->b", **ONCE)
    await routed.add("a", [{"data": 1, "meta": {"m": 1}}, {"data": 2, "meta": [1]}, {"data": 3}])
    line = await routed.line("a->b")
    instance = (await routed.log.database.read(fetch, "SELECT instance FROM topics WHERE name = 'a'"))[0][0]
    millis = routed.log.clock.now() // 1000
    copies = await routed.records("b")
    stamps = [record["meta"].pop("_topics_router") for record in copies]
    assert stamps == [
        {
            "idempotency_key": f"router:a->b:{line.source_id}:{instance}.{millis}:{seq}",
            "router": "a->b",
            "source_topic": "a",
            "source_topic_id": line.source_id,
            "source_epoch": f"{instance}.{millis}",
            "source_seq": seq,
        }
        for seq in (2, 3, 4)
    ]
    assert [record["meta"] for record in copies] == [{"m": 1}, {"_topics_original_meta": [1]}, {}]


async def test_a_record_at_its_limits_is_stamped_all_the_same(routed: RoutedTopics) -> None:
    await routed.route("a->b", **ONCE)
    full = {f"k{n}": "x" * 200 for n in range(MOST_KEYS)}
    large = {"m": "y" * (16 * 1024 - 8)}
    await routed.add("a", [{"data": "z" * ((1 << 20) - 20_000), "meta": large}, {"data": 2, "meta": full}])
    first, second = await routed.records("b")
    assert first["meta"]["m"] == large["m"]
    assert first["meta"]["_topics_router"]["source_seq"] == 1
    assert second["meta"]["_topics_original_meta"] == full


async def test_copies_that_were_deleted_are_not_made_again(routed: RoutedTopics) -> None:
    await routed.route("a->b", **ONCE)
    await routed.put("a", 1, 2)
    await routed.settled("b")
    await routed.delete("b", before=3)
    await restart(routed)
    await routed.put("a", 3)
    assert await routed.data("b") == [3]


# --- cycles and meetings --------------------------------------------------------------------------------------------


async def test_a_mirror_ends_by_its_hops_and_a_restart_does_not_begin_anew(routed: RoutedTopics) -> None:
    await routed.route("a->b", "b->a", allow_cycle=True)
    await routed.stop()
    await routed.put("a", "x")
    for _ in range(9):
        await routed.start(steps=1)
        await routed.settled("a", "b")
        await routed.stop()
    await routed.start()
    assert (len(await routed.data("a")), len(await routed.data("b"))) == (5, 4)


MESHES = {
    "mirror": ["a->b", "b->a"],
    "ring": ["a->b", "b->c", "c->a"],
    "full": ["a->b", "b->a", "b->c", "c->b", "a->c", "c->a"],
    "hub": ["a->h", "h->a", "b->h", "h->b", "c->h", "h->c"],
    "diamond": ["a->b", "a->c", "b->d", "c->d"],
}


@pytest.mark.parametrize("mesh", MESHES)
async def test_in_a_mesh_of_identities_every_topic_has_every_record_once(routed: RoutedTopics, mesh: str) -> None:
    names = MESHES[mesh]
    await routed.route(*names, **FAN_IN)
    topics = sorted({topic for name in names for topic in name.split("->")})
    writers = ["a"] if mesh == "diamond" else [topic for topic in topics if topic != "h"]
    for number in range(4):
        for writer in writers:
            await routed.add(writer, [{"data": f"{writer}{number}", "node": writer}])
    wanted = sorted(f"{writer}{number}" for writer in writers for number in range(4))
    for _ in range(2):
        for topic in topics:
            assert sorted(await routed.data(topic)) == wanted
            of_one = [data for data in await routed.data(topic) if data.startswith("a")]
            assert of_one == sorted(of_one)
        await restart(routed)
    for topic in topics:
        assert {record["$node"] for record in await routed.records(topic)} == set(writers)


async def test_a_record_that_was_deleted_does_not_come_back_round(routed: RoutedTopics) -> None:
    await routed.route("a->b", "b->a", **FAN_IN)
    await routed.put("a", 1, 2)
    await routed.settled("b")
    await routed.delete("a", before=2)
    await routed.put("b", 3)
    await routed.settled("a")
    assert await routed.data("a") == [2, 3]
    await routed.delete("b", before=100)
    await restart(routed)
    assert (await routed.data("a"), await routed.data("b")) == ([2, 3], [])


@BOTH_DATABASES
async def test_a_topic_that_was_restored_gets_back_what_it_had(routed: RoutedTopics) -> None:
    await routed.route("a->b", "b->a", **FAN_IN)
    await routed.stop()
    await routed.put("a", "lost by the restored copy")
    await routed.start(steps=1)
    await routed.settled("b")
    await routed.stop()

    def another_record_has_its_place(conn: Connection) -> None:
        execute(conn, "UPDATE blocks SET recorded_at = recorded_at + 5000, text = ? WHERE own = 1", ('{"data":2}\n',))

    await routed.log.database.write(another_record_has_its_place)
    await routed.start()
    assert await routed.data("a") == [2, "lost by the restored copy"]


# --- what is passed over ----------------------------------------------------------------------------------------


async def test_what_is_only_passed_over_is_written_down_in_time(routed: RoutedTopics, clock: ManualClock) -> None:
    await routed.route("a->b", filter=("tag", "Eq", "never"))
    await routed.put("a", 1, 2, 3)
    await routed.settled("b")
    before = await routed.line("a->b")
    assert before.seq == 0
    assert routed.routing is not None
    assert routed.routing.seen_seq("a->b") == 3
    chore = asyncio.get_running_loop().create_task(routed.routing.run_for_ever())
    await until(lambda: clock.waits, "the pump to look again in time")
    clock.advance(1)

    async def written() -> bool:
        return (await routed.line("a->b")).seq == 3

    await until(written, "the router's place to be written")
    await give_turns()
    assert clock.waits == []
    chore.cancel()


@BOTH_DATABASES
async def test_a_step_that_was_written_and_not_heard_of_is_not_made_again(routed: RoutedTopics) -> None:
    await routed.route("a->b", "a->c")
    await routed.stop()
    await routed.put("a", 1, 2, 3)
    await routed.start(steps=0, heard=False)
    await routed.settled("b", "c")
    await restart(routed)
    for name in ("b", "c"):
        assert await routed.data(name) == [1, 2, 3]


# --- faults of our own --------------------------------------------------------------------------------------------


@pytest.fixture
async def supervisor(routed: RoutedTopics, clock: ManualClock) -> AsyncIterator[Supervisor]:
    """Looks again, now and then, as in a node."""
    made = Supervisor(clock)
    assert routed.routing is not None
    made.keep(routed.routing.run_for_ever, "routers")
    yield made
    await made.stop()


def fails_once(monkeypatch: pytest.MonkeyPatch, log: EventLog, question: object) -> list[str]:
    """The next time that the database is asked this, the answer is a fault of ours; emptied when it was."""
    faults = ["fault"]
    for name in ("read", "read_for_delivery"):
        monkeypatch.setattr(log.database, name, _failing(getattr(log.database, name), question, faults))
    return faults


def _failing(read: Any, question: object, faults: list[str]) -> Any:
    async def reading(fn: Any, *args: Any, **kwargs: Any) -> Any:
        if fn is question and faults:
            raise KeyError(faults.pop())
        return await read(fn, *args, **kwargs)

    return reading


async def elsewhere(routed: RoutedTopics, router: str) -> None:
    """Declare a router through another process: here it is only noticed that something has changed."""
    routing, routed.routing = routed.routing, None
    await routed.route(router)
    routed.routing = routing


@BOTH_DATABASES
@pytest.mark.parametrize("question", [read_declared, read_heads], ids=["declared", "heads"])
async def test_one_fault_leaves_no_router_unloaded_and_no_record_unseen(
    routed: RoutedTopics,
    supervisor: Supervisor,
    log: EventLog,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    question: object,
) -> None:
    assert isinstance(routed.routing, Routing)
    await routed.make("a")
    await elsewhere(routed, "a->b")
    faults = fails_once(monkeypatch, log, question)
    routed.routing.changed()
    log.wakeups.touch_all()
    await until(lambda: not faults and clock.waits, "the fault, and a wait")
    assert clock.waits == [pytest.approx(RETRY_SECONDS)]
    clock.advance(RETRY_SECONDS)
    await until(lambda: routed.routing and routed.routing.feeds("b"), "the router to be loaded")
    await routed.put("a", "after")
    assert await routed.data("b") == ["after"]
    assert [record.levelname for record in caplog.records if record.name == "eventd.egress"] == ["WARNING"]


async def test_a_router_that_cannot_be_taken_over_hinders_no_other(
    routed: RoutedTopics, supervisor: Supervisor, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(routed.routing, Routing)
    await routed.make("a")
    for router in ("a->b", "a->c", "a->d"):
        await elsewhere(routed, router)
    adopt, bad = RouterRegistry.adopt, ["a->b"]

    def adopting(roster: RouterRegistry, declared: DeclaredRouter, *, tip: int) -> Any:
        if declared.line.name in bad:
            raise KeyError(declared.line.name)
        return adopt(roster, declared, tip=tip)

    monkeypatch.setattr(RouterRegistry, "adopt", adopting)
    routed.routing.changed()
    await until(lambda: clock.waits, "the fault, and a wait")
    await routed.put("a", 1)
    assert [await routed.data(name) for name in "bcd"] == [[], [1], [1]]
    bad.clear()
    clock.advance(RETRY_SECONDS)
    await until(lambda: routed.routing and routed.routing.feeds("b"), "the router to be loaded")
    assert await routed.data("b") == [1]
