"""When garbage is looked for, beside what the collector does by itself.

The collector counts objects. What a broken connection leaves behind is few objects that refer to each other, with
buffers of megabytes, and strangers can break connections as often as they like. So the memory of the process decides
as well.
"""

from __future__ import annotations

import gc
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Final

from eventd.runtime.clock import Clock

LOOK_SECONDS: Final = 1.0
YOUNG_BYTES: Final = 64 << 20
"""After so much growth what is young is looked through, which takes milliseconds."""
ALL_BYTES: Final = 512 << 20
"""After so much growth everything is."""
_PAGE: Final = resource.getpagesize()


def resident_bytes() -> int:
    """Memory of this process; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0


class Garbage:
    """Has garbage collected as the process grows. `collect` takes the oldest generation to look through."""

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
        """Look now and then."""
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Collect if the process has grown by so much since the last time, or since it was smallest."""
        now = self._measure()
        if now > self._after_all + ALL_BYTES:
            self._collect(2)
            now = self._after_all = self._after_young = self._measure()
        elif now > self._after_young + YOUNG_BYTES:
            self._collect(1)
            now = self._after_young = self._measure()
        self._after_all = min(self._after_all, now)
        self._after_young = min(self._after_young, now)
