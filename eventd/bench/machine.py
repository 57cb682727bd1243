"""The machine, its disk and its load, on which the figures of a measurement depend besides its options."""

from __future__ import annotations

import os
import platform
import statistics
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from eventd.bench.wire import now

FLUSHES = 50


def machine(folder: Path | None) -> dict[str, object]:
    """Return a description of the machine by field; `fsync_ms` only with the `folder` in which the nodes write."""
    found: dict[str, object] = {
        "system": platform.system(),
        "python": platform.python_version(),
        "cores": usable_cores(),
        "processor": _processor(),
        "load": round(os.getloadavg()[0], 2),
    }
    return found if folder is None else {**found, "fsync_ms": round(fsync_ms(folder), 3)}


def usable_cores() -> int:
    """Return how many cores the system may put this process on; a quota of CPU time is not considered."""
    allowed: Callable[[int], set[int]] | None = getattr(os, "sched_getaffinity", None)  # not every system has it
    return len(allowed(0)) if allowed is not None else os.cpu_count() or 1


def _processor() -> str:
    """Return the model of the processor, or the machine's architecture if the system does not name the model."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return platform.machine()


def fsync_ms(folder: Path | None = None) -> float:
    """Return the median milliseconds of a small durable write in a folder; None: the folder for temporary files."""
    times = []
    with tempfile.NamedTemporaryFile(prefix="eventd-bench-", dir=folder) as file:
        for _ in range(FLUSHES):
            begun = now()
            file.write(b"x" * 4096)
            file.flush()
            os.fsync(file.fileno())
            times.append((now() - begun) * 1000)
    return statistics.median(times)


def cpu_of(pid: int) -> float | None:
    """Return the processor seconds that a process has used; None where the system does not report it."""
    with suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return None
