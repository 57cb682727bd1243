"""The request as a plugin reads it."""

from __future__ import annotations

import json

from eventd.plugins.contract.contract import API_VERSION, SUBSCRIPTION_TRIGGER, RunRequest, subscription_topic
from eventd.testing import NOW, event

WRITTEN = (
    '{"apiVersion":"plugin.routerd.net/v1alpha1","kind":"PluginRequest","metadata":{"name":"claim-plugin"},'
    '"spec":{"trigger":{"type":"federation-subscription","topic":"routerd.federation.subscription/claims"},'
    '"startupConfigHash":"","effectiveGeneration":0,"previousDynamicGeneration":0,"now":"2026-11-20T12:00:00.000001Z",'
    '"events":[{"id":"evt-1","group":"edge","sourceNode":"onprem","type":"routerd.client.ipv4.observed",'
    '"subject":"10.88.60.9/32","dedupeKey":"evt-1","payload":{"mac":"aa:bb:cc:dd:ee:ff"},'
    '"observedAt":"2026-11-20T12:00:00Z","expiresAt":"0001-01-01T00:00:00Z"}],"context":{}}}'
)


def of_subscription(**fields: object) -> RunRequest:
    topic = subscription_topic("claims")
    return RunRequest(plugin="claim-plugin", trigger=SUBSCRIPTION_TRIGGER, topic=topic, now=NOW + 1, **fields)  # type: ignore[arg-type]


def test_a_request_is_written_in_this_form() -> None:
    observed = event(
        "evt-1",
        group="edge",
        node="onprem",
        type="routerd.client.ipv4.observed",
        subject="10.88.60.9/32",
        payload={"mac": "aa:bb:cc:dd:ee:ff"},
    )
    assert of_subscription(events=[observed]).encode().decode() == WRITTEN


def test_without_events_there_is_no_list_of_them_and_the_context_is_empty() -> None:
    spec = json.loads(of_subscription().encode())["spec"]
    assert "events" not in spec
    assert spec["context"] == {}


def test_the_context_holds_resources_and_the_configuration_is_named() -> None:
    resource = {"apiVersion": API_VERSION, "kind": "Plugin", "name": "p", "spec": {"timeout": "1s"}}
    request = of_subscription(
        context=[resource], startup_hash="ab", effective_generation=2, previous_generation=1
    ).encode()
    spec = json.loads(request)["spec"]
    assert spec["context"] == {"resources": [resource]}
    assert (spec["startupConfigHash"], spec["effectiveGeneration"], spec["previousDynamicGeneration"]) == ("ab", 2, 1)
