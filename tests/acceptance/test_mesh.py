"""Topics in a mesh: one topic shared by all nodes of a group, and one node whose topics feed each other.

What is written on any node is in the topic of every node once, unchanged, and is never delivered to its writer.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import permutations
from typing import Any

import pytest

from tests.support.declared import group, peer
from tests.support.processes import Processes
from tests.support.topic_nodes import Follower, TopicNode, content_of, duplicates_of
from tests.support.waiting import wait_for

GROUP = "group:mesh"


def share_room(nodes: Sequence[TopicNode]) -> None:
    """Put the nodes into one group, each a peer of every other, and route the topic `room` of each to it."""
    for node in nodes:
        node.apply(group(node.name, name="mesh", port=node.port, secret=node.secret))
        node.wait_listening()
    for node in nodes:
        node.apply(*[peer(other.name, other.port, group="mesh") for other in nodes if other is not node])
        node.v0("PUT", "/topics/room", {"durability": "fsync"})
        node.route("room", GROUP, fan_in=True)
        node.route(GROUP, "room", fan_in=True)


class Writer(threading.Thread):
    """Writes batches under its node's name until it is stopped; each is retried until it is acknowledged."""

    def __init__(self, node: TopicNode, seed: int) -> None:
        super().__init__(name=f"writer at {node.name}", daemon=True)
        self.written: list[dict[str, Any]] = []
        self.failure: BaseException | None = None
        self._node = node
        self._random = random.Random(seed)
        self._end = threading.Event()

    def run(self) -> None:
        batch = 0
        try:
            while not self._end.is_set():
                records = [self._record() for _ in range(self._random.randint(1, 12))]
                self._node.insist("room", *records, key=f"{self._node.name}-{batch}")
                self.written += records
                batch += 1
                self._end.wait(self._random.random() * 0.2)
        except BaseException as error:
            self.failure = error

    def _record(self) -> dict[str, Any]:
        number = len(self.written) + self._random.randint(0, 10**9) * 10**6
        record: dict[str, Any] = {"node": self._node.name, "data": {"of": self._node.name, "n": number, "t": "ü\n\t "}}
        if self._random.random() < 0.7:
            record["tag"] = self._random.choice(["said", "said:loud", "left"])
        if self._random.random() < 0.5:
            record["meta"] = self._random.choice([{"trace": [1, None]}, [], "x"])
        return record

    def finish(self) -> None:
        self._end.set()
        self.join(60)
        assert not self.is_alive()
        if self.failure is not None:
            raise self.failure


@contextmanager
def traffic(nodes: Sequence[TopicNode], chance: random.Random) -> Iterator[list[Writer]]:
    """Let every node write while the block runs."""
    writers = [Writer(node, chance.getrandbits(32)) for node in nodes]
    for writer in writers:
        writer.start()
    try:
        yield writers
    finally:
        for writer in writers:
            writer.finish()


def as_told(record: dict[str, Any]) -> str:
    """Return a record of a request as readers receive it."""
    told = {{"node": "$node", "tag": "$tag"}.get(name, name): value for name, value in record.items()}
    return content_of(told)


def judge(nodes: Sequence[TopicNode], followers: Sequence[Follower], writers: Sequence[Writer]) -> None:
    everything = {as_told(record) for writer in writers for record in writer.written}
    total = sum(len(writer.written) for writer in writers)
    assert len(everything) == total, "the records of the test differ from each other"
    for node in nodes:
        wait_for(
            lambda node=node: node.state("room")["head_seq"] >= total,  # type: ignore[misc]
            f"{total} records in the room of {node.name}",
            seconds=60,
        )
    for follower, writer in zip(followers, writers, strict=True):
        follower.wait_seen(total - len(writer.written))
    for node in nodes:
        told = node.records("room")
        assert not duplicates_of([content_of(record) for record in told]), (
            f"the room of {node.name} holds records twice"
        )
        assert {content_of(record) for record in told} == everything, f"the room of {node.name} holds something else"
        for writer, origin in zip(writers, nodes, strict=True):
            there = [content_of(record) for record in told if record["$node"] == origin.name]
            assert there == [as_told(record) for record in writer.written], f"{origin.name}, read at {node.name}"
        for topic in ("room", GROUP):
            state = node.state(topic)
            assert (state["head_seq"], state["count"]) == (total, total), f"{topic} of {node.name} has grown by itself"
        assert node.letters("mesh") == []
    for node, follower in zip(nodes, followers, strict=True):
        assert all(record["$node"] != node.name for record in follower.seen), f"{node.name} received what it wrote"
        seen = [content_of(record) for record in follower.seen]
        others = everything - {
            as_told(record) for writer in writers for record in writer.written if record["node"] == node.name
        }
        assert sorted(seen) == sorted(others), f"the reader at {node.name}"


