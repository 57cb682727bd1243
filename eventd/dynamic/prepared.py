"""Parts and declared resources, prepared once for any number of merges. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from pydantic import ValidationError

from eventd.dynamic.part import ID_ANNOTATION, SUBJECT_ANNOTATION
from eventd.resources.kinds.registry import KINDS, is_foreign
from eventd.resources.reading.problems import render_path
from eventd.resources.validation import wording
from eventd.resources.validation.resource import document, identity_of
from eventd.store.parts.claims import ResourceKey, key_of, target_of
from eventd.store.parts.part import StoredPart
from eventd.store.rows.registry import StoredResource

MASK = "mask"
_EVENTS = frozenset((ID_ANNOTATION, SUBJECT_ANNOTATION))
_ENCODER = msgspec.json.Encoder(order="sorted")


class Entry(NamedTuple):
    """A resource of a configuration.

    `text` is its canonical JSON; `content` is the same without the annotations that name its events, so that a renewal
    by another event counts as unchanged.
    """

    order: tuple[str, str, str]
    key: ResourceKey
    resource: Mapping[str, Any]
    text: bytes
    content: bytes


class AddedResource(NamedTuple):
    """A resource that a part adds: since when its owner has defined it, and until when. Microseconds."""

    entry: Entry
    since: int
    ends_at: int


class Directive(NamedTuple):
    """An action of a part on a declared resource."""

    op: str
    target: ResourceKey
    reason: str


@dataclass(frozen=True, slots=True)
class PreparedPart:
    """A part, checked for merging. `ends` are the times (microseconds) when something in it ends, `ends_at` the last.

    `flaw` is why the part by itself cannot be used, or empty; with a flaw, `given`, `directives` and `ends` are empty.
    """

    source: str
    owner: str
    generation: int
    given: tuple[AddedResource, ...]
    directives: tuple[Directive, ...]
    directives_end: int
    ends: tuple[int, ...]
    ends_at: int
    flaw: str
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Startup:
    """The declared resources, sorted by kind, name and apiVersion, and their keys."""

    entries: Sequence[Entry]
    keys: frozenset[ResourceKey]


def prepare_startup(stored: Iterable[StoredResource]) -> Startup:
    """Prepare the declared resources, whatever their order."""
    made = (
        _entry(
            ResourceKey(row.api_version, row.kind, row.name),
            document(identity_of(row), row.annotations, row.spec, row.labels),
        )
        for row in stored
    )
    entries = sorted(made, key=lambda entry: entry.order)
    return Startup(entries, frozenset(entry.key for entry in entries))


def prepare(part: StoredPart) -> PreparedPart:
    """Prepare a part by itself, without regard to others. Never raises: a fault becomes the `flaw` of the result."""
    given: list[AddedResource] = []
    flaw = part.problem
    for resource in part.resources:
        key = key_of(resource) if isinstance(resource, Mapping) else ResourceKey("", "", "")
        held = part.claims.get(key)
        if held is None and all(key):
            continue  # a later part defines it
        flaw = flaw or _flaw_of(key, resource)
        if flaw or held is None:
            continue
        try:
            given.append(AddedResource(_derived(key, resource), held.since, held.ends_at))
        except (UnicodeEncodeError, RecursionError):
            flaw = f"{key} cannot be written as JSON"
    names = [one.entry.key for one in given]
    repeated = next((key for key in names if names.count(key) > 1), None) if len(set(names)) < len(names) else None
    flaw = flaw or (f"it names {repeated} twice" if repeated else "")
    rest = part.ends_rest_at
    written = map(_directive, part.directives)
    directives = tuple(one for one in written if one.op != MASK or one.target in part.masks)  # or a later part masks it
    ends = {one.ends_at for one in given} | ({rest} if directives or part.action_plans else set())
    return PreparedPart(
        source=part.source,
        owner=part.owner,
        generation=part.generation,
        given=() if flaw else tuple(given),
        directives=() if flaw else directives,
        directives_end=rest,
        ends=() if flaw else tuple(sorted(ends)),
        ends_at=part.ends_at if flaw else max(ends, default=part.ends_at),
        flaw=flaw,
        warnings=tuple(
            f"{key} of {part.source} is shown, but has no effect: declare it with routerctl apply"
            for key in names
            if key.kind in KINDS
        ),
    )


def _entry(key: ResourceKey, resource: Mapping[str, Any]) -> Entry:
    text = _ENCODER.encode(resource)
    return Entry((key.kind, key.name, key.api_version), key, resource, text, text)


def _derived(key: ResourceKey, resource: Mapping[str, Any]) -> Entry:
    entry = _entry(key, resource)
    metadata = resource["metadata"]
    annotations = metadata.get("annotations")
    if not isinstance(annotations, Mapping) or not annotations.keys() & _EVENTS:
        return entry
    lasting = {name: text for name, text in annotations.items() if name not in _EVENTS}
    return entry._replace(content=_ENCODER.encode({**resource, "metadata": {**metadata, "annotations": lasting}}))


_is_foreign = lru_cache(maxsize=256)(is_foreign)  # parts are many, their kinds are few


def _flaw_of(key: ResourceKey, resource: Any) -> str:
    """Return why a resource cannot be part of a configuration; empty if it can."""
    if not all(key):
        return "a resource lacks its apiVersion, kind or name"
    if _is_foreign(key.api_version, key.kind):
        return ""
    kind = KINDS.get(key.kind)
    if kind is None or kind.api_version != key.api_version:
        return f"{key.api_version} {key.kind} is not a configurable kind"
    spec = resource.get("spec")
    try:
        kind.spec.model_validate(spec if isinstance(spec, Mapping) else {})
    except ValidationError as error:
        first = next(wording.findings(error, kind.spec))
        return f"{key}: {render_path(first.path)} {first.message}"
    return ""


def _directive(written: Any) -> Directive:
    values = written if isinstance(written, Mapping) else {}
    return Directive(str(values.get("op", "")), target_of(values), str(values.get("reason") or ""))
