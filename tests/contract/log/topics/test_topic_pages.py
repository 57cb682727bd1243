"""Pages of topics: which records, how many, in which form, and where the next page begins."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eventd.log.core.eventlog import EventLog
from eventd.log.core.head import renew_epoch
from eventd.log.core.records import View, body_of_event
from eventd.log.retention.evict import EvictionLimits, evict
from eventd.log.topics.errors import TopicNotFound
from eventd.log.topics.topic_page import Tombstone, TopicPage, TopicQuery, continue_topic_page
from eventd.log.topics.topics import DeleteTopic
from eventd.runtime.clock import SECOND
from eventd.store.engine.database import Database
from eventd.testing import NOW, ManualClock, draft
from tests.support.topics import ALL, Topics

TS = NOW // 1000


@pytest.fixture
def topics(log: EventLog) -> Topics:
    return Topics(log)


# --- what a record looks like -------------------------------------------------------------------------------------

RICH: list[dict[str, Any]] = [
    {"data": {"v": 1}, "tag": "t-1", "node": "writer-1", "meta": {"trace": "x"}},
    {"data": {"$tag": "no tag", "$node": "no node"}, "node": 'q"u\\ote'},
    {"data": None, "tag": 'a","$tag":"b'},
    {"data": "ä ß 漢", "meta": {"$tag": "x", "data": [1, {"meta": 2}]}},
    {"data": [1.5, True, "\t\n\\"], "tag": "\t\"'\\", "node": ""},
]


def told(views: View) -> list[dict[str, Any]]:
    kept = [name for name, wanted in zip(("tag", "meta", "data"), views[:3], strict=True) if wanted]
    names = {"tag": "$tag", "node": "$node"}
    return [
        {"$seq": seq, "$ts": TS} | {names.get(k, k): v for k, v in one.items() if k == "node" or k in kept}
        for seq, one in enumerate(RICH, start=1)
    ]


async def test_a_record_comes_with_what_is_asked_for_and_as_it_was_written(topics: Topics) -> None:
    for name, batches in (("together", [RICH]), ("singly", [[one] for one in RICH])):
        await topics.make(name)
        for some in batches:
            await topics.add(name, some)
        for view in (View(t, m, d) for t in (0, 1) for m in (0, 1) for d in (0, 1)):
            assert await topics.page(name, 0, view=view) == told(view)


async def test_a_bare_view_is_the_data_alone(topics: Topics) -> None:
    await topics.make("t")
    await topics.add("t", RICH)
    for one in RICH:
        await topics.add("t", [one])
    page = await topics.slice("t", 0, view=View(bare=True))
    assert [json.loads(text) for text in page.records] == [one["data"] for one in RICH] * 2
    assert list(page.seqs) == [*range(1, 11)]


async def test_positions_of_different_lengths_in_one_block_are_cut_alike(topics: Topics) -> None:
    await topics.make("t")
    await topics.put("t", *range(120))
    assert [record["data"] for record in await topics.page("t")] == [*range(120)]
    await topics.put("t", *range(1000), tag="x")
    page = await topics.page("t", 120, limit=1000)
    assert [record["data"] for record in page] == [*range(1000)]


# --- how much of it -----------------------------------------------------------------------------------------------


async def test_a_page_goes_on_from_where_the_last_one_ended(topics: Topics) -> None:
    await topics.make("t")
    for some in ([1], [2, 3, 4], [5, 6, 7, 8], [9]):
        await topics.put("t", *some)
    found, at = [], 0
    while True:
        page = await topics.slice("t", at, limit=2)
        found.append(list(page.seqs))
        at = page.next_from_seq
        assert page.lag == 9 - at
        if page.caught_up:
            break
    assert found == [[1, 2], [3, 4], [5, 6], [7, 8], [9]]
    page = await topics.slice("t", 9)
    assert (page.records, page.caught_up, page.next_from_seq, page.tombstone) == ([], True, 9, None)


async def test_a_page_ends_before_the_record_that_does_not_fit(topics: Topics) -> None:
    await topics.make("t")
    await topics.put("t", "a" * 8, "b" * 8, "c" * 98, "d" * 8)
    assert [(await topics.slice("t", at, max_bytes=25)).next_from_seq for at in range(4)] == [2, 2, 3, 4]
    assert (await topics.slice("t", 0, max_bytes=1)).seqs == [1], "one at least"
    await topics.put("t", "e")
    assert (await topics.slice("t", 3, max_bytes=13)).seqs == [4, 5], "also over several blocks"
    assert (await topics.slice("t", 3, max_bytes=12)).seqs == [4]


async def test_the_limit_counts_what_is_delivered(topics: Topics) -> None:
    await topics.make("t")
    for number in range(12):
        await topics.put("t", number, node="self" if number % 3 else "other")
    page = await topics.slice("t", 0, limit=2, nodes=frozenset(["self"]))
    assert (list(page.seqs), page.next_from_seq) == ([1, 4], 4)
    page = await topics.slice("t", 7, limit=2, nodes=frozenset(["self"]))
    assert (list(page.seqs), page.next_from_seq, page.caught_up) == ([10], 12, True)


async def test_who_wants_little_of_a_lot_gets_what_was_found_so_far(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventd.log.topics.topic_page.LOOKED_AT", 30)
    await topics.make("t")
    for _ in range(5):
        await topics.add("t", [{"data": 1, "node": f"n{n % 2}"} for n in range(20)])
    page = await topics.slice("t", 0, nodes=frozenset(["n0", "n1"]))
    assert (page.records, page.next_from_seq, page.caught_up) == ([], 40, False)


async def test_a_page_is_full_also_where_every_record_was_written_by_itself(
    topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventd.log.topics.topic_page.LOOKED_AT", 30)
    await topics.make("t")
    for number in range(50):
        await topics.put("t", number, node="self" if number == 7 else "other")
    assert len(await topics.page("t", 0, limit=40)) == 40
    page = await topics.slice("t", 0, limit=40, nodes=frozenset(["self"]))
    assert (len(page.records), page.next_from_seq) == (40, 41)
    page = await topics.slice("t", 0, limit=40, nodes=frozenset(["other"]))
    assert (list(page.seqs), page.next_from_seq) == ([8], 31), "what was found so far"


# --- whose records ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("together", [True, False])
async def test_a_reader_does_not_get_back_what_its_nodes_wrote(topics: Topics, together: bool) -> None:
    records = [{"data": 1, "node": node} for node in ("self", "self", "other", "Self", 'qu"ote')] + [{"data": 1}]
    await topics.make("t")
    for some in [records] if together else [[one] for one in records]:
        await topics.add("t", some)
    for nodes, left in (
        (["self"], [3, 4, 5, 6]),
        (["self", "other"], [4, 5, 6]),
        (['qu"ote'], [1, 2, 3, 4, 6]),
        (["sel"], [1, 2, 3, 4, 5, 6]),
        (["self", "other", "Self", 'qu"ote', ""], [6]),
    ):
        page = await topics.slice("t", 0, nodes=frozenset(nodes))
        assert (list(page.seqs), page.next_from_seq, page.caught_up, page.tombstone) == (left, 6, True, None)


async def test_a_topic_may_give_everybody_everything(topics: Topics) -> None:
    await topics.make("echo", dedupe_node=False)
    await topics.put("echo", 1, node="self")
    assert len(await topics.page("echo", 0, nodes=frozenset(["self"]))) == 1


# --- another topic of the name ------------------------------------------------------------------------------------


async def test_a_cursor_beyond_the_head_is_of_another_topic(topics: Topics) -> None:
    await topics.make("r")
    await topics.put("r", 1, 2, 3)
    await topics.log.submit(DeleteTopic("r"))
    await topics.make("r")
    await topics.put("r", "new")
    page = await topics.slice("r", 3)
    assert page.tombstone == Tombstone(1, 1, "recreated", 1, 1, 1)
    assert (list(page.seqs), page.next_from_seq, page.caught_up) == ([1], 1, True)
    assert (await topics.slice("r", 2**63 - 1)).tombstone == page.tombstone


async def test_a_cursor_within_another_topic_is_found_out_where_the_reader_says_whose_it_is(
    topics: Topics, database: Database
) -> None:
    await topics.make("r")
    await topics.put("r", 1, 2, 3)
    before = (await topics.slice("r", 0)).epoch
    assert (await topics.slice("r", 2, epoch=before)).tombstone is None
    await topics.log.submit(DeleteTopic("r"))
    await topics.make("r", cap_records=3)
    await topics.put("r", *range(5))
    page = await topics.slice("r", 2, epoch=before)
    assert page.tombstone == Tombstone(1, 5, "recreated", 5, 3, 5)
    assert (list(page.seqs), page.epoch != before) == ([3, 4, 5], True)
    await database.write(renew_epoch)
    assert (await topics.slice("r", 5, epoch=page.epoch)).tombstone is not None, "a restored copy is another history"


async def test_a_topic_that_is_gone_is_not_found_by_its_id_either(topics: Topics) -> None:
    topic_id = await topics.make("r")
    await topics.log.submit(DeleteTopic("r"))
    for name in ("r", topic_id, "ghost", f"-retired:{topic_id}"):
        with pytest.raises(TopicNotFound):
            await topics.slice(name)


# --- the topics of groups -----------------------------------------------------------------------------------------


async def test_a_group_can_be_read_as_a_topic(topics: Topics, log: EventLog) -> None:
    topic = await log.topic("group:g")
    drafts = [draft(f"e{n}", payload={"n": str(n)}, path="b" if n == 2 else "") for n in range(1, 4)]
    await log.append(topic, drafts)
    page = await topics.page("group:g", 0, view=ALL)
    assert [record["$seq"] for record in page] == [1, 2, 3]
    for record, one in zip(page, drafts, strict=True):
        assert record == {"$seq": record["$seq"], "$ts": TS} | json.loads(body_of_event(one.body))
    assert "$tag" not in (await topics.page("group:g"))[0]
    assert await topics.page("group:g", 0, nodes=frozenset([drafts[0].node])) == []


async def test_of_a_group_what_has_expired_is_passed_over(topics: Topics, log: EventLog, clock: ManualClock) -> None:
    topic = await log.topic("group:g")
    await log.append(topic, [draft("e1", expires=NOW + SECOND), draft("e2"), draft("e3", expires=NOW + 9 * SECOND)])
    clock.advance(2)
    page = await topics.slice("group:g", 0)
    assert (list(page.seqs), page.next_from_seq, page.tombstone) == ([2, 3], 3, None)


async def test_of_a_group_readers_are_told_what_retention_removed_before_it_expired(
    topics: Topics, log: EventLog, clock: ManualClock
) -> None:
    topic = await log.topic("group:g")
    await log.append(topic, [draft("e1"), draft("e2", expires=NOW + SECOND), draft("e3")])
    clock.advance(10)
    await log.append(topic, [draft("e4"), draft("e5"), draft("e6")])
    limits = EvictionLimits(max_age=5 * SECOND, max_records=2)
    await log.database.write(evict, topic, limits, now=clock.now())
    assert await topics.losses("group:g") == [(1, 1, "ttl"), (3, 3, "ttl"), (4, 4, "cap")]
    page = await topics.slice("group:g", 0)
    assert (list(page.seqs), page.tombstone) == ([5, 6], Tombstone(1, 4, "mixed", 3, 5, 6))


async def test_pages_of_groups_have_the_same_bounds(topics: Topics, log: EventLog) -> None:
    topic = await log.topic("group:g")
    await log.append(topic, [draft(f"e{n}", payload={"k": "v" * 100}) for n in range(10)])
    assert (await topics.slice("group:g", 0, limit=3)).seqs == [1, 2, 3]
    assert len((await topics.slice("group:g", 2, max_bytes=1)).seqs) == 1
    size = len(json.dumps({"k": "v" * 100}, separators=(",", ":")))
    assert len((await topics.slice("group:g", 2, max_bytes=4 * size, view=View(meta=False))).seqs) < 4


# --- reading at the end of the log, from memory ------------------------------------------------------------------


async def go_on(topics: Topics, last: TopicPage, **ask: Any) -> tuple[TopicPage | None, TopicPage]:
    """The page after one that had caught up: out of memory, and as the database has it."""
    recent = topics.log.tail.beyond(last.topic_id, last.head.last, own=False)
    assert recent is not None
    asked = TopicQuery(last.topic_id, NOW, last.next_from_seq, apart=True, **ask)
    return continue_topic_page(last, recent, asked), await topics.slice(
        last.topic_id, last.next_from_seq, apart=True, **ask
    )


async def test_what_comes_after_a_page_is_the_same_out_of_memory(topics: Topics) -> None:
    await topics.make("t")
    await topics.make("other")
    for some in ([], RICH[:2]):
        for one in some:
            await topics.add("t", [one])
        last = await topics.slice("t")
        await topics.add("other", RICH)
        await topics.add("t", RICH[3:])
        for one in RICH:
            await topics.add("t", [one])
        for view in (View(), View(tags=True), View(data=False), View(bare=True)):
            made, stored = await go_on(topics, last, view=view)
            assert made == stored
        made, _ = await go_on(topics, last, limit=3)
        assert made is None, "a smaller limit is read page by page"


async def test_events_of_a_group_come_out_of_memory_as_they_do_from_the_database(topics: Topics) -> None:
    topic = await topics.log.topic("group:g")
    last = await topics.slice("group:g")
    await topics.log.append(topic, [draft("a", payload={"k": "ä"}), draft("gone", expires=NOW - 1), draft("b")])
    await topics.log.append(topic, [draft("c", node="n", path="n")])
    made, stored = await go_on(topics, last)
    assert made == stored
    assert len(stored.records) == 3


@pytest.mark.parametrize("config", [{"type": "queue"}, {"cap_records": 5}, {"ttl_ms": 1000}])
async def test_what_may_go_by_itself_is_never_told_out_of_memory(topics: Topics, config: dict[str, Any]) -> None:
    await topics.make("t", **config)
    last = await topics.slice("t")
    await topics.put("t", 1)
    made, _ = await go_on(topics, last)
    assert made is None


async def test_seqs_that_were_skipped_are_not_passed_over_out_of_memory(topics: Topics) -> None:
    from eventd.log.topics.limits import skip_seqs

    topic = await topics.make("t")
    last = await topics.slice("t")
    await topics.log.database.write(skip_seqs, topic, 3)
    await topics.put("t", 1)
    made, stored = await go_on(topics, last)
    assert made is None
    assert stored.tombstone is not None
