"""The fields that every resource has besides its spec."""

from __future__ import annotations

import pytest

from eventd.errors import NotFound
from eventd.resources.kinds.registry import KINDS, find_kind
from tests.unit.resources.samples import FEDERATION, GROUP, accepted, problems

NAME_RULE = "must be 1 to 127 letters, digits or '.', '_', '-', beginning with a letter or a digit"
METADATA = "metadata: {name: edge}"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (f"apiVersion: {FEDERATION}\n", "", "1: EventGroup/edge apiVersion: is required"),
        (FEDERATION, "''", "1: EventGroup/edge apiVersion: is required"),
        (FEDERATION, "5", "1: EventGroup/edge apiVersion: must be text"),
        (
            FEDERATION,
            "federation.routerd.net/v1",
            f"1: EventGroup/edge apiVersion: EventGroup is not known in federation.routerd.net/v1 (write {FEDERATION})",
        ),
        ("kind: EventGroup\n", "", "1: edge kind: is required"),
        ("kind: EventGroup", "kind: [a]", "2: edge kind: must be text"),
        (
            "kind: EventGroup",
            "kind: EventGrop",
            "2: EventGrop/edge kind: unknown kind EventGrop (did you mean EventGroup?)",
        ),
        (
            "kind: EventGroup",
            "kind: Interface",
            f"2: Interface/edge kind: unknown kind Interface (known kinds: {', '.join(KINDS)})",
        ),
        (METADATA, "", "1: EventGroup metadata.name: is required"),
        (METADATA, "metadata:", "3: EventGroup metadata: must be a mapping with a name"),
        (METADATA, "metadata: edge", "3: EventGroup metadata: must be a mapping with a name"),
        (METADATA, "metadata: {}", "3: EventGroup metadata.name: is required"),
        (METADATA, "metadata: {name: ''}", "3: EventGroup metadata.name: is required"),
        (METADATA, "metadata: {name: 5}", "3: EventGroup metadata.name: must be text (put it in quotes)"),
        (METADATA, "metadata: {name: [a]}", "3: EventGroup metadata.name: must be text"),
        (METADATA, "metadata: {name: a/b}", f"3: EventGroup/a/b metadata.name: {NAME_RULE}"),
        (METADATA, "metadata: {name: _a}", f"3: EventGroup/_a metadata.name: {NAME_RULE}"),
        (METADATA, "metadata: {name: 'edge\n\n    '}", f"3: EventGroup/edge\\u000a metadata.name: {NAME_RULE}"),
        (
            METADATA,
            "metadata: {name: edge, namespace: x}",
            "3: EventGroup/edge metadata.namespace: unknown field (metadata has a name, annotations and labels)",
        ),
        (
            METADATA,
            "metadata: {name: edge, annotations: [a]}",
            "3: EventGroup/edge metadata.annotations: must be a mapping of texts",
        ),
        (
            METADATA,
            "metadata: {name: edge, annotations: {a/b: 5}}",
            '3: EventGroup/edge metadata.annotations["a/b"]: must be text (put it in quotes)',
        ),
        (
            METADATA,
            "metadata: {name: edge, annotations: {a: {b: c}}}",
            "3: EventGroup/edge metadata.annotations.a: must be text",
        ),
        (
            METADATA,
            "metadata: {name: edge, labels: {a: true}}",
            "3: EventGroup/edge metadata.labels.a: must be text (put it in quotes)",
        ),
        (
            METADATA,
            f"metadata: {{name: edge, annotations: {{a: {'x' * 262144}}}}}",
            "3: EventGroup/edge metadata.annotations: is longer than 262144 characters",
        ),
        (
            "spec:",
            "sepc:",
            "4: EventGroup/edge sepc: unknown field (a resource has apiVersion, kind, metadata, spec, status)",
        ),
    ],
)
def test_what_is_wrong_around_the_spec_is_named(old: str, new: str, problem: str) -> None:
    assert problem in problems(GROUP.replace(old, new))


@pytest.mark.parametrize(
    ("spec", "message"),
    [("", "is required"), (" 5", "must be a mapping of fields, not 5"), (" [a]", "must be a mapping of fields")],
)
def test_a_spec_is_a_mapping(spec: str, message: str) -> None:
    assert problems(GROUP.partition("spec:")[0] + f"spec:{spec}\n") == [f"4: EventGroup/edge spec: {message}"]


def test_several_problems_around_the_spec_come_with_those_inside() -> None:
    text = (
        GROUP.replace("name: edge", "nme: edge").replace("onprem", "''").replace("v1alpha1", "v2")
        + "status: {}\nmore: 1\n"
    )
    assert [problem.split(": ")[:2] for problem in problems(text)] == [
        ["1", "EventGroup apiVersion"],
        ["3", "EventGroup metadata.name"],
        ["3", "EventGroup metadata.nme"],
        ["5", "EventGroup spec.nodeName"],
        ["8", "EventGroup more"],
    ]


def test_what_other_tools_add_is_ignored_and_annotations_and_labels_are_kept() -> None:
    others = "uid: x, generation: 5, creationTimestamp: 2026-11-20, labels: {a: b}"
    metadata = f"metadata: {{name: edge, {others}, annotations: {{a/b: c}}}}"
    [resource] = accepted(GROUP.replace(METADATA, metadata) + "status: {phase: Applied}\n")
    assert resource.annotations == {"a/b": "c"}
    assert resource.labels == {"a": "b"}
    assert resource.document() == {
        "apiVersion": FEDERATION,
        "kind": "EventGroup",
        "metadata": {"name": "edge", "labels": {"a": "b"}, "annotations": {"a/b": "c"}},
        "spec": {"nodeName": "onprem", "auth": {"secretFile": "/etc/eventd/edge.key"}},
    }


def test_absent_annotations_may_be_written_as_nothing() -> None:
    [resource] = accepted(GROUP.replace(METADATA, "metadata: {name: edge, annotations: , labels: }"))
    assert resource.annotations == {}


def test_a_resource_declared_twice_names_the_first_place() -> None:
    assert problems(f"{GROUP}---\n{GROUP}") == [
        "10: EventGroup/edge metadata.name: EventGroup/edge is declared twice, first at a.yaml:1"
    ]


@pytest.mark.parametrize("word", ["EventPeer", "eventpeer", "eventpeers", "EventPeers", "peer", "peers", "ep"])
def test_a_kind_has_the_names_people_type(word: str) -> None:
    assert find_kind(word) is KINDS["EventPeer"]


def test_a_subscription_has_a_short_name() -> None:
    assert find_kind("es") is KINDS["EventSubscription"]


def test_an_unknown_kind_names_the_known_ones() -> None:
    with pytest.raises(NotFound) as refused:
        find_kind("pod")
    assert str(refused.value) == f"unknown kind pod (known kinds: {', '.join(KINDS)})"
    with pytest.raises(NotFound, match="did you mean EventGroup"):
        find_kind("eventgrups")
