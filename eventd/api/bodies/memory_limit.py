"""The memory limit of this process, set by its container, service manager or shell.

A process that exceeds the limit is killed or fails at an arbitrary point. So `BodyMemory` refuses large bodies while
there is still memory.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_PAGE = resource.getpagesize()
_GROUPS = Path("/proc/self/cgroup")
_UNLIMITED = 1 << 60
"""Limits from here on mean unlimited: cgroups version 1 writes a number of about 2**63."""


class MemoryLimit(NamedTuple):
    """A limit in bytes, and the column of /proc/self/statm that counts towards it."""

    limit: int
    column: int

    def free(self) -> int:
        """Return the limit less the bytes that this process uses; the whole limit if its use is not reported.

        Other processes under the same limit are not counted: the use of a control group includes cached files.
        """
        try:
            used = int(Path("/proc/self/statm").read_text().split()[self.column]) * _PAGE
        except (OSError, ValueError, IndexError):
            used = 0
        return max(0, self.limit - used)


def find_limit() -> MemoryLimit | None:
    """Return the lowest limit of this process; None without one."""
    found = [MemoryLimit(most, 1) for path in _cgroup_files() if (most := _read(path)) is not None]
    address_space = resource.getrlimit(resource.RLIMIT_AS)[0]
    if 0 <= address_space < _UNLIMITED:
        found.append(MemoryLimit(address_space, 0))
    return min(found, default=None)


def _cgroup_files() -> Iterator[Path]:
    """Yield the files that may hold a limit: of this process's control group and all groups above it.

    In a container the path may be that of the host, which does not exist there; the uppermost group is the container's
    own.
    """
    try:
        lines = _GROUPS.read_text().splitlines()
    except OSError:  # not on Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        root, name = ("memory", "memory.limit_in_bytes") if controllers else ("", "memory.max")
        group = Path("/sys/fs/cgroup", root, path.lstrip("/"))
        yield from (folder / name for folder in (group, *group.parents) if folder.is_relative_to("/sys/fs/cgroup"))


def _read(path: Path) -> int | None:
    try:
        most = int(path.read_text())
    except (OSError, ValueError):  # no such file, or the word "max"
        return None
    return most if most < _UNLIMITED else None
