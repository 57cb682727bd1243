"""Builds a part from a plugin's proposal: its name, digest, owner, and the time it lasts. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from eventd.errors import Invalid
from eventd.store.parts.claims import key_of
from eventd.store.parts.part import PLUGIN, SUBSCRIPTION, NewPart
from federation.event import UNSET, Event, is_plain, micros

API_VERSION: Final = "config.routerd.net/v1alpha1"
KIND: Final = "DynamicConfigPart"

SOURCE_ANNOTATION: Final = "routerd.net/dynamic-source"
GROUP_ANNOTATION: Final = "routerd.net/event-group"
ID_ANNOTATION: Final = "routerd.net/event-id"
SUBJECT_ANNOTATION: Final = "routerd.net/event-subject"
MOST_NAMED: Final = 32
"""How many events or subjects an annotation names before it ends in `…`.

Each resource of a part carries the annotation, and a batch has up to 1,024 events; the part itself names all of them.
"""
MANUAL_GRACE: Final = 30_000_000
"""Microseconds that a part of a run without events stays in effect after its plugin or source was deleted."""
LATEST: Final = 253402300799_000000
"""The last second of the year 9999, the latest time that can be written, in microseconds."""


class Proposal(Protocol):
    """Interface of a plugin's result. `observed_at` and `ttl` in microseconds."""

    @property
    def observed_at(self) -> int: ...
    @property
    def ttl(self) -> int: ...
    @property
    def resources(self) -> Sequence[dict[str, Any]]: ...
    @property
    def directives(self) -> Sequence[dict[str, Any]]: ...
    @property
    def action_plans(self) -> Sequence[dict[str, Any]]: ...


def subscription_owner(name: str) -> str:
    """Return the owner of the parts of a subscription: `EventSubscription/NAME`."""
    return f"{SUBSCRIPTION}{name}"


def plugin_owner(name: str) -> str:
    """Return the owner, which is also the source, of the part of a manual run of a plugin: `Plugin/NAME`."""
    return f"{PLUGIN}{name}"


def source_of(owner: str, event_ids: Iterable[str]) -> str:
    """Return the source of a part derived from these events, `OWNER/DIGEST`, independent of their order."""
    return f"{owner}/{hashlib.sha256(','.join(sorted(event_ids)).encode()).hexdigest()[:16]}"


def part_name(source: str, generation: int) -> str:
    """Return the resource name of a part: its source with `-` for `/`, a dash, and the generation."""
    return f"{source.replace('/', '-')}-{generation}"


def digest_of(resources: Sequence[Any] | None, directives: Sequence[Any] | None) -> str:
    """Return the SHA-256 in hex of resources and directives as proposed, before the node annotates them.

    None stands for an absent list. Raises Invalid for values that JSON cannot represent.
    """
    parts = ",".join(
        f'"{name}":{_json(value)}' for name, value in (("resources", resources), ("directives", directives))
    )
    return hashlib.sha256(f"{{{parts}}}".encode()).hexdigest()


def _json(value: Sequence[Any] | None) -> str:
    if value is None:
        return "null"
    try:
        text = json.dumps(list(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        reason = "lone surrogates are not text" if isinstance(error, UnicodeError) else error
        raise Invalid(f"the plugin's result cannot be written as JSON: {reason}", hint="fix the plugin") from None
    return text


def form_part(
    *, owner: str, events: Sequence[Event], result: Proposal, plugin: str, clamp: bool, grace: int, now: int
) -> NewPart:
    """Build the part of a subscription's run over `events`, at least one.

    `clamp`: a resource ends no later than the last event about its subject, or about any subject if it has none.
    `grace`: how long the part outlives its subscription, or a withdrawn subject. If `observed_at` is out of range,
    `now` is used. Both are in microseconds. Raises Invalid for a result that cannot be stored.
    """
    ids = sorted(event.id for event in events)
    subjects = [event.subject for event in events if event.subject]
    annotations = {
        SOURCE_ANNOTATION: owner,
        GROUP_ANNOTATION: events[0].group,
        ID_ANNOTATION: _named(ids),
        **({SUBJECT_ANNOTATION: _named(subjects)} if subjects else {}),
    }
    return _form(
        result,
        annotations,
        owner=owner,
        source=source_of(owner, ids),
        group=events[0].group,
        plugin=plugin,
        event_ids=tuple(ids),
        subjects=tuple(dict.fromkeys(subjects)),
        ends=_ends_of(events) if clamp else {},
        grace=grace,
        now=now,
    )


def form_manual_part(*, plugin: str, result: Proposal, now: int, owner: str = "", ttl: int | None = None) -> NewPart:
    """Build the part of a run without events; an empty `owner` means the plugin.

    `ttl` in microseconds limits how long it lasts. Raises Invalid for a result that cannot be stored.
    """
    owner = owner or plugin_owner(plugin)
    annotations = {SOURCE_ANNOTATION: owner}
    part = _form(
        result, annotations, owner=owner, source=owner, group="", plugin=plugin, ends={}, grace=MANUAL_GRACE, now=now
    )
    return part if ttl is None else replace(part, expires_at=min(part.expires_at, part.observed_at + ttl))


def _form(result: Proposal, annotations: Mapping[str, str], *, now: int, **known: Any) -> NewPart:
    observed_at = result.observed_at if 0 <= result.observed_at <= LATEST else now
    for resource in result.resources:
        if not all(map(is_plain, key_of(resource))):
            raise Invalid("the plugin's result names a resource with U+0000 or a lone surrogate", hint="fix the plugin")
    _json(result.action_plans)
    return NewPart(
        observed_at=observed_at,
        expires_at=min(LATEST, observed_at + result.ttl),
        digest=digest_of(result.resources or None, result.directives or None),
        resources=tuple(_annotated(resource, annotations) for resource in result.resources),
        directives=tuple(result.directives),
        action_plans=tuple(result.action_plans),
        **known,
    )


def _annotated(resource: Mapping[str, Any], added: Mapping[str, str]) -> dict[str, Any]:
    metadata = dict(resource["metadata"])
    return {**resource, "metadata": {**metadata, "annotations": {**(metadata.get("annotations") or {}), **added}}}


def _named(names: Sequence[str]) -> str:
    if len(names) <= MOST_NAMED:
        return ",".join(names)
    return ",".join((*names[:MOST_NAMED], "…"))


def _ends_of(events: Iterable[Event]) -> dict[str, int]:
    """Return when the last event about each subject expires; subjects with an event that never expires are left out."""
    ends: dict[str, int] = {}
    never = set()
    for event in events:
        if event.expires_at == UNSET:
            never.add(event.subject)
        else:
            ends[event.subject] = max(micros(event.expires_at), ends.get(event.subject, 0))
    return {subject: end for subject, end in ends.items() if subject and subject not in never}
