"""kill -9 of either node at any moment, with traffic in both directions: both nodes hold every acknowledged event,
once, in the order of its source."""

from __future__ import annotations

import http.client
import random
import threading
import time
from collections.abc import Iterator

import pytest

from eventd.client import Client, NewEvent
from tests.support.fresh import create_current
from tests.support.ports import free_port
from tests.support.postgres import PostgresServer
from tests.support.processes import Processes
from tests.support.running import ApiError, NodeProcess
from tests.support.waiting import wait_for


class Emitter(threading.Thread):
    """Emits events at a node while it runs, and records which ones were acknowledged."""

    def __init__(self, node: NodeProcess, seed: int) -> None:
        super().__init__(name=f"emitter {node.name}")
        self.node = node
        self.acknowledged: list[str] = []
        self.attempts = 0
        self._random = random.Random(seed)
        self._end = threading.Event()
        self._number = 0

    def run(self) -> None:
        while not self._end.is_set():
            # An id is used once: whether an unanswered event was stored is decided by the logs.
            ids = [f"{self.node.name}-{self._number + at:06}" for at in range(self._random.randint(1, 20))]
            self._number += len(ids)
            self.attempts += 1
            try:
                self.node.emit(*ids)
            except (OSError, http.client.HTTPException, AssertionError, ValueError, ApiError):
                self._end.wait(0.02)  # it is dead, or not yet up
            else:
                self.acknowledged += ids
            self._end.wait(self._random.random() * 0.06)  # most of a test's cost is the nodes' work for its events

    def finish(self) -> None:
        self._end.set()
        self.join(30)
        assert not self.is_alive()


def _crash(node: NodeProcess, chance: random.Random, *, at_start: bool) -> None:
    """Kill the node at a random moment of its work, and `at_start` of its next start too; it is up again afterwards."""
    if at_start:
        time.sleep(chance.random() * 0.1)
        node.kill9()
        node.process.start()
        time.sleep(chance.random() * 0.6)  # anywhere between nothing done and everything open
    else:
        time.sleep(chance.random() * 0.3)
    node.kill9()
    node.start()


def _storm(a: NodeProcess, b: NodeProcess, kills: int, chance: random.Random) -> None:
    emitters = [Emitter(node, chance.getrandbits(32)) for node in (a, b)]
    counted = {"a": 0, "b": 0}
    for emitter in emitters:
        emitter.start()
    try:
        early = chance.randrange(kills)
        for number in range(kills):
            node = chance.choice((a, b))
            _crash(node, chance, at_start=number == early)
            counted[node.name] += 1
        wait_for(lambda: all(emitter.acknowledged for emitter in emitters), "both nodes to have acknowledged events")
    finally:
        for emitter in emitters:
            emitter.finish()
    said = ", ".join(f"{e.node.name} acknowledged {len(e.acknowledged)} events" for e in emitters)
    print(f"killed a {counted['a']} and b {counted['b']} times; {said}")  # noqa: T201
    _judge(a, b, emitters)


def _judge(a: NodeProcess, b: NodeProcess, emitters: list[Emitter]) -> None:
    for node, other in ((a, b), (b, a)):
        node.wait_sent(other.name, seconds=60)
    for emitter, other in zip(emitters, (b, a), strict=True):
        own, there = emitter.node.ids(source=emitter.node.name), other.ids(source=emitter.node.name)
        stored = set(own)
        lost = [event for event in emitter.acknowledged if event not in stored]
        assert not lost, f"{emitter.node.name} lost {len(lost)} acknowledged events, the first is {lost[0]}"
        assert own == sorted(own), f"{emitter.node.name} holds its own events in another order than they came"
        assert there == own, f"{other.name} does not hold the events of {emitter.node.name} in their order"
    for node in (a, b):
        events, records = node.counts()
        assert events == records, f"{node.name} made {records} records of {events} events"
        assert node.letters() == []
    assert a.counts() == b.counts()


@pytest.mark.timeout(300)
def test_acknowledged_events_survive_kills_on_sqlite(processes: Processes, chance: random.Random) -> None:
    a, b = NodeProcess(processes, "a"), NodeProcess(processes, "b")
    a.join(), b.join()
    a.join(b), b.join(a)
    _storm(a, b, kills=4, chance=chance)


@pytest.mark.timeout(300)
def test_acknowledged_events_survive_kills_on_postgres(
    processes: Processes, postgres_server: PostgresServer, postgres_url: str, chance: random.Random
) -> None:
    second = create_current(postgres_server)
    try:
        a = NodeProcess(processes, "a", database_url=postgres_url)
        b = NodeProcess(processes, "b", database_url=second)
        a.join(), b.join()
        a.join(b), b.join(a)
        _storm(a, b, kills=3, chance=chance)
    finally:
        processes.close()
        postgres_server.drop_database(second)


def test_a_stop_by_signal_drains_and_loses_nothing(processes: Processes) -> None:
    a, b = NodeProcess(processes, "a"), NodeProcess(processes, "b")
    a.join(), b.join()
    a.join(b), b.join(a)
    emitters = [Emitter(a, 1), Emitter(b, 2)]
    for emitter in emitters:
        emitter.start()
    try:
        for node in (a, b):
            before = len(emitters[0].acknowledged) + len(emitters[1].acknowledged)
            wait_for(
                lambda before=before: sum(len(e.acknowledged) for e in emitters) > before + 50,  # type: ignore[misc]
                "some traffic",
            )
            begun = time.monotonic()
            assert node.stop() == 0
            assert time.monotonic() - begun < 5
            assert "Traceback" not in node.process.log()
            node.start()
    finally:
        for emitter in emitters:
            emitter.finish()
    _judge(a, b, emitters)


@pytest.mark.timeout(120)
async def test_a_program_that_publishes_through_kills_loses_and_doubles_nothing(processes: Processes) -> None:
    node = NodeProcess(processes, "a", EVENTD_API_LISTEN=f"127.0.0.1:{free_port()}")
    node.join()

    def make_events() -> Iterator[NewEvent]:
        for number in range(20_000):
            if number in (5_000, 12_000):  # with a window under way
                node.kill9()
                node.process.start()
            yield NewEvent("t", f"{number:05}")

    async with Client(f"http://127.0.0.1:{node.process.port}") as client, client.publisher("edge") as publisher:
        fates = await publisher.emit_all(make_events())
        assert publisher._channel.is_on, "it has not fallen back to requests"
    assert set(fates) <= {"new", "duplicate"}, next(fate for fate in fates if not isinstance(fate, str))
    assert len(fates) == 20_000
    assert node.counts() == (20_000, 20_000)