def test_a_room_is_shared_by_three_nodes_through_crashes(processes: Processes, chance: random.Random) -> None:
    nodes = [TopicNode(processes, name) for name in ("a", "b", "c")]
    share_room(nodes)
    followers = [Follower(node, "room", own=node.name) for node in nodes]
    for follower in followers:
        follower.start()
    kills = 0
    with traffic(nodes, chance) as writers:
        for node in chance.sample(nodes, k=2):
            time.sleep(chance.random() * 0.5)
            node.kill9()
            kills += 1
            others = [writer for writer, each in zip(writers, nodes, strict=True) if each is not node]
            counts = [len(writer.written) for writer in others]
            wait_for(
                lambda others=others, counts=counts: all(  # type: ignore[misc]
                    len(writer.written) > count + 10 for writer, count in zip(others, counts, strict=True)
                ),
                f"the others to write while {node.name} is away",
            )
            node.start()
    try:
        judge(nodes, followers, writers)
    finally:
        for follower in followers:
            follower.finish()
    told = ", ".join(f"{node.name} {len(writer.written)}" for node, writer in zip(nodes, writers, strict=True))
    streams = sum(follower.streams for follower in followers)
    print(f"{kills} kills; records written: {told}; {streams} streams")  # noqa: T201
    for node in nodes:
        assert node.stop() == 0


def test_events_and_records_share_a_group_and_a_room(processes: Processes) -> None:
    """An event becomes a record in every node's topic, and enters no group again: not even as a dead letter."""
    a, b = (TopicNode(processes, name) for name in ("a", "b"))
    share_room([a, b])
    a.emit("e1", group="mesh", type="client.seen", subject="10.88.0.1/32", payload={"port": "ge-0"})
    b.emit("e2", group="mesh", type="client.seen", payload={"data": '{"n":1}'}, expiresAt="2099-01-01T00:00:00Z")
    a.write("room", {"data": "said", "node": "a"})
    for node in (a, b):
        wait_for(lambda node=node: node.state("room")["head_seq"] >= 3, f"all in the room of {node.name}")  # type: ignore[misc]
    a.write("room", {"data": "last", "node": "a"})
    for node in (a, b):
        wait_for(lambda node=node: node.state("room")["head_seq"] >= 4, f"all in the room of {node.name}")  # type: ignore[misc]
        assert {(r["$node"], r.get("$tag"), str(r["data"])) for r in node.records("room")} == {
            ("a", "client.seen", "{'port': 'ge-0'}"),
            ("b", "client.seen", "{'n': 1}"),
            ("a", None, "said"),
            ("a", None, "last"),
        }
        assert node.state("room")["head_seq"] == node.state(GROUP)["head_seq"] == 4
        back = node.router("room", GROUP)
        assert (back["refused_total"], back["lag"], back["state"]) == (0, 0, "running")
        assert node.letters("mesh") == []


