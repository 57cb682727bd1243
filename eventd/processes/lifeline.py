"""Kills the process that it runs in as soon as the process that started it has ended, however that happened."""

from __future__ import annotations

import fcntl
import os
import select
import threading
from typing import Final

_KILL: Final = 9
_SELF: Final = os.getpid()


def end_with(lifeline: int) -> None:
    """Kill this process, and its process group if it leads one, when the other end of the pipe `lifeline` is closed.

    Returns at once; nothing is written to the pipe. A thread watches it, but cannot run while C code, such as a regular
    expression, holds the interpreter lock. On Linux, the kernel itself kills the group that this process leads.
    """
    os.set_inheritable(lifeline, False)
    if hasattr(fcntl, "F_SETSIG") and os.getpgid(0) == _SELF:
        fcntl.fcntl(lifeline, fcntl.F_SETOWN, -_SELF)
        fcntl.fcntl(lifeline, fcntl.F_SETSIG, _KILL)
        fcntl.fcntl(lifeline, fcntl.F_SETFL, os.O_ASYNC)
    threading.Thread(target=_watch, args=(lifeline,), name="lifeline", daemon=True).start()


def _watch(lifeline: int) -> None:
    poll = select.poll()
    poll.register(lifeline, 0)  # only the hang-up matters
    poll.poll()
    if os.getpgid(0) == _SELF:
        os.killpg(0, _KILL)
    os._exit(0)
