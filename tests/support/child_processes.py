"""Open descriptors and child processes of this process, as Linux reports them."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

STAY = ("eventd-pg-", "from multiprocessing.", "pyspark")
"""Parts of the command lines of processes that live as long as the session: the Postgres server, Python's own, Spark.
"""
_staying: set[int] = set()
_SET_CHILD_SUBREAPER = 36


def stays(pid: int) -> None:
    """Register a child that lives as long as the session."""
    _staying.add(pid)


def descriptors() -> set[tuple[str, str]]:
    """Return the open descriptors of this process and their targets."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.add((fd, os.readlink(f"/proc/self/fd/{fd}")))
        except OSError:
            continue  # the descriptor of the listing itself
    return found


def children() -> list[str]:
    """Return the children of this process, including zombies; without those that live as long as the session.

    In this suite these include the orphans of killed children: see `adopt_orphans`.
    """
    return [str(child) for child in child_processes()]


def programs() -> list[str]:
    """Return all descendants of this process except plugin keepers and guards, and those that live as long as the
    session."""
    found, parents = [], {os.getpid()}
    while parents:
        below = _children_of(parents)
        found += [str(process) for process in below if "processes/keeper.py" not in process.command]
        parents = {process.pid for process in below}
    return found


class Child(NamedTuple):
    """A process: its pid, its state as one letter, its parent and its command line."""

    pid: int
    state: str
    parent: int
    command: str

    def __str__(self) -> str:
        return f"{self.pid} {self.state} {self.command}"


def child_processes() -> list[Child]:
    """Return the processes behind `children`."""
    return _children_of({os.getpid()}) if _has_children() else []


def _has_children() -> bool:
    """Return whether this process has children: a cheap check before the expensive look at all processes of the
    machine."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _children_of(parents: Collection[int]) -> list[Child]:
    found = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            state, parent, *_ = _fields(pid)
            if int(parent) not in parents or pid in _staying:
                continue
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if not any(word in command for word in STAY):
            found.append(Child(pid, state, int(parent), command))
    return found


def adopt_orphans() -> None:
    """Make this process the parent of orphaned descendants, so that they can be found."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap_orphans() -> list[Child]:
    """Reap the children that have exited and return the others. No `Popen` that is still in use may be among the
    children."""
    found = child_processes()
    while ended := [child for child in found if child.state == "Z"]:
        for child in ended:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child.pid, 0)
        found = child_processes()  # a child of one that exited may have been missed, because it had another parent
    return found


def is_running(pid: int) -> bool:
    """Return whether the process exists and has not exited."""
    try:
        return _fields(pid)[0] not in "ZX"
    except OSError:
        return False


def _fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on; the fields before may contain blanks and parentheses."""
    with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
        return file.read().rpartition(b")")[2].decode().split()
