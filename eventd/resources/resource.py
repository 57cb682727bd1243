"""A resource that holds together: its spec is read, its defaults are known, its text is canonical."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from eventd.errors import Invalid
from eventd.resources import rewording
from eventd.resources.documents import Identity
from eventd.resources.kinds import KINDS, Kind, known_kinds
from eventd.resources.problems import render_path
from eventd.resources.spec import Spec
from eventd.store.registry import StoredResource

ResourceRef = Identity
"""A resource that is named elsewhere: (api_version, kind, name); it need not exist."""


def identity_of(stored: StoredResource) -> Identity:
    """The identity of a stored resource."""
    return Identity(stored.api_version, stored.kind, stored.name)


@dataclass(frozen=True, slots=True)
class Resource:
    """A declared resource after its own rules; what it says about others is not part of this."""

    kind: Kind
    name: str
    annotations: Mapping[str, str]
    spec: Spec

    @property
    def identity(self) -> Identity:
        return Identity(self.kind.api_version, self.kind.name, self.name)

    def canonical(self) -> dict[str, Any]:
        """The spec as it is stored: what was written, in canonical texts, without defaults and empty sections."""
        pruned = without_empty(self.spec.model_dump(mode="json", by_alias=True, exclude_unset=True))
        return pruned if isinstance(pruned, dict) else {}

    def effective(self) -> dict[str, Any]:
        """The spec with every default filled in: two specs that mean the same are equal here."""
        return self.spec.model_dump(mode="json", by_alias=True)

    def means(self, other: Resource) -> bool:
        """Whether it declares the same, however it is written."""
        return dict(self.annotations) == dict(other.annotations) and self.effective() == other.effective()

    def document(self) -> dict[str, Any]:
        """The resource as one YAML or JSON document that can be applied again."""
        return document(self.identity, self.annotations, self.canonical())


def document(identity: Identity, annotations: Mapping[str, str], spec: Mapping[str, Any]) -> dict[str, Any]:
    """The members of a resource in the order people expect."""
    metadata: dict[str, Any] = {"name": identity.name}
    if annotations:
        metadata["annotations"] = dict(sorted(annotations.items()))
    return {"apiVersion": identity.api_version, "kind": identity.kind, "metadata": metadata, "spec": dict(spec)}


def from_stored(stored: StoredResource) -> Resource:
    """The resource in a row. Raises Invalid where this version of the program cannot read it."""
    kind = KINDS.get(stored.kind)
    if kind is None or kind.api_version != stored.api_version:
        what = f"the stored {identity_of(stored)} is of {stored.api_version} {stored.kind}"
        raise Invalid(f"{what}, which this program does not know", hint=known_kinds(stored.kind))
    try:
        spec = kind.spec.model_validate(dict(stored.spec))
    except ValidationError as error:
        first = next(rewording.findings(error, kind.spec))
        what = f"the stored {identity_of(stored)} cannot be used: {render_path(first.path)} {first.message}"
        raise Invalid(what, hint="apply it again as this version of the program wants it") from error
    return Resource(kind, stored.name, stored.annotations, spec)


def without_empty(value: Any) -> Any:
    """The value without empty sections and lists: both say the same as their absence."""
    if isinstance(value, list):
        return [without_empty(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    pruned = {key: without_empty(inner) for key, inner in value.items()}
    return {key: inner for key, inner in pruned.items() if inner not in ({}, [], "")}
