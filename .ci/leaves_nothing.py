"""Run a command, and fail when a process that it started, directly or not, outlives it.

This process is a subreaper: what loses its parent becomes its child, wherever it has gone and whatever its environment
is, so that all that is left can be found by the tree of processes. Linux only; elsewhere nothing is looked for.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from contextlib import suppress

SET_CHILD_SUBREAPER = 36
SECONDS_TO_END = 5.0


def main(command: list[str]) -> int:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    status = 1
    try:
        # Not by Popen, which would reap it unseen.
        code = wait_for(os.posix_spawnp(command[0], command, os.environ, setsigdef=[signal.SIGPIPE, signal.SIGXFSZ]))
        status = code if code >= 0 else 128 - code
    finally:
        left = survivors()
        for pid, text in left.items():
            sys.stderr.write(f"left behind: pid {pid}: {text}\n")
        while descendants():
            for pid in descendants():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            reap()
    return status or (1 if left else 0)


def wait_for(wanted: int) -> int:
    """The status with which this child ends; orphans are reaped meanwhile."""
    while True:
        pid, status = os.wait()
        if pid == wanted:
            return os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)


def survivors() -> dict[int, str]:
    """What still runs after a while, by pid, with its command line."""
    deadline = time.monotonic() + SECONDS_TO_END
    while descendants() and time.monotonic() < deadline:
        reap()
        time.sleep(0.05)
    return {pid: command_of(pid) for pid in descendants()}


def reap() -> None:
    """Reap the children that have ended."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def descendants() -> list[int]:
    """Every process below this one that has not been reaped."""
    if not os.path.isdir("/proc/self"):
        return []
    parents = {pid: parent_of(pid) for pid in map(int, filter(str.isdigit, os.listdir("/proc")))}
    found: list[int] = []
    above = {os.getpid()}
    while above:
        above = {pid for pid, parent in parents.items() if parent in above}
        found += sorted(above)
    return found


def parent_of(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except OSError:
        return 0


def command_of(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
