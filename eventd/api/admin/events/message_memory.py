"""The memory of the unanswered messages of a publishing client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from eventd.api.bodies.bodies import BodyMemory, BodyReservation
from eventd.errors import EventdError

EVENT_BYTES: Final = 512
"""Bytes that count for each event besides its text: until it is answered, the smallest takes more than that."""
_STEP: Final = 256 << 10
"""Bytes by which the memory of one client grows; those of the first step are not reserved."""


class MessageMemory:
    """The memory for the unanswered messages of one client: their events, and texts too small to be counted alone."""

    def __init__(self, bodies: BodyMemory, key: bytes) -> None:
        self.key = key
        self._bodies = bodies
        self._held = BodyReservation(bodies, key)
        self._used = 0

    def find_shortage(self, size: int) -> EventdError | None:
        """Return why a message of so many bytes does not fit now; None if its memory is, or could be, reserved."""
        used = self._used + size
        if used > self._held.bytes and used > _STEP:
            try:
                self._held.grow_to(used + _STEP if self._used else used)
            except EventdError as error:
                return error
        return None

    def use(self, size: int) -> None:
        """Count a message."""
        self._used += size

    def free(self, size: int) -> None:
        """Note that a message is answered. Without any other, the reservation is given back."""
        self._used -= size
        if not self._used:
            self.close()

    def allow_giving_way(self, stop: Callable[[], None] | None) -> None:
        """Let the memory give way to another key, by a call of `stop`: the client does not read its answers."""
        self._held.stop = stop

    def close(self) -> None:
        """Give the reservation back: the connection has ended."""
        self._bodies.give_back(self._held)
