"""The steps of a fault: it yields the seconds until its next step, and other faults run meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.chaos.member import Member

Steps = Generator[float, None, None]
_LOOK = 0.05
_PATIENCE = 90.0
"""Longer than the longest freeze."""


def until(condition: Callable[[], object], what: str) -> Steps:
    """Wait for a condition. Raises AssertionError after 90 seconds."""
    end = time.monotonic() + _PATIENCE
    while not condition():
        assert time.monotonic() < end, f"waited {_PATIENCE:g} s for {what}"
        yield _LOOK


def run_control(member: Member, *arguments: str) -> None:
    """Run `routerctl` on the node's data. Raises AssertionError with its output."""
    done = member.control(*arguments)
    assert done.returncode == 0, f"{member.name}: routerctl {' '.join(arguments)}: {done.stdout}{done.stderr}"
