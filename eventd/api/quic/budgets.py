"""The memory that clients' frames take: bytes count from their arrival until their request is done, those of
incomplete frames included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

CONNECTION_FULL: Final = "publish ingress per-connection byte budget exhausted"
LISTENER_FULL: Final = "publish ingress byte budget exhausted"


class ListenerBudget:
    """The bytes of all connections. `most`: beyond them publishes are refused; `frame`: bytes of the largest frame."""

    def __init__(self, most: int, frame: int, soon: Callable[[Callable[[], None]], object]) -> None:
        self.used = 0
        self._most = most
        self._frame = frame
        self._soon = soon
        self._waiting: dict[Callable[[], None], None] = {}
        self._wakes = False

    def open(self, most: int) -> ConnectionBudget:
        """Return the budget of a new connection, whose limit is `most` bytes."""
        return ConnectionBudget(self, most, self._frame)

    def is_over(self, size: int = 0) -> bool:
        """Return whether the bytes of all connections, less `size`, are over the limit."""
        return self.used - size > self._most

    @property
    def is_exceeded(self) -> bool:
        """Return whether the bytes are over the limit by more than one frame, so that some must be dropped."""
        return self.used > self._most + self._frame

    def wait(self, wake: Callable[[], None]) -> None:
        """Call `wake` once, in a later turn of the loop, after bytes were given back."""
        self._waiting[wake] = None

    def leave(self, wake: Callable[[], None]) -> None:
        """Do not call `wake`."""
        self._waiting.pop(wake, None)

    def given_back(self) -> None:
        """Wake the waiting streams, in their order."""
        if self._waiting and not self._wakes:
            self._wakes = True
            self._soon(self._wake)

    def _wake(self) -> None:
        self._wakes = False
        waiting, self._waiting = self._waiting, {}
        for wake in waiting:
            wake()


class ConnectionBudget:
    """The bytes of one connection, which count towards the listener's bytes, too."""

    def __init__(self, listener: ListenerBudget, most: int, frame: int) -> None:
        self.used = 0
        self._listener = listener
        self._most = most
        self._frame = frame

    def take(self, size: int) -> None:
        """Count bytes that have arrived."""
        self.used += size
        self._listener.used += size

    def give(self, size: int) -> None:
        """Count bytes as done."""
        self.used -= size
        self._listener.used -= size
        self._listener.given_back()

    def find_refusal(self, size: int) -> str:
        """Return why a publish is refused; empty if there is room, apart from `size` bytes that are counted."""
        if self.used - size > self._most:
            return CONNECTION_FULL
        return LISTENER_FULL if self._listener.is_over(size) else ""

    @property
    def is_exceeded(self) -> bool:
        """Return whether the connection's bytes are over the limit by more than one frame, so that some must be
        dropped."""
        return self.used > self._most + self._frame

    def wait(self, wake: Callable[[], None]) -> None:
        """Call `wake` once, in a later turn of the loop, after bytes were given back."""
        self._listener.wait(wake)

    def leave(self, wake: Callable[[], None]) -> None:
        """Do not call `wake`."""
        self._listener.leave(wake)
