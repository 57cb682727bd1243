"""Signals that end a command: one that blocks asks for them now and then, one on a loop is called."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
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


class CancelOnSignal:
    """Within its block the first SIGTERM or SIGHUP cancels the current task, as Ctrl-C does, and a second one of the
    same kind ends the command at once. `number` is the signal that came, 0 before.
    """

    def __init__(self) -> None:
        self.number = 0
        self._task = asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        self._taken: list[signal.Signals] = []

    def __enter__(self) -> CancelOnSignal:
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:  # `nohup` sets it to be ignored
                self._loop.add_signal_handler(number, self._first, number)
                self._taken.append(number)
        return self

    def __exit__(self, *_: object) -> None:
        for number in self._taken:  # uvloop does not do it when the loop is closed
            self._loop.remove_signal_handler(number)

    def _first(self, number: signal.Signals) -> None:
        self._loop.remove_signal_handler(number)
        self.number = number
        if self._task is not None:
            self._task.cancel()


class EndOnSignal:
    """Within its block the first SIGINT, SIGTERM or SIGHUP calls `end` on the running loop, and a second one of the
    same kind ends the command at once. `number` is the signal that came, 0 before.
    """

    def __init__(self, end: Callable[[], None]) -> None:
        self.number = 0
        self._end = end
        self._loop = asyncio.get_running_loop()

    def __enter__(self) -> EndOnSignal:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` and shells without job control set it
                self._loop.remove_signal_handler(number)
                signal.signal(number, self._first)
        return self

    def __exit__(self, *_: object) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) == self._first:
                _let_it_end(number)

    def _first(self, number: int, frame: FrameType | None) -> None:
        _let_it_end(number)
        self.number = number
        self._loop.call_soon_threadsafe(self._end)


def _let_it_end(number: int) -> None:
    signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
