"""The checks of subscriptions name a missing or repeated effect, and a resource of another run."""

from __future__ import annotations

from typing import Any

import pytest

from eventd.simulation.checks.effects import EffectReference
from eventd.simulation.load.subscriptions import PART_LISTING, RUN_LISTING
from eventd.simulation.world.journal import PLUGIN_RUN, Asked, Journal
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
) -> list[str]:
    """Return the invariants that are violated by a run about one event with these effects."""
    event = {"id": EVENT, "type": "door.open", "sourceNode": "a"}
    emitted = event | ({"expiresAt": "2027-09-21T14:00:00Z"} if refreshed else {})
    runs = [{"eventId": EVENT, "outcome": outcome, "id": 1, "error": ""}]
    door = door_of(EVENT)
    part = {"resources": [{"metadata": {"name": door}, "spec": {"of": resource}}], "gives": [{"name": door}]}
    journal = Journal(
        [
            Asked("subscription", "a", 0.1, 0.2, status, None, None),
            Asked("emit", "a", 1.0, 1.1, 200, {"events": [emitted]}, {"results": []}),
            Asked(PLUGIN_RUN, "a", 1.2, 1.3, 200, [EVENT], how),
            Asked(RUN_LISTING, "a", 2.0, 2.1, 200, None, runs),
            Asked(PART_LISTING, "a", 2.0, 2.1, 200, None, {"parts": [part]}),
            Asked("listing", "a", 2.0, 2.1, 200, None, [event, *effects]),
        ]
    )
    return [each.invariant for each in EffectReference(journal, "a", 0.0).violations()]


def test_one_effect_of_each_event_violates_nothing() -> None:
    assert found(derived()) == []


def test_a_refreshed_event_may_be_coalesced() -> None:
    assert found(outcome="coalesced", refreshed=True) == []


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
