"""Triggers garbage collections by the memory of the process, in addition to the interpreter's own.

The interpreter counts objects. A broken connection leaves few objects in reference cycles, yet they hold megabytes of
buffers, and any client can break any number of connections.
"""

from __future__ import annotations

import gc
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Final

from eventd.runtime.clock import Clock

LOOK_SECONDS: Final = 1.0
"""Seconds between two measurements of the memory of the process."""
YOUNG_BYTES: Final = 64 << 20
"""Growth in bytes after which the young generation is collected, which takes milliseconds."""
ALL_BYTES: Final = 512 << 20
"""Growth in bytes after which all generations are collected."""
_PAGE: Final = resource.getpagesize()


def resident_bytes() -> int:
    """Return the resident memory of this process in bytes; 0 where the system does not report it."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0


class Garbage:
    """Collects garbage as the process grows.

    `measure` returns the memory of the process in bytes; `collect(n)` collects generation n and the younger ones.
    """

    def __init__(
        self,
        clock: Clock,
        measure: Callable[[], int] = resident_bytes,
        collect: Callable[[int], object] = gc.collect,
    ) -> None:
        self._clock = clock
        self._measure = measure
        self._collect = collect
        self._after_young = self._after_all = measure()

    async def collect_for_ever(self) -> None:
        """Call `look` every `LOOK_SECONDS`, until cancelled."""
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Collect if the process has grown enough since the last collection, or since its smallest size after it."""
        now = self._measure()
        if now > self._after_all + ALL_BYTES:
            self._collect(2)
            now = self._after_all = self._after_young = self._measure()
        elif now > self._after_young + YOUNG_BYTES:
            self._collect(1)
            now = self._after_young = self._measure()
        self._after_all = min(self._after_all, now)
        self._after_young = min(self._after_young, now)
