"""All checks of what the loads beside emits were answered, each with a reference of one node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Protocol

from eventd.simulation.checks.callbacks import CallbackReference
from eventd.simulation.checks.effects import EffectReference
from eventd.simulation.checks.follows import FollowReference
from eventd.simulation.checks.publishes import PublishReference
from eventd.simulation.checks.queues import QueueReference
from eventd.simulation.checks.renewals import RenewalReference
from eventd.simulation.checks.routes import RouteReference
from eventd.simulation.checks.sockets import SocketReference
from eventd.simulation.checks.topics import TopicReference
from eventd.simulation.checks.violation import Violation
from eventd.simulation.checks.watches import WatchReference
from eventd.simulation.world.journal import Journal


class LoadReference(Protocol):
    """What must be true of one kind of load at one node, whose run began at a time of the loop."""

    def __init__(self, journal: Journal, host: str, begin: float) -> None: ...

    def violations(self) -> Iterator[Violation]:
        """Yield what is wrong."""
        ...


REFERENCES: Final[Sequence[type[LoadReference]]] = (
    TopicReference,
    FollowReference,
    QueueReference,
    WatchReference,
    SocketReference,
    RouteReference,
    EffectReference,
    CallbackReference,
    PublishReference,
    RenewalReference,
)
"""A reference for each kind of load."""


def judge_loads(journal: Journal, host: str, begin: float) -> Iterator[Violation]:
    """Yield what is wrong with the loads of one node."""
    for reference in REFERENCES:
        yield from reference(journal, host, begin).violations()
