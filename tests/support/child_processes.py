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
_KERNEL_LISTS_CHILDREN = os.path.exists(f"/proc/self/task/{os.getpid()}/children")
"""Kernels without CONFIG_PROC_CHILDREN do not."""


def keep_for_session(pid: int) -> None:
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
    return _children_of({os.getpid()})


def _children_of(parents: Collection[int]) -> list[Child]:
    found = []
    for pid in _numbers_below(parents):
        if pid in _staying:
            continue
        try:
            state, parent, *_ = _fields(pid)
            command = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ").decode()
        except OSError:
            continue
        if int(parent) in parents and not any(word in command for word in STAY):
            found.append(Child(pid, state, int(parent), command))
    return found


def _numbers_below(parents: Collection[int]) -> list[int]:
    """Return the pids of their children as the kernel lists them; on a kernel without lists, all pids.

    The list of this process is complete: a child leaves it when it is reaped, not when it ends.
    """
    if not _KERNEL_LISTS_CHILDREN:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    found: list[int] = []
    for parent in parents:
        with contextlib.suppress(OSError):  # the parent has ended
            # The first thread last: it inherits the children of one that ends.
            for thread in sorted(os.listdir(f"/proc/{parent}/task"), key=str(parent).__eq__):
                with contextlib.suppress(OSError), open(f"/proc/{parent}/task/{thread}/children", "rb") as file:
                    found += map(int, file.read().split())
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
