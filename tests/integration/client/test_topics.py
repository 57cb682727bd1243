"""The client of /v0: topics, over a network that loses answers."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from decimal import Decimal

import msgspec
import pytest

from eventd.client import Batch, Client, Config, Gap, Lost, NewRecord, Record, Throttled, detail_of
from eventd.client.json_values import MOST_LEVELS
from eventd.errors import Conflict, Full, Invalid, NotFound, Unauthorized
from tests.integration.client.conftest import Pauses
from tests.support.flaky_proxy import LOST, UNANSWERED, Fault, FlakyProxy
from tests.support.ports import free_port
from tests.support.v0 import Server, serving


async def read(client: Client, topic: str, from_seq: int = 0) -> list[Record | Gap]:
    return [found async for found in client.topics.read(topic, from_seq)]


async def data(client: Client, topic: str, from_seq: int = 0) -> list[object]:
    return [found.data for found in await read(client, topic, from_seq) if isinstance(found, Record)]


async def test_a_topic_from_its_beginning_to_its_end(client: Client) -> None:
    made = await client.topics.put("jobs", Config(ttl_ms=60_000, discard="reject"))
    assert (made.created, made.config.ttl_ms, made.config.discard, made.config.durability) == (
        True,
        60_000,
        "reject",
        "disk",
    )
    changed = await client.topics.patch("jobs", cap_records=7)
    assert (changed.config.ttl_ms, changed.config.cap_records) == (60_000, 7)
    assert (await client.topics.patch("jobs", ttl_ms=None)).config.ttl_ms == 0
    assert (await client.topics.put("jobs")).config == Config(durability="disk")
    state = await client.topics.get("jobs")
    assert (state.topic, state.head_seq, state.earliest_seq, state.count, state.queue) == ("jobs", 0, 1, 0, None)
    assert (await client.topics.delete("jobs")).deleted
    assert not (await client.topics.delete("jobs")).deleted


async def test_names_may_hold_anything_that_a_path_may_not(client: Client) -> None:
    await client.topics.put("tenant:42.jobs")
    assert (await client.topics.get("tenant:42.jobs")).topic == "tenant:42.jobs"
    for name in ("a/b", "../x", "a b?c", "ü"):
        with pytest.raises(NotFound):
            await client.topics.get(name)


async def test_a_list_goes_on_over_its_pages(client: Client) -> None:
    for name in ("b2", "a1", "b1", "b3"):
        await client.topics.put(name)
    assert [row.topic async for row in client.topics.list()] == ["a1", "b1", "b2", "b3"]
    assert [row.topic async for row in client.topics.list("b", page_size=2)] == ["b1", "b2", "b3"]


async def test_records_come_back_as_they_were_written(client: Client) -> None:
    records = [
        NewRecord({"b": 1, "a": [1.5, None]}, tag="t:1", node="n", meta={"m": 1}),
        NewRecord(None),
        NewRecord("text", node="other"),
    ]
    written = await client.topics.write("jobs", records, node="usual")
    assert (written.created, written.first_seq, written.last_seq, written.seqs, written.count) == (
        True,
        1,
        3,
        [1, 2, 3],
        3,
    )
    found = await read(client, "jobs")
    assert [(one.seq, one.node, one.tag, one.data, one.meta) for one in found if isinstance(one, Record)] == [
        (1, "n", "t:1", {"b": 1, "a": [1.5, None]}, {"m": 1}),
        (2, "usual", None, None, None),
        (3, "other", None, "text", None),
    ]


async def test_a_dict_of_the_members_of_a_record_is_written_as_one(client: Client) -> None:
    deepest: object = 1
    for _ in range(MOST_LEVELS):
        deepest = [deepest]
    dicts = [{"data": {"b": 1}, "tag": "t:1", "node": "n", "meta": {"m": 1}}, {"data": None}, {"data": deepest}]
    await client.topics.write("jobs", [*dicts, NewRecord(2)])
    found = await read(client, "jobs")
    assert [(one.node, one.tag, one.data, one.meta) for one in found if isinstance(one, Record)] == [
        ("n", "t:1", {"b": 1}, {"m": 1}),
        (None, None, None, None),
        (None, None, deepest, None),
        (None, None, 2, None),
    ]


async def test_data_is_as_deep_as_the_node_takes_it_and_what_has_no_json_form_is_not_sent(client: Client) -> None:
    deepest: object = 1
    for _ in range(MOST_LEVELS):
        deepest = [deepest]
    await client.topics.write("a", [NewRecord(deepest, meta=deepest)])
    with pytest.raises(Invalid, match=r"records\[1\].data is nested more than 61 levels deep|records\[1\].data\["):
        await client.topics.write("a", [NewRecord(1), NewRecord([deepest])])
    with pytest.raises(Invalid, match=r"records\[0\].meta\['raw'\] is a bytes"):
        await client.topics.write("a", [NewRecord(1, meta={"raw": b""})])
    with pytest.raises(Invalid, match="records is a dict, not a list of NewRecord"):
        await client.topics.write("a", {"n": 1})  # type: ignore[dict-item]
    with pytest.raises(Invalid, match=r"records\[0\] is a dict without the member data, not a NewRecord"):
        await client.topics.write("a", [{"n": 1}])
    with pytest.raises(Invalid, match=r"records\[1\] is an int, not a NewRecord"):
        await client.topics.write("a", [NewRecord(1), 1])  # type: ignore[list-item]
    with pytest.raises(Invalid, match=r"records\[0\]\['data'\]\['raw'\] is a bytes"):
        await client.topics.write("a", [{"data": {"raw": b""}}])
    with pytest.raises(Invalid, match="is nested more than 61 levels deep"):
        await client.topics.write("a", [{"data": [deepest]}])
    assert await data(client, "a") == [deepest]


async def test_reading_leaves_out_the_records_of_a_node_and_pages_through_the_rest(client: Client) -> None:
    await client.topics.write("jobs", [NewRecord(n, node="me" if n % 2 else "you") for n in range(700)])
    found = [one.seq async for one in client.topics.read("jobs", 100, node=["me"]) if isinstance(one, Record)]
    assert found == list(range(101, 701, 2))


async def test_what_is_missing_is_a_value(client: Client) -> None:
    await client.topics.put("jobs", Config(cap_records=2))
    await client.topics.write("jobs", [NewRecord(1)])
    await client.topics.write("jobs", [NewRecord(2), NewRecord(3)])
    gap, *rest = await read(client, "jobs")
    assert isinstance(gap, Gap)
    assert (gap.reason, gap.first, gap.last) == ("cap", 1, 1)
    assert [one.seq for one in rest if isinstance(one, Record)] == [2, 3]
    assert await data(client, "jobs", 1) == [2, 3]


async def test_another_topic_of_the_name_is_a_gap_for_who_read_the_one_before(client: Client) -> None:
    await client.topics.write("jobs", [NewRecord(n) for n in range(3)])
    page = await client.topics.diff("jobs")
    await client.topics.delete("jobs")
    await client.topics.write("jobs", [NewRecord("new")] * 5)
    again = await client.topics.diff("jobs", page.next_from_seq, epoch=page.epoch)
    assert again.gap is not None
    assert (again.gap.reason, [one.data for one in again.records]) == ("recreated", ["new"] * 5)


async def test_following_goes_on_with_what_is_written_later(client: Client) -> None:
    await client.topics.write("jobs", [NewRecord(1)])
    seen: list[object] = []
    async with asyncio.timeout(20), aclosing(client.topics.pages("jobs", follow=True)) as pages:
        async for page in pages:
            seen += [record.data for record in page.records]
            if len(seen) == 4:
                break
            if page.caught_up:
                await client.topics.write("jobs", [NewRecord(len(seen) + 1)])
    assert seen == [1, 2, 3, 4]


async def test_a_purge_is_silent(client: Client) -> None:
    await client.topics.write("jobs", [NewRecord(n, tag=f"t:{n % 2}") for n in range(6)])
    purged = await client.topics.purge("jobs", match="t:1")
    assert (purged.deleted, purged.count) == (3, 3)
    assert (await client.topics.purge("jobs", before_seq=3, match=["tag", "Glob", "t:*"])).deleted == 1
    assert [type(one).__name__ for one in await read(client, "jobs")] == ["Record", "Record"]
    with pytest.raises(Invalid):
        await client.topics.purge("jobs")


async def test_errors_carry_the_nodes_code_and_facts(client: Client) -> None:
    with pytest.raises(NotFound) as caught:
        await client.topics.get("ghost")
    assert (caught.value.code, detail_of(caught.value)) == ("topic_not_found", {"topic": "ghost"})
    await client.topics.put("full", Config(cap_records=1, discard="reject"))
    await client.topics.write("full", [NewRecord(1)])
    with pytest.raises(Full) as refused:
        await client.topics.write("full", [NewRecord(2)])
    assert refused.value.code == "topic_full"
    assert detail_of(refused.value)["cap_records"] == 1
    with pytest.raises(Conflict) as clash:
        await client.topics.put("full", Config(type="queue"))
    assert detail_of(clash.value) == {"topic": "full", "existing_type": "log", "requested_type": "queue"}
    with pytest.raises(Conflict, match=r"contains 1 record\b"):
        await client.topics.delete("full", if_empty=True)


async def test_a_key_is_sent_and_never_told(sqlite_url: str) -> None:
    async with serving(sqlite_url, keys="geheim-0001") as server:
        async with Client(server.url, "geheim-0001") as client:
            await client.topics.put("jobs")
        async with Client(server.url, "geheim-0002") as client:
            with pytest.raises(Unauthorized) as caught:
                await client.topics.get("jobs")
        assert "geheim" not in str(caught.value)


# --- through a network ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", [UNANSWERED, LOST, 503, 429])
async def test_a_write_that_is_tried_again_is_written_once(
    far: Client, client: Client, network: FlakyProxy, what: str | int
) -> None:
    network.faults = [Fault("/topics/jobs", what)] * 3
    written = await far.topics.write("jobs", [NewRecord(1), NewRecord(2)])
    assert (written.seqs, written.deduped) == ([1, 2], what == UNANSWERED)
    assert await data(client, "jobs") == [1, 2]
    assert network.asked == ["POST /v0/topics/jobs"] * 4


async def test_two_writes_of_the_same_records_are_two(far: Client, client: Client) -> None:
    await far.topics.write("jobs", [NewRecord(1)])
    await far.topics.write("jobs", [NewRecord(1)])
    assert await data(client, "jobs") == [1, 1]


async def test_a_key_of_ones_own_makes_two_writes_one(far: Client, client: Client) -> None:
    first = await far.topics.write("jobs", [NewRecord(1)], idempotency_key="order-7")
    again = await far.topics.write("jobs", [NewRecord(1)], idempotency_key="order-7")
    assert (first.deduped, again.deduped, again.seqs) == (False, True, first.seqs)


async def test_no_sooner_than_the_node_asks_for_and_ever_later(
    far: Client, network: FlakyProxy, pauses: Pauses
) -> None:
    network.faults = [Fault("/jobs", 429, retry_after="7"), Fault("/jobs", 503), Fault("/jobs"), Fault("/jobs", 502)]
    await far.topics.write("jobs", [NewRecord(1)])
    assert pauses[0] == 7.0
    for pause, nominal in zip(pauses[1:], (0.2, 0.4, 0.8), strict=True):
        assert nominal * 0.79 <= pause <= nominal


async def test_it_gives_up_with_the_nodes_own_words(far: Client, network: FlakyProxy, pauses: Pauses) -> None:
    network.faults = [Fault("/jobs", 429)] * 9
    with pytest.raises(Throttled, match="come back later"):
        await far.topics.put("jobs")
    assert len(network.asked) == 5


async def test_it_gives_up_where_waiting_would_take_too_long(far: Client, network: FlakyProxy, pauses: Pauses) -> None:
    network.faults = [Fault("/jobs", 503, retry_after="600")]
    with pytest.raises(Exception, match="come back later"):
        await far.topics.put("jobs")
    assert pauses == []


async def test_what_will_never_work_is_not_tried_again(far: Client, network: FlakyProxy) -> None:
    with pytest.raises(NotFound):
        await far.topics.get("ghost")
    assert network.asked == ["GET /v0/topics/ghost"]


async def test_reading_goes_on_where_it_was(far: Client, client: Client, network: FlakyProxy) -> None:
    await client.topics.write("jobs", [NewRecord(n) for n in range(600)])
    network.faults = [Fault("/diff", what) for what in (UNANSWERED, LOST, 503, UNANSWERED)]
    assert await data(far, "jobs") == list(range(600))


async def test_nobody_there(pauses: Pauses) -> None:
    port = free_port()
    async with Client(f"127.0.0.1:{port}", pause=pauses) as client:
        with pytest.raises(Lost, match=f"cannot reach http://127.0.0.1:{port}: ") as caught:
            await client.topics.get("jobs")
    assert caught.value.hint
    assert len(pauses) == 9


async def test_another_server_is_recognised_as_one(server: Server) -> None:
    async with Client(f"{server.url}/elsewhere") as client:
        with pytest.raises(Exception, match=r"the server answered|nothing is served"):
            await client.topics.get("jobs")


async def test_numbers_that_no_float_holds_hinder_nobody(client: Client) -> None:
    numbers = ["1e400", "-1E999", "1.5", "123456789012345678901234567890"]
    await client.topics.write("far", [NewRecord(msgspec.Raw(number.encode())) for number in numbers])
    expected = [Decimal("1e400"), Decimal("-1E999"), 1.5, 123456789012345678901234567890]
    assert await data(client, "far") == expected
    async with aclosing(aiter(client.watch({"far": 0}))) as sights:
        sight = await anext(sights)
        assert isinstance(sight, Batch)
        assert [record.data for record in sight.records] == expected
