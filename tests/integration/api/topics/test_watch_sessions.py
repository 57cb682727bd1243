"""Sessions of watchers: what they refuse, where their streams begin, which key owns them and how long they last."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from eventd.api.topics import sessions
from eventd.api.topics.sessions import ENDED_STREAMS, Sessions
from eventd.api.topics.topic_progress import EPOCH_BYTES
from eventd.log.core.head import renew_epoch
from eventd.testing import ManualClock, until
from tests.integration.api.topics.conftest import StartServer
from tests.support.streams import (
    Event,
    begin_session,
    open_stream,
    open_unread_stream,
    read_place,
    watch_topics,
    write_place,
)
from tests.support.v0 import Server

WRONG_SESSIONS: list[tuple[dict[str, Any], str]] = [
    ({"topics": {}}, "1 to 256"),
    ({"topics": {f"t{n}": {} for n in range(257)}}, "257"),
    ({}, "topics"),
    ({"topics": {"jobs": {"from_seq": -1}}}, "from_seq"),
    ({"topics": {"jobs": {"from_seq": 2**64}}}, "from_seq"),
    ({"topics": {"jobs": {}}, "limit": 1.5}, "limit"),
    ({"topics": {"jobs": {}}, "max_batch_bytes": 2**64}, "max_batch_bytes"),
    ({"topics": {"jobs": {}}, "consistency": "maybe"}, "consistency"),
    ({"topics": {"jobs": None}}, "topics"),
]


async def test_a_session_that_cannot_be_is_refused(server: Server) -> None:
    await server.put("jobs")
    for asked, why in WRONG_SESSIONS:
        told = await server.ask("POST", "/watch", asked)
        assert (told.status, told.code) == (400, "invalid_request"), why
        assert why in told.body["error"]["message"], why


async def test_a_topic_that_is_not_there_is_refused_unless_the_client_is_lenient(server: Server) -> None:
    await server.put("jobs")
    told = await begin_session(server, "jobs", "ghost")
    assert (told.status, told.code, told.detail) == (404, "topic_not_found", {"topic": "ghost"})
    told = await begin_session(server, "jobs", "ghost", "_none", query="?lenient=true")
    assert [*told.body["topics"]] == ["jobs"]
    assert (await begin_session(server, "ghost", query="?lenient=true")).body["topics"] == {}
    assert (await server.get("ghost")).status == 404


async def test_what_a_client_asks_beyond_the_bounds_is_brought_within(server: Server) -> None:
    await server.write("jobs", *range(1001))
    async with watch_topics(server, "jobs", limit=5000) as stream:
        assert len((await stream.take("record"))[0].seqs) == 1000
    async with watch_topics(server, "jobs", limit=0, max_batch_bytes=0, heartbeat_ms=0, consistency="strong") as stream:
        assert len((await stream.take("record"))[0].seqs) == 256
    assert (await begin_session(server, "jobs", heartbeat_ms=2**64 - 1)).status == 200
    assert (await begin_session(server, "jobs", heartbeat_ms=2**64)).code == "invalid_request"


async def test_a_client_that_comes_back_goes_on_where_it_was_or_back_to_what_it_says(server: Server) -> None:
    await server.write("jobs", 1, 2, 3)
    wid = (await begin_session(server, "jobs")).body["wid"]
    async with open_stream(server, wid) as stream:
        record, _ = await stream.take("record", "caught-up")
        assert record.place == {"jobs": 3}
    for last, seqs in (
        ("", [1, 2, 3]),  # nothing proves that any of it has reached the client
        (write_place(jobs=3), []),
        ("", []),  # where the last stream began
        (write_place(jobs=1), [2, 3]),
        (write_place(jobs=99), []),
        (write_place(jobs=2), [3]),
        (write_place(other=1), [3]),
        (write_place(jobs=-1), [3]),
        ("not-an-id", [3]),
        ("eyJqb2JzIjoiMSJ9", [3]),
        ("0123456789ab.1.0", [3]),
    ):
        async with open_stream(server, wid, last=last) as stream:
            if seqs:
                assert (await stream.take("record"))[0].seqs == seqs
            await stream.take("caught-up")


async def test_the_id_of_an_event_names_all_topics_and_takes_each_back(server: Server) -> None:
    await server.write("a", 1, 2)
    await server.write("b", 1, 2)
    wid = (await begin_session(server, "a", "b")).body["wid"]
    async with open_stream(server, wid) as stream:
        events = await stream.take("record", "caught-up", "record", "caught-up")
        assert events[-1].place == {"a": 2, "b": 2}
    async with open_stream(server, wid, last=write_place(a=1, b=0)) as stream:
        first, _, second, _ = await stream.take("record", "caught-up", "record", "caught-up")
        assert (first.seqs, second.seqs) == ([2], [1, 2])
        assert read_place(write_place(a=1, b=0)) == {"a": 1, "b": 0}


async def test_all_streams_of_a_session_get_everything(server: Server) -> None:
    await server.write("jobs", 1)
    wid = (await begin_session(server, "jobs")).body["wid"]
    async with open_stream(server, wid) as one, open_stream(server, wid) as other:
        await one.take("record", "caught-up")
        assert await other.next() is not None
        await server.write("jobs", 2)
        assert await one.seqs(2) == [2]
        assert (await other.seqs(2))[-1] == 2


async def test_a_session_of_several_streams_skips_nothing_for_any_of_them(server: Server) -> None:
    await server.write("jobs", 1, 2, 3)
    wid = (await begin_session(server, "jobs", limit=1)).body["wid"]
    async with open_stream(server, wid) as one:
        await one.take("record", "record", "record", "caught-up")
        async with open_stream(server, wid) as other:
            assert await other.seqs(3) == [1, 2, 3]
        async with open_stream(server, wid, last=write_place(jobs=1)) as other:
            assert await other.seqs(3) == [2, 3]
        async with open_stream(server, wid, last=write_place(jobs=3)) as other:
            await other.take("caught-up")


async def test_a_client_that_was_sent_records_and_read_none_of_them_gets_them_again(server: Server) -> None:
    await server.write("jobs", *range(500))
    wid = (await begin_session(server, "jobs", limit=100)).body["wid"]
    for _ in range(2):
        async with open_unread_stream(server, wid):  # it reads the headers, and goes
            await until(lambda: _told(server, wid) == 500, "all of it to be written to the socket")
        await until(lambda: not server.v0.serving.concurrency.streams.taken, "it to be gone")
    async with open_stream(server, wid) as stream:
        assert await stream.seqs(500) == [*range(1, 501)]


def _told(server: Server, wid: str) -> int:
    """How far the streams of a session were written to."""
    session = server.v0.part(Sessions)._sessions[wid]
    return max((cursor.seq for stream in session.streams.values() for cursor in stream.cursors().values()), default=0)


async def test_a_stream_has_to_be_wanted_and_its_session_known(server: Server) -> None:
    await server.put("jobs")
    wid = (await begin_session(server, "jobs")).body["wid"]
    for path, accept, status, code in (
        (wid, "application/json", 406, "not_acceptable"),
        ("wid_none", "text/event-stream", 404, "not_found"),
        ("wid_none", "application/json", 406, "not_acceptable"),
    ):
        told = await server.ask("GET", f"/watch/{path}", headers={"Accept": accept})
        assert (told.status, told.code) == (status, code)
    for accept in ("*/*", "text/html, text/event-stream;q=0.5"):
        async with open_stream(server, wid, accept=accept) as stream:
            await stream.take("caught-up")


async def test_a_session_ends_some_time_after_its_last_stream(start_server: StartServer) -> None:
    clock = ManualClock()
    server = await start_server(clock=clock, max_watch_sessions=1)
    await server.put("jobs")
    wid = (await begin_session(server, "jobs")).body["wid"]
    clock.advance(299)
    async with open_stream(server, wid) as stream:
        await stream.take("caught-up")
        clock.advance(301)
        assert (await begin_session(server, "jobs")).status == 429
    async with asyncio.timeout(10):
        while server.v0.serving.concurrency.streams.taken:
            clock.advance(0.1)
            await asyncio.sleep(0.001)
    clock.advance(299)
    async with open_stream(server, wid) as stream:
        await stream.take("caught-up")
    async with asyncio.timeout(10):
        while server.v0.serving.concurrency.streams.taken:
            clock.advance(0.1)
            await asyncio.sleep(0.001)
    clock.advance(301)
    assert (await begin_session(server, "jobs")).status == 200
    assert (await server.ask("GET", f"/watch/{wid}")).status == 404


async def test_sessions_and_streams_have_limits(start_server: StartServer) -> None:
    server = await start_server(max_watch_sessions=2, max_sse_connections=1)
    await server.put("jobs")
    wid = (await begin_session(server, "jobs")).body["wid"]
    assert (await begin_session(server, "jobs")).status == 200
    told = await begin_session(server, "jobs")
    assert (told.status, told.code, told.detail) == (429, "throttled", {"limit": "max_watch_sessions", "max": 2})
    assert told.headers["Retry-After"] == "1"
    async with open_stream(server, wid) as stream:
        await stream.take("caught-up")
        told = await server.ask("GET", f"/watch/{wid}")
        assert (told.status, told.code, told.detail, told.headers["Retry-After"]) == (429, "throttled", None, "1")
    async with open_stream(server, wid) as stream:  # its place is free as soon as the first has gone
        assert stream.status == 200


async def test_a_key_with_many_sessions_makes_place_for_another(start_server: StartServer) -> None:
    clock = ManualClock()
    server = await start_server(clock=clock, keys="one:r,other:r,all", max_watch_sessions=4)
    await server.with_key("all").put("jobs")
    one, other = server.with_key("one"), server.with_key("other")
    wids = []
    for _ in range(4):
        wids.append((await begin_session(one, "jobs")).body["wid"])
        clock.advance(1)
    assert (await begin_session(one, "jobs")).status == 429
    assert [(await begin_session(other, "jobs")).status for _ in range(3)] == [200, 200, 429], "both have half"
    async with open_stream(one, wids[2]) as stream:
        await stream.take("caught-up")
    assert (await one.ask("GET", f"/watch/{wids[0]}")).status == 404, "the ones that were idle longest"
    assert (await one.ask("GET", f"/watch/{wids[1]}")).status == 404


async def test_what_sessions_follow_has_a_limit_too(start_server: StartServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 256 topics and 1000 nodes, ten thousand sessions of one key that may only read took 1.8 GB."""
    clock = ManualClock()
    server = await start_server(clock=clock, keys="one:r,other:r,all")
    await server.with_key("all").put("jobs")
    one, other = server.with_key("one"), server.with_key("other")
    large = {"topics": {"jobs": {}}, "node": [f"n{number:03}" for number in range(1000)]}
    monkeypatch.setattr(sessions, "SESSIONS_BYTES", 250_000)
    wids = []
    for _ in range(2):
        wids.append((await one.ask("POST", "/watch", large)).body["wid"])
        clock.advance(1)
    told = await one.ask("POST", "/watch", large)
    assert (told.status, told.detail) == (429, {"limit": "watch_sessions_bytes", "max": 250_000})
    assert (await begin_session(one, "jobs")).status == 200, "a small one fits"
    assert (await other.ask("POST", "/watch", large)).status == 200, "a key that has less gets its place"
    assert (await one.ask("GET", f"/watch/{wids[0]}")).status == 404, "the one that was idle longest"
    assert (await other.ask("POST", "/watch", large)).status == 429, "both have half"


