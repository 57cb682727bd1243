"""`verify` finds what a peer lost after confirming it, and one command repairs it."""

from __future__ import annotations

import json
import subprocess

from tests.support.processes import Processes
from tests.support.running import NodeProcess

OLD = [f"old-{number:03}" for number in range(150)]
NEW = [f"new-{number:03}" for number in range(250)]


def _control(processes: Processes, node: NodeProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    return processes.control(*arguments, env=processes.node_environment(node.name))


def _with_a_restored_peer(processes: Processes) -> tuple[NodeProcess, NodeProcess]:
    """`a` sends to `b`, which was restored to a copy without the last 250 events. Nothing else happens."""
    a, b = NodeProcess(processes, "a"), NodeProcess(processes, "b")
    b.join()
    a.join(b)
    for start in range(0, len(OLD), 50):
        a.emit(*OLD[start : start + 50])
    a.wait_sent("b")
    copy = processes.directory / "b.copy"
    done = _control(processes, b, "db", "backup", str(copy))
    assert done.returncode == 0, done.stderr
    for start in range(0, len(NEW), 50):
        a.emit(*NEW[start : start + 50])
    a.wait_sent("b")
    assert b.stop() == 0
    done = _control(processes, b, "db", "restore", str(copy), "--yes")
    assert done.returncode == 0, done.stderr
    b.start()
    assert b.ids() == OLD
    return a, b


def test_a_restored_receiver_is_found_event_by_event_and_repaired(processes: Processes) -> None:
    a, b = _with_a_restored_peer(processes)
    table = _control(processes, a, "verify", "--peer", "b")
    assert table.returncode == 4
    assert "151-400" in table.stdout
    assert "b is at position 150, but had confirmed everything up to 400: it has lost records" in table.stderr
    repaired = _control(processes, a, "verify", "--peer", "b", "--repair", "-o", "json")
    assert repaired.returncode == 0, repaired.stderr
    report = json.loads(repaired.stdout)
    assert (report["clean"], report["repair"]) == (True, {"events": 250, "done": True, "trouble": ""})
    assert b.ids() == [*OLD, *NEW]
    assert b.counts() == (400, 400)
    assert a.secret.read_text() not in table.stdout + table.stderr + repaired.stdout + repaired.stderr


def test_the_same_over_http(processes: Processes) -> None:
    a, b = _with_a_restored_peer(processes)
    there = ["verify", "--peer", "b", "--server", a.process.url]
    named = _control(processes, a, *there, "-o", "name")
    assert (named.returncode, named.stdout.split()) == (4, NEW)
    assert _control(processes, a, *there, "--repair").returncode == 0
    assert b.ids() == [*OLD, *NEW]
    clean = _control(processes, a, *there)
    assert clean.returncode == 0, clean.stderr
    assert clean.stdout.split()[-1] == "clean"


def test_the_node_may_be_down(processes: Processes) -> None:
    a, b = _with_a_restored_peer(processes)
    a.stop()
    asked = _control(processes, a, "verify", "--peer", "b", "--repair")
    assert asked.returncode == 4
    assert "151-400" in asked.stdout
    assert "no node serves this database now; a node sends them when it starts" in asked.stderr
    a.start()
    b.wait_holds({*OLD, *NEW})
    a.wait_sent("b")
    assert b.counts() == (400, 400)
