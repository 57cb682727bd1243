"""The source of randomness, passed in like the clock: a node with a seeded source repeats itself exactly."""

from __future__ import annotations

import random
import secrets
from typing import Final, Protocol


class Chance(Protocol):
    """Interface: random bytes for ids, nonces, epochs and keys; random fractions for the jitter of back-offs."""

    def token(self, count: int) -> bytes:
        """Return `count` bytes that cannot be predicted."""
        ...

    def fraction(self) -> float:
        """Return a random number in [0, 1)."""
        ...


class SystemChance:
    """The system's source, suitable for cryptography; fractions come from a faster generator."""

    def __init__(self) -> None:
        self.token = secrets.token_bytes
        self.fraction = random.Random().random


SYSTEM: Final = SystemChance()
"""The default for programs; code inside a node gets its source passed in."""
