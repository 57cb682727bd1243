"""A node of several processes: its clients see one node, whichever process answers, and whichever is killed."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import signal
import socket
import sys
from collections import Counter
from collections.abc import Iterator
from copy import copy
from pathlib import Path

import pytest

from tests.acceptance.test_kill import Emitter
from tests.support.child_processes import is_running
from tests.support.declared import group
from tests.support.ports import free_port
from tests.support.processes import Processes
from tests.support.running import ApiError, NodeProcess
from tests.support.waiting import wait_for

WORKERS = 3
IMPATIENT = (
    sys.executable,
    "-c",
    "from eventd.cli import routerd_eventd; from eventd.cli.daemon import workers;"
    " workers.SILENT_SECONDS = 8; routerd_eventd.main()",
)
"""The daemon, but it considers a process hung after 8 seconds without a heartbeat instead of 20; they are 5 seconds
apart."""


def workers(node: NodeProcess) -> list[int]:
    """Return the processes of a node, in the order in which they were started."""
    children = Path(f"/proc/{node.process.pid}/task/{node.process.pid}/children").read_text().split()
    found = []
    for pid in map(int, children):
        with contextlib.suppress(OSError):  # one has just exited
            if b"eventd.cli.daemon.worker" in Path(f"/proc/{pid}/cmdline").read_bytes() and is_running(pid):
                found.append(pid)
    return found


def wait_whole(node: NodeProcess, size: int = WORKERS) -> list[int]:
    """Wait until all processes exist and are ready; return them."""

    def whole() -> list[int] | None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if node.process.get("/readyz")[0] == 200 and len(found := workers(node)) == size:
                return found
        return None

    return wait_for(whole, f"all processes of {node.name} to be ready") or []


def figure(node: NodeProcess, name: str) -> float:
    """Return one figure of the node's metrics."""
    lines = node.process.get("/metrics")[1].decode().splitlines()
    return float(next(line for line in lines if line.startswith(f"{name} ")).split()[1])


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[NodeProcess, NodeProcess]]:
    """A node and a peer, both of several processes, for the tests that only ask."""
    processes = Processes(tmp_path_factory.mktemp("pair"))
    try:
        a = NodeProcess(processes, "a", EVENTD_WORKERS=str(WORKERS))
        b = NodeProcess(processes, "b", EVENTD_WORKERS="2")
        wait_whole(a), wait_whole(b, 2)
        a.join(), b.join()
        a.join(b), b.join(a)
        yield a, b
    finally:
        processes.close()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_facts_arrive_once_whichever_process_is_killed(
    kind: str, processes: Processes, request: pytest.FixtureRequest, chance: random.Random
) -> None:
    url = request.getfixturevalue("postgres_url") if kind == "postgres" else None
    a = NodeProcess(processes, "a", database_url=url, EVENTD_WORKERS=str(WORKERS))
    b = NodeProcess(processes, "b", EVENTD_WORKERS="2")
    wait_whole(a), wait_whole(b, 2)
    a.join(), b.join()
    a.join(b), b.join(a)
    second = copy(a)
    second.name = "a2"  # its ids begin with it
    emitters = [Emitter(node, chance.getrandbits(32)) for node in (a, second)]
    for emitter in emitters:
        emitter.start()
    try:
        for node, size in ((a, WORKERS), (b, 2), (a, WORKERS)):
            os.kill(chance.choice(wait_whole(node, size)), signal.SIGKILL)
    finally:
        for emitter in emitters:
            emitter.finish()
    wait_whole(a), wait_whole(b, 2)
    a.wait_sent("b", seconds=60)
    here = a.ids()
    acknowledged = {event for emitter in emitters for event in emitter.acknowledged}
    print(f"{len(acknowledged)} events were acknowledged")  # noqa: T201
    assert acknowledged
    assert acknowledged <= set(here)
    assert Counter(b.ids(source="a")) == Counter(here) == Counter(set(here))
    for node in (a, b):
        assert '"msg":"worker restarting"' in node.process.log()
        assert '"signal":9' in node.process.log()
    processes.close()  # before the database they use is dropped


