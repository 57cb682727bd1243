"""Building a part: names, digests, annotations, and when it ends."""

from __future__ import annotations

from typing import Any

import pytest

from eventd.dynamic.part import (
    LATEST,
    MOST_NAMED,
    digest_of,
    form_manual_part,
    form_part,
    part_name,
    source_of,
    subscription_owner,
)
from eventd.errors import Invalid
from eventd.plugins.contract.contract import Result
from eventd.testing import NOW, event
from tests.unit.dynamic.samples import HOUR, mask, route

OWNER = "EventSubscription/claims"


def result(**given: Any) -> Result:
    return Result(**{"observed_at": NOW, "ttl": HOUR, "resources": [route("r1")], **given})


def formed(*events: Any, clamp: bool = False, **given: Any) -> Any:
    return form_part(owner=OWNER, events=events, result=result(**given), plugin="p", clamp=clamp, grace=7, now=NOW)


@pytest.mark.parametrize(
    ("ids", "digest"),
    [
        (["e1"], "8b5cc4df7eec7d32"),
        (["e1", "e2"], "499b012dcfbcd232"),
        (["e2", "e1"], "499b012dcfbcd232"),
        (["evt-phase3-smoke-20260530T112250Z"], "07634fdff9b3235c"),
    ],
)
def test_the_source_names_the_events(ids: list[str], digest: str) -> None:
    assert source_of(subscription_owner("claims"), ids) == f"{OWNER}/{digest}"


def test_the_name_is_the_source_without_slashes() -> None:
    assert part_name(f"{OWNER}/8b5cc4df7eec7d32", 3) == "EventSubscription-claims-8b5cc4df7eec7d32-3"


@pytest.mark.parametrize(
    ("resources", "directives", "digest"),
    [
        (None, None, "fb7ee6a41872dfc6862cb18dc74fbf24592819c111acb615e94ce25869c3319c"),
        ([], [], "4eda4ed6b7998102167365cc34ead3e8dfcee2865441335a3a70cac27e5367ac"),
    ],
)
def test_digests_that_others_know(resources: list[Any] | None, directives: list[Any] | None, digest: str) -> None:
    assert digest_of(resources, directives) == digest


def test_the_digest_is_of_what_is_proposed_in_any_order_of_keys() -> None:
    one = digest_of([{"a": 1, "b": {"c": "é", "d": 2}}], None)
    assert one == digest_of([{"b": {"d": 2, "c": "é"}, "a": 1}], None)
    assert len({one, digest_of(None, None), digest_of([{"a": 1}], None), digest_of([{"a": "1"}], None)}) == 4
    plain, later = formed(event("e1")), formed(event("e9", subject="s"), action_plans=[{"name": "x"}])
    assert plain.digest == later.digest == digest_of([route("r1")], None)


def test_the_four_annotations() -> None:
    events = [event("e2", group="edge", subject="s2"), event("e1", group="other"), event("e3", subject="s1")]
    kept = {"apiVersion": "v/1", "kind": "K", "metadata": {"name": "r", "annotations": {"mine": "x"}}, "spec": {}}
    part = formed(*events, resources=[route("r1"), kept])
    assert part.resources[0]["metadata"]["annotations"] == {
        "routerd.net/dynamic-source": OWNER,
        "routerd.net/event-group": "edge",
        "routerd.net/event-id": "e1,e2,e3",
        "routerd.net/event-subject": "s2,s1",
    }
    assert part.resources[1]["metadata"]["annotations"]["mine"] == "x"
    assert (part.group, part.event_ids, part.subjects) == ("edge", ("e1", "e2", "e3"), ("s2", "s1"))


def test_no_subject_no_annotation() -> None:
    part = formed(event("e1"))
    assert "routerd.net/event-subject" not in part.resources[0]["metadata"]["annotations"]
    assert part.subjects == ()


def test_the_proposal_itself_is_left_alone() -> None:
    resource = route("r1")
    formed(event("e1"), resources=[resource])
    assert resource == route("r1")


def test_a_large_batch_is_named_in_part_on_each_resource_and_whole_in_the_part() -> None:
    part = formed(*(event(f"e{number:04}", subject=f"s{number}") for number in range(1000)))
    told = part.resources[0]["metadata"]["annotations"]
    assert told["routerd.net/event-id"].split(",") == [*(f"e{number:04}" for number in range(MOST_NAMED)), "…"]
    assert told["routerd.net/event-subject"].endswith(",s31,…")
    assert (len(part.event_ids), len(part.subjects)) == (1000, 1000)


def test_it_lasts_from_its_observation_on() -> None:
    part = formed(event("e1", expires=NOW + 5), observed_at=NOW - 9, ttl=HOUR)
    assert (part.observed_at, part.expires_at, part.ends, part.grace) == (NOW - 9, NOW - 9 + HOUR, {}, 7)


@pytest.mark.parametrize("observed_at", [-1, LATEST + 1])
def test_a_time_that_cannot_be_written_is_now(observed_at: int) -> None:
    assert formed(event("e1"), observed_at=observed_at).observed_at == NOW
    assert formed(event("e1"), ttl=LATEST).expires_at == LATEST


def test_clamped_to_its_events() -> None:
    events = [
        event("e1", subject="a", expires=NOW + 1),
        event("e2", subject="a", expires=NOW + 3),
        event("e3", subject="a", expires=NOW + 2),
        event("e4", subject="b", expires=NOW + 1),
        event("e5", subject="b"),
        event("e6", expires=NOW + 1),
    ]
    assert formed(*events, clamp=True).ends == {"a": NOW + 3}


def test_a_run_by_hand_is_its_own_owner() -> None:
    part = form_manual_part(plugin="p", result=result(directives=[mask("x")]), now=NOW)
    assert (part.owner, part.source, part.group, part.event_ids, part.ends) == ("Plugin/p", "Plugin/p", "", (), {})
    assert part.resources[0]["metadata"]["annotations"] == {"routerd.net/dynamic-source": "Plugin/p"}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"resources": [route("r1", x=float("nan"))]}, "cannot be written as JSON: Out of range"),
        ({"resources": [route("r1", x=object())]}, "cannot be written as JSON: Object of type object"),
        ({"resources": [route("r1", x="\ud800")]}, "lone surrogates are not text"),
        ({"resources": [route("r\0")]}, "names a resource with U\\+0000"),
        ({"resources": [route("r\ud800")]}, "names a resource with U\\+0000 or a lone surrogate"),
        ({"directives": [{"op": {1}}]}, "cannot be written as JSON: Object of type set"),
        ({"action_plans": [{"x": float("inf")}]}, "cannot be written as JSON: Out of range"),
    ],
)
def test_what_cannot_be_stored_is_refused_in_words(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        formed(event("e1"), **given)
