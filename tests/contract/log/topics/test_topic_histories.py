"""Random histories of one topic against a simple model."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eventd.log.core.eventlog import EventLog
from eventd.log.queues.units import Ack, ClaimJobs, ClaimResult, JobHandle, JobRequest, Nack
from eventd.log.retention import rewrite
from eventd.log.topics.limits import TopicSize, skip_seqs, sweep
from eventd.log.topics.topic_page import TopicPage
from eventd.store.engine.database import Database
from eventd.testing import ManualClock
from tests.support.topics import ALL, Topics, records_of

MS = 0.001
names = (f"t{number}" for number in itertools.count())


@dataclass
class Model:
    """One topic. `fates` says of each seq why it is gone, those that live left out; empty: it was deleted."""

    config: dict[str, Any] = field(default_factory=dict)
    records: dict[int, dict[str, Any]] = field(default_factory=dict)
    fates: dict[int, str] = field(default_factory=dict)
    head: int = 0

    @property
    def live(self) -> list[int]:
        return [seq for seq in self.records if seq not in self.fates]

    def size(self, seq: int) -> int:
        return len(str(self.records[seq]["data"]))

    def write(self, told: list[dict[str, Any]], now_ms: int) -> None:
        self.age(now_ms)
        for one in told:
            self.head += 1
            self.records[self.head] = one | {"ts": now_ms}
        self.cap()

    def set(self, config: dict[str, Any], now_ms: int) -> None:
        self.age(now_ms)
        self.config = config
        self.age(now_ms)
        self.cap()

    def age(self, now_ms: int) -> None:
        ttl = self.config.get("ttl_ms", 0)
        for seq in self.live:
            if ttl and now_ms - self.records[seq]["ts"] > ttl:
                self.fates[seq] = "ttl"

    def cap(self) -> None:
        if self.config.get("discard") == "reject":
            return
        records, size = self.config.get("cap_records", 0), self.config.get("cap_bytes", 0)
        while self.live and (
            (records and len(self.live) > records) or (size and sum(map(self.size, self.live)) > size)
        ):
            self.fates[self.live[0]] = "cap"

    def delete(self, before: int | None, tag: str | None, now_ms: int) -> int:
        self.age(now_ms)
        going = [
            seq
            for seq in self.live
            if (before is None or seq < before) and (tag is None or self.records[seq].get("tag") == tag)
        ]
        self.fates |= dict.fromkeys(going, "")
        return len(going)

    def lose(self, records: int) -> None:
        for _ in range(records):
            self.head += 1
            self.fates[self.head] = "source_trim"

    @property
    def earliest(self) -> int:
        return self.live[0] if self.live else self.head + 1


tags = st.sampled_from(["a", "b", None])
written = st.lists(st.tuples(st.integers(0, 10**6), tags, st.sampled_from(["x", "y", None])), min_size=1, max_size=8)
configs = st.fixed_dictionaries(
    {},
    optional={
        "ttl_ms": st.integers(1, 40),
        "cap_records": st.integers(1, 12),
        "cap_bytes": st.integers(1, 60),
        "discard": st.just("reject"),
    },
)
steps = st.one_of(
    st.tuples(st.just("write"), written),
    st.tuples(st.just("write"), written),
    st.tuples(st.just("wait"), st.integers(1, 30)),
    st.tuples(st.just("set"), configs),
    st.tuples(st.just("delete"), st.tuples(st.none() | st.integers(0, 40), st.sampled_from(["a", "b"]))),
    st.tuples(st.just("delete"), st.tuples(st.integers(0, 40), st.none())),
    st.tuples(st.just("lose"), st.integers(1, 3)),
    st.tuples(st.just("sweep"), st.none()),
    st.tuples(st.just("ack"), st.tuples(st.integers(1, 9), st.integers(1, 3))),
)


class Played:
    """A topic and its model, moved together."""

    def __init__(self, topics: Topics, clock: ManualClock, name: str, topic_id: int) -> None:
        self.topics, self.clock, self.name, self.topic_id = topics, clock, name, topic_id
        self.model = Model()

    @property
    def now_ms(self) -> int:
        return self.clock.now() // 1000

    async def step(self, what: str, how: Any) -> None:
        database = self.topics.log.database
        if what == "write":
            told = [
                {"data": data} | ({"tag": tag} if tag else {}) | ({"node": node} if node else {})
                for data, tag, node in how
            ]
            await self.write(told)
        elif what == "wait":
            self.clock.advance(how * MS)
        elif what == "set":
            config = {"type": self.model.config["type"], **how}
            await self.topics.make(self.name, **config)
            self.model.set(config, self.now_ms)
        elif what == "delete":
            before, tag = how
            done = await self.topics.delete(self.name, before=before, match=tag)
            assert done.deleted == self.model.delete(before, tag, self.now_ms)
            assert (done.count, done.earliest_seq) == (len(self.model.live), self.model.earliest)
        elif what == "lose":
            await database.write(skip_seqs, self.topic_id, how)
            self.model.lose(how)
        elif what == "ack":
            await self.ack(*how)
        else:
            await database.write(sweep, self.clock.now())

    async def ack(self, most: int, every: int) -> None:
        """Of a queue's next jobs some are done; the others are given back."""
        if self.model.config["type"] != "queue":
            return
        submit = self.topics.log.submit
        self.model.age(self.now_ms)
        claimed = await submit(ClaimJobs(self.name, [JobRequest("w", most)], lambda size: b"r" * size))
        assert isinstance(claimed, ClaimResult)
        jobs = [job.seq for job in claimed.jobs[0]]
        assert jobs == self.model.live[:most], "the oldest first"
        done = jobs[::every]
        assert (
            list(
                (
                    await submit(Ack(self.name, "w", [JobHandle(seq) for seq in done], flushes=self.topics.log.flushes))
                ).done
            )
            == done
        )
        self.model.fates |= dict.fromkeys(done, "")
        left = [JobHandle(seq) for seq in jobs if seq not in done]
        settled = await submit(Nack(self.name, "w", left))
        assert (settled.standing.ready, settled.standing.in_flight) == (len(self.model.live), 0)

    async def write(self, told: list[dict[str, Any]]) -> None:
        """A topic that refuses what is over its caps is written to only where there is room."""
        config, model = self.model.config, self.model
        if config.get("discard") == "reject":
            model.age(self.now_ms)
            room = config.get("cap_records", 10**6) - len(model.live)
            size = config.get("cap_bytes", 10**6) - sum(map(model.size, model.live))
            if len(told) > room or sum(len(str(one["data"])) for one in told) > size:
                return
        await self.topics.add(self.name, told)
        model.write(told, self.now_ms)

    async def check(self) -> None:
        """Everything a reader can ask agrees with the model."""
        self.model.age(self.now_ms)
        live = self.model.live
        standing = await self.topics.standing(self.name)
        assert standing == TopicSize(len(live), sum(map(self.model.size, live)), self.model.earliest)
        for apart in (False, True):
            for from_seq in sorted({0, self.model.head // 3, self.model.head // 2, self.model.head}):
                await self.read_on(from_seq, limit=3 if apart else 5, apart=apart, node="x" if apart else "")

    async def read_on(self, from_seq: int, *, limit: int, apart: bool, node: str) -> None:
        """Read from there to the end: every live record once, every loss once, and nothing about deletes."""
        at, seen, missed = from_seq, [], 0
        lost = sorted(seq for seq, fate in self.model.fates.items() if fate and seq > from_seq)
        while True:
            nodes = frozenset([node] if node else [])
            page = await self.topics.slice(self.name, at, limit=limit, apart=apart, nodes=nodes, view=ALL)
            missed += self.check_tombstone(page, at, lost, apart=apart)
            for record in records_of(page):
                one = self.model.records[record["$seq"]]
                assert record == {
                    "$seq": record["$seq"],
                    "$ts": one["ts"],
                    "data": one["data"],
                    **{f"${name}": one[name] for name in ("tag", "node") if name in one},
                }
            assert len(page.seqs) <= limit
            seen += page.seqs
            at = page.next_from_seq
            if page.caught_up:
                break
            assert page.seqs or page.tombstone or page.next_from_seq > at or apart
        wanted = [seq for seq in self.model.live if seq > from_seq]
        assert seen == [seq for seq in wanted if not node or self.model.records[seq].get("node") != node]
        assert missed == len(lost)

    def check_tombstone(self, page: TopicPage, at: int, lost: list[int], *, apart: bool) -> int:
        """What a page says to be missing is what is missing on it."""
        passed = [seq for seq in lost if at < seq <= page.next_from_seq]
        told = page.tombstone
        if told is None:
            assert passed == []
            return 0
        assert (told.gap_from, told.gap_to, told.lost) == (passed[0], passed[-1], len(passed))
        reasons = {self.model.fates[seq] for seq in passed}
        assert told.reason == (reasons.pop() if len(reasons) == 1 else "mixed")
        between = range(told.gap_from, told.gap_to + 1)
        assert not [seq for seq in self.model.live if seq in between]
        assert not apart or not [seq for seq in page.seqs if seq < told.gap_from]
        return told.lost


@pytest.mark.parametrize("kind", ["log", "queue"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(piece=st.sampled_from([2, 32]), config=configs, history=st.lists(steps, max_size=14))
async def test_any_history_reads_as_the_model_says(
    log: EventLog,
    database: Database,
    clock: ManualClock,
    kind: str,
    piece: int,
    config: dict[str, Any],
    history: list[tuple[str, Any]],
) -> None:
    topics, name = Topics(log), next(names)
    before, rewrite.PIECE_RECORDS = rewrite.PIECE_RECORDS, piece
    try:
        played = Played(topics, clock, name, await topics.make(name, type=kind, **config))
        played.model.config = {"type": kind, **config}
        for what, how in history:
            await played.step(what, how)
            await played.check()
        while await database.write(sweep, clock.now()):
            pass
        await played.check()
    finally:
        rewrite.PIECE_RECORDS = before
