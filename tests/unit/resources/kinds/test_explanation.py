"""The fields of a kind, explained from its models."""

from __future__ import annotations

import pytest

from eventd.errors import NotFound
from eventd.resources.kinds.explanation import explain
from eventd.resources.kinds.registry import EVENT_GROUP, EVENT_PEER, KINDS, PLUGIN, Kind
from eventd.resources.kinds.spec import walk


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_every_field_of_every_kind_is_explained(kind: Kind) -> None:
    fields = {field.path: field for field in explain(kind)}
    assert {f"spec.{field.path}" for field in walk(kind.spec)} <= fields.keys()
    assert {"metadata.name", "metadata.labels", "spec"} <= fields.keys()
    assert [path for path, field in fields.items() if not field.description or field.type == "value"] == []


@pytest.mark.parametrize(
    ("kind", "path", "type", "default"),
    [
        (EVENT_PEER, "spec.limits.timeout", "duration", "30s"),
        (EVENT_PEER, "limits.batchBytes", "size", "1MiB"),
        (EVENT_PEER, "relay", "true or false", "false"),
        (EVENT_PEER, "types", "list of texts", ""),
        (EVENT_PEER, "direction", "only push", "push"),
        (EVENT_PEER, "limits", "section", ""),
        (EVENT_GROUP, "auth.keys", "list of sections", ""),
        (EVENT_GROUP, "auth.keys.state", "one of pending, active, retiring, revoked", "active"),
        (EVENT_GROUP, "spec.auth.keys[].speaksFor", "list of texts", ""),
        (EVENT_GROUP, "protocols", "list of v1, v2", "v1, v2"),
        (PLUGIN, "env", "texts by key", ""),
        (PLUGIN, "triggers.every", "duration", ""),
    ],
)
def test_a_field_has_its_type_and_default(kind: Kind, path: str, type: str, default: str) -> None:
    field = explain(kind, path)[0]
    assert (field.type, field.default) == (type, default)


def test_a_section_is_followed_by_its_fields_alone() -> None:
    paths = [field.path for field in explain(EVENT_PEER, "spec.retry")]
    assert paths == ["spec.retry", "spec.retry.baseBackoff", "spec.retry.maxBackoff"]


def test_an_unknown_field_is_refused_with_the_closest_one() -> None:
    with pytest.raises(NotFound, match=r"EventGroup has no field 'spec.retntion'.*did you mean spec.retention\?"):
        explain(EVENT_GROUP, "spec.retntion")