def test_whatever_process_is_asked_answers_for_all(pair: tuple[NodeProcess, NodeProcess]) -> None:
    node, _ = pair
    names = [f"g{number}" for number in range(8)]
    node.apply(*(group("a", name=name, port=free_port(), secret=node.secret) for name in names))
    checks: set[str] = set()

    def told() -> bool:
        status, body = node.process.get("/readyz")
        checks.update(json.loads(body)["checks"])
        return status == 200 and checks >= {f"group {name}" for name in names}

    wait_for(told, "every group to be reported")
    before = figure(node, "routerd_eventd_commit_records_sum")
    for number in range(30):  # each request is a connection of its own, which any process may get
        node.emit(f"e{number}", group=names[number % len(names)])
    assert {figure(node, "routerd_eventd_commit_records_sum") for _ in range(6)} == {before + 30}
    own = [node.process.get("/metrics")[1].decode() for _ in range(6)]
    assert all(text.count("\nrouterd_eventd_log_head_position ") == 1 for text in own)
    # A watch resumes at any process.
    node.request("POST", "/v0/topics/jobs", {"records": [{"data": {"n": 1}}]})
    session = node.request("POST", "/v0/watch", {"topics": {"jobs": {"from_seq": 0}}})
    wid, path = session["wid"], session["stream_url"]
    assert wid.startswith(("wid_0.", "wid_1.", "wid_2."))
    for _ in range(8):
        connection = http.client.HTTPConnection("127.0.0.1", node.process.port, timeout=10)
        with contextlib.closing(connection):
            connection.request("GET", path, headers={"Accept": "text/event-stream", "Last-Event-ID": ""})
            answer = connection.getresponse()
            assert (answer.status, answer.getheader("Content-Type")) == (200, "text/event-stream"), answer.read()
            assert answer.fp.readline()


def test_a_map_is_the_same_whichever_process_is_asked(pair: tuple[NodeProcess, NodeProcess]) -> None:
    a, _ = pair

    def mapped() -> bool:
        told = [json.loads(a.process.get("/api/v1/map?group=edge&wait=5")[1]) for _ in range(8)]
        answers = [{node["node"]: node["answer"] for node in one["nodes"]} for one in told]
        return all(one == {"a": "self", "b": "answered"} for one in answers)

    wait_for(mapped, "every process to show what b reports")
    asked = [line for line in a.process.get("/metrics")[1].decode().splitlines() if "status_queries_total{" in line]
    assert sum(float(line.split()[-1]) for line in asked) <= 5, "one process asks for all"


def test_a_comparison_continues_whichever_process_is_asked(pair: tuple[NodeProcess, NodeProcess]) -> None:
    a, b = pair
    a.emit("one")
    b.wait_holds({"one"})
    path = "/groups/edge/peers/b/verify"
    answer = a.ask("POST", path, {"seconds": 0})
    run, asked = answer["run"], 0
    while not answer["done"]:
        asked += 1
        seen = [a.ask("POST", path, {"run": run, "look": True})["progress"] for _ in range(2 * WORKERS)]
        assert seen == [answer["progress"]] * len(seen)
        answer = a.ask("POST", path, {"run": run, "seconds": 0})
    assert asked > 1
    assert answer["report"]["clean"]
    for _ in range(2 * WORKERS):
        with pytest.raises(ApiError) as refused:
            a.ask("POST", path, {"run": run})
        assert (refused.value.status, refused.value.code) == (404, "not_found")


def test_a_process_that_hangs_is_told_and_started_again(processes: Processes) -> None:
    """Both a serving process and one that is not ready yet."""
    node = NodeProcess(processes, "a", program=IMPATIENT, EVENTD_WORKERS=str(WORKERS))
    before = wait_whole(node)
    os.kill(before[2], signal.SIGKILL)
    (begun,) = wait_for(lambda: set(workers(node)) - set(before), "it to be started again")
    os.kill(begun, signal.SIGSTOP)
    os.kill(before[1], signal.SIGSTOP)

    def told() -> bool:
        with contextlib.suppress(OSError, http.client.HTTPException):
            status, body = node.process.get("/readyz", seconds=5)
            return status == 503 and json.loads(body)["checks"].get("worker 1") == "does not answer"
        return False  # the kernel gave the connection to the hung process

    wait_for(told, "the report that worker 1 hangs")
    wait_for(lambda: not is_running(before[1]) and not is_running(begun), "both to be ended", seconds=60)
    assert {before[1], begun}.isdisjoint(wait_whole(node))
    assert node.process.log().count("worker hung") == 2


def test_killed_from_outside_or_stopped_it_leaves_no_process_and_can_start_again_at_once(processes: Processes) -> None:
    """It listens on the same addresses, which its processes still hold for a moment."""
    node = NodeProcess(processes, "a", EVENTD_WORKERS=str(WORKERS), EVENTD_API_LISTEN=f"127.0.0.1:{free_port()}")
    left = wait_whole(node)
    node.join()
    node.kill9()
    node.start()
    wait_whole(node)
    node.wait_listening()
    assert not any(map(is_running, left))
    node.emit("one")
    left = workers(node)
    assert node.stop() == 0
    assert not any(map(is_running, left))
    with socket.create_server(("127.0.0.1", node.port)):
        node.process.start()
        assert node.process.wait_exit() == 1
    assert f"error: EventGroup 'edge': cannot listen on 127.0.0.1 port {node.port}" in node.process.log()
    node.start()
    assert node.ids() == ["one"]
    left = wait_whole(node)
    node.kill9()
    wait_for(lambda: not any(map(is_running, left)), "its processes to end with it")
