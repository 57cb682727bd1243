"""Clients that do not read, and nodes that stop: neither makes others wait."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

import pytest

from eventd.api.topics.client_stream import FollowedTopic, Follower, FollowerRegistry
from eventd.api.topics.shared_reads import Page, PageOptions, TopicRequest
from eventd.api.topics.start import find_topics
from eventd.log.core.records import View
from eventd.testing import ManualClock, give_turns, until
from tests.integration.api.topics.conftest import StartServer
from tests.support.streams import begin_session, connect_socket, open_stream, open_unread_stream, watch_topics
from tests.support.v0 import Server

LARGE = "x" * 200_000


async def test_who_does_not_read_is_merely_behind_and_loses_nothing(server: Server) -> None:
    await server.put("big")
    wid = (await begin_session(server, "big", heartbeat_ms=60_000)).body["wid"]
    async with watch_topics(server, "big") as stream, open_unread_stream(server, wid) as reader:
        await stream.take("caught-up")
        for n in range(1, 61):  # 12 MB: more than the buffers between the two hold
            await server.write("big", LARGE)
            assert await stream.seqs(n) == [n]
        heard = b""
        async with asyncio.timeout(20):
            while (
                b'"to_seq":60' not in heard[-100:] and b"caught-up" not in heard[-400:]
            ) or b'"to_seq":60' not in heard:
                heard += await reader.read(1 << 20)
        assert heard.count(b'{"$seq":') == 60
        assert heard.index(b'"from_seq":0') < heard.index(b'"to_seq":60')


async def test_nothing_piles_up_for_who_does_not_read(server: Server) -> None:
    """What is under way to it is at most what the buffers hold and one page."""
    await server.put("big")
    wid = (await begin_session(server, "big")).body["wid"]
    async with open_unread_stream(server, wid), watch_topics(server, "big") as stream:
        await stream.take("caught-up")
        for n in range(1, 101):
            await server.write("big", LARGE)
            assert await stream.seqs(n) == [n]
        (behind, ahead) = sorted(_places(server, wid))
        assert ahead == 100
        assert behind < 80
        assert max(_untaken(server)) < 1 << 20


def _followers(server: Server) -> list[Follower]:
    return [*server.v0.part(FollowerRegistry)._followers]


def _places(server: Server, wid: str) -> list[int]:
    return [cursor.seq for follower in _followers(server) for cursor in follower.cursors().values()]  # type: ignore[attr-defined]


def _untaken(server: Server) -> list[int]:
    return [follower.stream.transport.get_write_buffer_size() for follower in _followers(server)]


async def test_streams_are_told_that_the_node_stops_and_end(server: Server) -> None:
    await server.write("box", 1)
    async with watch_topics(server, "box") as stream, connect_socket(server) as socket:
        await stream.take("record", "caught-up")
        assert (await socket.ask("ping"))["op"] == "pong"
        server.v0.stopping.set_result(None)
        (told,) = await stream.take("error")
        assert told.data["code"] == "server_shutting_down"
        assert told.place == {"box": 1}
        assert await stream.next() is None
        refusal = await socket.next()
        assert (refusal["op"], refusal["code"]) == ("error", "server_shutting_down")
        assert await socket.next() is None
        assert socket.socket.close_code == 1001


async def test_a_node_stops_fast_although_clients_do_not_read(start_server: StartServer) -> None:
    server = await start_server()
    await server.write("big", *[LARGE] * 40)
    wid = (await begin_session(server, "big")).body["wid"]
    async with open_unread_stream(server, wid), connect_socket(server) as socket:
        await socket.say("subscribe", topic="big")
        await until(lambda: server.v0.serving.concurrency.streams.taken == 2)
        await until(lambda: any(size > 1 << 16 for size in _untaken(server)), "a client to leave something untaken")
        begun = time.monotonic()
        server.v0.stopping.set_result(None)
        await until(lambda: not server.v0.serving.concurrency.streams.taken, "the streams to end")
        assert time.monotonic() - begun < 3


async def test_a_stream_that_begins_while_the_node_stops_ends_at_once(server: Server) -> None:
    await server.put("box")
    wid = (await begin_session(server, "box")).body["wid"]
    server.v0.stopping.set_result(None)
    async with open_stream(server, wid) as stream:
        await stream.take("error")
        assert await stream.next() is None


async def test_a_client_that_goes_is_noticed_and_forgotten(server: Server) -> None:
    await server.put("box")
    async with watch_topics(server, "box") as stream, connect_socket(server):
        await stream.take("caught-up")
        assert server.v0.serving.concurrency.streams.taken == 2
    await until(lambda: not server.v0.serving.concurrency.streams.taken, "the places to be free")
    await server.write("box", 1)
    assert not _followers(server)


async def test_a_database_that_fails_ends_a_stream_with_the_reason(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    from eventd.api.topics import shared_reads
    from eventd.errors import DatabaseUnavailable

    await server.put("box", cap_records=10)  # what may go by itself is read from the database

    def fail(*_: object) -> None:
        raise DatabaseUnavailable("the disk is full")

    async with watch_topics(server, "box") as stream:
        await stream.take("caught-up")
        monkeypatch.setattr(shared_reads, "read_topic_page", fail)
        await server.write("box", 1)
        (told,) = await stream.take("error")
        assert (told.data["code"], told.data["message"]) == ("not_ready", "the disk is full")
        assert await stream.next() is None


async def test_a_fault_of_the_node_ends_a_stream_without_telling_more_than_its_number(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from eventd.api.topics import watch

    await server.write("box", "geheim")

    def fail(*_: object) -> None:
        raise ValueError("geheim")

    monkeypatch.setattr(watch, "_record_data", fail)
    async with watch_topics(server, "box") as stream:
        (told,) = await stream.take("error")
        assert told.data["code"] == "internal"
        assert "geheim" not in told.data["message"]
        assert "stream failed" in caplog.text


@pytest.mark.parametrize("kind", ["stream", "socket"])
async def test_a_watcher_that_leaves_before_more_than_a_page_comes_costs_nothing(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    server = await start_server(clock=ManualClock())  # so that it is not noticed before it is served
    await server.put("box")
    taken: list[int] = []
    take = FollowedTopic.take

    def counted(following: FollowedTopic, page: Page) -> None:
        taken.append(page.after)
        assert len(taken) < 100, "the feed serves it for ever"  # which would let nothing else run, this test included
        take(following, page)

    monkeypatch.setattr(FollowedTopic, "take", counted)
    async with AsyncExitStack() as stack:
        if kind == "stream":
            stream = await stack.enter_async_context(watch_topics(server, "box", limit=7))
            await stream.take("caught-up")
        else:
            socket = await stack.enter_async_context(connect_socket(server))
            await socket.say("subscribe", topic="box", limit=7)
            await socket.take("subscribed", "caught_up")
        (follower,) = _followers(server)
        follower.stream.abort()
        await server.write("box", *range(20))
        assert (await server.diff("box")).seqs == [*range(1, 21)]
        await give_turns()
        assert taken in ([], [0])
        assert not any(feed._waiting for feed in server.v0.part(FollowerRegistry).feeds._feeds.values())


async def test_who_is_caught_up_gets_a_large_batch_page_by_page(server: Server) -> None:
    await server.put("box")
    async with watch_topics(server, "box", limit=7) as one, watch_topics(server, "box", limit=7, node="me") as other:
        await one.take("caught-up")
        await other.take("caught-up")
        await server.write("box", *range(20))
        for stream in (one, other):
            pages = await stream.take("record", "record", "record", "caught-up")
            assert [page.seqs for page in pages[:3]] == [[*range(1, 8)], [*range(8, 15)], [*range(15, 21)]]


async def test_pages_that_are_there_already_let_others_have_their_turn(server: Server) -> None:
    await server.write("box", *range(10))
    feeds = server.v0.part(FollowerRegistry).feeds
    (found,) = (await find_topics(server.v0, ["box"], lenient=False)).values()
    want = TopicRequest(found.topic_id, "box", PageOptions(frozenset(), View(), 1, 1 << 20))
    feed = feeds.use(want)
    for after in range(10):
        await feed.read(after)
    turns = 0

    def turned() -> None:
        nonlocal turns
        turns += 1
        asyncio.get_running_loop().call_soon(turned)

    turned()
    for after in range(10):
        await feed.read(after)
    assert turns >= 10
    feed.close()
