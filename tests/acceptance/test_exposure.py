"""What a program of the node's user, such as a plugin, can read of the node's process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support.processes import DAEMON, Process, Processes

PLAIN = """
import ctypes, os, sys
for number in (19, 21, 38):  # SYS_PTRACE, SYS_ADMIN, PERFMON
    ctypes.CDLL(None).prctl(24, number, 0, 0, 0)
os.execv(sys.executable, sys.argv[1:])
"""
"""Becomes a Python program without the privileges by which root reads protected files."""
READER = """
import sys
for name in ("environ", "mem", "maps", "fd/0", "stat"):
    try:
        with open(f"/proc/{sys.argv[1]}/{name}", "rb") as file:
            text = b"" if name == "mem" else file.read()
            print(name, "secret-of-the-node" if b"secret-of-the-node" in text else "readable")
    except PermissionError:
        print(name, "refused")
"""


def serve(processes: Processes, *arguments: str) -> Process:
    environment = {"EVENTD_API_KEYS": "secret-of-the-node"}
    return processes.serve("node", *arguments, env=environment, program=[sys.executable, "-c", PLAIN, *DAEMON])


def read_by_another(processes: Processes, pid: int) -> dict[str, str]:
    """Return what another process of the node's user reads of this one, file by file."""
    done = processes.run([sys.executable, "-c", PLAIN, sys.executable, "-c", READER, str(pid)])
    return {name: found for name, found in map(str.split, done.stdout.splitlines())}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has these files")
@pytest.mark.parametrize("workers", [[], ["--workers", "2"]], ids=["one process", "workers"])
def test_a_node_does_not_show_its_environment_and_memory(processes: Processes, workers: list[str]) -> None:
    node = serve(processes, *workers)
    refused = dict.fromkeys(("environ", "mem", "maps", "fd/0"), "refused")
    children = Path(f"/proc/{node.pid}/task/{node.pid}/children").read_text().split()
    assert len(children) == (2 if workers else 0)
    for pid in (node.pid, *map(int, children)):
        assert read_by_another(processes, pid) == {**refused, "stat": "readable"}
    assert "secret-of-the-node" not in node.log()
    assert node.terminate() == 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has these files")
def test_a_node_may_be_debugged_where_that_is_allowed(processes: Processes) -> None:
    node = serve(processes, "--allow-debugger")
    found = read_by_another(processes, node.pid)
    assert (found["environ"], found["maps"], found["fd/0"]) == ("secret-of-the-node", "readable", "readable")
    assert node.terminate() == 0
