"""Sessions of watchers: what they refuse, where their streams begin, whose they are and how long they last."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from eventd.testing import ManualClock
from tests.integration.v0.conftest import StartServer
from tests.support.streams import begin, opened, read_place, watching, write_place
from tests.support.v0 import Server


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"topics": {}}, "1 to 256"),
        ({"topics": {f"t{n}": {} for n in range(257)}}, "257"),
        ({}, "topics"),
        ({"topics": {"jobs": {"from_seq": -1}}}, "from_seq"),
        ({"topics": {"jobs": {"from_seq": 2**64}}}, "from_seq"),
        ({"topics": {"jobs": {}}, "limit": 1.5}, "limit"),
        ({"topics": {"jobs": {}}, "max_batch_bytes": 2**64}, "max_batch_bytes"),
        ({"topics": {"jobs": {}}, "consistency": "maybe"}, "consistency"),
        ({"topics": {"jobs": None}}, "topics"),
    ],
)
async def test_a_session_that_cannot_be_is_refused(server: Server, asked: dict[str, Any], why: str) -> None:
    await server.put("jobs")
    told = await server.ask("POST", "/watch", asked)
    assert (told.status, told.code) == (400, "invalid_request")
    assert why in told.body["error"]["message"]


async def test_a_topic_that_is_not_there_is_refused_unless_the_client_is_lenient(server: Server) -> None:
    await server.put("jobs")
    told = await begin(server, "jobs", "ghost")
    assert (told.status, told.code, told.detail) == (404, "topic_not_found", {"topic": "ghost"})
    told = await begin(server, "jobs", "ghost", "_none", query="?lenient=true")
    assert [*told.body["topics"]] == ["jobs"]
    assert (await begin(server, "ghost", query="?lenient=true")).body["topics"] == {}
    assert (await server.get("ghost")).status == 404


async def test_what_a_client_asks_beyond_the_bounds_is_brought_within(server: Server) -> None:
    await server.write("jobs", *range(1001))
    async with watching(server, "jobs", limit=5000) as stream:
        assert len((await stream.take("record"))[0].seqs) == 1000
    async with watching(server, "jobs", limit=0, max_batch_bytes=0, heartbeat_ms=0, consistency="strong") as stream:
        assert len((await stream.take("record"))[0].seqs) == 256
    assert (await begin(server, "jobs", heartbeat_ms=2**64 - 1)).status == 200
    assert (await begin(server, "jobs", heartbeat_ms=2**64)).code == "invalid_request"


async def test_a_client_that_comes_back_goes_on_where_it_was_or_back_to_what_it_says(server: Server) -> None:
    await server.write("jobs", 1, 2, 3)
    wid = (await begin(server, "jobs")).body["wid"]
    async with opened(server, wid) as stream:
        record, _ = await stream.take("record", "caught-up")
        assert record.place == {"jobs": 3}
    for last, seqs in (
        ("", []),
        (write_place(jobs=3), []),
        (write_place(jobs=1), [2, 3]),
        (write_place(jobs=99), []),
        (write_place(other=1), []),
        (write_place(jobs=-1), []),
        ("not-an-id", []),
        ("eyJqb2JzIjoiMSJ9", []),
    ):
        async with opened(server, wid, last=last) as stream:
            if seqs:
                assert (await stream.take("record"))[0].seqs == seqs
            await stream.take("caught-up")


async def test_the_id_of_an_event_names_all_topics_and_takes_each_back(server: Server) -> None:
    await server.write("a", 1, 2)
    await server.write("b", 1, 2)
    wid = (await begin(server, "a", "b")).body["wid"]
    async with opened(server, wid) as stream:
        events = await stream.take("record", "caught-up", "record", "caught-up")
        assert events[-1].place == {"a": 2, "b": 2}
    async with opened(server, wid, last=write_place(a=1, b=0)) as stream:
        first, _, second, _ = await stream.take("record", "caught-up", "record", "caught-up")
        assert (first.seqs, second.seqs) == ([2], [1, 2])
        assert read_place(write_place(a=1, b=0)) == {"a": 1, "b": 0}


async def test_all_streams_of_a_session_get_everything(server: Server) -> None:
    await server.write("jobs", 1)
    wid = (await begin(server, "jobs")).body["wid"]
    async with opened(server, wid) as one, opened(server, wid) as other:
        await one.take("record", "caught-up")
        assert await other.next() is not None
        await server.write("jobs", 2)
        assert await one.seqs(2) == [2]
        assert (await other.seqs(2))[-1] == 2


async def test_the_hindmost_stream_is_where_a_new_one_begins(server: Server) -> None:
    await server.write("jobs", 1, 2, 3)
    wid = (await begin(server, "jobs", limit=1)).body["wid"]
    async with opened(server, wid) as one:
        await one.take("record", "record", "record", "caught-up")
        async with opened(server, wid, last=write_place(jobs=1)) as other:
            assert await other.seqs(3) == [2, 3]
        async with opened(server, wid) as other:
            await other.take("caught-up")


async def test_a_stream_has_to_be_wanted_and_its_session_known(server: Server) -> None:
    await server.put("jobs")
    wid = (await begin(server, "jobs")).body["wid"]
    for path, accept, status, code in (
        (wid, "application/json", 406, "not_acceptable"),
        ("wid_none", "text/event-stream", 404, "not_found"),
        ("wid_none", "application/json", 406, "not_acceptable"),
    ):
        told = await server.ask("GET", f"/watch/{path}", headers={"Accept": accept})
        assert (told.status, told.code) == (status, code)
    for accept in ("*/*", "text/html, text/event-stream;q=0.5"):
        async with opened(server, wid, accept=accept) as stream:
            await stream.take("caught-up")


async def test_a_session_ends_some_time_after_its_last_stream(start_server: StartServer) -> None:
    clock = ManualClock()
    server = await start_server(clock=clock, max_watch_sessions=1)
    await server.put("jobs")
    wid = (await begin(server, "jobs")).body["wid"]
    clock.advance(299)
    async with opened(server, wid) as stream:
        await stream.take("caught-up")
        clock.advance(301)
        assert (await begin(server, "jobs")).status == 429
    async with asyncio.timeout(10):
        while server.v0.occupancy.streams.taken:
            clock.advance(0.1)
            await asyncio.sleep(0.001)
    clock.advance(299)
    async with opened(server, wid) as stream:
        await stream.take("caught-up")
    async with asyncio.timeout(10):
        while server.v0.occupancy.streams.taken:
            clock.advance(0.1)
            await asyncio.sleep(0.001)
    clock.advance(301)
    assert (await begin(server, "jobs")).status == 200
    assert (await server.ask("GET", f"/watch/{wid}")).status == 404


async def test_sessions_and_streams_have_limits(start_server: StartServer) -> None:
    server = await start_server(max_watch_sessions=2, max_sse_connections=1)
    await server.put("jobs")
    wid = (await begin(server, "jobs")).body["wid"]
    assert (await begin(server, "jobs")).status == 200
    told = await begin(server, "jobs")
    assert (told.status, told.code, told.detail) == (429, "throttled", {"limit": "max_watch_sessions", "max": 2})
    assert told.headers["Retry-After"] == "1"
    async with opened(server, wid) as stream:
        await stream.take("caught-up")
        told = await server.ask("GET", f"/watch/{wid}")
        assert (told.status, told.code, told.detail, told.headers["Retry-After"]) == (429, "throttled", None, "1")
    async with opened(server, wid) as stream:  # its place is free as soon as the first has gone
        assert stream.status == 200


async def test_a_key_has_places_of_its_own(start_server: StartServer) -> None:
    server = await start_server(keys="one:r,other:r,all", max_sse_connections_per_key=1)
    await server.with_key("all").put("jobs")
    one, other = server.with_key("one"), server.with_key("other")
    async with watching(one, "jobs") as stream:
        await stream.take("caught-up")
        wid = (await begin(one, "jobs")).body["wid"]
        assert (await one.ask("GET", f"/watch/{wid}")).status == 429
        async with watching(other, "jobs") as another:
            await another.take("caught-up")


async def test_a_session_is_for_the_key_that_began_it(start_server: StartServer) -> None:
    server = await start_server(keys="full,ro:read,wo:write,t42::tenant42:")
    full = server.with_key("full")
    await full.put("jobs")
    await full.put("tenant42:jobs")
    ro = server.with_key("ro")
    wid = (await begin(ro, "jobs")).body["wid"]
    for client, query, status in (
        (server, "", 401),
        (full, "", 401),
        (server, "?token=full", 401),
        (server, "?token=none", 401),
    ):
        told = await client.ask("GET", f"/watch/{wid}{query}")
        assert (told.status, told.code) == (status, "unauthorized"), query
    async with opened(ro, wid) as stream:
        await stream.take("caught-up")
    async with opened(server, wid, query="?token=ro") as stream:
        await stream.take("caught-up")
    told = await begin(server.with_key("wo"), "jobs")
    assert (told.status, told.code) == (403, "forbidden")
    told = await begin(server.with_key("t42"), "tenant42:jobs", "jobs")
    assert (told.status, told.code, told.detail) == (403, "forbidden", {"topic": "jobs"})
    assert (await begin(server.with_key("t42"), "tenant42:jobs")).status == 200
