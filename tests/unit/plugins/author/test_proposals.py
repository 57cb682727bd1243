"""Collecting the proposals that a plugin function returns."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from eventd.plugins import Emit, Mask, Part, Plan, Resource
from eventd.plugins.author.authoring import write_time
from eventd.plugins.author.proposals import MAX_BYTES, ProposalTooLarge, ProposalWriter

ROUTE = {"apiVersion": "n/v1", "kind": "Route", "metadata": {"name": "r"}, "spec": {}}


def gather(*values: Any, subject: str = "") -> dict[str, Any]:
    gathered = ProposalWriter()
    for value in values:
        gathered.add(value, subject)
    found: dict[str, Any] = json.loads(gathered.status())
    return found


def test_nothing_is_an_empty_status() -> None:
    assert gather(None, [], (), {}) == {}


@pytest.mark.parametrize(
    ("value", "status"),
    [
        (Resource("n/v1", "Route", "r"), {"resources": [ROUTE]}),
        (ROUTE, {"resources": [ROUTE]}),
        ({"op": "mask"}, {"directives": [{"op": "mask"}]}),
        ({"provider": "oci"}, {"actionPlans": [{"provider": "oci"}]}),
        ({"type": "seen"}, {"events": [{"type": "seen"}]}),
        ({"ttl": "5m", "later": 1}, {"ttl": "5m"}),
        (Part(ttl=timedelta(seconds=90)), {"ttl": "90000000us"}),
        (Part(observed_at=datetime(2026, 5, 30, tzinfo=UTC)), {"observedAt": "2026-05-30T00:00:00Z"}),
        (Emit(type="t", payload={}), {"events": [{"type": "t", "payload": {}}]}),
        (
            Plan(name="p", provider="oci", action="a"),
            {"actionPlans": [{"name": "p", "provider": "oci", "action": "a", "mode": "dry-run"}]},
        ),
        (
            Mask("n/v1", "Route", "r"),
            {"directives": [{"op": "mask", "target": {"apiVersion": "n/v1", "kind": "Route", "name": "r"}}]},
        ),
    ],
)
def test_a_value_finds_its_place(value: Any, status: dict[str, Any]) -> None:
    assert gather(value) == status


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_is_not_finite_is_not_taken_for_nothing(number: float) -> None:
    with pytest.raises(ValueError, match="numbers must be finite"):
        gather(Resource("n/v1", "Route", "r", {"weights": [None, {"a": number}]}))


def test_nothing_stays_nothing() -> None:
    assert gather(Resource("n/v1", "Route", "r", {"a": [None, "null"]}))["resources"][0]["spec"] == {
        "a": [None, "null"]
    }


def test_a_subject_is_noted_on_resources_and_nowhere_else() -> None:
    status = gather(ROUTE, Part(resources=[Resource("n/v1", "Route", "s")]), {"type": "t"}, subject="10.0.0.1")
    noted = [found["metadata"]["annotations"] for found in status["resources"]]
    assert noted == [{"routerd.net/for-subject": "10.0.0.1"}] * 2
    assert status["events"] == [{"type": "t"}]
    assert "annotations" not in ROUTE["metadata"]


def test_a_part_that_says_when_it_ends_says_how_long_it_holds() -> None:
    spec = {"resources": [ROUTE], "observedAt": "2026-05-30T12:00:00Z", "expiresAt": "2026-05-30T12:10:00Z"}
    status = gather({"kind": "DynamicConfigPart", "spec": spec})
    assert (status["ttl"], status["observedAt"]) == ("600000000us", "2026-05-30T12:00:00Z")


@pytest.mark.parametrize(("value", "told"), [(5, "returned int"), ("text", "returned str"), ({"a": 1}, "with a;")])
def test_what_is_none_of_these_is_named(value: Any, told: str) -> None:
    with pytest.raises(TypeError, match=told):
        gather(value)


def test_too_much_is_noticed_while_it_comes() -> None:
    endless = ({"type": "x" * 100_000} for _ in iter(int, 1))
    gathered = ProposalWriter()
    with pytest.raises(ProposalTooLarge):
        gathered.add(endless)
    assert len(gathered.status()) <= MAX_BYTES + 1000


def test_a_time_needs_a_zone_and_is_written_in_utc() -> None:
    assert write_time(datetime(2026, 5, 30, 14, tzinfo=timezone(timedelta(hours=2)))) == "2026-05-30T12:00:00Z"
    with pytest.raises(ValueError, match="has no time zone"):
        write_time(datetime(2026, 5, 30, 14))


def test_where_the_latest_counts_a_resource_is_named_once() -> None:
    gathered = ProposalWriter(latest=True)
    for number, subject in ((1, "a"), (2, "b"), (3, "a")):
        gathered.add(Resource("n/v1", "Route", subject, {"said": number}), subject)
    found = json.loads(gathered.status())["resources"]
    assert [(one["metadata"]["name"], one["spec"]["said"]) for one in found] == [("a", 3), ("b", 2)]
