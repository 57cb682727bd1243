"""Being told to stop, for a command that blocks: it asks now and then, and ends what it has started."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any, Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Stopping:
    """Within its block SIGINT and SIGTERM set `asked`. Whoever says it twice means now: KeyboardInterrupt."""

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Stopping:
        self._before = {number: signal.getsignal(number) for number in _SIGNALS}
        self.listen()
        return self

    def listen(self) -> None:
        """Take the signals, also where a library has taken them since."""
        for number in _SIGNALS:
            ignored = self._before[number] is signal.SIG_IGN  # whoever started us in the background did that
            signal.signal(number, signal.SIG_IGN if ignored else self._stop)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        return kind is KeyboardInterrupt and not self.asked  # said while a library had the signals: once is once

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
