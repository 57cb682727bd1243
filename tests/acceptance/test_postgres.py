"""Nodes over a server that drops connections, stops and returns: they wait for it, and lose nothing."""

from __future__ import annotations

import contextlib
import http.client
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator

import psycopg
import pytest

from tests.support.postgres import PostgresServer, server_or_skip
from tests.support.processes import Processes
from tests.support.running import SECRET, ApiError, NodeProcess
from tests.support.v1_node import V1Sender, body_of
from tests.support.waiting import wait_for

pytestmark = pytest.mark.postgres
_FAULTS = ("Traceback", "Unhandled exception", "Error handling request", "Task exception", "consumer failed")
_END_SOME = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND random() < 0.7"


class Restartable:
    """A server of this test alone, so that it may be stopped."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server

    def stop(self) -> None:
        """Stop with a fast shutdown: every session ends."""
        process = self._process
        process.send_signal(signal.SIGINT)
        process.wait(20)

    def start(self) -> None:
        """Start the same cluster again, on the same port."""
        old = self._process
        new = subprocess.Popen(
            old.args, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/"
        )
        self.server._process = new
        wait_for(self.server._answers, "the server to be back", seconds=30)

    @property
    def _process(self) -> subprocess.Popen[bytes]:
        assert self.server._process is not None
        return self.server._process


@pytest.fixture
def restartable() -> Iterator[Restartable]:
    with server_or_skip() as server:
        yield Restartable(server)


def _faults(node: NodeProcess) -> list[str]:
    log = node.process.log()
    return [fault for fault in _FAULTS if fault in log]


def test_a_server_that_stops_is_waited_for(processes: Processes, restartable: Restartable) -> None:
    a = NodeProcess(processes, "a", database_url=restartable.server.create_database())
    b = NodeProcess(processes, "b")
    a.join(), b.join()
    a.join(b), b.join(a)
    a.emit("a1")
    b.emit("b1")
    a.wait_holds({"a1", "b1"})
    b.wait_holds({"a1", "b1"})
    restartable.stop()
    with pytest.raises(ApiError) as caught:
        a.emit("lost")
    assert (caught.value.status, caught.value.code) == (503, "database_unavailable")
    sender = V1Sender(a.port, SECRET.encode())
    assert sender.post(body_of("x")).body == b"store error\n"
    status = sender.status()
    assert (status.status, status.body) == (500, b"store error\n")
    b.emit("b2")
    b.wait_link("a", "backing-off", "unavailable")
    wait_for(lambda: a.process.get("/readyz")[0] == 503, "the node to say that it is not ready")
    assert a.process.get("/healthz")[0] == 200
    restartable.start()
    a.process.wait_ready(seconds=20)

    def takes() -> bool:
        with contextlib.suppress(ApiError):
            a.emit("a2")
            return True
        return False

    wait_for(takes, "the node to take events again")
    a.wait_holds({"a1", "a2", "b1", "b2"})
    b.wait_holds({"a1", "a2", "b1", "b2"})
    assert a.ids(source="a") == ["a1", "a2"]
    a.wait_sent("b")
    assert a.counts() == b.counts() == (4, 4)
    assert not _faults(a)
    assert a.stop() == 0


def _wait_calm(node: NodeProcess) -> None:
    """Wait until no closed connection is left in the node's pool: each makes one request fail."""
    answered = 0

    def calm() -> bool:
        nonlocal answered
        try:
            node.ids()
            answered += 1
        except ApiError:
            answered = 0
        return answered >= 12

    wait_for(calm, f"{node.name} to answer every time")


def test_sessions_that_are_ended_at_random_moments_lose_nothing(
    processes: Processes, postgres_server: PostgresServer, postgres_url: str
) -> None:
    a, b = NodeProcess(processes, "a", database_url=postgres_url), NodeProcess(processes, "b")
    a.join(), b.join()
    a.join(b), b.join(a)
    acknowledged: dict[str, list[str]] = {"a": [], "b": []}
    end = threading.Event()

    def emit(node: NodeProcess) -> None:
        number = 0
        while not end.wait(0.01):
            ids = [f"{node.name}{number + at:05}" for at in range(5)]
            number += 5
            with contextlib.suppress(ApiError, OSError, http.client.HTTPException):
                node.emit(*ids)
                acknowledged[node.name] += ids

    emitters = [threading.Thread(target=emit, args=(node,)) for node in (a, b)]
    for emitter in emitters:
        emitter.start()
    chance = random.Random(5)
    target = f"host=127.0.0.1 port={postgres_server.port} user=postgres dbname=postgres"
    name = postgres_url.rsplit("/", 1)[1]
    try:
        with psycopg.connect(target, autocommit=True) as session:
            for _ in range(8):
                time.sleep(chance.random() * 0.3)
                session.execute(_END_SOME, (name,))
        wait_for(lambda: all(len(ids) > 50 for ids in acknowledged.values()), "50 events of each to be acknowledged")
    finally:
        end.set()
        for emitter in emitters:
            emitter.join(30)
    _wait_calm(a)
    a.wait_sent("b", seconds=60)
    b.wait_sent("a", seconds=60)
    for node, other in ((a, b), (b, a)):
        own = node.ids(source=node.name)
        assert set(acknowledged[node.name]) <= set(own)
        assert other.ids(source=node.name) == own == sorted(own)
    events, records = a.counts()
    assert events == records
    assert not _faults(a)


def test_an_event_put_in_by_another_process_goes_out_at_once(processes: Processes, postgres_url: str) -> None:
    a, b = NodeProcess(processes, "a", database_url=postgres_url), NodeProcess(processes, "b")
    a.join(), b.join()
    a.join(b)
    a.wait_link("b", "running")
    environment = processes.node_environment("a", database_url=postgres_url)
    done = processes.control(
        *("federation", "event", "emit", "--group", "edge", "--type", "t", "--id", "one"), env=environment
    )
    assert done.returncode == 0, done.stderr
    b.wait_holds({"one"}, seconds=2)
