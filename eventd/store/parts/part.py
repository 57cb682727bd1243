"""A part as a value: resources that a plugin derived from events, to write and as stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from eventd.store.parts.claims import ResourceKey, end_of_rest

SUBSCRIPTION, PLUGIN, SOURCE = "EventSubscription/", "Plugin/", "DynamicConfigSource/"
"""The prefixes of owners: an owner is the kind of a declared resource, followed by its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewPart:
    """A part to write. Times and the `grace` are in microseconds; `resources` have their annotations.

    `source` identifies the part, and `owner`, the declaration behind it, holds its claims. `ends`: the end of
    each subject that ends before the part.
    """

    owner: str
    source: str
    group: str
    plugin: str
    observed_at: int
    expires_at: int
    digest: str
    resources: Sequence[Mapping[str, Any]]
    directives: Sequence[Mapping[str, Any]] = ()
    action_plans: Sequence[Mapping[str, Any]] = ()
    event_ids: Sequence[str] = ()
    subjects: Sequence[str] = ()
    ends: Mapping[str, int]
    grace: int = 0


class ClaimSpan(NamedTuple):
    """A claim of a part: since when its owner has had it, and until when. Microseconds."""

    since: int
    ends_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPart(NewPart):
    """A stored part. `claims` are the resources that it defines, without those that a later part took over.

    Likewise `masks` are the declared resources that it masks. `revision` is the `parts_version` of its last change.
    `problem` says why the row cannot be read; its lists are empty then.
    """

    id: int
    generation: int
    ends_at: int
    claims: Mapping[ResourceKey, ClaimSpan]
    masks: frozenset[ResourceKey]
    revision: int
    created_at: int
    updated_at: int
    problem: str = ""

    @property
    def ends_rest_at(self) -> int:
        """Return when the resources end that are about no single subject."""
        return end_of_rest(ends=self.ends, subjects=self.subjects, expires_at=self.expires_at)
