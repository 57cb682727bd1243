"""The effective configuration over HTTP: read with an ETag, followed as a stream; and parts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientResponse, ClientSession, web
from aiohttp.test_utils import TestServer

from eventd.api.admin.resources.effective import HEARTBEAT_SECONDS
from eventd.api.app import build_app
from eventd.api.framework.callers import Callers
from eventd.api.framework.operations import Services
from eventd.api.framework.worker_peers import WorkerPeers
from eventd.api.keys.configured_keys import parse_keys
from eventd.api.keys.valid_keys import Keys
from eventd.api.listener.connection_limiter import ConnectionLimiter
from eventd.dynamic.effective import Following
from eventd.dynamic.part import form_part
from eventd.log.core.eventlog import EventLog
from eventd.observe.metrics import Metrics
from eventd.plugins.contract.contract import Result
from eventd.runtime.worker_share import Share
from eventd.store.engine.database import Database
from eventd.store.parts.parts import delete_part, put_part
from eventd.testing import ManualClock, event, until
from tests.unit.dynamic.samples import HOUR, mask, route

READER, ADMIN = "reader-key-0001", "admin-key-00001"
KEYS = f"{READER}:read,{ADMIN},groups-key-0001:read:edge,writer-key-0001:write"


class Site:
    """The API of a node that follows its effective configuration, at the time of a clock that stands still."""

    def __init__(self, database: Database, log: EventLog, clock: ManualClock) -> None:
        self.database = database
        self.clock = clock
        self.following = Following(database, clock)
        self.services = Services(log, following=self.following)
        self.session: ClientSession
        self.server: TestServer

    def give(self, name: str, *, ttl: int = HOUR, directives: Any = (), **spec: Any) -> str:
        """Write a part of the subscription `s` that gives one route; its source."""
        now = self.clock.now()
        result = Result(observed_at=now, ttl=ttl, resources=[route(name, **spec)], directives=directives)
        owner, events = "EventSubscription/s", [event(name)]
        part = form_part(owner=owner, events=events, result=result, plugin="p", clamp=False, grace=0, now=now)
        self.database.write_now(put_part, part, now)
        self.following.changed()
        return part.source

    async def ask(self, path: str, key: str = READER, method: str = "GET", **options: Any) -> tuple[int, Any, Any]:
        """(status, decoded JSON, headers)."""
        headers = {"Authorization": f"Bearer {key}", **options.pop("headers", {})}
        async with self.session.request(method, self.server.make_url(path), headers=headers, **options) as answer:
            text = await answer.text()
            return answer.status, json.loads(text) if text else None, answer.headers

    @asynccontextmanager
    async def stream(self, last: str = "") -> AsyncIterator[Stream]:
        """An open stream of what changes."""
        headers = {"Authorization": f"Bearer {READER}", **({"Last-Event-ID": last} if last else {})}
        url = self.server.make_url("/api/v1/effective/stream")
        async with self.session.get(url, headers=headers) as answer:
            assert (answer.status, answer.content_type) == (200, "text/event-stream")
            yield Stream(answer)


class Stream:
    """What comes over a stream."""

    def __init__(self, answer: ClientResponse) -> None:
        self._answer = answer

    async def lines(self) -> list[str]:
        """The lines up to the next blank one; none at the end of the stream."""
        found: list[str] = []
        async with asyncio.timeout(10):
            while line := (await self._answer.content.readline()).decode().rstrip("\n"):
                found.append(line)
        return found

    async def event(self) -> tuple[str, str, Any]:
        """(name, id, data) of the next event."""
        name, id, data = (line.partition(": ")[2] for line in await self.lines())
        return name, id, json.loads(data)


@pytest.fixture
async def site(migrated_sqlite_url: str) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        database, clock = Database(migrated_sqlite_url), ManualClock()
        stack.callback(database.close)
        log = await EventLog.open(database, clock)
        stack.push_async_callback(log.close)
        site, metrics = Site(database, log, clock), Metrics()
        app: web.Application = build_app(
            site.services,
            Callers(Keys(lambda: parse_keys(KEYS)), ConnectionLimiter("", 256, metrics)),
            WorkerPeers(Share(), dict, metrics),
            version="1",
        )
        task = asyncio.get_running_loop().create_task(site.following.run_for_ever())
        stack.push_async_callback(_end, task)
        site.server = TestServer(app)
        await site.server.start_server(access_log=None, shutdown_timeout=5)
        stack.push_async_callback(site.server.close)
        site.session = await stack.enter_async_context(ClientSession())
        yield site


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def names(resources: list[dict[str, Any]]) -> list[str]:
    return [resource["metadata"]["name"] for resource in resources]


# --- asking --------------------------------------------------------------------------------------------------


async def test_the_whole_with_its_number_and_its_etag(site: Site) -> None:
    site.give("r1", destination="10.0.0.1/32")
    status, body, headers = await site.ask("/api/v1/effective")
    assert status == 200
    assert list(body) == ["generation", "etag", "changedAt", "resources"]
    assert (body["changedAt"], names(body["resources"])) == ("2026-11-20T12:00:00Z", ["r1"])
    assert body["resources"][0]["spec"] == {"destination": "10.0.0.1/32"}
    assert headers["ETag"] == f'W/"{body["etag"]}"'
    assert headers["X-Effective-Generation"] == str(body["generation"])


async def test_who_has_it_gets_304_until_it_changes(site: Site) -> None:
    site.give("r1")
    _, body, headers = await site.ask("/api/v1/effective")
    tag = headers["ETag"]
    for known in (tag, tag.removeprefix("W/"), f'"other", {tag}', "*"):
        status, nothing, told = await site.ask("/api/v1/effective", headers={"If-None-Match": known})
        assert (status, nothing, told["ETag"]) == (304, None, tag)
        assert told["X-Effective-Generation"] == str(body["generation"])
    assert (await site.ask("/api/v1/effective", headers={"If-None-Match": '"other"'}))[0] == 200
    site.give("r2")
    status, later, _ = await site.ask("/api/v1/effective", headers={"If-None-Match": tag})
    assert (status, later["generation"]) == (200, body["generation"] + 1)


async def test_what_has_ended_is_not_in_the_answer_of_that_moment(site: Site) -> None:
    site.give("r1", ttl=5_000_000)
    assert names((await site.ask("/api/v1/effective"))[1]["resources"]) == ["r1"]
    site.clock.advance(5)
    assert (await site.ask("/api/v1/effective"))[1]["resources"] == []


async def test_it_is_for_those_who_may_read_everything(site: Site) -> None:
    for path in ["/api/v1/effective", "/api/v1/effective/stream"]:
        for key, status, said in [
            ("nobody", 401, "unauthorized"),
            ("writer-key-0001", 403, "forbidden"),
            ("groups-key-0001", 403, "forbidden"),
        ]:
            answered, body, _ = await site.ask(path, key)
            assert (answered, body["error"]["code"]) == (status, said), (path, key)


# --- following -----------------------------------------------------------------------------------------------


async def test_a_stream_begins_with_what_is_in_force_and_goes_on_with_what_changes(site: Site) -> None:
    site.give("r1")
    gone = site.give("r2")
    async with site.stream() as stream:
        name, id, state = await stream.event()
        assert (name, names(state["resources"])) == ("state", ["r1", "r2"])
        assert id == f"{state['generation']}-{state['etag'][:16]}"
        site.give("r3")
        name, _, change = await stream.event()
        assert (name, change["since"], change["generation"]) == ("change", state["generation"], state["generation"] + 1)
        assert (names(change["added"]), change["changed"], change["removed"]) == (["r3"], [], [])
        site.give("r1", via="another")
        assert [names(one) for one in _lists((await stream.event())[2])] == [[], ["r1"]]
        site.database.write_now(delete_part, gone)
        site.following.changed()
        _, id, change = await stream.event()
        assert change["removed"] == [{"apiVersion": "net.routerd.net/v1alpha1", "kind": "IPv4Route", "name": "r2"}]
        assert (await site.ask("/api/v1/effective"))[1]["etag"] == change["etag"]
    async with site.stream(last=id) as again:
        assert await again.lines() == [": in step"]
        site.give("r4")
        assert names((await again.event())[2]["added"]) == ["r4"]
    async with site.stream(last=id) as behind:
        name, _, state = await behind.event()
        assert (name, names(state["resources"])) == ("state", ["r1", "r3", "r4"])


def _lists(change: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    return change["added"], change["changed"]


async def test_what_ends_by_itself_is_told_at_that_moment(site: Site) -> None:
    site.give("r1", ttl=5_000_000)
    async with site.stream() as stream:
        await stream.event()
        await until(lambda: 5.0 in site.clock.waits, "the wait for its end")
        site.clock.advance(5)
        assert [one["name"] for one in (await stream.event())[2]["removed"]] == ["r1"]


async def test_a_stream_without_news_says_that_it_is_there(site: Site) -> None:
    async with site.stream() as stream:
        await stream.event()
        for _ in range(2):
            await until(lambda: HEARTBEAT_SECONDS in site.clock.waits, "the wait for the heartbeat")
            site.clock.advance(HEARTBEAT_SECONDS)
            assert await stream.lines() == [": still here"]
        site.give("r1")
        assert (await stream.event())[0] == "change"


async def test_a_stream_ends_with_the_node(site: Site) -> None:
    async with site.stream() as stream:
        await stream.event()
        async with asyncio.timeout(2):  # the watcher is notified, and not waited for
            await site.server.close()
        assert await stream.lines() == []


async def test_the_node_does_not_wait_for_a_client_that_reads_nothing(site: Site) -> None:
    for number in range(16):
        site.give(f"r{number}", pad="x" * (1 << 20))
    url = site.server.make_url("/api/v1/effective/stream")
    reader, writer = await asyncio.open_connection(url.host, url.port, limit=1024)
    head = f"GET {url.path} HTTP/1.1\r\nHost: {url.host}\r\nAuthorization: Bearer {READER}\r\n\r\n"
    writer.write(head.encode())
    assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"  # more follows than all buffers between can hold
    async with asyncio.timeout(2):
        await site.server.close()
    writer.close()


async def test_who_reads_slowly_gets_the_difference_to_what_is_in_force_by_then(site: Site) -> None:
    """Several generations pass between two turns of the stream: there is one event, which leads over all of them."""
    first = await site.following.current()
    async with site.stream() as stream:
        await stream.event()
        for number in range(5):
            site.give(f"r{number}")
        last = await site.following.current()
        seen: list[str] = []
        since = first.generation
        while len(seen) < 5:
            _, id, change = await stream.event()
            assert change["since"] == since
            since = change["generation"]
            seen += names(change["added"])
        assert (seen, id) == ([f"r{number}" for number in range(5)], last.id)


async def test_a_client_that_goes_away_leaves_nothing(site: Site) -> None:
    async with site.stream() as stream:
        await stream.event()
    for number in range(3):
        site.give(f"r{number}")
        await site.following.current()
    async with site.stream() as other:
        assert names((await other.event())[2]["resources"]) == ["r0", "r1", "r2"]


# --- parts -----------------------------------------------------------------------------------------------------


async def test_parts_are_listed_described_and_deleted(site: Site) -> None:
    source = site.give("r1", directives=[mask("gone")])
    status, body, _ = await site.ask("/api/v1/dynamic/parts")
    (line,) = body["parts"]
    assert (status, line["source"], line["status"]) == (200, source, "set-aside")
    assert line["reason"] == "IPv4Route/gone, which it masks, is not declared"
    again = await site.ask("/api/v1/dynamic/parts", params={"unless": body["state"]})
    assert again[1] == {"unchanged": True, "state": body["state"]}
    (part,) = (await site.ask("/api/v1/dynamic/part", params={"source": source}))[1]["parts"]
    assert (part["error"], part["gives"][0]["name"]) == (line["reason"], "r1")
    assert (await site.ask("/api/v1/dynamic/part", params={"source": "none"}))[1] == {"parts": []}
    status, refused, _ = await site.ask("/api/v1/dynamic/part", READER, "DELETE", params={"source": source})
    assert (status, refused["error"]["code"]) == (403, "forbidden")
    status, body, _ = await site.ask("/api/v1/dynamic/part", ADMIN, "DELETE", params={"source": source})
    assert (status, [one["name"] for one in body["gave"]]) == (200, ["r1"])
    status, body, _ = await site.ask("/api/v1/dynamic/part", ADMIN, "DELETE", params={"source": source})
    assert (status, body["error"]["code"]) == (404, "not_found")
    assert (await site.ask("/api/v1/dynamic/parts"))[1]["parts"] == []


async def test_what_is_known_is_not_told_again(site: Site) -> None:
    site.give("r1")
    for path in ("render", "diff"):
        _, body, _ = await site.ask(f"/api/v1/dynamic/{path}", method="POST", json={})
        assert "unchanged" not in body
        _, again, _ = await site.ask(f"/api/v1/dynamic/{path}", method="POST", json={"unless": body["state"]})
        assert again == {"unchanged": True, "state": body["state"]}


@pytest.mark.parametrize("path", ["render", "diff"])
async def test_a_state_is_of_the_resources_that_were_given(site: Site, path: str) -> None:
    async def ask(**given: Any) -> Any:
        return (await site.ask(f"/api/v1/dynamic/{path}", method="POST", json=given))[1]

    site.give("r1")
    one, other = ([{"name": "x.yaml", "text": json.dumps(route(name))}] for name in ("r2", "r3"))
    states = [(await ask(**given))["state"] for given in ({}, {"sources": one}, {"sources": other})]
    assert len(set(states)) == 3
    for given, known in (({"sources": one}, states[0]), ({"sources": one}, states[2]), ({}, states[1])):
        assert "unchanged" not in await ask(**given, unless=known)
    assert await ask(sources=one, unless=states[1]) == {"unchanged": True, "state": states[1]}
    site.give("r4")
    assert "unchanged" not in await ask(sources=one, unless=states[1])


async def test_a_state_of_parts_is_of_their_owner(site: Site) -> None:
    site.give("r1")
    _, body, _ = await site.ask("/api/v1/dynamic/parts", params={"owner": "EventSubscription/s"})
    _, all_parts, _ = await site.ask("/api/v1/dynamic/parts", params={"unless": body["state"]})
    assert len(all_parts["parts"]) == 1
    same = {"owner": "EventSubscription/s", "unless": body["state"]}
    _, again, _ = await site.ask("/api/v1/dynamic/parts", params=same)
    assert again == {"unchanged": True, "state": body["state"]}
