"""The changes that the parts make to the declared resources, as a unified diff of YAML, limited in size."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from eventd.dynamic.merge import Effective
from eventd.resources.validation.resource import document, identity_of
from eventd.store.parts.claims import ResourceKey
from eventd.store.rows.registry import StoredResource

MOST_RESOURCES: Final = 100
"""Maximum number of resources that the diff shows."""
MOST_CHARACTERS: Final = 64 << 10
"""Maximum length of the diff; a resource beyond it is left out."""


class MergeText(NamedTuple):
    """A diff. `whole`: it shows all that the parts change."""

    text: str
    whole: bool


def write_merge(effective: Effective, declared: Sequence[StoredResource]) -> MergeText:
    """Return the diff from the declared resources to the effective configuration: masked ones, then added ones."""
    found: list[str] = []
    size = 0
    for diff in _changes(effective, declared):
        if len(found) == MOST_RESOURCES or size + len(diff) > MOST_CHARACTERS:
            return MergeText("".join(found), False)
        found.append(diff)
        size += len(diff)
    return MergeText("".join(found), True)


def _changes(effective: Effective, declared: Sequence[StoredResource]) -> Iterator[str]:
    rows = {ResourceKey(*identity_of(row)): row for row in declared}
    for one in effective.suppressed:
        if row := rows.get(one.target):
            yield _diff(one.target, document(identity_of(row), row.annotations, row.spec, row.labels), None)
    added = {one.key for one in effective.added}
    for entry in effective.entries:
        if entry.key in added:
            yield _diff(entry.key, None, entry.resource)


def _diff(key: ResourceKey, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> str:
    name = f"{key.kind}/{key.name}"
    lines = difflib.unified_diff(_yaml(before), _yaml(after), f"declared/{name}", f"effective/{name}")
    return "".join(lines)


def _yaml(value: Mapping[str, Any] | None) -> list[str]:
    from eventd.resources.reading.yaml_text import write_yaml  # slow to load, and only a diff is written as YAML

    return [] if value is None else write_yaml(dict(value)).splitlines(keepends=True)
