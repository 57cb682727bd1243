"""How much memory this process may use: the limit that its container, its service manager or its shell has set.

A process that passes the limit is killed, or fails where nobody expects it. So what is large is refused while there is
still room, by `Bodies`.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_PAGE = resource.getpagesize()
_GROUPS = Path("/proc/self/cgroup")
_UNLIMITED = 1 << 60
"""Limits from here on stand for none: version 1 of cgroups writes a number of about 2**63."""


class MemoryLimit(NamedTuple):
    """A limit in bytes, and the column of /proc/self/statm that counts towards it."""

    limit: int
    column: int

    def free(self) -> int:
        """Bytes that are left, as far as the system tells; the whole limit where it does not."""
        try:
            used = int(Path("/proc/self/statm").read_text().split()[self.column]) * _PAGE
        except (OSError, ValueError, IndexError):
            used = 0
        return max(0, self.limit - used)


def find_limit() -> MemoryLimit | None:
    """The lowest limit of this process; None where there is none."""
    found = [MemoryLimit(most, 1) for path in _cgroup_files() if (most := _read(path)) is not None]
    address_space = resource.getrlimit(resource.RLIMIT_AS)[0]
    if 0 <= address_space < _UNLIMITED:
        found.append(MemoryLimit(address_space, 0))
    return min(found, default=None)


def _cgroup_files() -> Iterator[Path]:
    """The files that may hold a limit: of the control group of this process, and of all those above it.

    In a container the path may be that of the host, which is not there; the uppermost group is the container's own.
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
