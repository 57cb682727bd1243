"""Two nodes over one Postgres: one serves, and the other takes over when it ends, with nothing lost or doubled."""

from __future__ import annotations

import http.client
import json
import random
import signal
import sys
import threading
import time
from collections import Counter
from copy import copy

import pytest
import sqlalchemy as sa

from tests.acceptance.test_kill import Emitter
from tests.support.declared import group
from tests.support.postgres import PostgresServer
from tests.support.processes import Processes
from tests.support.running import ApiError, NodeProcess
from tests.support.silent_proxy import silent_proxy
from tests.support.waiting import wait_for

IMPATIENT = (
    sys.executable,
    "-c",
    "from eventd.cli import routerd_eventd; from eventd.cli.daemon import standby;"
    " standby.SILENT_SECONDS = 4; routerd_eventd.main()",
)
"""The daemon, but it considers a node lost that does not check its claim for 4 seconds instead of 15."""


def standing_by(node: NodeProcess) -> None:
    """Wait until the node is on standby."""

    def so() -> bool:
        try:
            status, body = node.process.get("/readyz")
        except (AssertionError, OSError):
            return False
        return status == 503 and json.loads(body)["status"] == "standing by"

    wait_for(so, f"{node.name} to stand by")


@pytest.fixture
def pair(processes: Processes, postgres_url: str) -> tuple[NodeProcess, NodeProcess]:
    a = NodeProcess(processes, "a", database_url=postgres_url, EVENTD_STANDBY="1")
    a.process.wait_ready()
    b = NodeProcess(processes, "b", database_url=postgres_url, ready=False, EVENTD_STANDBY="1")
    standing_by(b)
    return a, b


@pytest.mark.postgres
@pytest.mark.timeout(300)
def test_the_other_takes_over_from_one_that_was_killed(
    pair: tuple[NodeProcess, NodeProcess], processes: Processes, chance: random.Random
) -> None:
    active, other = pair
    peer = NodeProcess(processes, "c")
    peer.process.wait_ready()
    peer.join()
    active.join(peer), peer.join(active)
    emitter = Emitter(copy(active), chance.getrandbits(32))
    emitter.start()
    try:
        for _ in range(2):
            so_far = len(emitter.acknowledged)
            wait_for(lambda so_far=so_far: len(emitter.acknowledged) > so_far, "events to arrive")  # type: ignore[misc]
            active.kill9()
            other.process.wait_ready()
            active.process.start()
            standing_by(active)
            active, other = other, active
            emitter.node.process = active.process
    finally:
        emitter.finish()
    active.wait_sent("c", seconds=60)
    here = active.ids()
    assert set(emitter.acknowledged) <= set(here)
    assert Counter(peer.ids(source="a")) == Counter(here) == Counter(set(here))
    processes.close()  # before the database they use is dropped


class Watch(threading.Thread):
    """Polls the readiness of both nodes, and counts how often both were ready at the same moment."""

    def __init__(self, *nodes: NodeProcess) -> None:
        super().__init__(name="watch of readiness")
        self.both = 0
        self._nodes = nodes
        self._end = threading.Event()

    def run(self) -> None:
        one, other = self._nodes
        while not self._end.is_set():
            # Ready before and after the other one was: so it was in between.
            if ready(one) and ready(other) and ready(one):
                self.both += 1
            self._end.wait(0.03)

    def __enter__(self) -> Watch:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self.join(30)


def ready(node: NodeProcess) -> bool:
    """Return whether the node is ready, within a moment."""
    try:
        return node.process.get("/readyz", seconds=0.5)[0] == 200
    except (AssertionError, ValueError, OSError, http.client.HTTPException):
        return False


def in_transaction(url: str) -> bool:
    """Return whether a node's writer is blocked inside a transaction."""
    sql = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND starts_with(application_name, 'eventd-writer') AND state = 'idle in transaction'"
        " AND state_change < clock_timestamp() - interval '50 milliseconds'"
    )
    with PostgresServer.connect(url) as session:
        (found,) = session.execute(sql).fetchone() or (0,)
        return bool(found)


