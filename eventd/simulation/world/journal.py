"""What was asked of the nodes and what they answered, with the virtual times: all that a client can know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

CHANGES: Final = ("emit", "write", "job", "claim", "ack", "nack")
"""The kinds of questions whose answers acknowledge something that the node must keep."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question to the node of `host`, and its answer. Times are those of the loop, in seconds.

    `status` is 0 without an answer: the question may have had its effect or not. `life` is the number of the process
    that ran when the question was asked; 0: none. `path` is what the question was sent to.
    """

    kind: str
    host: str
    asked_at: float
    answered_at: float
    status: int
    question: Any
    answer: Any
    life: int = 0
    path: str = ""

    @property
    def is_good(self) -> bool:
        """Return whether the node did what it was asked for."""
        return 200 <= self.status < 300


@dataclass(slots=True)
class Journal:
    """The questions of one run, and what happened to its machines as (time, what, host), both in order.

    `listeners` are called with the host of each change that is acknowledged, at that moment.
    """

    asked: list[Asked] = field(default_factory=list)
    changes: list[tuple[float, str, str]] = field(default_factory=list)
    listeners: list[Callable[[str], None]] = field(default_factory=list)

    def add(self, asked: Asked) -> None:
        """Write down a question with its answer."""
        self.asked.append(asked)
        if asked.kind in CHANGES and asked.is_good:
            for listener in list(self.listeners):
                listener(asked.host)

    def of(self, kind: str) -> list[Asked]:
        """Return the questions of one kind, in the order of their answers."""
        return [each for each in self.asked if each.kind == kind]

    def epochs(self, host: str) -> int:
        """Return how many epochs the log of a machine may have begun.

        One more may begin with each power loss after an operator's: it may bring back the head file of an older epoch.
        """
        own = [what for _, what, name in self.changes if name == host]
        later = own[own.index("epoch") :] if "epoch" in own else []
        return 1 + later.count("epoch") + later.count("power")

    def count(self, what: str) -> int:
        """Return how often something happened to a machine."""
        return sum(each[1] == what for each in self.changes)
