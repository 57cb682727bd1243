"""Wait for a fact with a named deadline: the failure says what did not happen, not that time passed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(fact: Callable[[], T], what: str, *, seconds: float = 20.0, every: float = 0.02) -> T:
    """Ask `fact` until its answer is true and return it; `what` completes the sentence "waited for …".

    Raises AssertionError with the last answer when `seconds` have passed. What `fact` raises is not swallowed.
    """
    deadline = time.monotonic() + seconds
    while not (answer := fact()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:g} s for {what}; last answer: {answer!r}")
        time.sleep(every)
    return answer
