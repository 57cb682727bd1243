"""Waits for a condition with a named deadline: the failure says what did not happen, not that time passed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_SHORTEST, _LONGEST = 0.02, 0.06
"""Seconds between two polls of a wait that does not say how often."""


def wait_for(condition: Callable[[], T], what: str, *, seconds: float = 20.0, every: float | None = None) -> T:
    """Poll `condition` until it returns a true value and return that; `what` completes the sentence "waited for …".

    Polls `every` seconds if given; otherwise ever more rarely, because most conditions are requests to a node, which
    cost it time that it could use for what is waited for.

    Raises AssertionError with the last value after `seconds`. Exceptions of `condition` are not caught.
    """
    begun = time.monotonic()
    while not (answer := condition()):
        passed = time.monotonic() - begun
        if passed > seconds:
            raise AssertionError(f"waited {seconds:g} s for {what}; last answer: {answer!r}")
        time.sleep(min(max(_SHORTEST, passed / 8), _LONGEST) if every is None else every)
    return answer
