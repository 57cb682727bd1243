"""/v0 of a whole node: from start to stop, and next to its groups."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import ClientSession

from eventd.testing import until
from tests.integration.conftest import MakeSites
from tests.support.sites import Site
from tests.support.v0 import Client


@asynccontextmanager
async def client_of(site: Site) -> AsyncIterator[Client]:
    assert site.running.api_address is not None
    host, port = site.running.api_address
    async with ClientSession() as session:
        yield Client(session, f"http://{host}:{port}")


async def test_everything_is_there_again_after_a_restart(sites: MakeSites) -> None:
    (site,) = sites("a")
    await site.start()
    async with client_of(site) as client:
        await client.put("jobs", type="queue", durability="fsync", cap_records=50)
        await client.write_records("jobs", {"data": 1, "tag": "t"}, {"data": 2, "node": "n"}, idempotency_key="once")
        await client.write("log", *range(300))
        await client.delete_records("log", before_seq=101)
        before = await client.diff("log", 100, limit=1000)
        jobs = (await client.diff("jobs", include_tags=True)).body["records"]
    await site.stop()
    await site.start()
    async with client_of(site) as client:
        after = await client.diff("log", 100, limit=1000, epoch=before.body["epoch"])
        assert after.body["records"] == before.body["records"]
        assert after.body["tombstone"] is None
        assert (await client.diff("jobs", include_tags=True)).body["records"] == jobs
        shown = (await client.get("jobs")).body
        assert (shown["type"], shown["config"]["cap_records"], shown["count"]) == ("queue", 50, 2)
        again = await client.write("jobs", "other", idempotency_key="once")
        assert (again.body["deduped"], again.body["seqs"]) == (True, [1, 2]), "a key outlives the process"
        assert (await client.write("log", "new")).body["seqs"] == [301]


async def test_what_a_group_holds_is_read_as_a_topic(sites: MakeSites) -> None:
    (site,) = sites("a")
    await site.start()
    await site.join()
    await site.emit("e1", "e2", subject="s", payload={"k": "v"})
    async with client_of(site) as client:
        page = await client.diff("group:edge", include_tags=True)
        assert page.seqs == [1, 2]
        first = page.body["records"][0]
        assert (first["$node"], first["$tag"], first["data"]) == ("a", "t", {"k": "v"})
        assert (first["meta"]["id"], first["meta"]["subject"]) == ("e1", "s")
        assert (await client.diff("group:edge", node="a")).body["next_from_seq"] == 2
        listed = (await client.ask("GET", "/topics")).body["topics"]
        assert [topic["topic"] for topic in listed] == ["group:edge"]


async def test_a_reader_that_waits_does_not_keep_a_node_from_stopping(sites: MakeSites) -> None:
    (site,) = sites("a")
    await site.start()
    async with client_of(site) as client:
        await client.put("jobs")
        waiting = asyncio.ensure_future(client.diff("jobs", wait_ms=30_000))
        await until(lambda: site.running.log.wakeups._by_topic, "the reader to wait")
        await asyncio.wait_for(site.stop(), 10)
        assert (await waiting).seqs == []


async def test_a_group_and_a_topic_of_its_name_are_two_things(sites: MakeSites) -> None:
    (site,) = sites("a")
    await site.start()
    await site.join()
    async with client_of(site) as client:
        await client.write("edge", 1)
        await site.emit("e1")
        assert (await client.get("edge")).body["count"] == 1
        assert (await client.delete("edge")).body["deleted"] is True
        assert await site.ids() == ["e1"]
