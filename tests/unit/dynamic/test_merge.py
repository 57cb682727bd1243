"""Merging of declared, masked and derived resources, and the handling of a part that does not fit."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import pytest

from eventd.dynamic.merge import Effective, merge
from eventd.dynamic.prepared import prepare, prepare_startup
from eventd.resources.plugin_configuration import PolicyRule
from eventd.store.parts.part import StoredPart
from eventd.store.rows.registry import StoredResource
from eventd.testing import NOW
from tests.unit.dynamic.samples import HOUR, allow, declared, key, mask, route, stored_part

S1, S2 = "EventSubscription/a/1", "EventSubscription/b/2"
FEDERATION = "federation.routerd.net/v1alpha1"


def merged(
    parts: Sequence[StoredPart] = (),
    startup: Sequence[StoredResource] = (),
    policies: Sequence[PolicyRule] = (),
    now: int = NOW,
) -> Effective:
    return merge(prepare_startup(startup), map(prepare, parts), policies, now)


def names(effective: Effective) -> list[str]:
    return [entry.key.name for entry in effective.entries]


def only_reason(effective: Effective) -> str:
    ((_, reason),) = effective.set_aside
    return reason


def test_nothing_at_all() -> None:
    effective = merged()
    assert (effective.text(), effective.next_change) == (b"[]", None)
    assert effective.etag() == "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945"


def test_startup_comes_first_by_kind_and_name_then_what_parts_give() -> None:
    startup = [declared("z"), declared("b"), declared("m", kind="IPv4Address")]
    effective = merged([stored_part(S2, [route("c")]), stored_part(S1, [route("y"), route("a")])], startup)
    assert names(effective) == ["m", "b", "z", "a", "c", "y"]
    assert [(one.source, one.key.name) for one in effective.added] == [(S1, "a"), (S2, "c"), (S1, "y")]
    assert (effective.active, effective.expired, effective.set_aside) == ([S1, S2], [], [])


def test_two_events_in_two_parts_are_both_in_it() -> None:
    parts = [stored_part("EventSubscription/a/1", [route("r1")]), stored_part("EventSubscription/a/2", [route("r2")])]
    assert names(merged(parts)) == ["r1", "r2"]


def test_a_part_is_over_at_its_expiry() -> None:
    part = stored_part(S1, [route("r")], expires=NOW + 5)
    assert names(merged([part], now=NOW + 4)) == ["r"]
    assert merged([part], now=NOW + 4).next_change == NOW + 5
    over = merged([part], now=NOW + 5)
    assert (names(over), over.active, over.expired, over.next_change) == ([], [], [S1], None)


def test_a_resource_that_ends_sooner_goes_alone() -> None:
    part = stored_part(S1, [route("r1", "s1"), route("r2", "s2")], ends={"s1": NOW + 3}, subjects=["s1", "s2"])
    assert (names(merged([part])), merged([part]).next_change) == (["r1", "r2"], NOW + 3)
    later = merged([part], now=NOW + 3)
    assert (names(later), later.active, later.next_change) == (["r2"], [S1], NOW + HOUR)


def test_the_whole_ends_when_all_its_subjects_have() -> None:
    part = stored_part(S1, [route("r")], ends={"s1": NOW + 3, "s2": NOW + 9}, subjects=["s1", "s2"])
    assert names(merged([part], now=NOW + 8)) == ["r"]
    assert (names(merged([part], now=NOW + 9)), merged([part], now=NOW + 9).expired) == ([], [S1])


def test_what_a_later_part_has_taken_is_not_given_twice() -> None:
    earlier = stored_part("EventSubscription/a/1", [route("r1"), route("r2")])
    taken = {k: held for k, held in earlier.claims.items() if k != key("r1")}
    earlier = StoredPart(**{name: getattr(earlier, name) for name in _fields()} | {"claims": taken})
    later = stored_part("EventSubscription/a/2", [route("r1", new=1)])
    effective = merged([earlier, later])
    assert [(one.source[-1], one.key.name) for one in effective.added] == [("2", "r1"), ("1", "r2")]


def _fields() -> list[str]:
    return [name for kind in StoredPart.__mro__ for name in getattr(kind, "__slots__", ())]


# --- masks ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("source", [S1, "EventSubscription/a"])
def test_an_allowed_mask_takes_a_declared_resource_away(source: str) -> None:
    startup = [declared("fallback"), declared("kept")]
    part = stored_part(S1, directives=[mask("fallback", reason="why")], expires=NOW + 5)
    effective = merged([part], startup, [allow(source, "fallback")])
    assert names(effective) == ["kept"]
    assert effective.suppressed == [(key("fallback"), f"DynamicConfigPart/{S1}", NOW + 5, "why")]
    assert effective.next_change == NOW + 5
    assert names(merged([part], startup, [allow(source, "fallback")], now=NOW + 5)) == ["fallback", "kept"]


def test_masks_of_several_parts_last_as_long_as_the_longest() -> None:
    startup = [declared("fallback")]
    parts = [
        stored_part(S2, directives=[mask("fallback", reason="b")], expires=NOW + 9),
        stored_part(S1, directives=[mask("fallback", reason="a")], expires=NOW + 5),
        stored_part("EventSubscription/b/1", directives=[mask("fallback", reason="b")], expires=NOW + 7),
        stored_part("EventSubscription/b/0", directives=[mask("fallback", reason="over")], expires=NOW),
    ]
    before = copy.deepcopy(startup)
    policies = [allow("EventSubscription/a", "fallback"), allow("EventSubscription/b", "fallback")]
    ((target, by, until, reason),) = merged(parts, startup, policies).suppressed
    assert (target, until, reason) == (key("fallback"), NOW + 9, "a; b")
    assert by == (
        "DynamicConfigPart/EventSubscription/a/1,DynamicConfigPart/EventSubscription/b/1,"
        "DynamicConfigPart/EventSubscription/b/2"
    )
    assert names(merged(parts, startup, policies, now=NOW + 8)) == []
    assert names(merged(parts, startup, policies, now=NOW + 9)) == ["fallback"]
    assert startup == before


@pytest.mark.parametrize(
    ("directive", "policies", "reason"),
    [
        (mask("fallback"), [], "no DynamicOverridePolicy lets EventSubscription/a mask IPv4Route/fallback"),
        (mask("fallback"), [allow(S2, "fallback")], "no DynamicOverridePolicy lets EventSubscription/a mask"),
        (mask("fallback"), [allow("EventSubscription", "fallback")], "no DynamicOverridePolicy lets"),
        (mask("fallback"), [allow(S1, "kept")], "no DynamicOverridePolicy lets EventSubscription/a mask"),
        (mask("gone"), [allow(S1, "gone")], "IPv4Route/gone, which it masks, is not declared"),
        (mask("fallback", op="remove"), [allow(S1, "fallback")], "IPv4Route/fallback: there is no operation 'remove'"),
        ({}, [allow(S1, "fallback")], "there is no operation ''"),
        ("x", [allow(S1, "fallback")], "there is no operation ''"),
        ({"op": "mask", "target": 3}, [allow(S1, "fallback")], "which it masks, is not declared"),
    ],
)
def test_a_mask_that_is_not_allowed_sets_its_part_aside(
    directive: Any, policies: list[PolicyRule], reason: str
) -> None:
    parts = [stored_part(S1, [route("r1")], directives=[directive]), stored_part(S2, [route("r2")])]
    effective = merged(parts, [declared("fallback"), declared("kept")], policies)
    assert names(effective) == ["fallback", "kept", "r2"]
    assert effective.active == [S2]
    assert reason in only_reason(effective)


# --- parts that do not fit ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("resources", "reason"),
    [
        ([route("declared")], "IPv4Route/declared is declared"),
        ([route("masked")], "IPv4Route/masked is declared"),
        ([route("r"), route("r")], "it names IPv4Route/r twice"),
        ([{"kind": "K"}], "a resource lacks its apiVersion, kind or name"),
        (["text"], "a resource lacks its apiVersion, kind or name"),
        ([route("r") | {"apiVersion": "v1"}], "v1 IPv4Route is not a configurable kind"),
        (
            [route("r") | {"apiVersion": FEDERATION, "kind": "EventPear"}],
            "federation.routerd.net/v1alpha1 EventPear is not a configurable kind",
        ),
        (
            [route("p") | {"apiVersion": FEDERATION, "kind": "EventPeer", "spec": {"groupRef": "g"}}],
            "EventPeer/p: spec.nodeName is required",
        ),
        ([route("p") | {"apiVersion": FEDERATION, "kind": "EventPeer", "spec": 3}], "EventPeer/p: spec."),
        ([route("r", x="\ud800")], "IPv4Route/r cannot be written as JSON"),
    ],
)
def test_a_part_that_cannot_be_used_hinders_no_other(resources: list[Any], reason: str) -> None:
    bad = stored_part(S1, [r for r in resources if isinstance(r, dict)])
    bad = StoredPart(**{name: getattr(bad, name) for name in _fields()} | {"resources": [*resources, route("with-it")]})
    parts = [
        bad,
        stored_part(S2, [route("r2")]),
        stored_part("Plugin/m", directives=[mask("masked")]),
    ]
    effective = merged(parts, [declared("declared"), declared("masked")], [allow("Plugin/m", "masked")])
    assert names(effective) == ["declared", "r2"]
    assert reason in only_reason(effective)
    assert effective.active == [S2, "Plugin/m"]


def test_a_row_that_could_not_be_read_is_set_aside() -> None:
    effective = merged([stored_part(S1, problem="its stored ends cannot be read"), stored_part(S2, [route("r")])])
    assert (names(effective), only_reason(effective)) == (["r"], "its stored ends cannot be read")
    assert effective.next_change == NOW + HOUR


def test_resources_of_our_kinds_are_shown_with_a_warning() -> None:
    group = {
        "apiVersion": FEDERATION,
        "kind": "EventGroup",
        "metadata": {"name": "g"},
        "spec": {"nodeName": "a"},
    }
    effective = merged([stored_part(S1, [group])])
    assert names(effective) == ["g"]
    said = f"EventGroup/g of {S1} is shown, but has no effect: declare it with routerctl apply"
    assert effective.warnings == [said]


# --- contests ----------------------------------------------------------------------------------------------------


def test_the_owner_that_has_given_a_resource_for_longer_goes_on_giving_it() -> None:
    elder, younger = stored_part(S2, [route("r", by=2)], since=NOW), stored_part(S1, [route("r", by=1)], since=NOW + 1)
    effective = merged([younger, elder])
    assert [one.source for one in effective.added] == [S2]
    assert effective.set_aside == [(S1, f"IPv4Route/r is defined by {S2} since 2026-11-20T12:00:00Z")]
    assert [one.source for one in merged([younger]).added] == [S1]


def test_of_equal_age_the_first_by_name_does() -> None:
    effective = merged([stored_part(S2, [route("r")]), stored_part(S1, [route("r")])])
    assert [one.source for one in effective.added] == [S1]


def test_when_the_elder_ends_the_younger_comes_in() -> None:
    elder = stored_part(S2, [route("r")], expires=NOW + 5)
    effective = merged([stored_part(S1, [route("r")], since=NOW + 1), elder], now=NOW + 5)
    assert [one.source for one in effective.added] == [S1]


def test_who_is_set_aside_takes_nothing_from_the_younger() -> None:
    """The elder is of no use, for reasons of its own, or for it has lost to one that is older still."""
    useless = stored_part(S1, [route("r")], directives=[mask("x")])
    assert names(merged([useless, stored_part(S2, [route("r")], since=NOW + 1)])) == ["r"]
    oldest = stored_part("EventSubscription/a/1", [route("r1")], since=NOW)
    middle = stored_part("EventSubscription/b/1", [route("r1"), route("r2")], since=NOW + 1)
    youngest = stored_part("EventSubscription/c/1", [route("r2")], since=NOW + 2)
    effective = merged([youngest, middle, oldest])
    assert effective.active == ["EventSubscription/a/1", "EventSubscription/c/1"]


def test_age_is_asked_of_the_resource_and_not_of_the_part() -> None:
    one = stored_part("EventSubscription/a/1", [route("r1"), route("r2")], since={"r1": NOW, "r2": NOW + 5})
    other = stored_part("EventSubscription/b/1", [route("r2")], since=NOW + 3)
    assert merged([one, other]).active == ["EventSubscription/b/1"]


def test_a_part_waits_for_the_fate_of_all_its_elders() -> None:
    """`c` is younger than `a`, which loses, and than `b`, which is decided on later than `a` and yet before `c`."""
    first = stored_part("EventSubscription/z/1", [route("r0")], since=NOW)
    a = stored_part("EventSubscription/a/1", [route("r0"), route("r1")], since=NOW + 1)
    b = stored_part("EventSubscription/b/1", [route("r2")], since=NOW + 4)
    c = stored_part("EventSubscription/c/1", [route("r1"), route("r2")], since={"r1": NOW + 2, "r2": NOW + 5})
    assert merged([c, b, a, first]).active == ["EventSubscription/b/1", "EventSubscription/z/1"]


def test_where_each_is_the_elder_of_the_other_the_oldest_claim_decides() -> None:
    one = stored_part("EventSubscription/b/1", [route("r1"), route("r2")], since={"r1": NOW + 2, "r2": NOW + 3})
    other = stored_part("EventSubscription/a/1", [route("r1"), route("r2")], since={"r1": NOW + 4, "r2": NOW + 1})
    effective = merged([one, other])
    assert effective.active == ["EventSubscription/a/1"]
    assert "IPv4Route/r1 is defined by EventSubscription/a/1 since 2026-11-20T12:00:00.000004Z" in only_reason(
        effective
    )
