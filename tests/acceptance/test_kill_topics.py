"""kill -9 of a node at any moment while topics are written, routed and trimmed: every acknowledged record is there,
once, at the same seq, and so is each copy of it."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.processes import Processes
from tests.support.topic_nodes import GONE, TopicNode

CONFIGS = {
    "orders": {"durability": "fsync", "ttl_ms": 3_600_000},
    "notes": {"durability": "disk", "cap_records": 1_000_000},
    "billed": {"durability": "fsync"},
    "archive": {"durability": "disk"},
    "loud": {"durability": "fsync", "discard": "reject", "cap_records": 1_000_000},
    "seen": {"durability": "disk"},
    "minutes": {"durability": "fsync"},
}
ROUTERS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("orders", "billed", {"guarantee": "exactly_once"}),
    ("billed", "archive", {}),
    ("orders", "loud", {"guarantee": "exactly_once", "filter": ["tag", "Glob", "loud:*"]}),
    ("orders", "seen", {}),
    ("notes", "minutes", {"guarantee": "exactly_once", "preserve_tag": False}),
)


@dataclass
class Batch:
    """Records that are written under one key; `seqs` once that was acknowledged."""

    key: str
    records: list[dict[str, Any]]
    seqs: list[int]


class Writer(threading.Thread):
    """Writes batches to a topic. One without an answer is written again, under its key, until it is answered."""

    def __init__(self, node: TopicNode, topic: str, number: int, seed: int) -> None:
        super().__init__(name=f"writer {number} to {topic}", daemon=True)
        self.topic = topic
        self.number = number
        self.batches: list[Batch] = []
        self.unanswered = self.stored_unanswered = 0
        self.failure: BaseException | None = None
        self._node = node
        self._random = random.Random(seed)
        self._end = threading.Event()

    def run(self) -> None:
        try:
            while not self._end.wait(self._random.random() * 0.02):
                self._write(self._next())
        except BaseException as error:
            self.failure = error

    def _next(self) -> Batch:
        name = f"{self.topic}-{self.number}-{len(self.batches)}"
        records = [
            {
                "data": f"{name}.{at}",
                "tag": self._random.choice(["loud:a", "loud:b", "low"]),
                "node": "w",
            }
            for at in range(self._random.randint(1, 15))
        ]
        return Batch(name, records, [])

    def _write(self, batch: Batch) -> None:
        tried = False
        give_up = time.monotonic() + 60
        while True:
            try:
                answer = self._node.write(self.topic, *batch.records, idempotency_key=batch.key)
            except GONE:
                assert time.monotonic() < give_up, f"{batch.key} is not taken"
                self.unanswered += not tried
                tried = True
                time.sleep(0.02)
                continue
            assert answer["deduped"] <= tried, f"{batch.key} was there before it was written: {answer}"
            self.stored_unanswered += answer["deduped"]
            batch.seqs = answer["seqs"]
            self.batches.append(batch)
            return

    def finish(self) -> None:
        self._end.set()
        self.join(90)
        assert not self.is_alive()
        if self.failure is not None:
            raise self.failure

    def check_repeats(self, chance: random.Random) -> None:
        """Repeat acknowledged writes, maybe from before a crash: the answer is that of the first time."""
        for batch in chance.sample(self.batches, k=min(3, len(self.batches))):
            answer = self._node.write(self.topic, *batch.records, idempotency_key=batch.key)
            assert (answer["deduped"], answer["seqs"]) == (True, batch.seqs), batch.key


class Trimmer(threading.Thread):
    """Deletes the oldest records of a topic at intervals. `floor`: up to where records were deleted, or may
    have been."""

    def __init__(self, node: TopicNode, topic: str) -> None:
        super().__init__(name=f"trimmer of {topic}", daemon=True)
        self.acknowledged = self.floor = 1
        self._node = node
        self._topic = topic
        self._end = threading.Event()

    def run(self) -> None:
        while not self._end.is_set():
            with suppress(*GONE):
                self.floor = max(self.floor, self._node.state(self._topic)["head_seq"] // 2)
                self._node.v0("POST", f"/topics/{self._topic}/delete", {"before_seq": self.floor})
                self.acknowledged = self.floor
            self._end.wait(0.1)

    def finish(self) -> None:
        self._end.set()
        self.join(30)
        assert not self.is_alive()


def declared(node: TopicNode) -> tuple[Any, Any]:
    """Return the configuration of topics, and of routers."""
    routers = [node.router(source, dest) for source, dest, _ in ROUTERS]
    moving = ("performance", "forwarded_total", "lag", "state", "reason")
    return (
        {topic: node.state(topic)["config"] for topic in CONFIGS},
        [{name: value for name, value in router.items() if name not in moving} for router in routers],
    )


def crash(node: TopicNode, chance: random.Random, *, at_start: bool) -> None:
    """Kill the node at a random moment of its work, and `at_start` of its next start too; it is up again afterwards."""
    time.sleep(chance.random() * 0.6)
    node.kill9()
    if at_start:
        node.process.start()
        time.sleep(chance.random() * 0.8)
        node.kill9()
    node.start()


def told(records: Sequence[dict[str, Any]]) -> list[tuple[Any, Any]]:
    """Return the content of records, in their order."""
    return [(record["data"], record.get("$tag")) for record in records]


def judge_source(node: TopicNode, topic: str, writers: Sequence[Writer]) -> list[dict[str, Any]]:
    held = node.records(topic)
    at = {record["$seq"]: (record["data"], record["$tag"]) for record in held}
    batches = [batch for writer in writers if writer.topic == topic for batch in writer.batches]
    written = [(seq, record) for batch in batches for seq, record in zip(batch.seqs, batch.records, strict=True)]
    assert at == {seq: (record["data"], record["tag"]) for seq, record in written}, f"{topic}: lost or doubled"
    state = node.state(topic)
    assert (state["head_seq"], state["count"], state["earliest_seq"]) == (len(written), len(written), 1)
    return held


def judge_copies(node: TopicNode, source: list[dict[str, Any]], dest: str, *, tags: bool = True) -> None:
    held = node.records(dest)
    wanted = [(data, tag if tags else None) for data, tag in told(source)]
    assert told(held) == wanted, f"{dest}: a copy is missing, doubled, or out of order"
    assert [record["$seq"] for record in held] == [*range(1, len(source) + 1)], f"{dest} has a hole"


def judge_stamps(node: TopicNode, source: list[dict[str, Any]], dest: str) -> None:
    stamps = [record["meta"]["_topics_router"]["source_seq"] for record in node.records(dest)]
    assert stamps == [record["$seq"] for record in source], f"{dest} names other records than those it was made of"


def judge(node: TopicNode, writers: Sequence[Writer], trimmer: Trimmer) -> str:
    """Compare what is stored with what was acknowledged; return a summary."""
    orders, notes = (judge_source(node, topic, writers) for topic in ("orders", "notes"))
    loud = [record for record in orders if record["$tag"].startswith("loud:")]
    judge_copies(node, orders, "billed")
    judge_copies(node, orders, "archive")
    judge_copies(node, loud, "loud")
    judge_copies(node, notes, "minutes", tags=False)
    for copied, dest in ((orders, "billed"), (loud, "loud"), (notes, "minutes")):
        judge_stamps(node, copied, dest)
    seen = node.records("seen")
    assert trimmer.acknowledged - 1 <= len(orders) - len(seen) <= trimmer.floor - 1, "a delete came back, or took more"
    assert told(seen) == told(orders[len(orders) - len(seen) :])
    counts = {dest: node.router(source, dest)["forwarded_total"] for source, dest, _ in ROUTERS}
    total = len(orders)
    wanted = {"billed": total, "archive": total, "seen": total, "loud": len(loud), "minutes": len(notes)}
    assert counts == wanted, "the counters are not those of the copies"
    unanswered, stored = sum(each.unanswered for each in writers), sum(each.stored_unanswered for each in writers)
    return (
        f"{total} orders, {len(notes)} notes, {trimmer.acknowledged - 1} deleted; {unanswered} writes without an"
        f" answer, {stored} of them stored"
    )


def storm(node: TopicNode, chance: random.Random, *, kills: int) -> None:
    for topic, config in CONFIGS.items():
        node.v0("PUT", f"/topics/{topic}", config)
    for source, dest, options in ROUTERS:
        node.route(source, dest, **options)
    before = declared(node)
    topics = ("orders", "orders", "orders", "notes")
    writers = [Writer(node, topic, at, chance.getrandbits(32)) for at, topic in enumerate(topics)]
    trimmer = Trimmer(node, "seen")
    threads: list[Writer | Trimmer] = [*writers, trimmer]
    for thread in threads:
        thread.start()
    early = chance.randrange(kills)
    try:
        for number in range(kills):
            crash(node, chance, at_start=number == early)
            for writer in writers:
                writer.check_repeats(chance)
    finally:
        for thread in threads:
            thread.finish()
    print(f"{kills} kills; {judge(node, writers, trimmer)}")  # noqa: T201
    assert declared(node) == before
    assert node.stop() == 0


@pytest.mark.timeout(150)
def test_what_topics_acknowledged_survives_kills_once_with_every_copy_on_sqlite(
    processes: Processes, chance: random.Random
) -> None:
    storm(TopicNode(processes, "one"), chance, kills=4)


@pytest.mark.timeout(150)
@pytest.mark.postgres
def test_what_topics_acknowledged_survives_kills_once_with_every_copy_on_postgres(
    processes: Processes, postgres_url: str, chance: random.Random
) -> None:
    storm(TopicNode(processes, "one", database_url=postgres_url), chance, kills=3)
