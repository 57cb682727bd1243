"""Streams of whole nodes: they include changes by other processes, and a stopping node does not wait for them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing

from aiohttp import ClientSession

from eventd.log.core.eventlog import EventLog
from eventd.log.topics.topics import DeleteTopic
from eventd.runtime.clock import SystemClock
from eventd.store.engine.database import Database
from tests.integration.conftest import MakeSites
from tests.support.sites import Site
from tests.support.streams import begin_session, connect_socket, open_stream, open_unread_stream, watch_topics
from tests.support.v0 import Client, Server, serving


@asynccontextmanager
async def running(site: Site) -> AsyncIterator[Client]:
    """A node until the block ends, and a client of its API."""
    await site.start()
    address = site.running.api_address
    assert address is not None
    async with ClientSession() as session:
        yield Client(session, f"http://{address[0]}:{address[1]}")
    await site.stop()


async def test_a_node_that_stops_tells_its_streams_and_waits_for_none_of_them(sites: MakeSites) -> None:
    (site,) = sites("node")
    async with running(site) as client:
        await client.write("big", *["x" * 200_000] * 40)
        await client.write("box", 1)
        wid = (await begin_session(client, "big")).body["wid"]
        async with (
            open_unread_stream(client, wid),
            watch_topics(client, "box") as stream,
            connect_socket(client) as socket,
        ):
            await stream.take("record", "caught-up")
            await socket.ask("subscribe", topic="box")
            await socket.take("record", "caught_up")
            begun = time.monotonic()
            stopping = asyncio.ensure_future(site.stop())
            assert (await stream.take("error"))[0].data["code"] == "server_shutting_down"
            assert await stream.next() is None
            assert (await socket.take("error"))[0]["code"] == "server_shutting_down"
            assert await socket.next() is None
            await stopping
            assert time.monotonic() - begun < 5


async def test_a_session_is_not_known_to_the_node_that_comes_after(sites: MakeSites) -> None:
    (site,) = sites("node")
    async with running(site) as client:
        await client.write("box", 1)
        wid = (await begin_session(client, "box")).body["wid"]
    async with running(site) as client:
        told = await client.ask("GET", f"/watch/{wid}")
        assert (told.status, told.code) == (404, "not_found")


async def test_what_another_process_writes_and_deletes_is_told(sites: MakeSites) -> None:
    (site,) = sites("node")
    async with running(site) as client:
        await client.put("box")
        async with watch_topics(client, "box", heartbeat_ms=60_000) as stream:
            await stream.take("caught-up")
            async with serving(site.url) as other:  # of its own log over the same database
                await other.write("box", 1)
                assert (await stream.take("record", "caught-up"))[0].seqs == [1]
            with closing(Database(site.url)) as database:
                log = await EventLog.open(database, SystemClock())
                await log.submit(DeleteTopic("box"))
                await log.close()
            await stream.take("topic-deleted")
            assert await stream.next() is None


async def test_a_group_that_is_deleted_is_told(sites: MakeSites) -> None:
    (site,) = sites("node")
    async with running(site) as client:
        await site.join()
        await site.emit("e-1")
        async with watch_topics(client, "group:edge", heartbeat_ms=60_000) as stream:
            await stream.take("record", "caught-up")
            await site.ask("resources.delete", kind="EventGroup", name="edge")
            await site.settled()
            await stream.take("topic-deleted")


async def test_a_deleted_topic_is_told_before_the_answer_is_read(server: Server) -> None:
    """At once: not with the next write, nor with a heartbeat."""
    for _ in range(20):
        await server.write("box", 1)
        wid = (await begin_session(server, "box", heartbeat_ms=60_000)).body["wid"]
        async with open_stream(server, wid) as stream:
            await stream.take("record", "caught-up")
            await asyncio.gather(server.delete("box"), stream.take("topic-deleted"))
