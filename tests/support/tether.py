"""Starts a command that cannot outlive the test run, not even when pytest is killed with -9.

`tethered(command)` returns the command line for Popen: this file, run as a script, asks the kernel for a signal when
the parent dies, drops root privileges if asked to, and becomes the command.

Linux watches the *thread* that started the child: start children from the main thread only.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # not from `typing`, whose import takes longer than the rest of this script
if TYPE_CHECKING:
    import signal
    from collections.abc import Sequence
    from pathlib import Path

_PR_SET_PDEATHSIG = 1


def tethered(
    command: Sequence[str | Path], *, farewell: signal.Signals, user: tuple[int, int] | None = None
) -> list[str]:
    """Return `command` wrapped so that it receives `farewell` when this process dies; `user` is (uid, gid) to
    run as."""
    import threading

    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("start child processes from the main thread: they die with the thread that started them")
    uid, gid = user or (-1, -1)
    script = [sys.executable, "-E", "-S", __file__, str(os.getpid()), str(farewell.value), str(uid), str(gid)]
    return [*script, *(str(part) for part in command)]


def _main(arguments: list[str]) -> None:
    import ctypes  # before setuid: the new user may not be allowed to read it

    parent, farewell, uid, gid = map(int, arguments[:4])
    command = arguments[4:]
    if uid >= 0:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    if sys.platform == "linux":  # after setuid, which clears the request
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, farewell, 0, 0, 0)
    if os.getppid() != parent:  # the parent died before the request
        sys.exit(1)
    try:
        os.execvp(command[0], command)
    except OSError as problem:
        sys.exit(f"cannot run {command[0]}: {problem.strerror}")


if __name__ == "__main__":
    _main(sys.argv[1:])
