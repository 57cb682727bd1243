"""Waits for a condition with a named deadline: the failure says what did not happen, not that time passed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(condition: Callable[[], T], what: str, *, seconds: float = 20.0, every: float = 0.02) -> T:
    """Poll `condition` until it returns a true value and return that; `what` completes the sentence "waited for …".

    Raises AssertionError with the last value after `seconds`. Exceptions of `condition` are not caught.
    """
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:g} s for {what}; last answer: {answer!r}")
        time.sleep(every)
    return answer
