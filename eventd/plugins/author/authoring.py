"""The values that a plugin's function takes and returns: events come in, proposals go out.

A plugin in Python is a function in the entry point group `eventd.plugins`. It is called with the events of a batch, or
with one event after another if its first parameter is called `event`, and with the resources of its context if it has a
parameter `context`, or a second one without a default. It returns or yields any of the values here, or mappings in the
JSON form of a PluginResult or its members; it may be asynchronous.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from msgspec import Struct, field

from federation.event import Event

__all__ = ["Emit", "Event", "Mask", "Part", "Plan", "Resource"]

FOR_SUBJECT: Final = "routerd.net/for-subject"
"""The annotation that ties a resource to one subject, so that it ends with the subject."""


class Resource(Struct, frozen=True):
    """A resource to add to the effective configuration while the result is in effect."""

    api_version: str
    kind: str
    name: str
    spec: Mapping[str, Any] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


class Mask(Struct, frozen=True):
    """A declared resource to leave out while the result is in effect; a DynamicOverridePolicy must allow it."""

    api_version: str
    kind: str
    name: str
    reason: str = ""


class Plan(Struct, frozen=True, kw_only=True):
    """A proposed action at an external system (`provider`, such as a cloud). Shown to operators, never executed."""

    name: str
    provider: str
    action: str
    target: Mapping[str, Any] = field(default_factory=dict)
    risk_level: str = ""
    undo: Mapping[str, Any] | None = None


class Emit(Struct, frozen=True, kw_only=True):
    """An event to emit into the group of the batch.

    `attributes`, and the message under the key `message`, become the payload unless `payload` is given. `ttl` is a
    timedelta or a text such as `5m`; without it and `expires_at`, that of the result applies.
    """

    type: str
    message: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)
    id: str = ""
    subject: str = ""
    dedupe_key: str = ""
    payload: Mapping[str, str] | None = None
    ttl: timedelta | str | None = None
    expires_at: datetime | str | None = None
    observed_at: datetime | str | None = None


class Part(Struct, frozen=True, kw_only=True):
    """Several proposals in one value, and the `ttl` and `observed_at` of the whole result of the run.

    `ttl` is a timedelta or a text such as `10m`; None: the `ttl` of the Plugin.
    """

    resources: Sequence[Resource | Mapping[str, Any]] = ()
    masks: Sequence[Mask | Mapping[str, Any]] = ()
    plans: Sequence[Plan | Mapping[str, Any]] = ()
    events: Sequence[Emit | Mapping[str, Any]] = ()
    ttl: timedelta | str | None = None
    observed_at: datetime | str | None = None


def write_duration(ttl: timedelta | str) -> str:
    """Return a duration as text for a result; a text is returned unchanged."""
    return ttl if isinstance(ttl, str) else f"{ttl // timedelta(microseconds=1)}us"


def write_time(time: datetime | str) -> str:
    """Return a time as text for a result; a text is returned unchanged. Raises ValueError without a time zone."""
    if isinstance(time, str):
        return time
    if time.tzinfo is None:
        raise ValueError(f"the time {time} has no time zone: write datetime.now(UTC), not datetime.now()")
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")


def resource_document(resource: Resource, subject: str = "") -> dict[str, Any]:
    """Return the resource as a document of a result, annotated with `subject` if it names no subject itself."""
    annotations = {FOR_SUBJECT: subject, **resource.annotations} if subject else dict(resource.annotations)
    metadata = {"name": resource.name, "annotations": annotations} if annotations else {"name": resource.name}
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": metadata,
        "spec": dict(resource.spec),
    }


def mask_document(mask: Mask) -> dict[str, Any]:
    """Return the mask as a directive, one document of a result."""
    target = {"apiVersion": mask.api_version, "kind": mask.kind, "name": mask.name}
    return {"op": "mask", "target": target, **({"reason": mask.reason} if mask.reason else {})}


def plan_document(plan: Plan) -> dict[str, Any]:
    """Return the plan as a document of a result."""
    written: dict[str, Any] = {"name": plan.name, "provider": plan.provider, "action": plan.action, "mode": "dry-run"}
    given = {"target": dict(plan.target), "riskLevel": plan.risk_level, "undo": plan.undo and dict(plan.undo)}
    return written | {key: value for key, value in given.items() if value}


def event_document(emit: Emit | Event) -> dict[str, Any]:
    """Return the event as a document of a result.

    Of an event that the plugin received, only type, subject and payload are kept: it becomes a new event.
    """
    if isinstance(emit, Event):
        emit = Emit(type=emit.type, subject=emit.subject, payload=emit.payload)
    given: dict[str, Any] = {
        "type": emit.type,
        "message": emit.message,
        "attributes": dict(emit.attributes),
        "id": emit.id,
        "subject": emit.subject,
        "dedupeKey": emit.dedupe_key,
        "ttl": emit.ttl and write_duration(emit.ttl),
        "expiresAt": emit.expires_at and write_time(emit.expires_at),
        "observedAt": emit.observed_at and write_time(emit.observed_at),
    }
    payload = {} if emit.payload is None else {"payload": dict(emit.payload)}
    return {key: value for key, value in given.items() if value} | payload


def is_many(value: object) -> bool:
    """Return whether a value is an iterable, and not a single proposal, a mapping, a text or bytes."""
    return isinstance(value, Iterable) and not isinstance(value, Mapping | str | bytes | Struct)
