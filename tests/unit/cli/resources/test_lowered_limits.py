"""Notes on what a change of limits deletes."""

from __future__ import annotations

from eventd.cli.resources.resources import _lowered_limits

TOPICS, GROUPS = "topic.routerd.net/v1alpha1", "federation.routerd.net/v1alpha1"


def test_lowered_limits_are_noted_with_what_they_delete() -> None:
    changes = [
        {
            "kind": "Topic",
            "apiVersion": TOPICS,
            "name": "orders",
            "lowers": ["ttlMs", "capBytes"],
        },
        {"kind": "EventGroup", "apiVersion": GROUPS, "name": "edge", "lowers": ["maxAge"]},
        {"kind": "Topic", "apiVersion": TOPICS, "name": "audit"},
    ]
    assert _lowered_limits(changes, "would be deleted") == [
        "note: ttlMs and capBytes of topic/orders: older records beyond the new limit would be deleted",
        "note: maxAge of eventgroup/edge: older events beyond the new limit would be deleted",
    ]
