"""Hides a process of the node from other processes of the same user, such as plugins."""

from __future__ import annotations

_SET_DUMPABLE = 4


def hide_process() -> None:
    """Hide memory, environment and open files of this process from other processes of the same user. Linux only.

    `/proc/PID/environ`, `mem`, `fd` and `maps` become root's, and no debugger of the user can attach; the kernel writes
    no core dump. The command line stays readable. Programs that this process starts are not affected.
    """
    try:
        import ctypes

        ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)
    except (ImportError, AttributeError, OSError):  # a system without this call
        return
