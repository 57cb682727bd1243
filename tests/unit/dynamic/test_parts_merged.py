"""Merging of arbitrary parts is a function of them, and equals a slow and simple reference implementation."""

from __future__ import annotations

import random
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from eventd.dynamic.merge import MASK, Effective, merge
from eventd.dynamic.prepared import PreparedPart, prepare, prepare_startup
from eventd.resources.plugin_configuration import PolicyRule
from eventd.store.parts.part import StoredPart
from eventd.store.rows.registry import StoredResource
from eventd.testing import NOW
from tests.unit.dynamic.samples import allow, declared, mask, route, stored_part

NAMES = ["r1", "r2", "r3", "r4"]
DECLARED = ["fixed", "fallback"]


@st.composite
def some_part(draw: st.DrawFn, number: int) -> StoredPart:
    owner = draw(st.sampled_from(["EventSubscription/a", "EventSubscription/b", "EventSubscription/c"]))
    names = draw(st.lists(st.sampled_from([*NAMES, *NAMES, "fixed"]), max_size=3, unique=draw(st.booleans())))
    ends = {name: NOW + draw(st.integers(-2, 4)) for name in draw(st.sets(st.sampled_from(NAMES), max_size=1))}
    return stored_part(
        f"{owner}/{number}",
        [route(name, about=name if name in ends else "", part=number) for name in names],
        directives=[
            mask(draw(st.sampled_from([*DECLARED, "gone"])), op=draw(st.sampled_from([MASK, MASK, MASK, "drop"])))
            for _ in range(draw(st.integers(0, 2)) // 2)
        ],
        since={name: NOW - draw(st.integers(0, 3)) for name in names},
        expires=NOW + draw(st.integers(-1, 5)),
        ends=ends,
        subjects=list(ends),
        problem=draw(st.sampled_from(["", "", "", "unreadable"])),
    )


@st.composite
def some_parts(draw: st.DrawFn) -> list[StoredPart]:
    return [draw(some_part(number)) for number in range(draw(st.integers(0, 7)))]


STARTUP: Sequence[StoredResource] = [declared(name) for name in DECLARED]
POLICIES: Sequence[PolicyRule] = [allow("EventSubscription/a", "fallback"), allow("EventSubscription/b/1", "fixed")]


def merged(parts: Sequence[StoredPart], now: int = NOW) -> Effective:
    return merge(prepare_startup(STARTUP), [prepare(part) for part in parts], POLICIES, now)


def naive(parts: Sequence[StoredPart], now: int) -> tuple[dict[str, str], set[str]]:
    """Who gives which resource, and the parts that are no effect: one decision after the other, over and over."""
    alive = {p.source: p for p in map(prepare, parts) if p.ends_at > now}
    aside = {source for source, part in alive.items() if part.flaw or not fits(part, now)}
    open_ones = {s: claims_at(p, now) for s, p in alive.items() if s not in aside}
    given: dict[str, str] = {}
    while open_ones:
        source = next_to_decide(open_ones, alive)
        names = open_ones.pop(source)
        if any(name in given for name in names):
            aside.add(source)
        else:
            given |= dict.fromkeys(names, source)
    return given, aside


def claims_at(part: PreparedPart, now: int) -> dict[str, int]:
    return {one.entry.key.name: one.since for one in part.given if one.ends_at > now}


def fits(part: PreparedPart, now: int) -> bool:
    if any(name in DECLARED for name in claims_at(part, now)):
        return False
    masks = part.directives if part.directives_end > now else ()
    allowed = {("EventSubscription/a", "fallback"), ("EventSubscription/b/1", "fixed")}
    return all(
        op == MASK and {(part.owner, target.name), (part.source, target.name)} & allowed for op, target, _ in masks
    )


def next_to_decide(open_ones: dict[str, dict[str, int]], alive: dict[str, PreparedPart]) -> str:
    """One that has no elder among the open ones; else the one with the oldest claim that another has, too."""

    def age(source: str, name: str) -> tuple[int, str, str]:
        return (open_ones[source][name], alive[source].owner, source)

    def has_elder(source: str) -> bool:
        return any(
            name in names and age(other, name) < age(source, name)
            for name in open_ones[source]
            for other, names in open_ones.items()
        )

    free = [source for source in sorted(open_ones) if not has_elder(source)]
    return free[0] if free else ""


def has_circle(parts: Sequence[StoredPart], now: int) -> bool:
    alive = {p.source: p for p in map(prepare, parts) if p.ends_at > now and not p.flaw and fits(p, now)}
    open_ones = {source: claims_at(part, now) for source, part in alive.items()}
    while open_ones:
        source = next_to_decide(open_ones, alive)
        if not source:
            return True
        del open_ones[source]
    return False


@given(some_parts(), st.integers(-1, 3))
def test_it_does_what_the_simple_one_does(parts: list[StoredPart], later: int) -> None:
    now = NOW + later
    if has_circle(parts, now):
        return  # who comes first then is a rule of its own, with a test of its own
    given, aside = naive(parts, now)
    effective = merged(parts, now)
    assert {one.key.name: one.source for one in effective.added} == given
    assert {source for source, _ in effective.set_aside} == aside


@given(some_parts(), st.randoms(use_true_random=False), st.integers(-1, 3))
def test_the_order_of_parts_says_nothing(parts: list[StoredPart], chance: random.Random, later: int) -> None:
    shuffled = list(parts)
    chance.shuffle(shuffled)
    one, other = merged(parts, NOW + later), merged(shuffled, NOW + later)
    assert one == other
    assert one.etag() == other.etag()


@given(some_parts(), st.integers(-1, 3))
def test_every_part_has_one_fate_and_every_resource_one_giver(parts: list[StoredPart], later: int) -> None:
    effective = merged(parts, NOW + later)
    fates = [*effective.active, *effective.expired, *(source for source, _ in effective.set_aside)]
    assert sorted(fates) == sorted(part.source for part in parts)
    keys = [entry.key for entry in effective.entries]
    assert len(keys) == len(set(keys))
    assert {one.source for one in effective.added} <= set(effective.active)
    masked = {one.target.name for one in effective.suppressed}
    assert {name for name in DECLARED if name not in masked} == {k.name for k in keys} & set(DECLARED)
    assert not masked & {k.name for k in keys}


@given(some_parts())
def test_nothing_changes_before_the_next_change(parts: list[StoredPart]) -> None:
    effective = merged(parts)
    until = effective.next_change if effective.next_change is not None else NOW + 100
    assert until > NOW
    assert merged(parts, until - 1).text() == effective.text()
    assert effective.next_change is not None or merged(parts, NOW + 100).text() == effective.text()


@given(some_parts(), some_part(99))
def test_one_bad_part_changes_nothing_for_the_others(parts: list[StoredPart], bad: StoredPart) -> None:
    spoilt = stored_part("EventSubscription/x/99", bad.resources, since=NOW - 9, problem="unreadable")
    assert merged([*parts, spoilt]).entries == merged(parts).entries