def end_claim(url: str) -> None:
    """End the session that holds the claim, as a network failure does."""
    sql = (
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE locktype = 'advisory' AND granted"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    with PostgresServer.connect(url) as session:
        assert session.execute(sql).fetchall() == [(True,)]


@pytest.mark.postgres
@pytest.mark.timeout(300)
@pytest.mark.parametrize("lost", ["frozen", "cut off"])
def test_the_other_takes_over_from_one_that_is_lost_inside_a_transaction(
    lost: str, processes: Processes, postgres_url: str, chance: random.Random
) -> None:
    with silent_proxy(int(sa.make_url(postgres_url).port or 0)) as proxy:
        way = sa.make_url(postgres_url).set(port=proxy.port).render_as_string(hide_password=False)
        active = NodeProcess(processes, "a", database_url=way, program=IMPATIENT, EVENTD_STANDBY="1")
        active.process.wait_ready()
        other = NodeProcess(
            processes, "b", database_url=postgres_url, ready=False, program=IMPATIENT, EVENTD_STANDBY="1"
        )
        standing_by(other)
        active.apply(group("a", secret=active.secret))  # listens nowhere: on this machine, both would want the address
        emitter = Emitter(copy(active), chance.getrandbits(32))
        emitter.start()

        def stop() -> bool:
            """Stop the node; return True if that was inside a transaction, otherwise it runs again."""
            so_far = len(emitter.acknowledged)
            wait_for(lambda: len(emitter.acknowledged) > so_far, "events to come in")
            active.process.send(signal.SIGSTOP) if lost == "frozen" else proxy.silent.set()
            time.sleep(0.1)  # statements that run in the server complete
            if in_transaction(postgres_url):
                return True
            active.process.send(signal.SIGCONT) if lost == "frozen" else proxy.silent.clear()
            return False

        try:
            wait_for(stop, "it to be lost inside a transaction", seconds=60)
            with Watch(active, other) as watch:
                other.process.wait_ready()
                other.emit("of-b")
                active.process.send(signal.SIGCONT) if lost == "frozen" else proxy.silent.clear()
                assert active.process.wait_exit() == 1  # its service manager would start it again, on standby
        finally:
            emitter.finish()
        assert watch.both == 0
        here = other.ids()
        assert {*emitter.acknowledged, "of-b"} <= set(here)
        assert len(here) == len(set(here))
        assert f"process {other.process.pid} on " in active.process.log()
        assert "silent claim ended" in other.process.log()
        processes.close()  # before the database they use is dropped


@pytest.mark.postgres
@pytest.mark.timeout(300)
def test_workers_whose_parent_is_frozen_write_no_more(processes: Processes, postgres_url: str) -> None:
    """The workers run and answer, but their parent held the claim."""
    settings = {"EVENTD_STANDBY": "1", "EVENTD_WORKERS": "2"}
    active = NodeProcess(processes, "a", database_url=postgres_url, program=IMPATIENT, **settings)
    active.process.wait_ready()
    other = NodeProcess(processes, "b", database_url=postgres_url, ready=False, program=IMPATIENT, **settings)
    standing_by(other)
    active.apply(group("a", secret=active.secret))
    active.emit("one")
    with Watch(active, other) as watch:
        active.process.send(signal.SIGSTOP)
        other.process.wait_ready()
        for _ in range(4):  # either of the workers may be asked, over a session that was ended or a new one
            with pytest.raises(ApiError, match="database_unavailable") as refused:
                active.emit("two")
        assert "this node does not hold its claim on the database" in str(refused.value)
        assert not ready(active)
        other.emit("three")
        active.process.send(signal.SIGCONT)
        assert active.process.wait_exit() == 1
    assert watch.both == 0
    assert other.ids() == ["one", "three"]
    processes.close()  # before the database they use is dropped


@pytest.mark.postgres
@pytest.mark.timeout(300)
def test_never_are_both_ready(pair: tuple[NodeProcess, NodeProcess], postgres_url: str) -> None:
    active, other = pair
    with Watch(active, other) as watch:
        for _ in range(2):
            end_claim(postgres_url)
            other.process.wait_ready()
            assert active.process.wait_exit() == 1
            active.process.start()
            standing_by(active)
            active, other = other, active
    assert watch.both == 0


@pytest.mark.postgres
def test_who_stands_by_refuses_and_takes_over_at_once_from_one_that_stops(
    pair: tuple[NodeProcess, NodeProcess],
) -> None:
    active, other = pair
    address = other.process.url
    active.join()
    active.emit("one")
    with pytest.raises(ApiError, match=r"503 unavailable: this node stands by: process .* serves the database"):
        other.emit("x")
    assert json.loads(other.process.get("/healthz")[1])["standby"] is True
    assert "\nrouterd_eventd_standby 1.0" in other.process.get("/metrics")[1].decode()
    assert "\nrouterd_eventd_standby 0.0" in active.process.get("/metrics")[1].decode()
    assert active.stop() == 0
    other.process.wait_ready()
    assert other.process.url == address
    assert other.ids() == ["one"]
    active.process.start()
    standing_by(active)
    assert active.stop() == 0  # it need not have served to exit cleanly
    assert other.process.running


def test_a_sqlite_file_has_no_standby(processes: Processes) -> None:
    node = processes.serve("a", "--standby", ready=False)
    assert node.wait_exit() == 1
    assert "--standby needs Postgres" in node.log()
