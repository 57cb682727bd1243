"""What this process has open and has started, as the kernel tells it. Linux only."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from pathlib import Path
from typing import NamedTuple

STAY = ("eventd-pg-", "from multiprocessing.", "pyspark")
"""What command lines hold of processes that stay for the session: the suite's Postgres server, Python's own, Spark."""
_SET_CHILD_SUBREAPER = 36


def descriptors() -> set[tuple[str, str]]:
    """The open descriptors of this process and what they lead to."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.add((fd, os.readlink(f"/proc/self/fd/{fd}")))
        except OSError:
            continue  # that of the listing itself
    return found


def children() -> list[str]:
    """Children of this process, ended ones that were not reaped included; without those of the session.

    In this suite these are also the orphans that a killed child has left: see `adopt_orphans`.
    """
    return [str(child) for child in child_processes()]


def programs() -> list[str]:
    """All descendants of this process but the keepers and guards of plugins; without those of the session."""
    found, parents = [], {os.getpid()}
    processes = _processes()
    while parents:
        below = [process for process in processes if process.parent in parents]
        found += [str(process) for process in below if "plugins/keeper.py" not in process.command]
        parents = {process.pid for process in below}
    return found


class Child(NamedTuple):
    """A process by its number, its state as one letter, its parent and its command line."""

    pid: int
    state: str
    parent: int
    command: str

    def __str__(self) -> str:
        return f"{self.pid} {self.state} {self.command}"


def child_processes() -> list[Child]:
    """What `children` tells, in parts."""
    return [process for process in _processes() if process.parent == os.getpid()]


def _processes() -> list[Child]:
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            state, parent, *_ = _fields(int(pid))
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if not any(word in command for word in STAY):
            found.append(Child(int(pid), state, int(parent), command))
    return found


def adopt_orphans() -> None:
    """Have the orphans among the descendants of this process become its children, so that they can be found."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap_orphans() -> list[Child]:
    """Reap the children that have ended, of which none may be a `Popen` still in use; the others."""
    for child in child_processes():
        if child.state == "Z":
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child.pid, 0)
    return [child for child in child_processes() if child.state != "Z"]


def is_running(pid: int) -> bool:
    """Whether the process is there and has not ended."""
    try:
        return _fields(pid)[0] not in "ZX"
    except OSError:
        return False


def _fields(pid: int) -> list[str]:
    """State, parent and so on; what stands before them may hold blanks and brackets."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
