"""What this process has open and has started, as the kernel tells it. Linux only."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

STAY = ("eventd-pg-", "from multiprocessing.", "pyspark")
"""What command lines hold of processes that stay for the session: the suite's Postgres server, Python's own, Spark."""
_staying: set[int] = set()
_SET_CHILD_SUBREAPER = 36


def stays(pid: int) -> None:
    """This child stays for the session."""
    _staying.add(pid)


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
    while parents:
        below = _children_of(parents)
        found += [str(process) for process in below if "processes/keeper.py" not in process.command]
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
    return _children_of({os.getpid()}) if _has_children() else []


def _has_children() -> bool:
    """Asked before every process of the machine is looked at, which every test would otherwise pay for."""
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
    """Have the orphans among the descendants of this process become its children, so that they can be found."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap_orphans() -> list[Child]:
    """Reap the children that have ended, of which none may be a `Popen` still in use; the others."""
    found = child_processes()
    while ended := [child for child in found if child.state == "Z"]:
        for child in ended:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child.pid, 0)
        found = child_processes()  # what an ended one had started may have been missed: it had another parent
    return found


def is_running(pid: int) -> bool:
    """Whether the process is there and has not ended."""
    try:
        return _fields(pid)[0] not in "ZX"
    except OSError:
        return False


def _fields(pid: int) -> list[str]:
    """State, parent and so on; what stands before them may hold blanks and brackets."""
    with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
        return file.read().rpartition(b")")[2].decode().split()
