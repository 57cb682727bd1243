"""Two nodes over one Postgres: one serves, and the other goes on for it when it ends, with nothing lost or doubled."""

from __future__ import annotations

import json
import random
from collections import Counter
from copy import copy

import pytest

from tests.acceptance.test_kill import Emitter
from tests.support.processes import Processes
from tests.support.running import Refused, Running
from tests.support.waiting import wait_for


def standing_by(node: Running) -> None:
    """Until it waits for the other."""

    def so() -> bool:
        try:
            status, body = node.process.get("/readyz")
        except (AssertionError, OSError):
            return False
        return status == 503 and json.loads(body)["status"] == "standing by"

    wait_for(so, f"{node.name} to stand by")


@pytest.fixture
def pair(processes: Processes, postgres_url: str) -> tuple[Running, Running]:
    a = Running(processes, "a", database_url=postgres_url, EVENTD_STANDBY="1")
    a.process.wait_ready()
    b = Running(processes, "b", database_url=postgres_url, ready=False, EVENTD_STANDBY="1")
    standing_by(b)
    return a, b


@pytest.mark.postgres
@pytest.mark.timeout(300)
def test_the_other_takes_over_from_one_that_was_killed(pair: tuple[Running, Running], processes: Processes) -> None:
    active, other = pair
    peer = Running(processes, "c")
    peer.process.wait_ready()
    peer.join()
    active.join(peer), peer.join(active)
    emitter = Emitter(copy(active), random.SystemRandom().randrange(1 << 32))
    emitter.start()
    try:
        for _ in range(3):
            so_far = len(emitter.acknowledged)
            wait_for(lambda so_far=so_far: len(emitter.acknowledged) > so_far, "facts to come in")  # type: ignore[misc]
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
    processes.close()  # before the database they use goes


@pytest.mark.postgres
def test_who_stands_by_says_so_and_refuses_the_rest(pair: tuple[Running, Running]) -> None:
    active, other = pair
    with pytest.raises(Refused, match=r"503 unavailable: this node stands by: process .* serves the database"):
        other.emit("x")
    assert json.loads(other.process.get("/healthz")[1])["standby"] is True
    assert "\nrouterd_eventd_standby 1.0" in other.process.get("/metrics")[1].decode()
    assert "\nrouterd_eventd_standby 0.0" in active.process.get("/metrics")[1].decode()
    assert other.stop() == 0  # it need not have served to end well
    assert active.process.running


@pytest.mark.postgres
def test_a_stop_hands_over_at_once_on_the_same_address(pair: tuple[Running, Running]) -> None:
    active, other = pair
    address = other.process.url
    active.join()
    active.emit("one")
    assert active.stop() == 0
    other.process.wait_ready()
    assert other.process.url == address
    assert other.ids() == ["one"]


def test_a_sqlite_file_has_no_standby(processes: Processes) -> None:
    node = processes.serve("a", "--standby", ready=False)
    assert node.wait_exit() == 1
    assert "a node can stand by only for one on Postgres" in node.log()
