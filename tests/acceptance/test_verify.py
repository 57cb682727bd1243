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


def _restore(processes: Processes, node: NodeProcess, copy: str) -> None:
    assert node.stop() == 0
    done = _control(processes, node, "db", "restore", copy, "--yes")
    assert done.returncode == 0, done.stderr


def test_a_restored_receiver_is_found_event_by_event_and_repaired(processes: Processes) -> None:
    """With the commands on the data of the running node, over HTTP, and while the node is down."""
    a, b = NodeProcess(processes, "a"), NodeProcess(processes, "b")
    b.join()
    a.join(b)
    a.emit(*OLD)
    a.wait_sent("b")
    copy = str(processes.directory / "b.copy")
    done = _control(processes, b, "db", "backup", copy)
    assert done.returncode == 0, done.stderr
    a.emit(*NEW)
    a.wait_sent("b")

    _restore(processes, b, copy)
    b.start()
    assert b.ids() == OLD
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

    _restore(processes, b, copy)
    b.start()
    there = ["verify", "--peer", "b", "--server", a.process.url]
    named = _control(processes, a, *there, "-o", "name")
    assert (named.returncode, named.stdout.split()) == (4, NEW)
    assert _control(processes, a, *there, "--repair").returncode == 0
    assert b.ids() == [*OLD, *NEW]
    clean = _control(processes, a, *there)
    assert clean.returncode == 0, clean.stderr
    assert clean.stdout.split()[-1] == "clean"

    _restore(processes, b, copy)
    a.stop()
    b.start()
    asked = _control(processes, a, "verify", "--peer", "b", "--repair")
    assert asked.returncode == 4
    assert "151-400" in asked.stdout
    assert "no node serves this database now; a node sends them when it starts" in asked.stderr
    a.start()
    b.wait_holds({*OLD, *NEW})
    a.wait_sent("b")
    assert b.counts() == (400, 400)
