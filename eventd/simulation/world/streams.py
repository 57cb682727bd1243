"""Chance from a seed, in one stream for each purpose: what one part draws never changes what another one gets."""

from __future__ import annotations

import random

Stream = random.Random
"""A source of random numbers with a seed of its own."""


class ChanceStreams:
    """The streams of one seed. A stream has a name such as `network a>b`, and is the same for the same name."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def of(self, name: str) -> Stream:
        """Return a new stream at its beginning."""
        return Stream(f"{self.seed} {name}")


class StreamChance:
    """A `Chance` for the process of one life, from a stream of its own."""

    def __init__(self, stream: Stream) -> None:
        self.token = stream.randbytes
        self.fraction = stream.random
