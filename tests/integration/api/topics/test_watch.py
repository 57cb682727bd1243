"""Watching topics over server-sent events: the events of a stream, and their form."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from eventd.api.topics.client_stream import FollowerRegistry
from eventd.log.core.head import renew_epoch
from eventd.log.core.tail import TAIL_BYTES
from eventd.testing import ManualClock, draft, until
from tests.integration.api.topics.conftest import StartServer
from tests.support.streams import Stream, begin_session, connect_socket, open_stream, watch_topics
from tests.support.v0 import Server


async def test_a_session_says_where_it_begins_and_its_stream_tells_the_backlog_and_what_comes(server: Server) -> None:
    await server.write_records("jobs", {"data": {"v": 1}, "tag": "t-1"}, {"data": {"v": 2}, "tag": "t-2"}, node="w-1")
    told = await begin_session(server, "jobs", include_tags=True)
    assert told.status == 200
    assert told.body["wid"].startswith("wid_")
    assert len(told.body["wid"]) == 26
    assert told.body["stream_url"] == f"/v0/watch/{told.body['wid']}"
    assert told.body["session_ttl_ms"] == 300_000
    assert told.body["topics"] == {"jobs": {"from_seq": 0, "head_seq": 2, "earliest_seq": 1}}
    assert told.body["performance"]["server_total_ms"] >= 0
    async with open_stream(server, told.body["wid"], accept="text/event-stream") as stream:
        assert stream.headers["Content-Type"] == "text/event-stream"
        assert stream.headers["Cache-Control"] == "no-store"
        assert stream.headers["X-Accel-Buffering"] == "no"
        assert await stream.block() == "retry: 2000"
        record, caught_up = await stream.take("record", "caught-up")
        assert [*record.data] == ["topic", "from_seq", "head_seq", "records", "to_seq"]
        assert (record.data["topic"], record.data["from_seq"], record.data["to_seq"]) == ("jobs", 0, 2)
        assert [(r["$seq"], r["$node"], r["$tag"], r["data"]["v"]) for r in record.data["records"]] == [
            (1, "w-1", "t-1", 1),
            (2, "w-1", "t-2", 2),
        ]
        assert record.place == caught_up.place == {"jobs": 2}
        assert caught_up.data == {"topic": "jobs", "head_seq": 2}
        await server.write("jobs", {"v": 3})
        record, caught_up = await stream.take("record", "caught-up")
        assert (record.seqs, record.data["from_seq"], caught_up.data["head_seq"]) == ([3], 2, 3)


async def test_a_client_chooses_what_it_gets_of_a_record(server: Server) -> None:
    await server.write_records("jobs", {"data": 1, "tag": "t", "meta": {"m": 1}})
    async with watch_topics(server, "jobs") as stream:
        (told,) = (await stream.take("record"))[0].data["records"]
        assert told.keys() == {"$seq", "$ts", "data", "meta"}
    async with watch_topics(server, "jobs", include_data=False, include_meta=False, include_tags=True) as stream:
        (told,) = (await stream.take("record"))[0].data["records"]
        assert told.keys() == {"$seq", "$ts", "$tag"}


async def test_a_client_at_the_tail_never_sees_the_backlog(server: Server) -> None:
    await server.write("jobs", 1, 2)
    told = await begin_session(server, topics={"jobs": {"tail": True}})
    assert told.body["topics"]["jobs"]["from_seq"] == 2
    async with open_stream(server, told.body["wid"]) as stream:
        await stream.take("caught-up")
        await server.write("jobs", 3)
        assert (await stream.take("record"))[0].seqs == [3]


async def test_a_backlog_comes_in_pages_and_its_end_is_told_once(server: Server) -> None:
    await server.write("jobs", *range(10))
    async with watch_topics(server, "jobs", limit=4) as stream:
        pages = await stream.take("record", "record", "record", "caught-up")
        assert [page.seqs for page in pages[:3]] == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]
        assert [page.place for page in pages] == [{"jobs": 4}, {"jobs": 8}, {"jobs": 10}, {"jobs": 10}]
    async with watch_topics(server, "jobs", max_batch_bytes=1) as stream:
        assert (await stream.take("record"))[0].seqs == [1]


async def test_records_of_the_clients_own_nodes_are_passed_over_silently(server: Server) -> None:
    await server.write_records("nb", *({"data": n, "node": node} for n, node in enumerate(("self", "other", "self"))))
    async with watch_topics(server, "nb", node="self") as stream:
        record, caught_up = await stream.take("record", "caught-up")
        assert (record.seqs, record.data["to_seq"], caught_up.data["head_seq"]) == ([2], 3, 3)
    async with watch_topics(server, "nb", node=["self", "other"]) as stream:
        assert (await stream.take("caught-up"))[0].data == {"topic": "nb", "head_seq": 3}
        await server.write("nb", 4, node="other")
        await server.write("nb", 5)
        record, _ = await stream.take("record", "caught-up")
        assert (record.seqs, record.data["to_seq"], record.place) == ([5], 5, {"nb": 5})


async def test_a_topic_may_give_nodes_their_own_records_back(server: Server) -> None:
    await server.put("nb", dedupe_node=False)
    await server.write("nb", 1, node="self")
    async with watch_topics(server, "nb", node="self") as stream:
        assert (await stream.take("record"))[0].seqs == [1]


async def test_what_was_lost_before_the_first_read_is_told_as_being_too_old(server: Server) -> None:
    await server.put("cap", cap_records=3)
    for n in range(5):
        await server.write("cap", n)
    async with watch_topics(server, "cap") as stream:
        tombstone, record, _ = await stream.take("tombstone", "record", "caught-up")
        assert tombstone.data == {
            "topic": "cap",
            "reason": "from_seq_too_old",
            "gap_from": 1,
            "gap_to": 2,
            "earliest_seq": 3,
            "head_seq": 5,
        }
        assert (tombstone.place, record.seqs, record.data["from_seq"]) == ({"cap": 2}, [3, 4, 5], 2)


async def test_what_was_deleted_by_request_is_no_loss(server: Server) -> None:
    await server.write("del", 1, 2, 3)
    await server.delete_records("del", before_seq=3)
    async with watch_topics(server, "del") as stream:
        assert (await stream.take("record"))[0].seqs == [3]


async def test_a_seq_of_a_topic_that_is_no_more_begins_with_the_one_that_took_its_name(server: Server) -> None:
    await server.write("again", 1, 2, 3)
    told = await begin_session(server, "again")
    async with open_stream(server, told.body["wid"]) as stream:
        assert await stream.seqs(3) == [1, 2, 3]
    await server.delete("again")
    await server.write("again", *range(4))
    async with open_stream(server, told.body["wid"]) as stream:
        tombstone, record, _ = await stream.take("tombstone", "record", "caught-up")
        assert (tombstone.data["reason"], tombstone.place) == ("recreated", {"again": [1, 0]})
        assert record.seqs == [1, 2, 3, 4]


async def test_a_deleted_topic_is_told_at_once_and_the_others_go_on(server: Server) -> None:
    await server.write("boxA", 1)
    await server.write("boxB", 1)
    async with watch_topics(server, "boxA", "boxB", heartbeat_ms=60_000) as stream:
        await stream.take("record", "caught-up", "record", "caught-up")
        await server.delete("boxA")
        (deleted,) = await stream.take("topic-deleted")
        assert deleted.data == {"topic": "boxA", "head_seq": 0, "reason": "deleted"}
        assert deleted.place == {"boxB": 1}
        await server.write("boxA", "another topic of that name")
        await server.write("boxB", 2)
        assert (await stream.take("record"))[0].data["topic"] == "boxB"


async def test_a_stream_ends_with_its_last_topic_and_says_so_again_to_who_comes_back(server: Server) -> None:
    await server.write("box", 1)
    told = await begin_session(server, "box")
    for backlog in (["record", "caught-up"], []):
        async with open_stream(server, told.body["wid"]) as stream:
            await stream.take(*backlog)
            if backlog:
                await server.delete("box")
            await stream.take("topic-deleted")
            assert await stream.next() is None


async def test_every_event_tells_the_places_in_all_topics(server: Server) -> None:
    await server.write("b", 1)
    await server.write("a", 1, 2)
    async with watch_topics(server, "b", "a") as stream:
        events = await stream.take("record", "caught-up", "record", "caught-up")
        assert [event.place for event in events] == [{"a": 0, "b": 1}] * 2 + [{"a": 2, "b": 1}] * 2
        assert [*events[0].place] == ["a", "b"]
        await server.write("a", 3)
        record, _ = await stream.take("record", "caught-up")
        assert record.place == {"a": 3, "b": 1}


async def test_a_silent_stream_is_heard_of(start_server: StartServer) -> None:
    clock = ManualClock()
    server = await start_server(clock=clock)
    await server.put("box")

    async def pass_time(stream: Stream, seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            await until(lambda: clock.waits, "the streams to be looked after")
            clock.advance(0.1)
            await asyncio.sleep(0)

    async with watch_topics(server, "box", heartbeat_ms=1) as stream:  # a second is the least
        await stream.take("caught-up")
        await pass_time(stream, 1.2)
        assert await stream.block() == ": hb"
        await server.write("box", 1)
        await stream.take("record", "caught-up")


async def test_no_sign_is_lost_between_a_read_and_the_wait_after_it(server: Server) -> None:
    """Each write waits until the one before is delivered: if a wakeup were lost, the test would take a heartbeat."""
    await server.put("box")
    async with watch_topics(server, "box", heartbeat_ms=60_000) as stream, asyncio.timeout(20):
        await stream.take("caught-up")
        for n in range(60):
            await server.write("box", n)
            await stream.take("record", "caught-up")


async def test_a_write_and_a_deletion_under_the_first_read_are_told(server: Server) -> None:
    for n in range(20):
        await server.write("box", n)
        told = await begin_session(server, "box")
        async with open_stream(server, told.body["wid"]) as stream:
            await asyncio.gather(server.write("box", "late"), stream.take("record"))
            await asyncio.gather(server.delete("box"), _until_deleted(stream))


async def _until_deleted(stream: Stream) -> None:
    while (event := await stream.next()) is not None:
        if event.kind == "topic-deleted":
            return
    raise AssertionError("the stream ended without a word")


async def test_many_clients_of_many_kinds_all_get_everything(server: Server) -> None:
    await server.put("hot")

    async def watch(n: int) -> list[int]:
        async with watch_topics(server, "hot", limit=1 + n % 7, include_tags=bool(n % 2)) as stream:
            return await stream.seqs(60)

    watchers = [asyncio.ensure_future(watch(n)) for n in range(30)]
    for n in range(20):
        await server.write("hot", n, n, n)
    assert await asyncio.gather(*watchers) == [[*range(1, 61)]] * 30


@asynccontextmanager
async def counted_reads(server: Server) -> AsyncIterator[list[str]]:
    """The names of the functions that read the database while the block runs."""
    names: list[str] = []
    read = server.v0.database.read

    async def counted(fn: Any, *args: Any, **kwargs: Any) -> Any:
        names.append(fn.__name__)
        return await read(fn, *args, **kwargs)

    server.v0.database.read = counted  # type: ignore[method-assign]
    yield names
    del server.v0.database.read


@pytest.mark.parametrize(("size", "needed"), [(1, 0), (TAIL_BYTES, 1)], ids=["from memory", "too large for it"])
async def test_one_read_at_most_serves_all_clients_at_the_same_place(server: Server, size: int, needed: int) -> None:
    await server.put("hot")
    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(watch_topics(server, "hot")) for _ in range(50)]
        for stream in streams:
            await stream.take("caught-up")
        async with counted_reads(server) as reads:
            await server.write("hot", "x" * size)
            for stream in streams:
                assert (await stream.take("record", "caught-up"))[0].seqs == [1]
        assert reads.count("read_topic_page") == needed


@pytest.mark.parametrize(("size", "needed"), [(1, 0), (TAIL_BYTES, 1)], ids=["from memory", "too large for it"])
async def test_nodes_that_do_not_want_to_hear_themselves_share_a_read(server: Server, size: int, needed: int) -> None:
    names = ['a"b', "ü\\n", "", "c", "d"]
    await server.put("room")
    async with AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(watch_topics(server, "room", node=name)) for name in names]
        for stream in streams:
            await stream.take("caught-up")
        async with counted_reads(server) as reads:
            batch = [{"data": n, "node": name} for n, name in enumerate(names[:4])]
            await server.write_records("room", *batch, {"data": "x" * size})
            for own, stream in enumerate(streams, 1):
                record, _ = await stream.take("record", "caught-up")
                assert record.seqs == [seq for seq in range(1, 6) if seq != own or own == 5]
                assert record.data["to_seq"] == 5
        assert reads.count("read_topic_page") == needed


async def test_nodes_hear_themselves_where_the_topic_says_so(server: Server) -> None:
    await server.put("echo", dedupe_node=False)
    async with watch_topics(server, "echo", node="self") as stream:
        await stream.take("caught-up")
        await server.write("echo", 1, node="self")
        assert (await stream.take("record"))[0].seqs == [1]


async def test_watching_is_the_same_on_both_databases(stored: Server) -> None:
    await stored.put("cap", cap_records=2)
    for n in range(3):
        await stored.write("cap", n)
    async with watch_topics(stored, "cap") as stream:
        tombstone, record, _ = await stream.take("tombstone", "record", "caught-up")
        assert (tombstone.data["gap_to"], record.seqs) == (1, [2, 3])
        await stored.write("cap", 3)
        assert (await stream.take("record", "caught-up"))[0].seqs == [4]
        await stored.delete("cap")
        await stream.take("topic-deleted")


async def test_the_events_of_a_group_are_watched_as_records(server: Server) -> None:
    topic_id = await server.log.topic("group:edge")
    await server.log.append(topic_id, [draft("e-1", group="edge", node="a", type="up", payload={"k": "v"})])
    async with watch_topics(server, "group:edge", include_tags=True) as stream:
        record, _ = await stream.take("record", "caught-up")
        (told,) = record.data["records"]
        assert (told["$node"], told["$tag"], told["data"], told["meta"]["id"]) == ("a", "up", {"k": "v"}, "e-1")
        await server.log.append(topic_id, [draft("e-2", group="edge")])
        assert (await stream.take("record"))[0].seqs == [2]


async def test_nothing_is_kept_of_clients_that_have_gone(server: Server) -> None:
    await server.put("idle")
    async with watch_topics(server, "idle") as stays:
        await stays.take("caught-up")
        feeds = server.v0.part(FollowerRegistry).feeds._feeds
        for _ in range(5):
            async with watch_topics(server, "idle") as goes:
                await goes.take("caught-up")
                assert [feed._watch.readers for feed in feeds.values()] == [2]
        await until(lambda: server.v0.serving.concurrency.streams.taken == 1, "the others to be gone")
        assert [(feed.users, [*map(len, feed._waiting.values())]) for feed in feeds.values()] == [(1, [1])]
    await until(lambda: not server.v0.serving.concurrency.streams.taken)
    assert not feeds


async def test_a_client_of_an_older_http_gets_the_stream_as_it_is(server: Server) -> None:
    await server.write("box", 1)
    wid = (await begin_session(server, "box")).body["wid"]
    host, _, port = server.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    async with asyncio.timeout(10):
        writer.write(f"GET /v0/watch/{wid} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"chunked" not in head.lower()
        assert await reader.readuntil(b"\n\n") == b"retry: 2000\n\n"
        assert (await reader.readuntil(b"\n\n")).startswith(b"id: ")
    writer.close()
    await writer.wait_closed()


async def test_a_fault_of_the_beat_leaves_no_client_without_heartbeats(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    server = await start_server(clock=clock)
    beat, faults = FollowerRegistry._beat, ["fault"]

    def beating(watched: FollowerRegistry) -> None:
        task = asyncio.current_task()
        if faults and task is not None and task.get_name().startswith("heartbeats"):
            raise KeyError(faults.pop())
        beat(watched)

    monkeypatch.setattr(FollowerRegistry, "_beat", beating)
    await server.write("jobs", 1)
    async with watch_topics(server, "jobs", heartbeat_ms=5000) as stream:
        await stream.take("record", "caught-up")
        for waits in (0.25, 0.1, 0.25):  # a beat, the back-off after its fault, and a beat again
            await until(lambda waits=waits: clock.waits == [pytest.approx(waits)])  # type: ignore[misc]
            clock.advance(6)
        assert (await stream.block()).startswith(":")
    (failed,) = [vars(record) for record in caplog.records if record.name == "eventd.tasks"]
    assert (failed["task"], failed["outcome"]) == ("heartbeats of the clients that follow topics", "restarted")


@pytest.mark.parametrize("by_commit", [False, True], ids=["at the next look", "by a commit"])
async def test_a_new_epoch_is_told_to_open_streams_at_once(server: Server, by_commit: bool) -> None:
    await server.write("box", 1, 2)
    await server.put("empty")
    async with watch_topics(server, "box", "empty", heartbeat_ms=60_000) as stream, connect_socket(server) as socket:
        await stream.take("record", "caught-up", "caught-up")
        await socket.say("subscribe", topic="box", from_seq=2)
        await socket.take("subscribed", "caught_up")
        await server.log.database.write(renew_epoch)  # as another process does
        await (server.write("other", 1) if by_commit else server.log.look_around())
        events = [await stream.next() for _ in range(5)]
        assert None not in events
        told = [(event.kind, event.data["topic"]) for event in events if event is not None]
        assert sorted(told) == [
            ("caught-up", "box"),
            ("caught-up", "empty"),
            ("record", "box"),
            ("tombstone", "box"),
            ("tombstone", "empty"),
        ]
        assert all(event.data["reason"] == "recreated" for event in events if event and event.kind == "tombstone")
        tombstone, record, _ = await socket.take("tombstone", "record", "caught_up")
        assert (tombstone["reason"], [each["$seq"] for each in record["records"]]) == ("recreated", [1, 2])
        await server.write("box", 3)  # and it continues from there
        assert (await stream.take("record", "caught-up"))[0].seqs == [3]
        assert (await socket.take("record", "caught_up"))[0]["to_seq"] == 3
