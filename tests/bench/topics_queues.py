"""Measures workers that claim the jobs of a queue and ack them, a few at a time, until the queue is empty.

The jobs are written beforehand in batches of 1000. A worker claims jobs, acks all of them in one request, and claims
again. Every job is counted once: none may be claimed twice, and none may be left.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import time
from pathlib import Path

from tests.bench.topics_site import Figures, Site, fill, site
from tests.bench.wire import HttpConnection, call, open_line, percentile, read_answer, request

_SEQ = re.compile(rb'"\$seq":(\d+)')


class _Worker:
    """One worker, on a connection of its own."""

    def __init__(self, line: HttpConnection, queue: str, name: str, most: int) -> None:
        self.done: list[int] = []
        self.claims: list[float] = []
        self.acks: list[float] = []
        self._line = line
        self._queue = queue
        self._name = name
        self._claim = request("POST", f"/v0/topics/{queue}/claim", {"node": name, "max": most})

    async def work(self) -> None:
        """Claim and ack until the queue is empty."""
        while seqs := await self._take():
            acking = request("POST", f"/v0/topics/{self._queue}/ack", {"node": self._name, "seqs": seqs})
            begun = time.perf_counter()
            body = read_answer(await self._line.ask(acking)).body
            self.acks.append(time.perf_counter() - begun)
            assert b'"acked":%d,"skipped":[]' % len(seqs) in body, body
            self.done += seqs

    async def _take(self) -> list[int]:
        begun = time.perf_counter()
        answer = read_answer(await self._line.ask(self._claim))
        self.claims.append(time.perf_counter() - begun)
        assert answer.status == 200, answer
        return [*map(int, _SEQ.findall(answer.body))]


async def measure_queues(directory: Path, options: argparse.Namespace) -> Figures:
    figures: Figures = {}
    with site(directory) as at:
        for durability in ("disk", "fsync"):
            for most in options.claims:
                figures |= await _drain(at, f"queue-{durability}-{most}", durability, most, options)
    return figures


async def _drain(at: Site, queue: str, durability: str, most: int, options: argparse.Namespace) -> Figures:
    await call(at.port, "PUT", f"/v0/topics/{queue}", {"type": "queue", "durability": durability})
    await fill(at.port, queue, options.jobs, options.size)
    lines = [await open_line(at.port) for _ in range(options.workers)]
    workers = [_Worker(line, queue, f"w{number}", most) for number, line in enumerate(lines)]
    cpu, begun = time.process_time(), time.perf_counter()
    await asyncio.gather(*(worker.work() for worker in workers))
    seconds, busy = time.perf_counter() - begun, time.process_time() - cpu
    for line in lines:
        line.close()
    done = sorted(seq for worker in workers for seq in worker.done)
    assert done == [*range(1, options.jobs + 1)], "each job once"
    shown = await call(at.port, "GET", f"/v0/topics/{queue}")
    assert (shown["count"], shown["bytes"], shown["queue"]["in_flight"]) == (0, 0, 0)
    name = f"{durability}_claim_{most}"
    return {
        f"{name}_jobs_per_second": round(len(done) / seconds),
        f"{name}_claim_p50_ms": percentile([each for worker in workers for each in worker.claims], 50),
        f"{name}_ack_p50_ms": percentile([each for worker in workers for each in worker.acks], 50),
        f"{name}_client_busy": round(busy / seconds, 2),
    }
