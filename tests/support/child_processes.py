"""What this process has open and has started, as the kernel tells it. Linux only."""

from __future__ import annotations

import os
from pathlib import Path

STAY = ("eventd-pg-", "from multiprocessing.")
"""What command lines hold of processes that stay for the session: the suite's Postgres server, and Python's own."""


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
    """Children of this process, ended ones that were not reaped included; without those of the session."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            state, parent, *_ = _fields(int(pid))
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if int(parent) == os.getpid() and not any(word in command for word in STAY):
            found.append(f"{pid} {state} {command}")
    return found


def is_running(pid: int) -> bool:
    """Whether the process is there and has not ended."""
    try:
        return _fields(pid)[0] not in "ZX"
    except OSError:
        return False


def _fields(pid: int) -> list[str]:
    """State, parent and so on; what stands before them may hold blanks and brackets."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
