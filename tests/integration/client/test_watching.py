"""Watching over interrupted connections: nothing is missed, nothing comes twice, losses are reported."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

import pytest

from eventd.client import Batch, CaughtUp, Client, Config, Gap, NewRecord, Sight, TopicDeleted, Watch
from eventd.errors import NotFound, Unavailable
from eventd.log.core.head import renew_epoch
from tests.integration.client.conftest import Pauses
from tests.support.flaky_proxy import CUT, Fault, FlakyProxy
from tests.support.v0 import Server


async def write(client: Client, topic: str, *data: object) -> None:
    await client.topics.write(topic, [NewRecord(one) for one in data])


async def see(watch: Watch, *, until: int) -> list[Sight]:
    """What a watch sees until it has seen so many records, and is in step."""
    seen: list[Sight] = []
    async with asyncio.timeout(30), aclosing(aiter(watch)) as sights:
        async for sight in sights:
            seen.append(sight)
            if len(records(seen)) >= until and isinstance(sight, CaughtUp):
                break
    return seen


def records(seen: list[Sight]) -> list[tuple[str, object]]:
    return [(sight.topic, record.data) for sight in seen if isinstance(sight, Batch) for record in sight.records]


async def test_what_there_is_comes_first_and_then_what_is_written(client: Client) -> None:
    await write(client, "a", 1, 2)
    await write(client, "b", "x")
    watch = client.watch({"a": 1, "b": 0})
    seen: list[Sight] = []
    async with asyncio.timeout(30), aclosing(aiter(watch)) as sights:
        async for sight in sights:
            seen.append(sight)
            if isinstance(sight, CaughtUp) and len(records(seen)) == 2 and watch.cursors == {"a": 2, "b": 1}:
                await write(client, "a", 3)
            if len(records(seen)) == 3:
                break
    assert sorted(records(seen), key=str) == [("a", 2), ("a", 3), ("b", "x")]
    assert watch.cursors == {"a": 3, "b": 1}


async def test_from_now_on_means_from_when_it_began(client: Client) -> None:
    await write(client, "a", 1, 2)
    watch = client.watch({"a": None})
    seen: list[Sight] = []
    async with asyncio.timeout(30), aclosing(aiter(watch)) as sights:
        async for sight in sights:
            seen.append(sight)
            if isinstance(sight, CaughtUp) and not records(seen):
                await write(client, "a", 3)
            if records(seen):
                break
    assert records(seen) == [("a", 3)]


async def test_tags_meta_and_data_are_shown_as_asked(client: Client) -> None:
    await client.topics.write("a", [NewRecord(1, tag="t", node="me", meta=2), NewRecord(3, node="you")])
    (batch,) = [one for one in await see(client.watch({"a": 0}), until=2) if isinstance(one, Batch)]
    assert [(one.tag, one.node, one.meta, one.data) for one in batch.records] == [
        ("t", "me", 2, 1),
        (None, "you", None, 3),
    ]
    watch = client.watch({"a": 0}, node=["you"], tags=False, meta=False, data=False)
    (batch,) = [one for one in await see(watch, until=1) if isinstance(one, Batch)]
    assert [(one.seq, one.tag, one.meta, one.data) for one in batch.records] == [(1, None, None, None)]


async def test_a_stream_that_is_cut_again_and_again_gives_each_record_once(
    far: Client, client: Client, network: FlakyProxy
) -> None:
    await write(client, "a", *range(20))
    words = [b"retry", b"event: record", b'"to_seq":6', b"event: caught-up", b"retry"]
    network.faults = [Fault("/watch/", CUT, words=one) for one in words]
    watch = far.watch({"a": 0}, limit=3)
    seen: list[Sight] = []
    async with asyncio.timeout(30), aclosing(aiter(watch)) as sights:
        async for sight in sights:
            seen.append(sight)
            if len(records(seen)) == 20 and network.faults == []:
                break
    assert records(seen) == [("a", n) for n in range(20)]
    assert network.asked.count("POST /v0/watch") == 1


async def test_a_watch_of_many_topics_goes_on_when_it_is_cut(far: Client, client: Client, network: FlakyProxy) -> None:
    names = [f"{'n' * 60}-{number:03}" for number in range(64)]
    for name in names:
        await write(client, name, 1, 2)
    network.faults = [Fault("/watch/", CUT, words=words) for words in (b"-003", b"-050", b"-025")]
    seen: list[Sight] = []
    async with asyncio.timeout(60), aclosing(aiter(far.watch(dict.fromkeys(names, 0), limit=1))) as sights:
        async for sight in sights:
            seen.append(sight)
            if len(records(seen)) == 128 and network.faults == []:
                break
    assert sorted(records(seen)) == sorted((name, n) for name in names for n in (1, 2))
    assert network.asked.count("POST /v0/watch") == 1


async def test_a_node_that_has_forgotten_the_session_is_told_it_again(
    far: Client, client: Client, network: FlakyProxy
) -> None:
    await write(client, "a", *range(5))
    await write(client, "b", *range(5))
    network.faults = [Fault("/watch/", CUT, words=b"caught-up"), Fault("/watch/", 404)]
    watch = far.watch({"a": 0, "b": 2}, limit=2)
    seen: list[Sight] = []
    async with asyncio.timeout(30), aclosing(aiter(watch)) as sights:
        async for sight in sights:
            seen.append(sight)
            if network.asked.count("POST /v0/watch") == 2 and len(records(seen)) >= 8:
                break
    assert sorted(records(seen), key=str) == [*(("a", n) for n in range(5)), *(("b", n) for n in range(2, 5))]


async def test_a_node_that_comes_back_with_another_epoch_is_read_from_the_beginning_after_a_gap(
    far: Client, client: Client, server: Server, network: FlakyProxy
) -> None:
    await write(client, "a", *range(3))
    network.faults = [Fault("/watch/", CUT, words=b"caught-up"), Fault("/watch/", 404)]
    watch = far.watch({"a": 0})
    seen: list[Sight] = []
    async with asyncio.timeout(30), aclosing(aiter(watch)) as sights:
        async for sight in sights:
            if not seen:
                await server.log.database.write(renew_epoch)
                await write(client, "a", 3)
            seen.append(sight)
            if isinstance(sight, Gap):  # nothing of the new epoch was seen
                assert (sight.reason, watch.cursors) == ("recreated", {"a": 0})
            if isinstance(sight, CaughtUp) and len(seen) > 2:
                break
    assert records(seen) == [("a", n) for n in (0, 1, 2, 0, 1, 2, 3)]
    assert watch.cursors == {"a": 4}


async def test_a_later_watch_with_the_epochs_of_the_first_notices_a_topic_created_again(
    client: Client,
) -> None:
    await write(client, "a", 1, 2)
    await write(client, "b", 1)
    first = client.watch({"a": 0, "b": 0})
    assert first.epochs == {}
    await see(first, until=3)
    cursors, epochs = first.cursors, first.epochs
    assert (cursors, epochs.keys()) == ({"a": 2, "b": 1}, {"a", "b"})
    await client.topics.delete("a")
    await write(client, "a", 3, 4, 5)
    await write(client, "b", 2)
    later = client.watch(cursors, epochs=epochs)
    seen = await see(later, until=4)
    assert [(sight.topic, sight.reason) for sight in seen if isinstance(sight, Gap)] == [("a", "recreated")]
    assert sorted(records(seen), key=str) == [("a", 3), ("a", 4), ("a", 5), ("b", 2)]
    assert (later.cursors, later.epochs["b"]) == ({"a": 3, "b": 2}, epochs["b"])
    assert later.epochs["a"] != epochs["a"]


@pytest.mark.parametrize("is_epoch_known", [False, True])
async def test_a_seq_beyond_the_newest_one_that_is_stored_before_its_gap_loses_no_records(
    client: Client, is_epoch_known: bool
) -> None:
    await write(client, "a", 1)
    await write(client, "b", 1, 2, 3)
    present = client.watch({"b": 3})
    await see(present, until=0)
    first = client.watch({"a": 0, "b": 5}, epochs=present.epochs if is_epoch_known else {})
    async with asyncio.timeout(30), aclosing(aiter(first)) as sights:
        assert isinstance(sight := await anext(sights), Batch)
        assert (sight.topic, first.cursors["b"]) == ("a", 5)
    later = client.watch(first.cursors, epochs=first.epochs)
    await write(client, "b", 4, 5, 6)
    seen = await see(later, until=6)
    assert [(sight.topic, sight.reason) for sight in seen if isinstance(sight, Gap)] == [("b", "recreated")]
    assert records(seen) == [("b", n) for n in range(1, 7)]


async def test_the_epoch_of_an_earlier_watch_is_nothing_to_one_that_begins_at_the_end(client: Client) -> None:
    await write(client, "a", 1)
    watch = client.watch({"a": None}, epochs={"a": "of a topic that was deleted"})
    async with asyncio.timeout(30), aclosing(aiter(watch)) as sights:
        assert isinstance(await anext(sights), CaughtUp)
    later = client.watch(watch.cursors, epochs=watch.epochs)
    await write(client, "a", 2)
    assert records(await see(later, until=1)) == [("a", 2)]


async def test_a_topic_that_is_created_again_twice_is_read_whole_after_a_gap_each_time(
    far: Client, client: Client, network: FlakyProxy
) -> None:
    await write(client, "a", 0, 1, 2)
    network.faults = [Fault("/watch/", CUT, words=b"caught-up")] * 2
    watch = far.watch({"a": 0})
    seen: list[Sight] = []
    ends = 0
    async with asyncio.timeout(30), aclosing(aiter(watch)) as sights:
        async for sight in sights:
            seen.append(sight)
            ends += isinstance(sight, CaughtUp)
            if ends == 3:
                break
            if isinstance(sight, CaughtUp):  # the stream was cut
                count = len(records(seen))
                await client.topics.delete("a")
                await write(client, "a", *range(count, count + 4))
    assert records(seen) == [("a", n) for n in range(11)]
    assert [sight.reason for sight in seen if isinstance(sight, Gap)] == ["recreated"] * 2
    assert network.asked.count("POST /v0/watch") == 1


async def test_what_is_missing_is_a_value_and_comes_once(client: Client) -> None:
    await client.topics.put("a", Config(cap_records=2))
    for n in range(5):
        await write(client, "a", n)
    seen = await see(client.watch({"a": 1}), until=2)
    (gap,) = [sight for sight in seen if isinstance(sight, Gap)]
    assert (gap.topic, gap.first, gap.last) == ("a", 2, 3)
    assert records(seen) == [("a", 3), ("a", 4)]


async def test_a_deleted_topic_is_said_and_the_others_go_on(client: Client) -> None:
    await write(client, "a", 1)
    await write(client, "b", 1)
    watch = client.watch({"a": 1, "b": 1})
    seen: list[Sight] = []
    async with asyncio.timeout(30):
        async for sight in watch:
            seen.append(sight)
            if len([one for one in seen if isinstance(one, CaughtUp)]) == 2 and len(seen) == 2:
                await client.topics.delete("a")
                await write(client, "b", 2)
            if records(seen) and TopicDeleted(topic="b") not in seen:
                await client.topics.delete("b")
    assert {TopicDeleted(topic="a"), TopicDeleted(topic="b")} <= set(map(_hashable, seen))
    assert records(seen) == [("b", 2)]
    assert watch.cursors == {}


def _hashable(sight: Sight) -> object:
    return sight if isinstance(sight, TopicDeleted) else None


async def test_a_topic_that_was_deleted_while_the_network_was_down_is_said(
    far: Client, client: Client, network: FlakyProxy, pauses: Pauses
) -> None:
    await write(client, "a", 1)
    await write(client, "b", 1)
    watch = far.watch({"a": 0, "b": 0})
    seen: list[Sight] = []
    async with asyncio.timeout(30), aclosing(aiter(watch)) as sights:
        async for sight in sights:
            if isinstance(sight, CaughtUp) and not seen:
                network.faults = [Fault("/watch/", 404)]
            seen.append(sight)
            if len([one for one in seen if isinstance(one, CaughtUp)]) == 2:
                break
    await client.topics.delete("a")
    await write(client, "b", 2)
    async with asyncio.timeout(30), aclosing(aiter(watch)) as sights:
        async for sight in sights:
            seen.append(sight)
            if len(records(seen)) == 3:
                break
    assert TopicDeleted(topic="a") in seen
    assert sorted(records(seen), key=str) == [("a", 1), ("b", 1), ("b", 2)]


async def test_a_topic_that_was_never_there_is_an_error(client: Client) -> None:
    await write(client, "a", 1)
    with pytest.raises(NotFound, match="ghost"):
        await see(client.watch({"a": 0, "ghost": 0}), until=1)


async def test_it_gives_up_when_the_node_does_not_come_back(far: Client, network: FlakyProxy, client: Client) -> None:
    await write(client, "a", 1)
    network.faults = [Fault("/watch", 503)] * 100
    with pytest.raises(Unavailable, match="come back later"):
        await see(far.watch({"a": 0}), until=1)
    assert network.asked == ["POST /v0/watch"] * 5


async def test_it_gives_up_when_the_stream_does_not_come_back(
    far: Client, network: FlakyProxy, client: Client, pauses: Pauses
) -> None:
    await write(client, "a", 1)
    network.faults = [Fault("/watch/", 503)] * 100
    with pytest.raises(Unavailable, match="come back later"):
        await see(far.watch({"a": 0}), until=1)
    assert (len(network.asked), len(pauses)) == (6, 4)
