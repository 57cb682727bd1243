"""Reading by pages: limits, filters, losses, and waiting for more."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import pytest

from eventd.api.topics import polls
from eventd.log.topics.topic_page import TopicPage, TopicQuery, read_topic_page
from eventd.testing import ManualClock, until
from tests.support.fresh import on_sqlite
from tests.support.v0 import Server


@on_sqlite
async def test_a_page_tells_where_it_ends(stored: Server) -> None:
    await stored.write_records(
        "jobs",
        {"data": {"n": 1}, "tag": "t:1", "node": "wA", "meta": {"trace": "x"}},
        {"data": {"n": 2}, "tag": "t:2"},
        {"data": {"n": 3}},
    )
    page = await stored.diff("jobs")
    assert page.status == 200
    assert page.seqs == [1, 2, 3]
    expected = {"topic": "jobs", "next_from_seq": 3, "head_seq": 3, "earliest_seq": 1, "caught_up": True, "lag": 0}
    assert {name: page.body[name] for name in expected} == expected
    assert page.body["tombstone"] is None
    assert page.body["performance"]["records_scanned"] == 3
    first = page.body["records"][0]
    assert (first["$node"], first["meta"]) == ("wA", {"trace": "x"})
    assert all("$tag" not in record for record in page.body["records"])
    part = await stored.diff("jobs", 1, limit=1)
    assert (part.seqs, part.body["next_from_seq"], part.body["caught_up"], part.body["lag"]) == ([2], 2, False, 1)
    tagged = (await stored.diff("jobs", include_tags=True, include_meta=False)).body["records"][0]
    assert tagged["$tag"] == "t:1"
    assert "meta" not in tagged
    end = await stored.diff("jobs", 3)
    assert (end.seqs, end.body["caught_up"]) == ([], True)


async def test_reading_makes_no_topic(server: Server) -> None:
    ghost = await server.diff("ghost")
    assert (ghost.status, ghost.code, ghost.detail) == (404, "topic_not_found", {"topic": "ghost"})
    assert (await server.get("ghost")).status == 404


async def test_an_empty_body_asks_for_the_beginning(server: Server) -> None:
    await server.write("jobs", 1)
    assert (await server.ask("POST", "/topics/jobs/diff")).data == [1]


async def test_the_limit_is_brought_within_its_bounds(server: Server) -> None:
    await server.write("jobs", *range(1200))
    for limit, count in [(None, 256), (0, 256), (10, 10), (1000, 1000), (5000, 1000), (2**32 - 1, 1000)]:
        page = await server.diff("jobs", **({} if limit is None else {"limit": limit}))
        assert (page.status, len(page.seqs)) == (200, count), limit
        assert (page.body["next_from_seq"], page.body["caught_up"], page.body["lag"]) == (count, False, 1200 - count), (
            limit
        )


async def test_a_page_has_about_so_many_bytes_and_at_least_one_record(stored: Server) -> None:
    await stored.write("jobs", *["x" * 98] * 5)
    page = await stored.diff("jobs", max_batch_bytes=250)
    assert (page.seqs, page.body["next_from_seq"]) == ([1, 2], 2)
    assert (await stored.diff("jobs", 2, max_batch_bytes=1)).seqs == [3]
    assert (await stored.diff("jobs", max_batch_bytes=0)).seqs == [1, 2, 3, 4, 5]
    assert (await stored.diff("jobs", max_batch_bytes=2**64 - 1)).seqs == [1, 2, 3, 4, 5]


async def test_pages_follow_each_other_without_a_hole(stored: Server) -> None:
    await stored.write("jobs", *range(700))
    seen: list[Any] = []
    from_seq = 0
    while True:
        page = await stored.diff("jobs", from_seq, limit=97)
        seen += page.data
        from_seq = page.body["next_from_seq"]
        if page.body["caught_up"]:
            break
    assert seen == list(range(700))


@on_sqlite
async def test_a_reader_does_not_get_back_what_its_nodes_wrote(stored: Server) -> None:
    nodes = ("self", "self", "other", None)
    await stored.write_records("nb", *[{"data": n, "node": node} for n, node in enumerate(nodes)])
    page = await stored.diff("nb", node="self")
    assert (page.seqs, page.body["records"][0]["$node"]) == ([3, 4], "other")
    assert (page.body["next_from_seq"], page.body["caught_up"], page.body["tombstone"]) == (4, True, None)
    none = await stored.diff("nb", node=["self", "other"])
    assert (none.seqs, none.body["next_from_seq"]) == ([4], 4)
    assert (await stored.diff("nb", node=[])).seqs == [1, 2, 3, 4]
    assert (await stored.diff("nb", node=None)).seqs == [1, 2, 3, 4]
    assert (await stored.diff("nb", node=["Self", "sel", "self "])).seqs == [1, 2, 3, 4], "byte for byte"


async def test_node_ids_are_compared_byte_for_byte(stored: Server) -> None:
    for number, node in enumerate(['a"b', "a\\b", "ü", "\u0000", "\n", '","$tag":"', "😀", ""]):
        await stored.write_records(
            f"nb{number}", {"data": 1, "node": node, "tag": "t"}, {"data": 2, "node": node + "x"}
        )
        assert (await stored.diff(f"nb{number}", node=node)).seqs == [2], node
        assert (await stored.diff(f"nb{number}", node=node + "x")).seqs == [1], node


@on_sqlite
async def test_a_topic_may_give_everything_back(stored: Server) -> None:
    await stored.put("nb", dedupe_node=False)
    await stored.write_records("nb", {"data": 1, "node": "self"}, {"data": 2, "node": "other"})
    assert (await stored.diff("nb", node="self")).seqs == [1, 2]


async def test_what_a_cap_took_is_told_each_time(stored: Server) -> None:
    await stored.put("cap", cap_records=3)
    for number in range(1, 6):
        await stored.write("cap", number)
    shown = (await stored.get("cap")).body
    assert (shown["head_seq"], shown["earliest_seq"], shown["count"]) == (5, 3, 3)
    expected = {
        "gap_from": 1,
        "gap_to": 2,
        "reason": "cap",
        "missed_estimate": 2,
        "earliest_seq": 3,
        "head_seq": 5,
    }
    for _ in range(2):
        page = await stored.diff("cap")
        assert page.body["tombstone"] == expected
        assert (page.seqs, page.body["caught_up"]) == ([3, 4, 5], True)
    for from_seq, seqs in ((2, [3, 4, 5]), (3, [4, 5])):
        page = await stored.diff("cap", from_seq)
        assert (page.body["tombstone"], page.seqs) == (None, seqs)
    assert (await stored.diff("cap", 1)).body["tombstone"]["gap_from"] == 2


async def test_what_was_too_old_is_told(start_server: Any) -> None:
    clock = ManualClock()
    server = await start_server(clock=clock)
    await server.put("ttl", ttl_ms=150)
    await server.write("ttl", 1, 2, 3)
    clock.advance(0.15)
    assert (await server.diff("ttl")).data == [1, 2, 3], "they are too old only beyond their time"
    clock.advance(0.002)
    gone = await server.diff("ttl")
    assert (gone.data, gone.body["tombstone"]["reason"], gone.body["tombstone"]["gap_to"]) == ([], "ttl", 3)
    await server.write("ttl", 4)
    shown = (await server.get("ttl")).body
    assert (shown["earliest_seq"], shown["count"]) == (4, 1)
    page = await server.diff("ttl")
    assert page.body["tombstone"] == {
        "gap_from": 1,
        "gap_to": 3,
        "reason": "ttl",
        "missed_estimate": 3,
        "earliest_seq": 4,
        "head_seq": 4,
    }
    assert page.data == [4]


@on_sqlite
async def test_a_topic_that_was_made_again_is_told(stored: Server) -> None:
    await stored.write("r", 1, 2, 3)
    before = await stored.diff("r")
    await stored.delete("r")
    again = await stored.write("r", "new")
    assert (again.status, again.body["seqs"]) == (201, [1])
    page = await stored.diff("r", 3)
    assert (page.body["tombstone"]["reason"], page.data) == ("recreated", ["new"])
    assert (page.body["tombstone"]["gap_from"], page.body["tombstone"]["gap_to"]) == (1, 1)
    assert (page.body["next_from_seq"], page.body["caught_up"]) == (1, True)
    told = await stored.diff("r", 1, epoch=before.body["epoch"])
    assert (told.body["tombstone"]["reason"], told.data) == ("recreated", ["new"]), "the seq alone does not show it"
    assert (await stored.diff("r", 1, epoch=page.body["epoch"])).body["tombstone"] is None


@on_sqlite
async def test_a_seq_beyond_the_head_is_of_another_topic(stored: Server) -> None:
    await stored.write("r", 1)
    for from_seq in [2**31, 2**63 - 1, 2**63, 2**64 - 1]:
        page = await stored.diff("r", from_seq)
        assert (page.status, page.body["tombstone"]["reason"], page.data) == (200, "recreated", [1]), from_seq


async def test_a_reader_that_waits_gets_what_is_written_meanwhile(stored: Server) -> None:
    await stored.write("jobs", 1)
    waiting = asyncio.ensure_future(stored.diff("jobs", 1, wait_ms=20_000))
    await _until_watched(stored)
    await stored.write("jobs", 2)
    page = await asyncio.wait_for(waiting, 5)
    assert (page.seqs, page.body["next_from_seq"]) == ([2], 2)


async def _until_watched(server: Server) -> None:
    await until(lambda: server.log.wakeups._by_topic, "the reader to wait")


async def test_a_reader_that_waits_in_vain_gets_an_empty_page(server: Server) -> None:
    await server.write("jobs", 1)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    page = await server.diff("jobs", 1, wait_ms=200)
    assert loop.time() - begun >= 0.15
    assert (page.status, page.seqs, page.body["caught_up"], page.body["next_from_seq"]) == (200, [], True, 1)
    assert not server.log.wakeups._by_topic, "no watcher is left"


async def test_nobody_waits_who_has_something_to_read_or_was_told_of_a_gap(server: Server) -> None:
    await server.put("cap", cap_records=1)
    await server.write("cap", 1)
    await server.write("cap", 2)
    async with asyncio.timeout(5):
        assert (await server.diff("cap", wait_ms=30_000)).seqs == [2]
        assert (await server.diff("cap", 9, wait_ms=30_000)).body["tombstone"]["reason"] == "recreated"


async def test_a_waiting_reader_is_told_that_only_its_own_records_came(server: Server) -> None:
    await server.write("jobs", 1)
    waiting = asyncio.ensure_future(server.diff("jobs", 1, wait_ms=20_000, node="me"))
    await _until_watched(server)
    await server.write_records("jobs", {"data": 2, "node": "me"})
    page = await asyncio.wait_for(waiting, 5)
    assert (page.seqs, page.body["next_from_seq"], page.body["caught_up"]) == ([], 2, True)


async def test_a_waiting_reader_is_told_at_once_that_the_topic_is_gone(server: Server) -> None:
    await server.write("jobs", 1)
    waiting = asyncio.ensure_future(server.diff("jobs", 1, wait_ms=20_000))
    await _until_watched(server)
    await server.delete("jobs")
    assert (await asyncio.wait_for(waiting, 5)).code == "topic_not_found"


async def test_a_waiting_reader_is_let_go_when_the_node_stops(server: Server) -> None:
    await server.write("jobs", 1)
    waiting = asyncio.ensure_future(server.diff("jobs", 1, wait_ms=20_000))
    await _until_watched(server)
    server.v0.stopping.set_result(None)
    assert (await asyncio.wait_for(waiting, 5)).seqs == []


async def test_no_record_is_missed_between_a_read_and_the_wait(server: Server) -> None:
    """Many short turns of one writer and one waiting reader: a sign that was lost would cost a whole wait."""
    await server.put("jobs")
    seen = 0

    async def read() -> None:
        nonlocal seen
        while seen < 60:
            page = await server.diff("jobs", seen, wait_ms=20_000)
            assert page.seqs, "it waited in vain"
            seen = page.body["next_from_seq"]

    async def write() -> None:
        for number in range(60):
            await server.write("jobs", number)

    async with asyncio.timeout(15):
        await asyncio.gather(read(), write())


WRONG_WISHES: list[dict[str, Any]] = [
    {"from_seq": -1},
    {"from_seq": 1.5},
    {"from_seq": "0"},
    {"from_seq": None},
    {"from_seq": 2**64},
    {"limit": -1},
    {"limit": 2**32},
    {"limit": None},
    {"wait_ms": 2**32},
    {"wait_ms": True},
    {"max_batch_bytes": 2**64},
    {"include_tags": None},
    {"include_tags": 1},
    {"include_meta": "true"},
    {"node": 5},
    {"node": [5]},
    {"node": {"a": 1}},
    {"epoch": 5},
]


async def test_a_wrong_wish_is_told_by_its_name(server: Server) -> None:
    await server.write("jobs", 1)
    for body in WRONG_WISHES:
        refused = await server.ask("POST", "/topics/jobs/diff", body)
        assert (refused.status, refused.code) == (400, "invalid_request"), body
        assert next(iter(body)) in refused.body["error"]["message"], body


def all_wait(waiting: Collection[polls.Poll], clients: int) -> bool:
    """Whether so many clients wait for a sign, and nothing is being read for them."""
    still = all(poll._sign is not None and poll._reading is not None and poll._reading.done() for poll in waiting)
    return still and sum(poll.clients for poll in waiting) == clients


async def test_those_who_wait_for_one_page_share_one_read(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """One query answers fifty readers at the end of a topic, and each learns whether it has a new page."""
    await server.ask("POST", "/topics/t", {"records": [{"data": 1}]})
    reads: list[TopicQuery] = []

    def counting(conn: Any, ask: TopicQuery) -> TopicPage:
        reads.append(ask)
        return read_topic_page(conn, ask)

    monkeypatch.setattr(polls, "read_topic_page", counting)
    ask = {"from_seq": 1, "wait_ms": 20_000}
    waiting = [asyncio.create_task(server.ask("POST", "/topics/t/diff", ask)) for _ in range(50)]
    waiting += [asyncio.create_task(server.ask("POST", "/topics/t/diff", {**ask, "node": "self"})) for _ in range(5)]
    await until(lambda: all_wait(server.v0.part(polls.Polls)._polls.values(), 55), "all to wait")
    before = len(reads)
    await server.ask("POST", "/topics/t", {"node": "self", "records": [{"data": 2}]})
    told = await asyncio.gather(*waiting)
    assert [answer.seqs for answer in told] == [[2]] * 50 + [[]] * 5
    assert [answer.body["next_from_seq"] for answer in told] == [2] * 55
    assert len(reads) - before == 2, "one for each of the two pages"
    assert not server.v0.part(polls.Polls)._polls
