"""Queues over an open log, with short methods for tests, and a check of the invariants of their tables."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from eventd.log.core.blocks import Block
from eventd.log.core.eventlog import EventLog
from eventd.log.core.records import content_size
from eventd.log.core.topic_row import TopicRow, find_topic
from eventd.log.queues.units import (
    Ack,
    ClaimJobs,
    ClaimResult,
    Extend,
    Job,
    JobHandle,
    JobRequest,
    Nack,
    SettlementResult,
)
from eventd.store.engine.database import Connection
from eventd.store.engine.statements import fetch
from eventd.store.rows.leases import JobCounts, count_jobs
from tests.support.topics import Topics


class Queues(Topics):
    """The queues of one log."""

    def __init__(self, log: EventLog) -> None:
        super().__init__(log)

    async def make(self, name: str, **config: Any) -> int:
        return await super().make(name, **{"type": "queue"} | config)

    async def claim(self, name: str, node: str = "w", most: int = 1, lease_ms: int | None = None) -> list[Job]:
        """Claim jobs for one node."""
        claimed = await self.deal(name, JobRequest(node, most, lease_ms))
        return list(claimed.jobs[0])

    async def deal(self, name: str, *wishes: JobRequest) -> ClaimResult:
        """Claim jobs for several nodes together."""
        return await self.log.submit(ClaimJobs(name, wishes, os.urandom))

    async def ack(self, name: str, node: str, *jobs: int | Job) -> SettlementResult:
        """Acknowledge jobs."""
        return await self.log.submit(Ack(name, node, handles(jobs), flushes=self.log.flushes))

    async def nack(self, name: str, node: str, *jobs: int | Job, delay_ms: int = 0) -> SettlementResult:
        """Return jobs to the queue."""
        return await self.log.submit(Nack(name, node, handles(jobs), delay_ms=delay_ms))

    async def extend(self, name: str, node: str, *jobs: int | Job, lease_ms: int) -> SettlementResult:
        """Extend the leases of jobs."""
        return await self.log.submit(Extend(name, node, handles(jobs), lease_ms=lease_ms))

    async def jobs(self, name: str) -> JobCounts:
        """Return the job counts of a queue."""
        return await self.log.database.read(_count, name, self.log.clock.steady())

    async def check(self, name: str) -> None:
        """Check the invariants of a queue's tables."""
        await self.log.database.read(check_books, name)


def handles(jobs: Sequence[int | Job]) -> list[JobHandle]:
    """Return the handles of jobs as their holder names them: by seq under any lease, or by seq and lease."""
    return [JobHandle(job) if isinstance(job, int) else JobHandle(job.seq, job.lease_id) for job in jobs]


def seqs(jobs: Sequence[Job]) -> list[int]:
    """Return the seqs of jobs."""
    return [job.seq for job in jobs]


def _count(conn: Connection, name: str, now: int) -> JobCounts:
    line = _line(conn, name)
    return count_jobs(conn, line.id, line.live, now)


def _line(conn: Connection, name: str) -> TopicRow:
    line = find_topic(conn, name)
    assert line is not None, name
    return line


def check_books(conn: Connection, name: str) -> None:
    """Assert that what is stored, what is counted and what is leased agree."""
    line = _line(conn, name)
    stored: dict[int, int] = {}
    columns = ", ".join(Block._fields)
    for row in fetch(conn, f"SELECT {columns} FROM blocks WHERE topic_id = ? ORDER BY seq", (line.id,)):
        block = Block._make(row)
        bodies, first = block.bodies(), block.seq
        assert block.text.count("\n") == len(bodies) == block.records
        assert sum(map(content_size, bodies)) == block.bytes > 0
        assert first > line.evicted_seq, "nothing is stored below the floor"
        stored |= {seq: content_size(body) for seq, body in enumerate(bodies, first) if body}
    leases = fetch(conn, "SELECT seq, node, free_at, size FROM leases WHERE topic_id = ?", (line.id,))
    assert {seq: size for seq, _, _, size in leases}.items() <= stored.items(), "what is leased is stored"
    done = {seq for seq, _, free_at, _ in leases if free_at is None}
    live = stored.keys() - done
    assert line.live == len(live)
    assert line.bytes == sum(stored[seq] for seq in live)
    assert line.earliest_seq == min(live, default=line.next_seq), "the floor is as high as it can be"
    held = sum(bool(node) for _, node, free_at, _ in leases if free_at)
    waiting = sum(not node for _, node, free_at, _ in leases if free_at)
    for claimed, *counted in fetch(
        conn, "SELECT claimed_seq, held, delayed FROM queues WHERE topic_id = ?", (line.id,)
    ):
        assert counted == [held, waiting]
        assert max((seq for seq, *_ in leases), default=0) <= claimed
