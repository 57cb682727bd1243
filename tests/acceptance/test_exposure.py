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
for pid in sys.argv[1:]:
    for name in ("environ", "mem", "maps", "fd/0", "stat"):
        try:
            with open(f"/proc/{pid}/{name}", "rb") as file:
                text = b"" if name == "mem" else file.read()
                print(pid, name, "secret-of-the-node" if b"secret-of-the-node" in text else "readable")
        except PermissionError:
            print(pid, name, "refused")
"""


def serve(processes: Processes, *arguments: str) -> Process:
    environment = {"EVENTD_API_KEYS": "secret-of-the-node"}
    return processes.serve("node", *arguments, env=environment, program=[sys.executable, "-ISc", PLAIN, *DAEMON])


def read_by_another(processes: Processes, *pids: int) -> list[dict[str, str]]:
    """Return what another process of the node's user reads of each of these, file by file."""
    python = [sys.executable, "-ISc"]
    done = processes.run([*python, PLAIN, *python, READER, *map(str, pids)])
    lines = [*map(str.split, done.stdout.splitlines())]
    return [{name: found for read, name, found in lines if read == str(pid)} for pid in pids]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has these files")
def test_no_process_of_a_node_shows_its_environment_and_memory(processes: Processes) -> None:
    node = serve(processes, "--workers", "2")
    refused = dict.fromkeys(("environ", "mem", "maps", "fd/0"), "refused")
    children = Path(f"/proc/{node.pid}/task/{node.pid}/children").read_text().split()
    assert len(children) == 2
    for read in read_by_another(processes, node.pid, *map(int, children)):
        assert read == {**refused, "stat": "readable"}
    assert "secret-of-the-node" not in node.log()
    assert node.terminate() == 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has these files")
def test_a_node_may_be_debugged_where_that_is_allowed(processes: Processes) -> None:
    node = serve(processes, "--allow-debugger")
    (found,) = read_by_another(processes, node.pid)
    assert (found["environ"], found["maps"], found["fd/0"]) == ("secret-of-the-node", "readable", "readable")
    assert node.terminate() == 0
