"""Collects what a plugin's function returned or yielded as the `status` of a result. Runs in the host process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from math import isfinite
from typing import Any, Final

import msgspec

from eventd.plugins.author.authoring import (
    FOR_SUBJECT,
    Emit,
    Event,
    Mask,
    Part,
    Plan,
    Resource,
    event_document,
    is_many,
    mask_document,
    plan_document,
    resource_document,
    write_duration,
    write_time,
)

MAX_BYTES: Final = 4 << 20
"""Maximum bytes of all proposals of one run, as JSON."""
_LISTS: Final = ("resources", "directives", "actionPlans", "events")
_STATUS: Final = frozenset((*_LISTS, "ttl", "observedAt"))
_ENCODE: Final = msgspec.json.Encoder().encode
_DOCUMENTS: Final[dict[type, tuple[str, Callable[[Any], dict[str, Any]]]]] = {
    Mask: ("directives", mask_document),
    Plan: ("actionPlans", plan_document),
    Emit: ("events", event_document),
    Event: ("events", event_document),
}


class ProposalTooLarge(Exception):
    """The function proposes more than `MAX_BYTES`; nothing more is collected from it."""


class ProposalWriter:
    """Collects proposals one by one, so that a function that yields ever more is stopped at `MAX_BYTES`.

    With `latest` a resource replaces an earlier one of the same apiVersion, kind and name.
    """

    def __init__(self, *, latest: bool = False) -> None:
        self._latest = latest
        self._places: dict[tuple[Any, Any, Any], int] = {}
        self._lists: dict[str, list[msgspec.Raw]] = {name: [] for name in _LISTS}
        self._bytes = 0
        self._ttl = self._observed_at = ""

    def add(self, value: Any, subject: str = "") -> None:
        """Add a returned value, or each of several; None adds nothing. Resources without a subject get `subject`.

        Raises TypeError for an unsupported type, ValueError for a ttl or observedAt unlike an earlier one, a number
        that is not finite and a time without a time zone, and ProposalTooLarge beyond `MAX_BYTES` in all.
        """
        if value is None:
            return
        if isinstance(value, Resource):
            self._write("resources", resource_document(value, subject))
        elif found := _DOCUMENTS.get(type(value)):
            self._write(found[0], found[1](value))
        elif isinstance(value, Part):
            self._add_part(value, subject)
        elif isinstance(value, Mapping):
            self._add_mapping(dict(value), subject)
        elif is_many(value):
            for inner in value:
                self.add(inner, subject)
        else:
            raise TypeError(f"returned {type(value).__name__}; {_EXPECTED}")

    def status(self) -> bytes:
        """Return the `status` of the result as JSON."""
        given: dict[str, Any] = {name: written for name, written in self._lists.items() if written}
        if self._ttl:
            given["ttl"] = self._ttl
        if self._observed_at:
            given["observedAt"] = self._observed_at
        return _ENCODE(given)

    def _write(self, name: str, document: Mapping[str, Any]) -> None:
        raw = _ENCODE(document)
        if b"null" in raw:  # JSON has no such number: null
            _refuse_nonfinite(document)
        self._bytes += len(raw) + 1
        if self._bytes > MAX_BYTES:
            raise ProposalTooLarge
        place = self._place_of(document) if self._latest and name == "resources" else None
        if place is None:
            self._lists[name].append(msgspec.Raw(raw))
        else:
            self._lists[name][place] = msgspec.Raw(raw)

    def _place_of(self, document: Mapping[str, Any]) -> int | None:
        """Return the index of the earlier resource with the same identity; None for a new one, whose index is noted."""
        metadata = document.get("metadata")
        name = metadata.get("name") if isinstance(metadata, Mapping) else None
        identity = (str(document.get("apiVersion")), str(document.get("kind")), str(name))
        place = self._places.setdefault(identity, len(self._lists["resources"]))
        return place if place < len(self._lists["resources"]) else None

    def _add_part(self, part: Part, subject: str) -> None:
        self.add([*part.resources, *part.masks, *part.plans, *part.events], subject)
        self._note(part.ttl and write_duration(part.ttl), part.observed_at and write_time(part.observed_at))

    def _add_mapping(self, value: dict[str, Any], subject: str) -> None:
        if value.get("kind") == "PluginResult":
            self._add_status(value.get("status") or {}, subject)
        elif value.get("kind") == "DynamicConfigPart":
            self._add_status(_status_of_part(value.get("spec") or {}), subject)
        elif "apiVersion" in value or "kind" in value:
            self._write("resources", _for_subject(value, subject))
        elif "op" in value:
            self._write("directives", value)
        elif "provider" in value:
            self._write("actionPlans", value)
        elif "type" in value:
            self._write("events", value)
        elif value.keys() & _STATUS or not value:
            self._add_status(value, subject)
        else:
            raise TypeError(f"returned a mapping of unknown form, with {', '.join(map(str, value))[:80]}; {_EXPECTED}")

    def _add_status(self, status: Mapping[str, Any], subject: str) -> None:
        for name in _LISTS:
            for document in status.get(name) or ():
                if name == "resources" and isinstance(document, dict):
                    self._write(name, _for_subject(document, subject))
                elif isinstance(document, Mapping):
                    self._write(name, document)
                else:
                    self.add(document, subject)
        self._note(status.get("ttl"), status.get("observedAt"))

    def _note(self, ttl: Any, observed_at: Any) -> None:
        """Keep ttl and observedAt for the result, unless empty.

        Raises ValueError if a different value was kept before.
        """
        for name, value in (("_ttl", ttl), ("_observed_at", observed_at)):
            if value and getattr(self, name) not in ("", value):
                raise ValueError("returned two different ttl or observedAt; return one for all proposals of a run")
            if value:
                setattr(self, name, value)


_EXPECTED: Final = "return Resource, Mask, Plan, Emit, Part, a mapping in one of these forms, or several of them"


def _refuse_nonfinite(value: Any) -> None:
    if isinstance(value, float) and not isfinite(value):
        raise ValueError(f"returned {value}, but numbers must be finite")
    if isinstance(value, Mapping):
        value = value.values()
    if is_many(value):
        for inner in value:
            _refuse_nonfinite(inner)


def _for_subject(document: dict[str, Any], subject: str) -> dict[str, Any]:
    metadata = document.get("metadata")
    if not subject or not isinstance(metadata, dict):
        return document
    annotations = {FOR_SUBJECT: subject, **(metadata.get("annotations") or {})}
    return {**document, "metadata": {**metadata, "annotations": annotations}}


def _status_of_part(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec of a part as a status: `ttl` is the time from observedAt to expiresAt, if both are given."""
    status = {name: spec[name] for name in _LISTS if name in spec}
    observed, expires = spec.get("observedAt"), spec.get("expiresAt")
    if observed:
        status["observedAt"] = observed
    if observed and expires:
        status["ttl"] = write_duration(datetime.fromisoformat(expires) - datetime.fromisoformat(observed))
    return status
