"""What was asked of the nodes and what they answered, with the virtual times: all that a client can know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from eventd.simulation.world.retention import SmallRetention

NEW_EPOCHS: Final = ("epoch", "restore by hand")
"""What happens to a machine so that its log begins a new epoch."""
LOSSES: Final = ("power", "epoch", "restore", "restore by hand")
"""What happens to a machine so that a seq may have another record afterwards."""
CHANGES: Final = ("emit", "write", "watched write", "route write", "job", "claim", "ack", "nack")
"""The kinds of questions whose answers acknowledge something that the node must keep."""
PLUGIN_RUN: Final = "plugin run"
"""The kind of journal entry of a run of a plugin: the ids of its events, and how it ended."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question to the node of `host`, and its answer. Times are those of the loop, in seconds.

    `status` is 0 without an answer: the question may have had its effect or not. `life` is the number of the process
    that ran when the question was asked; 0: none. `path` is what the question was sent to. `unit` names the planned
    work that a good answer acknowledges.
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
    unit: str = ""

    @property
    def is_good(self) -> bool:
        """Return whether the node did what it was asked for."""
        return 200 <= self.status < 300


@dataclass(frozen=True, slots=True)
class Restore:
    """The database of a machine was replaced, at `restored_at`, by a copy that was made at `copied_at`."""

    host: str
    copied_at: float
    restored_at: float


class HeadCommit(NamedTuple):
    """A commit that changed the head of a log: when, whether it waited for the disk, and the head's next position."""

    at: float
    is_durable: bool
    next_position: int


@dataclass(slots=True)
class Journal:
    """The questions of one run, and what happened to its machines as (time, what, host), both in order.

    `retentions` are those of the nodes that evict events. `listeners` are called with the host of each change that is
    acknowledged, at that moment.
    """

    asked: list[Asked] = field(default_factory=list)
    changes: list[tuple[float, str, str]] = field(default_factory=list)
    restores: list[Restore] = field(default_factory=list)
    commits: dict[str, list[HeadCommit]] = field(default_factory=dict)
    """The commits of each machine whose node has its database on Postgres."""
    retentions: dict[str, SmallRetention] = field(default_factory=dict)
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

    def may_have_lost(self, asked: Asked) -> bool:
        """Return whether a restore may have taken the effect of a question: the copy was made before its answer."""
        return any(
            each.host == asked.host and each.copied_at <= asked.answered_at and asked.asked_at <= each.restored_at
            for each in self.restores
        )

    def is_restored(self, host: str) -> bool:
        """Return whether the database of a machine was replaced by a copy."""
        return any(each.host == host for each in self.restores)

    def times(self, host: str, *kinds: str) -> list[float]:
        """Return when something of these kinds happened to a machine."""
        return [at for at, what, name in self.changes if name == host and what in kinds]

    def epochs(self, host: str) -> int:
        """Return how many epochs the log of a machine may have begun.

        One more may begin with each power loss after one of them: it may bring back the head file of an older epoch;
        and with each restore, when a peer shows a tree that the node opened after the copy.
        """
        own = [what for _, what, name in self.changes if name == host]
        begun = [number for number, what in enumerate(own) if what in NEW_EPOCHS]
        restores = sum(each.host == host for each in self.restores)
        return 1 + len(begun) + (own[begun[0] :].count("power") if begun else 0) + restores

    def count(self, what: str) -> int:
        """Return how often something happened to a machine."""
        return sum(each[1] == what for each in self.changes)
