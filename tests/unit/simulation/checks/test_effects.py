"""The checks of subscriptions name a missing or repeated effect, and a resource of another run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from eventd.simulation.checks.effects import EffectReference
from eventd.simulation.load.subscriptions import PART_LISTING, RUN_LISTING
from eventd.simulation.world.journal import PLUGIN_RUN, Asked, Journal, Restore
from eventd.simulation.world.played_plugin import DERIVED, door_of

EVENT = "a-00000"


def derived(of: str = EVENT) -> dict[str, Any]:
    return {"id": f"derived {of}", "type": DERIVED, "sourceNode": "a", "payload": {"of": of}}


def found(
    *effects: dict[str, Any],
    outcome: str = "succeeded",
    how: str = "answered",
    resource: str = EVENT,
    status: int = 200,
    refreshed: bool = False,
    sets: Sequence[Sequence[str]] = ((EVENT,),),
    restored: bool = False,
) -> list[str]:
    """Return the invariants that are violated by a run about one event with these effects.

    `sets`: the sets of events with which the plugin was run. `restored`: a copy has replaced the database.
    """
    event = {"id": EVENT, "type": "door.open", "sourceNode": "a"}
    emitted = event | ({"expiresAt": "2027-09-21T14:00:00Z"} if refreshed else {})
    runs = [{"eventId": EVENT, "outcome": outcome, "id": 1, "error": ""}]
    door = door_of(EVENT)
    part = {"resources": [{"metadata": {"name": door}, "spec": {"of": resource}}], "gives": [{"name": door}]}
    journal = Journal(
        [
            Asked("subscription", "a", 0.1, 0.2, status, None, None),
            Asked("emit", "a", 1.0, 1.1, 200, {"events": [emitted]}, {"results": []}),
            *(Asked(PLUGIN_RUN, "a", 1.2, 1.3, 200, [*ids], how) for ids in sets),
            Asked(RUN_LISTING, "a", 2.0, 2.1, 200, None, runs),
            Asked(PART_LISTING, "a", 2.0, 2.1, 200, None, {"parts": [part]}),
            Asked("listing", "a", 2.0, 2.1, 200, None, [event, *effects]),
        ],
        restores=[Restore("a", 1.0, 1.5)] * restored,
    )
    return [each.invariant for each in EffectReference(journal, "a", 0.0).violations()]


def test_one_effect_of_each_event_violates_nothing() -> None:
    assert found(derived()) == []


def test_a_refreshed_event_may_be_coalesced() -> None:
    assert found(outcome="coalesced", refreshed=True) == []


@pytest.mark.parametrize(
    ("effects", "runs", "outcome", "violations"),
    [
        (1, 1, "succeeded", []),
        (1, 2, "succeeded", []),  # of a second record with the same set of events
        (2, 2, "succeeded", []),
        (2, 1, "succeeded", ["V13"]),
        (0, 1, "succeeded", ["V13"]),
        (0, 0, "not run", ["V13"]),
    ],
)
def test_a_refreshed_event_has_an_effect_and_no_more_than_it_was_run_with_sets_of_events(
    effects: int, runs: int, outcome: str, violations: list[str]
) -> None:
    sets = [[EVENT], [EVENT, "a-00001"]][:runs]
    assert found(*(derived() for _ in range(effects)), sets=sets, outcome=outcome, refreshed=True) == violations


@pytest.mark.parametrize(
    ("effects", "changes"),
    [
        ([], {}),
        ([derived(), derived()], {}),
        ([derived(), derived("b-00000")], {}),
        ([], {"outcome": "coalesced"}),
        ([derived()], {"outcome": "parked", "how": "crashed"}),
        ([derived()], {"how": "crashed"}),
        ([derived()], {"how": "refused"}),
        ([], {"outcome": "parked"}),
        ([derived()], {"resource": "a-00007"}),
        ([derived()], {"status": 422}),
        ([derived()], {"status": 0}),
    ],
)
def test_a_wrong_effect_is_named(effects: list[dict[str, Any]], changes: dict[str, Any]) -> None:
    assert found(*effects, **changes) == ["V13"]


@pytest.mark.parametrize(
    ("effects", "sets", "violations"),
    [
        (2, [[EVENT], [EVENT, "a-00001"]], []),  # it was run again with another event, and both effects are there
        (2, [[EVENT], [EVENT]], ["V13"]),
        (0, [[EVENT]], ["V13"]),
    ],
)
def test_after_a_restore_an_effect_is_there_once_for_each_set_of_events(
    effects: int, sets: list[list[str]], violations: list[str]
) -> None:
    assert found(*(derived() for _ in range(effects)), sets=sets, restored=True) == violations
    assert found(*(derived() for _ in range(effects)), sets=sets) == ["V13"]


@pytest.mark.parametrize(("restored", "violations"), [(True, []), (False, ["V13"])])
def test_an_event_that_restores_took_may_have_left_its_effect(restored: bool, violations: list[str]) -> None:
    assert found(derived(), derived("b-00000"), restored=restored) == violations
    shut = {"id": "b-00000", "type": "power.lost", "sourceNode": "b"}
    assert found(derived(), derived("b-00000"), shut, restored=restored) == ["V13"]