async def test_the_checkpoints_of_a_session_count_as_its_memory(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five streams of each session keep checkpoints, so that many sessions hold ten times the memory of their
    beginning."""
    server = await start_server()
    names = [f"{'t' * 100}{number}" for number in range(60)]
    for name in names:
        await server.put(name)
    wids = [(await begin_session(server, *names)).body["wid"] for _ in range(2)]
    async with open_stream(server, wids[0]) as stream:
        await stream.take("caught-up")
        monkeypatch.setattr(sessions, "SESSIONS_BYTES", 150_000)
        told = await server.ask("GET", f"/watch/{wids[1]}")
        assert (told.status, told.detail) == (429, {"limit": "watch_sessions_bytes", "max": 150_000})
        monkeypatch.setattr(sessions, "SESSIONS_BYTES", 250_000)
        told = await server.ask("GET", f"/watch/{wids[1]}")
        assert told.status == 429, "the first stream counts with the maximum of its memory"
        monkeypatch.setattr(sessions, "SESSIONS_BYTES", 350_000)
        async with open_stream(server, wids[1]) as second:
            await second.take("caught-up")
    kept = server.v0.part(Sessions)
    await until(lambda: not server.v0.serving.concurrency.streams.taken, "the streams to end")
    assert kept._bytes == sum(session.size for session in kept._sessions.values()) < 150_000, "the rest is free again"


async def test_the_epochs_that_a_session_keeps_count_as_its_memory(server: Server) -> None:
    await server.write("jobs", 1)
    wid = (await begin_session(server, "jobs")).body["wid"]
    kept = server.v0.part(Sessions)
    before = kept._bytes
    for _ in range(3):
        async with open_stream(server, wid) as stream:
            assert await stream.seqs(1) == [1]
        await until(lambda: not server.v0.serving.concurrency.streams.taken, "the stream to end")
        await _recreate(server, 1, "jobs")
    assert kept._bytes == before + 2 * EPOCH_BYTES


async def test_a_request_that_is_refused_ends_no_session(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It could be repeated, and other keys would lose all that is idle."""
    clock = ManualClock()
    server = await start_server(clock=clock, keys="one:r,other:r,all", max_watch_sessions=4)
    await server.with_key("all").put("jobs")
    one, other = server.with_key("one"), server.with_key("other")
    large = {"topics": {"jobs": {}}, "node": [f"n{number:03}" for number in range(1000)]}
    wids = []
    for _ in range(3):
        wids.append((await one.ask("POST", "/watch", large)).body["wid"])
        clock.advance(1)
    monkeypatch.setattr(sessions, "SESSIONS_BYTES", 350_000)
    async with open_stream(one, wids[2]) as stream:
        await stream.take("caught-up")
        monkeypatch.setattr(sessions, "SESSIONS_BYTES", 150_000)
        told = await other.ask("POST", "/watch", large)
        assert (told.status, told.detail) == (429, {"limit": "watch_sessions_bytes", "max": 150_000})
        monkeypatch.setattr(sessions, "SESSIONS_BYTES", 350_000)
        assert (await begin_session(one, "jobs")).status == 200
        monkeypatch.setattr(sessions, "SESSIONS_BYTES", 100_000)
        told = await other.ask("POST", "/watch", large)  # beyond both limits, and only one can be met
        assert (told.status, told.detail) == (429, {"limit": "watch_sessions_bytes", "max": 100_000})
    assert {*wids} <= {*server.v0.part(Sessions)._sessions}


async def test_a_stream_that_is_refused_for_its_number_ends_no_session(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await start_server(keys="one:r,other:r,all", max_sse_connections_per_key=1)
    names = [f"{'t' * 100}{number}" for number in range(60)]
    for name in names:
        await server.with_key("all").put(name)
    one, other = server.with_key("one"), server.with_key("other")
    idle = [(await begin_session(one, *names)).body["wid"] for _ in range(10)]
    small = (await begin_session(other, names[0])).body["wid"]
    wid = (await begin_session(other, *names)).body["wid"]
    async with open_stream(other, small) as stream:
        await stream.take("caught-up")
        monkeypatch.setattr(sessions, "SESSIONS_BYTES", 350_000)
        assert (await other.ask("GET", f"/watch/{wid}")).status == 429
        assert {*idle} <= {*server.v0.part(Sessions)._sessions}


@pytest.mark.parametrize("node", [[f"n{number}" for number in range(1001)], ["n" * 16_384, "m"]])
async def test_a_reader_leaves_out_no_more_nodes_than_it_can_have(server: Server, node: list[str]) -> None:
    """A session keeps them."""
    await server.put("jobs")
    asked = {"topics": {"jobs": {}}, "node": node}
    for told in await server.ask("POST", "/watch", asked), await server.diff("jobs", node=node):
        assert (told.status, told.code) == (400, "invalid_request")
        assert "1000 names" in told.body["error"]["message"]
    assert (await server.ask("POST", "/watch", asked | {"node": node[:1000][:1]})).status == 200


async def test_a_key_has_places_of_its_own(start_server: StartServer) -> None:
    server = await start_server(keys="one:r,other:r,all", max_sse_connections_per_key=1)
    await server.with_key("all").put("jobs")
    one, other = server.with_key("one"), server.with_key("other")
    async with watch_topics(one, "jobs") as stream:
        await stream.take("caught-up")
        wid = (await begin_session(one, "jobs")).body["wid"]
        assert (await one.ask("GET", f"/watch/{wid}")).status == 429
        async with watch_topics(other, "jobs") as another:
            await another.take("caught-up")


async def test_a_session_is_for_the_key_that_began_it(start_server: StartServer) -> None:
    server = await start_server(keys="full,ro:read,wo:write,t42::tenant42:")
    full = server.with_key("full")
    await full.put("jobs")
    await full.put("tenant42:jobs")
    ro = server.with_key("ro")
    wid = (await begin_session(ro, "jobs")).body["wid"]
    for client, query, status in (
        (server, "", 401),
        (full, "", 401),
        (server, "?token=full", 401),
        (server, "?token=none", 401),
    ):
        told = await client.ask("GET", f"/watch/{wid}{query}")
        assert (told.status, told.code) == (status, "unauthorized"), query
    async with open_stream(ro, wid) as stream:
        await stream.take("caught-up")
    async with open_stream(server, wid, query="?token=ro") as stream:
        await stream.take("caught-up")
    told = await begin_session(server.with_key("wo"), "jobs")
    assert (told.status, told.code) == (403, "forbidden")
    told = await begin_session(server.with_key("t42"), "tenant42:jobs", "jobs")
    assert (told.status, told.code, told.detail) == (403, "forbidden", {"topic": "jobs"})
    assert (await begin_session(server.with_key("t42"), "tenant42:jobs")).status == 200


LONG = [f"{'n' * 60}-{number:03}" for number in range(256)]
"""Names of topics that are too long for an id that holds a seq of each of them."""


async def test_a_watch_of_many_topics_goes_on_behind_any_event_that_the_client_names(server: Server) -> None:
    many = LONG[:64]
    for name in many:
        await server.write(name, 1, 2)
    wid = (await begin_session(server, *many, limit=1)).body["wid"]
    told: list[Event] = []
    async with open_stream(server, wid) as stream:
        while sum(event.kind == "caught-up" for event in told) < len(many):
            event = await stream.next()
            assert event is not None
            told.append(event)
    assert max(len(event.id) for event in told) <= 256
    for at in (0, 1, 100, len(told) - 1):
        behind = [(e.data["topic"], e.seqs) for e in told[at + 1 :] if e.kind == "record"]
        again: list[Event] = []
        async with open_stream(server, wid, last=told[at].id) as stream:
            assert stream.status == 200
            while sum(event.kind == "caught-up" for event in again) < len(many):
                event = await stream.next()
                assert event is not None
                again.append(event)
        assert sorted((e.data["topic"], e.seqs) for e in again if e.kind == "record") == sorted(behind)


async def test_an_id_has_the_documented_form_up_to_four_kilobytes(server: Server) -> None:
    for name in LONG[:64]:
        await server.put(name)
    for count, holds_places in ((44, True), (45, False)):
        async with watch_topics(server, *LONG[:count]) as stream:
            (event,) = await stream.take("caught-up")
            assert (event.place == dict.fromkeys(LONG[:count], 0)) is holds_places
            assert len(event.id) <= (4096 if holds_places else 256)


async def test_a_checkpoint_that_is_not_kept_leads_back_to_the_beginning_of_the_session(server: Server) -> None:
    for name in LONG[:64]:
        await server.write(name, 1)
    wid = (await begin_session(server, *LONG[:64])).body["wid"]

    async def read(last: str) -> tuple[list[str], str]:
        """The topics whose records came, and the id of the last event."""
        topics, ended, event = [], 0, None
        async with open_stream(server, wid, last=last) as stream:
            while ended < 64:
                event = await stream.next()
                assert event is not None
                topics += [event.data["topic"]] * (event.kind == "record")
                ended += event.kind == "caught-up"
        assert event is not None
        return sorted(topics), event.id

    topics, first = await read("")
    assert topics == LONG[:64]
    last = first
    for _ in range(ENDED_STREAMS):
        topics, last = await read(last)
        assert topics == []
    await until(lambda: not server.v0.serving.concurrency.streams.taken)
    assert (await read(first))[0] == LONG[:64]  # those of other streams are ahead of it
    other = (await begin_session(server, *LONG[:64])).body["wid"]
    async with open_stream(server, other, last=last) as stream:  # of another session
        assert (await stream.take("record"))[0].seqs == [1]


async def test_a_session_from_another_epoch_begins_anew_after_a_tombstone(server: Server) -> None:
    await server.write("jobs", 1, 2, 3)
    topics = {"jobs": {"from_seq": 2, "epoch": "that of a copy"}}
    told = await begin_session(server, topics=topics, include_epoch=True)
    async with open_stream(server, told.body["wid"]) as stream:
        tombstone, record, _ = await stream.take("tombstone", "record", "caught-up")
    assert (tombstone.data["reason"], record.seqs) == ("recreated", [1, 2, 3])
    assert tombstone.data["epoch"] == told.body["topics"]["jobs"]["epoch"]
    topics["jobs"]["epoch"] = tombstone.data["epoch"]
    told = await begin_session(server, topics=topics)
    async with open_stream(server, told.body["wid"]) as stream:
        assert (await stream.take("record"))[0].seqs == [3]


@pytest.mark.parametrize("is_read", [False, True], ids=["before the first stream", "between two streams"])
async def test_a_seq_beyond_the_newest_one_stays_one_of_another_epoch_when_the_topic_grows(
    server: Server, is_read: bool
) -> None:
    await server.write("a", 1)
    await server.write("jobs", 1, 2, 3)
    topics = {"a": {}, "jobs": {"from_seq": 5}}
    told = await begin_session(server, topics=topics)
    assert told.body["topics"]["jobs"] == {"from_seq": 5, "head_seq": 3, "earliest_seq": 1}
    last = ""
    if is_read:
        async with open_stream(server, told.body["wid"]) as stream:
            last = (await stream.take("record"))[0].id  # its connection breaks before the tombstone
    await server.write("jobs", *range(4, 9))
    async with open_stream(server, told.body["wid"], last=last) as stream:
        events = [event for _ in range(4 if is_read else 5) if (event := await stream.next()) is not None]
    sent = [(event.kind, event.data) for event in events if event.data["topic"] == "jobs"]
    assert [kind for kind, _ in sent] == ["tombstone", "record", "caught-up"]
    assert sent[0][1]["reason"] == "recreated"
    assert [record["$seq"] for record in sent[1][1]["records"]] == [*range(1, 9)]


async def test_the_newest_seq_is_one_of_the_present_epoch(server: Server) -> None:
    await server.write("jobs", 1, 2, 3)
    wid = (await begin_session(server, topics={"jobs": {"from_seq": 3}})).body["wid"]
    await server.write("jobs", 4)
    async with open_stream(server, wid) as stream:
        assert (await stream.take("record", "caught-up"))[0].seqs == [4]


async def test_an_id_from_before_the_tombstone_of_a_topic_takes_it_to_its_beginning(server: Server) -> None:
    await server.write("a", 1, 2, 3)
    await server.write("b", 1, 2, 3)
    topics = {name: {"from_seq": 2, "epoch": "that of a copy"} for name in "ab"}
    wid = (await begin_session(server, topics=topics)).body["wid"]
    async with open_stream(server, wid) as stream:
        first = (await stream.take("tombstone", "record", "caught-up", "tombstone", "record", "caught-up"))[0]
    [known] = [name for name, place in first.place.items() if place == [1, 0]]
    [other] = {"a", "b"} - {known}
    assert first.place == {known: [1, 0], other: 2}
    async with open_stream(server, wid, last=first.id) as stream:
        events = [event for _ in range(5) if (event := await stream.next()) is not None]
    sent = {(event.kind, event.data["topic"]): event for event in events}
    assert sent["record", known].seqs == sent["record", other].seqs == [1, 2, 3]
    assert [topic for kind, topic in sent if kind == "tombstone"] == [other]
    async with open_stream(server, wid, last=events[-1].id) as stream:
        await stream.take("caught-up", "caught-up")


async def _recreate(server: Server, count: int, *topics: str) -> None:
    for name in topics:
        await server.delete(name)
        await server.write(name, *range(count))


async def test_an_id_of_the_first_epoch_is_never_taken_for_one_of_the_present_epoch(server: Server) -> None:
    await server.write("jobs", *range(5))
    wid = (await begin_session(server, "jobs", limit=1)).body["wid"]
    async with open_stream(server, wid) as stream:
        ids = [event.id for event in await stream.take(*["record"] * 5)]
    await _recreate(server, 5, "jobs")
    for last in ids[4], ids[3], "", write_place(jobs=9):
        async with open_stream(server, wid, last=last) as stream:
            events = await stream.take("tombstone", *["record"] * 5, "caught-up")
        assert events[0].data["reason"] == "recreated"
        assert [event.place for event in events] == [{"jobs": [1, seq]} for seq in (0, 1, 2, 3, 4, 5, 5)]
    for seq in range(5):
        async with open_stream(server, wid, last=events[seq].id) as stream:
            assert (await stream.take("record"))[0].seqs == [seq + 1]


async def test_a_topic_that_is_created_again_twice_within_a_session_is_sent_whole_each_time(server: Server) -> None:
    await server.write("jobs", *range(3))
    wid = (await begin_session(server, "jobs")).body["wid"]
    last = ""
    for epoch, count in enumerate((3, 5, 4, 6)):
        async with open_stream(server, wid, last=last) as stream:
            events = await stream.take(*["tombstone"] * (epoch > 0), "record", "caught-up")
        assert events[-2].seqs == [*range(1, count + 1)]
        assert events[-1].place == {"jobs": [epoch, count] if epoch else count}
        last = events[-1].id
        await _recreate(server, (5, 4, 6, 1)[epoch], "jobs")


async def test_streams_of_one_session_are_each_told_of_a_new_epoch_at_their_own_seq(server: Server) -> None:
    await server.write("jobs", *range(5))
    wid = (await begin_session(server, "jobs", limit=1)).body["wid"]
    async with open_stream(server, wid) as one, open_stream(server, wid) as other:
        ids = [event.id for event in await one.take(*["record"] * 5)]
        await other.take("record", "record")
    await server.log.database.write(renew_epoch)
    async with open_stream(server, wid, last=ids[4]) as stream:
        assert await stream.seqs(5) == [1, 2, 3, 4, 5]
    async with open_stream(server, wid, last=ids[1]) as stream:
        tombstone, *sent = await stream.take("tombstone", *["record"] * 5)
        assert (tombstone.data["reason"], [event.seqs for event in sent]) == ("recreated", [[n] for n in range(1, 6)])


async def test_a_checkpoint_names_the_epochs_of_its_seqs(server: Server) -> None:
    many = LONG[:64]
    for name in many:
        await server.write(name, *range(3))
    wid = (await begin_session(server, *many)).body["wid"]

    async def read(last: str) -> list[Event]:
        """Return all events with an id until each topic has caught up."""
        events: list[Event] = []
        async with open_stream(server, wid, last=last) as stream:
            while sum(event.kind == "caught-up" for event in events) < len(many):
                event = await stream.next()
                assert event is not None
                events.append(event)
        return events

    events = await read("")
    for count in (5, 4):
        await _recreate(server, count, many[7])
        for last in events[-1].id, events[-2].id:
            again = await read(last)
            sent = [(event.kind, event.data["topic"]) for event in again if event.kind != "caught-up"]
            assert sent[:2] == [("tombstone", many[7]), ("record", many[7])]
            assert next(event.seqs for event in again if event.kind == "record") == [*range(1, count + 1)]
            assert {event.kind for event in await read(again[-1].id)} == {"caught-up"}
        events = again


async def test_the_end_of_a_topic_is_that_of_the_present_epoch(server: Server) -> None:
    await server.write("jobs", 1)
    told = await begin_session(server, topics={"jobs": {"tail": True, "epoch": "that of a copy"}})
    async with open_stream(server, told.body["wid"]) as stream:
        await stream.take("caught-up")


async def test_a_new_epoch_is_told_to_those_who_come_back(server: Server) -> None:
    await server.write("jobs", 1, 2)
    wid = (await begin_session(server, "jobs")).body["wid"]
    async with open_stream(server, wid) as stream:
        await stream.take("record", "caught-up")
    await server.log.database.write(renew_epoch)
    async with open_stream(server, wid, last=write_place(jobs=2)) as stream:
        tombstone, record, end = await stream.take("tombstone", "record", "caught-up")
        assert (tombstone.data["reason"], record.seqs) == ("recreated", [1, 2])
    async with open_stream(server, wid, last=end.id) as stream:
        await stream.take("caught-up")
