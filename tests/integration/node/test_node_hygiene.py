"""Churn leaks nothing: no task, no descriptor, no thread, and no memory beyond a steady level.

EVENTD_TEST_CHURN names the rounds of the long version.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections import Counter
from pathlib import Path

from eventd.testing import until
from tests.integration.conftest import MakeSites
from tests.support.declared import peer
from tests.support.ports import free_port
from tests.support.processes import Processes
from tests.support.running import SECRET, NodeProcess
from tests.support.v1_node import V1Sender, body_of
from tests.support.v2_sender import V2Sender, line

KEPT = 8
"""How many descriptors, or tasks of connections, may be added: connections are kept for a while; 10 turns may not add
one each."""
OF_CONNECTIONS = "RequestHandler."


def _rounds() -> int:
    return int(os.environ.get("EVENTD_TEST_CHURN", "30"))


async def test_peers_that_come_and_go_leave_no_task_and_no_descriptor(sites: MakeSites) -> None:
    a, b = sites("a", "b")
    for node in (a, b):
        await node.start()
        await node.join()

    dead = free_port()

    async def turn(number: int) -> None:
        await a.apply(peer("b", b.port, types=["t", f"x{number}"]), peer("dead", dead))
        await a.emit(f"e{number}")
        await b.holds(f"e{number}")
        await a.ask("links.pause", group="edge", peer="b")
        await a.ask("links.resume", group="edge", peer="b")
        await a.caught_up("b")
        await a.ask("deliveries.redeliver", group="edge", peer="b", ids=[f"e{number}"])
        await a.caught_up("b")
        await a.running.reload()
        await a.ask("resources.delete", kind="EventPeer", name="edge-dead")
        await a.ask("resources.delete", kind="EventPeer", name="edge-b")
        await a.settled()

    for number in range(3):
        await turn(number)
    tasks, descriptors = _tasks(), _descriptors()
    for number in range(3, 13):
        await turn(number)
    with contextlib.suppress(AssertionError):  # what a turn has begun may still be ending
        await until(lambda: not _left(tasks))
    assert _left(tasks) == {}
    assert _descriptors() <= descriptors + KEPT


def _tasks() -> Counter[str]:
    """Count the tasks by the coroutine that they run."""
    return Counter(task.get_coro().__qualname__ for task in asyncio.all_tasks())


def _left(before: Counter[str]) -> dict[str, int]:
    """Return how many tasks of each kind there are more than before."""
    more = _tasks() - before
    return {kind: count for kind, count in more.items() if count > KEPT * kind.startswith(OF_CONNECTIONS)}


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_process_under_churn_settles(processes: Processes) -> None:
    a, b = NodeProcess(processes, "a"), NodeProcess(processes, "b")
    a.join(), b.join()
    a.join(b), b.join(a)
    v1, v2 = V1Sender(b.port, SECRET.encode()), V2Sender(b.port)

    def churn(numbers: range) -> None:
        for number in numbers:
            a.emit(*[f"a{number}-{at}" for at in range(20)])
            b.emit(f"b{number}")
            v1.post(body_of(f"v{number}"))
            v1.post(b"nonsense", sign="wrong")
            v2.send(v2.batch(line(f"w{number}")))
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", b.port)) as link:
                link.sendall(b"POST /v2/events HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc")
            if number % 10 == 0:
                a.apply(peer("b", b.port, limits={"inFlight": 1 + number // 10 % 4}))
                a.link("b")

    churn(range(1, 21))
    before = {node.name: _use(node) for node in (a, b)}
    churn(range(21, 21 + _rounds()))
    a.wait_sent("b")
    for node in (a, b):
        descriptors, threads, memory = _use(node)
        was = before[node.name]
        assert descriptors <= was[0] + 8, f"{node.name}: {was[0]} descriptors became {descriptors}"
        assert threads <= was[1] + 3, f"{node.name}: {was[1]} threads became {threads}"
        assert memory <= was[2] + (40 << 20), f"{node.name}: {was[2] >> 20} MiB became {memory >> 20} MiB"


def _use(node: NodeProcess) -> tuple[int, int, int]:
    """Descriptors, threads, resident bytes."""
    place = Path(f"/proc/{node.process.pid}")
    fields = dict(line.split(":", 1) for line in (place / "status").read_text().splitlines() if ":" in line)
    return len(list((place / "fd").iterdir())), int(fields["Threads"]), int(fields["VmRSS"].split()[0]) * 1024
