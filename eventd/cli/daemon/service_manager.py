"""Notifies the service manager in systemd's protocol: one datagram for each change of state and keep-alive."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Mapping

from eventd.runtime.clock import SECOND, Clock


class ServiceManager:
    """Reports the state of this process to the service manager; does nothing without NOTIFY_SOCKET. Never raises."""

    def __init__(self, surroundings: Mapping[str, str], clock: Clock) -> None:
        self._address = surroundings.get("NOTIFY_SOCKET", "")
        self._interval = _watchdog_seconds(surroundings)
        self._clock = clock
        self._timer: asyncio.Future[None] | None = None

    def ready(self, status: str) -> None:
        """Report that the start is complete, or that a reload has ended, with a text to show."""
        self._notify("READY=1", f"STATUS={status}")

    def reloading(self) -> None:
        """Report that a reload has begun; `ready` reports its end."""
        self._notify("RELOADING=1", f"MONOTONIC_USEC={int(self._clock.monotonic() * SECOND)}")

    def stopping(self) -> None:
        """Report that a stop has begun."""
        self._notify("STOPPING=1", "STATUS=finishing work in progress")

    def keep_alive(self) -> None:
        """Send keep-alives from the running loop until `close`, if the manager wants any; a hung loop sends none."""
        if self._interval:
            self._notify("WATCHDOG=1")
            self._timer = self._clock.timer(self._interval)
            self._timer.add_done_callback(lambda timer: None if timer.cancelled() else self.keep_alive())

    def close(self) -> None:
        """Stop sending keep-alives."""
        if self._timer is not None:
            self._timer.cancel()

    def _notify(self, *lines: str) -> None:
        if not self._address:
            return
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out,
        ):
            out.connect(address)
            out.sendall("\n".join(lines).encode())


def _watchdog_seconds(surroundings: Mapping[str, str]) -> float:
    """Return the seconds between two keep-alives, half of what the manager allows; 0 without a watchdog."""
    microseconds = surroundings.get("WATCHDOG_USEC", "")
    if not microseconds.isdigit() or surroundings.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    return int(microseconds) / SECOND / 2
