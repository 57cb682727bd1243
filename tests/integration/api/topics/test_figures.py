"""The metrics of topics: the documented ones exist, are described, and are correct."""

from __future__ import annotations

import re

from tests.support.source import ROOT
from tests.support.v0 import Server

PAGE = (ROOT / "docs" / "reference" / "topics-api.md").read_text()
WAL = {
    *("fsyncs", "frames", "batches", "bytes_written", "rotations", "queue_depth", "queue_depth_peak"),
    *("submit_full_total", "read_only", "fsync_count", "fsync_micros_total"),
}


async def families(server: Server) -> dict[str, tuple[str, str]]:
    """Each metric with its type and its text."""
    text = (await server.ask("GET", "/metrics")).body
    return {name: (kind, told) for name, told, kind in re.findall(r"# HELP (\S+) (.*)\n# TYPE \S+ (\w+)", text)}


async def test_every_figure_is_on_the_page_as_it_describes_itself(server: Server) -> None:
    rows = re.findall(r"^\| `(topics_\w+)` \| (\w+) \| (.*) \|$", PAGE, re.MULTILINE)
    assert {name: (kind, told) for name, kind, told in rows} == await families(server)


async def test_what_the_writer_did_is_counted(server: Server) -> None:
    async def told() -> dict[str, int]:
        found: dict[str, int] = (await server.ask("GET", "/metrics", headers={"Accept": "application/json"})).body[
            "wal"
        ]
        return found

    before = await told()
    assert before.keys() == WAL
    await server.ask("PUT", "/topics/safe", {"durability": "fsync"})
    await server.ask("POST", "/topics/safe", {"records": [{"data": "four"}, {"data": "four"}]})
    after = await told()
    assert (after["frames"] - before["frames"], after["bytes_written"] - before["bytes_written"]) == (2, 12)
    assert after["batches"] - before["batches"] == after["fsyncs"] - before["fsyncs"] == 2
    assert after["fsync_micros_total"] > before["fsync_micros_total"]
    assert (after["queue_depth"], after["queue_depth_peak"] >= 1, after["read_only"]) == (0, True, False)


async def test_a_write_that_need_not_wait_for_the_disk_is_no_flush(server: Server) -> None:
    async def flushes() -> list[float]:
        text = (await server.ask("GET", "/metrics")).body
        buckets = [float(count) for count in re.findall(r"topics_wal_fsync_latency_us_bucket\S+ (\S+)", text)]
        assert len(buckets) == 10
        assert buckets == sorted(buckets), "they add up"
        assert f"topics_wal_fsync_latency_us_count {buckets[-1]}\n" in text
        return buckets

    for _ in range(2):  # the first makes the topic, the second says that something may be lost from now on
        await server.ask("POST", "/topics/quick", {"records": [{"data": 1}]})
    before = await flushes()
    await server.ask("POST", "/topics/quick", {"records": [{"data": 1}]})
    assert await flushes() == before
