"""A node restored from an older back-up gets its own events back with one command, also when it is killed meanwhile."""

from __future__ import annotations

import json
import subprocess

from tests.support.processes import Processes
from tests.support.running import NodeProcess

OLD = [f"old-{number:03}" for number in range(20)]
NEW = [f"new-{number:04}" for number in range(1200)]


def _control(processes: Processes, node: NodeProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    return processes.control(*arguments, env=processes.node_environment(node.name))


def test_a_restored_node_gets_its_own_events_back(processes: Processes) -> None:
    """It is killed after the first call; the command is repeated, and the peer gets nothing twice."""
    a, b = NodeProcess(processes, "a"), NodeProcess(processes, "b")
    b.join()
    a.join(b)
    a.emit(*OLD)
    a.wait_sent("b")
    copy = str(processes.directory / "a.copy")
    assert _control(processes, a, "db", "backup", copy).returncode == 0
    for start in range(0, len(NEW), 200):
        a.emit(*NEW[start : start + 200])
        a.wait_sent("b")
    assert a.stop() == 0
    done = _control(processes, a, "db", "restore", copy, "--yes")
    assert done.returncode == 0, done.stderr
    a.start()
    assert a.ids() == OLD

    pull = ("verify", "--peer", "b", "--pull")
    tried = _control(processes, a, *pull, "--dry-run")
    assert tried.returncode == 4
    assert tried.stdout.split()[-6:] == ["1200", "1200", "1200", "0", "0", "-"]
    assert "dry run: 1,200 events would be stored, nothing was" in tried.stderr
    assert a.ids() == OLD

    first = a.ask("POST", "/groups/edge/peers/b/pull", {"seconds": 0})
    assert 0 < first["stored"] < len(NEW)
    a.kill9()
    a.start()
    assert a.ids() == [*OLD, *NEW[: first["stored"]]]
    rest = _control(processes, a, *pull, "-o", "json")
    assert rest.returncode == 0, rest.stderr
    assert json.loads(rest.stdout) == {
        "group": "edge",
        "peer": "b",
        "dryRun": False,
        "lacking": len(NEW) - first["stored"],
        "stored": len(NEW) - first["stored"],
        "byReceipt": len(NEW) - first["stored"],
        "confirmed": 0,
        "unproven": 0,
        "left": {},
        "unprovenEvents": [],
    }
    assert a.ids() == [*OLD, *NEW]
    a.wait_sent("b")
    assert b.ids() == [*OLD, *NEW]
    assert _control(processes, a, "verify", "--peer", "b").returncode == 0
    shown = _control(processes, a, "federation", "event", "describe", "new-0007")
    assert "from b at " in shown.stdout
    assert "the peer's receipt of batch " in shown.stdout
    assert "confirmed" not in shown.stdout
    listed = _control(processes, a, "federation", "event", "list", "-o", "wide")
    assert "from b, by receipt" in listed.stdout


def test_options_that_do_not_go_together_are_refused(processes: Processes) -> None:
    a = NodeProcess(processes, "a")
    a.join()
    for options in (("--pull", "--repair"), ("--accept-unproven",), ("--dry-run", "--repair")):
        assert _control(processes, a, "verify", "--peer", "b", *options).returncode == 2
