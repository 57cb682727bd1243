"""Ends the process if its stop takes too long, also while the event loop is blocked."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread, Timer


class StopGuard:
    """Limits the time of a stop from threads: a log line blocks the loop while the reader of the log reads nothing.

    A process needs one guard. Its limits stay in force until the process has ended, as lines follow the stop, too.
    """

    def __init__(self) -> None:
        self._timers: list[Timer] = []

    def limit(self, seconds: float, status: int) -> None:
        """Exit with this status in so many seconds, unless an earlier limit ends the process before."""
        timer = Timer(seconds, os._exit, (status,))
        timer.daemon = True
        timer.start()
        self._timers.append(timer)

    def lift(self) -> None:
        """Lift all limits: for a process that continues after the stop, such as that of a test."""
        for timer in self._timers:
            timer.cancel()

    @contextmanager
    def receive_signals(self, received: Callable[[int], None]) -> Iterator[None]:
        """Call `received` in a thread with the number of each signal, before the running loop learns of it.

        The loop must have its handlers already: each `add_signal_handler` leads all signals past the thread.
        """
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        of_loop = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)

        def forward() -> None:
            while numbers := reader.recv(4096):
                for number in numbers:
                    received(number)
                with suppress(BlockingIOError):  # the loop has enough to read
                    os.write(of_loop, numbers)

        thread = Thread(target=forward, name="stop guard", daemon=True)
        thread.start()
        try:
            yield
        finally:
            signal.set_wakeup_fd(of_loop, warn_on_full_buffer=False)
            writer.close()
            thread.join()
            reader.close()