def test_a_room_is_shared_through_a_hub_and_what_no_event_can_be_hinders_nothing(processes: Processes) -> None:
    spokes = [TopicNode(processes, name) for name in ("a", "b")]
    hub = TopicNode(processes, "h")
    nodes = [*spokes, hub]
    for node in nodes:
        node.apply(group(node.name, name="mesh", port=node.port, secret=node.secret))
        node.wait_listening()
        node.route("room", GROUP, fan_in=True)
        node.route(GROUP, "room", fan_in=True)
    hub.apply(*[peer(spoke.name, spoke.port, group="mesh", relay=True) for spoke in spokes])
    for spoke in spokes:
        spoke.apply(peer("h", hub.port, group="mesh"))
    spokes[0].write("room", {"data": "\n" * 400_000, "node": "a"}, {"data": 1, "node": "a", "tag": "\0"})
    for number in range(10):
        for node in nodes:
            node.write("room", {"data": number, "node": node.name})
    for node in nodes:
        extra = 2 if node is spokes[0] else 0
        wait_for(
            lambda node=node, wanted=30 + extra: node.state("room")["head_seq"] >= wanted,  # type: ignore[misc]
            f"all in the room of {node.name}",
        )
    back = spokes[0].router("room", GROUP)
    assert (back["refused_total"], back["lag"], back["state"]) == (2, 0, "running")
    for node in nodes:
        for each in nodes:
            numbers = [record["data"] for record in node.records("room") if record["$node"] == each.name]
            assert numbers[-10:] == [*range(10)], f"{each.name}, read at {node.name}"
        assert node.state(GROUP)["head_seq"] == 30
        assert node.state("room")["head_seq"] == 30 + (2 if node is spokes[0] else 0)


def full(topics: Sequence[str]) -> list[tuple[str, str]]:
    """Return routers by which every topic feeds every other."""
    return [*permutations(topics, 2)]


def hub(topics: Sequence[str]) -> list[tuple[str, str]]:
    """Return routers by which every topic feeds the hub and is fed by it."""
    return [pair for topic in topics for pair in ((topic, "hub"), ("hub", topic))]


@pytest.mark.parametrize("form", [full, hub])
def test_topics_of_one_node_feed_each_other_through_a_crash_without_an_echo(
    processes: Processes, form: Callable[[Sequence[str]], list[tuple[str, str]]]
) -> None:
    node = TopicNode(processes, "one")
    topics = ("A", "B", "C")
    for source, dest in form(topics):
        assert node.route(source, dest, fan_in=True)["fan_in"] is True
    followers = [Follower(node, topic, own=topic) for topic in topics]
    for topic in topics:
        node.v0("PUT", f"/topics/{topic}", {"durability": "fsync"})
    for follower in followers:
        follower.start()
    rounds = 16
    for number in range(rounds):
        for topic in topics:
            record = {"data": f"{topic}{number}", "node": topic, "tag": f"of:{topic}", "meta": {"n": number}}
            node.insist(topic, record, key=f"{topic}{number}")
        if number == rounds // 2:
            node.kill9()
            node.start()
    total = rounds * len(topics)
    everything = {
        content_of({"$node": topic, "$tag": f"of:{topic}", "meta": {"n": number}, "data": f"{topic}{number}"})
        for topic in topics
        for number in range(rounds)
    }
    try:
        for topic in {*topics, *(end for pair in form(topics) for end in pair)}:
            held = node.records(topic)  # a read waits for what its routers have to copy, over any number of routers
            assert (len(held), node.state(topic)["head_seq"]) == (total, total), topic
            assert {content_of(record) for record in held} == everything, topic
            for origin in topics:
                numbers = [record["meta"]["n"] for record in held if record["$node"] == origin]
                assert numbers == [*range(rounds)], f"{origin}, read in {topic}"
        for follower in followers:
            follower.wait_seen(total - rounds)
            assert {record["$node"] for record in follower.seen} == {*topics} - {follower.own}
            assert not duplicates_of([content_of(record) for record in follower.seen])
    finally:
        for follower in followers:
            follower.finish()
    print(f"{form.__name__}: {total} records, each once in every topic")  # noqa: T201
    assert node.stop() == 0
