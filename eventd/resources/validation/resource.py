"""Valid resources: those of this program's kinds, with a parsed spec, and those of other programs, as written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import ValidationError

from eventd.errors import Invalid
from eventd.resources.kinds.registry import KINDS, Kind, is_foreign
from eventd.resources.kinds.spec import Spec, section_under
from eventd.resources.reading.documents import Identity
from eventd.resources.reading.problems import render_path
from eventd.resources.validation import wording
from eventd.store.rows.registry import StoredResource

ResourceRef = Identity
"""The identity of a resource that another resource names; the named resource need not exist."""

S = TypeVar("S", bound=Spec)


def identity_of(stored: StoredResource) -> Identity:
    """Return the identity of a stored resource."""
    return Identity(stored.api_version, stored.kind, stored.name)


@dataclass(frozen=True, slots=True)
class Resource:
    """A declared resource of this program's kinds. Its spec is valid; resources that it refers to may be missing."""

    kind: Kind
    name: str
    annotations: Mapping[str, str]
    spec: Spec
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def identity(self) -> Identity:
        return Identity(self.kind.api_version, self.kind.name, self.name)

    def canonical(self) -> dict[str, Any]:
        """Return the spec as it is stored: the fields that were written, in canonical form, except empty ones."""
        written = self.spec.model_dump(mode="json", by_alias=True, exclude_unset=True)
        pruned = without_empty(written, type(self.spec))
        return pruned if isinstance(pruned, dict) else {}

    def effective(self) -> dict[str, Any]:
        """Return the spec with every default filled in, equal for all specs with the same meaning."""
        return self.spec.effective()

    def means(self, other: Declaration) -> bool:
        """Return whether both resources have the same annotations and labels, and specs with the same meaning, however
        written."""
        return _same_texts(self, other) and self.effective() == other.effective()

    def document(self) -> dict[str, Any]:
        """Return the resource as one YAML or JSON document that can be applied again."""
        return document(self.identity, self.annotations, self.canonical(), self.labels)


@dataclass(frozen=True, slots=True)
class ForeignResource:
    """A declared resource of another program's kind: stored as written."""

    identity: Identity
    annotations: Mapping[str, str]
    spec: Mapping[str, Any]
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.identity.name

    def canonical(self) -> dict[str, Any]:
        """Return the spec as it is stored, which is as it was written."""
        return dict(self.spec)

    def effective(self) -> dict[str, Any]:
        """Return the spec as it was written: its defaults are not known here."""
        return dict(self.spec)

    def means(self, other: Declaration) -> bool:
        """Return whether both resources have the same annotations, labels and spec.

        The order of keys does not matter.
        """
        return _same_texts(self, other) and _text(self.spec) == _text(other.effective())

    def document(self) -> dict[str, Any]:
        """Return the resource as one YAML or JSON document that can be applied again."""
        return document(self.identity, self.annotations, self.canonical(), self.labels)


Declaration = Resource | ForeignResource
"""A declared resource of any kind."""


def _same_texts(one: Declaration, other: Declaration) -> bool:
    """Return whether two resources have the same annotations and labels."""
    return dict(one.annotations) == dict(other.annotations) and dict(one.labels) == dict(other.labels)


def _text(spec: Mapping[str, Any]) -> str:
    """Return the spec as JSON text to compare, because 1 equals True in Python."""
    return json.dumps(spec, sort_keys=True)


def document(
    identity: Identity, annotations: Mapping[str, str], spec: Mapping[str, Any], labels: Mapping[str, str]
) -> dict[str, Any]:
    """Return a resource as a document: apiVersion, kind, metadata and spec, in this order."""
    metadata: dict[str, Any] = {"name": identity.name}
    if labels:
        metadata["labels"] = dict(sorted(labels.items()))
    if annotations:
        metadata["annotations"] = dict(sorted(annotations.items()))
    return {"apiVersion": identity.api_version, "kind": identity.kind, "metadata": metadata, "spec": dict(spec)}


def from_stored(stored: StoredResource) -> Declaration:
    """Return the resource of a stored row. Raises Invalid if this version of the program cannot read it."""
    if is_foreign(stored.api_version, stored.kind):
        return ForeignResource(identity_of(stored), stored.annotations, stored.spec, stored.labels)
    kind = KINDS.get(stored.kind)
    if kind is None or kind.api_version != stored.api_version:
        what = f"the stored {identity_of(stored)} is of {stored.api_version} {stored.kind}"
        raise Invalid(f"{what}, which this program does not know", hint="run the version that stored it")
    try:
        spec = kind.spec.model_validate(dict(stored.spec))
    except ValidationError as error:
        first = next(wording.findings(error, kind.spec))
        what = f"the stored {identity_of(stored)} cannot be used: {render_path(first.path)} {first.message}"
        raise Invalid(what, hint="apply it again in the form of this version") from error
    return Resource(kind, stored.name, stored.annotations, spec, stored.labels)


def specs_of(stored: Iterable[StoredResource], kind: Kind, of: type[S]) -> dict[str, S]:
    """Return the specs of one kind by name. Raises Invalid for a row this program cannot read."""
    read = ((row.name, from_stored(row).spec) for row in stored if row.kind == kind.name)
    return {name: spec for name, spec in read if isinstance(spec, of)}


def without_empty(value: Any, section: type[Spec] | None) -> Any:
    """Return the value without fields that are an empty section, list or text, which mean the same if absent.

    In a mapping whose keys are free, such as `env`, empty texts stay: there they have a meaning.
    """
    if isinstance(value, list):
        return [without_empty(inner, section) for inner in value]
    if not isinstance(value, dict) or section is None:
        return value
    pruned = {key: without_empty(inner, section_under(section, key)) for key, inner in value.items()}
    return {key: inner for key, inner in pruned.items() if inner not in ({}, [], "")}
