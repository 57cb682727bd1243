"""Signals that end a command: polled by blocking code, or delivered on a loop."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class StopFlag:
    """Within its block SIGINT and SIGTERM set `asked`; a second one raises KeyboardInterrupt.

    If a library turns the first signal into a KeyboardInterrupt, that ends the block and is suppressed.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopFlag:
        self._before = {number: signal.getsignal(number) for number in _SIGNALS}
        self.listen()
        return self

    def listen(self) -> None:
        """Install the handlers; call it again after a library has replaced them."""
        for number in _SIGNALS:
            ignored = self._before[number] is signal.SIG_IGN  # as shells set it for background jobs
            signal.signal(number, signal.SIG_IGN if ignored else self._stop)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        return kind is KeyboardInterrupt and not self.asked  # first signal came while a library handled it

    def _stop(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True


class EndOnSignal:
    """Within its block the first SIGTERM or SIGHUP cancels the current task, as Ctrl-C does.

    With `end`, SIGTERM, SIGHUP and Ctrl-C call that instead. A second signal of the same kind ends the command at once.
    `number` is the last signal handled here, else 0.
    """

    def __init__(self, end: Callable[[], object] | None = None) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.number = 0
        self._end = end or task.cancel
        self._signals = (signal.SIGTERM, signal.SIGHUP) if end is None else (*_SIGNALS, signal.SIGHUP)
        self._loop = asyncio.get_running_loop()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> EndOnSignal:
        for number in self._signals:
            before = signal.getsignal(number)
            if before is not signal.SIG_IGN:  # as `nohup` and shells without job control set it
                self._before[number] = before
                signal.signal(number, self._first)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler or signal.SIG_DFL)

    def _first(self, number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        self.number = number
        self._loop.call_soon_threadsafe(self._end)
