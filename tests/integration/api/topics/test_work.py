"""Connected workers of a queue: jobs are delivered as they are written, returned, or lost by other workers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from eventd.api.topics.dispatch import QueueDispatcher
from eventd.testing import ManualClock, until
from tests.integration.api.topics.conftest import StartServer
from tests.support.streams import Stream
from tests.support.v0 import Client, Server


class Jobs(Stream):
    """What a worker is sent."""

    async def job(self) -> dict[str, Any]:
        """The next job; its event must have its seq for an id."""
        while True:
            fields = dict(line.split(": ", 1) for line in (await self.block()).split("\n") if line)
            if "event" in fields:
                break
        assert fields["event"] == "job", fields
        told: dict[str, Any] = json.loads(fields["data"])
        assert fields["id"] == str(told["$seq"])
        return told

    async def seqs(self, number: int) -> list[int]:
        """Of the next few jobs."""
        return [(await self.job())["$seq"] for _ in range(number)]

    async def error(self) -> dict[str, Any]:
        """What is said last."""
        lines = (await self.block()).split("\n")
        assert lines[0] == "event: error", lines
        told: dict[str, Any] = json.loads(lines[1].removeprefix("data: "))
        assert await self.block() == "", "and then the stream ends"
        return told


@asynccontextmanager
async def working(client: Client, queue: str, node: str = "w", query: str = "") -> AsyncIterator[Jobs]:
    url = f"{client.url}/v0/topics/{queue}/work?node={node}{query}"
    async with client.session.get(url, headers=client.headers) as response:
        assert response.status == 200, await response.text()
        stream = Jobs(response)
        assert await stream.block() == "retry: 2000"
        yield stream


async def state(client: Client, queue: str) -> dict[str, int]:
    shown: dict[str, int] = (await client.get(queue)).body["queue"]
    return shown


async def settle(client: Client, queue: str, what: str, *seqs: int, node: str = "w", **more: Any) -> None:
    told = await client.ask("POST", f"/topics/{queue}/{what}", {"node": node, "seqs": [*seqs], **more})
    assert told.status == 200, told.body
    assert told.body["skipped"] == []


async def test_a_worker_holds_so_many_jobs_at_a_time_and_gives_them_back_when_it_goes(stored: Server) -> None:
    await stored.put("q", type="queue")
    await stored.write_records("q", {"data": 0, "tag": "t", "meta": 1, "node": "me"}, *[{"data": n} for n in range(4)])
    async with working(stored, "q", "w1", "&max=2") as jobs:
        assert jobs.headers["Content-Type"] == "text/event-stream"
        first = await jobs.job()
        assert [*first] == ["topic", "$seq", "lease_id", "deadline", "$ts", "$tag", "deliveries", "data", "meta"]
        assert (first["topic"], first["$seq"], first["data"]) == ("q", 1, 0)
        assert (await jobs.job())["$seq"] == 2
        assert await state(stored, "q") == {"ready": 3, "in_flight": 2, "dead_lettered": 0}
        await settle(stored, "q", "ack", 1, node="w1")
        assert await jobs.seqs(1) == [3]
        await settle(stored, "q", "ack", 2, 3, node="w1")
        assert await jobs.seqs(2) == [4, 5]
    await until(lambda: _is(stored, "q", {"ready": 2, "in_flight": 0, "dead_lettered": 0}))


async def _is(client: Client, queue: str, expected: dict[str, int]) -> bool:
    return await state(client, queue) == expected


async def test_a_worker_that_waits_is_sent_what_is_written(server: Server) -> None:
    await server.put("q", type="queue")
    async with working(server, "q") as jobs:
        for data in range(5):
            await server.write("q", data)
            assert (await jobs.job())["data"] == data
            await settle(server, "q", "ack", data + 1)


async def test_a_worker_is_sent_what_another_lost_or_gave_back(start_server: StartServer) -> None:
    clock = ManualClock()
    server = await start_server(clock=clock)
    await server.put("q", type="queue", lease_ms=10_000)
    await server.write("q", 1, 2, 3)
    await server.ask("POST", "/topics/q/claim", {"node": "other", "max": 3})
    async with working(server, "q", "w", "&max=3&lease_ms=60000") as jobs:
        await settle(server, "q", "nack", 1, node="other")
        assert await jobs.seqs(1) == [1]
        await settle(server, "q", "nack", 2, node="other", delay_ms=4000)
        await until(
            lambda: any(abs(wait - 4) < 0.01 for wait in clock.waits), "the dispatcher waits for the delay alone"
        )
        clock.advance(4)
        assert await jobs.seqs(1) == [2]
        await until(lambda: any(abs(wait - 6) < 0.01 for wait in clock.waits), "and then for the lease to end")
        clock.advance(6.1)
        told = await jobs.job()
        assert (told["$seq"], told["deliveries"]) == (3, 2)


async def test_a_lease_that_a_worker_lets_end_is_its_own_no_more(start_server: StartServer) -> None:
    clock = ManualClock()
    server = await start_server(clock=clock)
    await server.put("q", type="queue")
    await server.write("q", 1)
    async with working(server, "q", "w", "&lease_ms=2000") as jobs:
        first = await jobs.job()
        assert first["deadline"] - first["$ts"] == 2000
        await until(lambda: any(abs(wait - 2) < 0.01 for wait in clock.waits))
        clock.advance(2.1)
        second = await jobs.job()
        assert (second["$seq"], second["deliveries"]) == (1, 2)
        assert second["lease_id"] != first["lease_id"]


async def test_several_workers_share_what_there_is(server: Server) -> None:
    await server.put("q", type="queue")
    async with working(server, "q", "a", "&max=10") as one, working(server, "q", "b", "&max=10") as other:
        await server.write("q", *range(8))
        assert sorted([*await one.seqs(4), *await other.seqs(4)]) == [*range(1, 9)]


async def test_every_job_of_many_is_worked_on_once(server: Server) -> None:
    await server.put("q", type="queue")
    done: list[int] = []

    async def work(node: str) -> None:
        async with working(server, "q", node, "&max=3") as jobs:
            while len(done) < 200:
                async with asyncio.timeout(5):
                    seq = (await jobs.job())["$seq"]
                await settle(server, "q", "ack", seq, node=node)
                done.append(seq)

    workers = [asyncio.ensure_future(work(f"w{n}")) for n in range(5)]
    for start in range(0, 200, 10):
        await server.write("q", *range(start, start + 10))
    await until(lambda: len(done) == 200)
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    assert sorted(done) == [*range(1, 201)]
    await until(lambda: _is(server, "q", {"ready": 0, "in_flight": 0, "dead_lettered": 0}))


async def test_what_is_refused_before_a_stream_begins(start_server: StartServer) -> None:
    server = await start_server(max_sse_connections=1)
    await server.put("q", type="queue")
    await server.put("log")
    told = await server.ask("GET", "/topics/none/work", headers={"Accept": "application/json"})
    assert (told.status, told.code) == (406, "not_acceptable")
    assert (await server.ask("GET", "/topics/none/work?node=")).status == 400
    assert (await server.ask("GET", "/topics/none/work?node=w")).code == "topic_not_found"
    assert (await server.ask("GET", "/topics/log/work?node=w")).code == "not_a_queue"
    async with working(server, "q"):
        told = await server.ask("GET", "/topics/q/work?node=w")
        assert (told.status, told.code) == (429, "throttled")
        assert (await server.ask("GET", "/topics/log/work?node=w")).code == "not_a_queue"
    async with working(server, "q"):
        pass


async def test_a_worker_is_told_when_its_queue_is_no_more(server: Server) -> None:
    await server.put("q", type="queue")
    await server.write("q", 1)
    async with working(server, "q") as jobs:
        assert await jobs.seqs(1) == [1]
        await server.delete("q")
        assert await jobs.error() == {"code": 409, "error": "the queue 'q' was deleted", "topic": "q"}


async def test_a_worker_is_told_when_the_node_stops(server: Server) -> None:
    await server.put("q", type="queue")
    async with working(server, "q") as jobs:
        server.v0.stopping.set_result(None)
        assert (await jobs.error())["code"] == "server_shutting_down"


async def test_a_queue_nobody_works_on_costs_nothing(start_server: StartServer) -> None:
    clock = ManualClock()
    server = await start_server(clock=clock)
    await server.put("q", type="queue")
    async with working(server, "q"):
        await until(lambda: len(clock.waits) == 2, "the dispatcher to wait, and the beat of streams")

    def nothing_waits() -> bool:
        clock.advance(0.1)
        return not clock.waits

    await until(nothing_waits, "both to end")


async def test_a_fault_while_jobs_are_dealt_leaves_no_queue_without_jobs(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pause, faults = QueueDispatcher._pause, ["fault"]

    def pausing(dispatcher: QueueDispatcher, look_at: int | None) -> float:
        if faults:
            raise KeyError(faults.pop())
        return pause(dispatcher, look_at)

    monkeypatch.setattr(QueueDispatcher, "_pause", pausing)
    await server.put("q", type="queue")
    async with working(server, "q") as jobs:
        await until(lambda: not faults)
        await server.write("q", 1)
        assert (await jobs.job())["data"] == 1
    (failed,) = [vars(record) for record in caplog.records if record.name == "eventd.tasks"]
    assert (failed["task"], failed["outcome"]) == ("jobs of q", "restarted")
