"""Measures pages of one topic, of 1, 256 and 1,000 records, read by one client and by four, each from the beginning.

The rival answers as many constant bytes as the page has. Verified: each page holds exactly the records of its seqs.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from tests.bench.topics_site import Figures, Site, cpu_seconds, fill, site
from tests.bench.wire import LoadResult, load, read_answer, request

LIMITS = (1, 256, 1000)
CLIENTS = (1, 4)
TOPIC = "pages"
MOST_BYTES = 128 << 20
"""Bytes of answers that are kept until the clock has stopped."""


async def measure_reads(directory: Path, options: argparse.Namespace) -> Figures:
    figures: Figures = {}
    with site(directory) as at:
        await fill(at.port, TOPIC, options.records, options.size)
        for limit in LIMITS:
            for clients in CLIENTS:
                figures |= await _pages(at, f"page_{limit}_by_{clients}", limit, clients, options)
    return figures


async def _pages(at: Site, name: str, limit: int, clients: int, options: argparse.Namespace) -> Figures:
    calls = max(1, min(options.calls, MOST_BYTES // (limit * (options.size + 60))) // clients)
    starts = [number * limit % (options.records - limit + 1) for number in range(calls)]
    path = f"/v0/topics/{TOPIC}/diff"
    asked = [request("POST", path, {"from_seq": start, "limit": limit}) for start in starts]
    await load(at.port, [asked[:50]])
    cpu = cpu_seconds(at.node)
    done = await load(at.port, [asked] * clients)
    cpu = cpu_seconds(at.node) - cpu
    _verify(done, starts, limit)
    size = len(read_answer(done.answers[0][-1]).body)
    body = asked[-1].partition(b"\r\n\r\n")[2]
    rival = await load(at.rival.port, [[request("POST", f"/answer/{size}", body)] * calls] * clients)
    return {
        f"{name}_calls_per_second": round(done.rate),
        f"{name}_records_per_second": round(done.rate * limit),
        f"{name}_p50_ms": done.percentile(50),
        f"{name}_p99_ms": done.percentile(99),
        f"{name}_node_cpu_us_per_call": round(cpu / done.calls * 1e6, 1),
        f"{name}_rival_calls_per_second": round(rival.rate),
        f"{name}_rate_to_rival": round(done.rate / rival.rate, 3),
        f"{name}_client_busy": done.busy,
    }


def _verify(done: LoadResult, starts: Sequence[int], limit: int) -> None:
    for pages in done.jsons():
        for start, page in zip(starts, pages, strict=True):
            expected = [*range(start + 1, start + limit + 1)]
            assert [one["data"]["n"] for one in page["records"]] == expected, "the records of its seqs"
            assert [one["$seq"] for one in page["records"]] == expected, "their seqs"
            assert page["next_from_seq"] == start + limit, "and the start of the next page"
