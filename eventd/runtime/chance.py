"""Randomness, handed in like the clock: a node that runs by a seeded source repeats itself, step by step."""

from __future__ import annotations

import random
import secrets
from typing import Final, Protocol


class Chance(Protocol):
    """Ids, nonces, epochs and keys are made of tokens; back-off is spread by fractions."""

    def token(self, count: int) -> bytes:
        """Bytes that cannot be guessed."""
        ...

    def fraction(self) -> float:
        """A number in [0, 1)."""
        ...


class SystemChance:
    """The system's own source, fit for cryptography; fractions come from a faster one."""

    def __init__(self) -> None:
        self.token = secrets.token_bytes
        self.fraction = random.Random().random


SYSTEM: Final = SystemChance()
"""For programs; what runs inside a node is handed one."""
