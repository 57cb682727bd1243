"""kill -9 at any moment of a node that ships to a lake, or of its shipping process: every row is in the lake, once."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from eventd.lake.schema import Ledger
from tests.acceptance.test_kill import Emitter
from tests.support.processes import Processes
from tests.support.running import NodeProcess
from tests.support.shipped import files, rows, survey_lake
from tests.support.waiting import wait_for


def ship_to(lake: Path) -> dict[str, str]:
    """Return settings with which a node ships at once, at normal priority."""
    return {"EVENTD_LAKE": str(lake), "EVENTD_LAKE_INTERVAL": "50ms", "EVENTD_LAKE_NICE": "0"}


def shipping_process(node: NodeProcess) -> int | None:
    """Return the pid of the process that ships for a node."""
    try:
        children = Path(f"/proc/{node.process.pid}/task/{node.process.pid}/children").read_text().split()
        ours = [int(pid) for pid in children if b"egress.lake.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    except OSError:  # one of them has just exited
        return None
    return ours[0] if ours else None


def wait_shipping(node: NodeProcess) -> int:
    """Wait until a node has a process that ships."""
    return wait_for(lambda: shipping_process(node), f"{node.name} to ship") or 0


def status(node: NodeProcess) -> list[dict[str, Any]]:
    """Return how far each ledger table has been shipped, as an operator sees it."""
    books: list[dict[str, Any]] = node.ask("GET", "/lake")["books"]
    return books


def wait_shipped(node: NodeProcess) -> None:
    """Wait until nothing is left to ship, and the node knows it."""
    wait_for(
        lambda: (books := status(node)) and all(not book["waiting"] for book in books),
        f"{node.name} to have shipped everything",
        seconds=90,
    )


def kill(node: NodeProcess, chance: random.Random, *, only_shipping: bool) -> None:
    """Kill the node, or its shipping process alone, at a random moment of its work."""
    time.sleep(chance.random())
    if only_shipping:
        with contextlib.suppress(ProcessLookupError):
            os.kill(wait_shipping(node), signal.SIGKILL)
    else:
        node.kill9()
        node.start()


@pytest.mark.timeout(300)
def test_every_row_is_in_the_lake_once_whatever_is_killed(
    processes: Processes, tmp_path: Path, chance: random.Random
) -> None:
    lake = tmp_path / "lake"
    a = NodeProcess(processes, "a", **ship_to(lake))
    b = NodeProcess(processes, "b")
    a.join(), b.join()
    a.join(b), b.join(a)
    emitter = Emitter(a, chance.getrandbits(32))
    emitter.start()
    try:
        wait_shipping(a)
        for only_shipping in chance.sample([True, True, False, False], 4):
            kill(a, chance, only_shipping=only_shipping)
    finally:
        emitter.finish()
    a.wait_sent("b", seconds=60)
    wait_shipped(a)
    ids = a.ids()
    assert set(emitter.acknowledged) <= set(ids)
    events, deliveries = rows(lake, Ledger.EVENTS), rows(lake, Ledger.DELIVERIES)
    assert [row["id"] for row in events] == ids
    assert [row["number"] for row in events] == [*range(1, len(ids) + 1)]
    assert sorted(row["id"] for row in deliveries) == sorted(ids)
    assert {row["outcome"] for row in deliveries} == {"delivered"}
    receipts = rows(lake, Ledger.RECEIPTS)
    assert sum(row["sent"] for row in receipts) == len(ids)
    assert len({row["batch_id"] for row in receipts}) == len(receipts)
    assert len(files(lake)) == len(survey_lake(lake).segments), "a file is left that no manifest speaks of"
    wait_for(lambda: not files(lake, ".tmp"), "whatever was left half-way to be gone")  # one may be running now


def test_a_full_lake_holds_the_books_and_delivers_all_the_same(processes: Processes, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    a = NodeProcess(processes, "a", **ship_to(lake))
    b = NodeProcess(processes, "b")
    a.join(), b.join()
    a.join(b), b.join(a)
    wait_for(lambda: status(a) and all(book["lastSuccessAt"] or not book["last"] for book in status(a)), "a lake")
    wait_shipped(a)
    pid = wait_shipping(a)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (16, resource.RLIM_INFINITY))  # what a full disk looks like to it
    a.emit(*[f"e{number}" for number in range(20)])

    def held_up() -> bool:
        return {(book["state"], book["reason"]) for book in status(a)} == {("backing-off", "lake_unavailable")}

    wait_for(held_up, "shipping to be held up", seconds=60)
    assert "cannot write" in status(a)[0]["lastError"]
    assert str(lake) in status(a)[0]["lastError"]
    a.emit(*[f"f{number}" for number in range(20)])
    a.wait_sent("b")
    doctor = processes.control("doctor", "--server", a.process.url)
    assert "lake-down" in processes.control("doctor", "-o", "json", "--server", a.process.url).stdout
    assert doctor.returncode == 0, doctor.stdout
    told = processes.control("lake", "status", "--server", a.process.url)
    assert "backing-off" in told.stdout
    metrics = a.process.get("/metrics")[1].decode()
    assert 'routerd_eventd_lake_state{state="backing-off"} 1.0' in metrics
    assert 'routerd_eventd_lake_failures_total{reason="lake_unavailable"}' in metrics
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    wait_shipped(a)
    assert len(rows(lake, Ledger.EVENTS)) == 40
    wait_for(lambda: {book["state"] for book in status(a)} == {"running"}, "every table to continue")
    assert a.process.get("/metrics")[1].decode().count('lake_state{state="running"} 1.0') == 1
