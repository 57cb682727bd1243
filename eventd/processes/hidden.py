"""What other processes of the same user, such as plugins, can see of a process of the node."""

from __future__ import annotations

_SET_DUMPABLE = 4


def hide_process() -> None:
    """Keep the memory, the environment and the open files of this process from others of the same user. Linux only.

    `/proc/PID/environ`, `mem`, `fd` and `maps` become root's, and no debugger of the user attaches; nor does the kernel
    write a core dump. The command line stays readable. A program that this process starts is as readable as any.
    """
    try:
        import ctypes

        ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)
    except (ImportError, AttributeError, OSError):  # a system without it
        return
