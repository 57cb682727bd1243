"""EventSubscription: which events of a group run a plugin, how they are collected, and how long the result lasts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, Field

from eventd.resources.kinds.fields import (
    Duration,
    EventType,
    Flag,
    GroupName,
    SourceNode,
    SubjectPrefix,
    Texts,
    Whole,
    duration_between,
)
from eventd.resources.kinds.spec import Finding, Spec, wrong
from eventd.text.duration import HOUR, MILLISECOND, MINUTE, SECOND


def _some_types(values: tuple[str, ...]) -> tuple[str, ...]:
    if not values:
        raise wrong("must name at least one type", "write [*] for events of every type")
    return values


def _named_keys(values: dict[str, str]) -> dict[str, str]:
    if any(not key.strip() for key in values):
        raise wrong("must not contain an empty key")
    return values


_Wait = Annotated[Duration, AfterValidator(lambda value: max(value, 0))]


class Match(Spec):
    """Which events match; every given condition must hold."""

    types: Annotated[tuple[EventType, ...], AfterValidator(_some_types)] = Field(
        description="Events of these types; `a.b.*` means every type below a.b, and `*` every type."
    )
    subject_prefixes: tuple[SubjectPrefix, ...] = Field(
        default=(), description="Only events whose subject begins with one of these; all if empty."
    )
    payload: Annotated[Texts, AfterValidator(_named_keys)] = Field(
        default={}, description="Only events whose payload contains all of these pairs; all if empty."
    )
    source_nodes: tuple[SourceNode, ...] = Field(default=(), description="Only events of these nodes; all if empty.")


class Trigger(Spec):
    """The plugin to run, and how long events are collected before a run."""

    plugin_ref: GroupName = Field(description="Name of the Plugin.")
    batch_window: _Wait = Field(
        default=0, description="Collect events for at most this long after the first one; 0 or less: not set."
    )
    debounce: _Wait = Field(
        default=0, description="Run when no further event has arrived for this long; 0 or less: not set."
    )


class RunRetry(Spec):
    """What happens after a failed run; the wait doubles with each failure in a row."""

    max_attempts: Annotated[Whole, Field(ge=1, le=100)] = Field(
        default=3,
        description="After this many failed runs, a batch is halved; an event at fault becomes a dead letter.",
    )
    base_backoff: Annotated[Duration, duration_between(MILLISECOND, HOUR)] = Field(
        default=SECOND, description="The wait after the first failure."
    )
    max_backoff: Annotated[Duration, duration_between(MILLISECOND, 24 * HOUR)] = Field(
        default=MINUTE, description="The longest wait."
    )

    def findings(self) -> Iterator[Finding]:
        if self.max_backoff < self.base_backoff:
            yield Finding(("maxBackoff",), "must not be less than baseBackoff")


class Lifetime(Spec):
    """When the proposals of a run end, other than by the ttl of its result."""

    clamp_to_events: Flag = Field(
        default=False, description="Proposals expire no later than the events that they were made for."
    )
    withdraw_on_expired: Flag = Field(
        default=True,
        description="Proposals for a subject end, after the grace, when an event reports that the subject has gone.",
    )
    grace: Annotated[Duration, duration_between(0, 168 * HOUR)] = Field(
        default=30 * SECOND, description="How long a withdrawn proposal remains in effect."
    )


class EventSubscriptionSpec(Spec):
    """The spec of an EventSubscription."""

    group_ref: GroupName = Field(description="The name of the EventGroup.")
    match: Match = Field(description="Which events match.")
    trigger: Trigger = Field(description="The plugin to run, and when.")
    retry: RunRetry = Field(default_factory=RunRetry, description="What happens after a failed run.")
    lifetime: Lifetime = Field(default_factory=Lifetime, description="How long proposals remain in effect.")
